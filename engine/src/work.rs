//! The purpose of each work request, which its [`Tag`] carries to the provider and back.

use crate::bulk::Bulk;
use stag_pools::table::Key;
use stag_verbs::Tag;

/// The purpose of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A Send or an RDMA Write whose completion is ignored.
    Untracked,
    /// The Send of a call of ours.
    Call(Key),
    /// The invalidation of a window of a call of ours.
    Invalidation(Key),
    /// An RDMA Read for a call of a peer.
    Read(Key),
    /// The Send of a reply, or the last RDMA Write of its item, that holds long buffers until it
    /// completes.
    BulkReply(Bulk),
}

impl Work {
    /// Maximum size of a call table: each index fits a tag together with the kind of the work.
    pub(crate) const PLACES_MAX: usize = 1 << Self::KIND_AT;
    /// The kind is stored in the upper bits of the lower half, which holds a key's index; the upper
    /// half is the key's generation.
    const KIND_AT: u32 = 29;
    const KIND_MASK: u64 = 0b111 << Self::KIND_AT;

    const CALL: u64 = 1;
    const INVALIDATION: u64 = 2;
    const READ: u64 = 3;
    const BULK_REPLY: u64 = 4;

    /// The tag of this work.
    #[inline]
    pub(crate) fn tag(self) -> Tag {
        let (kind, bits) = match self {
            Self::Untracked => (0, 0),
            Self::Call(key) => (Self::CALL, key.to_bits()),
            Self::Invalidation(key) => (Self::INVALIDATION, key.to_bits()),
            Self::Read(key) => (Self::READ, key.to_bits()),
            Self::BulkReply(bulk) => (Self::BULK_REPLY, u64::from(bulk.to_bits()) << 32),
        };
        debug_assert_eq!(bits & Self::KIND_MASK, 0, "a table has at most `PLACES_MAX` places");
        Tag(bits | kind << Self::KIND_AT)
    }

    /// The work with this tag.
    #[inline]
    pub(crate) const fn of(tag: Tag) -> Self {
        let key = Key::from_bits(tag.0 & !Self::KIND_MASK);
        match (tag.0 & Self::KIND_MASK) >> Self::KIND_AT {
            Self::CALL => Self::Call(key),
            Self::INVALIDATION => Self::Invalidation(key),
            Self::READ => Self::Read(key),
            Self::BULK_REPLY => Self::BulkReply(Bulk::from_bits((tag.0 >> 32) as u32)),
            _ => Self::Untracked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_is_read_from_its_tag() {
        let keys = [0, 7, Work::PLACES_MAX as u64 - 1, u64::MAX << 32, 0x1234_5678_0000_0009]
            .map(Key::from_bits);
        let of_keys = keys
            .into_iter()
            .flat_map(|key| [Work::Call(key), Work::Invalidation(key), Work::Read(key)]);
        let bulks = [0, 1, 0xffff, u32::MAX].map(|bits| Work::BulkReply(Bulk::from_bits(bits)));
        for work in of_keys.chain(bulks).chain([Work::Untracked]) {
            assert_eq!(Work::of(work.tag()), work);
        }
    }
}
