//! Pool: the slots of one arena, taken and returned without a search.

use crate::{
    arena::Arena,
    budget::{Budget, Class},
    buf::Buf,
    runs::{FreeSlots, Groups, RUN_SLOTS},
};
use std::{
    cell::Cell,
    io,
    ops::Range,
    os::fd::BorrowedFd,
    ptr::NonNull,
    rc::Rc,
    sync::atomic::{AtomicU32, Ordering},
};

/// Slots start on a cache line of their own.
const LINE: usize = 64;

/// A shard's memory. Clones share it; it lives as long as any buffer of it.
#[derive(Clone, Debug)]
pub struct Pool(Rc<PoolInner>);

/// Names one pool of this process, for providers that register memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(u32);

/// Location of octets: a pool, and the distance from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlace {
    /// The pool.
    pub pool: PoolId,
    /// Octets in front of them.
    pub at: usize,
}

/// Pools made by this process. Only starts touch it.
static POOLS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct PoolInner {
    id: PoolId,
    arena: Arena,
    classes: Box<[Slots]>,
}

#[derive(Debug)]
struct Slots {
    slot_len: usize,
    /// Offset of slot 0 in the arena, and its address.
    base: usize,
    first: NonNull<u8>,
    /// Free slots: a stack of which the first `left` places count. It has a place for each slot.
    free: Box<[Cell<u32>]>,
    left: Cell<u32>,
    /// Free slots that are not on the stack, where slots can be taken in runs.
    whole: Cell<u32>,
    groups: Option<Box<Groups>>,
    /// Extents that share each slot; 0 while the slot is free or owned by one `Buf`.
    shares: Box<[Cell<u32>]>,
    /// The content of each slot, where slots are longer than [`UNMARKED_LEN`].
    marks: Box<[Cell<Mark>]>,
}

/// Slots up to this length are always cleared: that is cheaper than a record of their content.
const UNMARKED_LEN: usize = 4_096;

/// A set of peers that may read each other's writes: the peers of one host's service, or of one
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer(pub u64);

/// The origin of a slot's first octets.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    writer: u64,
    /// Octets at the front that `writer` wrote, or that are zero.
    len: u32,
}

/// Names one slot of a pool, or the first of a run. Exactly one `Buf`, or the extents counted in
/// `shares`, hold each slot that is not free. One word, because every buffer stores it: its class
/// above [`SlotId::INDEX_BITS`], then a bit for a run, and its index in the class below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

impl SlotId {
    const INDEX_BITS: u32 = 28;
    /// Set if the holder has further slots, adjacent to this one.
    const RUN: u32 = 1 << (Self::INDEX_BITS - 1);
    /// Slots that one class has at most, and classes that one pool has at most.
    const SLOTS_MAX: u32 = Self::RUN;
    const CLASSES_MAX: usize = 1 << (u32::BITS - Self::INDEX_BITS);

    const fn new(class: usize, index: u32) -> Self {
        Self((class as u32) << Self::INDEX_BITS | index)
    }

    /// The same as the first slot of a run.
    pub(crate) const fn of_run(self) -> Self {
        Self(self.0 | Self::RUN)
    }

    /// Returns true if the holder has further slots.
    #[inline]
    pub(crate) const fn is_run(self) -> bool {
        self.0 & Self::RUN != 0
    }

    const fn class(self) -> usize {
        (self.0 >> Self::INDEX_BITS) as usize
    }

    const fn index(self) -> usize {
        (self.0 & (Self::SLOTS_MAX - 1)) as usize
    }
}

impl Pool {
    /// Maps and cuts an arena, on the best pages that the host offers ([`crate::Pages`]) and near
    /// the core that runs this: a shard makes its pools on its own core. Fails as `mmap(2)` does,
    /// and with `InvalidInput` when the classes cannot be laid out.
    pub fn new(classes: &[Class]) -> io::Result<Self> {
        Self::cut(classes, Arena::map, false)
    }

