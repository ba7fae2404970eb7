//! Extent: immutable memory that many readers share.

use crate::{
    buf::Buf,
    pool::{Pool, PoolInner, PoolPlace, SlotId},
};
use std::{fmt, ops::Deref, ops::Range, ptr::NonNull, rc::Rc};

/// Immutable octets in a slot, or in adjacent ones ([`Pool::take_run`]), with a reference count for
/// one thread. Dropping the last one that has octets of a slot frees the slot.
pub struct Extent {
    pool: Rc<PoolInner>,
    /// The slot's first octet, there as long as `pool` lives.
    address: NonNull<u8>,
    /// The slot of its first octet. It shares this one, and each further slot up to its last octet.
    slot: SlotId,
    /// `start <= end`; `start` is inside the slot or at its end, and the octets up to `end` are in
    /// slots that it shares, always.
    start: u32,
    end: u32,
}

impl Extent {
    /// Takes over a slot from the one `Buf` that held it; `content` is inside the slot, and
    /// `address` is the slot's first octet.
    #[inline]
    pub(crate) fn adopt(
        pool: Rc<PoolInner>,
        slot: SlotId,
        address: NonNull<u8>,
        content: Range<u32>,
    ) -> Self {
        // Before the extent exists: dropping one gives its share up.
        let shares = pool.shares(slot).replace(1);
        assert_eq!(shares, 0, "the slot of a buffer is not shared");
        Self { pool, address, slot, start: content.start, end: content.end }
    }

    /// The same for all octets of a run, `len` of them.
    #[cold]
    pub(crate) fn adopt_run(
        pool: Rc<PoolInner>,
        slot: SlotId,
        address: NonNull<u8>,
        len: u32,
    ) -> Self {
        for number in 0..pool.count_to(slot, len) {
            let shares = pool.shares(pool.in_run(slot, number).0).replace(1);
            assert_eq!(shares, 0, "the slot of a buffer is not shared");
        }
        Self { pool, address, slot, start: 0, end: len }
    }

    /// The octets `span` of this extent.
    ///
    /// # Panics
    /// When `span` is not inside.
    pub fn slice(&self, span: Range<usize>) -> Self {
        assert!(span.start <= span.end && span.end <= self.len(), "a slice lies inside its extent");
        if self.slot.is_run() {
            return self.slice_run(span);
        }
        let mut part = self.clone();
        part.end = self.start + span.end as u32;
        part.start = self.start + span.start as u32;
        part
    }

    /// The same for an extent in several slots: it shares only slots that it has octets of.
    #[cold]
    fn slice_run(&self, span: Range<usize>) -> Self {
        let slot_len = self.pool.slot_len(self.slot);
        let (from, to) = (self.start as usize + span.start, self.start as usize + span.end);
        // An empty slice at the end of the last slot is in that slot.
        let first = (from / slot_len).min(self.slots() - 1);
        let (slot, address) = self.pool.in_run(self.slot, first);
        let [start, end] = [from, to].map(|at| (at - first * slot_len) as u32);
        // Counted before it exists: if a count were full, dropping it would free what it never had.
        let count = self.pool.count_to(slot, end);
        (0..count).for_each(|number| self.share(self.pool.in_run(slot, number).0));
        let slot = if count > 1 { slot.of_run() } else { slot };
        Self { pool: Rc::clone(&self.pool), address, slot, start, end }
    }

    /// Returns true if its first octet is the first one of a slot.
    pub const fn begins_slot(&self) -> bool {
        self.start == 0
    }

    /// Slots that it shares.
    fn slots(&self) -> usize {
        if self.slot.is_run() { self.pool.count_to(self.slot, self.end) } else { 1 }
    }

    /// Counts one more extent in a slot.
    #[inline]
    fn share(&self, slot: SlotId) {
        let shares = self.pool.shares(slot);
        shares.set(shares.get().checked_add(1).expect("fewer than 2^32 extents share a slot"));
    }

    /// Counts one more extent in the slots after the first one.
    #[cold]
    fn share_further(&self) {
        (1..self.slots()).for_each(|number| self.share(self.pool.in_run(self.slot, number).0));
    }

    /// Gives up its shares of the slots after the first one.
    #[cold]
    fn release_further(&self) {
        (1..self.slots()).for_each(|number| self.release(self.pool.in_run(self.slot, number).0));
    }

    /// Gives up its share of a slot.
    #[inline]
    fn release(&self, slot: SlotId) {
        let shares = self.pool.shares(slot);
        let left = shares.get() - 1;
        shares.set(left);
        if left == 0 {
            self.pool.give(slot);
        }
    }

