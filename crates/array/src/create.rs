//! Making a new array: superblocks on drives that were found free.
//!
//! Whether the drives may be overwritten is the caller's question, asked before; this writes.

use std::rc::Rc;

use drive::{Drive, DriveError, Durability};
use format::md::{
    BITMAP_CHUNK_BYTES, CreateRequest, DevFlags, Level, NewMember, SECTOR_BYTES, Superblock,
    Timestamp, Uuid, Version, initial_writes, plan_create,
};
use format::own::SumsArea;
use geometry::{GeometryError, Shape, default_layout};
use world::{SplitMix64, World, WriteBufs, join_all};

use crate::array::Array;
use crate::assemble::{AssembleError, OpenMode};
use crate::checksums::first_header;
use crate::consistency::Consistency;
use crate::examine::Scan;

/// md's own default.
pub const CHUNK_BYTES_DEFAULT: u32 = 512 << 10;

/// What array to make.
pub struct NewArray {
    /// Its name, up to 32 bytes.
    pub name: String,
    /// Its level.
    pub level: geometry::Level,
    /// md's layout number; `None`: the level's default.
    pub layout: Option<u32>,
    /// Chunk in bytes; `None`: [`CHUNK_BYTES_DEFAULT`] where the level has chunks.
    pub chunk_bytes: Option<u32>,
    /// The drives in slot order; `None` where one is missing.
    pub slots: Vec<Option<Rc<dyn Drive>>>,
    /// Drives that wait for a failure.
    pub spares: Vec<Rc<dyn Drive>>,
    /// Bytes of each member to use; `None`: as many as the smallest has.
    pub size_bytes: Option<u64>,
    /// The record of writes in flight it keeps; see [`Consistency::default_for`].
    pub consistency: Consistency,
    /// The drives are known to agree already (all zero, say): no resync.
    pub assume_clean: bool,
    /// Keep checksums of the data on the members.
    pub checksums: bool,
    /// The array's identity; the members' are derived from it.
    pub uuid: [u8; 16],
    /// Seconds since 1970.
    pub now_seconds: u64,
}

