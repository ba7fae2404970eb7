//! Short calls that are written directly into the send buffer
//! ([`Cx::call_short`](crate::Cx::call_short)). Nearly all are sent before that returns. Their
//! octets stay until the reply, because a call may be sent again.

use super::start::has_room;
use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId, Token},
    config::HEAD_ROOM,
    core::Core,
    shard::Shard,
    short_send::{SHORT_ROOM, SendsShort, ShortSend, send_written},
    state::{Action, FabricLink, Link, Requester, WrittenCall, outbound::OutboundState},
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::MessageType;
use stag_verbs::Provider;

impl Core {
    /// Sends the call at once, if there is a connection and a credit for it, and no other call
    /// waits for them. Returns false if nothing was done.
    #[inline(always)]
    pub(crate) fn call_at_once(
        &mut self,
        fabric: &mut dyn SendsShort,
        peer: PeerId,
        call: WrittenCall,
    ) -> bool {
        let Self { peers, requester, counters, ways, .. } = self;
        let Some(entry) = peers.get_mut(peer) else { return false };
        // RFC 8167 §6 [8167-10], draft 002 §6 [bidir-9] nothing is sent to a peer before it takes
        // calls
        if !entry.takes_calls_at_once() {
            return false;
        }
        let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &mut entry.link else {
            return false;
        };
        if connection.calls().is_none()
            || !connection.short().fits_call(call.len, call.reply_max)
            || !has_room(connection, requester.send_queue)
            || connection.take_credit().is_err()
        {
            return false;
        }
        let octets = requester.written.get_mut(call.key.index());
        let octets = octets.and_then(|octets| octets.get_mut(..SHORT_ROOM + call.len));
        let send = ShortSend { qp: *qp, message_type: MessageType::Call, xid: call.xid };
        if !send_written(fabric, connection, send, octets.unwrap_or_default()) {
            connection.give_credit();
            return false;
        }
        ways.note_short();
        counters.stats.requester.calls.short += 1;
        let versions = &mut counters.stats.requester.versions;
        versions.count_short(connection.short(), connection.side().calls());
        requester.insert_written(peer, call, OutboundState::AwaitReply);
        self.note_written(call);
        true
    }

    /// Registers the deadline of a written call.
    #[inline]
    fn note_written(&mut self, call: WrittenCall) {
        self.note_unclocked(call.key);
        self.deadlines.no_later(call.deadline);
    }

    /// Queues the written call, after everything that the app requested before.
    #[inline(never)]
    pub(crate) fn queue_written(&mut self, peer: PeerId, call: WrittenCall) {
        let may_queue = self.wishes.may_queue(peer);
        let peer = self.peers.known_as(peer);
        if let Err(fault) = self.make_place(peer, 0) {
            return self.wishes.ask(Action::Fail(peer, call.token, fault));
        }
        self.requester.insert_written(peer, call, OutboundState::AwaitCredit);
        self.note_written(call);
        if may_queue && let Some(entry) = self.peers.get_mut(peer) {
            entry.wait_last(call.key);
            self.wishes.start(peer);
        } else {
            self.wishes.ask(Action::Queue(call.key));
        }
    }

    /// Moves a message out of its send buffer into a pool buffer, for a call that takes another
    /// path. Returns false if there is no memory for it.
    pub(super) fn lift(&mut self, key: Key) -> bool {
        let Requester { calls, written, .. } = &mut self.requester;
        let Some(call) = calls.get_mut(key).filter(|call| call.written > 0) else { return true };
        let len = usize::from(call.written);
        let octets = written.get(key.index()).and_then(|room| room.get(SHORT_ROOM..)?.get(..len));
        let (Some(octets), Some(mut message)) = (octets, self.memory.take(HEAD_ROOM + len)) else {
            return false;
        };
        message.reset(HEAD_ROOM);
        let is_whole = message.append(octets).is_ok();
        debug_assert!(is_whole, "the buffer was asked to have room for it");
        debug_assert!(call.offers.is_none(), "a written call has no chunks");
        debug_assert!(call.message.is_none(), "a call has one message");
        (call.message, call.written) = (Some(message), 0);
        true
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Queues a call that has its entry, and sends it if possible.
    pub(crate) fn queue(&mut self, key: Key) {
        let Some(call) = self.core.requester.calls.get(key) else { return };
        debug_assert_eq!(call.state, OutboundState::AwaitCredit, "it was not sent");
        let peer = call.peer;
        // Calls requested in between may have taken the capacity that this one relied on.
        if let Err(fault) = self.core.make_place(peer, 1) {
            if let Some(call) = self.core.requester.calls.remove(key) {
                self.give_back(call, fault);
            }
            return;
        }
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.wait_last(key);
        }
        self.start_waiting(peer);
    }

    /// Reports to the app that a call was not made.
    pub(crate) fn fail(&mut self, peer: PeerId, token: Token, fault: CallFault) {
        let peer = self.core.peers.known_as(peer);
        let outcome =
            Outcome { token, peer, reply: Err(fault), item: None, result: None, written: &[] };
        self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
    }
}
