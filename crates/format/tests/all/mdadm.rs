//! What is built here, read by mdadm (skipped, by name, where it is not installed).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use format::md::{
    BITMAP_CHUNK_BYTES, Consistency, CreateRequest, DevFlags, Level, NewMember, Timestamp, Uuid,
    Version, initial_writes, plan_create,
};

const DEVICE_BYTES: u64 = 64 << 20;

fn request(version: Version, level: Level, layout: u32, chunk_bytes: u32) -> CreateRequest {
    let member = |index: u8| NewMember {
        device_bytes: DEVICE_BYTES,
        device_uuid: Uuid([0x10 + index; 16]),
        devflags: DevFlags::default(),
    };
    CreateRequest {
        version,
        set_uuid: Uuid(core::array::from_fn(|index| index as u8)),
        name: "host:0".to_owned(),
        level,
        layout,
        chunk_bytes,
        slots: (0..4).map(|index| Some(member(index))).collect(),
        spares: Vec::new(),
        size_bytes: None,
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean: false,
        created: Timestamp::new(1_700_000_000, 0),
    }
}

/// Creates the set in sparse files; mdadm's view of each member.
fn examine(request: &CreateRequest) -> Option<Vec<String>> {
    if Command::new("mdadm").arg("--version").output().is_err() {
        eprintln!("skipped: mdadm is not installed");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = plan_create(request).expect("can be made");
    let texts = plan.iter().enumerate().map(|(index, superblock)| {
        let path = folder.path().join(format!("d{index}"));
        let file = File::create(&path).expect("a file");
        file.set_len(DEVICE_BYTES).expect("room");
        for (offset, bytes) in initial_writes(superblock, BITMAP_CHUNK_BYTES) {
            file.write_all_at(&bytes, offset).expect("room");
        }
        let output = Command::new("mdadm").arg("--examine").arg(&path).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    });
    Some(texts.collect())
}

fn assert_says(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn mdadm_reads_new_sets_of_every_version() {
    for (version, text) in [(Version::V1_0, "1.0"), (Version::V1_1, "1.1"), (Version::V1_2, "1.2")]
    {
        let Some(members) = examine(&request(version, Level::Raid5, 2, 65536)) else { return };
        for (slot, member) in members.iter().enumerate() {
            let version = format!("Version : {text}");
            let role = format!("Device Role : Active device {slot}");
            let lines = [
                &version[..],
                &role,
                "Array UUID : 00010203:04050607:08090a0b:0c0d0e0f",
                "Name : host:0",
                "Raid Level : raid5",
                "Layout : left-symmetric",
                "Chunk Size : 64K",
                "State : active",
                "- correct",
                "512 entries available",
                "Array State : AAAA",
            ];
            assert_says(member, &lines);
        }
    }
}

#[test]
fn mdadm_reads_every_level_and_log() {
    let with = |level, layout, chunk, change: &dyn Fn(&mut CreateRequest)| {
        let mut request = request(Version::V1_2, level, layout, chunk);
        change(&mut request);
        examine(&request).map(|mut members| members.swap_remove(0))
    };
    let unchanged = |_: &mut CreateRequest| {};
    let Some(text) = with(Level::Raid0, 2, 65536, &unchanged) else { return };
    assert_says(&text, &["raid0", "Layout : alternate", "Feature Map : 0x1000", "- correct"]);
    let Some(text) = with(Level::Raid10, 0x102, 65536, &unchanged) else { return };
    assert_says(&text, &["raid10", "Layout : near=2", "- correct"]);
    let Some(text) = with(Level::Raid1, 0, 0, &|r| r.consistency = Consistency::Bitmap) else {
        return;
    };
    assert_says(&text, &["raid1", "Internal Bitmap : 8 sectors from superblock", "- correct"]);
    let Some(text) = with(Level::Raid5, 2, 65536, &|r| r.consistency = Consistency::Ppl) else {
        return;
    };
    assert_says(&text, &["PPL : 2048 sectors at offset 8 sectors from superblock", "- correct"]);
    let Some(text) = with(Level::Raid6, 2, 65536, &|r| r.slots[2] = None) else { return };
    assert_says(&text, &["raid6", "Array State : AA.A", "- correct"]);
    let Some(text) = with(Level::Raid6, 2, 65536, &|r| r.assume_clean = true) else { return };
    assert_says(&text, &["State : clean", "- correct"]);
}
