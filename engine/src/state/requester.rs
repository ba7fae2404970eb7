//! The table of all calls of ours, and the queue of each peer.

use super::{
    outbound::{CallChunks, EndedCall, Outbound, OutboundState, Sent},
    written::{NextCall, WRITTEN_ROOM, WrittenCall, WrittenRoom},
};
use crate::{
    config::Config,
    peer_view::PeerId,
    short_send::{SHORT_ROOM, WRITTEN_MAX},
    spare::Spare,
};
use stag_pools::{Fenced, Table, table::Key};
use stag_protocol::rpcrdma::{ChunkLists, Xid};
use stag_verbs::Time;
use std::collections::VecDeque;

/// All calls of ours.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) calls: Table<Outbound>,
    /// The chunks that each call of ours offered, by index in `calls`.
    pub(crate) offered: Box<[ChunkLists]>,
    /// The messages of calls that are written directly into the send buffer, by index in `calls`.
    pub(crate) written: Box<[WrittenRoom]>,
    /// Maximum of pending work requests on a connection.
    pub(crate) send_queue: usize,
    /// Spare boxes for the parts that only calls with chunks have.
    pub(crate) spare: Spare<CallChunks>,
    pub(crate) xids: Xids,
    /// Calls that were made outside of a pass. Their deadline was counted from the latest pass,
    /// which may be long past; the next pass recounts it from its own time.
    pub(crate) unclocked: Vec<Key>,
    /// One of them may have a peer whose version is not negotiated yet.
    pub(crate) is_settling: bool,
    /// Peers with calls that wait for room in a send queue, or for receives, or with a request of
    /// an option.
    pub(crate) stuck: VecDeque<PeerId>,
}

/// The XIDs of calls of ours. Each encodes the index of its call.
#[derive(Debug)]
pub(crate) struct Xids {
    /// Counts the XIDs; concurrent calls differ in it.
    latest: u32,
    /// The number of XID bits that hold the index.
    place_bits: u32,
}

impl Xids {
    /// A fresh XID that encodes `place` (RFC 8166 §4.2.1).
    #[inline]
    pub(crate) const fn fresh(&mut self, place: usize) -> Xid {
        debug_assert!(place < 1 << self.place_bits, "an XID has room for the index of its call");
        self.latest = self.latest.wrapping_add(1);
        Xid(self.latest << self.place_bits | place as u32)
    }

    /// The index that an XID encodes, if it is one of ours.
    #[inline]
    const fn place(&self, xid: Xid) -> usize {
        (xid.0 & ((1 << self.place_bits) - 1)) as usize
    }
}

/// Our calls to one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerCalls {
    /// Calls that wait for a credit, or for the connection. Each addition is
    /// [noted](Peer::note_waiting).
    pub(crate) waiting: VecDeque<Key>,
    /// The peer is in [`Requester::stuck`].
    pub(crate) stuck: bool,
    /// The deadline of the answer to the first message of version 2.
    pub(crate) version_by: Option<Time>,
}

impl PeerCalls {
    /// Returns true if a call waits for a credit, or for the connection.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The deadline of the answer to the first message of version 2.
    pub(crate) const fn version_by(&self) -> Option<Time> {
        self.version_by
    }

    /// Clears that deadline.
    pub(crate) const fn forget_version(&mut self) {
        self.version_by = None;
    }

    /// Takes over the waiting calls of another connection of the same client.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        self.waiting.append(&mut other.waiting);
    }
}

impl Requester {
    /// Room for the calls of `config`, on a fabric whose connections have send queues of
    /// `send_queue`.
    pub(crate) fn new(config: &Config, send_queue: usize) -> Self {
        Self {
            calls: Table::new(config.outbound),
            // The system provides this memory when it is first written: few entries are ever used.
            written: vec![WRITTEN_ROOM; config.outbound].into_boxed_slice(),
            send_queue,
            offered: (0..config.outbound).map(|_| ChunkLists::new()).collect(),
            spare: Spare::new(config.outbound),
            xids: Xids {
                latest: config.xid_seed,
                place_bits: config.outbound.max(2).next_power_of_two().trailing_zeros(),
            },
            unclocked: Vec::with_capacity(config.outbound),
            is_settling: false,
            stuck: VecDeque::with_capacity(config.peers),
        }
    }

