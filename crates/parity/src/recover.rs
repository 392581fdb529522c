//! Recovery: lost blocks of a stripe from the others.
//!
//! With D(k) the data, g the generator, P = sum of D(k) and Q = sum of g^k D(k), let Pd and Qd
//! be the differences between the stored P and Q and those of the data that is left, lost
//! members counting as zeroes. Then
//!
//! - one data member a lost: D(a) = Pd, which is RAID 5's recovery, or D(a) = Qd / g^a where P
//!   is lost too;
//! - two data members a < b lost: Pd = D(a) + D(b) and Qd = g^a D(a) + g^b D(b), hence
//!   D(b) = (g^a Pd + Qd) / (g^a + g^b) and D(a) = Pd + D(b);
//! - P or Q lost: computed anew from the data.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6".

use crate::field::{self, DATA_MAX};
use crate::kernel::Kernel;

/// What a block of a stripe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Data with this exponent in Q.
    Data(usize),
    /// The XOR of the data.
    P,
    /// The weighted sum of the data, RAID 6's second redundancy.
    Q,
}

/// The blocks of one stripe, or the same part of each; all of one length.
#[derive(Debug, Default)]
pub struct Blocks<'a> {
    /// Data by exponent. `None` is a hole: no member has this exponent. At most [`DATA_MAX`].
    pub data: Vec<Option<&'a mut [u8]>>,
    /// The XOR of the data; `None` if the recovery shall do without.
    pub p: Option<&'a mut [u8]>,
    /// The weighted sum; `None` if the recovery shall do without, or the level has no Q.
    pub q: Option<&'a mut [u8]>,
}

/// Why a recovery is impossible. The blocks are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// A block to recover was not given.
    #[error("no block is given for {0:?}, which is to be recovered")]
    Absent(Role),
    /// A block stands twice in the list of lost blocks.
    #[error("{0:?} is named as lost twice")]
    Repeated(Role),
    /// More blocks are lost than P and Q can replace.
    #[error("{lost} blocks of a stripe are lost, and P and Q replace at most 2")]
    TooMany {
        /// Number of lost blocks.
        lost: usize,
    },
    /// What the lost blocks could be computed from was not given or is lost itself.
    #[error("{lost_data} lost data blocks need as many of P and Q, and {parity} are there")]
    TooLittleParity {
        /// Number of lost data blocks.
        lost_data: usize,
        /// Number of parity blocks given and not lost.
        parity: usize,
    },
    /// The blocks differ in length.
    #[error("{role:?} has {length} bytes where the other blocks have {expected}")]
    Length {
        /// The first block that differs.
        role: Role,
        /// Its length, bytes.
        length: usize,
        /// The length of the blocks before it, bytes.
        expected: usize,
    },
    /// More places for data than exponents.
    #[error("{places} places for data are more than the {DATA_MAX} that Q can tell apart")]
    TooWide {
        /// Number of places, holes included.
        places: usize,
    },
}

impl<'a> Blocks<'a> {
    /// The place of a block.
    fn place(&mut self, role: Role) -> Option<&mut Option<&'a mut [u8]>> {
        match role {
            Role::Data(exponent) => self.data.get_mut(exponent),
            Role::P => Some(&mut self.p),
            Role::Q => Some(&mut self.q),
        }
    }

    /// All blocks given and what they are: data by exponent, then P, then Q.
    fn given(&self) -> impl Iterator<Item = (Role, &[u8])> {
        let data = self.data.iter().enumerate().map(|(k, block)| (Role::Data(k), block));
        data.chain([(Role::P, &self.p), (Role::Q, &self.q)])
            .filter_map(|(role, block)| Some((role, block.as_deref()?)))
    }

    /// Checks that `lost` can be recovered.
    fn check(&self, lost: &[Role]) -> Result<(), RecoverError> {
        if self.data.len() > DATA_MAX {
            return Err(RecoverError::TooWide { places: self.data.len() });
        }
        if lost.len() > 2 {
            return Err(RecoverError::TooMany { lost: lost.len() });
        }
        if let &[first, second] = lost
            && first == second
        {
            return Err(RecoverError::Repeated(first));
        }
        for &role in lost {
            if !self.given().any(|(given, _)| given == role) {
                return Err(RecoverError::Absent(role));
            }
        }
        let lost_data = lost.iter().filter(|role| matches!(role, Role::Data(_))).count();
        let parity = [(Role::P, &self.p), (Role::Q, &self.q)]
            .iter()
            .filter(|(role, block)| block.is_some() && !lost.contains(role))
            .count();
        if parity < lost_data {
            return Err(RecoverError::TooLittleParity { lost_data, parity });
        }
        let mut expected = None;
        for (role, block) in self.given() {
            let length = block.len();
            let expected = *expected.get_or_insert(length);
            if length != expected {
                return Err(RecoverError::Length { role, length, expected });
            }
        }
        Ok(())
    }
}

