//! The union of all locks of a file, by which a store exposes them to local processes.

use crate::{FileId, StateTables};
use stag_protocol::nfs::v4::state::LockRange;

/// A part of a file and the strongest lock that a client has of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowPart {
    /// The octets.
    pub range: LockRange,
    /// True for a write lock, false for a read lock, `None` for no lock.
    pub lock: Option<bool>,
}

impl StateTables {
    /// The strongest lock of the first byte of `range`, and the octets up to which it is the same:
    /// to the end of the range, or less far if more than `steps` locks make it up. A part without
    /// locks extends beyond both ends of the range.
    ///
    /// A store applies such parts to its one description of the file (`F_OFD_SETLK`) for each range
    /// of [`StateTables::next_weakened`]. A lock that a client is granted is the strongest in all
    /// of its range: other clients can have at most the same.
    pub fn shadow_part(&self, file: FileId, range: LockRange, steps: &mut usize) -> ShadowPart {
        let Some(file) = self.file(file) else { return ShadowPart { range, lock: None } };
        let (lock, mut last) = file.locks.strongest(range.offset());
        *steps = steps.saturating_sub(1);
        while last < range.last() && *steps > 0 {
            let (next, further) = file.locks.strongest(last + 1);
            *steps -= 1;
            if next != lock {
                break;
            }
            last = further;
        }
        let (first, last) = match lock {
            None => (file.locks.free_from(range.offset()), last),
            Some(_) => (range.offset(), last.min(range.last())),
        };
        ShadowPart { range: LockRange::between(first, last).unwrap_or(range), lock }
    }

    /// A range of a file in which a lock was released or became weaker: one entry for each time.
    pub fn next_weakened(&mut self) -> Option<(FileId, LockRange)> {
        while let Some((file, range)) = self.weakened.pop() {
            if let Some(file) = self.files.get(file) {
                return Some((file.id, range));
            }
        }
        None
    }

    /// Drops these ranges: no local program sees locks.
    pub fn forget_weakened(&mut self) {
        self.weakened.clear();
    }

    /// The handle that a file had when its first state was granted.
    pub fn handle_of(&self, file: FileId) -> Option<&[u8]> {
        self.file(file).map(|file| &*file.handle)
    }
}
