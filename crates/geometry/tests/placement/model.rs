//! The naive model: placement written down as plainly as it can be said, one byte at a
//! time, with lists and loops, and sharing nothing with the crate but the shape.
//!
//! RAID 0 and RAID 4/5/6 follow the tables of md's rules directly. RAID 10 walks from copy
//! to copy with md's own step, including what it does at the edge of an uneven last far
//! set, so that layouts in which that step goes wrong are found by the collisions it makes.

use std::collections::BTreeSet;

use geometry::{Level, Shape};

/// A byte on a member: slot and offset.
pub type Spot = (usize, u64);

/// What a member holds in a stripe, as the model sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Data(usize),
    P,
    Q,
}

/// All copies of the byte at `offset`, in md's order. For parity levels the data byte.
pub fn copies(shape: &Shape, offset: u64) -> Vec<Spot> {
    match shape.level {
        Level::Linear => vec![linear(shape, offset)],
        Level::Raid0 => vec![raid0(shape, offset)],
        Level::Raid1 => (0..shape.member_bytes.len()).map(|m| (m, offset)).collect(),
        Level::Raid10 => raid10(shape, offset),
        Level::Raid4 | Level::Raid5 | Level::Raid6 => vec![parity(shape, offset)],
    }
}

fn linear(shape: &Shape, offset: u64) -> Spot {
    let mut rest = offset;
    for (member, &bytes) in shape.member_bytes.iter().enumerate() {
        let whole = match shape.chunk_bytes {
            0 => bytes,
            chunk => bytes / chunk * chunk,
        };
        if rest < whole {
            return (member, rest);
        }
        rest -= whole;
    }
    panic!("beyond the end")
}

fn raid0(shape: &Shape, offset: u64) -> Spot {
    let chunk = shape.chunk_bytes;
    let sizes: Vec<u64> = shape.member_bytes.iter().map(|b| b / chunk).collect();
    let number = offset / chunk;
    let mut zone_first = 0;
    let mut limit = 0;
    loop {
        let members: Vec<usize> = (0..sizes.len()).filter(|&m| sizes[m] > limit).collect();
        let next = members.iter().map(|&m| sizes[m]).min().expect("inside");
        let width = members.len() as u64;
        let in_zone = number - zone_first;
        if in_zone < (next - limit) * width {
            let index = match shape.layout {
                1 => number % width,
                _ => in_zone % width,
            };
            let row = limit + in_zone / width;
            return (members[index as usize], row * chunk + offset % chunk);
        }
        zone_first += (next - limit) * width;
        limit = next;
    }
}

fn raid10(shape: &Shape, offset: u64) -> Vec<Spot> {
    let members = shape.member_bytes.len();
    let near = (shape.layout & 255) as usize;
    let far = (shape.layout >> 8 & 255) as usize;
    let is_offset = shape.layout >> 16 & 1 == 1;
    let set = match shape.layout >> 17 {
        0 => members,
        1 => members / far,
        _ => near * far,
    };
    let last_start = (members / set - 1) * set;
    let last_size = set + members % set;
    let chunk = shape.chunk_bytes;
    let smallest = *shape.member_bytes.iter().min().expect("members");
    let stride = match is_offset {
        true => 1,
        false => smallest / chunk / far as u64,
    };

    let slot = offset / chunk * near as u64;
    let mut row = slot / members as u64;
    let mut member = (slot % members as u64) as usize;
    if is_offset {
        row *= far as u64;
    }
    let mut spots = Vec::new();
    for _ in 0..near {
        let (mut at, mut at_row) = (member, row);
        for copy in 0..far {
            if copy > 0 {
                let next = at + near;
                at = if !members.is_multiple_of(set) && next > last_start {
                    last_start + (next - last_start) % last_size
                } else {
                    at / set * set + next % set
                };
                at_row += stride;
            }
            spots.push((at, at_row * chunk + offset % chunk));
        }
        member += 1;
        if member == members {
            member = 0;
            row += 1;
        }
    }
    spots
}

/// Whether any two of a RAID 10's chunks would share a place, for refused layouts too.
pub fn raid10_collides(shape: &Shape) -> bool {
    let members = shape.member_bytes.len() as u64;
    let (near, far) = (u64::from(shape.layout & 255), u64::from(shape.layout >> 8 & 255));
    let rows = shape.member_bytes.iter().min().expect("members") / shape.chunk_bytes / far;
    let mut seen = BTreeSet::new();
    (0..rows * members / near)
        .flat_map(|chunk| raid10(shape, chunk * shape.chunk_bytes))
        .any(|spot| !seen.insert(spot))
}

fn parity(shape: &Shape, offset: u64) -> Spot {
    let parities = if shape.level == Level::Raid6 { 2 } else { 1 };
    let width = (shape.member_bytes.len() - parities) as u64;
    let number = offset / shape.chunk_bytes;
    let wanted = Cell::Data((number % width) as usize);
    let stripe = number / width;
    let row = stripe_cells(shape, stripe);
    let member = row.iter().position(|cell| *cell == wanted).expect("in row");
    (member, stripe * shape.chunk_bytes + offset % shape.chunk_bytes)
}

/// What each member holds in a stripe.
pub fn stripe_cells(shape: &Shape, stripe: u64) -> Vec<Cell> {
    let all = shape.member_bytes.len();
    let six = shape.level == Level::Raid6;
    if six && shape.layout >= 16 {
        // RAID 5 on all but the last, which holds Q. 20 is 4 (parity first) in that guise.
        let inner = Shape {
            level: Level::Raid5,
            layout: shape.layout - 16,
            chunk_bytes: shape.chunk_bytes,
            member_bytes: shape.member_bytes[1..].to_vec(),
        };
        let mut cells = stripe_cells(&inner, stripe);
        cells.push(Cell::Q);
        return cells;
    }
    let n = all as u64;
    let falling = (n - 1 - stripe % n) as usize;
    let rising = (stripe % n) as usize;
    let layout = if shape.level == Level::Raid4 { 5 } else { shape.layout };
    let p = match (layout, six) {
        (0 | 2 | 10, _) => falling,
        (1 | 3 | 8, _) => rising,
        (4, _) => 0,
        (5, false) => all - 1,
        (5, true) => all - 2,
        (9, _) => (n - 1 - (stripe + 1) % n) as usize,
        _ => panic!("no layout {layout}"),
    };
    let q = match layout {
        10 => (p + all - 1) % all,
        _ => (p + 1) % all,
    };
    let first = match layout {
        2 | 3 if six => q + 1,
        2 | 3 | 10 => p + 1,
        _ => 0,
    };
    let mut cells = vec![Cell::P; all];
    let mut index = 0;
    for step in 0..all {
        let member = (first + step) % all;
        if six && member == q {
            cells[member] = Cell::Q;
        } else if member != p {
            cells[member] = Cell::Data(index);
            index += 1;
        }
    }
    cells
}

/// The exponent of each data index in Q, by walking the members.
pub fn exponents(shape: &Shape, cells: &[Cell]) -> Vec<usize> {
    let q = cells.iter().position(|cell| *cell == Cell::Q).expect("Q");
    let ddf = (8..=10).contains(&shape.layout);
    let mut exponents = vec![0; cells.len() - 2];
    let mut met = 0;
    for step in 0..cells.len() {
        let member = if ddf { step } else { (q + 1 + step) % cells.len() };
        if let Cell::Data(index) = cells[member] {
            exponents[index] = if ddf { member } else { met };
            met += 1;
        }
    }
    exponents
}
