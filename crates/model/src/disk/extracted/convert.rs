//! Parameters out of DiskSim's blocks.

use std::rc::Rc;

use super::ExtractedError;
use super::block::{Block, Value};
use crate::disk::layout::{HeadOrder, Layout, Region, Sparing, Zone};
use crate::disk::mechanics::Mechanics;
use crate::disk::parameters::{
    Buffer, ExtraLeave, Overheads, Parameters, ReadAhead, Schedule, Writes,
};
use crate::disk::seek::SeekCurve;

/// Sector of all these disks.
const BLOCK_BYTES: u32 = 512;

fn wrong<T>(name: &'static str, value: impl ToString) -> Result<T, ExtractedError> {
    Err(ExtractedError::Value { name, value: value.to_string() })
}

/// No arm takes longer than ten seconds.
const SEEK_NS_MAX: u64 = 10_000_000_000;

/// More blocks than a zone has.
const POSITIONS_MAX: f64 = 1e12;

/// A disk from its controller, its model, and the text of its seek table if the model names one.
///
/// # Errors
/// When a value is missing, or none that a disk can have.
pub fn disk(
    specs: &Block,
    model: &Block,
    seeks: Option<&str>,
) -> Result<Parameters, ExtractedError> {
    let layout = layout(model)?;
    let mechanics = mechanics(specs, model.block("Mechanical Model")?, layout, seeks)?;
    let scale = specs.number("Time scale for overheads")?;
    if !(0.0..=1000.0).contains(&scale) {
        return wrong("Time scale for overheads", scale);
    }
    let ns = |name| Ok::<u64, ExtractedError>((specs.ms(name)? as f64 * scale).round() as u64);
    let pair =
        |after_read, after_write| Ok::<_, ExtractedError>([ns(after_read)?, ns(after_write)?]);
    let writes = match specs.count::<u32>("Fast write level")? {
        0 => Writes::OnPlatter,
        1 => Writes::InBuffer { appends: false },
        2 => Writes::InBuffer { appends: true },
        other => return wrong("Fast write level", other),
    };
    // Where writes are acknowledged from the buffer, the times of a hit hold for all of them.
    let write_ns = if writes == Writes::OnPlatter {
        pair("Write miss over. after read", "Write miss over. after write")?
    } else {
        pair("Write hit over. after read", "Write hit over. after write")?
    };
    let extra = if specs.flag("Extra write disconnect")? {
        let command_ns = ns("Extradisc command overhead")?;
        Some(ExtraLeave {
            command_ns,
            leave_ns: ns("Extradisc disconnect overhead")?,
            away_ns: ns("Extradisc inter-disconnect delay")?,
            leave_again_ns: ns("Extradisc 2nd disconnect overhead")?,
            seek_ns: command_ns + ns("Extradisc seek delta")?,
        })
    } else {
        None
    };
    let block_ns = specs.ms("Bulk sector transfer time")?;
    Ok(Parameters {
        name: specs.head.split_whitespace().last().unwrap_or_default().to_owned(),
        blocks: mechanics.layout.blocks(),
        block_bytes: BLOCK_BYTES,
        mechanics,
        overheads: Overheads {
            read_hit_ns: pair("Read hit over. after read", "Read hit over. after write")?,
            read_miss_ns: pair("Read miss over. after read", "Read miss over. after write")?,
            write_ns,
            complete_ns: pair("Read completion overhead", "Write completion overhead")?,
            prepare_ns: ns("Data preparation overhead")?,
            reselect_ns: pair("First reselect overhead", "Other reselect overhead")?,
            read_leave_ns: pair("Read disconnect afterread", "Read disconnect afterwrite")?,
            write_leave_ns: ns("Write disconnect overhead")?,
            extra,
            write_seek_min_ns: specs.ms("Minimum seek delay")?,
        },
        link_block_ns: [block_ns; 2],
        buffer: buffer(specs)?,
        writes,
        media: None,
        preseek: specs.count::<u32>("Preseeking level")? == 2,
        schedule: Schedule::FirstCome,
        queue_depth: specs.count::<u32>("Max queue length")?.max(1),
        recovery_ns: 0,
    })
}

