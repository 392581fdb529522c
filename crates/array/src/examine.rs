//! Looking at drives: every superblock on them, and which arrays they form. Reads only.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use drive::{Drive, DriveError, ErrorKind, Operation};
use format::md::{
    Assembly, Candidate, Layout, MemberView, Place, SUPERBLOCK_BYTES, SUPERBLOCK090_BYTES,
    Superblock, Superblock090Error, SuperblockError, Version, decide, parse090, place090, places,
};
use geometry::{Geometry, Shape};
use world::{BufMut, Pool, ReadBufs, World, join_all};

use crate::mutant::{self, Mutant};

/// The size assumed of members when only their number matters: any multiple of every chunk.
const NOMINAL_MEMBER_BYTES: u64 = 1 << 40;

/// A superblock that was found and is sound.
#[derive(Debug, Clone)]
pub struct FoundSuperblock {
    /// What it says.
    pub view: MemberView,
    /// All of it, for version 1; what is written back.
    pub superblock: Option<Superblock>,
    /// Why it can't be true on this drive, if so.
    pub implausible: Option<format::md::Implausible>,
}

/// Bytes at a superblock's place that carry its magic and are not sound.
#[derive(Debug, Clone)]
pub struct DamagedSuperblock {
    /// Where, in bytes.
    pub offset: u64,
    /// The version whose place it is.
    pub version: Version,
    /// What is wrong.
    pub reason: DamageReason,
}

