//! Byte-range locks of a file: conflicts, splitting, joining, upgrades and downgrades (RFC 8881
//! §9.1–§9.3, §18.10–§18.12).

use crate::nfs::v4::Status4;

/// A range of octets: never empty, its ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRange {
    first: u64,
    last: u64,
}

impl LockRange {
    /// The range of an offset and a length, which is all ones for a range without an end.
    pub fn new(offset: u64, length: u64) -> Result<Self, Status4> {
        let last = match length {
            // RFC 8881 §18.10.3 [8881-39]: a lock of no octets is refused
            0 => None,
            // RFC 8881 §18.10.3 [8881-40]: all ones reach to the end, however long the file gets
            u64::MAX => Some(u64::MAX),
            // RFC 8881 §18.10.3 [8881-41]: a range beyond 64 bits is refused
            _ => offset.checked_add(length).map(|end| end - 1),
        };
        last.map(|last| Self { first: offset, last }).ok_or(Status4::Inval)
    }

    /// The range of these two octets and all between them; `None` if `last` lies in front.
    pub const fn between(first: u64, last: u64) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// Offset of the last octet; all ones if the range has no end.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Offset of the first octet.
    pub const fn offset(&self) -> u64 {
        self.first
    }

    /// Number of octets as the wire has it: all ones if the range has no end.
    pub const fn length(&self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Returns true if the ranges have an octet in common.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns true if no octet lies between the ranges.
    fn touches(&self, other: &Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    fn joined(&self, other: &Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// The part of this range that lies in front of the other.
    fn before(&self, other: &Self) -> Option<Self> {
        let last = other.first.checked_sub(1).filter(|last| self.first <= *last)?;
        Some(Self { first: self.first, last: last.min(self.last) })
    }

    /// The part of this range that lies behind the other.
    fn behind(&self, other: &Self) -> Option<Self> {
        let first = other.last.checked_add(1).filter(|first| *first <= self.last)?;
        Some(Self { first: first.max(self.first), last: self.last })
    }
}

/// A lock that is held. Owners are the caller's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock-owner.
    pub owner: u64,
    /// The octets.
    pub range: LockRange,
    /// True for a write lock.
    pub exclusive: bool,
}

/// Reason for not making a lock; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// This lock conflicts.
    Denied(HeldLock),
    /// The table is full: NFS4ERR_DELAY.
    Full,
}

/// The locks of a file. `S` is memory of the caller's, an array, a slice or a box.
#[derive(Debug)]
pub struct RangeLocks<S> {
    table: S,
    len: usize,
}

impl<S: AsRef<[HeldLock]> + AsMut<[HeldLock]>> RangeLocks<S> {
    /// A table without locks, of at most as many as `table` has places.
    pub const fn new(table: S) -> Self {
        Self { table, len: 0 }
    }

    /// The locks, in no order. Those of an owner do not overlap.
    pub fn held(&self) -> &[HeldLock] {
        self.table.as_ref().get(..self.len).unwrap_or_default()
    }

    /// Finds a lock of another owner that conflicts (LOCKT).
    pub fn conflict(&self, asked: &HeldLock) -> Option<HeldLock> {
        self.conflicts(*asked).next()
    }

    /// The locks of other owners that conflict.
    pub fn conflicts(&self, asked: HeldLock) -> impl Iterator<Item = HeldLock> {
        let conflicts = move |held: &HeldLock| {
            // RFC 8881 §18.11.4 [8881-42]: locks of the owner that asks do not conflict
            held.owner != asked.owner
                // RFC 8881 §9.1 [8881-43]: read locks are shared, write locks are not
                && (held.exclusive || asked.exclusive)
                && held.range.overlaps(&asked.range)
        };
        self.held().iter().copied().filter(conflicts)
    }

    /// The memory of the table, to be made longer. What it has stays where it is.
    pub const fn table_mut(&mut self) -> &mut S {
        &mut self.table
    }

    /// Makes a lock; what the owner holds of the range gets its type, atomically.
    pub fn lock(&mut self, asked: HeldLock) -> Result<(), LockRefusal> {
        if let Some(held) = self.conflict(&asked) {
            return Err(LockRefusal::Denied(held));
        }
        self.replace(asked.owner, asked.range, Some(asked.exclusive)).ok_or(LockRefusal::Full)
    }

