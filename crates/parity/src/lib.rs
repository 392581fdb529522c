//! XOR and P+Q redundancy with recovery, in SIMD kernels picked at run time.
