//! Long protected calls and replies, of which each pass carries out one step, and replies that wait
//! for memory.
//!
//! To seal a MiB takes a core milliseconds, for which others would wait. Steps are charged to their
//! peer as its calls are (see `turns`), and all that wait for one take turns. The memory that they
//! occupy meanwhile counts against the share of their peer (see `account`), as does the reply that
//! the client of a call has offered room for.

use crate::{
    account::SMALL_MAX,
    app::{Answer, App, CallId, PeerId},
    bulk::Bulk,
    config::MEDIUM_LEN,
    gss::{
        AT_ONCE, OpeningFault, OwnedCall, ProtectedReply, STEP_LEN, Step, StepWork, Unprotectable,
        WaitingReply,
    },
    shard::Shard,
    state::{Link, Sender, TurnHolder, inbound::InboundState},
};
use stag_pools::table::Key;
use stag_protocol::rpc::AuthStatus;
use stag_verbs::Provider;
use std::ops::Range;

// What fits a medium buffer is protected at once.
const _: () = assert!(AT_ONCE == MEDIUM_LEN);

impl StepWork {
    /// Octets of the long buffers that it occupies.
    pub(crate) fn octets(&self) -> u64 {
        match self {
            Self::Open(call, _) if call.message.capacity() <= SMALL_MAX => 0,
            Self::Open(call, _) => call.message.capacity() as u64,
            Self::Protect(reply, _) => reply.octets(),
        }
    }
}

