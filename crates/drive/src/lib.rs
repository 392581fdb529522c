//! What a drive is: files and block devices, memory, and injected faults.
