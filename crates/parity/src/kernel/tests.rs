//! Every kernel against the reference: all lengths, alignments, constants and member counts.

use super::*;
use crate::field::power;

/// Every length that goes through single vectors and bytes only, and through one block.
const SHORT: std::ops::RangeInclusive<usize> = 0..=200;

/// Lengths around one and several blocks, which are up to 4 vectors of 64 bytes.
const LONG: [usize; 8] = [255, 256, 257, 319, 320, 511, 512 + 64 + 33, 1024 + 200];

fn lengths() -> impl Iterator<Item = usize> {
    SHORT.chain(LONG)
}

/// Bytes without a pattern that a kernel's mistake could hide in, different for each seed.
fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| byte()).collect()
}

/// `count` members of `length` bytes, none of them aligned like another.
fn members(count: usize, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|k| noise(k, k % 5 + length)).collect()
}

/// The members without their leading bytes that spoil the alignment.
fn slices(members: &[Vec<u8>], length: usize) -> Vec<&[u8]> {
    members.iter().map(|member| &member[member.len() - length..]).collect()
}

fn reference() -> &'static Kernel {
    Kernel::all_supported().last().expect("the reference runs everywhere")
}

fn others() -> &'static [&'static Kernel] {
    let (_, others) = Kernel::all_supported().split_last().expect("the reference runs everywhere");
    others
}

#[test]
fn the_reference_and_the_portable_kernel_are_always_there() {
    let names: Vec<&str> = Kernel::all_supported().iter().map(|kernel| kernel.name()).collect();
    assert!(names.ends_with(&["word", "scalar"]), "{names:?}");
    assert_eq!(Kernel::best().name(), names[0]);
    assert_eq!(format!("{:?}", reference()), "Kernel(scalar)");
}

#[test]
fn xor_equals_the_reference() {
    let members = members(32, 2000);
    for length in lengths() {
        let sources = slices(&members, length);
        for count in 0..=sources.len() {
            let mut expected = vec![1; length];
            reference().xor(&mut expected, &sources[..count]);
            for kernel in others() {
                let mut found = vec![2; length];
                kernel.xor(&mut found, &sources[..count]);
                assert_eq!(found, expected, "{kernel:?}, {count} sources, {length} bytes");
            }
        }
    }
}

#[test]
fn xor_into_equals_the_reference() {
    let members = members(2, 2000);
    for length in lengths() {
        let sources = slices(&members, length);
        let mut expected = sources[0].to_vec();
        reference().xor_into(&mut expected, sources[1]);
        for kernel in others() {
            let mut found = sources[0].to_vec();
            kernel.xor_into(&mut found, sources[1]);
            assert_eq!(found, expected, "{kernel:?}, {length} bytes");
        }
    }
}

#[test]
fn multiplication_equals_the_reference_for_all_constants() {
    let members = members(2, 2000);
    for constant in 0..=255 {
        for length in lengths() {
            let sources = slices(&members, length);
            let mut expected = sources[0].to_vec();
            reference().multiply_into(&mut expected, sources[1], constant);
            for kernel in others() {
                let mut found = sources[0].to_vec();
                kernel.multiply_into(&mut found, sources[1], constant);
                assert!(found == expected, "{kernel:?}, times {constant}, {length} bytes");
            }
        }
    }
}

#[test]
fn multiplication_equals_the_reference_for_all_bytes() {
    let bytes: Vec<u8> = (0..=255).collect();
    for constant in 0..=255 {
        let mut expected = vec![0; 256];
        reference().multiply_into(&mut expected, &bytes, constant);
        for kernel in others() {
            let mut found = vec![0; 256];
            kernel.multiply_into(&mut found, &bytes, constant);
            assert_eq!(found, expected, "{kernel:?}, times {constant}");
        }
    }
}

/// Compares P and Q, with Q alone.
fn compare_pq(data: &[Option<&[u8]>], length: usize) {
    let (mut p_expected, mut q_expected) = (vec![1; length], vec![1; length]);
    reference().pq(&mut p_expected, &mut q_expected, data);
    for kernel in Kernel::all_supported() {
        let (mut p, mut q, mut q_alone) = (vec![2; length], vec![3; length], vec![4; length]);
        kernel.pq(&mut p, &mut q, data);
        kernel.q(&mut q_alone, data);
        let places = data.len();
        assert_eq!(p, p_expected, "P of {kernel:?}, {places} places, {length} bytes");
        assert_eq!(q, q_expected, "Q of {kernel:?}, {places} places, {length} bytes");
        assert_eq!(q_alone, q_expected, "Q alone, {kernel:?}, {places} places, {length} bytes");
    }
}

#[test]
fn pq_equals_the_reference() {
    let members = members(32, 2000);
    for length in lengths() {
        let data: Vec<Option<&[u8]>> = slices(&members, length).into_iter().map(Some).collect();
        // Each length meets each residue of the count, and each count many lengths.
        for count in (0..=data.len()).filter(|count| (count + length) % 4 == 0 || length < 80) {
            compare_pq(&data[..count], length);
        }
    }
}

#[test]
fn pq_with_holes_equals_the_reference() {
    let members = members(12, 300);
    let full = slices(&members, 300);
    for holes in 0..1usize << 12 {
        // Every set of holes among 6 places, and the sets among 12 that look like DDF's.
        if holes >= 64 && (holes | holes >> 1).count_ones() > 3 {
            continue;
        }
        let data: Vec<Option<&[u8]>> =
            full.iter().enumerate().map(|(k, s)| (holes >> k & 1 == 0).then_some(*s)).collect();
        compare_pq(&data, 300);
    }
}

#[test]
fn pq_takes_as_many_members_as_there_are_exponents() {
    let members = members(DATA_MAX, 130);
    let data: Vec<Option<&[u8]>> = slices(&members, 130).into_iter().map(Some).collect();
    compare_pq(&data, 130);
}

#[test]
fn recovery_passes_equal_the_reference() {
    let members = members(9, 2000);
    for length in lengths() {
        let sources = slices(&members, length);
        let data: Vec<Option<&[u8]>> =
            sources[..7].iter().enumerate().map(|(k, s)| (k != 3).then_some(*s)).collect();
        let (p, q) = (sources[7], sources[8]);
        let factors = [power(length), power(length * 7 + 1)];
        let run = |kernel: &Kernel| {
            let mut blocks: [Vec<u8>; 5] = std::array::from_fn(|_| vec![0; length]);
            let [first, second, lost, lost_with_p, lost_p] = &mut blocks;
            kernel.two_data([first, second], p, q, &data, factors);
            kernel.data_from_q(lost, None, q, &data, factors[1]);
            kernel.data_from_q(lost_with_p, Some(lost_p), q, &data, factors[1]);
            blocks
        };
        let expected = run(reference());
        for kernel in others() {
            assert_eq!(run(kernel), expected, "{kernel:?}, {length} bytes");
        }
    }
}

#[test]
#[should_panic(expected = "same length")]
fn lengths_that_differ_are_refused() {
    Kernel::best().xor(&mut [0; 4], &[&[0; 4], &[0; 5]]);
}

#[test]
#[should_panic(expected = "more than 255")]
fn more_members_than_exponents_are_refused() {
    Kernel::best().pq(&mut [], &mut [], &[None; DATA_MAX + 1]);
}
