//! Adjacent slots that are taken together, so that octets of several slots lie in one piece.
//!
//! The slots of a class are divided into groups of [`RUN_SLOTS`]. A group is whole while all of its
//! slots are free; then none of them is on the stack of free slots, and slots are taken from whole
//! groups only when the stack is empty. So slots that are taken one by one leave whole groups for
//! [`Pool::take_run`](crate::Pool::take_run) as long as there are others.

use std::{cell::Cell, ops::Range};

/// Slots of a group, and of the longest run.
pub const RUN_SLOTS: usize = 16;

/// Free slots of one class, by group.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Place on the stack of each slot that is there.
    places: Box<[Cell<u32>]>,
    /// Free slots of each group.
    free: Box<[Cell<u8>]>,
    /// Groups that are whole: a stack of which the first `left` places count.
    whole: Box<[Cell<u32>]>,
    left: Cell<u32>,
}

/// The stack of free slots: its places, the first of which are in use, and their number; and the
/// number of free slots that are not on it.
#[derive(Clone, Copy)]
pub(crate) struct FreeSlots<'a> {
    pub(crate) stack: &'a [Cell<u32>],
    pub(crate) left: &'a Cell<u32>,
    pub(crate) whole: &'a Cell<u32>,
}

impl FreeSlots<'_> {
    /// Takes the slot on top.
    #[inline]
    pub(crate) fn pop(self) -> Option<u32> {
        let left = self.left.get().checked_sub(1)?;
        let index = at(self.stack, left).get();
        self.left.set(left);
        Some(index)
    }

    /// Puts a slot on top, and returns its place.
    #[inline]
    pub(crate) fn push(self, index: u32) -> u32 {
        let left = self.left.get();
        at(self.stack, left).set(index);
        self.left.set(left + 1);
        left
    }
}

/// A place of a slot or a group: a stack has as many places as there are.
#[inline]
fn at<T>(places: &[Cell<T>], index: u32) -> &Cell<T> {
    places.get(index as usize).expect("each slot is free once, and each group is whole once")
}

/// The slots of group `group`.
fn slots(group: u32) -> Range<u32> {
    let first = group * RUN_SLOTS as u32;
    first..first + RUN_SLOTS as u32
}

impl Groups {
    /// All `count` slots of a class, none of which is taken or on the stack. The slots of a last
    /// group that is shorter than others go to the stack, for that group is never whole.
    pub(crate) fn new(count: u32, free: FreeSlots<'_>) -> Self {
        let whole = count / RUN_SLOTS as u32;
        let groups = count.div_ceil(RUN_SLOTS as u32) as usize;
        let this = Self {
            places: (0..count).map(|_| Cell::new(0)).collect(),
            free: (0..groups).map(|_| Cell::new(0)).collect(),
            whole: (0..groups).map(|_| Cell::new(0)).collect(),
            left: Cell::new(0),
        };
        (whole * RUN_SLOTS as u32..count).rev().for_each(|index| this.give(index, free));
        // Low slots are used first, as those of other classes.
        (0..whole).rev().for_each(|group| this.make_whole(group, free));
        this
    }

    /// Takes one slot.
    // Not inlined, nor is `give`: they would keep the slots of other pools from being inlined.
    #[inline(never)]
    pub(crate) fn take(&self, free: FreeSlots<'_>) -> Option<u32> {
        if free.left.get() == 0 {
            let group = self.take_whole(free)?;
            self.give_all(slots(group), free);
        }
        let index = free.pop()?;
        let count = self.count(index);
        count.set(count.get() - 1);
        Some(index)
    }

    /// Takes the first `count` slots of a whole group; the rest of its slots go to the stack.
    /// Returns the first slot. None if no group is whole or a group has fewer slots.
    pub(crate) fn take_run(&self, count: usize, free: FreeSlots<'_>) -> Option<u32> {
        if count > RUN_SLOTS {
            return None;
        }
        let Range { start, end } = slots(self.take_whole(free)?);
        self.give_all(start + count as u32..end, free);
        Some(start)
    }

    /// Puts a free slot on the stack. If its group is whole then, the group leaves the stack.
    #[inline(never)]
    pub(crate) fn give(&self, index: u32, free: FreeSlots<'_>) {
        self.place(index).set(free.push(index));
        let count = self.count(index);
        count.set(count.get() + 1);
        if usize::from(count.get()) == RUN_SLOTS {
            let group = index / RUN_SLOTS as u32;
            for index in slots(group) {
                self.remove(index, free);
            }
            self.make_whole(group, free);
        }
    }

    /// Puts slots on the stack, so that the first one is on top. They are fewer than a group has,
    /// or those of a group of which one is taken at once.
    fn give_all(&self, slots: Range<u32>, free: FreeSlots<'_>) {
        for index in slots.rev() {
            self.place(index).set(free.push(index));
            let count = self.count(index);
            count.set(count.get() + 1);
        }
    }

    /// Removes a slot from the stack, wherever it is: the one on top takes its place.
    fn remove(&self, index: u32, free: FreeSlots<'_>) {
        let place = self.place(index).get();
        let top = free.pop().expect("a free slot is on the stack unless its group is whole");
        if top != index {
            at(free.stack, place).set(top);
            self.place(top).set(place);
        }
    }

    fn make_whole(&self, group: u32, free: FreeSlots<'_>) {
        free.whole.set(free.whole.get() + RUN_SLOTS as u32);
        let left = self.left.get();
        at(&self.whole, left).set(group);
        self.left.set(left + 1);
    }

    /// Takes a whole group: none of its slots counts as free.
    fn take_whole(&self, free: FreeSlots<'_>) -> Option<u32> {
        let left = self.left.get().checked_sub(1)?;
        free.whole.set(free.whole.get() - RUN_SLOTS as u32);
        let group = at(&self.whole, left).get();
        self.left.set(left);
        at(&self.free, group).set(0);
        Some(group)
    }

    fn place(&self, index: u32) -> &Cell<u32> {
        at(&self.places, index)
    }

    fn count(&self, index: u32) -> &Cell<u8> {
        at(&self.free, index / RUN_SLOTS as u32)
    }
}
