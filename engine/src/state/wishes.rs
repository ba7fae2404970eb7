//! The actions that the app requested and that are not carried out yet.

use crate::{
    call::{Answer, CallId, Request, ResultRooms, SignCall, Token},
    fault::CallFault,
    peer_view::PeerId,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::rpcrdma::option::Message;
use std::{collections::VecDeque, rc::Rc};

/// An action that an app requested.
#[derive(Debug)]
pub(crate) enum Action {
    Answer(CallId, Answer),
    Call(PeerId, Request, Option<ResultRooms>),
    CallSigned(PeerId, Request, Rc<dyn SignCall>),
    /// Queue this call, which is in the requester's table, until its peer can take it.
    Queue(Key),
    /// Report to the app that a call ended without having been made.
    Fail(PeerId, Token, CallFault),
    /// This peer takes over the connection of another one.
    Moved(PeerId),
    /// Send the calls that wait for this peer.
    Start(PeerId),
    Cancel(PeerId, Token),
    /// Send this peer a request of an option.
    Ask(PeerId, Message),
    /// End this peer's connection, but keep the peer.
    EndConnection(PeerId),
    Disconnect(PeerId),
}

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
        debug_assert_eq!(
            self.any,
            self.answered.is_some() || self.to_start.is_some() || !self.outbox.is_empty(),
            "it says if there is a request"
        );
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
    pub(crate) fn take_to_start(&mut self) -> Option<PeerId> {
        let peer = self.to_start.take();
        self.any = self.answered.is_some() | !self.outbox.is_empty();
        peer
    }

    /// Takes the first of all other requests.
    pub(crate) fn take_first(&mut self) -> Option<Action> {
        let first = self.outbox.pop_front();
        self.any = self.answered.is_some() | self.to_start.is_some() | !self.outbox.is_empty();
        first
    }
}
