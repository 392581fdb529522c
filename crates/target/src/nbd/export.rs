//! What a server offers: exports and the list of them.
//!
//! An [`Export`] is a description only. The drive behind it, and which thread
//! owns it, is the shell's business. [`Exports`] is checked once when it is
//! built, so that the handshake can rely on it: names are unique strings the
//! protocol can carry, and block sizes obey its rules.
//!
//! The server serves each offset and length down to one byte, whatever it
//! advertises; a drive that needs larger blocks is padded by the shell. The
//! advertised sizes are therefore advice for speed, and `block_min` is 1
//! unless the owner wants clients to see the drives' block.

use std::sync::Arc;

use thiserror::Error;

use super::wire::{DEFAULT_PAYLOAD_BYTES_MAX, STRING_BYTES_MAX, TransmissionFlags};

/// Largest minimum block the protocol lets a server advertise.
pub const BLOCK_MIN_BYTES_MAX: u32 = 65_536;
/// Smallest preferred block the protocol lets a server advertise.
pub const BLOCK_PREFERRED_BYTES_MIN: u32 = 512;
/// Largest payload this server takes: twice what each server has to take. It
/// bounds the memory of one request, and the bytes read and thrown away after
/// a refused write.
pub const PAYLOAD_BYTES_MAX: u32 = 2 * DEFAULT_PAYLOAD_BYTES_MAX;

/// One export as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name that clients ask for; at most 4096 bytes, may be empty.
    pub name: String,
    /// A line for people; at most 4096 bytes, may be empty.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Writes, trims and zeroing are refused.
    pub read_only: bool,
    /// Smallest block in bytes to advertise: a power of two of at most 64 KiB
    /// that divides the size.
    pub block_min: u32,
    /// Block in bytes from which requests are efficient: a power of two, at
    /// least 512 and `block_min`.
    pub block_preferred: u32,
    /// Largest payload in bytes of one request, at least `block_preferred` and
    /// at most [`PAYLOAD_BYTES_MAX`].
    pub block_max: u32,
    /// `FLUSH` is served.
    pub can_flush: bool,
    /// FUA is served.
    pub can_fua: bool,
    /// `TRIM` is served.
    pub can_trim: bool,
    /// `WRITE_ZEROES` is served.
    pub can_write_zeroes: bool,
    /// `CACHE` is served.
    pub can_cache: bool,
    /// The fast-zero flag is understood: the shell then answers each such
    /// request quickly, if need be with `ENOTSUP`.
    pub can_fast_zero: bool,
    /// A flush on one connection covers the answered writes of all.
    pub multi_conn: bool,
    /// The medium turns, so clients had better order their requests.
    pub rotational: bool,
}

impl Export {
    /// A writable export with all features, byte granularity, a preferred
    /// block of 4 KiB and the protocol's default payload of 32 MiB.
    pub fn new(name: impl Into<String>, size_bytes: u64) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            size_bytes,
            read_only: false,
            block_min: 1,
            block_preferred: 4096,
            block_max: DEFAULT_PAYLOAD_BYTES_MAX,
            can_flush: true,
            can_fua: true,
            can_trim: true,
            can_write_zeroes: true,
            can_cache: true,
            can_fast_zero: true,
            multi_conn: true,
            rotational: false,
        }
    }

    /// The flags told to a client. `DF` goes with structured replies; what
    /// writes is left out of a read-only export.
    pub fn transmission_flags(&self, structured_replies: bool) -> TransmissionFlags {
        type Flags = TransmissionFlags;
        let writable = !self.read_only;
        let zeroes = writable && self.can_write_zeroes;
        Flags::HAS_FLAGS
            .with_if(self.read_only, Flags::READ_ONLY)
            .with_if(self.can_flush, Flags::SEND_FLUSH)
            .with_if(self.can_fua, Flags::SEND_FUA)
            .with_if(self.rotational, Flags::ROTATIONAL)
            .with_if(writable && self.can_trim, Flags::SEND_TRIM)
            .with_if(zeroes, Flags::SEND_WRITE_ZEROES)
            .with_if(structured_replies, Flags::SEND_DF)
            .with_if(self.multi_conn, Flags::CAN_MULTI_CONN)
            .with_if(self.can_cache, Flags::SEND_CACHE)
            .with_if(zeroes && self.can_fast_zero, Flags::SEND_FAST_ZERO)
    }

    fn check(&self) -> Result<(), ExportErrorKind> {
        type Kind = ExportErrorKind;
        check_string(&self.name, "name")?;
        check_string(&self.description, "description")?;
        let (min, preferred, max) = (self.block_min, self.block_preferred, self.block_max);
        if !min.is_power_of_two() || min > BLOCK_MIN_BYTES_MAX {
            return Err(Kind::BlockMin { min });
        }
        if !self.size_bytes.is_multiple_of(u64::from(min)) {
            return Err(Kind::TailHidden { size_bytes: self.size_bytes, min });
        }
        if !preferred.is_power_of_two() || preferred < BLOCK_PREFERRED_BYTES_MIN.max(min) {
            return Err(Kind::BlockPreferred { preferred, min });
        }
        if max < preferred || max > PAYLOAD_BYTES_MAX {
            return Err(Kind::BlockMax { max, preferred });
        }
        Ok(())
    }
}

