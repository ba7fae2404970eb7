//! The actions that the app requested, and their execution.

use crate::{
    app::App,
    call::{Answer, CallId},
    cx::Action,
    peer_view::PeerId,
    shard::Shard,
};
use stag_pools::Buf;
use stag_verbs::Provider;
use std::collections::VecDeque;

/// All requests of the app that are not carried out yet, in this order.
#[derive(Debug)]
pub(crate) struct Wishes {
    /// An answer that consists of a message only.
    answered: Option<(CallId, Buf)>,
    /// The peer of new calls.
    to_start: Option<PeerId>,
    outbox: VecDeque<Action>,
    /// True if any of them is set: checked several times for each call.
    any: bool,
}

impl Wishes {
    /// Room for `capacity` requests before anything is allocated.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            answered: None,
            to_start: None,
            outbox: VecDeque::with_capacity(capacity),
            any: false,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Adds a request after all others.
    pub(crate) fn ask(&mut self, action: Action) {
        self.outbox.push_back(action);
        self.any = true;
    }

    /// Adds an answer. Most calls are answered at once, without any other request.
    #[inline]
    pub(crate) fn answer(&mut self, call: CallId, answer: Answer) {
        if answer.item.is_some() || !self.is_empty() {
            self.outbox.push_back(Action::Answer(call, answer));
        } else {
            self.answered = Some((call, answer.message));
        }
        self.any = true;
    }

    /// Returns true if a call to this peer may be queued at once, because no earlier request has to
    /// go first.
    #[inline]
    pub(crate) fn may_queue(&self, peer: PeerId) -> bool {
        self.outbox.is_empty() && self.to_start.is_none_or(|known| known == peer)
    }

    /// Records the peer of a call that was queued at once.
    #[inline]
    pub(crate) const fn start(&mut self, peer: PeerId) {
        self.to_start = Some(peer);
        self.any = true;
    }

    /// Takes an answer that consists of a message only.
    #[inline]
    pub(crate) fn take_answered(&mut self) -> Option<(CallId, Buf)> {
        let answered = self.answered.take();
        self.any = self.to_start.is_some() | !self.outbox.is_empty();
        answered
    }

    /// Takes the peer of new calls.
    fn take_to_start(&mut self) -> Option<PeerId> {
        let peer = self.to_start.take();
        self.any = self.answered.is_some() | !self.outbox.is_empty();
        peer
    }

    /// Takes the first of all other requests.
    fn take_first(&mut self) -> Option<Action> {
        let first = self.outbox.pop_front();
        self.any = self.answered.is_some() | self.to_start.is_some() | !self.outbox.is_empty();
        first
    }
}

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
