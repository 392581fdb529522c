//! Cutting a request's buffers at a byte and joining them again, so that parts of one request can
//! be served from different places without a copy.

use world::{ReadBufs, WriteBufs};

/// Takes the first `bytes` out of `buffers`, and says whether a buffer had to be cut for it.
pub(crate) fn split_front(buffers: &mut ReadBufs, bytes: u64) -> (ReadBufs, bool) {
    let mut left = bytes as usize;
    let whole = buffers.iter().take_while(|buffer| {
        let fits = buffer.len() <= left;
        left -= if fits { buffer.len() } else { 0 };
        fits
    });
    let whole = whole.count();
    let mut front: ReadBufs = buffers.drain(..whole).collect();
    let cut = left > 0;
    if cut {
        front.push(buffers[0].split_to(left));
    }
    (front, cut)
}

/// Puts `next` behind `buffers`; with `cut`, its first buffer is the rest of the last one there.
pub(crate) fn append(buffers: &mut ReadBufs, next: ReadBufs, cut: bool) {
    let mut next = next.into_iter();
    if cut
        && let Some(last) = buffers.last_mut()
        && let Some(rest) = next.next()
    {
        last.unsplit(rest).expect("the two pieces of one buffer are neighbours");
    }
    buffers.extend(next);
}

/// The bytes `start..start + bytes` of `buffers`, sharing their memory.
pub(crate) fn shared_part(buffers: &WriteBufs, start: u64, bytes: u64) -> WriteBufs {
    let (mut skip, mut left) = (start as usize, bytes as usize);
    let parts = buffers.iter().filter_map(|buffer| {
        let skipped = skip.min(buffer.len());
        skip -= skipped;
        let length = left.min(buffer.len() - skipped);
        left -= length;
        (length > 0).then(|| buffer.slice(skipped, length))
    });
    parts.collect()
}

/// Copies `source` into `target` without its first `skip` bytes.
pub(crate) fn copy_into(target: &mut ReadBufs, skip: u64, mut source: &[u8]) {
    let mut skip = skip as usize;
    for buffer in target {
        let skipped = skip.min(buffer.len());
        skip -= skipped;
        let length = source.len().min(buffer.len() - skipped);
        buffer[skipped..skipped + length].copy_from_slice(&source[..length]);
        source = &source[length..];
    }
}

/// Copies `target.len()` bytes from byte `skip` of `source` on.
pub(crate) fn copy_out(source: &WriteBufs, skip: u64, target: &mut [u8]) {
    let mut done = 0;
    for part in shared_part(source, skip, target.len() as u64) {
        target[done..done + part.len()].copy_from_slice(&part);
        done += part.len();
    }
}

#[cfg(test)]
mod tests {
    use world::{Pool, total_bytes};

    use super::*;

    #[test]
    fn what_is_cut_joins_again_at_every_byte() {
        let pool = Pool::new(0);
        for at in 0..=30 {
            let mut whole = pool.take(20);
            let second = whole.split_off(10);
            let mut buffers = ReadBufs::from_vec(vec![whole, second, pool.take(0), pool.take(10)]);
            let (mut front, cut) = split_front(&mut buffers, at);
            assert_eq!((total_bytes(&front), total_bytes(&buffers)), (at, 30 - at));
            copy_into(&mut front, 0, &vec![1; at as usize]);
            copy_into(&mut buffers, 0, &vec![2; 30 - at as usize]);
            append(&mut front, buffers, cut);
            let lengths: Vec<usize> = front.iter().map(|buffer| buffer.len()).collect();
            assert_eq!(lengths, [10, 10, 0, 10], "cut at {at}");
            let bytes: Vec<u8> = front.iter().flat_map(|buffer| buffer.to_vec()).collect();
            assert_eq!(bytes.iter().filter(|&&byte| byte == 1).count() as u64, at);
            let shared: WriteBufs = front.into_iter().map(world::BufMut::freeze).collect();
            let mut copy = [0; 4];
            copy_out(&shared, at.min(26), &mut copy);
            assert_eq!(copy, bytes[at.min(26) as usize..][..4]);
        }
    }
}
