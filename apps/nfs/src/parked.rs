//! Calls in flight in a store: a fixed number, each with its caller and the memory lent for it.

use stag_engine::{CallId, PeerId, Time, config};
use stag_nfs_os::{LentOctets, LentRoom, OctetsKeeper, RoomKeeper};
use stag_pools::Buf;
use stag_protocol::{nfs::v3::Procedure, rpc::Xid};

use crate::{
    drc::{CallSource, UnderWay},
    held::HeldCalls,
    v4::{ChangeScope, CompoundId},
};
use stag_nfs_store::{StoreCall, TICKETS, WaitTicket};

/// A caller to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) id: CallId,
    pub(crate) peer: PeerId,
    /// Shard of the connection, as in [`ShardPeer`].
    pub(crate) shard: u16,
}

impl Requester {
    /// The caller of a call.
    pub(crate) const fn of(source: CallSource) -> Self {
        let CallSource { id, peer, shard, .. } = source;
        Self { id, peer, shard }
    }

    /// The connection.
    pub(crate) const fn at(&self) -> ShardPeer {
        ShardPeer { shard: self.shard, peer: self.peer }
    }
}

/// A connection of this shard, or of one that forwards to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShardPeer {
    /// Number of the forwarding shard; [`OWN`] for the gateway's own connections.
    pub(crate) shard: u16,
    pub(crate) peer: PeerId,
}

/// Stands for the gateway's own connections: calls are forwarded only to shard 0.
pub(crate) const OWN: u16 = 0;

/// Memory of the shard that a call holds.
#[derive(Debug, Default)]
pub(crate) struct CallMemories {
    pub(crate) room: Option<RoomKeeper>,
    pub(crate) payload: Option<OctetsKeeper>,
    /// Bytes of the slots of both.
    pub(crate) room_slot: usize,
    pub(crate) payload_slot: usize,
}

impl CallMemories {
    /// Takes back the memory lent with a call. The buffer is the one that was filled; it holds only
    /// the bytes described by the outcome.
    pub(crate) fn regain(self, call: StoreCall) -> Option<Buf> {
        let StoreCall { room, payload, .. } = call;
        self.regain_of(room, payload)
    }

    /// The same for memory already removed from the call.
    pub(crate) fn regain_of(
        self,
        room: Option<LentRoom>,
        payload: Option<LentOctets>,
    ) -> Option<Buf> {
        if let (Some(keeper), Some(payload)) = (self.payload, payload) {
            drop(keeper.regain(payload));
        }
        match (self.room, room) {
            (Some(keeper), Some(room)) => Some(keeper.regain(room)),
            _ => None,
        }
    }

    /// Number of medium and of large buffers among them.
    fn slots(&self) -> [usize; 2] {
        let both = [self.room_slot, self.payload_slot];
        let count = |is: fn(usize) -> bool| both.iter().filter(|len| is(**len)).count();
        [
            count(|len| len > config::MESSAGE_LEN && len <= config::MEDIUM_LEN),
            count(|len| len > config::MEDIUM_LEN),
        ]
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct ParkedCall {
    /// The last caller; none when it is gone, or was asked to retry.
    pub(crate) requester: Option<Requester>,
    pub(crate) xid: Xid,
    /// The procedure of NFS; none for MNT.
    pub(crate) procedure: Option<Procedure>,
    /// The compound that waits for it; none for calls of version 3, and after the compound was
    /// resumed.
    pub(crate) compound: Option<CompoundId>,
    /// Its key in the duplicate request cache; none for MNT.
    pub(crate) name: Option<UnderWay>,
    /// True if it changes nothing.
    pub(crate) is_harmless: bool,
    /// Files that a call of version 3 changes, while it counts as in flight.
    pub(crate) change: Option<ChangeScope>,
    /// True if it can no longer be withdrawn.
    pub(crate) is_started: bool,
    pub(crate) began: Time,
    /// The message of its reply, if that has to be reserved in advance.
    pub(crate) message: Option<Buf>,
    pub(crate) memories: CallMemories,
}

impl ParkedCall {
    /// Returns true if a caller or compound waits for it.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.requester.is_some() || self.compound.is_some()
    }
}

/// Limits of the memory held by calls in flight and by waiting compounds: each a quarter of the
/// shard's medium and large buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferLimits([usize; 2]);

impl BufferLimits {
    /// A quarter of the buffers of a shard with these numbers of message, medium and large ones.
    pub(crate) const fn of([_, medium, large]: [usize; 3]) -> Self {
        Self([medium / 4, large / 4])
    }

    /// Returns true if `more` medium and large buffers may be held in addition to `held`.
    pub(crate) fn allow(self, held: [usize; 2], more: [usize; 2]) -> bool {
        let sums = held.iter().zip(more).map(|(held, more)| held + more);
        more == [0; 2] || sums.zip(self.0).all(|(sum, limit)| sum <= limit)
    }
}

/// The calls in flight of one shard.
#[derive(Debug)]
pub(crate) struct ParkedCalls {
    /// By ticket.
    entries: Box<[Option<ParkedCall>]>,
    /// Free tickets.
    free: Vec<WaitTicket>,
    limits: BufferLimits,
    held: [usize; 2],
    /// Calls without a ticket.
    pub(crate) waiting: HeldCalls,
}

impl ParkedCalls {
    /// Room for [`TICKETS`].
    pub(crate) fn new(limits: BufferLimits) -> Self {
        let entries = std::iter::repeat_with(|| None).take(TICKETS).collect();
        let free = WaitTicket::all().rev().collect();
        Self { entries, free, limits, held: [0; 2], waiting: HeldCalls::default() }
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
    pub(crate) fn put(&mut self, call: ParkedCall) {
        let ticket = self.free.pop().expect("the call was given the next ticket");
        self.held.iter_mut().zip(call.memories.slots()).for_each(|(held, more)| *held += more);
        let earlier = self.entries.get_mut(ticket.index()).and_then(|entry| entry.replace(call));
        debug_assert!(earlier.is_none(), "a ticket stands for one call");
    }

    /// Takes the call of a returned ticket.
    pub(crate) fn take(&mut self, ticket: WaitTicket) -> Option<ParkedCall> {
        let call = self.entries.get_mut(ticket.index())?.take()?;
        self.held.iter_mut().zip(call.memories.slots()).for_each(|(held, less)| *held -= less);
        self.free.push(ticket);
        Some(call)
    }

    /// The same call, if it is in flight.
    pub(crate) fn find(&mut self, name: &UnderWay) -> Option<&mut ParkedCall> {
        if !self.are_under_way() {
            return None;
        }
        let under_way = self.entries.iter_mut().flatten();
        under_way.chain(self.waiting.calls()).find(|call| call.name.as_ref() == Some(name))
    }

    /// The call of a ticket.
    pub(crate) fn get_mut(&mut self, ticket: WaitTicket) -> Option<&mut ParkedCall> {
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
