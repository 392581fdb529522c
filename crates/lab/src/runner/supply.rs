//! Where a run gets its worlds and drives from.
//!
//! The runner asks a [`Supply`] and can't tell what stands behind it: files and block devices on
//! a machine, or drives that sleep in virtual time.

use std::path::PathBuf;
use std::rc::Rc;

use drive::{CreateError, Drive, NbdError, OpenError};
use world::{RingError, World};

use crate::model::DriveRecord;
use crate::plan::DriveSource;
use crate::units;

/// What a run needs from its surroundings.
pub trait Supply {
    /// A new world. Each subject has its own, so that nothing of an earlier one runs on in it.
    ///
    /// # Errors
    ///
    /// A kernel without io_uring.
    fn world(&mut self) -> Result<World, RingError>;

    /// What can be said about a drive before it is opened.
    fn record(&self, source: &DriveSource) -> DriveRecord;

    /// Opens the drives of one subject, in order; makes those that are the lab's own. `writes`
    /// says whether anything will be written to them.
    ///
    /// # Errors
    ///
    /// The first drive that can't be had; the others are closed again.
    fn open(
        &mut self,
        world: &World,
        sources: &[DriveSource],
        writes: bool,
    ) -> Result<Vec<Supplied>, SupplyError>;

    /// Takes note that every byte of the lab's own drive is written.
    fn filled(&mut self, source: &DriveSource);

    /// Gives up the lab's own drive, which could not be filled, and the room it takes.
    fn abandon(&mut self, source: &DriveSource);
}

/// A drive, ready for use.
#[derive(Clone)]
pub struct Supplied {
    /// The drive.
    pub drive: Rc<dyn Drive>,
    /// What it is.
    pub record: DriveRecord,
    /// What is on it.
    pub content: Content,
}

/// What is on a drive before the run writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The lab made it and has not written to it: reading it would cost nothing.
    Unwritten,
    /// The lab has written all of it.
    Written,
    /// It was there before. `hole_bytes` is the place of the first byte that was never written,
    /// where that can be known.
    Given {
        /// Offset from the start of the drive.
        hole_bytes: Option<u64>,
    },
}

/// Why there is no drive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupplyError {
    /// The scratch folder can't be made or used.
    #[error("the scratch folder {} can't be used: {source}\nhint: set `scratch` in the plan to a \
             folder that can be written to", .path.display())]
    Scratch {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file drive would fill the disk.
    #[error("a drive of {} does not fit into {}, which has {} free\nhint: make room, use \
             smaller drives, or set `scratch` in the plan to a folder on another disk",
            units::size(*.needed_bytes), .path.display(), units::size(*.free_bytes))]
    NoSpace {
        /// The scratch folder.
        path: PathBuf,
        /// Size of the drive.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// A file drive could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A drive could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Two members are one drive.
    #[error("{first} and {second} are the same drive\nhint: give each member a drive of its own")]
    SameDrive {
        /// One name of it.
        first: String,
        /// The other one.
        second: String,
    },
    /// An NBD export could not be opened.
    #[error(transparent)]
    Nbd(#[from] NbdError),
}
