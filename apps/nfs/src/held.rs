//! Calls that nobody has begun because too many are under way, or hold too much memory: they wait
//! for one that ends, in the order in which they came. One that needs no buffer waits for none.
//!
//! A caller that is told to ask again (NFS3ERR_JUKEBOX) pauses, a Linux client for five seconds. So
//! that is said only when a place does not come in time ([`UNSTARTED_MAX`]), or when those that
//! wait are too many, too. A call that waits has no buffer but for the octets that it brought.

use std::{collections::VecDeque, time::Duration};

use stag_engine::{Time, config};
use stag_pools::Extent;

use crate::parked::{ParkedCall, slots_of};
use crate::store::StoreCall;

/// Time after which a call that nobody has begun is given up.
pub(crate) const UNSTARTED_MAX: Duration = Duration::from_secs(2);
/// Calls of a shard that wait at a time.
pub(crate) const HELD_MAX: usize = 1_024;

/// A call that waits.
pub(crate) struct HeldCall {
    /// Its caller; nothing is lent yet.
    pub(crate) parked: ParkedCall,
    pub(crate) call: StoreCall,
    /// Octets that it brought.
    pub(crate) payload: Option<Extent>,
}

impl HeldCall {
    /// Returns true if it needs no medium or large buffer.
    pub(crate) fn is_small(&self) -> bool {
        self.call.operation.room_len() <= config::INLINE_LEN && self.slots() == [0; 2]
    }

    /// Medium and large buffers that it holds.
    pub(crate) fn slots(&self) -> [usize; 2] {
        slots_of(&[self.payload.as_ref().map_or(0, Extent::capacity)])
    }
}

/// Those of one shard.
#[derive(Default)]
pub(crate) struct HeldCalls {
    calls: VecDeque<HeldCall>,
    /// Medium and large buffers.
    held: [usize; 2],
}

impl std::fmt::Debug for HeldCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldCalls({})", self.calls.len())
    }
}

impl HeldCalls {
    /// Returns true if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Their callers.
    pub(crate) fn calls(&mut self) -> impl Iterator<Item = &mut ParkedCall> {
        self.calls.iter_mut().map(|held| &mut held.parked)
    }

    pub(crate) fn push_back(&mut self, held: HeldCall) {
        self.count(held.slots());
        self.calls.push_back(held);
    }

    pub(crate) fn push_front(&mut self, held: HeldCall) {
        self.count(held.slots());
        self.calls.push_front(held);
    }

    fn count(&mut self, slots: [usize; 2]) {
        self.held.iter_mut().zip(slots).for_each(|(held, more)| *held += more);
    }

    /// Takes the first; of those that need no buffer, where buffers are short.
    pub(crate) fn pop_next(&mut self, are_buffers_short: bool) -> Option<HeldCall> {
        let mut calls = self.calls.iter();
        let place = calls.position(|held| !are_buffers_short || held.is_small())?;
        let held = self.calls.remove(place)?;
        self.held.iter_mut().zip(held.slots()).for_each(|(sum, less)| *sum -= less);
        Some(held)
    }

    /// The time at which the first came.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.calls.front().map(|held| held.parked.began)
    }

    /// The number of them.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The medium and large buffers that they hold.
    pub(crate) const fn held(&self) -> [usize; 2] {
        self.held
    }

    /// The first, if it has waited for too long.
    pub(crate) fn pop_older(&mut self, now: Time) -> Option<HeldCall> {
        let first = self.calls.front()?;
        if now.since(first.parked.began) < UNSTARTED_MAX { None } else { self.pop_next(false) }
    }
}
