//! Checks and repairs at an administrator's word.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use array::{Array, Mismatch, Outcome};

use super::serving::ActError;
use crate::error::Failure;

/// Keeps the contents that every mismatch nobody can judge leaves to choose from, each in a file of
/// its own that is new: `OFFSET-slotN-read` and `OFFSET-slotN-computed`, by offset in the array.
///
/// # Errors
/// When one can't be written: then nothing is to be overwritten.
pub async fn save(array: &Array, folder: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, source: io::Error| ActError::Save { path: path.to_owned(), source };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let Some(scrub) = array.status().scrub else { return Ok(()) };
    let listed = scrub.findings.len() as u64;
    let left = scrub.counts.findings.saturating_sub(listed);
    if left > 0 {
        return Err(ActError::NotAllListed { left }.into());
    }
    // What a repair before this one has made to agree leaves nothing to choose from.
    let open = |found: &&Mismatch| found.slot.is_none() && found.outcome == Outcome::Left;
    for mismatch in scrub.findings.iter().filter(open) {
        for candidate in array.candidates(mismatch).await {
            let contents = [("read", &candidate.read), ("computed", &candidate.computed)];
            for (word, content) in contents {
                let Some(content) = content else { continue };
                let (offset, slot) = (mismatch.array_offset, candidate.member.slot);
                let path: PathBuf = folder.join(format!("{offset}-slot{slot}-{word}"));
                let kept = File::create_new(&path).and_then(|mut file| {
                    file.write_all(content)?;
                    file.sync_all()
                });
                kept.map_err(|error| failed(&path, error))?;
            }
        }
    }
    Ok(())
}
