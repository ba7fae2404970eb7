//! Start of calls in the store, and calls that wait for a place ([`HeldCalls`](crate::held)).

use stag_engine::{Answer, Cx};
use stag_pools::Extent;

use super::{
    Gateway, NoMessage,
    lending::{lend, take_back},
};
use crate::{
    held::{HeldCall, Need},
    parked::{ParkedCall, Requester},
    v4::WaitResult,
};
use stag_nfs_store::{Begun, Store, StoreCall, StoreCallDone};

/// Attempts in one pass to begin waiting calls with the same need.
const ATTEMPTS: usize = 64;
/// Attempts among them that may find no buffer.
const FAILURES: usize = 4;

/// Outcome of an attempt to begin a call.
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(super) enum Started {
    /// It is in progress, or waits for a place.
    Later,
    /// It is complete.
    Done(ParkedCall, StoreCallDone),
    /// There is no ticket or no buffer for it. Nothing is lent.
    NoPlace(ParkedCall, StoreCall),
    /// The store takes no more of its kind. Nothing is lent.
    Refused(ParkedCall, StoreCall),
}

impl<S: Store> Gateway<S> {
    /// Begins a call, or queues it after calls that wait for the same resource.
    pub(super) fn start_or_hold(
        &mut self,
        cx: &Cx<'_>,
        parked: ParkedCall,
        call: StoreCall,
        payload: Option<Extent>,
    ) -> Started {
        let may_wait = parked.is_harmless && payload.is_none();
        // A call that may not wait has to be begun now, or refused.
        let started = match !may_wait || self.parked.waiting.has_none(Need::of(&call)) {
            true => self.start(cx, parked, call, payload),
            false => Started::NoPlace(parked, call),
        };
        let Started::NoPlace(parked, call) = started else { return started };
        let held = match may_wait {
            true => self.parked.waiting.hold(parked, call),
            false => Err((parked, call)),
        };
        held.map_or_else(
            |(parked, call)| {
                self.counters.waiting.refused += 1;
                Started::Refused(parked, call)
            },
            |()| Started::Later,
        )
    }

    /// Lends memory for a call and passes it to the store.
    fn start(
        &mut self,
        cx: &Cx<'_>,
        mut parked: ParkedCall,
        mut call: StoreCall,
        payload: Option<Extent>,
    ) -> Started {
        let Some(ticket) = self.parked.next_ticket() else {
            return Started::NoPlace(parked, call);
        };
        let is_lent = lend(cx, &mut parked, &mut call, payload).is_some();
        if !is_lent || !self.parked.may_hold(&parked.memories) {
            take_back(&mut parked, &mut call);
            return Started::NoPlace(parked, call);
        }
        match self.store.begin(call, ticket) {
            Begun::Later => {
                self.counters.waiting.put_off += 1;
                self.parked.put(parked);
                Started::Later
            }
            Begun::Done(done) => Started::Done(parked, done),
            Begun::Refused(mut call) => {
                self.counters.waiting.refused += 1;
                take_back(&mut parked, &mut call);
                Started::Refused(parked, call)
            }
        }
    }

    /// Executes calls of other shards, which counts as work like the calls of clients.
    pub(super) fn serve_others(&mut self, cx: &mut Cx<'_>) {
        if self.store.serve_others() {
            cx.note_work();
        }
    }

    /// Begins waiting calls for which there are places now, first the calls that need no buffer.
    pub(super) fn begin_held(&mut self, cx: &mut Cx<'_>) {
        for need in Need::ALL {
            let mut failures = 0;
            for _ in 0..ATTEMPTS {
                if self.parked.next_ticket().is_none() {
                    return;
                }
                let Some(HeldCall { parked, call, .. }) = self.parked.waiting.pop(need) else {
                    break;
                };
                if !parked.is_awaited() {
                    // It has had no effect, and its caller is gone.
                    continue;
                }
                match self.start(cx, parked, call, None) {
                    Started::Later => {}
                    Started::Done(parked, done) => self.tell(cx, parked, done),
                    Started::Refused(parked, call) => self.tell_to_ask_again(cx, parked, call),
                    Started::NoPlace(parked, call) => {
                        self.parked.waiting.put_back(parked, call);
                        failures += 1;
                        if failures == FAILURES {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Answers calls that have waited too long with a request to retry.
    pub(super) fn give_up_held(&mut self, cx: &mut Cx<'_>) {
        while let Some(HeldCall { parked, call, .. }) = self.parked.waiting.pop_older(cx.now()) {
            self.counters.waiting.withdrawn += 1;
            self.tell_to_ask_again(cx, parked, call);
        }
    }

    /// Asks the caller of a call that had no effect to retry.
    pub(super) fn tell_to_ask_again(
        &mut self,
        cx: &mut Cx<'_>,
        mut parked: ParkedCall,
        call: StoreCall,
    ) {
        if let Some(compound) = parked.compound.take() {
            drop(std::mem::take(&mut parked.memories).regain(call));
            return self.resume_compound(cx, compound, WaitResult::busy());
        }
        let requester = parked.requester;
        let answer = self.let_go(cx, parked, call);
        if let Some(Requester { id, peer, .. }) = requester {
            self.conclude(cx, id, peer, answer);
        }
    }

    /// Releases the memory and the entries of a call that had no effect.
    pub(super) fn let_go(
        &mut self,
        cx: &Cx<'_>,
        parked: ParkedCall,
        call: StoreCall,
    ) -> Result<Answer, NoMessage> {
        self.end_change(&parked);
        self.end(cx.now(), &parked, None);
        self.turn_away(cx, parked, call)
    }
}