    /// A pool in a memory file that other processes may map read-only ([`Pool::file`]), and cannot
    /// change or truncate.
    pub fn shared(classes: &[Class]) -> io::Result<Self> {
        Self::cut(classes, Arena::share, false)
    }

    /// A pool of which the longest slots can be taken in runs of adjacent ones
    /// ([`take_run`](Self::take_run)); `is_shared` as [`Pool::shared`].
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_runs(classes: &[Class], is_shared: bool) -> io::Result<Self> {
        Self::cut(classes, if is_shared { Arena::share } else { Arena::map }, true)
    }

    fn cut(
        classes: &[Class],
        map: fn(usize) -> io::Result<Arena>,
        has_runs: bool,
    ) -> io::Result<Self> {
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidInput, "a pool cannot have these classes");
        let mut classes = classes.to_vec();
        classes.sort_by_key(|class| class.slot_len);
        let mut base = 0_usize;
        let mut laid_out = Vec::with_capacity(classes.len());
        for class in &classes {
            let slot_len = class.slot_len.checked_next_multiple_of(LINE).ok_or_else(invalid)?;
            let count = u32::try_from(class.count).map_err(|_| invalid())?;
            if slot_len == 0 || u32::try_from(slot_len).is_err() || count > SlotId::SLOTS_MAX {
                return Err(invalid());
            }
            laid_out.push((slot_len, base, count));
            base = slot_len
                .checked_mul(class.count)
                .and_then(|len| base.checked_add(len))
                .ok_or_else(invalid)?;
        }
        let longest = laid_out.last().map_or(0, |(slot_len, ..)| *slot_len);
        let has_long_runs = has_runs && u32::try_from(longest.saturating_mul(RUN_SLOTS)).is_err();
        if laid_out.is_empty() || laid_out.len() > SlotId::CLASSES_MAX || has_long_runs {
            return Err(invalid());
        }
        let arena = map(base)?;
        assert!(base <= arena.len(), "every slot lies inside the arena");
        let id = PoolId(POOLS.fetch_add(1, Ordering::Relaxed));
        let slots = laid_out.into_iter().map(|(slot_len, base, count)| Slots {
            slot_len,
            base,
            first: arena.at(base),
            // The stack starts with slot 0 on top: low slots are used first and stay in the cache.
            free: (0..count).rev().map(Cell::new).collect(),
            left: Cell::new(count),
            whole: Cell::new(0),
            groups: None,
            shares: (0..count).map(|_| Cell::new(0)).collect(),
            marks: (0..if slot_len > UNMARKED_LEN { count } else { 0 })
                .map(|_| Cell::default())
                .collect(),
        });
        let mut classes: Box<[Slots]> = slots.collect();
        if has_runs && let Some(longest) = classes.last_mut() {
            longest.group();
        }
        Ok(Self(Rc::new(PoolInner { id, arena, classes })))
    }

    /// An empty buffer that can hold at least `len` octets, from the smallest class that has one.
    #[inline]
    pub fn take(&self, len: usize) -> Option<Buf> {
        self.take_as(len, true)
    }

    /// The same, for a peer to write ([`Buf::expose_cleared`]): if that peer wrote there before, it
    /// may find its octets again. The owner must put nothing there that the peer's reader may not
    /// see.
    #[inline]
    pub fn take_room(&self, len: usize) -> Option<Buf> {
        self.take_as(len, false)
    }

    #[inline]
    fn take_as(&self, len: usize, is_forgotten: bool) -> Option<Buf> {
        for (class, slots) in self.0.classes.iter().enumerate() {
            if slots.slot_len >= len
                && let Some(index) = slots.pop()
            {
                if is_forgotten && let Some(mark) = slots.marks.get(index as usize) {
                    mark.set(Mark::default());
                }
                let slot = SlotId::new(class, index);
                return Some(Buf::adopt(
                    Rc::clone(&self.0),
                    slot,
                    slots.address(index),
                    slots.slot_len as u32,
                ));
            }
        }
        None
    }

    /// An empty buffer for `len` octets in adjacent slots of the longest class: more than half as
    /// many as [`RUN_SLOTS`](crate::RUN_SLOTS), and no more than that. None if no group of so many
    /// adjacent slots is free, in a pool without runs ([`Pool::with_runs`]), and for other lengths:
    /// a shorter run would leave most of a group to be taken slot by slot.
    ///
    /// Each slot is freed when no extent has an octet of it any more.
    pub fn take_run(&self, len: usize) -> Option<Buf> {
        let (class, slots) = self.0.classes.iter().enumerate().next_back()?;
        let count = len.div_ceil(slots.slot_len);
        let groups = slots.groups.as_ref().filter(|_| count > RUN_SLOTS / 2)?;
        let first = groups.take_run(count, slots.free_slots())?;
        for index in first as usize..first as usize + count {
            if let Some(mark) = slots.marks.get(index) {
                mark.set(Mark::default());
            }
        }
        let slot = SlotId::new(class, first).of_run();
        let capacity = (count * slots.slot_len) as u32; // `cut` compared the longest with a word
        Some(Buf::adopt(Rc::clone(&self.0), slot, slots.address(first), capacity))
    }

    /// Slots of at least `len` octets that can be taken.
    pub fn available(&self, len: usize) -> usize {
        let classes = self.0.classes.iter().filter(|slots| slots.slot_len >= len);
        classes.map(Slots::available).sum()
    }

    /// Returns true if every slot is taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.classes.iter().all(|slots| slots.available() == 0)
    }

    /// Slots taken. Zero when all were returned.
    pub fn taken(&self) -> usize {
        self.0.classes.iter().map(|slots| slots.shares.len() - slots.available()).sum()
    }

    /// Octets of the longest slot.
    pub fn slot_max(&self) -> usize {
        self.0.classes.last().map_or(0, |slots| slots.slot_len)
    }

    /// Its name.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// The file that holds the pool, [`Pool::span`] long, when other processes can map it.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.0.arena.file()
    }

    /// The address of the pool's first octet and the number of octets mapped, to be registered with
    /// a device. Safe code can do nothing with the address.
    pub fn span(&self) -> (NonNull<u8>, usize) {
        (self.0.arena.at(0), self.0.arena.len())
    }

    /// Returns true if `inner` belongs to this pool.
    pub(crate) fn is(&self, inner: &Rc<PoolInner>) -> bool {
        Rc::ptr_eq(&self.0, inner)
    }

    /// Returns the composition of this pool.
    pub fn budget(&self) -> Budget {
        let class = |slots: &Slots| Class { slot_len: slots.slot_len, count: slots.shares.len() };
        let classes = self.0.classes.iter().map(class).collect();
        let arena = &self.0.arena;
        Budget { classes, octets: arena.len(), pages: arena.pages(), node: arena.node() }
    }
}

