//! The app that a shard of this crate runs: programs on one side, a client's own calls on the
//! other.

use crate::{
    call::{CLIENT_TOKEN, CallOutcome},
    program::{IncomingCall, Programs},
};
use stag_engine::{App, Call, Cause, Cx, Outcome, PeerId};

/// Hears how a client's own calls end.
pub(crate) trait Outcomes {
    /// A call whose token has [`CLIENT_TOKEN`] is over.
    fn on_reply(&mut self, outcome: Outcome<'_>);
    fn on_peer_up(&mut self, peer: PeerId);
    fn on_peer_down(&mut self, peer: PeerId, cause: Cause);
    /// The place to make calls that were asked for elsewhere.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {}
}

/// A server makes no calls of its own.
impl Outcomes for () {
    fn on_reply(&mut self, _: Outcome<'_>) {}
    fn on_peer_up(&mut self, _: PeerId) {}
    fn on_peer_down(&mut self, _: PeerId, _: Cause) {}
}

/// Programs, and the outcomes of a client's calls.
#[derive(Debug)]
pub(crate) struct Door<S, O> {
    pub(crate) programs: S,
    pub(crate) outcomes: O,
    calls: u64,
}

impl<S: Programs, O: Outcomes> Door<S, O> {
    pub(crate) const fn new(programs: S, outcomes: O) -> Self {
        Self { programs, outcomes, calls: 0 }
    }
}

impl<S: Programs, O: Outcomes> App for Door<S, O> {
    type Report = u64;

    /// Calls that peers made.
    fn report(&self) -> u64 {
        self.calls
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.calls += 1;
        let _answered = IncomingCall::new(cx, call).route(&mut self.programs);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if outcome.token.0 & CLIENT_TOKEN != 0 {
            self.outcomes.on_reply(outcome);
        } else {
            self.programs.on_reply(cx, &CallOutcome::new(outcome));
        }
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.outcomes.on_peer_up(peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.outcomes.on_peer_down(peer, cause);
        self.programs.on_peer_down(peer);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.outcomes.on_pass_end(cx);
    }
}