fn buffer(specs: &Block) -> Result<Buffer, ExtractedError> {
    let ahead = match specs.count::<u32>("Buffer continuous read")? {
        0 => ReadAhead::Off,
        1 => ReadAhead::Track,
        2 => ReadAhead::Cylinder,
        3 => match specs.count::<u32>("Maximum read-ahead (blks)")? {
            0 => ReadAhead::Blocks(specs.count::<u32>("Segment size (in blks)")?.into()),
            blocks => ReadAhead::Blocks(blocks.into()),
        },
        4 => ReadAhead::TrackThenNext,
        other => return wrong("Buffer continuous read", other),
    };
    let caching = specs.flag("Enable caching in buffer")?;
    let buffer = Buffer {
        segments: specs.count("Number of buffer segments")?,
        segment_blocks: specs.count::<u32>("Segment size (in blks)")?.into(),
        write_segment: specs.flag("Use separate write segment")?,
        hits_on_writes: specs.flag("Allow read hits on write data")?,
        almost_hits: specs.flag("Allow almost read hits")?,
        ahead: if caching { ahead } else { ReadAhead::Off },
        ahead_on_hit: specs.flag("Read-ahead on idle hit")?,
        free_blocks: specs.flag("Read any free blocks")?,
        stops_in_block: specs.flag("Stop prefetch in sector")?,
        write_stops_ahead: specs.flag("Write hit stop prefetch")?,
        watermark: specs.number("High (read) water mark")?.clamp(0.0, 1.0),
        hits_pass: specs.flag("Allow sneaky full read hits")?,
    };
    let reads = buffer.segments.saturating_sub(u32::from(buffer.write_segment));
    if reads == 0 || buffer.segments > 1 << 16 || buffer.segment_blocks == 0 {
        return wrong("Number of buffer segments", buffer.segments);
    }
    Ok(buffer)
}

fn layout(model: &Block) -> Result<Layout, ExtractedError> {
    let block = model.block("Layout Model")?;
    if block.head != "dm_layout_g1" {
        return wrong("Layout Model", &block.head);
    }
    let heads: u32 = model.count("Number of data surfaces")?;
    if heads == 0 || heads > 1000 {
        return wrong("Number of data surfaces", heads);
    }
    let order = match block.count::<u32>("LBN-to-PBN mapping scheme")? {
        0 => HeadOrder::Same,
        1 => HeadOrder::TurnInZone,
        2 => HeadOrder::Turn,
        other => return wrong("LBN-to-PBN mapping scheme", other),
    };
    let scheme = block.count::<u32>("Sparing scheme used")?;
    let range = block.count::<u32>("Rangesize for sparing")?.clamp(1, 1 << 24);
    let blocks = |region, at_front, slip_to_end| Sparing::Blocks { region, at_front, slip_to_end };
    let sparing = match scheme {
        0 | 7 => blocks(Region::Zone, false, scheme == 7),
        1 => Sparing::Tracks,
        2 | 4 => blocks(Region::Cylinder, false, scheme == 4),
        3 => blocks(Region::Track, false, false),
        5 | 6 => blocks(Region::Cylinder, true, scheme == 6),
        8 => blocks(Region::Cylinders(range), false, false),
        9 | 10 => blocks(Region::Zone, false, scheme == 10),
        other => return wrong("Sparing scheme used", other),
    };
    let mut zones = Vec::new();
    let mut behind = 0;
    for value in block.list("Zones")? {
        let Value::Block(block) = value else { return wrong("Zones", "no block") };
        let mut zone = zone(block)?;
        // Without sparing, or with all spares at the end of the disk, zones have none.
        if matches!(scheme, 0 | 7) {
            zone.spare = 0;
        }
        let track_blocks = zone.track_blocks;
        let most = match sparing {
            Sparing::Blocks { region: Region::Track, .. } => track_blocks,
            Sparing::Blocks { region: Region::Zone, .. } | Sparing::Tracks => u32::MAX,
            Sparing::Blocks { .. } => track_blocks * heads,
        };
        if zone.spare >= most {
            return wrong("Number of spares", zone.spare);
        }
        let ends = zone.first_cylinder <= zone.last_cylinder && zone.last_cylinder < 1 << 24;
        if zone.first_cylinder < behind || !ends {
            return wrong("Last cylinder number", zone.last_cylinder);
        }
        behind = zone.last_cylinder + 1;
        zones.push(zone);
    }
    check(Layout::new(heads, order, sparing, zones))
}