/// Fills the blocks named in `lost` from the others, with the fastest kernel.
///
/// What is in the lost blocks before doesn't matter. Any one or two losses are recovered for
/// which enough of P and Q is there: a lost data member needs one of them, two need both.
/// Nothing lost is nothing done.
///
/// # Errors
/// See [`RecoverError`]; no block was changed then.
pub fn recover(blocks: &mut Blocks<'_>, lost: &[Role]) -> Result<(), RecoverError> {
    Kernel::best().recover(blocks, lost)
}

impl Kernel {
    /// Fills the blocks named in `lost` from the others, as [`recover`] does.
    ///
    /// # Errors
    /// See [`RecoverError`]; no block was changed then.
    pub fn recover(&self, blocks: &mut Blocks<'_>, lost: &[Role]) -> Result<(), RecoverError> {
        blocks.check(lost)?;
        // The lost blocks leave their places for the time of the computation, so that the rest
        // can be read while they are written, and so that they count as zeroes.
        let mut targets = lost
            .iter()
            .map(|&role| {
                blocks
                    .place(role)
                    .and_then(Option::take)
                    .expect("lost blocks were checked to be given")
            })
            .collect::<Vec<_>>();
        match (lost, targets.as_mut_slice()) {
            (&[a], [target_a]) => self.recover_one(blocks, a, target_a),
            (&[a, b], [target_a, target_b]) if a < b => {
                self.recover_two(blocks, [a, b], [target_a, target_b]);
            }
            (&[a, b], [target_a, target_b]) => {
                self.recover_two(blocks, [b, a], [target_b, target_a]);
            }
            _ => {}
        }
        for (&role, target) in lost.iter().zip(targets) {
            if let Some(place) = blocks.place(role) {
                *place = Some(target);
            }
        }
        Ok(())
    }

    /// Recovers one block, which has left its place.
    fn recover_one(&self, blocks: &Blocks<'_>, lost: Role, target: &mut [u8]) {
        let data = shared(&blocks.data);
        match (lost, blocks.p.as_deref(), blocks.q.as_deref()) {
            (Role::Q, ..) => self.q(target, &data),
            (Role::Data(exponent), None, Some(q)) => {
                self.data_from_q(target, None, q, &data, inverse_power(exponent));
            }
            // Of P, and of data with the help of P, Q knows nothing.
            (_, p, _) => {
                let sources: Vec<&[u8]> = data.iter().flatten().copied().chain(p).collect();
                self.xor(target, &sources);
            }
        }
    }

    /// Recovers two blocks, which have left their places and are in the order of [`Role`].
    fn recover_two(&self, blocks: &Blocks<'_>, lost: [Role; 2], targets: [&mut [u8]; 2]) {
        let mut data = shared(&blocks.data);
        let [first, second] = targets;
        match (lost, blocks.p.as_deref(), blocks.q.as_deref()) {
            ([Role::Data(a), Role::Data(b)], Some(p), Some(q)) => {
                let weight = inverse_power_sum(a, b);
                let factors = [field::multiply(field::power(a), weight), weight];
                self.two_data([first, second], p, q, &data, factors);
            }
            ([Role::Data(exponent), Role::P], _, Some(q)) => {
                self.data_from_q(first, Some(second), q, &data, inverse_power(exponent));
            }
            ([Role::Data(exponent), Role::Q], Some(_), _) => {
                self.recover_one(blocks, Role::Data(exponent), first);
                data[exponent] = Some(first);
                self.q(second, &data);
            }
            ([Role::P, Role::Q], ..) => self.pq(first, second, &data),
            _ => unreachable!("the parity needed for {lost:?} was checked to be there"),
        }
    }
}

/// The data blocks, to be read.
fn shared<'a>(data: &'a [Option<&mut [u8]>]) -> Vec<Option<&'a [u8]>> {
    data.iter().map(Option::as_deref).collect()
}

/// 1 / g^`exponent`.
fn inverse_power(exponent: usize) -> u8 {
    field::power(DATA_MAX - exponent)
}

/// 1 / (g^a + g^b), for different exponents below [`DATA_MAX`].
fn inverse_power_sum(a: usize, b: usize) -> u8 {
    field::inverse(field::power(a) ^ field::power(b)).expect("powers below 255 are distinct")
}
