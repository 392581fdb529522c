//! Descriptions of hard disks: `hardware/*.toml` with `kind = "hdd"`.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Deserialize;

use super::mechanics::Mechanics;
use super::parameters::{
    Buffer, MediaCache, Overheads, Parameters, ReadAhead, Schedule, WriteCache, Writes,
};
use super::seek::SeekCurve;
use super::shape::{BLOCK_BYTES, Shape};
use crate::description::{DescriptionError, Value, us_as_ns};

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Hdd,
}

/// A description as it stands in its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    name: String,
    #[serde(rename = "kind")]
    _kind: Kind,
    capacity_bytes: Value<u64>,
    rpm: Value<f64>,
    heads: Value<u32>,
    zones: Value<u32>,
    sustained_outer_mb_s: Value<f64>,
    sustained_inner_mb_s: Value<f64>,
    track_to_track_ms: Value<f64>,
    seek_average_ms: Value<f64>,
    seek_full_ms: Value<f64>,
    write_settle_ms: Value<f64>,
    head_switch_ms: Value<f64>,
    command_us: Value<f64>,
    miss_us: Option<Value<f64>>,
    link_mb_s: Value<f64>,
    queue_depth: Value<u32>,
    queue_window: Option<Value<u32>>,
    age_max_ms: Option<Value<f64>>,
    cache_mib: Value<f64>,
    cache_segments: Value<u32>,
    write_cache_mib: Option<Value<f64>>,
    write_cache_runs: Option<Value<u32>>,
    write_idle_ms: Option<Value<f64>>,
    media_cache_gb: Option<Value<f64>>,
    media_cache_batch: Option<Value<u32>>,
    media_cache_idle_ms: Option<Value<f64>>,
    band_mib: Option<Value<f64>>,
    recovery_ms: Value<f64>,
    /// What is stated about the disk's speed.
    #[serde(default)]
    pub rated: BTreeMap<String, Value<f64>>,
}