    /// Unlocks what the owner holds of a range: none of it is no error. A refusal is
    /// [`LockRefusal::Full`], when a lock would have to be split and there is no place.
    pub fn unlock(&mut self, owner: u64, range: LockRange) -> Result<(), LockRefusal> {
        self.replace(owner, range, None).ok_or(LockRefusal::Full)
    }

    /// Drops all locks of an owner; how many there were.
    pub fn release(&mut self, owner: u64) -> usize {
        let before = self.len;
        self.retain(|held| held.owner != owner);
        before - self.len
    }

    /// Returns true if the owner holds locks.
    pub fn has_locks(&self, owner: u64) -> bool {
        self.held().iter().any(|held| held.owner == owner)
    }

    /// Gives what the owner holds of `range` the type `exclusive`, or none. `None` if there is no
    /// place.
    fn replace(&mut self, owner: u64, range: LockRange, exclusive: Option<bool>) -> Option<()> {
        let is_joined =
            |held: &HeldLock| exclusive == Some(held.exclusive) && held.range.touches(&range);
        let is_taken = |held: &HeldLock| {
            held.owner == owner && (held.range.overlaps(&range) || is_joined(held))
        };
        let (mut middle, mut front, mut back, mut taken) = (range, None, None, 0);
        for held in self.held().iter().filter(|held| is_taken(held)) {
            taken += 1;
            if is_joined(held) {
                middle = middle.joined(&held.range);
            } else {
                // The locks of an owner do not overlap: one reaches out in front, one behind.
                let part = |range| HeldLock { range, ..*held };
                front = held.range.before(&range).map(part).or(front);
                back = held.range.behind(&range).map(part).or(back);
            }
        }
        let middle = exclusive.map(|exclusive| HeldLock { owner, range: middle, exclusive });
        let pieces = [front, middle, back];
        let added = pieces.iter().flatten().count();
        if (self.len - taken).checked_add(added)? > self.table.as_ref().len() {
            return None;
        }
        self.retain(|held| !is_taken(held));
        pieces.into_iter().flatten().for_each(|lock| self.push(lock));
        Some(())
    }

    fn push(&mut self, lock: HeldLock) {
        *self.table.as_mut().get_mut(self.len).expect("`replace` counted the places") = lock;
        self.len += 1;
    }

    fn retain(&mut self, is_kept: impl Fn(&HeldLock) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            if self.table.as_ref().get(at).is_some_and(&is_kept) {
                self.table.as_mut().swap(kept, at);
                kept += 1;
            }
        }
        self.len = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Locks of each owner on each octet: nothing, a read lock, a write lock.
    type Model = [[Option<bool>; 5]; 3];

    fn check(locks: &RangeLocks<[HeldLock; 16]>, model: &Model) {
        let mut seen = Model::default();
        for held in locks.held() {
            for octet in held.range.first..=held.range.last {
                let place = &mut seen[held.owner as usize][octet as usize];
                assert_eq!(*place, None, "locks of an owner do not overlap");
                *place = Some(held.exclusive);
            }
            let is_joined = |other: &HeldLock| {
                other != held
                    && (other.owner, other.exclusive) == (held.owner, held.exclusive)
                    && other.range.touches(&held.range)
            };
            assert!(!locks.held().iter().any(is_joined), "locks that touch are one");
        }
        assert_eq!(seen, *model);
    }

    /// One step: an owner, a range, a type or unlocking.
    fn steps(owners: u64, octets: u64) -> Vec<(u64, LockRange, Option<bool>)> {
        let mut steps = Vec::new();
        for owner in 0..owners {
            for first in 0..octets {
                for last in first..octets {
                    for kind in [None, Some(false), Some(true)] {
                        steps.push((owner, LockRange { first, last }, kind));
                    }
                }
            }
        }
        steps
    }

    fn take(
        locks: &mut RangeLocks<[HeldLock; 16]>,
        model: &mut Model,
        (owner, range, kind): (u64, LockRange, Option<bool>),
    ) {
        let octets = || (range.first as usize)..=(range.last as usize);
        let Some(exclusive) = kind else {
            locks.unlock(owner, range).unwrap();
            octets().for_each(|octet| model[owner as usize][octet] = None);
            return check(locks, model);
        };
        let denied = (0..3).filter(|other| *other != owner as usize).any(|other| {
            octets().any(|octet| model[other][octet].is_some_and(|held| held || exclusive))
        });
        match locks.lock(HeldLock { owner, range, exclusive }) {
            Ok(()) => {
                assert!(!denied);
                octets().for_each(|octet| model[owner as usize][octet] = Some(exclusive));
            }
            Err(LockRefusal::Denied(held)) => {
                assert!(denied && held.owner != owner && held.range.overlaps(&range));
            }
            Err(LockRefusal::Full) => panic!("there is room"),
        }
        check(locks, model);
    }

