//! RDMA_ERROR messages to peers.

use crate::{app::App, shard::Shard, work::Work};
use stag_protocol::rpcrdma::{self, ErrorBody, ErrorReply};
use stag_verbs::{Provider, Qp, Refusal, Refused};

impl<P: Provider, A: App> Shard<P, A> {
    /// Sends an RDMA_ERROR, because the call must not stay open (RFC 8166 §4.5.4). The message
    /// waits for memory and for room as replies do.
    pub(crate) fn send_error(&mut self, qp: Qp, reply: &ErrorReply) {
        let Some(mut message) = self.core.header_message() else {
            return self.keep_error(qp, reply);
        };
        let Ok(len) = rpcrdma::emit_error(reply, message.spare_mut()) else {
            return self.provider.disconnect(qp);
        };
        message.extend(len);
        match self.provider.post_send(qp, Work::Untracked.tag(), message, None) {
            Ok(()) => {
                let stats = &mut self.core.counters.stats.responder;
                stats.errors += 1;
                stats.version_errors += u64::from(matches!(reply.error, ErrorBody::Version { .. }));
            }
            Err(Refused { why: Refusal::SendQueueFull, .. }) => self.keep_error(qp, reply),
            Err(_) => self.provider.disconnect(qp),
        }
    }

    /// Queues an RDMA_ERROR. There is an entry for every call; only a peer that gets more than one
    /// error for a call finds none.
    fn keep_error(&mut self, qp: Qp, reply: &ErrorReply) {
        if self.core.responder.errors.len() == self.core.responder.errors.capacity() {
            return self.provider.disconnect(qp);
        }
        self.core.counters.stats.limits.send_queue += 1;
        self.core.responder.errors.push_back((qp, *reply));
    }

    pub(super) fn retry_errors(&mut self) -> bool {
        let before = self.core.responder.errors.len();
        for _ in 0..before {
            let Some((qp, reply)) = self.core.responder.errors.pop_front() else { break };
            if self.core.peers.of_qp(qp).is_some() {
                self.send_error(qp, &reply);
            }
        }
        self.core.responder.errors.len() < before
    }
}