/// Every zone has blocks, and the last of each lies within its cylinders.
fn check(layout: Layout) -> Result<Layout, ExtractedError> {
    let ends: Vec<(u64, u32)> = {
        let zones: Vec<_> = layout.zones().collect();
        let next = zones.iter().skip(1).map(|zone| zone.0).chain([layout.blocks()]);
        let last = zones.iter().map(|zone| zone.1.last_cylinder);
        if zones.is_empty()
            || zones.iter().map(|zone| zone.0).zip(next.clone()).any(|(a, b)| a == b)
        {
            return wrong("Zones", "one without blocks");
        }
        next.zip(last).collect()
    };
    for (end, last) in ends {
        if layout.find(end - 1).cylinder > last {
            return wrong("Number of spares", "less than what is slipped or moved");
        }
    }
    Ok(layout)
}

fn zone(block: &Block) -> Result<Zone, ExtractedError> {
    let positions = |name| -> Result<Vec<u64>, ExtractedError> {
        let numbers = block.numbers(name)?;
        let position =
            |number: &f64| (0.0..POSITIONS_MAX).contains(number) && number.fract() == 0.0;
        match numbers.iter().find(|number| !position(number)) {
            Some(number) => wrong(name, number),
            None => Ok(numbers.iter().map(|number| *number as u64).collect()),
        }
    };
    let moved = positions("defects")?;
    if !moved.len().is_multiple_of(2) {
        return wrong("defects", "an odd number of positions");
    }
    let track_blocks = block.count("Blocks per track")?;
    if track_blocks == 0 || track_blocks > 1 << 20 {
        return wrong("Blocks per track", track_blocks);
    }
    // Skews are stated in blocks, or in turns where the file says so.
    let turns = matches!(block.word("Skew units"), Ok("revolutions"));
    let skew = |name| -> Result<u32, ExtractedError> {
        let number = block.number(name)?;
        let blocks = if turns { number * f64::from(track_blocks) } else { number };
        if !(0.0..1e6).contains(&blocks) { wrong(name, number) } else { Ok(blocks as u32) }
    };
    let unused: u64 = block.count("Empty space at zone front")?;
    if unused as f64 >= POSITIONS_MAX {
        return wrong("Empty space at zone front", unused);
    }
    Ok(Zone {
        first_cylinder: block.count("First cylinder number")?,
        last_cylinder: block.count("Last cylinder number")?,
        track_blocks,
        offset: skew("Offset of first block")?,
        unused,
        track_skew: skew("Skew for track switch")?,
        cylinder_skew: skew("Skew for cylinder switch")?,
        spare: block.count("Number of spares")?,
        slips: positions("slips")?,
        moved: moved.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
    })
}

