//! A drive with a speed: one request after the other, each taking as long as its bytes do.

use std::cell::Cell;
use std::rc::Rc;

use drive::{Discarded, Drive, DriveError, Durability, Facts, Io, MemoryDrive, ReadDone, Zeroing};
use world::{ReadBufs, World, WriteBufs, total_bytes};

pub struct Rated {
    inner: Rc<MemoryDrive>,
    world: World,
    bytes_per_second: u64,
    free_ns: Cell<u64>,
}

impl Rated {
    pub fn new(world: &World, name: &str, bytes: u64, bytes_per_second: u64) -> Rc<Rated> {
        let inner = Rc::new(MemoryDrive::new(name, bytes, 512));
        Rc::new(Rated { inner, world: world.clone(), bytes_per_second, free_ns: Cell::new(0) })
    }

    fn turn<T: 'static>(
        &self,
        bytes: u64,
        act: impl AsyncFnOnce(&MemoryDrive) -> T + 'static,
    ) -> Io<T> {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let end_ns = self.free_ns.get().max(self.world.now_ns()) + ns as u64;
        self.free_ns.set(end_ns);
        let (world, inner) = (self.world.clone(), Rc::clone(&self.inner));
        Io::later(async move {
            world.sleep_until_ns(end_ns).await;
            act(&inner).await
        })
    }
}

impl Drive for Rated {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, buffers: ReadBufs) -> Io<ReadDone> {
        self.turn(total_bytes(&buffers), async move |inner| inner.read(offset, buffers).await)
    }

    fn write(
        &self,
        offset: u64,
        buffers: WriteBufs,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        let bytes = total_bytes(&buffers);
        self.turn(bytes, async move |inner| inner.write(offset, buffers, durability).await)
    }

    fn flush(&self) -> Io<Result<(), DriveError>> {
        self.turn(0, async move |inner| inner.flush().await)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Io<Result<Discarded, DriveError>> {
        self.turn(0, async move |inner| inner.discard(offset, bytes).await)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        bytes: u64,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Io<Result<(), DriveError>> {
        self.turn(bytes, async move |inner| {
            inner.write_zeroes(offset, bytes, zeroing, durability).await
        })
    }
}
