//! Messages and completions of the fabric, dispatched to the requester or the responder (hop 6).

use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId},
    core::Core,
    requester::{Replied, ReplyMessage},
    shard::Shard,
    state::{FabricLink, Link, Sender},
    work::Work,
};
use stag_pools::{Buf, Fenced};
use stag_protocol::{
    rpc::NullHeader,
    rpcrdma::{Incoming, ShortMessage, Version},
};
use stag_verbs::{Event, Memory, PeerAddress, Provider, Qp, Status, Tag};

impl<P: Provider, A: App> Shard<P, A> {
    #[inline(always)]
    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Received { qp, buf, invalidated } => self.handle_received(qp, buf, invalidated),
            other => self.handle_other(other),
        }
    }

    /// Handles an event other than a message.
    #[inline(never)]
    fn handle_other(&mut self, event: Event) {
        match event {
            Event::Received { .. } => unreachable!("messages are handled before"),
            Event::ConnectRequest { qp } => self.handle_connect_request(qp),
            Event::Established { qp } => self.handle_established(qp),
            Event::Completed { qp, tag, status, memory } => {
                self.handle_completed(qp, tag, status, memory)
            }
            Event::Unbound { qp, fenced } => self.handle_fenced(qp, fenced),
            Event::Disconnected { qp, cause } => self.handle_disconnected(qp, cause),
        }
    }

    fn handle_completed(&mut self, qp: Qp, tag: Tag, status: Status, memory: Memory) {
        if self.core.has_deferred() {
            self.core.note_room(qp);
        }
        match (Work::of(tag), memory) {
            (_, Memory::Fenced(fenced)) => self.handle_fenced(qp, fenced),
            (Work::BulkReply(bulk), Memory::Buf(_) | Memory::Shared) => {
                self.core.handle_bulk_sent(qp, bulk)
            }
            (Work::Call(key), Memory::Buf(message)) => self.handle_call_sent(key, message),
            (Work::Read(key), Memory::Buf(sink)) => self.handle_pulled(qp, key, status, sink),
            // Dropping the buffer of a sent reply returns it to the pool.
            (Work::Untracked | Work::Invalidation(_), Memory::Buf(_)) => {}
            // An extent was returned already, and a flushed invalidation proves nothing.
            (_, Memory::Shared | Memory::Bound) => {}
        }
    }

    /// Handles a message that a look found.
    #[inline(always)]
    pub(super) fn handle_looked_at(&mut self, qp: Qp, message: &[u8]) {
        if !self.handle_short(qp, message) {
            self.keep_looked_at(qp, message);
        }
    }

    /// Handles a message that a look found and that is not short.
    #[inline(never)]
    fn keep_looked_at(&mut self, qp: Qp, message: &[u8]) {
        if let Some(receive) = self.receive_of_look(qp, message) {
            self.handle_any(qp, receive, None);
        }
    }

    /// Copies the message that a look found to a receive. Without a free one the connection ends.
    pub(super) fn receive_of_look(&mut self, qp: Qp, message: &[u8]) -> Option<Buf> {
        let receive = self.provider.take_receive();
        debug_assert!(receive.is_some(), "a look needs a receive that is posted");
        let Some(mut receive) = receive else {
            self.provider.disconnect(qp);
            return None;
        };
        let is_whole = receive.append(message).is_ok();
        debug_assert!(is_whole, "a look tells no message that is longer than a receive");
        Some(receive)
    }

    /// Handles a message: by the short path if it is a call or a reply without chunks.
    #[inline(always)]
    fn handle_received(&mut self, qp: Qp, buf: Buf, invalidated: Option<Fenced>) {
        if invalidated.is_none() && self.handle_short(qp, &buf) {
            return self.repost(buf);
        }
        self.handle_any(qp, buf, invalidated);
    }

    /// Handles a call or a reply without chunks. Returns false for any other message: nothing was
    /// done, and [`handle_any`](Self::handle_any) has to judge it.
    #[inline]
    fn handle_short(&mut self, qp: Qp, message: &[u8]) -> bool {
        let Self { core, provider, app, .. } = self;
        let Core { peers, requester, responder, counters, ways, watch, now, stopping, .. } = core;
        let Some((peer, entry)) = peers.of_qp_mut(qp) else { return true };
        let Link::Fabric(FabricLink { state: Some(state), .. }) = &mut entry.link else {
            return true;
        };
        let payload_at = state.short().header_len();
        let Some(short) = state.handle_short(message) else { return false };
        let payload = message.get(payload_at..).unwrap_or_default();
        match short {
            ShortMessage::Call { xid, credits } => {
                ways.note_short();
                entry.grant.note_call(credits, *now);
                // No call is begun while the shard stops, as in `handle_any`.
                if !*stopping {
                    let versions = &mut counters.stats.responder.versions;
                    versions.count_short(state.short(), state.side().serves());
                    if let Some(header) = NullHeader::of(payload)
                        && !watch.is_due()
                        && app.on_null(header)
                    {
                        let Some(is_settled) =
                            responder.answer_null_at_once(provider, entry, header)
                        else {
                            self.answer_null(peer, qp, header);
                            return true;
                        };
                        ways.note_short();
                        watch.skip();
                        counters.stats.responder.calls.short += 1;
                        counters.stats.responder.replies.short += 1;
                        if !is_settled {
                            self.core.settle_receives(peer);
                        }
                        return true;
                    }
                    let sender = Sender { peer, address: entry.address };
                    self.begin_short_call(sender, qp, xid, payload);
                }
            }
            ShortMessage::Reply { xid, .. } => {
                let (token, cancelled) = match requester.end_short(peer, xid) {
                    Replied::Over { token, cancelled } => (token, cancelled),
                    // The grant that it brought may be noted twice.
                    Replied::WithParts => return self.end_inline(peer, xid, payload),
                    Replied::Unknown => return true,
                };
                ways.note_short();
                state.give_credit();
                entry.note_reply();
                counters.stats.requester.replies.short += 1;
                let (known_as, waits) = (entry.known_as(peer), entry.has_waiting());
                let reply = if cancelled { Err(CallFault::Cancelled) } else { Ok(payload) };
                let outcome = Outcome {
                    token,
                    peer: known_as,
                    reply,
                    item: None,
                    result: None,
                    written: &[],
                };
                self.tell_replied(outcome, waits.then_some(peer));
            }
        }
        true
    }

    /// Reports the end of a call without chunks to the app, and sends what waited for its credit.
    #[inline(always)]
    fn tell_replied(&mut self, outcome: Outcome<'_>, waits: Option<PeerId>) {
        self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
        self.empty_outbox();
        if let Some(peer) = waits {
            self.start_waiting(peer);
        }
    }

    /// Handles a message of any kind.
    #[inline(never)]
    fn handle_any(&mut self, qp: Qp, buf: Buf, invalidated: Option<Fenced>) {
        let Some((peer, entry)) = self.core.peers.of_qp_mut(qp) else { return };
        let Link::Fabric(FabricLink { state: Some(state), .. }) = &mut entry.link else { return };
        let awaits_version = state.version().is_none();
        self.core.watch.see(self.core.now);
        let incoming = state.handle_message(&buf, &mut self.core.lists);
        if let Incoming::Call { header, .. } = incoming {
            entry.grant.note_call(header.credits, self.core.now);
        }
        if let Incoming::Reply { header, payload_at, .. } = incoming {
            let message = ReplyMessage { header, payload_at, octets: buf };
            return self.handle_reply(peer, message, invalidated);
        }
        if let Some(fenced) = invalidated {
            self.handle_stray_invalidation(peer, fenced);
        }
        self.handle_incoming(peer, qp, incoming, buf);
        if awaits_version {
            // Reverse calls may have waited for this alone.
            self.start_waiting(peer);
        }
    }

    /// Handles a message that is not a reply.
    fn handle_incoming(&mut self, peer: PeerId, qp: Qp, incoming: Incoming, buf: Buf) {
        match incoming {
            // Not begun, so that the caller may safely try another server; the connection is about
            // to end.
            Incoming::Call { .. } if self.core.stopping => {}
            Incoming::Call { header, payload_at, direction } => {
                let version = self
                    .core
                    .peers
                    .connection(peer)
                    .map_or(Version::One, |(_, state)| state.sends());
                self.core.counters.stats.responder.versions.count(version, direction);
                let address =
                    self.core.peers.get(peer).map_or(PeerAddress::Simulated, |peer| peer.address);
                self.begin_call(Sender { peer, address }, qp, header, payload_at, buf);
            }
            Incoming::Error { xid, error, .. } => self.handle_refused(peer, xid, error),
            Incoming::Answer(reply, fault) => {
                self.core.counters.peer_faults.count(fault);
                self.send_error(qp, &reply);
            }
            Incoming::Discard(fault) => self.core.counters.peer_faults.count(fault),
            Incoming::Close(fault) => {
                self.core.counters.peer_faults.count(fault);
                self.provider.disconnect(qp);
            }
            Incoming::Reply { .. } => unreachable!("replies were handled before"),
            Incoming::Again { xid } => self.handle_again(peer, xid),
            Incoming::Option { xid, message } => self.handle_option(peer, xid, message),
            Incoming::OptionRefused { option, .. } => self.handle_option_refused(peer, option),
        }
    }
}
