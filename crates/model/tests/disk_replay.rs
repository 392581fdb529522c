//! Request lists of real disks, replayed on their models: how far the distribution of modelled
//! service times is from the measured one.
//!
//! The published figures are those of DiskSim 4.0 for the same disks, parameters and lists.
//! `docs/models.md` has a table of them.

#[expect(dead_code, reason = "other tests use the rest")]
mod disks;

use std::io::Read;
use std::path::Path;

use disks::{disks, read};
use model::disk::replay::{Measured, demerit, parse, replay};

/// Published demerit figures in milliseconds, by how the disk's file names it.
const PUBLISHED: [(&str, f64); 8] = [
    ("QUANTUM_QM39100TD-SW", 0.378),
    ("SEAGATE_ST32171W", 0.348),
    ("SEAGATE_ST39102LW_validate", 0.107),
    ("IBM_DNES-309170W_validate", 0.136),
    ("QUANTUM_TORNADO_validate", 0.268),
    ("HP_C2247A_validate", 0.090),
    ("HP_C3323A", 0.306),
    ("HP_C3323A_validate", 0.306),
];

/// How much worse than the published figure a model may be.
const WORSE_MAX: f64 = 1.2;

/// Of a disk without a published figure: the largest published one, as a share of the mean.
const SHARE_MAX: f64 = 0.069;

/// The list beside a disk's file.
fn list(path: &Path) -> Option<Vec<Measured>> {
    let name = path.file_stem()?.to_string_lossy().into_owned();
    let list = format!("{}.trace.xz", name.trim_end_matches("_validate"));
    let file = std::fs::File::open(path.with_file_name(list)).ok()?;
    let mut text = String::new();
    let mut reader = lzma_rust2::XzReader::new(file, false);
    reader.read_to_string(&mut text).expect("a packed list");
    Some(parse(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn mean_ms(times: &[u64]) -> f64 {
    times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e6
}

#[test]
fn models_are_as_close_to_real_disks_as_published() {
    let Some(disks) = disks("disk_replay::models_are_as_close_to_real_disks_as_published") else {
        return;
    };
    let mut wrong = Vec::new();
    let mut replayed = 0;
    for path in disks {
        let Some(requests) = list(&path) else { continue };
        let disk = read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = disk.name.clone();
        let times = replay(disk, &requests);
        let measured: Vec<u64> = requests.iter().map(|request| request.service_ns).collect();
        let figure = demerit(&measured, &times) / 1e6;
        let mean = mean_ms(&measured);
        let published = PUBLISHED.iter().find(|known| known.0 == name).map(|known| known.1);
        let most = published.map_or(mean * SHARE_MAX, |known| known) * WORSE_MAX;
        println!(
            "{name}: demerit {figure:.3} ms of at most {most:.3}, {:.1} % of the mean; mean \
             {mean:.3} ms measured, {:.3} modelled",
            figure / mean * 100.0,
            mean_ms(&times)
        );
        if figure > most {
            wrong.push(format!("{name}: {figure:.3} ms, more than {most:.3}"));
        }
        replayed += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(replayed > 0, "there are lists");
}
