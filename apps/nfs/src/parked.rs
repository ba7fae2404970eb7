//! Calls that are under way in a store: a fixed number, each with its caller and the memory that is
//! lent for it.

use stag_engine::{CallId, PeerId, Time, config};
use stag_nfs_os::{LentOctets, LentRoom, OctetsKeeper, RoomKeeper};
use stag_pools::Buf;
use stag_protocol::{nfs::v3::Procedure, rpc::Xid};

use crate::{
    drc::{CallSource, UnderWay},
    held::HeldCalls,
    helpers::TICKETS,
    store::{StoreCall, WaitTicket},
    v4::{ChangeScope, CompoundId},
};

/// Somebody who is to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) id: CallId,
    pub(crate) peer: PeerId,
    /// Shard of the connection, as in [`PeerAt`].
    pub(crate) shard: u16,
}

impl Asker {
    /// The caller of a call.
    pub(crate) const fn of(source: CallSource) -> Self {
        let CallSource { id, peer, shard, .. } = source;
        Self { id, peer, shard }
    }

    /// The connection.
    pub(crate) const fn at(&self) -> PeerAt {
        PeerAt { shard: self.shard, peer: self.peer }
    }
}

/// A connection of this shard, or of one that forwards to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerAt {
    /// Number of the shard that forwards; [`OWN`] for the gateway's own connections.
    pub(crate) shard: u16,
    pub(crate) peer: PeerId,
}

/// Stands for the gateway's own connections: nobody forwards to a shard other than 0.
pub(crate) const OWN: u16 = 0;

/// Memory of the shard that a call holds.
#[derive(Debug, Default)]
pub(crate) struct CallMemories {
    pub(crate) room: Option<RoomKeeper>,
    pub(crate) payload: Option<OctetsKeeper>,
    /// Octets of the slots of both.
    pub(crate) room_slot: usize,
    pub(crate) payload_slot: usize,
}

impl CallMemories {
    /// Takes back what was lent with a call. The buffer is the one that was filled; it holds
    /// nothing but what the outcome says.
    pub(crate) fn regain(self, call: StoreCall) -> Option<Buf> {
        let StoreCall { room, payload, .. } = call;
        self.regain_of(room, payload)
    }

    /// The same of memory that the call has no more.
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

    /// Slots of medium and of large buffers among them.
    fn slots(&self) -> [usize; 2] {
        let both = [self.room_slot, self.payload_slot];
        let count = |is: fn(usize) -> bool| both.iter().filter(|len| is(**len)).count();
        [
            count(|len| len > config::MESSAGE_LEN && len <= config::MEDIUM_LEN),
            count(|len| len > config::MEDIUM_LEN),
        ]
    }
}

/// A call that is under way.
#[derive(Debug)]
pub(crate) struct ParkedCall {
    /// Whoever asked last; none when he is gone, or was told to ask again.
    pub(crate) asker: Option<Asker>,
    pub(crate) xid: Xid,
    /// The procedure of NFS; none for MNT.
    pub(crate) procedure: Option<Procedure>,
    /// The compound that waits for it; none for calls of version 3, and when it was told to go on.
    pub(crate) compound: Option<CompoundId>,
    /// Its name in the duplicate request cache; none for MNT.
    pub(crate) name: Option<UnderWay>,
    /// It changes nothing.
    pub(crate) is_harmless: bool,
    /// Files that a call of version 3 changes, while it is counted as under way.
    pub(crate) change: Option<ChangeScope>,
    /// Nobody can take it back any more.
    pub(crate) is_started: bool,
    pub(crate) began: Time,
    /// The message of its reply, where it has to be there whatever happens.
    pub(crate) message: Option<Buf>,
    pub(crate) memories: CallMemories,
}

impl ParkedCall {
    /// Returns true if somebody waits for it.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.asker.is_some() || self.compound.is_some()
    }
}

/// Limits of the memory that calls under way may hold, and compounds that wait: each a quarter of
/// the shard's medium and large buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferLimits([usize; 2]);

impl BufferLimits {
    /// A quarter of the buffers of a shard with so many message, medium and large ones.
    pub(crate) const fn of([_, medium, large]: [usize; 3]) -> Self {
        Self([medium / 4, large / 4])
    }

    /// Returns true if `more` medium and large buffers may be held beside those that are.
    pub(crate) fn allow(self, held: [usize; 2], more: [usize; 2]) -> bool {
        let sums = held.iter().zip(more).map(|(held, more)| held + more);
        more == [0; 2] || sums.zip(self.0).all(|(sum, limit)| sum <= limit)
    }
}

/// Those of one shard.
#[derive(Debug)]
pub(crate) struct ParkedCalls {
    /// By ticket.
    entries: Box<[Option<ParkedCall>]>,
    /// Tickets that nobody holds.
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
        let free = (0..TICKETS).rev().map(|number| WaitTicket(number as u16)).collect();
        Self { entries, free, limits, held: [0; 2], waiting: HeldCalls::default() }
    }

    /// The ticket of the next call; None when there are too many.
    pub(crate) fn next_ticket(&self) -> Option<WaitTicket> {
        self.free.last().copied()
    }

    /// Returns true while a call is under way, or waits for a ticket.
    pub(crate) fn are_under_way(&self) -> bool {
        self.free.len() < TICKETS || !self.waiting.is_empty()
    }

    /// Number of calls that are under way.
    pub(crate) const fn len(&self) -> usize {
        TICKETS - self.free.len()
    }

    /// Returns true if calls may hold this memory, too.
    pub(crate) fn may_hold(&self, memories: &CallMemories) -> bool {
        self.limits.allow(self.held, memories.slots())
    }

    /// The limits.
    pub(crate) const fn limits(&self) -> BufferLimits {
        self.limits
    }

    /// Keeps a call that has the next ticket.
    pub(crate) fn put(&mut self, call: ParkedCall) {
        let ticket = self.free.pop().expect("the call was given the next ticket");
        self.held.iter_mut().zip(call.memories.slots()).for_each(|(held, more)| *held += more);
        let earlier = self.entries.get_mut(ticket.index()).and_then(|entry| entry.replace(call));
        debug_assert!(earlier.is_none(), "a ticket stands for one call");
    }

    /// The call of a ticket that came back.
    pub(crate) fn take(&mut self, ticket: WaitTicket) -> Option<ParkedCall> {
        let call = self.entries.get_mut(ticket.index())?.take()?;
        self.held.iter_mut().zip(call.memories.slots()).for_each(|(held, less)| *held -= less);
        self.free.push(ticket);
        Some(call)
    }

    /// The same call, if it is under way.
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

    /// Nobody at this peer can be answered any more.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        for call in self.entries.iter_mut().flatten().chain(self.waiting.calls()) {
            call.asker.take_if(|asker| asker.peer == peer);
        }
    }
}
