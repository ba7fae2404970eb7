//! Calls of ours: queued, sent, completed.
//!
//! `start` sends the calls of a peer in order, and chooses the path of each: `short` (no chunks, a
//! header of a few words), `one_chunk` (one segment), or `chunked` (all others). `reply` handles
//! replies, `ends` every end of a call without a reply.

mod chunked;
mod ends;
mod long_reply;
mod one_chunk;
mod outbound;
mod queue;
mod records;
mod reply;
mod short;
mod start;
mod written;

pub(crate) use outbound::Outbound;
pub(crate) use reply::ReplyMessage;
pub(crate) use short::Replied;
pub(crate) use start::room_kept;
pub(crate) use written::{NextCall, WrittenCall};

use crate::{peer_view::PeerId, config::Config, core::Core, peer::Peer, spare::Spare};
use outbound::{CallChunks, EndedCall, OutboundState};
use stag_pools::{Buf, Fenced, Table, table::Key};
use stag_protocol::rpcrdma::{ChunkLists, Xid};
use stag_verbs::Time;
use std::collections::VecDeque;
use written::{WRITTEN_ROOM, WrittenRoom};

/// All calls of ours.
#[derive(Debug)]
pub(crate) struct Requester {
    calls: Table<Outbound>,
    /// The chunks that each call of ours offered, by index in `calls`.
    offered: Box<[ChunkLists]>,
    /// The messages of calls that are written directly into the send buffer, by index in `calls`.
    written: Box<[WrittenRoom]>,
    /// Maximum of pending work requests on a connection.
    send_queue: usize,
    /// Spare boxes for the parts that only calls with chunks have.
    spare: Spare<CallChunks>,
    xids: Xids,
    /// Calls that were made outside of a pass. Their deadline was counted from the latest pass,
    /// which may be long past; the next pass recounts it from its own time.
    unclocked: Vec<Key>,
    /// One of them may have a peer whose version is not negotiated yet.
    is_settling: bool,
    /// Peers with calls that wait for room in a send queue, or for receives, or with a request of
    /// an option.
    stuck: VecDeque<PeerId>,
}

/// The XIDs of calls of ours. Each encodes the index of its call.
#[derive(Debug)]
struct Xids {
    /// Counts the XIDs; concurrent calls differ in it.
    latest: u32,
    /// The number of XID bits that hold the index.
    place_bits: u32,
}

impl Xids {
    /// A fresh XID that encodes `place` (RFC 8166 §4.2.1).
    #[inline]
    const fn fresh(&mut self, place: usize) -> Xid {
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
    waiting: VecDeque<Key>,
    /// The peer is in [`Requester::stuck`].
    stuck: bool,
    /// The deadline of the answer to the first message of version 2.
    version_by: Option<Time>,
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

impl Peer {
    /// Queues a call after all others.
    fn wait_last(&mut self, call: Key) {
        self.calls.waiting.push_back(call);
        self.note_waiting();
    }

    /// Queues a call before all others.
    fn wait_first(&mut self, call: Key) {
        self.calls.waiting.push_front(call);
        self.note_waiting();
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
    fn by_xid(&mut self, peer: PeerId, xid: Xid) -> Option<(Key, &mut Outbound)> {
        let (key, call) = self.calls.entry_at(self.xids.place(xid))?;
        let is_it =
            call.peer == peer && call.xid == Some(xid) && call.state != OutboundState::AwaitCredit;
        is_it.then_some((key, call))
    }

    /// Removes an ended call. Everything but the app's part of the outcome is freed in place,
    /// because an entry is long.
    #[inline]
    fn take(&mut self, key: Key) -> Option<EndedCall> {
        let call = self.calls.get_mut(key)?;
        let Outbound { peer, token, cancelled, .. } = *call;
        let (offers, message) = (call.offers.take(), call.message.take());
        drop(message);
        self.calls.forget(key);
        Some(EndedCall { peer, token, cancelled, offers })
    }

    /// Stores a fenced window's buffer in the call of `peer` that had bound it. None if there is no
    /// such call.
    fn deposit(&mut self, peer: PeerId, mut fenced: Fenced) -> Option<Key> {
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
        for (_, call) in self.calls.iter_mut() {
            if call.peer == other {
                call.peer = known;
            } else if call.peer == known && call.state != OutboundState::AwaitCredit {
                call.peer = other;
            }
        }
    }
}

impl Core {
    /// Records a call that is made outside of a pass.
    #[inline]
    fn note_unclocked(&mut self, key: Key) {
        if self.is_in_pass() {
            return;
        }
        self.is_quiet = false;
        let Requester { unclocked, calls, .. } = &mut self.requester;
        if unclocked.len() == unclocked.capacity() {
            // Calls that have ended since the latest pass are removed; there is an entry for each
            // other one.
            unclocked.retain(|key| calls.get(*key).is_some());
        }
        unclocked.push(key);
    }

    /// Counts the deadlines of calls that were made since the latest pass from this one, which
    /// begins at `now`.
    #[inline]
    pub(crate) fn clock_calls(&mut self, now: Time) {
        let passed = now.since(self.now);
        let is_settling = std::mem::take(&mut self.requester.is_settling);
        while let Some(key) = self.requester.unclocked.pop() {
            let Some(call) = self.requester.calls.get_mut(key) else { continue };
            call.deadline = call.deadline + passed;
            if is_settling
                && call.state == OutboundState::AwaitReply
                && let Some(entry) = self.peers.get_mut(call.peer)
                && let Some(by) = &mut entry.calls.version_by
            {
                *by = *by + passed;
            }
        }
    }
}

/// Writes the XID into the first word of an RPC message.
fn set_xid(message: &mut Buf, xid: Xid) {
    if let Some(word) = message.first_chunk_mut() {
        // RFC 8166 §4.2.1 [8166-31]: the header has the XID of its RPC message
        // RFC 8167 §5.1 [8167-3]: a reverse call begins with the XID of its header
        // draft 002 §5.1 [bidir-3]: a reverse call begins with the XID of its header
        *word = xid.0.to_be_bytes();
    }
}