fn mechanics(
    specs: &Block,
    block: &Block,
    layout: Layout,
    seeks: Option<&str>,
) -> Result<Mechanics, ExtractedError> {
    let rpm = block.number("Rotation speed (in rpms)")?;
    if !(100.0..=100_000.0).contains(&rpm) {
        return wrong("Rotation speed (in rpms)", rpm);
    }
    let settle_ms = block.number("Add. write settling delay")?;
    if !(-1000.0..=1000.0).contains(&settle_ms) {
        return wrong("Add. write settling delay", settle_ms);
    }
    let curve = seek(block, layout.cylinders(), seeks)?;
    let step = (layout.cylinders() / 100).max(1);
    let mut distances = (1..11).chain((1..layout.cylinders()).step_by(step as usize));
    if let Some(distance) = distances.find(|distance| curve.ns(*distance) > SEEK_NS_MAX) {
        return wrong("Seek type", format!("too slow over {distance} cylinders"));
    }
    Ok(Mechanics {
        seek: Rc::new(curve),
        layout: Rc::new(layout),
        turn_ns: (60e9 / rpm).round() as u64,
        head_switch_ns: block.ms("Head switch time")?,
        settle_ns: (settle_ms * 1e6).round() as i64,
        switch_settle_ns: (settle_ms * 1e6).round() as i64,
        // Who keeps blocks that pass before the first one takes the request's own ones as well.
        any_order: [
            specs.flag("Immediate buffer read")? || specs.flag("Read any free blocks")?,
            specs.flag("Immediate buffer write")?,
        ],
    })
}

fn seek(block: &Block, cylinders: u32, seeks: Option<&str>) -> Result<SeekCurve, ExtractedError> {
    let three = || {
        let one = block.ms("Single cylinder seek time")?;
        let average = block.ms("Average seek time")?;
        Ok::<_, ExtractedError>((one, average, block.ms("Full strobe seek time")?))
    };
    match block.word("Seek type")? {
        "extracted" => seek_table(seeks.ok_or(ExtractedError::Missing("Full seek curve"))?),
        "constant" => Ok(SeekCurve::Constant(block.ms("Average seek time")?)),
        "curve" => {
            let (one, average, full) = three()?;
            let curve = SeekCurve::through(one, average, full, cylinders);
            curve.or_else(|error| wrong("Average seek time", error))
        }
        "linear" => {
            let (one, average, full) = three()?;
            if cylinders < 6 {
                return wrong("Seek type", "linear, with fewer than six cylinders");
            }
            Ok(SeekCurve::Table(vec![(1, one), (cylinders / 3, average), (cylinders - 1, full)]))
        }
        kind @ ("hpl" | "hplplus10") => {
            let values = block.numbers("HPL seek equation values")?;
            let [boundary, root, by_root, line, by_line, one] = values[..] else {
                return wrong("HPL seek equation values", values.len());
            };
            let first_ms = match kind {
                "hplplus10" => block.numbers("First ten seek times")?,
                _ if one >= 0.0 => vec![one],
                _ => Vec::new(),
            };
            Ok(SeekCurve::TwoParts {
                first_ns: first_ms.iter().map(|ms| (ms * 1e6).round() as u64).collect(),
                boundary: boundary as u32,
                root_ns: (root * 1e6, by_root * 1e6),
                line_ns: (line * 1e6, by_line * 1e6),
            })
        }
        other => wrong("Seek type", other),
    }
}

/// A table of measured seek times: a line for each distance, in cylinders and milliseconds.
///
/// # Errors
/// When a line is none, or fewer than two distances are there.
pub fn seek_table(text: &str) -> Result<SeekCurve, ExtractedError> {
    let mut points: Vec<(u32, u64)> = Vec::new();
    for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let mut fields = line.split(',').map(str::trim);
        let distance: Option<u32> = fields.next().and_then(|field| field.parse().ok());
        let ms: Option<f64> = fields.next().and_then(|field| field.parse().ok());
        match (distance, ms) {
            (Some(distance), Some(ms)) if distance > 0 && (0.0..1e6).contains(&ms) => {
                points.push((distance, (ms * 1e6).round() as u64));
            }
            _ => return wrong("Full seek curve", line),
        }
    }
    points.sort_unstable();
    points.dedup_by_key(|point| point.0);
    if points.len() < 2 {
        return wrong("Full seek curve", "less than two distances");
    }
    Ok(SeekCurve::Table(points))
}
