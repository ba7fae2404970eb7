//! The union of all locks of a file, by which a store shows them to local processes.

use super::{FileId, StateTables};
use stag_protocol::nfs::v4::state::{HeldLock, LockRange};

/// A part of a file and the strongest lock that somebody has of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowPart {
    /// The octets.
    pub range: LockRange,
    /// True for a write lock, false for a read lock, `None` for no lock.
    pub lock: Option<bool>,
}

impl StateTables {
    /// The strongest locks of all octets of `range`, as parts that follow each other. `also` is a
    /// lock of the whole range that is about to be made.
    ///
    /// A store applies them to its one description of the file (`F_OFD_SETLK`): before LOCK with
    /// the lock that [`StateTables::check_lock`] found possible, and after LOCK, LOCKU and CLOSE.
    pub fn lock_shadow(
        &self,
        file: FileId,
        range: LockRange,
        also: Option<bool>,
    ) -> impl Iterator<Item = ShadowPart> {
        let held = self.file(file).map_or(&[][..], |file| file.locks.held());
        Parts { held, also, rest: Some(range) }
    }
}

/// Walks over a range, one change of the strongest lock at a time.
struct Parts<'a> {
    held: &'a [HeldLock],
    also: Option<bool>,
    rest: Option<LockRange>,
}

impl Parts<'_> {
    /// The strongest lock at an octet.
    fn strongest(&self, octet: u64) -> Option<bool> {
        let covers = |lock: &&HeldLock| (lock.range.offset()..=lock.range.last()).contains(&octet);
        let held = self.held.iter().filter(covers).map(|lock| lock.exclusive);
        held.chain(self.also).max()
    }

    /// The last octet in front of the next begin or end of a lock.
    fn unchanged_until(&self, octet: u64, end: u64) -> u64 {
        let begins = self.held.iter().filter_map(|lock| lock.range.offset().checked_sub(1));
        let ends = self.held.iter().map(|lock| lock.range.last());
        begins.chain(ends).filter(|edge| *edge >= octet).fold(end, u64::min)
    }
}

impl Iterator for Parts<'_> {
    type Item = ShadowPart;

    fn next(&mut self) -> Option<ShadowPart> {
        let rest = self.rest.take()?;
        let (first, end) = (rest.offset(), rest.last());
        let lock = self.strongest(first);
        let mut last = self.unchanged_until(first, end);
        while last < end && self.strongest(last + 1) == lock {
            last = self.unchanged_until(last + 1, end);
        }
        self.rest = last.checked_add(1).and_then(|next| LockRange::between(next, end));
        Some(ShadowPart { range: LockRange::between(first, last)?, lock })
    }
}
