//! Bands: a partial stripe write cut so that in each part the same columns are written.
//!
//! The chunks of a stripe stand side by side as columns. A write covers some columns from some
//! offset on to some other; parity at an offset depends on all columns at that offset. A *band* is
//! a range of offsets within the chunk at which the set of written columns does not change, so
//! each band can be decided on and computed as a small stripe of its own. One contiguous write
//! gives at most three bands, gathered neighbours join.

use smallvec::SmallVec;
use world::Buf;

/// New content of a part of one column.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Data index of the chunk.
    pub(crate) column: usize,
    /// First byte, within the chunk.
    pub(crate) start: usize,
    /// The bytes.
    pub(crate) data: Buf,
}

/// Offsets at which the same columns are written.
#[derive(Debug, Clone)]
pub(crate) struct Band {
    /// First byte, within the chunk.
    pub(crate) start: usize,
    /// Bytes of each column.
    pub(crate) len: usize,
    /// Written columns, rising, with their new content.
    pub(crate) written: SmallVec<[(usize, Buf); 4]>,
}

impl Band {
    /// Its two halves, cut at a multiple of `block` bytes; `None` when it is no longer than that.
    pub(crate) fn halves(self, block: usize) -> Option<(Band, Band)> {
        let Band { start, len, written } = self;
        let half = (len / block).div_ceil(2) * block;
        if half == 0 || half >= len {
            return None;
        }
        let cut = |from, len| {
            let slice = |(column, data): &(usize, Buf)| (*column, data.slice(from, len));
            Band { start: start + from, len, written: written.iter().map(slice).collect() }
        };
        Some((cut(0, half), cut(half, len - half)))
    }

    /// Parts of at most `rows_max` bytes of each column.
    pub(crate) fn cut(self, rows_max: usize) -> Vec<Band> {
        if self.len <= rows_max {
            return vec![self];
        }
        let starts = (0..self.len).step_by(rows_max);
        starts.map(|start| self.rows(start, rows_max.min(self.len - start))).collect()
    }

    /// The part of `len` bytes of each column from byte `start` of the band on.
    pub(crate) fn rows(&self, start: usize, len: usize) -> Band {
        let part = |(column, data): &(usize, Buf)| (*column, data.slice(start, len));
        Band { start: self.start + start, len, written: self.written.iter().map(part).collect() }
    }
}

/// The band in runs of columns that follow one another; a column that is to stand `apart` is a run
/// of its own.
pub(crate) fn runs(band: &Band, apart: impl Fn(usize) -> bool) -> Vec<Band> {
    let mut runs: Vec<Band> = Vec::new();
    for written in &band.written {
        let last = runs.last_mut().and_then(|run| Some((run.written.last()?.0, run)));
        match last {
            Some((last, run)) if last + 1 == written.0 && !apart(last) && !apart(written.0) => {
                run.written.push(written.clone());
            }
            _ => {
                let (start, len) = (band.start, band.len);
                runs.push(Band { start, len, written: SmallVec::from_iter([written.clone()]) });
            }
        }
    }
    runs
}

/// The bands of a stripe's pieces. Pieces of one column must not overlap.
pub(crate) fn bands(pieces: &[Piece]) -> Vec<Band> {
    let mut edges: SmallVec<[usize; 8]> =
        pieces.iter().flat_map(|piece| [piece.start, piece.start + piece.data.len()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut bands = Vec::with_capacity(edges.len());
    for pair in edges.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let mut written: SmallVec<[(usize, Buf); 4]> = pieces
            .iter()
            .filter(|piece| piece.start <= start && end <= piece.start + piece.data.len())
            .map(|piece| (piece.column, piece.data.slice(start - piece.start, end - start)))
            .collect();
        if written.is_empty() {
            continue;
        }
        written.sort_unstable_by_key(|(column, _)| *column);
        debug_assert!(written.windows(2).all(|w| w[0].0 < w[1].0), "pieces don't overlap");
        bands.push(Band { start, len: end - start, written });
    }
    bands
}

#[cfg(test)]
mod tests {
    use world::Pool;

    use super::*;

    /// A contiguous write of `len` bytes at `start` of a stripe with `chunk`, as pieces.
    fn contiguous(chunk: usize, start: usize, len: usize) -> Vec<Piece> {
        let pool = Pool::new(0);
        let data = pool.take_zeroed(len).freeze();
        let (mut at, mut pieces) = (start, Vec::new());
        while at < start + len {
            let take = (chunk - at % chunk).min(start + len - at);
            let data = data.slice(at - start, take);
            pieces.push(Piece { column: at / chunk, start: at % chunk, data });
            at += take;
        }
        pieces
    }

    /// Start, length and written columns of each band.
    type Shapes = Vec<(usize, usize, Vec<usize>)>;

    fn shape(bands: &[Band]) -> Shapes {
        let columns = |band: &Band| band.written.iter().map(|(column, _)| *column).collect();
        bands.iter().map(|band| (band.start, band.len, columns(band))).collect()
    }

    #[test]
    fn a_contiguous_write_has_at_most_three_bands() {
        let table: [(usize, usize, Shapes); 6] = [
            (0, 48, vec![(0, 16, vec![0, 1, 2])]),
            (4, 8, vec![(4, 8, vec![0])]),
            (12, 8, vec![(0, 4, vec![1]), (12, 4, vec![0])]),
            (4, 24, vec![(0, 4, vec![1]), (4, 8, vec![0, 1]), (12, 4, vec![0])]),
            (12, 24, vec![(0, 4, vec![1, 2]), (4, 8, vec![1]), (12, 4, vec![0, 1])]),
            (16, 16, vec![(0, 16, vec![1])]),
        ];
        for (start, len, expected) in table {
            assert_eq!(shape(&bands(&contiguous(16, start, len))), expected, "{start}+{len}");
        }
    }

    #[test]
    fn gathered_neighbours_become_a_full_stripe() {
        let mut pieces = contiguous(16, 0, 24);
        pieces.extend(contiguous(16, 24, 24));
        let bands = bands(&pieces);
        assert_eq!(shape(&bands), [(0, 8, vec![0, 1, 2]), (8, 8, vec![0, 1, 2])]);
    }
}