/// What is wrong with a superblock.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DamageReason {
    /// Version 1.
    #[error(transparent)]
    Version1(#[from] SuperblockError),
    /// Version 0.90.
    #[error(transparent)]
    Version090(#[from] Superblock090Error),
}

/// All md metadata on one drive.
#[derive(Debug, Clone, Default)]
pub struct Examined {
    /// Sound superblocks, in the order of [`places`], 0.90 last.
    pub found: Vec<FoundSuperblock>,
    /// Damaged ones.
    pub damaged: Vec<DamagedSuperblock>,
    /// Places that could not be read.
    pub unreadable: Vec<DriveError>,
}

/// Reads `bytes` from `offset` on, widened to the drive's blocks.
///
/// # Errors
/// The drive's.
pub async fn read_bytes(
    pool: &Pool,
    drive: &dyn Drive,
    offset: u64,
    bytes: usize,
) -> Result<BufMut, DriveError> {
    let block = u64::from(drive.facts().block_bytes);
    let start = offset / block * block;
    let end = (offset + bytes as u64).next_multiple_of(block);
    let buffer = pool.take((end - start) as usize);
    let mut done = drive.read(start, ReadBufs::from_iter([buffer])).await;
    done.result?;
    let mut all = done.buffers.pop().expect("one buffer was given");
    let mut wanted = all.split_off((offset - start) as usize);
    let _behind = wanted.split_off(bytes);
    Ok(wanted)
}

/// Looks for superblocks of every version.
pub async fn examine(pool: &Pool, drive: &dyn Drive) -> Examined {
    let size = drive.facts().size_bytes;
    let mut examined = Examined::default();
    for place in places(size) {
        let bytes = match read_bytes(pool, drive, place.offset_bytes, SUPERBLOCK_BYTES).await {
            Ok(bytes) => bytes,
            Err(error) => {
                examined.unreadable.push(error);
                continue;
            }
        };
        match Superblock::parse(&bytes, place) {
            Ok(superblock) => examined.found.push(FoundSuperblock {
                view: MemberView::from(&superblock),
                implausible: superblock.validate(size).err(),
                superblock: Some(superblock),
            }),
            Err(SuperblockError::BadMagic { .. }) => {}
            Err(error) => examined.damaged.push(damaged(place, error)),
        }
    }
    let Some(offset) = place090(size) else { return examined };
    match read_bytes(pool, drive, offset, SUPERBLOCK090_BYTES).await {
        Err(error) => examined.unreadable.push(error),
        Ok(bytes) => match parse090(&bytes, offset) {
            Ok(view) => {
                examined.found.push(FoundSuperblock { view, superblock: None, implausible: None });
            }
            Err(Superblock090Error::BadMagic { .. }) => {}
            Err(error) => examined.damaged.push(DamagedSuperblock {
                offset,
                version: Version::V0_90,
                reason: error.into(),
            }),
        },
    }
    examined
}

fn damaged(place: Place, error: SuperblockError) -> DamagedSuperblock {
    let Place { version, offset_bytes } = place;
    DamagedSuperblock { offset: offset_bytes, version, reason: error.into() }
}

/// Drives that were looked at together, and the arrays they form.
pub struct Scan {
    /// The drives, as given.
    pub drives: Vec<Rc<dyn Drive>>,
    /// Per drive, what is on it.
    pub examined: Vec<Examined>,
    /// Every sound superblock, as judged; `Candidate::drive` is the index of its drive.
    pub candidates: Vec<Candidate>,
    /// Per candidate, its superblock where it is of version 1.
    pub(crate) superblocks: Vec<Option<Superblock>>,
    /// The arrays, each with a verdict on every candidate of it.
    pub assemblies: Vec<Assembly>,
}

impl Scan {
    /// Looks at all drives, which are known to answer, and judges what they say.
    pub async fn of(pool: &Pool, drives: Vec<Rc<dyn Drive>>) -> Scan {
        let looks = drives.iter().map(|drive| examine(pool, drive.as_ref()));
        let examined = join_all(looks).await.into_iter().collect();
        Scan::judge(drives, examined)
    }

    /// As [`Scan::of`]; a drive that takes longer than `limit` counts as one that can't be read,
    /// and has [`ErrorKind::TimedOut`] among what could not be.
    pub async fn within(world: &World, limit: Duration, drives: Vec<Rc<dyn Drive>>) -> Scan {
        let looks = drives.iter().map(|drive| async move {
            let look = examine(world.pool(), drive.as_ref());
            let looked = world.within(limit, "the metadata of a drive", look).await;
            looked.unwrap_or_else(|late| Examined {
                unreadable: vec![DriveError {
                    kind: ErrorKind::TimedOut,
                    operation: Operation::Read,
                    offset: 0,
                    bytes: 0,
                    drive: drive.facts().name.clone(),
                    source: Some(Rc::new(io::Error::other(late))),
                }],
                ..Examined::default()
            })
        });
        let examined = join_all(looks).await.into_iter().collect();
        Scan::judge(drives, examined)
    }

    /// Judges what was found.
    fn judge(drives: Vec<Rc<dyn Drive>>, examined: Vec<Examined>) -> Scan {
        let mut candidates = Vec::new();
        let mut superblocks = Vec::new();
        for (drive, examined) in examined.iter().enumerate() {
            for found in &examined.found {
                let FoundSuperblock { mut view, superblock, implausible } = found.clone();
                if mutant::planted(Mutant::StaleTrusted) {
                    view.events = 0;
                }
                candidates.push(Candidate { drive, view, implausible });
                superblocks.push(superblock);
            }
        }
        let assemblies = decide(&candidates, &can_run);
        Scan { drives, examined, candidates, superblocks, assemblies }
    }

    /// The same drives, judged as if only these candidates of `assembly` existed: one side of a
    /// split brain, or a set completed by stale members.
    #[must_use]
    pub fn only(&self, kept: &[usize]) -> Scan {
        let pick = |index: &usize| kept.contains(index);
        let indexes: Vec<usize> = (0..self.candidates.len()).filter(pick).collect();
        let candidates: Vec<Candidate> =
            indexes.iter().map(|&index| self.candidates[index].clone()).collect();
        let superblocks = indexes.iter().map(|&index| self.superblocks[index].clone()).collect();
        let assemblies = decide(&candidates, &can_run);
        Scan {
            drives: self.drives.clone(),
            examined: self.examined.clone(),
            candidates,
            superblocks,
            assemblies,
        }
    }
}

/// md's number for a level as this crate's geometry knows it.
pub(crate) fn level_of(level: format::md::Level) -> Option<geometry::Level> {
    geometry::Level::try_from(level.code()).ok()
}

/// Whether a set of this shape has all its data with the slots marked present.
fn can_run(layout: &Layout, present: &[bool]) -> bool {
    let Some(level) = level_of(layout.level) else { return false };
    let shape = Shape {
        level,
        layout: layout.layout,
        chunk_bytes: layout.chunk_bytes,
        member_bytes: vec![NOMINAL_MEMBER_BYTES; present.len()],
    };
    let missing: Vec<bool> = present.iter().map(|present| !present).collect();
    Geometry::new(&shape).is_ok_and(|geometry| geometry.survives(&missing))
}
