//! Content of a stateid, and the order of its sequence IDs (RFC 8881 §8.2.2, §8.2.4).

use stag_pools::table::Key;
use stag_protocol::nfs::v4::{Stateid, Status4};

/// Kind of the state that a stateid names.
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

/// The name of a state, which `other` of its stateid carries: the shard at home, the kind, the
/// start of the server, and the place in the shard's table with its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateName {
    /// Number of the shard that has the state.
    pub home: u8,
    /// Kind of the state.
    pub kind: StateidKind,
    /// Number of the server's start: a stateid of an earlier one names nothing.
    pub epoch: u16,
    /// Place and generation.
    pub(super) key: Key,
}

impl StateName {
    /// Reads the name from a stateid; `None` if it is a special one, or none of a Stag server.
    pub fn of(stateid: &Stateid) -> Option<Self> {
        let [home, kind, e0, e1, place @ ..] = stateid.other;
        let kind = match kind {
            1 => StateidKind::Open,
            2 => StateidKind::Locks,
            3 => StateidKind::Delegation,
            _ => return None,
        };
        let key = Key::from_bits(u64::from_be_bytes(place));
        Some(Self { home, kind, epoch: u16::from_be_bytes([e0, e1]), key })
    }

    /// The stateid of this name with a sequence ID.
    pub fn stateid(&self, seqid: u32) -> Stateid {
        let [e0, e1] = self.epoch.to_be_bytes();
        let [p0, p1, p2, p3, p4, p5, p6, p7] = self.key.to_bits().to_be_bytes();
        let other = [self.home, self.kind as u8, e0, e1, p0, p1, p2, p3, p4, p5, p6, p7];
        Stateid { seqid, other }
    }
}

/// Slots that all sessions of a client have at most. Sequence IDs that are closer to the wrap than
/// that are compared as if they had not wrapped.
const SLOTS_MAX: u32 = 4_096;

/// The sequence ID that follows `seqid`.
pub(super) const fn next_seqid(seqid: u32) -> u32 {
    // RFC 8881 §8.2.2 [8881-200]: the sequence ID behind the last one is one, never zero
    match seqid.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Compares the sequence ID of a request with the current one.
pub(super) const fn check_seqid(asked: u32, current: u32) -> Result<(), Status4> {
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
                for (home, epoch) in [(0, 0), (7, 0x0102), (u8::MAX, u16::MAX)] {
                    let name = StateName { home, kind, epoch, key: Key::from_bits(bits) };
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
