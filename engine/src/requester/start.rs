//! Start of calls of ours: chooses the path of each.

use super::short;
use crate::{
    app::{App, PeerId},
    shard::Shard,
    state::{
        FabricLink, Link,
        outbound::{Outbound, OutboundState},
        room_kept,
    },
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::{Connection, Side};
use stag_verbs::{Provider, Qp};

/// Work requests of one call: its windows and its Send.
const WORK: usize = Outbound::WINDOWS + 1;
/// Work requests of a usual reply: Writes of an item and of its rest, the Send, and the Read that
/// may come first.
const REPLY_WORK: usize = 4;

/// The result of trying to start the first waiting call of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// It was sent, or has ended: the next one follows.
    Next,
    /// It waits: for a credit or for the connection.
    Wait,
    /// It waits for room or for receives, which no event announces.
    Retry,
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Sends the waiting calls in order, while there are credits and room (hop 2). A call takes the
    /// short path if it can.
    pub(crate) fn start_waiting(&mut self, peer: PeerId) {
        let send_queue = self.provider.limits().send_queue;
        loop {
            // RFC 8167 §6 [8167-10], draft 002 §6 [bidir-9] nothing is sent to a peer before it
            // takes calls
            let Some(entry) = self.core.peers.get_mut(peer).filter(|entry| entry.is_ready()) else {
                return;
            };
            let Some(key) = entry.calls.waiting.front().copied() else { return };
            let waits = |call: &&mut Outbound| call.state == OutboundState::AwaitCredit;
            let Some(call) = self.core.requester.calls.get_mut(key).filter(waits) else {
                entry.calls.waiting.pop_front();
                continue;
            };
            if let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &mut entry.link
                && connection.calls().is_some()
                && call.is_short(connection)
                && has_room(connection, send_queue)
            {
                if connection.take_credit().is_err() {
                    self.core.counters.stats.requester.waited_for_credit += 1;
                    return;
                }
                let fresh = self.core.requester.xids.fresh(key.index());
                let Some(written) = self.core.requester.written.get_mut(key.index()) else {
                    return;
                };
                if short::send(&mut self.provider, *qp, connection, call, written, fresh) {
                    self.core.ways.note_short();
                    let stats = &mut self.core.counters.stats.requester;
                    stats.calls.short += 1;
                    stats.versions.count_short(connection.short(), connection.side().calls());
                    entry.calls.waiting.pop_front();
                    if entry.calls.waiting.is_empty() {
                        return;
                    }
                    continue;
                }
                connection.give_credit();
            }
            match self.start_any(peer, send_queue) {
                Start::Next => {}
                Start::Wait => return,
                Start::Retry => return self.retry_soon(peer),
            }
        }
    }

    /// Sends the first waiting call of a peer, in any form.
    #[inline(never)]
    fn start_any(&mut self, peer: PeerId, send_queue: usize) -> Start {
        let Some(entry) = self.core.peers.get(peer) else { return Start::Wait };
        let Some(key) = entry.calls.waiting.front().copied() else { return Start::Wait };
        match entry.link {
            Link::Stream(stream) => self.start_by_stream(peer, key, stream),
            Link::Fabric(FabricLink { qp, state: Some(_) }) => {
                self.start_by_fabric(peer, key, qp, send_queue)
            }
            _ => Start::Wait,
        }
    }

    fn start_by_stream(&mut self, peer: PeerId, key: Key, stream: Key) -> Start {
        if !self.core.lift(key) {
            return Start::Retry;
        }
        let Some(entry) = self.core.peers.get_mut(peer) else { return Start::Wait };
        let most =
            if entry.side == Side::Client { u32::MAX } else { self.core.config.reverse_calls_max };
        if !self.streams.takes_calls(stream, most) {
            return Start::Wait;
        }
        if self.streams.is_clogged(stream) {
            return Start::Retry;
        }
        entry.calls.waiting.pop_front();
        self.send_call_by_stream(key, stream);
        Start::Next
    }

    fn start_by_fabric(&mut self, peer: PeerId, key: Key, qp: Qp, send_queue: usize) -> Start {
        if !self.core.lift(key) || !self.core.allow_calls(peer) {
            return Start::Retry;
        }
        let Some(entry) = self.core.peers.get_mut(peer) else { return Start::Wait };
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &mut entry.link else {
            return Start::Wait;
        };
        if self.provider.send_room(qp) < room_needed(connection, send_queue) {
            return Start::Retry;
        }
        if connection.take_credit().is_err() {
            self.core.counters.stats.requester.waited_for_credit += 1;
            return Start::Wait;
        }
        entry.calls.waiting.pop_front();
        debug_assert!(
            self.core.requester.calls.get(key).is_some_and(|call| call.is_fenced()),
            "a call that waits has no windows"
        );
        if let Err(fault) = self.send_call(key, peer, qp) {
            if let Some((_, connection)) = self.core.peers.connection(peer) {
                connection.give_credit();
            }
            if let Some(call) = self.core.requester.calls.remove(key) {
                self.give_back(call, fault);
            }
        }
        Start::Next
    }
}

/// Returns true if [`room_needed`] is not above the whole send queue.
#[inline(always)]
pub(super) fn has_room(connection: &Connection, send_queue: usize) -> bool {
    // A simpler upper bound, which decides most cases.
    let windows = connection.calls().map_or(0, |credits| credits.in_flight() as usize);
    WORK + windows * Outbound::WINDOWS + send_queue / 4 <= send_queue
        || room_needed(connection, send_queue) <= send_queue
}

/// Entries of the send queue that have to be free for one more call of ours. Some are left to
/// replies, because our calls may depend on a reply for which the peer waits. If the whole queue
/// has fewer entries, even a call that takes none is not sent.
#[inline(never)]
fn room_needed(connection: &Connection, send_queue: usize) -> usize {
    let serves = connection.serves().map_or(0, |credits| credits.reserved() as usize);
    WORK + room_kept(connection) + (serves * REPLY_WORK).min(send_queue / 4)
}
