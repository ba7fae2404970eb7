//! Calls of peers: accept, pull, answer.
//!
//! A call without chunks and a reply that fits inline take the short path (`short`), one with one
//! chunk of one segment that of `one_chunk`. `calls` handles all other calls, `pull` their Read
//! chunks, and `any_form` sends all other replies. `answers` tries the short path of a reply, and
//! `any_form` that of `one_chunk`. Calls and replies that lack memory or room wait in `line` and
//! `deferred`.

mod answers;
mod any_form;
mod calls;
mod deferred;
mod errors;
mod line;
mod one_chunk;
mod pull;
mod short;

use crate::{
    account::Account,
    core::Core,
    peer_view::PeerId,
    state::{Responder, Wait},
};

impl Core {
    /// Removes the calls of a peer whose connection has ended, and all that they held.
    pub(crate) fn forget_calls_from(&mut self, peer: PeerId) {
        let Responder { calls, spare, .. } = &mut self.responder;
        calls.retain(|_, call| {
            if call.peer != peer {
                return true;
            }
            if let Some(fabric) = call.fabric.take() {
                spare.give(fabric);
            }
            false
        });
        self.set_wait(peer, Wait::Nothing);
        let Responder { calls, replies, .. } = &mut self.responder;
        replies.retain(|unsent| calls.get(unsent.call).is_some());
        self.watch.forget_dead(calls);
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.served.deferred = None;
            (entry.served.pulling, entry.served.account) = (0, Account::new(self.now));
            entry.served.moved = 0;
        }
    }

    /// Removes trace marks of calls that are gone.
    pub(crate) fn forget_dead_marks(&mut self) {
        self.watch.forget_dead(&self.responder.calls);
    }
}
