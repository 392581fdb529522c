//! Finds the real disks.

use std::path::{Path, PathBuf};

use model::disk::extracted::{ExtractedError, read_disk};
use model::disk::parameters::Parameters;

/// Their `.diskspecs` files; none where the folder isn't there.
pub fn disks(test: &str) -> Option<Vec<PathBuf>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts/disks");
    let folder = std::env::var_os("BACKPLANE_DISKS").map_or(beside, PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: {test}: needs BACKPLANE_DISKS");
        return None;
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ext| ext == "diskspecs")).collect();
    found.sort();
    assert!(!found.is_empty(), "{} has disks", folder.display());
    Some(found)
}

/// Reads a disk from its file and those beside it.
pub fn read(path: &Path) -> Result<Parameters, ExtractedError> {
    let name = path.file_name().expect("a file has a name").to_string_lossy();
    read_disk(&name, |name| std::fs::read_to_string(path.with_file_name(name)))
}

/// The disk that golden figures are of; none where its file isn't there.
pub fn cheetah(test: &str) -> Option<Parameters> {
    let disks = disks(test)?;
    let Some(path) = disks.iter().find(|path| path.ends_with("cheetah9LP.diskspecs")) else {
        println!("skipped: {test}: the folder has no cheetah9LP");
        return None;
    };
    Some(read(path).expect("it can be read"))
}
