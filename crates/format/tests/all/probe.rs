//! What real programs leave on a drive is found (each skipped, by name, where the program is not
//! installed).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use format::probe::{Class, Finding, HEAD_BYTES, Kind, TAIL_BYTES, probe};
use proptest::prelude::*;

use crate::common::{members, sets};

#[test]
fn raid_metadata_of_real_programs() {
    for set in sets() {
        for member in members(&set) {
            let size = member.device_bytes;
            let tail_bytes = TAIL_BYTES.min(size as usize);
            let head = member.read(0, HEAD_BYTES);
            let tail = member.read(size - tail_bytes as u64, tail_bytes);
            let findings = probe(&head, &tail, size);
            let kind = match set.split('-').next() {
                Some("ddf") => Kind::Ddf,
                Some("imsm") => Kind::Imsm,
                _ => Kind::Md,
            };
            let of_kind: Vec<_> = findings.iter().filter(|finding| finding.kind == kind).collect();
            assert_eq!(of_kind.len(), 1, "{set}: {findings:?}");
            assert!(of_kind[0].intact && of_kind[0].id.is_some(), "{set}: {findings:?}");
            assert_eq!(findings.len(), 1, "{set}: {findings:?}");
        }
    }
}

/// Runs a program on a new sparse file; what is found there afterwards.
fn after(program: &str, arguments: &[&str], input: &str) -> Option<Vec<Finding>> {
    const DEVICE_BYTES: u64 = 512 << 20;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("drive");
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    file.set_len(DEVICE_BYTES).expect("room");
    std::fs::write(folder.path().join("input"), input).expect("room");
    let input = File::open(folder.path().join("input")).expect("a file");
    let run = Command::new(program).args(arguments).arg(&path).stdin(input).output();
    let Ok(output) = run else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    let (mut head, mut tail) = (vec![0; HEAD_BYTES], vec![0; TAIL_BYTES]);
    file.read_exact_at(&mut head, 0).expect("readable");
    file.read_exact_at(&mut tail, DEVICE_BYTES - TAIL_BYTES as u64).expect("readable");
    Some(probe(&head, &tail, DEVICE_BYTES))
}

#[test]
fn file_systems_and_swap_of_real_programs() {
    let uuid = "11111111-2222-3333-4444-555555555555";
    for (program, arguments, kind, label) in [
        ("mkfs.ext2", &["-q", "-U", uuid, "-L", "home"][..], Kind::Ext2, "home"),
        ("mkfs.ext3", &["-q", "-U", uuid, "-L", "home"], Kind::Ext3, "home"),
        ("mkfs.ext4", &["-q", "-U", uuid, "-L", "home"], Kind::Ext4, "home"),
        ("mkfs.xfs", &["-q", "-m", "uuid=11111111-2222-3333-4444-555555555555"], Kind::Xfs, ""),
        ("mkswap", &["-U", uuid, "-L", "swap"], Kind::Swap, "swap"),
    ] {
        let Some(findings) = after(program, arguments, "") else { continue };
        assert_eq!(findings.len(), 1, "{program}: {findings:?}");
        assert_eq!((findings[0].kind, findings[0].id.as_deref()), (kind, Some(uuid)), "{program}");
        assert_eq!(findings[0].label.as_deref().unwrap_or(""), label, "{program}");
    }
}

#[test]
fn partition_tables_of_a_real_program() {
    if let Some(findings) = after("sfdisk", &["-q"], "label: dos\n,,83\n") {
        let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [Kind::Mbr]);
    }
    if let Some(findings) = after("sfdisk", &["-q"], "label: gpt\n,,L\n") {
        let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [Kind::Mbr, Kind::Gpt, Kind::GptBackup]);
        assert!(findings.iter().all(|finding| finding.intact));
        assert!(findings.iter().all(|finding| finding.kind.class() == Class::PartitionTable));
        assert_eq!(findings[1].id, findings[2].id);
    }
}

proptest! {
    #[test]
    fn any_ends(
        head in prop::collection::vec(any::<u8>(), 0..8192),
        tail in prop::collection::vec(any::<u8>(), 0..8192),
        device_bytes in prop_oneof![0..20_000_u64, any::<u64>()],
    ) {
        for finding in probe(&head, &tail, device_bytes) {
            prop_assert!(finding.offset_bytes < device_bytes);
        }
    }
}