    /// Octets of the slots of which it has any; they stay in use as long as it lives.
    pub fn capacity(&self) -> usize {
        self.pool.slot_len(self.slot) * self.slots()
    }

    /// Place at which the extent begins.
    pub fn place(&self) -> PoolPlace {
        self.pool.place(self.slot, self.start)
    }

    /// Returns true if the extent is in the memory of `pool`.
    pub fn is_of(&self, pool: &Pool) -> bool {
        pool.is(&self.pool)
    }

    /// Returns the buffer if no other extent shares the slot, else the extent. An extent in several
    /// slots stays one.
    pub fn try_into_buf(self) -> Result<Buf, Self> {
        if self.slot.is_run() || self.pool.shares(self.slot).get() != 1 {
            return Err(self);
        }
        self.pool.shares(self.slot).set(0);
        let (slot, address, start, len) =
            (self.slot, self.address, self.start as usize, self.len());
        let capacity = self.capacity() as u32;
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the reference moves out exactly once.
        let pool = unsafe { std::ptr::read(&raw const this.pool) };
        let mut buf = Buf::adopt(pool, slot, address, capacity);
        buf.reset(start);
        buf.extend(len);
        Ok(buf)
    }
}

impl Clone for Extent {
    fn clone(&self) -> Self {
        self.share(self.slot);
        if self.slot.is_run() {
            self.share_further();
        }
        let Self { address, slot, start, end, .. } = *self;
        Self { pool: Rc::clone(&self.pool), address, slot, start, end }
    }
}

