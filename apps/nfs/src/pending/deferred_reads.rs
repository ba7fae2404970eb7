//! READs deferred by a gateway until their bytes are in memory.

use stag_engine::{CallId, PeerId, Time};
use stag_protocol::{nfs::v3::ReadArgs, rpc::Xid};

use crate::v4::CompoundId;
use stag_nfs_store::{Caller, ReadTicket, TICKETS};

/// A deferred READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    pub(crate) read: DeferredRead,
    /// Time of its deferral.
    pub(crate) began: Time,
}

/// State to complete it later.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "boxing would allocate")]
pub(crate) enum DeferredRead {
    /// A READ of version 3.
    Call(DeferredCall),
    /// A READ of the compound that waits for it.
    Compound(CompoundId),
}

/// A READ of version 3.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredCall {
    pub(crate) id: CallId,
    pub(crate) peer: PeerId,
    pub(crate) xid: Xid,
    pub(crate) args: ReadArgs,
    pub(crate) caller: Caller,
}

/// The deferred READs of one shard: a fixed number.
#[derive(Debug)]
pub(crate) struct DeferredReads {
    /// By ticket.
    entries: Box<[Option<Deferred>]>,
    /// Free tickets. The ticket of a caller that is gone stays in use until its helper returns it.
    free: Vec<ReadTicket>,
}

impl DeferredReads {
    /// Room for [`TICKETS`].
    pub(crate) fn new() -> Self {
        Self { entries: vec![None; TICKETS].into(), free: ReadTicket::all().collect() }
    }

    /// The ticket of the next READ to defer; None when there are too many.
    pub(crate) fn next_ticket(&self) -> Option<ReadTicket> {
        self.free.last().copied()
    }

    /// Returns true while a ticket is in use, whose result comes from another thread.
    pub(crate) const fn are_deferred(&self) -> bool {
        self.free.len() < TICKETS
    }

    /// Stores a READ whose ticket, the next one, was given to a helper.
    pub(crate) fn put(&mut self, deferred: Deferred) {
        let ticket = self.free.pop().expect("the READ was given the next ticket");
        let entry =
            self.entries.get_mut(ticket.index()).expect("there is an entry for each ticket");
        debug_assert!(entry.is_none(), "a ticket stands for one READ");
        *entry = Some(deferred);
    }

    /// The READ of a returned ticket; None when its caller is gone.
    pub(crate) fn take(&mut self, ticket: ReadTicket) -> Option<Deferred> {
        debug_assert!(!self.free.contains(&ticket), "a ticket comes back once");
        self.free.push(ticket);
        self.entries.get_mut(ticket.index())?.take()
    }

    /// A READ deferred before `began`, whose ticket stays in use.
    pub(crate) fn take_older(&mut self, began: Time) -> Option<Deferred> {
        if !self.are_deferred() {
            return None;
        }
        let is_older = |deferred: &mut Deferred| deferred.began < began;
        self.entries.iter_mut().find_map(|entry| entry.take_if(is_older))
    }

    /// Drops the READs of a peer that can no longer be answered. A compound continues.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        let is_of = |deferred: &mut Deferred| match &deferred.read {
            DeferredRead::Call(call) => call.peer == peer,
            DeferredRead::Compound(_) => false,
        };
        for entry in &mut self.entries {
            entry.take_if(is_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_given_again_only_after_it_came_back() {
        let table = DeferredReads::new();
        let mut tickets: Vec<_> = ReadTicket::all().collect();
        assert_eq!((tickets.len(), table.entries.len()), (TICKETS, TICKETS));
        assert_eq!(table.next_ticket(), tickets.pop(), "there is one to give");
        assert!(ReadTicket::all().enumerate().all(|(index, ticket)| ticket.index() == index));
    }

    #[test]
    fn a_table_without_free_tickets_gives_none() {
        let mut table = DeferredReads::new();
        let held = std::mem::take(&mut table.free);
        assert_eq!(table.next_ticket(), None);
        for ticket in held {
            assert!(table.take(ticket).is_none(), "its caller is gone");
            assert_eq!(table.next_ticket(), Some(ticket));
        }
        assert_eq!(table.free.len(), TICKETS);
    }
}
