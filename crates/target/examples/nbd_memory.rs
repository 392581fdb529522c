//! Serves memory drives on a socket, to measure what the server itself costs.
//!
//! ```text
//! nbd_memory ADDRESS [DRIVES [BYTES]]     unix:/tmp/socket 1 1073741824
//! ```
//!
//! The drives are named `drive0`, `drive1` and so on; the first one is the default. It ends when
//! its standard input does.

use std::error::Error;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use drive::{Drive, MemoryDrive};
use target::nbd::server::{Address, Events, Limits, Server, ServerEvent, offer};
use world::{RingConfig, World};

struct Print;

impl Events for Print {
    fn note(&self, event: &ServerEvent<'_>) {
        eprintln!("{event}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address: Address =
        words.next().unwrap_or_else(|| "unix:/tmp/nbd_memory".to_string()).parse()?;
    let drives: usize = words.next().map_or(Ok(1), |word| word.parse())?;
    let bytes: u64 = words.next().map_or(Ok(1 << 30), |word| word.parse())?;
    let world = World::real(RingConfig::default())?;
    let exports = (0..drives).map(|index| {
        let name = format!("drive{index}");
        let drive: Rc<dyn Drive> = Rc::new(MemoryDrive::new(&name, bytes, 1));
        (offer(name, drive.facts()), drive)
    });
    let server = Server::new(&world, exports.collect(), Limits::default(), Rc::new(Print))?;
    server.listen(&address)?;

    // The end of standard input, seen by a thread, becomes the end of a socket that the world
    // waits for.
    let (ours, theirs) = UnixStream::pair()?;
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(theirs);
    });
    let ring = world.ring().ok_or("the real world has a ring")?.clone();
    let (ours, buffer) = (ring.adopt(ours.into()), world.pool().take(1));
    let stopper = server.clone();
    world.spawn(async move {
        let _ = ring.receive(&ours, buffer, false).await;
        stopper.stop();
    });
    world.block_on(server.serve())?;
    world.end();
    Ok(())
}
