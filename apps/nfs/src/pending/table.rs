//! Calls in flight in a store: a fixed number, each with its caller and the memory lent for it.

use crate::{
    pending::call::{CallMemories, PendingCall},
    reply_cache::UnderWay,
    requester::BufferLimits,
};
use stag_engine::{PeerId, Time};

use super::admission::AdmissionQueue;
use stag_nfs_store::{TICKETS, WaitTicket};

/// The calls in flight of one shard.
#[derive(Debug)]
pub(crate) struct PendingCalls {
    /// By ticket.
    entries: Box<[Option<PendingCall>]>,
    /// Free tickets.
    free: Vec<WaitTicket>,
    limits: BufferLimits,
    held: [usize; 2],
    /// Calls without a ticket.
    pub(crate) waiting: AdmissionQueue,
}

impl PendingCalls {
    /// Room for [`TICKETS`].
    pub(crate) fn new(limits: BufferLimits) -> Self {
        let entries = std::iter::repeat_with(|| None).take(TICKETS).collect();
        let free = WaitTicket::all().rev().collect();
        Self { entries, free, limits, held: [0; 2], waiting: AdmissionQueue::default() }
    }

    /// The ticket of the next call; None when too many are in flight.
    pub(crate) fn next_ticket(&self) -> Option<WaitTicket> {
        self.free.last().copied()
    }

    /// Returns true while a call is in flight, or waits for a ticket.
    pub(crate) fn are_under_way(&self) -> bool {
        self.free.len() < TICKETS || !self.waiting.is_empty()
    }

    /// Number of calls in flight.
    pub(crate) const fn len(&self) -> usize {
        TICKETS - self.free.len()
    }

    /// Returns true if calls may hold this memory in addition.
    pub(crate) fn may_hold(&self, memories: &CallMemories) -> bool {
        self.limits.allow(self.held, memories.slots())
    }

    /// The limits.
    pub(crate) const fn limits(&self) -> BufferLimits {
        self.limits
    }

    /// Stores a call that has the next ticket.
    pub(crate) fn put(&mut self, call: PendingCall) {
        let ticket = self.free.pop().expect("the call was given the next ticket");
        self.held.iter_mut().zip(call.memories.slots()).for_each(|(held, more)| *held += more);
        let earlier = self.entries.get_mut(ticket.index()).and_then(|entry| entry.replace(call));
        debug_assert!(earlier.is_none(), "a ticket stands for one call");
    }

    /// Takes the call of a returned ticket.
    pub(crate) fn take(&mut self, ticket: WaitTicket) -> Option<PendingCall> {
        let call = self.entries.get_mut(ticket.index())?.take()?;
        self.held.iter_mut().zip(call.memories.slots()).for_each(|(held, less)| *held -= less);
        self.free.push(ticket);
        Some(call)
    }

    /// The same call, if it is in flight.
    pub(crate) fn find(&mut self, name: &UnderWay) -> Option<&mut PendingCall> {
        if !self.are_under_way() {
            return None;
        }
        let under_way = self.entries.iter_mut().flatten();
        under_way.chain(self.waiting.calls()).find(|call| call.name.as_ref() == Some(name))
    }

    /// The call of a ticket.
    pub(crate) fn get_mut(&mut self, ticket: WaitTicket) -> Option<&mut PendingCall> {
        self.entries.get_mut(ticket.index())?.as_mut()
    }

    /// Time at which the oldest call began.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let under_way = self.entries.iter().flatten().map(|call| call.began);
        under_way.chain(self.waiting.oldest()).min()
    }

    /// Removes the callers at this peer, which can no longer be answered.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        for call in self.entries.iter_mut().flatten().chain(self.waiting.calls()) {
            call.requester.take_if(|requester| requester.peer == peer);
        }
    }
}
