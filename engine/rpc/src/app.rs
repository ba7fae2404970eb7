//! The app that a shard of this crate runs: programs on one side, a client's own calls on the
//! other.

use crate::{
    call::{CLIENT_TOKEN, CallOutcome},
    program::{IncomingCall, Programs},
    reply::{AnswerableCall, DroppedReplies},
};
use stag_engine::{App, Call, Cause, Cx, Health, OptionFault, Outcome, PeerId, Time};
use std::rc::Rc;

/// Hears how a client's own calls end.
pub(crate) trait CallEnds {
    /// A call whose token has [`CLIENT_TOKEN`] is over.
    fn on_reply(&mut self, now: Time, outcome: Outcome<'_>);
    fn on_peer_up(&mut self, now: Time, peer: PeerId);
    fn on_peer_down(&mut self, now: Time, peer: PeerId, cause: Cause);
    /// The health of a server that was asked for it.
    fn on_health(&mut self, _peer: PeerId, _health: Result<Health, OptionFault>) {}
    /// Returns true if calls may be asked for elsewhere at any time.
    fn wants_idle_passes(&self) -> bool {
        false
    }
    /// The place to make calls that were asked for elsewhere.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {}
}

/// A server makes no calls of its own.
impl CallEnds for () {
    fn on_reply(&mut self, _: Time, _: Outcome<'_>) {}
    fn on_peer_up(&mut self, _: Time, _: PeerId) {}
    fn on_peer_down(&mut self, _: Time, _: PeerId, _: Cause) {}
}

/// Programs, and the outcomes of a client's calls.
#[derive(Debug)]
pub(crate) struct Door<S, O> {
    pub(crate) programs: S,
    pub(crate) outcomes: O,
    calls: u64,
    dropped: Rc<DroppedReplies>,
}

/// Programs as an [`App`] of the engine, for whoever builds shards of his own.
pub fn app(programs: impl Programs) -> impl App<Report = u64> {
    Door::new(programs, ())
}

impl<S: Programs, O: CallEnds> Door<S, O> {
    pub(crate) fn new(programs: S, outcomes: O) -> Self {
        Self { programs, outcomes, calls: 0, dropped: Rc::default() }
    }
}

impl<S: Programs, O: CallEnds> App for Door<S, O> {
    type Report = u64;

    /// Calls that peers made.
    fn report(&self) -> u64 {
        self.calls
    }

    fn wants_idle_passes(&self) -> bool {
        self.outcomes.wants_idle_passes() || !self.dropped.is_empty()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.calls += 1;
        let incoming = AnswerableCall { cx: &mut *cx, call, dropped: &self.dropped };
        let _answered = IncomingCall(incoming).route(&mut self.programs);
        self.dropped.refuse_all(cx);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if outcome.token.0 & CLIENT_TOKEN != 0 {
            self.outcomes.on_reply(cx.now(), outcome);
        } else {
            self.programs.on_reply(cx, &CallOutcome::new(outcome));
        }
        self.dropped.refuse_all(cx);
    }

    fn on_health(&mut self, _: &mut Cx<'_>, peer: PeerId, health: Result<Health, OptionFault>) {
        self.outcomes.on_health(peer, health);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.outcomes.on_peer_up(cx.now(), peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.outcomes.on_peer_down(cx.now(), peer, cause);
        self.programs.on_peer_down(peer);
        self.dropped.refuse_all(cx);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.outcomes.on_pass_end(cx);
        self.dropped.refuse_all(cx);
    }
}
