//! Finds the real disks.

use std::path::{Path, PathBuf};

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