impl Deref for Extent {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        debug_assert!(self.start <= self.end && self.end as usize <= self.capacity());
        // SAFETY: `start` is in the slot or at its end.
        let first = unsafe { self.address.add(self.start as usize) };
        // SAFETY: the octets from `start` to `end` are in slots that this extent shares, adjacent
        // from `address` on, initialised and there while `self.pool` lives; only extents hold these
        // slots, and none of them gives out a mutable reference.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), (self.end - self.start) as usize) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.release(self.slot);
        if self.slot.is_run() {
            self.release_further();
        }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} octets)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Class, Pool};

    #[test]
    fn a_slot_comes_back_when_its_last_extent_goes() {
        let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
        let mut buf = pool.take(64).unwrap();
        buf.append(b"abcdef").unwrap();
        let whole = buf.freeze();
        let part = whole.slice(2..4);
        assert_eq!(&part[..], b"cd");
        assert_eq!(&part.slice(1..2)[..], b"d");
        let whole = whole.try_into_buf().unwrap_err();
        drop(whole);
        assert_eq!(pool.taken(), 1);
        let again = part.try_into_buf().unwrap();
        assert_eq!((&again[..], again.head_room()), (&b"cd"[..], 2));
        drop(again);
        assert_eq!(pool.taken(), 0);
    }

    /// A pool of 33 slots of 64 octets: two groups and one slot.
    fn runs() -> Pool {
        Pool::with_runs(&[Class { slot_len: 64, count: 33 }], false).unwrap()
    }

    fn counted(pool: &Pool, len: usize) -> crate::Buf {
        let mut run = pool.take_run(len).unwrap();
        run.extend(len);
        run.iter_mut().enumerate().for_each(|(at, octet)| *octet = at as u8);
        run
    }

    #[test]
    fn an_extent_of_a_run_holds_the_slots_that_it_has_octets_of() {
        let pool = runs();
        let run = counted(&pool, 16 * 64).freeze();
        assert_eq!((pool.taken(), run.capacity()), (16, 16 * 64));
        let expected = |span: std::ops::Range<usize>| span.map(|at| at as u8).collect::<Vec<_>>();
        for (span, slots) in [
            (0..64, 1),
            (0..65, 2),
            (63..65, 2),
            (64..128, 1),
            (65..127, 1),
            (100..1_000, 15),
            (1_023..1_024, 1),
            (1_024..1_024, 1),
            (64..64, 1),
            (0..0, 1),
        ] {
            let part = run.slice(span.clone());
            assert_eq!((&part[..], part.capacity()), (&expected(span.clone())[..], slots * 64));
            assert_eq!(part.place().at, run.place().at + span.start);
            // A part of the part, which knows nothing of the run.
            let half = part.slice(part.len() / 2..part.len());
            assert_eq!(&half[..], &part[part.len() / 2..]);
            let (whole, again) = (run.clone(), part.clone());
            drop((half, whole, part));
            assert_eq!((&again[..], pool.taken()), (&expected(span)[..], 16));
        }
        let (one, two) = (run.slice(70..80), run.slice(190..200));
        drop(run);
        assert_eq!(pool.taken(), 1 + 2, "octets 190 to 199 are in two slots");
        let two = two.try_into_buf().unwrap_err();
        let one = one.try_into_buf().unwrap();
        assert_eq!((&one[..], one.capacity(), one.head_room()), (&expected(70..80)[..], 64, 6));
        drop((one, two));
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn a_run_frees_the_slots_without_content() {
        let pool = runs();
        let mut run = counted(&pool, 10 * 64);
        run.trim_front(2 * 64 + 1);
        run.truncate(64);
        let extent = run.freeze();
        assert_eq!((extent.len(), extent[0], pool.taken()), (64, 129, 2));
        drop(extent);
        assert_eq!(pool.taken(), 0);
        drop(counted(&pool, 10 * 64));
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn every_sequence_of_takes_and_drops_hands_out_each_slot_once() {
        let pool = runs();
        let mut held: Vec<crate::Extent> = Vec::new();
        let (mut state, mut runs) = (1_u64, 0);
        for round in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
            let choice = (state >> 33) as usize;
            match choice % 8 {
                0..3 => held.extend(pool.take(64).map(|mut buf| {
                    buf.extend(64);
                    buf.freeze()
                })),
                3 => {
                    let slots = 9 + choice / 8 % 8;
                    let run = pool.take_run(slots * 64).map(|mut run| {
                        run.extend(slots * 64);
                        run.freeze()
                    });
                    runs += usize::from(run.is_some());
                    // Slot by slot, as a file keeps them.
                    held.extend(run.iter().flat_map(|run| {
                        (0..slots).map(move |slot| run.slice(slot * 64..(slot + 1) * 64))
                    }));
                }
                _ if !held.is_empty() => drop(held.swap_remove(choice / 8 % held.len())),
                _ => {}
            }
            let mut places: Vec<_> = held.iter().map(|extent| extent.place().at).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), held.len(), "no slot is held twice");
            assert_eq!((pool.taken(), pool.available(64)), (held.len(), 33 - held.len()));
        }
        assert!(runs > 100, "{runs}");
        drop(held);
        let all = [pool.take_run(16 * 64), pool.take_run(9 * 64)];
        assert!(all.iter().all(Option::is_some), "whole groups come back");
        assert_eq!((pool.available(64), pool.take_run(9 * 64).is_none()), (8, true));
        let rest: Vec<_> = std::iter::from_fn(|| pool.take(64)).collect();
        assert_eq!((rest.len(), pool.is_empty()), (8, true));
    }

    #[test]
    fn runs_have_more_than_half_a_group_and_exist_where_they_are_asked_for() {
        let pool = runs();
        for len in [0, 1, 64, 8 * 64, 16 * 64 + 1, usize::MAX] {
            assert!(pool.take_run(len).is_none(), "{len}");
        }
        assert_eq!(pool.take_run(8 * 64 + 1).map(|run| run.capacity()), Some(9 * 64));
        let pool = Pool::new(&[Class { slot_len: 64, count: 33 }]).unwrap();
        assert!(pool.take_run(16 * 64).is_none());
    }

    #[test]
    fn single_slots_leave_whole_groups_as_long_as_others_are_free() {
        let pool = runs();
        let first = pool.take(64).unwrap(); // the slot of no group
        let second = pool.take(64).unwrap(); // of the first group
        assert_eq!(pool.take_run(16 * 64).map(|run| run.place().at), Some(16 * 64));
        let others: Vec<_> = (0..15).map(|_| pool.take(64).unwrap()).collect();
        assert!(pool.take_run(16 * 64).is_some(), "the others are of the first group, too");
        drop((first, second, others));
        let both = [(); 2].map(|()| pool.take_run(16 * 64));
        assert!(both.iter().all(Option::is_some));
    }

    #[test]
    #[should_panic(expected = "a slice lies inside its extent")]
    fn a_slice_cannot_reach_outside() {
        let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
        let _ = pool.take(64).unwrap().freeze().slice(0..1);
    }

    #[test]
    fn an_extent_knows_its_slot_and_its_pool() {
        let class = Class { slot_len: 64, count: 1 };
        let (pool, other) = (Pool::new(&[class]).unwrap(), Pool::new(&[class]).unwrap());
        let mut buf = pool.take(1).unwrap();
        buf.append(b"abc").unwrap();
        let part = buf.freeze().slice(1..2);
        assert_eq!((part.len(), part.capacity()), (1, 64));
        assert!(part.is_of(&pool) && part.is_of(&pool.clone()) && !part.is_of(&other));
    }
}
