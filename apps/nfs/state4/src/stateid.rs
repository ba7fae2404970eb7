//! Content of a stateid, and the order of its sequence IDs (RFC 8881 §8.2.2, §8.2.4).

use core::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use stag_pools::table::Key;
use stag_protocol::nfs::v4::{Stateid, Status4};

/// Kind of the state that a stateid refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StateidKind {
    /// An open of one open-owner.
    Open = 1,
    /// The byte-range locks of one lock-owner under an open.
    Locks = 2,
    /// A delegation.
    Delegation = 3,
}

/// The name of a state in `other` of its stateid: the shard at home, the kind, the place in the
/// shard's table, and a seal that no other state has had and that cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateName {
    /// Number of the shard that has the state.
    pub home: u8,
    /// Kind of the state.
    pub kind: StateidKind,
    /// Place in the table, below [`Self::PLACES`].
    pub(crate) place: u32,
    /// The seal: seven octets.
    pub(crate) seal: u64,
}

impl StateName {
    /// Number of places that a name can distinguish.
    pub(crate) const PLACES: usize = 1 << 24;
    const SEALS: u64 = u64::MAX >> 8;

    /// The name of a state: `key` is its place with its generation, and `secret` belongs to the run
    /// with the number `epoch`.
    pub(crate) fn sealed(
        secret: &[u8; 16],
        home: u8,
        kind: StateidKind,
        start: StateStart,
    ) -> Self {
        let StateStart { epoch, key } = start;
        let mut hasher = SipHasher24::new_with_key(secret);
        hasher.write(&[home, kind as u8]);
        hasher.write(&epoch.to_be_bytes());
        hasher.write(&key.to_bits().to_be_bytes());
        let seal = hasher.finish() & Self::SEALS;
        Self { home, kind, place: key.index() as u32, seal }
    }

    /// Parses the name in a stateid; `None` for a special one, or one not made by a Stag server.
    pub fn of(stateid: &Stateid) -> Option<Self> {
        let [home, kind, p0, p1, p2, s0, s1, s2, s3, s4, s5, s6] = stateid.other;
        let kind = match kind {
            1 => StateidKind::Open,
            2 => StateidKind::Locks,
            3 => StateidKind::Delegation,
            _ => return None,
        };
        let place = u32::from_be_bytes([0, p0, p1, p2]);
        let seal = u64::from_be_bytes([0, s0, s1, s2, s3, s4, s5, s6]);
        Some(Self { home, kind, place, seal })
    }

    /// The stateid of this name with a sequence ID.
    pub fn stateid(&self, seqid: u32) -> Stateid {
        let [_, p0, p1, p2] = self.place.to_be_bytes();
        let [_, s0, s1, s2, s3, s4, s5, s6] = self.seal.to_be_bytes();
        let other = [self.home, self.kind as u8, p0, p1, p2, s0, s1, s2, s3, s4, s5, s6];
        Stateid { seqid, other }
    }
}

/// The run in which a state was created, and its place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateStart {
    pub epoch: u16,
    pub key: Key,
}

/// Limit of slots in all sessions of a client. Sequence IDs that are closer to the wrap than that
/// are compared as if they had not wrapped.
const SLOTS_MAX: u32 = 4_096;

/// The sequence ID that follows `seqid`.
pub(crate) const fn next_seqid(seqid: u32) -> u32 {
    // RFC 8881 §8.2.2 [8881-200]: the sequence ID after the last one is one, never zero
    match seqid.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Compares the sequence ID of a request with the current one.
pub(crate) const fn check_seqid(asked: u32, current: u32) -> Result<(), Status4> {
    // RFC 8881 §8.2.2 [8881-201]: zero stands for the current sequence ID
    if asked == 0 || asked == current {
        return Ok(());
    }
    let near_end = u32::MAX - SLOTS_MAX;
    let is_older = if asked > near_end && current < SLOTS_MAX {
        true
    } else if current > near_end && asked < SLOTS_MAX {
        false
    } else {
        asked < current
    };
    // RFC 8881 §8.2.4 [8881-202]: an older sequence ID is OLD_STATEID, a later one BAD_STATEID
    Err(if is_older { Status4::OldStateid } else { Status4::BadStateid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_its_stateid_and_special_stateids_have_none() {
        for kind in [StateidKind::Open, StateidKind::Locks, StateidKind::Delegation] {
            for bits in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
                for home in [0, 7, u8::MAX] {
                    let place = bits as u32 & 0x00ff_ffff;
                    let name = StateName { home, kind, place, seal: bits & StateName::SEALS };
                    let stateid = name.stateid(9);
                    assert_eq!((StateName::of(&stateid), stateid.seqid), (Some(name), 9));
                    assert!(!stateid.is_special());
                }
            }
        }
        for special in
            [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID]
        {
            assert_eq!(StateName::of(&special), None);
        }
    }

    #[test]
    fn the_seal_changes_with_each_fact_and_the_secret() {
        let sealed = |secret, home, kind, epoch, bits| {
            let start = StateStart { epoch, key: Key::from_bits(bits) };
            StateName::sealed(&[secret; 16], home, kind, start)
        };
        let (open, locks) = (StateidKind::Open, StateidKind::Locks);
        let name = sealed(1, 2, open, 3, 4);
        assert_eq!(sealed(1, 2, open, 3, 4), name, "it is the same by the seed");
        // The next generation of the same place is among them.
        let others = [
            sealed(2, 2, open, 3, 4),
            sealed(1, 3, open, 3, 4),
            sealed(1, 2, locks, 3, 4),
            sealed(1, 2, open, 4, 4),
            sealed(1, 2, open, 3, 1 << 32 | 4),
        ];
        for other in others {
            assert_eq!(other.place, 4);
            assert!((other.seal ^ name.seal).count_ones() > 8, "{other:?}");
        }
    }

    #[test]
    fn sequence_ids_rise_by_one_and_pass_over_zero() {
        assert_eq!([0, 1, u32::MAX - 1, u32::MAX].map(next_seqid), [1, 2, u32::MAX, 1]);
    }

    #[test]
    fn sequence_ids_are_compared_as_the_text_says_also_around_the_wrap() {
        let (old, bad) = (Err(Status4::OldStateid), Err(Status4::BadStateid));
        let cases = [
            (0, 5, Ok(())),
            (5, 5, Ok(())),
            (4, 5, old),
            (6, 5, bad),
            (u32::MAX, 1, old),
            (1, u32::MAX, bad),
            (u32::MAX, u32::MAX, Ok(())),
            (u32::MAX - 1, u32::MAX, old),
            (u32::MAX / 2, 1, bad),
            (1, u32::MAX / 2, old),
            (u32::MAX, u32::MAX / 2, bad),
        ];
        for (asked, current, expected) in cases {
            assert_eq!(check_seqid(asked, current), expected, "{asked} at {current}");
        }
    }
}
