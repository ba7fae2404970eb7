//! The engine app of every shard of this crate: it routes incoming calls to programs, and outcomes
//! to the client that made the calls.

use crate::{
    call::{CLIENT_TOKEN, CallOutcome},
    panics::{CalledProcedure, PanicCount},
    program::{IncomingCall, Programs},
    reply::{AnswerableCall, DroppedReplies, OwedReply},
};
use stag_engine::{App, Call, Cause, Cx, Health, OptionFault, Outcome, PeerId, Time};
use stag_protocol::rpc::{Accepted, AuthStatus, Credential, gss::GssService};
use std::{cell::Cell, rc::Rc};

/// Receives the outcomes of a client's own calls.
pub(crate) trait CallEnds {
    /// A call whose token has [`CLIENT_TOKEN`] has ended.
    fn on_reply(&mut self, now: Time, outcome: Outcome<'_>);
    fn on_peer_up(&mut self, now: Time, peer: PeerId);
    fn on_peer_down(&mut self, now: Time, peer: PeerId, cause: Cause);
    /// The health of a server that was asked for it.
    fn on_health(&mut self, _peer: PeerId, _health: Result<Health, OptionFault>) {}
    /// Returns true if other threads may request calls at any time.
    fn wants_idle_passes(&self) -> bool {
        false
    }
    /// Makes calls that other threads requested.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {}
}

/// A server makes no calls of its own.
impl CallEnds for () {
    fn on_reply(&mut self, _: Time, _: Outcome<'_>) {}
    fn on_peer_up(&mut self, _: Time, _: PeerId) {}
    fn on_peer_down(&mut self, _: Time, _: PeerId, _: Cause) {}
}

/// Programs, and the receiver of a client's outcomes.
#[derive(Debug)]
pub(crate) struct Door<S, O> {
    pub(crate) programs: S,
    pub(crate) outcomes: O,
    calls: u64,
    dropped: Rc<DroppedReplies>,
    panics: PanicCount,
    /// Protection that calls of other procedures than 0 need.
    demand: Option<GssService>,
}

/// Wraps programs as an [`App`] of the engine, for code that builds its own shards.
pub fn app(programs: impl Programs) -> impl App<Report = u64> {
    Door::new(programs, ())
}

impl<S: Programs, O: CallEnds> Door<S, O> {
    pub(crate) fn new(programs: S, outcomes: O) -> Self {
        let (dropped, panics) = (Rc::default(), PanicCount::default());
        Self { programs, outcomes, calls: 0, dropped, panics, demand: None }
    }

    /// Uses `panics` as the counter of the programs' panics.
    pub(crate) fn count_panics(self, panics: PanicCount) -> Self {
        Self { panics, ..self }
    }

    /// Denies calls with less protection.
    pub(crate) fn demand(self, demand: Option<GssService>) -> Self {
        Self { demand, ..self }
    }

    /// Returns true if a call has the protection that is demanded.
    fn is_protected(&self, call: &Call<'_>) -> bool {
        let Some(demand) = self.demand else { return true };
        match call.header.credential {
            Credential::Proven(user) => user.service >= demand,
            // RFC 5531 §12.1: procedure 0 is for everyone
            _ => call.header.procedure == 0,
        }
    }

    /// The number of panics of the programs.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.count()
    }
}

impl<S: Programs, O: CallEnds> App for Door<S, O> {
    type Report = u64;

    /// The number of calls that peers made.
    fn report(&self) -> u64 {
        self.calls
    }

    fn wants_idle_passes(&self) -> bool {
        self.outcomes.wants_idle_passes() || !self.dropped.is_empty()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.calls += 1;
        if !self.is_protected(&call) {
            return cx.deny(&call, AuthStatus::TOO_WEAK);
        }
        let (owed, is_settled) = (OwedReply::of(&call), Cell::new(false));
        let procedure = CalledProcedure {
            program: call.header.program,
            version: call.header.version,
            procedure: call.header.procedure,
        };
        let Self { programs, dropped, .. } = self;
        let incoming = AnswerableCall { cx: &mut *cx, call, dropped, is_settled: &is_settled };
        let run = || IncomingCall(incoming).route(programs);
        if self.panics.catch(procedure, run).is_none() && !is_settled.get() {
            owed.refuse(cx, Accepted::SystemErr);
        }
        self.dropped.refuse_all(cx);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if outcome.token.0 & CLIENT_TOKEN != 0 {
            // Its caller is woken by a pass, perhaps by the next one.
            cx.note_work();
            self.outcomes.on_reply(cx.now(), outcome);
        } else {
            let (programs, outcome) = (&mut self.programs, CallOutcome::new(outcome));
            self.panics.catch("on_reply", || programs.on_reply(cx, &outcome));
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
        cx.note_work();
        self.outcomes.on_peer_down(cx.now(), peer, cause);
        let programs = &mut self.programs;
        self.panics.catch("on_peer_down", || programs.on_peer_down(peer));
        self.dropped.refuse_all(cx);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.outcomes.on_pass_end(cx);
        self.dropped.refuse_all(cx);
    }
}
