//! Files and block devices as drives, through the world's io_uring.
//!
//! Requests go to the kernel as they are, with the caller's buffers. Only a request whose buffers
//! direct I/O can't take (an odd address, a part that is not whole blocks) is copied through a
//! pooled buffer. Short transfers are continued, so a completed operation is a whole one.
//!
//! A failed flush is final: the kernel reports a lost write once and forgets it, so every later
//! flush of this drive fails too, until it is opened again.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use world::{FixedFile, Pool, ReadBufs, Ring, World, WriteBufs, total_bytes};

use crate::api::{Discarded, Drive, Durability, Facts, Io, ReadDone, Zeroing, check_range};
use crate::cut::{append, copy_into, copy_out, shared_part, split_front};
use crate::error::{DriveError, ErrorKind, Operation};
use crate::open::{Alignment, Identity, OpenError, OpenOptions, Opened, open};
use crate::sysfs;

/// Parts one system call takes (IOV_MAX).
const PARTS_MAX: usize = 1024;
/// The largest buffer for copies and zeroes: long enough that a transfer hides its overhead.
const SCRATCH_BYTES_MAX: u64 = 1 << 20;

/// A regular file or a block device.
pub struct FileDrive(Rc<OpenFile>);

struct OpenFile {
    facts: Facts,
    ring: Ring,
    pool: Pool,
    file: FixedFile,
    alignment: Option<Alignment>,
    identity: Identity,
    flush_failed: Cell<bool>,
}

impl FileDrive {
    /// Opens `path` on the world's ring. The lock or claim of [`OpenOptions::exclusive`] ends with
    /// the drive, once the kernel has finished what was under way on it.
    ///
    /// # Errors
    /// See [`OpenError`]; each says what to do.
    pub fn open(world: &World, path: &Path, options: OpenOptions) -> Result<FileDrive, OpenError> {
        let ring = world.ring().ok_or_else(|| OpenError::NoRing { path: path.to_owned() })?;
        let Opened { file, facts, alignment, identity } =
            open(path, options, world.pool(), Path::new(sysfs::ROOT))?;
        Ok(FileDrive(Rc::new(OpenFile {
            facts,
            ring: ring.clone(),
            pool: world.pool().clone(),
            file: ring.adopt(file.into()),
            alignment,
            identity,
            flush_failed: Cell::new(false),
        })))
    }

    /// Which drive it is, by whatever name it was opened.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.identity
    }
}

impl OpenFile {
    /// Whether the kernel takes this buffer as it is.
    fn fits(&self, buffer: &[u8]) -> bool {
        self.alignment.is_none_or(|alignment| {
            (buffer.as_ptr() as usize).is_multiple_of(alignment.memory_bytes as usize)
                && buffer.len().is_multiple_of(alignment.offset_bytes as usize)
        })
    }

    /// Reads what one plain operation can't.
    async fn read_slowly(&self, offset: u64, mut buffers: ReadBufs) -> (ReadBufs, io::Result<()>) {
        if buffers.iter().all(|buffer| self.fits(buffer)) {
            return self.read_whole(offset, buffers).await;
        }
        let result = self.read_copied(offset, &mut buffers).await;
        (buffers, result)
    }

    /// Reads until every buffer is full.
    async fn read_whole(&self, mut offset: u64, buffers: ReadBufs) -> (ReadBufs, io::Result<()>) {
        let mut filled = ReadBufs::new();
        let mut rest = buffers;
        // The last filled buffer and the first of the rest are two pieces of one.
        let mut cut = false;
        let mut result = Ok(());
        while !rest.is_empty() && result.is_ok() {
            let later = split_parts(&mut rest);
            let wanted = total_bytes(&rest);
            let (mut part, read) = self.ring.read(&self.file, offset, rest).await;
            let done = match read {
                Ok(0) if wanted > 0 => {
                    result = Err(io::ErrorKind::UnexpectedEof.into());
                    0
                }
                Ok(done) => done,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => {
                    result = Err(error);
                    0
                }
            };
            offset += done as u64;
            let (front, cut_again) = split_front(&mut part, done as u64);
            append(&mut filled, front, cut);
            cut = cut_again;
            rest = part;
            rest.extend(later);
        }
        append(&mut filled, rest, cut);
        (filled, result)
    }

