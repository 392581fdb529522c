//! The bad-block log: what is read can be written and read again.
#![no_main]

use format::md::{build_bad_blocks, parse_bad_blocks};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u8, &[u8])| {
    let (shift, log) = data;
    let Ok(ranges) = parse_bad_blocks(log, shift) else { return };
    let built = build_bad_blocks(&ranges, shift, log.len());
    assert_eq!(parse_bad_blocks(&built.expect("fits where it came from"), shift), Ok(ranges));
});