    /// Calls that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns true if calls were made since the latest pass.
    #[inline]
    pub(crate) fn has_unclocked(&self) -> bool {
        !self.unclocked.is_empty()
    }

    /// Returns true if a peer waits for room.
    #[inline]
    pub(crate) fn has_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// Returns true if there is a call to this peer.
    pub(crate) fn has_calls_to(&self, peer: PeerId) -> bool {
        self.calls.iter().any(|(_, call)| call.peer == peer)
    }

    /// A fresh XID that encodes `place` (RFC 8166 §4.2.1).
    #[inline]
    pub(crate) fn xid(&mut self, place: usize) -> Xid {
        self.xids.fresh(place)
    }

    /// The call of `peer` that has this XID and was sent.
    #[inline]
    pub(crate) fn by_xid(&mut self, peer: PeerId, xid: Xid) -> Option<(Key, &mut Outbound)> {
        let (key, call) = self.calls.entry_at(self.xids.place(xid))?;
        let is_it =
            call.peer == peer && call.xid == Some(xid) && call.state != OutboundState::AwaitCredit;
        is_it.then_some((key, call))
    }

    /// Removes an ended call. Everything but the app's part of the outcome is freed in place,
    /// because an entry is long.
    #[inline]
    pub(crate) fn take(&mut self, key: Key) -> Option<EndedCall> {
        let call = self.calls.get_mut(key)?;
        debug_assert!(call.is_fenced(), "a call ends after its windows");
        let Outbound { peer, token, cancelled, .. } = *call;
        let (offers, message) = (call.offers.take(), call.message.take());
        drop(message);
        self.calls.forget(key);
        Some(EndedCall { peer, token, cancelled, offers })
    }

    /// Stores a fenced window's buffer in the call of `peer` that had bound it. None if there is no
    /// such call.
    pub(crate) fn deposit(&mut self, peer: PeerId, mut fenced: Fenced) -> Option<Key> {
        for (key, call) in self.calls.iter_mut().filter(|(_, call)| call.peer == peer) {
            match call.fence(fenced) {
                Ok(()) => return Some(key),
                Err(back) => fenced = back,
            }
        }
        None
    }

    /// Reassigns the calls that are tied to a connection to the peer that has it after the
    /// exchange; calls that wait for a connection all go to `known`.
    pub(crate) fn exchange_peers(&mut self, known: PeerId, other: PeerId) {
        debug_assert_ne!(known, other, "two peers exchange their connections");
        for (_, call) in self.calls.iter_mut() {
            if call.peer == other {
                call.peer = known;
            } else if call.peer == known && call.state != OutboundState::AwaitCredit {
                call.peer = other;
            }
        }
    }
}

impl Requester {
    /// The entry for the next call; `None` if all are taken.
    #[inline]
    pub(crate) fn next_call(&mut self) -> Option<NextCall<'_>> {
        let key = self.calls.next_key()?;
        let xid = self.xids.fresh(key.index());
        let (_, room) = self.written.get_mut(key.index())?.split_at_mut(SHORT_ROOM);
        Some(NextCall { key, xid, room })
    }

    /// Stores the written call in its entry.
    #[inline(always)]
    pub(crate) fn insert_written(
        &mut self,
        peer: PeerId,
        written: WrittenCall,
        state: OutboundState,
    ) {
        let WrittenCall { key, xid, len, token, reply_max, deadline } = written;
        debug_assert!((1..=WRITTEN_MAX).contains(&len), "the message is in the room of its entry");
        debug_assert_eq!(self.xids.place(xid), key.index(), "the reply's XID finds the call");
        self.calls.insert_next(key, || Outbound {
            peer,
            token,
            xid: Some(xid),
            deadline,
            state,
            cancelled: false,
            message: None,
            written: len as u16,
            sent: Sent::default(),
            reply_max,
            offers: None,
        });
    }
}