fn check_string(string: &str, what: &'static str) -> Result<(), ExportErrorKind> {
    if string.len() > STRING_BYTES_MAX {
        return Err(ExportErrorKind::StringTooLong { what, bytes: string.len() });
    }
    if string.contains('\0') {
        return Err(ExportErrorKind::StringWithNul { what });
    }
    Ok(())
}

/// Why an export can't be offered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("export {name:?}: {kind}")]
pub struct ExportError {
    /// Name of the export, or its first characters where it is too long.
    pub name: String,
    /// What is wrong.
    pub kind: ExportErrorKind,
}

/// What is wrong with an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExportErrorKind {
    /// Two exports have this name.
    #[error("the name is used twice; hint: give each export its own name")]
    NameTwice,
    /// The protocol's strings end at 4096 bytes.
    #[error("the {what} has {bytes} bytes; hint: {STRING_BYTES_MAX} is the most NBD can carry")]
    StringTooLong {
        /// Name or description.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
    },
    /// The protocol's strings hold no NUL.
    #[error("the {what} holds a NUL character; hint: NBD strings can't")]
    StringWithNul {
        /// Name or description.
        what: &'static str,
    },
    /// The minimum block breaks the protocol's rules.
    #[error(
        "a minimum block of {min} bytes; hint: a power of two up to {BLOCK_MIN_BYTES_MAX} is needed"
    )]
    BlockMin {
        /// The minimum block asked for.
        min: u32,
    },
    /// Clients could not reach the last bytes.
    #[error(
        "the size of {size_bytes} bytes is no multiple of the minimum block of {min} bytes, \
         so that clients would not see its end; hint: advertise a smaller block"
    )]
    TailHidden {
        /// Size of the export.
        size_bytes: u64,
        /// The minimum block asked for.
        min: u32,
    },
    /// The preferred block breaks the protocol's rules.
    #[error(
        "a preferred block of {preferred} bytes; hint: a power of two of at least \
         {BLOCK_PREFERRED_BYTES_MIN} and the minimum block ({min}) is needed"
    )]
    BlockPreferred {
        /// The preferred block asked for.
        preferred: u32,
        /// The minimum block.
        min: u32,
    },
    /// The maximum payload breaks the protocol's rules or this server's bound.
    #[error(
        "a maximum payload of {max} bytes; hint: at least the preferred block ({preferred}) and \
         at most {PAYLOAD_BYTES_MAX} is needed"
    )]
    BlockMax {
        /// The maximum payload asked for.
        max: u32,
        /// The preferred block.
        preferred: u32,
    },
}

/// The checked list of exports, cheap to clone: each connection holds one.
///
/// An index into it names an export for as long as the connection lives.
#[derive(Clone, Debug)]
pub struct Exports(Arc<[Export]>);