    /// Reads through a pooled buffer that direct I/O can take.
    async fn read_copied(&self, offset: u64, buffers: &mut ReadBufs) -> io::Result<()> {
        let bytes = total_bytes(buffers);
        let mut done = 0;
        while done < bytes {
            let scratch = self.pool.take((bytes - done).min(self.scratch_bytes()) as usize);
            let scratch = ReadBufs::from_iter([scratch]);
            let (scratch, result) = self.read_whole(offset + done, scratch).await;
            result?;
            copy_into(buffers, done, &scratch[0]);
            done += total_bytes(&scratch);
        }
        Ok(())
    }

    /// Writes what one plain operation can't.
    async fn write_slowly(&self, offset: u64, buffers: WriteBufs, durable: bool) -> io::Result<()> {
        if buffers.iter().all(|buffer| self.fits(buffer)) {
            return self.write_whole(offset, buffers, durable).await;
        }
        self.write_copied(offset, &buffers, durable).await
    }

    /// Writes until every buffer is stored.
    async fn write_whole(
        &self,
        mut offset: u64,
        buffers: WriteBufs,
        durable: bool,
    ) -> io::Result<()> {
        let mut rest = buffers;
        while !rest.is_empty() {
            let later = split_parts(&mut rest);
            let wanted = total_bytes(&rest);
            let (part, written) = self.ring.write(&self.file, offset, rest, durable).await;
            let done = match written {
                Ok(0) if wanted > 0 => return Err(io::ErrorKind::WriteZero.into()),
                Ok(done) => done,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            offset += done as u64;
            rest = shared_part(&part, done as u64, wanted - done as u64);
            rest.extend(later);
        }
        Ok(())
    }

    /// Writes through a pooled buffer that direct I/O can take.
    async fn write_copied(
        &self,
        offset: u64,
        buffers: &WriteBufs,
        durable: bool,
    ) -> io::Result<()> {
        let bytes = total_bytes(buffers);
        let mut done = 0;
        while done < bytes {
            let mut scratch = self.pool.take((bytes - done).min(self.scratch_bytes()) as usize);
            copy_out(buffers, done, &mut scratch);
            let start = offset + done;
            done += scratch.len() as u64;
            self.write_whole(start, WriteBufs::from_iter([scratch.freeze()]), durable).await?;
        }
        Ok(())
    }

    /// Whole blocks, about as many as a scratch buffer should have.
    fn scratch_bytes(&self) -> u64 {
        let block = u64::from(self.facts.block_bytes);
        (SCRATCH_BYTES_MAX - SCRATCH_BYTES_MAX % block).max(block)
    }

    async fn zero(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durable: bool,
    ) -> io::Result<()> {
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let zero = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let modes: &[i32] = match zeroing {
            Zeroing::MayUnmap => &[punch, zero],
            Zeroing::KeepAllocated => &[zero],
        };
        for &mode in modes {
            match self.ring.allocate(&self.file, mode, offset, bytes).await {
                Err(error) if ErrorKind::of(&error) == ErrorKind::Unsupported => {}
                Ok(()) if durable => return self.sync().await,
                result => return result,
            }
        }
        let zeroes = self.pool.take_zeroed(bytes.min(self.scratch_bytes()) as usize);
        let zeroes = zeroes.freeze();
        let mut done = 0;
        while done < bytes {
            let part = zeroes.slice(0, (bytes - done).min(zeroes.len() as u64) as usize);
            let length = part.len() as u64;
            self.write_whole(offset + done, WriteBufs::from_iter([part]), durable).await?;
            done += length;
        }
        Ok(())
    }

    /// Syncs the file. The kernel reports a lost write once only, so whoever sees an error (or goes
    /// away before the answer) makes every later flush fail too.
    async fn sync(&self) -> io::Result<()> {
        let unanswered = Unanswered(&self.flush_failed);
        self.ring.sync(&self.file).await?;
        std::mem::forget(unanswered);
        Ok(())
    }

    fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), DriveError> {
        check_range(&self.facts, operation, offset, bytes)
    }

    fn failed(
        &self,
        operation: Operation,
        offset: u64,
        bytes: u64,
        error: io::Error,
    ) -> DriveError {
        let kind = ErrorKind::of(&error);
        let drive = self.facts.name.clone();
        DriveError { kind, operation, offset, bytes, drive, source: Some(Rc::new(error)) }
    }

