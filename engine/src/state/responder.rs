//! The table of all calls of peers, and what each peer holds.

use super::{
    inbound::{FabricCall, FreshCall, Inbound, Unsent},
    line::{Line, Wait},
};
use crate::{
    account::Account,
    config::{Config, INLINE_LEN},
    peer_view::PeerId,
    short_send::SHORT_ROOM,
    spare::Spare,
};
use stag_pools::{Table, table::Key};
use stag_protocol::rpcrdma::{ChunkLists, ErrorReply, Xid};
use stag_verbs::{Qp, Time};
use std::collections::VecDeque;

/// All calls of peers.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) calls: Table<Inbound>,
    /// The chunk lists of each entry of `calls`: separate, so that a call without chunks moves
    /// none.
    pub(crate) lists: Box<[ChunkLists]>,
    /// Spare boxes for the parts that only calls with chunks have.
    pub(crate) spare: Spare<FabricCall>,
    /// Calls of peers that wait for memory to pull into, or for their reply.
    pub(crate) line: Line,
    /// Calls of peers whose reply waits for room in a send queue or for memory. They are retried
    /// before `line`, because they free memory.
    pub(crate) replies: VecDeque<Unsent>,
    /// RDMA_ERROR messages that wait in the same way.
    pub(crate) errors: VecDeque<(Qp, ErrorReply)>,
    /// Work has completed that those replies and messages may wait for.
    pub(crate) has_room: bool,
    /// Lists of the reply that is being built.
    pub(crate) returned: ChunkLists,
    /// The caller of the call that the app is serving.
    pub(crate) serving: Option<PeerId>,
    /// That call, if it arrived short, has no table entry yet, and is unanswered.
    pub(crate) fresh: Option<FreshCall>,
    /// Room for a reply that is written directly into the send buffer, after room for its header.
    pub(crate) written: Box<[u8]>,
    /// The time at which waiting peers are retried, even without an event.
    pub(crate) next_look: Time,
}

/// The calls of one peer, and the memory that they hold.
#[derive(Debug)]
pub(crate) struct Served {
    /// Buffers that its Reads are to fill.
    pub(crate) pulling: usize,
    /// Memory that its connection holds and others cannot use.
    pub(crate) account: Account,
    /// Octets that have moved on its connection.
    pub(crate) moved: u64,
    /// The first and the last of its calls that wait for memory or room, linked by [`Line`].
    pub(crate) deferred: Option<(Key, Key)>,
    /// The event that the first of them waits for.
    pub(crate) wait: Wait,
    /// The start of that wait.
    pub(crate) waits_since: Time,
}

/// Octets of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldAndMoved {
    pub(crate) held: u64,
    pub(crate) moved: u64,
}

impl Served {
    /// No calls.
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            pulling: 0,
            account: Account::new(now),
            moved: 0,
            deferred: None,
            wait: Wait::Nothing,
            waits_since: now,
        }
    }

    /// Octets of our memory that the peer holds, and octets that have moved.
    pub(crate) const fn octets(&self) -> HeldAndMoved {
        HeldAndMoved { held: self.account.held(), moved: self.moved }
    }

    /// Counts octets moved to or from the peer, except those of inline messages.
    #[inline]
    pub(crate) const fn count_octets(&mut self, octets: u64) {
        self.moved = self.moved.wrapping_add(octets);
    }

    /// The account of the memory that the peer's connection holds.
    pub(crate) const fn account(&mut self) -> &mut Account {
        &mut self.account
    }
}

impl Responder {
    /// Room for the calls of `config`.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            calls: Table::new(config.inbound),
            lists: (0..config.inbound).map(|_| ChunkLists::new()).collect(),
            spare: Spare::new(config.inbound),
            line: Line::new(config.inbound, config.peers + config.streams),
            replies: VecDeque::with_capacity(config.inbound),
            errors: VecDeque::with_capacity(config.inbound),
            has_room: false,
            returned: ChunkLists::new(),
            serving: None,
            fresh: None,
            written: vec![0; SHORT_ROOM + INLINE_LEN].into_boxed_slice(),
            next_look: Time(0),
        }
    }

    /// Room for a reply that is written directly into the send buffer.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.written.get_mut(SHORT_ROOM..).unwrap_or_default()
    }

    /// The peer of an unanswered call.
    pub(crate) fn caller(&self, call: Key) -> Option<PeerId> {
        let fresh = self.fresh.filter(|fresh| fresh.key == call);
        fresh.map(|fresh| fresh.peer).or_else(|| Some(self.calls.get(call)?.peer))
    }

    /// Calls that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns true if a call or a reply waits for memory or for room.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        // Without a branch for each, because this is checked in every pass.
        !(self.replies.is_empty() & self.errors.is_empty() & self.line.is_empty())
    }

    /// Adds a call that arrived completely. None if the table is full.
    pub(crate) fn begin_whole(&mut self, peer: PeerId, xid: Xid, now: Time) -> Option<Key> {
        self.calls.insert(Inbound::whole(peer, xid, now)).ok()
    }

    /// The peer and the time of arrival of each call that has not ended.
    pub(crate) fn in_progress(&self) -> impl Iterator<Item = (PeerId, Time)> {
        self.calls.iter().map(|(_, call)| (call.peer, call.came_at))
    }

    /// Removes a call that has ended, with or without an answer.
    #[inline]
    pub(crate) fn forget(&mut self, key: Key) {
        if let Some(Inbound { fabric: Some(fabric), .. }) = self.calls.remove(key) {
            self.spare.give(fabric);
        }
    }

    /// The chunk lists of a call, and those of the reply that is being built. `empty` is used for a
    /// call that has no lists of its own.
    pub(crate) fn lists_and_returned(
        &mut self,
        key: Key,
        empty: Option<&'static ChunkLists>,
    ) -> (&ChunkLists, &mut ChunkLists) {
        let own = || self.lists.get(key.index()).unwrap_or(ChunkLists::none());
        (empty.unwrap_or_else(own), &mut self.returned)
    }

    /// Assigns calls to the peer that now has their connection.
    pub(crate) fn exchange_peers(&mut self, known: PeerId, other: PeerId) {
        debug_assert_ne!(known, other, "two peers exchange their connections");
        let calls = self.calls.iter_mut().map(|(_, call)| &mut call.peer);
        let fresh = self.fresh.iter_mut().map(|fresh| &mut fresh.peer);
        for peer in calls.chain(fresh) {
            if *peer == other {
                *peer = known;
            } else if *peer == known {
                *peer = other;
            }
        }
    }
}
