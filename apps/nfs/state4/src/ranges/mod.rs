//! Byte-range locks of one file: conflicts, splitting, joining, upgrades and downgrades (RFC 8881
//! §9.1–§9.3, §18.10–§18.12).
//!
//! A lock replaces all ranges of its owner within its own, which may be thousands. So a change
//! first trims the ranges at its two ends and adds its own. The ranges inside are obsolete from
//! then on and are removed in [steps](FileLocks::sweep); until then they conflict as before.

use crate::spans::{Span, SpanIndex};
use stag_pools::steps;
use stag_protocol::nfs::v4::state::{HeldLock, LockRange};
use std::collections::BTreeMap;

/// The last byte of a range and its type.
#[derive(Clone, Copy, Debug)]
struct RangeEnd {
    last: u64,
    exclusive: bool,
}

/// Obsolete ranges of an owner after a change: all that begin in here.
#[derive(Clone, Copy, Debug)]
struct Obsolete {
    owner: u64,
    first: u64,
    last: u64,
    /// The change unlocks them.
    is_unlock: bool,
}

/// A change that is planned and not made yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockChange {
    pub owner: u64,
    /// The new lock, joined with its neighbours.
    locked: Option<HeldLock>,
    asked: LockRange,
    /// Ranges at the ends that are removed, by their first bytes.
    gone: [Option<u64>; 3],
    /// Their remaining parts.
    stays: [Option<HeldLock>; 2],
    /// True if ranges inside are obsolete.
    has_obsolete: bool,
}

impl LockChange {
    /// The same change for an owner that had no locks when it was worked out.
    #[must_use]
    pub const fn of_owner(mut self, owner: u64) -> Self {
        self.owner = owner;
        self
    }

    /// Ranges that the change adds, less the ranges that it removes at once.
    pub fn growth(&self) -> usize {
        let added = self.stays.iter().flatten().count() + usize::from(self.locked.is_some());
        let gone = self.gone.iter().flatten().count() + usize::from(self.has_obsolete);
        added.saturating_sub(gone)
    }
}

/// The locks of a file. Owners are the caller's numbers.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    /// Ranges by owner and first byte.
    ranges: BTreeMap<(u64, u64), RangeEnd>,
    read: SpanIndex,
    write: SpanIndex,
    obsolete: Vec<Obsolete>,
}

impl FileLocks {
    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The locks of one owner, by their first bytes.
    pub fn of(&self, owner: u64) -> impl Iterator<Item = HeldLock> {
        let ranges = self.ranges.range((owner, 0)..=(owner, u64::MAX));
        ranges.map(|(&(owner, first), end)| held(owner, first, end))
    }

    /// The locks, by owner. Those of an owner do not overlap, but for obsolete ones.
    pub fn held(&self) -> impl Iterator<Item = HeldLock> {
        self.ranges.iter().map(|(&(owner, first), end)| held(owner, first, end))
    }

    /// Finds a conflicting lock of another owner (LOCKT), after a given one.
    pub fn conflict(&self, asked: &HeldLock, past: Option<HeldLock>) -> Option<HeldLock> {
        let HeldLock { owner, range, exclusive } = *asked;
        let find = |index: &SpanIndex, exclusive, past: Option<HeldLock>| {
            // RFC 8881 §18.11.4 [8881-42]: locks of the owner that asks do not conflict
            let found = index.overlap(owner, range, past.as_ref().map(span))?;
            let range = LockRange::between(found.first, found.last)?;
            Some(HeldLock { owner: found.owner, range, exclusive })
        };
        let is_past_writes = past.is_some_and(|past| !past.exclusive);
        let write = match is_past_writes {
            true => None,
            false => find(&self.write, true, past),
        };
        // RFC 8881 §9.1 [8881-43]: read locks are shared, write locks are not
        if write.is_some() || !exclusive {
            return write;
        }
        find(&self.read, false, past.filter(|_| is_past_writes))
    }

    /// Returns true if the owner holds locks.
    pub fn has_locks(&self, owner: u64) -> bool {
        self.ranges.range((owner, 0)..=(owner, u64::MAX)).next().is_some()
    }

    /// Returns true if a change of the owner's locks is not complete.
    pub fn is_changing(&self, owner: u64) -> bool {
        self.obsolete.iter().any(|one| one.owner == owner)
    }

    /// Plans a change of the type of a range, or its unlocking. The owner must have [no
    /// other](Self::is_changing) incomplete change.
    pub fn plan(&self, owner: u64, asked: LockRange, exclusive: Option<bool>) -> LockChange {
        let mut change = LockChange {
            owner,
            locked: exclusive.map(|exclusive| HeldLock { owner, range: asked, exclusive }),
            asked,
            gone: [None; 3],
            stays: [None; 2],
            has_obsolete: false,
        };
        // The last that begins before the range, and the last that begins within or next to it: the
        // others inside extend beyond neither end.
        let upto = asked.last().saturating_add(1);
        let front = asked.offset().checked_sub(1);
        let front = front.and_then(|before| self.last_from(owner, 0, before));
        let back = self.last_from(owner, asked.offset(), upto);
        let head = self.last_from(owner, asked.offset(), asked.offset());
        for (place, held) in [front, back, head].into_iter().enumerate() {
            let Some(held) = held.filter(|held| held.range.touches(&asked)) else { continue };
            if let Some(locked) = change.locked.as_mut().filter(|it| it.exclusive == held.exclusive)
            {
                locked.range = locked.range.joined(&held.range);
            } else if held.range.overlaps(&asked) {
                let part = |range| HeldLock { range, ..held };
                let [before, after] = &mut change.stays;
                *before = held.range.before(&asked).map(part).or(*before);
                *after = held.range.behind(&asked).map(part).or(*after);
            } else {
                continue;
            }
            if let Some(gone) = change.gone.get_mut(place) {
                *gone = Some(held.range.offset());
            }
        }
        if change.gone[1] == change.gone[2] {
            change.gone[2] = None;
        }
        let inside = self.ranges.range((owner, asked.offset())..=(owner, asked.last())).take(3);
        let mut inside = inside.filter(|((_, first), _)| !change.gone.contains(&Some(*first)));
        change.has_obsolete = inside.next().is_some();
        change
    }

