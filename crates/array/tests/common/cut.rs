//! Drives whose power can be cut, and arrays with a bitmap of small chunks on them.

use std::rc::Rc;

use array::{Array, Consistency, NewArray, OpenMode, Scan};
use drive::{
    Counting, Counts, Drive, Durability, Effect, Fault, FaultControl, Faulty, MemoryDrive,
};
use format::md::{BITMAP_HEADER_BYTES, BitmapHeader, ConsistencyPlace, MemberView};
use geometry::Level;
use world::{ReadBufs, World, WriteBufs};

pub const MODE: OpenMode =
    OpenMode { read_only: false, force_dirty: false, now_seconds: 1_700_000_000 };

/// Drives with a volatile cache, whose power can be cut, and that count.
pub struct Rack {
    pub world: World,
    pub drives: Vec<Rc<Counting>>,
    pub controls: Vec<FaultControl>,
}

impl Rack {
    pub fn new(world: &World, members: usize, drive_bytes: u64) -> Rack {
        let (mut drives, mut controls) = (Vec::new(), Vec::new());
        for index in 0..members {
            let memory = Rc::new(MemoryDrive::new(&format!("d{index}"), drive_bytes, 512));
            let faulty = Faulty::new(world, memory, index as u64);
            let control = faulty.control();
            control.set_volatile_cache(true);
            control.add(Fault::new(Effect::Delay(std::time::Duration::from_micros(100))));
            controls.push(control);
            drives.push(Rc::new(Counting::new(Rc::new(faulty))));
        }
        Rack { world: world.clone(), drives, controls }
    }

    pub fn dynamic(&self) -> Vec<Rc<dyn Drive>> {
        self.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn Drive>).collect()
    }

    /// A new set with a bitmap of `bitmap_chunk_bytes`, in sync, stopped.
    pub async fn create(&self, level: Level, layout: u32, chunk: u32, bitmap_chunk_bytes: u32) {
        let request = NewArray {
            name: "test".to_owned(),
            level,
            layout: Some(layout),
            chunk_bytes: (level != Level::Raid1).then_some(chunk),
            slots: self.dynamic().into_iter().map(Some).collect(),
            spares: Vec::new(),
            size_bytes: None,
            consistency: Consistency::Bitmap { chunk_bytes: Some(bitmap_chunk_bytes) },
            checksums: false,
            assume_clean: true,
            uuid: *b"0123456789abcdef",
            now_seconds: MODE.now_seconds,
        };
        let array = request.create(&self.world).await.unwrap();
        array.stop().await.unwrap();
    }

    pub async fn view(&self, drive: &dyn Drive) -> MemberView {
        array::examine(self.world.pool(), drive).await.found[0].view.clone()
    }

    /// Where a member's bitmap starts, and its header.
    pub async fn bitmap(&self, drive: &dyn Drive) -> (u64, BitmapHeader) {
        let ConsistencyPlace::Bitmap { start } = self.view(drive).await.consistency else {
            panic!("a set with a bitmap")
        };
        let pool = self.world.pool();
        let bytes = array::read_bytes(pool, drive, start, BITMAP_HEADER_BYTES).await.unwrap();
        (start, BitmapHeader::parse(&bytes).unwrap())
    }

    /// Dirty bytes as a member's bitmap says.
    pub async fn dirty_bytes(&self, drive: &dyn Drive) -> u64 {
        let (start, header) = self.bitmap(drive).await;
        let bytes = header.area_bytes() as usize;
        let area = array::read_bytes(self.world.pool(), drive, start, bytes).await.unwrap();
        header.dirty(&area).unwrap().map(|range| range.length).sum()
    }

    pub async fn open_with(&self, drives: Vec<Rc<dyn Drive>>) -> Array {
        let scan = Scan::of(self.world.pool(), drives).await;
        scan.open(&self.world, &scan.assemblies[0], MODE).await.unwrap()
    }

    pub async fn open(&self) -> Array {
        self.open_with(self.dynamic()).await
    }

    /// The power goes, what was not flushed is lost or not, and it comes back.
    pub async fn power_cut(&self, seed: u64) {
        for (control, index) in self.controls.iter().zip(0..) {
            control.power_cut(seed + index).await.unwrap();
        }
        self.controls.iter().for_each(FaultControl::power_on);
    }

    /// What reached the drives since the last call.
    pub fn counted(&self) -> Counts {
        let mut sum = Counts::default();
        for counts in self.drives.iter().map(|drive| drive.take()) {
            sum.reads += counts.reads;
            sum.read_bytes += counts.read_bytes;
            sum.writes += counts.writes;
            sum.write_bytes += counts.write_bytes;
            sum.durable += counts.durable;
            sum.flushes += counts.flushes;
        }
        sum
    }
}

pub async fn write(world: &World, array: &Array, offset: u64, content: &[u8]) {
    let buffers = WriteBufs::from_iter([world.pool().copy_of(content)]);
    array.write(offset, buffers, Durability::Cached).await.unwrap();
}

pub async fn read(world: &World, drive: &dyn Drive, offset: u64, bytes: usize) -> Vec<u8> {
    let buffers = ReadBufs::from_iter([world.pool().take(bytes)]);
    let done = drive.read(offset, buffers).await;
    done.result.unwrap();
    done.buffers[0].to_vec()
}
