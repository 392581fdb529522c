//! A subject, built from its drives: in either world, with what is needed to watch it.

use std::rc::Rc;

use array::{Array, Consistency, NewArray};
use drive::{Counting, Drive, DriveError, Durability, Zeroing};
use geometry::{Geometry, Shape, layout_name};
use world::{SplitMix64, TimedOut, World};

use super::measure::ANSWER_LIMIT;
use super::supply::{Content, Supplied};
use crate::model::{DriveTraffic, Note, NoteKind, SubjectRecord};
use crate::plan::{ArrayShape, DriveSource, Storage, Subject};
use crate::units;

/// What is zeroed of a given drive once its array was measured: md's superblock 1.2 lies within.
const WIPED_BYTES: u64 = 1 << 20;
/// Member size for a shape whose members nobody has seen; copies and parity don't depend on it.
const NOMINAL_MEMBER_BYTES: u64 = 1 << 40;

/// A subject that can be measured.
pub(super) struct Built {
    /// What the workloads work on.
    pub drive: Rc<dyn Drive>,
    /// Its drives, counted.
    members: Vec<Rc<Counting>>,
    array: Option<Array>,
    /// Members that were there before, and hold the superblocks of the lab's array now.
    marked: Vec<Rc<dyn Drive>>,
    /// What every cell has to say.
    pub notes: Vec<Note>,
}

/// Why a subject could not be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum BuildError {
    /// The array could not be made.
    #[error("the array could not be made")]
    Array(#[from] array::CreateError),
    /// A chunk larger than any can be.
    #[error("a chunk of {0} bytes is too large")]
    Chunk(u64),
    /// A drive does not answer.
    #[error("the array could not be made")]
    Late(#[from] TimedOut),
}

/// What an array is made with besides its drives.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    /// Its identity follows from this.
    pub seed: u64,
    /// Seconds since 1970.
    pub now_unix_s: u64,
}

impl Built {
    /// Builds `subject` over its drives, in the plan's order. All they hold is given up, if it is
    /// an array.
    pub async fn new(
        world: &World,
        subject: &Subject,
        drives: Vec<Supplied>,
        birth: Birth,
    ) -> Result<Self, BuildError> {
        let members: Vec<Rc<Counting>> =
            drives.iter().map(|it| Rc::new(Counting::new(Rc::clone(&it.drive)))).collect();
        let counted = || members.iter().map(|member| Rc::clone(member) as Rc<dyn Drive>);
        let mut built = Built {
            drive: counted().next().expect("a plan gives each subject a drive"),
            members: members.clone(),
            array: None,
            marked: Vec::new(),
            notes: Vec::new(),
        };
        if let Storage::Array { shape, .. } = &subject.storage {
            let array = create(world, subject, shape, counted().collect(), birth).await?;
            built.drive = Rc::new(array.clone());
            built.array = Some(array);
            let given = drives.iter().filter(|it| matches!(it.content, Content::Given { .. }));
            built.marked = given.map(|it| Rc::clone(&it.drive)).collect();
        }
        if !built.drive.facts().direct {
            built.notes.push(Note {
                kind: NoteKind::CacheMeasured,
                text: "no direct I/O here: memory was measured, not the drive".to_owned(),
            });
        }
        Ok(built)
    }

    /// What has reached the drives so far.
    pub fn traffic(&self) -> DriveTraffic {
        let mut sum = DriveTraffic::default();
        for counts in self.members.iter().map(|member| member.counts()) {
            sum.read_ios += counts.reads;
            sum.read_bytes += counts.read_bytes;
            sum.write_ios += counts.writes;
            sum.write_bytes += counts.write_bytes;
        }
        sum
    }