/// Why no array was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The request makes no sense.
    #[error(transparent)]
    Plan(#[from] format::md::CreateError),
    /// A bit of the bitmap can't stand for so much.
    #[error("a bit of a bitmap stands for a power of two from 4 KiB on, not for {0} bytes")]
    BitmapChunk(u32),
    /// The shape makes no sense.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A drive failed while it was written; the others may hold superblocks of the new array.
    #[error("writing the superblocks failed")]
    Drive(#[from] DriveError),
    /// What was written does not read back as this array.
    #[error("what was written does not read back as the array")]
    NotFound,
    /// What was written does not open.
    #[error(transparent)]
    Open(#[from] AssembleError),
}

/// What a new array will be, before anything is written.
#[derive(Debug, Clone)]
pub struct CreatePlan {
    /// One superblock for each drive, in the order slots, spares, journal.
    superblocks: Vec<Superblock>,
    /// Bytes each member contributes; 0 where each contributes all it has.
    pub used_bytes: u64,
    /// Size of the array in bytes.
    pub array_bytes: u64,
}

impl NewArray {
    /// Checks the request and works out sizes. Nothing is read or written.
    ///
    /// # Errors
    /// [`CreateError`]: what is wrong with the request.
    pub fn plan(&self) -> Result<CreatePlan, CreateError> {
        let level = Level::from_code(i32::from(self.level));
        let mut random = SplitMix64::new(u64::from_le_bytes(
            self.uuid[..8].try_into().expect("half of sixteen bytes"),
        ));
        let mut new_member = |drive: &Rc<dyn Drive>| {
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&random.next_u64().to_le_bytes());
            uuid[8..].copy_from_slice(&random.next_u64().to_le_bytes());
            let device_bytes = drive.facts().size_bytes;
            NewMember { device_bytes, device_uuid: Uuid(uuid), devflags: DevFlags::default() }
        };
        let slots: Vec<Option<NewMember>> =
            self.slots.iter().map(|drive| drive.as_ref().map(&mut new_member)).collect();
        let spares: Vec<NewMember> = self.spares.iter().map(&mut new_member).collect();
        if let Consistency::Bitmap { chunk_bytes: Some(bytes) } = self.consistency
            && !(bytes.is_power_of_two() && bytes >= 4096)
        {
            return Err(CreateError::BitmapChunk(bytes));
        }
        let consistency = match &self.consistency {
            Consistency::None | Consistency::Resync => format::md::Consistency::Resync,
            Consistency::Bitmap { .. } => format::md::Consistency::Bitmap,
            Consistency::Ppl => format::md::Consistency::Ppl,
            Consistency::Journal(drive) => format::md::Consistency::Journal(new_member(drive)),
        };
        let chunk_bytes = match level {
            Level::Raid1 => 0,
            Level::Linear => self.chunk_bytes.unwrap_or(0),
            _ => self.chunk_bytes.unwrap_or(CHUNK_BYTES_DEFAULT),
        };
        let mut request = CreateRequest {
            version: Version::V1_2,
            set_uuid: Uuid(self.uuid),
            name: self.name.clone(),
            level,
            layout: self.layout.unwrap_or_else(|| default_layout(self.level)),
            chunk_bytes,
            slots,
            spares,
            size_bytes: self.size_bytes,
            consistency,
            checksums: self.checksums,
            assume_clean: self.assume_clean,
            created: Timestamp::new(self.now_seconds, 0),
        };
        let mut superblocks = plan_create(&request)?;
        let data_bytes = |superblock: &Superblock| superblock.data_size_sectors * 512;
        let equal = superblocks.windows(2).all(|pair| data_bytes(&pair[0]) == data_bytes(&pair[1]));
        if level == Level::Raid0 && self.layout.is_none() && equal {
            // With equal members there is one zone, and no layout to tell apart: what old kernels
            // wrote, and all of them read.
            request.layout = 0;
            superblocks = plan_create(&request)?;
        }
        let used_bytes = superblocks[0].size_sectors * 512;
        let shape = Shape {
            level: self.level,
            layout: superblocks[0].layout,
            chunk_bytes: chunk_bytes.into(),
            member_bytes: if used_bytes > 0 {
                vec![used_bytes; self.slots.len()]
            } else {
                superblocks.iter().take(self.slots.len()).map(data_bytes).collect()
            },
        };
        let geometry = geometry::Geometry::new(&shape)?;
        Ok(CreatePlan { superblocks, used_bytes, array_bytes: geometry.array_bytes() })
    }

    /// Writes the superblocks, reads them back, and opens the array.
    ///
    /// # Errors
    /// [`CreateError`]; before the first write for everything the plan finds.
    pub async fn create(&self, world: &World) -> Result<Array, CreateError> {
        let plan = self.plan()?;
        let journal = match &self.consistency {
            Consistency::Journal(drive) => Some(drive),
            _ => None,
        };
        let bitmap_chunk_bytes = match self.consistency {
            Consistency::Bitmap { chunk_bytes: Some(bytes) } => bytes.into(),
            _ => BITMAP_CHUNK_BYTES,
        };
        let members = self.slots.iter().flatten().chain(&self.spares).chain(journal);
        let drives: Vec<Rc<dyn Drive>> = members.cloned().collect();
        let writes = drives.iter().zip(&plan.superblocks).map(|(drive, superblock)| async move {
            let mut initial = initial_writes(superblock, bitmap_chunk_bytes);
            if self.checksums {
                // A journal has no data.
                let area = SumsArea::of(superblock, superblock.size_sectors * SECTOR_BYTES);
                let header = area.map(|area| first_header(superblock, area, self.now_seconds));
                initial.splice(0..0, header);
            }
            for (offset, bytes) in initial {
                // The superblock comes last: the set does not exist before its areas do.
                drive.flush().await?;
                let buffer = world.pool().copy_of(&bytes);
                let buffers = WriteBufs::from_iter([buffer]);
                drive.write(offset, buffers, Durability::Durable).await?;
            }
            drive.flush().await
        });
        for result in join_all(writes).await {
            result?;
        }
        let scan = Scan::of(world.pool(), drives).await;
        let assembly = scan.assemblies.iter().find(|assembly| assembly.set_uuid == Uuid(self.uuid));
        let mode = OpenMode { read_only: false, force_dirty: true, now_seconds: self.now_seconds };
        Ok(scan.open(world, assembly.ok_or(CreateError::NotFound)?, mode).await?)
    }
}