    /// Makes a change, except that obsolete ranges stay. Returns the parts that were unlocked.
    pub fn begin(&mut self, change: &LockChange) -> impl Iterator<Item = LockRange> + use<> {
        let LockChange { owner, asked, .. } = *change;
        let locked = change.locked.map(|locked| HeldLock { owner, ..locked });
        let mut freed = [None; 3];
        for (first, freed) in change.gone.iter().zip(&mut freed) {
            let Some(gone) = first.and_then(|first| self.remove(owner, first)) else { continue };
            if locked.is_none() {
                let first = gone.range.offset().max(asked.offset());
                *freed = LockRange::between(first, gone.range.last().min(asked.last()));
            }
        }
        change.stays.iter().chain([&locked]).flatten().for_each(|lock| self.insert(*lock));
        if change.has_obsolete {
            let begin = locked.map(|locked| locked.range.offset());
            let first = begin.map_or(Some(asked.offset()), |first| first.checked_add(1));
            let is_unlock = locked.is_none();
            let obsolete = |first| Obsolete { owner, first, last: asked.last(), is_unlock };
            self.obsolete.extend(first.map(obsolete));
        }
        freed.into_iter().flatten()
    }

    /// Removes at most `most` obsolete ranges of an owner. Returns their number and, through
    /// `freed`, the unlocked ones.
    pub fn sweep(&mut self, owner: u64, most: usize, mut freed: impl FnMut(LockRange)) -> usize {
        let place = self.obsolete.iter().position(|one| one.owner == owner);
        let Some((place, one)) = place.and_then(|at| Some((at, *self.obsolete.get(at)?))) else {
            return 0;
        };
        let mut count = 0;
        while let Some(gone) = self.first_from(owner, one.first, one.last) {
            if count >= most {
                return count;
            }
            steps::count();
            self.remove(owner, gone.range.offset());
            count += 1;
            if one.is_unlock {
                freed(gone.range);
            }
        }
        self.obsolete.swap_remove(place);
        count
    }

    /// Drops at most `most` ranges of an owner. Returns their number.
    pub fn release(&mut self, owner: u64, most: usize, mut freed: impl FnMut(LockRange)) -> usize {
        let mut count = 0;
        while count < most
            && let Some(gone) = self.first_from(owner, 0, u64::MAX)
        {
            steps::count();
            self.remove(owner, gone.range.offset());
            freed(gone.range);
            count += 1;
        }
        if !self.has_locks(owner) {
            self.obsolete.retain(|one| one.owner != owner);
        }
        count
    }

    /// The strongest lock of a byte, and the last byte up to which a range of that strength
    /// reaches, which may be longer than one lock.
    pub fn strongest(&self, at: u64) -> (Option<bool>, u64) {
        let reaches = |index: &SpanIndex| index.reach(at).filter(|last| *last >= at);
        let up_to = |index: &SpanIndex| index.next_first(at).map_or(u64::MAX, |next| next - 1);
        if let Some(last) = reaches(&self.write) {
            return (Some(true), last);
        }
        match reaches(&self.read) {
            Some(last) => (Some(false), last.min(up_to(&self.write))),
            None => (None, up_to(&self.read).min(up_to(&self.write))),
        }
    }

    /// The first byte of the unlocked gap that contains `at`, which is not locked.
    pub fn free_from(&self, at: u64) -> u64 {
        let reach = self.read.reach(at).max(self.write.reach(at));
        reach.map_or(0, |last| last.saturating_add(1).min(at))
    }

    /// The first range of an owner that begins from `first` to `last`.
    fn first_from(&self, owner: u64, first: u64, last: u64) -> Option<HeldLock> {
        if first > last {
            return None;
        }
        let mut ranges = self.ranges.range((owner, first)..=(owner, last));
        ranges.next().map(|(&(owner, first), end)| held(owner, first, end))
    }

    /// The last range of an owner that begins there.
    fn last_from(&self, owner: u64, first: u64, last: u64) -> Option<HeldLock> {
        let mut ranges = self.ranges.range((owner, first)..=(owner, last));
        ranges.next_back().map(|(&(owner, first), end)| held(owner, first, end))
    }

    fn index(&mut self, exclusive: bool) -> &mut SpanIndex {
        if exclusive { &mut self.write } else { &mut self.read }
    }

    fn insert(&mut self, lock: HeldLock) {
        let HeldLock { owner, range, exclusive } = lock;
        let end = RangeEnd { last: range.last(), exclusive };
        let earlier = self.ranges.insert((owner, range.offset()), end);
        debug_assert!(earlier.is_none(), "what began there is gone");
        self.index(exclusive).insert(span(&lock));
    }

    fn remove(&mut self, owner: u64, first: u64) -> Option<HeldLock> {
        let end = self.ranges.remove(&(owner, first))?;
        self.index(end.exclusive).remove(first, owner);
        Some(held(owner, first, &end))
    }
}

fn held(owner: u64, first: u64, end: &RangeEnd) -> HeldLock {
    let range = LockRange::between(first, end.last).unwrap_or_default();
    HeldLock { owner, range, exclusive: end.exclusive }
}

const fn span(lock: &HeldLock) -> Span {
    Span { first: lock.range.offset(), last: lock.range.last(), owner: lock.owner }
}

#[cfg(test)]
mod tests;