impl Exports {
    /// Checks the exports and their names. The first one is the default, which
    /// clients get that ask for no name (unless one is named so).
    pub fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        for (index, export) in exports.iter().enumerate() {
            let twice = exports[..index].iter().any(|earlier| earlier.name == export.name);
            let checked = if twice { Err(ExportErrorKind::NameTwice) } else { export.check() };
            checked.map_err(|kind| {
                let name = export.name.chars().take(64).collect();
                ExportError { name, kind }
            })?;
        }
        Ok(Self(exports.into()))
    }

    /// All exports, the default one first.
    pub fn as_slice(&self) -> &[Export] {
        &self.0
    }

    /// The export at an index that [`Exports::find`] gave, if it is one.
    pub fn get(&self, index: usize) -> Option<&Export> {
        self.0.get(index)
    }

    /// Index of the export a client means by `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        let named = self.0.iter().position(|export| export.name == name);
        named.or((name.is_empty() && !self.0.is_empty()).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(change: impl FnOnce(&mut Export)) -> Option<ExportErrorKind> {
        let mut export = Export::new("disk", 1 << 20);
        change(&mut export);
        Exports::new(vec![export]).err().map(|error| error.kind)
    }

    #[test]
    fn block_sizes_obey_the_protocol() {
        type Kind = ExportErrorKind;
        assert_eq!(kind(|_| ()), None);
        assert_eq!(kind(|e| e.block_min = 0), Some(Kind::BlockMin { min: 0 }));
        assert_eq!(kind(|e| e.block_min = 3), Some(Kind::BlockMin { min: 3 }));
        assert_eq!(kind(|e| e.block_min = 1 << 17), Some(Kind::BlockMin { min: 1 << 17 }));
        let preferred = Some(Kind::BlockPreferred { preferred: 256, min: 1 });
        assert_eq!(kind(|e| e.block_preferred = 256), preferred);
        let max = Some(Kind::BlockMax { max: 4095, preferred: 4096 });
        assert_eq!(kind(|e| e.block_max = 4095), max);
        let max = Some(Kind::BlockMax { max: u32::MAX, preferred: 4096 });
        assert_eq!(kind(|e| e.block_max = u32::MAX), max);
    }

    /// Case G01: a size that is odd in 512-byte sectors never hides its tail.
    #[test]
    fn g01_an_odd_sector_count_stays_visible_or_is_refused_with_the_reason() {
        let size_bytes = 2_047 * 512;
        for (min, fits) in [(1, true), (512, true), (1024, false), (4096, false)] {
            let refused = kind(|export| {
                export.size_bytes = size_bytes;
                export.block_min = min;
            });
            let hidden = ExportErrorKind::TailHidden { size_bytes, min };
            assert_eq!(refused, (!fits).then_some(hidden), "minimum block {min}");
        }
    }

    #[test]
    fn names_are_unique_strings_of_the_protocol() {
        let two = Exports::new(vec![Export::new("a", 0), Export::new("a", 1)]);
        let error = two.expect_err("the name is used twice");
        assert_eq!(
            error.to_string(),
            "export \"a\": the name is used twice; hint: give each export its own name"
        );
        let long = kind(|e| e.name = "x".repeat(4097));
        assert_eq!(long, Some(ExportErrorKind::StringTooLong { what: "name", bytes: 4097 }));
        let nul = kind(|e| e.description = "a\0b".into());
        assert_eq!(nul, Some(ExportErrorKind::StringWithNul { what: "description" }));
    }

    #[test]
    fn no_name_means_the_first_export_unless_one_is_named_so() {
        let exports = |names: &[&str]| {
            Exports::new(names.iter().map(|&name| Export::new(name, 0)).collect())
                .expect("plain names")
        };
        assert_eq!(exports(&["a", "b"]).find(""), Some(0));
        assert_eq!(exports(&["a", ""]).find(""), Some(1));
        assert_eq!(exports(&["a", "b"]).find("b"), Some(1));
        assert_eq!(exports(&["a", "b"]).find("c"), None);
        assert_eq!(exports(&[]).find(""), None);
    }

    #[test]
    fn a_read_only_export_advertises_nothing_that_writes() {
        let mut export = Export::new("disk", 4096);
        assert_eq!(export.transmission_flags(true).bits(), 0b1101_1110_1101);
        assert_eq!(export.transmission_flags(false).bits(), 0b1101_0110_1101);
        export.read_only = true;
        assert_eq!(export.transmission_flags(true).bits(), 0b0101_1000_1111);
        export.read_only = false;
        export.can_write_zeroes = false;
        let flags = export.transmission_flags(false);
        assert!(!flags.contains(TransmissionFlags::SEND_FAST_ZERO), "goes with WRITE_ZEROES");
    }
}