impl Slots {
    /// The address of the first octet of the slot `index`, valid for `slot_len` octets while the
    /// pool lives.
    #[inline]
    fn address(&self, index: u32) -> NonNull<u8> {
        debug_assert!((index as usize) < self.shares.len(), "the free list names slots that exist");
        // SAFETY: `cut` laid out as many slots as the free list names, one after the other from
        // `first` on and all inside the arena, so the result is in the arena.
        unsafe { self.first.add(index as usize * self.slot_len) }
    }

    /// Lets slots be taken in runs. None is taken yet.
    fn group(&mut self) {
        self.left.set(0);
        let count = self.shares.len() as u32; // no more than a class has slots
        self.groups = Some(Box::new(Groups::new(count, self.free_slots())));
    }

    #[inline]
    const fn free_slots(&self) -> FreeSlots<'_> {
        FreeSlots { stack: &self.free, left: &self.left, whole: &self.whole }
    }

    #[inline]
    fn available(&self) -> usize {
        self.left.get() as usize + self.whole.get() as usize
    }

    /// Takes a free slot.
    #[inline]
    fn pop(&self) -> Option<u32> {
        match &self.groups {
            None => self.free_slots().pop(),
            Some(groups) => groups.take(self.free_slots()),
        }
    }

    /// Gives one back.
    #[inline]
    fn push(&self, index: u32) {
        match &self.groups {
            None => drop(self.free_slots().push(index)),
            Some(groups) => groups.give(index, self.free_slots()),
        }
    }

    /// The number of slots that hold octets of a run up to `end`, counted from the run's beginning;
    /// at least 1.
    fn count_to(&self, end: usize) -> usize {
        end.div_ceil(self.slot_len).max(1)
    }
}