    #[test]
    fn any_three_steps_of_two_owners_end_as_octets_one_by_one_say() {
        let steps = steps(2, 4);
        for first in &steps {
            for second in &steps {
                for third in &steps {
                    let mut locks = RangeLocks::new([HeldLock::default(); 16]);
                    let mut model = Model::default();
                    [first, second, third]
                        .into_iter()
                        .for_each(|step| take(&mut locks, &mut model, *step));
                }
            }
        }
    }

    #[test]
    fn long_runs_of_three_owners_end_as_octets_one_by_one_say() {
        let steps = steps(3, 5);
        let mut random = fastrand::Rng::with_seed(9);
        for _ in 0..2_000 {
            let mut locks = RangeLocks::new([HeldLock::default(); 16]);
            let mut model = Model::default();
            for _ in 0..30 {
                take(&mut locks, &mut model, steps[random.usize(..steps.len())]);
            }
            let owner = random.u64(0..3);
            let count = locks.held().iter().filter(|held| held.owner == owner).count();
            assert_eq!(locks.has_locks(owner), count > 0);
            assert_eq!(locks.release(owner), count);
            model[owner as usize] = Default::default();
            check(&locks, &model);
        }
    }

    #[test]
    fn a_full_table_refuses_and_changes_nothing() {
        let range = |first, last| LockRange { first, last };
        let lock = |range| HeldLock { owner: 1, range, exclusive: true };
        let mut locks = RangeLocks::new([HeldLock::default(); 2]);
        locks.lock(lock(range(0, 9))).unwrap();
        locks.lock(lock(range(20, 29))).unwrap();
        let before = locks.held().to_vec();
        assert_eq!(locks.lock(lock(range(40, 49))), Err(LockRefusal::Full));
        assert_eq!(locks.unlock(1, range(3, 5)), Err(LockRefusal::Full));
        let downgrade = HeldLock { exclusive: false, ..lock(range(3, 5)) };
        assert_eq!(locks.lock(downgrade), Err(LockRefusal::Full));
        assert_eq!(locks.held(), before);
        locks.lock(lock(range(5, 25))).unwrap();
        assert_eq!(locks.held(), [lock(range(0, 29))], "joining gives a place back");
    }

    #[test]
    fn ranges_at_the_ends_of_the_file_are_what_the_wire_says() {
        assert_eq!(LockRange::new(0, 0), Err(Status4::Inval));
        assert_eq!(LockRange::new(1, u64::MAX).unwrap().length(), u64::MAX);
        assert_eq!(LockRange::new(2, u64::MAX - 1), Err(Status4::Inval));
        let whole = LockRange::new(0, u64::MAX).unwrap();
        assert_eq!((whole.offset(), whole.length()), (0, u64::MAX));
        assert_eq!(LockRange::new(u64::MAX, 1), Err(Status4::Inval));
        assert_eq!(LockRange::new(u64::MAX - 1, 1).unwrap().length(), 1);
        let last = LockRange::new(u64::MAX, u64::MAX).unwrap();
        assert_eq!((last.offset(), last.length()), (u64::MAX, u64::MAX));
        let octet = LockRange::new(7, 1).unwrap();
        assert_eq!((octet.offset(), octet.length(), octet.last()), (7, 1, 7));
        assert_eq!(LockRange::between(7, 7), Some(octet));
        assert_eq!(LockRange::between(8, 7), None);
        let mut locks = RangeLocks::new([HeldLock::default(); 4]);
        let lock = HeldLock { owner: 1, range: whole, exclusive: true };
        locks.lock(lock).unwrap();
        locks.unlock(1, last).unwrap();
        locks.unlock(1, LockRange::new(0, 1).unwrap()).unwrap();
        let expected = LockRange { first: 1, last: u64::MAX - 1 };
        assert_eq!(locks.held(), [HeldLock { range: expected, ..lock }]);
    }
}
