//! A stored histogram: what decodes is what was encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::Histogram;

fuzz_target!(|data: (Vec<u64>, &[u8])| {
    let (values, bytes) = data;
    let mut histogram = Histogram::new();
    for value in &values {
        histogram.record(*value);
    }
    let encoded = histogram.encode();
    let decoded = Histogram::decode(&encoded).expect("what was encoded decodes");
    assert_eq!(decoded, histogram);
    // The same with some bytes changed, and bytes that nobody encoded.
    let mut changed = encoded;
    for (place, change) in changed.iter_mut().zip(bytes) {
        *place ^= change;
    }
    for bytes in [&changed[..], bytes] {
        if let Ok(decoded) = Histogram::decode(bytes) {
            assert_eq!(decoded.encode(), bytes, "one form for each histogram");
        }
    }
});