impl PoolInner {
    #[inline]
    fn slots(&self, slot: SlotId) -> &Slots {
        self.classes
            .get(slot.class())
            .expect("slots are made by `take`, which names an existing class")
    }

    /// Octets of each slot of the class of `slot`.
    #[inline]
    pub(crate) fn slot_len(&self, slot: SlotId) -> usize {
        self.slots(slot).slot_len
    }

    /// Place of octet `offset` of `slot`.
    pub(crate) fn place(&self, slot: SlotId, offset: u32) -> PoolPlace {
        let slots = self.slots(slot);
        PoolPlace {
            pool: self.id,
            at: slots.base + slot.index() * slots.slot_len + offset as usize,
        }
    }

    /// Slot `number` of the run that begins with `slot`, and the address of its first octet.
    ///
    /// # Panics
    /// When the class has no such slot.
    pub(crate) fn in_run(&self, slot: SlotId, number: usize) -> (SlotId, NonNull<u8>) {
        let (slots, index) = (self.slots(slot), slot.index() + number);
        assert!(index < slots.shares.len(), "a run lies inside its class");
        (SlotId::new(slot.class(), index as u32), slots.address(index as u32))
    }

    /// The number of extents that share `slot`.
    #[inline]
    pub(crate) fn shares(&self, slot: SlotId) -> &Cell<u32> {
        self.slots(slot)
            .shares
            .get(slot.index())
            .expect("slots are made by `take`, from the free list")
    }

    /// The number of slots, from `slot` on, up to octet `end` of a run that begins with it; at
    /// least 1.
    pub(crate) fn count_to(&self, slot: SlotId, end: u32) -> usize {
        self.slots(slot).count_to(end as usize)
    }

    /// Records that `writer` is to write the octets `span` of `slot`. Returns the number of octets,
    /// from the first one on, that hold nothing of another writer; the others are to be cleared.
    pub(crate) fn mark(&self, slot: SlotId, writer: Writer, span: Range<usize>) -> usize {
        let Some(mark) = self.slots(slot).marks.get(slot.index()) else { return 0 };
        let Mark { writer: before, len } = mark.get();
        // Octets in front of the span are not cleared, so they stay unknown; a run has no marks.
        if span.start > 0 || slot.is_run() {
            mark.set(Mark::default());
            return 0;
        }
        let known = if before == writer.0 { len } else { 0 };
        mark.set(Mark { writer: writer.0, len: known.max(span.end as u32) });
        known as usize
    }

    /// Forgets the origin of the octets of `slot`. Those of the further slots of a run were
    /// forgotten when it was taken.
    pub(crate) fn forget_writer(&self, slot: SlotId) {
        if let Some(mark) = self.slots(slot).marks.get(slot.index()) {
            mark.set(Mark::default());
        }
    }

    /// Frees `slot`. The caller was its only holder and must forget it.
    #[inline]
    pub(crate) fn give(&self, slot: SlotId) {
        self.slots(slot).push(slot.index() as u32);
    }

