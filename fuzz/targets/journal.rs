//! The write journal: meta blocks, and payloads without the checksum before them.
#![no_main]

use format::md::Uuid;
use format::md::journal::{JournalPayload, MetaBlock, Payloads};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u64, &[u8])| {
    let (position, bytes) = data;
    let set = Uuid([1; 16]);
    if let Ok(meta) = MetaBlock::parse(bytes, position, None, set) {
        let _ = meta.next_position(1 << 20);
    }
    for payload in Payloads::of(bytes) {
        match payload {
            Ok(JournalPayload::Data(blocks) | JournalPayload::Parity(blocks)) => {
                let _ = blocks.check(blocks.count().saturating_sub(1), bytes, set);
            }
            Ok(JournalPayload::Flush(stripes)) => {
                let _ = stripes.sectors().count();
            }
            Err(error) => drop(error.to_string()),
        }
    }
});