/// How full the write cache gets before it goes before reads: three quarters.
const HIGH_PERCENT: u64 = 75;

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        Ok(toml::from_str(text)?)
    }

    /// The disk it describes.
    ///
    /// # Errors
    /// When a value makes no disk.
    pub fn parameters(&self) -> Result<Parameters, DescriptionError> {
        let fail = |what| DescriptionError::Value { name: self.name.clone(), what };
        let ns = |ms: &Value<f64>| us_as_ns(ms.v * 1000.0);
        let positive = [
            self.rpm.v,
            self.sustained_outer_mb_s.v,
            self.sustained_inner_mb_s.v,
            self.track_to_track_ms.v,
            self.link_mb_s.v,
            self.cache_mib.v,
        ];
        if !positive.iter().all(|value| (1e-3..1e6).contains(value)) {
            return Err(fail(
                "a rate, time or size is none\nhint: leave out what the disk has not",
            ));
        }
        let counts = [self.heads.v, self.zones.v, self.queue_depth.v, self.cache_segments.v];
        if counts.contains(&0) || self.heads.v > 1000 || self.zones.v > 1000 {
            return Err(fail("a count is zero or above 1000"));
        }
        let block = u64::from(BLOCK_BYTES);
        let sizes = 1 << 20..1 << 50;
        if !sizes.contains(&self.capacity_bytes.v) || !self.capacity_bytes.v.is_multiple_of(block) {
            return Err(fail("capacity_bytes is no multiple of 512 from 1 MiB to 1 PiB"));
        }
        let times = [
            self.seek_average_ms.v,
            self.seek_full_ms.v,
            self.write_settle_ms.v,
            self.head_switch_ms.v,
            self.command_us.v,
            self.recovery_ms.v,
        ];
        if !times.iter().all(|value| (0.0..1e6).contains(value)) {
            return Err(fail("a time is negative"));
        }
        let media = self.media().map_err(fail)?;
        let blocks = self.capacity_bytes.v / block;
        let turn_ns = (60e9 / self.rpm.v).round() as u64;
        let one_ns = ns(&self.track_to_track_ms);
        let settle_ns = ns(&self.write_settle_ms);
        let shape = Shape {
            blocks: blocks + media.map_or(0, |media| media.blocks),
            heads: self.heads.v,
            zones: self.zones.v,
            turn_ns,
            sustained: [&self.sustained_outer_mb_s, &self.sustained_inner_mb_s]
                .map(|rate| (rate.v * 1e6) as u64),
            switch_ns: ns(&self.head_switch_ms),
            read_cylinder_ns: one_ns,
            write_cylinder_ns: one_ns + settle_ns,
        };
        let layout = shape.layout();
        let (average_ns, full_ns) = (ns(&self.seek_average_ms), ns(&self.seek_full_ms));
        let curve = SeekCurve::through(one_ns, average_ns, full_ns, layout.cylinders());
        let seek = curve.map_err(|_| fail("no seek curve goes through the three times"))?;
        let command_ns = us_as_ns(self.command_us.v);
        let miss_ns = self.miss_us.as_ref().map_or(command_ns, |us| us_as_ns(us.v));
        let cache_blocks = |mib: f64| (mib * f64::from(1 << 20)) as u64 / block;
        let idle_ns = self.write_idle_ms.as_ref().map_or(0, ns);
        let writes = self.write_cache_mib.as_ref().map_or(Writes::OnPlatter, |mib| {
            let blocks = cache_blocks(mib.v);
            let runs = self.write_cache_runs.as_ref().map_or(u32::MAX, |runs| runs.v.max(1));
            Writes::InCache(WriteCache {
                runs,
                blocks,
                high_blocks: blocks * HIGH_PERCENT / 100,
                idle_ns,
            })
        });
        let age_max_ns = self.age_max_ms.as_ref().map_or(u64::MAX, ns);
        let window = self.queue_window.as_ref().map_or(self.queue_depth.v, |window| window.v);
        Ok(Parameters {
            name: self.name.clone(),
            blocks,
            block_bytes: BLOCK_BYTES,
            mechanics: Mechanics {
                layout: Rc::new(layout),
                seek: Rc::new(seek),
                turn_ns,
                head_switch_ns: ns(&self.head_switch_ms),
                settle_ns: settle_ns as i64,
                // The head switch is stated with its settling.
                switch_settle_ns: 0,
                any_order: [true, false],
            },
            overheads: Overheads {
                read_hit_ns: [command_ns; 2],
                read_miss_ns: [miss_ns; 2],
                write_ns: [command_ns; 2],
                ..Overheads::default()
            },
            link_block_ns: [(f64::from(BLOCK_BYTES) * 1000.0 / self.link_mb_s.v).round() as u64; 2],
            buffer: Buffer {
                segments: self.cache_segments.v,
                segment_blocks: (cache_blocks(self.cache_mib.v) / u64::from(self.cache_segments.v))
                    .max(1),
                write_segment: false,
                hits_on_writes: true,
                almost_hits: true,
                ahead: ReadAhead::Blocks(
                    cache_blocks(self.cache_mib.v) / u64::from(self.cache_segments.v),
                ),
                ahead_on_hit: true,
                free_blocks: false,
                stops_in_block: true,
                write_stops_ahead: true,
                watermark: 0.0,
                hits_pass: true,
            },
            writes,
            media,
            preseek: true,
            schedule: if window > 1 {
                Schedule::ShortestPositioning { age_max_ns, window }
            } else {
                Schedule::FirstCome
            },
            queue_depth: self.queue_depth.v,
            recovery_ns: ns(&self.recovery_ms),
        })
    }

    /// The media cache; shingled bands need one.
    fn media(&self) -> Result<Option<MediaCache>, &'static str> {
        let values = (&self.media_cache_gb, &self.media_cache_batch, &self.media_cache_idle_ms);
        let (Some(gb), Some(batch), Some(idle)) = values else {
            return match (values, &self.band_mib) {
                ((None, None, None), None) => Ok(None),
                _ => Err("a media cache has three values\nhint: state all media_cache_ values"),
            };
        };
        let block = f64::from(BLOCK_BYTES);
        let band_blocks =
            self.band_mib.as_ref().map(|mib| (mib.v * f64::from(1 << 20) / block) as u64);
        let blocks = (gb.v * 1e9 / block) as u64;
        if blocks < 1 << 16 || batch.v == 0 || band_blocks.is_some_and(|blocks| blocks < 1024) {
            return Err("a media cache has 32 MiB at least, and a band 512 KiB");
        }
        let idle_ns = us_as_ns(idle.v * 1000.0);
        Ok(Some(MediaCache { blocks, band_blocks, batch: batch.v, idle_ns }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_disk_is_refused() {
        let text = include_str!("../../../../hardware/hitachi-e7k1000-1tb.toml");
        let parse = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Description::parse(&text.replacen(from, to, 1)).map(|found| found.parameters())
        };
        assert!(matches!(parse("rpm", "rpm"), Ok(Ok(_))));
        for (from, to) in [
            ("heads = { v = 6", "heads = { v = 0"),
            ("capacity_bytes = { v = 1000204886016", "capacity_bytes = { v = 1000204886017"),
            ("rpm = { v = 7200.0", "rpm = { v = 0.0"),
            ("seek_average_ms = { v = 8.5", "seek_average_ms = { v = 1.5"),
            ("write_settle_ms = { v = 1.0", "write_settle_ms = { v = -1.0"),
        ] {
            assert!(matches!(parse(from, to), Ok(Err(_))), "{to}");
        }
        assert!(parse("zones", "rings").is_err());
        assert!(matches!(
            parse(
                "recovery_ms",
                "media_cache_gb = { v = 1.0, src = \"\", conf = \
            \"low\" }\nrecovery_ms"
            ),
            Ok(Err(_))
        ));
    }
}