    /// The same for the slots of a run of `capacity` octets that begins with `slot`.
    #[cold]
    pub(crate) fn give_run(&self, slot: SlotId, capacity: u32) {
        let (slots, first) = (self.slots(slot), slot.index() as u32);
        let count = slots.count_to(capacity as usize) as u32;
        (first..first + count).for_each(|index| slots.push(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_hands_out_each_slot_once_and_takes_it_back() {
        let pool =
            Pool::new(&[Class { slot_len: 64, count: 3 }, Class { slot_len: 256, count: 1 }])
                .unwrap();
        let mut bufs: Vec<_> = (0..4).map(|_| pool.take(1).unwrap()).collect();
        assert!(pool.take(1).is_none());
        for (i, buf) in bufs.iter_mut().enumerate() {
            buf.spare_mut().fill(i as u8);
            buf.extend(64);
        }
        for (i, buf) in bufs.iter().enumerate() {
            assert!(buf.iter().all(|octet| *octet == i as u8));
        }
        assert_eq!(pool.taken(), 4);
        drop(bufs);
        assert_eq!(pool.taken(), 0);
        assert_eq!(pool.available(65), 1);
    }

    #[test]
    fn a_long_request_never_gets_a_short_slot() {
        let pool =
            Pool::new(&[Class { slot_len: 64, count: 3 }, Class { slot_len: 256, count: 1 }])
                .unwrap();
        assert!(pool.take(257).is_none());
        let long = pool.take(65).unwrap();
        assert_eq!(long.capacity(), 256);
        assert!(pool.take(65).is_none());
    }

    #[test]
    fn content_is_found_again_in_the_file_of_a_shared_pool() {
        use std::os::unix::fs::FileExt;
        let classes = [Class { slot_len: 64, count: 3 }, Class { slot_len: 4096, count: 2 }];
        let pool = Pool::shared(&classes).unwrap();
        let file = std::fs::File::from(pool.file().unwrap().try_clone_to_owned().unwrap());
        let _first = pool.take(64).unwrap();
        for len in [10, 4000] {
            let mut buf = pool.take(len).unwrap();
            buf.reset(7);
            buf.append(b"content").unwrap();
            let place = buf.place();
            assert_eq!(place.pool, pool.id());
            let extent = buf.freeze();
            assert_eq!(extent.place(), place);
            assert_eq!(extent.slice(3..7).place().at, place.at + 3);
            let mut octets = [0; 7];
            file.read_exact_at(&mut octets, place.at as u64).unwrap();
            assert_eq!(&octets, b"content");
        }
        assert!(file.write_all_at(b"x", 0).is_err(), "nobody else writes it");
        assert!(file.set_len(0).is_err(), "nobody cuts it");
    }

    #[test]
    fn pools_have_names_of_their_own() {
        let classes = [Class { slot_len: 64, count: 1 }];
        let (one, other) = (Pool::new(&classes).unwrap(), Pool::new(&classes).unwrap());
        assert_ne!(one.id(), other.id());
        assert!(one.file().is_none());
        assert_ne!(one.take(1).unwrap().place().pool, other.take(1).unwrap().place().pool);
    }

    #[test]
    fn impossible_classes_are_refused() {
        assert!(Pool::new(&[]).is_err());
        assert!(Pool::new(&[Class { slot_len: 0, count: 1 }]).is_err());
        assert!(Pool::new(&[Class { slot_len: usize::MAX, count: 2 }]).is_err());
        let no_run = [Class { slot_len: 256 << 20, count: 0 }];
        assert!(Pool::with_runs(&no_run, false).is_err(), "a run of 16 has 2^32 octets");
    }

    #[test]
    fn memory_outlives_the_pool_while_a_buffer_lives() {
        let mut buf = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap().take(64).unwrap();
        buf.append(&[7; 64]).unwrap();
        assert_eq!(&buf[..], [7; 64]);
    }
}
