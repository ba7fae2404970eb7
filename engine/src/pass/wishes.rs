//! The actions that the app requested, and their execution.

use crate::{app::App, shard::Shard, state::Action};
use stag_verbs::Provider;

impl<P: Provider, A: App> Shard<P, A> {
    /// Carries out all requests of the app, until it makes no more.
    #[inline]
    pub(crate) fn empty_outbox(&mut self) {
        // Mostly there are none, and this is checked several times for each call.
        if !self.core.wishes.is_empty() {
            self.do_actions();
        }
    }

    #[inline(never)]
    fn do_actions(&mut self) {
        self.core.is_quiet = false;
        loop {
            if let Some((call, message)) = self.core.wishes.take_answered() {
                self.answer_message(call, message);
                continue;
            }
            if let Some(peer) = self.core.wishes.take_to_start() {
                self.start_waiting(self.core.peers.known_as(peer));
                continue;
            }
            let Some(action) = self.core.wishes.take_first() else { return };
            match action {
                Action::Answer(call, answer) => self.answer(call, answer),
                Action::Call(peer, request, rooms) => self.call(peer, request, rooms),
                Action::CallSigned(peer, request, signer) => {
                    self.call_signed(peer, request, signer);
                }
                Action::Queue(call) => self.queue(call),
                Action::Fail(peer, token, fault) => self.fail(peer, token, fault),
                Action::Moved(peer) => self.note_move(peer),
                Action::Start(peer) => self.start_waiting(peer),
                Action::Cancel(peer, token) => self.cancel(peer, token),
                Action::Ask(peer, request) => self.ask(peer, &request),
                Action::EndConnection(peer) => self.disconnect(peer),
                Action::Disconnect(peer) => self.end_peer(peer),
            }
        }
    }
}