    /// Members that failed while it was measured, in words.
    pub fn failures(&self) -> Option<String> {
        let status = self.array.as_ref()?.status();
        let texts: Vec<String> = status
            .failures
            .iter()
            .map(|failure| format!("member {} failed: {}", failure.slot, failure.error))
            .collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Takes it apart again; drives that were there before lose the array's superblocks.
    pub async fn close(self) -> Result<(), DriveError> {
        if let Some(array) = &self.array {
            array.stop().await?;
        }
        for drive in &self.marked {
            let facts = drive.facts();
            let bytes = WIPED_BYTES.min(facts.size_bytes);
            let bytes = bytes - bytes % u64::from(facts.block_bytes);
            drive.write_zeroes(0, bytes, Zeroing::KeepAllocated, Durability::Cached).await?;
            drive.flush().await?;
        }
        Ok(())
    }
}

async fn create(
    world: &World,
    subject: &Subject,
    shape: &ArrayShape,
    drives: Vec<Rc<dyn Drive>>,
    birth: Birth,
) -> Result<Array, BuildError> {
    let mut random = SplitMix64::new(birth.seed);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    let chunk = |bytes: u64| u32::try_from(bytes).map_err(|_| BuildError::Chunk(bytes));
    let array = NewArray {
        name: md_name(&subject.name),
        level: shape.level,
        // Where it is the usual one the engine knows best which of md's ways to write it.
        layout: (shape.layout != geometry::default_layout(shape.level)).then_some(shape.layout),
        chunk_bytes: shape.chunk_bytes.map(chunk).transpose()?,
        slots: drives.into_iter().map(Some).collect(),
        spares: Vec::new(),
        size_bytes: None,
        // A resync would be measured too; the run fills what it reads.
        consistency: Consistency::Resync,
        checksums: false,
        assume_clean: true,
        uuid,
        now_seconds: birth.now_unix_s,
    };
    Ok(world.within(ANSWER_LIMIT, "the drives of the new array", array.create(world)).await??)
}

/// A name that fits into md's 32 bytes.
fn md_name(name: &str) -> String {
    let mut end = name.len().min(32);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// The drives a subject is made of.
pub(super) fn sources(subject: &Subject) -> Vec<DriveSource> {
    match &subject.storage {
        Storage::Drive(source) => vec![source.clone()],
        Storage::Array { members, .. } => members.clone(),
        Storage::Target(target) => vec![DriveSource::Path(target.clone())],
    }
}

/// A subject as the plan describes it; `drives` are the places of its drives in the run's list.
pub(super) fn record(subject: &Subject, drives: Vec<usize>) -> SubjectRecord {
    let (description, parity_members, copies) = match &subject.storage {
        Storage::Drive(_) => ("one drive".to_owned(), 0, 1),
        Storage::Target(target) => (target.clone(), 0, 1),
        Storage::Array { members, shape } => {
            let copies = copies(members.len(), shape);
            (describe(members.len(), shape), shape.level.parities() as u32, copies)
        }
    };
    SubjectRecord {
        name: subject.name.clone(),
        baseline: subject.baseline,
        description,
        drives,
        parity_members,
        copies,
        capacity_bytes: None,
    }
}

fn chunk_bytes(shape: &ArrayShape) -> u64 {
    shape.chunk_bytes.unwrap_or(u64::from(array::CHUNK_BYTES_DEFAULT))
}

fn copies(members: usize, shape: &ArrayShape) -> u32 {
    let shape = Shape {
        level: shape.level,
        layout: shape.layout,
        chunk_bytes: chunk_bytes(shape),
        member_bytes: vec![NOMINAL_MEMBER_BYTES; members],
    };
    Geometry::new(&shape).map_or(1, |geometry| geometry.copies() as u32)
}

/// `raid5, left-symmetric, 64 KiB chunks, 4 drives`.
fn describe(members: usize, shape: &ArrayShape) -> String {
    use geometry::Level::{Linear, Raid0, Raid1, Raid4};
    let mut parts = vec![shape.level.to_string()];
    // Levels with one layout don't name it; RAID 0's matters for unequal members only.
    if !matches!(shape.level, Linear | Raid0 | Raid1 | Raid4) {
        parts.extend(layout_name(shape.level, shape.layout));
    }
    if !matches!(shape.level, Linear | Raid1) {
        parts.push(format!("{} chunks", units::size(chunk_bytes(shape))));
    }
    parts.push(format!("{members} drives"));
    parts.join(", ")
}