impl ProtectedReply {
    /// Octets of the long buffers that it occupies.
    pub(crate) fn octets(&self) -> u64 {
        Bulk::of(&self.answer).map_or(0, Bulk::held)
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Keeps a call or a reply whose protection goes on in later passes.
    pub(super) fn begin_steps(&mut self, key: Key, work: StepWork) {
        let expected = match work {
            StepWork::Open(..) => self.expected_of(key),
            StepWork::Protect(..) => 0,
        };
        let Some(call) = self.core.responder.calls.get_mut(key) else { return };
        call.state = InboundState::AwaitProtection;
        let peer = call.peer;
        let octets = work.octets() + expected;
        let Some(gss) = &mut self.core.gss else { return };
        gss.steps.push_back(Step { key, work, octets });
        self.begin_protecting(peer, octets);
        self.core.put_aside(TurnHolder::Here(peer));
    }

    /// Keeps a reply until there is memory for it.
    pub(super) fn begin_waiting(&mut self, key: Key, reply: ProtectedReply) {
        let Some(call) = self.core.responder.calls.get_mut(key) else { return };
        call.state = InboundState::AwaitProtection;
        let (peer, octets) = (call.peer, reply.octets());
        let since = self.core.now;
        let Some(gss) = &mut self.core.gss else { return };
        gss.waiting.push_back(WaitingReply { key, reply, since, octets });
        self.begin_protecting(peer, octets);
        self.core.counters.stats.limits.memory += 1;
    }

    /// Counts a call or a reply that waits for its protection, and what it occupies.
    fn begin_protecting(&mut self, peer: PeerId, octets: u64) {
        self.core.protecting += 1;
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        entry.served.account.begin_work(octets);
        if let Link::Stream(stream) = entry.link {
            // Before more of its calls are taken in this pass.
            self.judge_share(stream);
            self.streams.queue(stream);
        }
    }

    /// Undoes [`begin_protecting`](Self::begin_protecting): the peer's next call may have waited
    /// for that.
    fn end_protecting(&mut self, key: Key, octets: u64) {
        self.core.protecting -= 1;
        let Some(peer) = self.core.responder.calls.get(key).map(|call| call.peer) else { return };
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        entry.served.account.end_work(octets);
        match entry.link {
            Link::Stream(stream) => self.streams.queue(stream),
            _ => self.core.wake(peer),
        }
    }

    /// Protects replies for which there is memory again, and carries out one step of a long call or
    /// reply. Returns true if there was anything to do.
    pub(crate) fn go_on_protecting(&mut self) -> bool {
        self.retry_waiting() | self.take_step()
    }

    /// Protects the first waiting reply, if there is memory for it. One in a pass, because each may
    /// be copied and sealed.
    fn retry_waiting(&mut self) -> bool {
        let gone = self.forget_waiting();
        let first = self.core.gss.as_mut().and_then(|gss| gss.waiting.pop_front());
        let Some(WaitingReply { key, reply, since, octets }) = first else { return gone };
        let Some(call) = self.core.responder.calls.get_mut(key) else { return gone };
        call.state = InboundState::AwaitAnswer;
        let answer = match self.begin_reply(key, reply, true) {
            Ok(answer) => answer,
            Err(reply) => {
                if let Some(call) = self.core.responder.calls.get_mut(key) {
                    call.state = InboundState::AwaitProtection;
                }
                if let Some(gss) = &mut self.core.gss {
                    gss.waiting.push_front(WaitingReply { key, reply, since, octets });
                }
                return gone;
            }
        };
        self.end_protecting(key, octets);
        if let Some(answer) = answer {
            self.answer(CallId(key), answer);
        }
        true
    }

    /// Drops the replies whose connections are gone: their memory may be what others wait for.
    fn forget_waiting(&mut self) -> bool {
        let calls = &self.core.responder.calls;
        let Some(gss) = &mut self.core.gss else { return false };
        let before = gss.waiting.len();
        gss.waiting.retain(|waiting| calls.get(waiting.key).is_some());
        let gone = before - gss.waiting.len();
        self.core.protecting -= gone;
        gone > 0
    }

    /// Carries out a step for the first call or reply whose peer may have a turn.
    fn take_step(&mut self) -> bool {
        let count = self.core.gss.as_ref().map_or(0, |gss| gss.steps.len());
        for _ in 0..count {
            let Some(gss) = &mut self.core.gss else { return false };
            let Some(step) = gss.steps.pop_front() else { return false };
            let Some(peer) = self.core.responder.calls.get(step.key).map(|call| call.peer) else {
                // Its connection is gone.
                self.core.protecting -= 1;
                continue;
            };
            let holder = TurnHolder::Here(peer);
            if self.core.take_turn(holder) {
                self.core.counters.stats.gss.steps += 1;
                self.advance(step);
                self.core.end_turn(holder);
                self.await_turns();
                return true;
            }
            if let Some(gss) = &mut self.core.gss {
                gss.steps.push_back(step);
            }
        }
        false
    }

    /// Goes on with a call or a reply by one step. The next one follows in a later pass, unless
    /// this was the last.
    fn advance(&mut self, step: Step) {
        let Step { key, work, octets } = step;
        let work = match work {
            StepWork::Open(mut call, mut opening) => {
                match call.advance(&mut opening, STEP_LEN).transpose() {
                    None => StepWork::Open(call, opening),
                    Some(opened) => {
                        self.end_protecting(key, octets);
                        return self.end_opening(key, call, opened);
                    }
                }
            }
            StepWork::Protect(mut reply, mut step) => {
                match step.advance(&reply.protected, &mut reply.answer, STEP_LEN) {
                    Ok(false) => StepWork::Protect(reply, step),
                    Ok(true) => {
                        self.end_protecting(key, octets);
                        return self.end_protection(key, reply.answer);
                    }
                    Err(Unprotectable) => {
                        self.end_protecting(key, octets);
                        return self.drop_unprotectable(key);
                    }
                }
            }
        };
        if let Some(gss) = &mut self.core.gss {
            gss.steps.push_back(Step { key, work, octets });
        }
    }

    /// Passes a call to the app that was opened, or refuses it.
    fn end_opening(
        &mut self,
        key: Key,
        call: OwnedCall,
        opened: Result<Range<usize>, OpeningFault>,
    ) {
        let Some(peer) = self.core.responder.calls.get(key).map(|call| call.peer) else { return };
        let Some(entry) = self.core.peers.get(peer) else { return };
        let sender = Sender { peer, address: entry.address };
        if call.protected.known.context.is_over() {
            return self.deny_ended(key, peer);
        }
        self.serve_owned(key, sender, call, opened);
        self.empty_outbox();
    }

    /// Denies a call whose context has ended since its first step: its user may have changed.
    #[cold]
    fn deny_ended(&mut self, key: Key, peer: PeerId) {
        let Some(call) = self.core.responder.calls.get_mut(key) else { return };
        call.state = InboundState::AwaitAnswer;
        let xid = call.xid;
        self.core.watch.forget(key);
        self.core.counters.stats.gss.denied += 1;
        self.deny(key, peer, xid, AuthStatus::GSS_CREDENTIAL_PROBLEM);
    }

    /// Sends a reply that is protected.
    fn end_protection(&mut self, key: Key, answer: Answer) {
        if let Some(call) = self.core.responder.calls.get_mut(key) {
            call.state = InboundState::AwaitAnswer;
            self.answer(CallId(key), answer);
        }
    }

    /// Records that the peers of all steps have work.
    fn await_turns(&mut self) {
        let count = self.core.gss.as_ref().map_or(0, |gss| gss.steps.len());
        for at in 0..count {
            let step = self.core.gss.as_ref().and_then(|gss| gss.steps.get(at));
            let call = step.and_then(|step| self.core.responder.calls.get(step.key));
            if let Some(peer) = call.map(|call| call.peer) {
                self.core.put_aside(TurnHolder::Here(peer));
            }
        }
    }
}
