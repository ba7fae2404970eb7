//! Replies to calls of peers: chooses the path of each (hop 10).

use crate::{
    account::SMALL_MAX,
    app::{Answer, App, CallId, PeerId},
    payload::insert_parts,
    shard::Shard,
    stage_times::Stage,
    state::{Link, inbound::InboundState},
};
use stag_pools::{Buf, table::Key};
use stag_protocol::xdr::padded;
use stag_verbs::Provider;

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 10: sends a reply to the caller.
    pub(crate) fn answer(&mut self, id: CallId, mut answer: Answer) {
        let Some(call) = self.core.responder.calls.get(id.0) else { return };
        if call.state == InboundState::AwaitProtection {
            debug_assert!(false, "a call is answered once");
            return;
        }
        if call.state == InboundState::AwaitProtected {
            let Some(protected) = self.protect(id, answer) else { return };
            answer = protected;
        }
        let Some(call) = self.core.responder.calls.get(id.0) else { return };
        debug_assert_eq!(call.state, InboundState::AwaitAnswer, "a call is answered once");
        let (peer, xid, has_lists) = (call.peer, call.xid, call.has_lists);
        self.core.stamp(id.0, Stage::App);
        match self.core.peers.get(peer).map(|peer| &peer.link) {
            Some(Link::Stream(stream)) => {
                let stream = *stream;
                self.core.responder.forget(id.0);
                self.streams.answer(stream, answer, &self.core.zeros);
                self.core.watch.post(id.0, self.core.now);
            }
            Some(Link::Fabric(_)) => {
                debug_assert_eq!(
                    answer.message.first_chunk(),
                    Some(&xid.0.to_be_bytes()),
                    "the reply's XID"
                );
                let answer = match has_lists {
                    false => self.answer_inline(id.0, peer, answer),
                    true => Some(answer),
                };
                let Some(answer) = answer else {
                    self.core.unsent += 1;
                    return;
                };
                if answer.item.is_some() {
                    // Payload in chunks makes long sends in any case; more of them cost more.
                    self.core.unsent = self.core.unsent.saturating_sub(1);
                }
                if answer.item.is_some() || answer.message.capacity() > SMALL_MAX {
                    self.core.hold_reply(peer, &answer);
                }
                if let Err(answer) = self.answer_fabric(id.0, answer) {
                    self.core.counters.stats.limits.send_queue += 1;
                    self.core.stamp(id.0, Stage::Emit);
                    self.core.keep_unsent(peer, id.0, answer);
                }
            }
            Some(Link::Lost { .. } | Link::Absent { .. }) | None => {
                self.core.responder.forget(id.0)
            }
        }
    }

    /// Inserts the only item of a reply into its message, if it travels inline, and sends the reply
    /// if the fabric accepts a copy. Its call had no chunks. Otherwise returns what is left to
    /// send.
    fn answer_inline(&mut self, key: Key, peer: PeerId, mut answer: Answer) -> Option<Answer> {
        let core = &mut self.core;
        let Some(item) = answer.item.as_ref().filter(|item| item.more.is_empty()) else {
            return Some(answer);
        };
        let len = answer.message.len().saturating_add(padded(item.octets.len()));
        let connection = core.peers.connection(peer);
        let fits = connection.is_some_and(|(_, connection)| connection.short().fits_reply(len));
        if !fits || !core.ways.are_short() {
            return Some(answer);
        }
        insert_parts(&mut answer.message, item.position, item.octets.iter().map(|part| &part[..]));
        // It is in the message: no peer is charged for its memory.
        answer.item = None;
        if self.answer_short(key, &mut answer.message) { None } else { Some(answer) }
    }

    /// Sends a reply that consists of a message only. It takes the short path if its call had no
    /// chunks, it fits inline, and the fabric accepts it as a copy.
    #[inline]
    pub(crate) fn answer_message(&mut self, id: CallId, mut message: Buf) {
        self.core.unsent += 1;
        self.core.stamp(id.0, Stage::App);
        if !self.answer_short(id.0, &mut message) {
            self.answer(id, Answer { message, item: None });
        }
    }
}