    fn flush_lost(&self, source: Option<Rc<io::Error>>) -> DriveError {
        DriveError {
            kind: ErrorKind::Lost,
            operation: Operation::Flush,
            offset: 0,
            bytes: 0,
            drive: self.facts.name.clone(),
            source,
        }
    }
}

/// A sync under way: unless it is seen to succeed, everything since the last one may be lost.
struct Unanswered<'a>(&'a Cell<bool>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl Drive for FileDrive {
    fn facts(&self) -> &Facts {
        &self.0.facts
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        let bytes = total_bytes(&buffers);
        let checked = self.0.check(Operation::Read, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(ReadDone { buffers, result: checked });
        }
        let file = Rc::clone(&self.0);
        let failed =
            move |file: &OpenFile, error| file.failed(Operation::Read, offset, bytes, error);
        if buffers.len() > PARTS_MAX || !buffers.iter().all(|buffer| self.0.fits(buffer)) {
            return Io::later(async move {
                let (buffers, result) = file.read_slowly(offset, buffers).await;
                ReadDone { buffers, result: result.map_err(|error| failed(&file, error)) }
            });
        }
        let operation = file.ring.read(&file.file, offset, buffers);
        Io::later(async move {
            let (mut buffers, read) = operation.await;
            let result = match read {
                Ok(done) if done as u64 == bytes => Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    Err(failed(&file, error))
                }
                _ => {
                    // Cut short: read anew in pieces. Too rare to have room in every future.
                    let again = Box::pin(file.read_slowly(offset, buffers)).await;
                    buffers = again.0;
                    again.1.map_err(|error| failed(&file, error))
                }
            };
            ReadDone { buffers, result }
        })
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        let checked = self.0.check(Operation::Write, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let durable = durability == Durability::Durable;
        let file = Rc::clone(&self.0);
        let failed =
            move |file: &OpenFile, error| file.failed(Operation::Write, offset, bytes, error);
        if buffers.len() > PARTS_MAX || !buffers.iter().all(|buffer| self.0.fits(buffer)) {
            return Io::later(async move {
                file.write_slowly(offset, buffers, durable)
                    .await
                    .map_err(|error| failed(&file, error))
            });
        }
        let operation = file.ring.write(&file.file, offset, buffers, durable);
        Io::later(async move {
            let (buffers, written) = operation.await;
            match written {
                Ok(done) if done as u64 == bytes => Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    Err(failed(&file, error))
                }
                // Cut short: written anew in pieces.
                _ => Box::pin(file.write_slowly(offset, buffers, durable))
                    .await
                    .map_err(|error| failed(&file, error)),
            }
        })
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        if self.0.facts.read_only {
            return Io::ready(Ok(()));
        }
        if self.0.flush_failed.get() {
            return Io::ready(Err(self.0.flush_lost(None)));
        }
        let file = Rc::clone(&self.0);
        Io::later(async move {
            file.sync().await.map_err(|error| file.flush_lost(Some(Rc::new(error))))
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        let checked = self.0.check(Operation::Discard, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked.map(|()| Discarded::Unspecified));
        }
        let file = Rc::clone(&self.0);
        Io::later(async move {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            match file.ring.allocate(&file.file, mode, offset, bytes).await {
                Ok(()) => Ok(Discarded::Zeroes),
                Err(error) if ErrorKind::of(&error) == ErrorKind::Unsupported => {
                    Ok(Discarded::Unspecified)
                }
                Err(error) => Err(file.failed(Operation::Discard, offset, bytes, error)),
            }
        })
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let checked = self.0.check(Operation::WriteZeroes, offset, bytes);
        if checked.is_err() || bytes == 0 {
            return Io::ready(checked);
        }
        let durable = durability == Durability::Durable;
        let file = Rc::clone(&self.0);
        Io::later(async move {
            let result = file.zero(offset, bytes, zeroing, durable).await;
            result.map_err(|error| file.failed(Operation::WriteZeroes, offset, bytes, error))
        })
    }
}

/// Leaves as many buffers in `parts` as one system call takes and returns the others.
fn split_parts<B: smallvec::Array>(parts: &mut smallvec::SmallVec<B>) -> smallvec::SmallVec<B> {
    if parts.len() <= PARTS_MAX {
        return smallvec::SmallVec::new();
    }
    parts.drain(PARTS_MAX..).collect()
}
