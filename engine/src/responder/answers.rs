//! Replies to calls of peers: chooses the path of each (hop 10).

use crate::{
    account::SMALL_MAX,
    app::{Answer, App, CallId},
    shard::Shard,
    stage_times::Stage,
    state::{Link, inbound::InboundState},
};
use stag_pools::Buf;
use stag_verbs::Provider;

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 10: sends a reply to the caller.
    pub(crate) fn answer(&mut self, id: CallId, answer: Answer) {
        let Some(call) = self.core.responder.calls.get(id.0) else { return };
        debug_assert_eq!(call.state, InboundState::AwaitAnswer, "a call is answered once");
        let (peer, xid) = (call.peer, call.xid);
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

    /// Sends a reply that consists of a message only. It takes the short path if its call had no
    /// chunks, it fits inline, and the fabric accepts it as a copy.
    #[inline]
    pub(crate) fn answer_message(&mut self, id: CallId, mut message: Buf) {
        self.core.stamp(id.0, Stage::App);
        if !self.answer_short(id.0, &mut message) {
            self.answer(id, Answer { message, item: None });
        }
    }
}
