//! Start of calls in the store: each is handed to it at once, or waits in the
//! [`AdmissionQueue`](crate::pending::admission) for a ticket and memory, or is refused.

use stag_engine::{Answer, Cx, PeerAddress, PeerId, RemoteCaller, TurnHolder};
use stag_pools::Extent;

use super::{
    Gateway, NoMessage,
    begin_call::{lend, take_back},
};
use crate::{
    pending::{
        admission::{Need, QueuedCall},
        call::PendingCall,
    },
    requester::Requester,
    v4::WaitResult,
};
use stag_nfs_store::{Begun, HostTurns, Store, StoreCall, StoreCallDone};

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
    Done(PendingCall, StoreCallDone),
    /// There is no ticket or no buffer for it. Nothing is lent.
    NoPlace(PendingCall, StoreCall),
    /// The store takes no more of its kind. Nothing is lent.
    Refused(PendingCall, StoreCall),
}

/// Turns of hosts whose calls came to other shards.
struct TurnsOfOthers<'a, 'b>(&'a mut Cx<'b>);

impl TurnsOfOthers<'_, '_> {
    fn holder(from: PeerAddress, shard: u16) -> TurnHolder {
        // Connections count only on a simulated fabric, on which a shard is one host here.
        TurnHolder::Elsewhere(RemoteCaller { from, shard, peer: PeerId::from_bits(0) })
    }
}

impl HostTurns for TurnsOfOthers<'_, '_> {
    fn take(&mut self, from: PeerAddress, shard: u16) -> bool {
        self.0.take_turn(Self::holder(from, shard))
    }

    fn end(&mut self, from: PeerAddress, shard: u16) {
        self.0.end_turn(Self::holder(from, shard));
    }
}

impl<S: Store> Gateway<S> {
    /// Begins a call, or queues it after calls that wait for the same resource.
    pub(super) fn start_or_queue(
        &mut self,
        cx: &Cx<'_>,
        pending: PendingCall,
        call: StoreCall,
        payload: Option<Extent>,
    ) -> Started {
        let may_wait = pending.is_harmless && payload.is_none();
        // A call that may not wait has to be begun now, or refused.
        let started = match !may_wait || self.pending.waiting.has_none(Need::of(&call)) {
            true => self.start(cx, pending, call, payload),
            false => Started::NoPlace(pending, call),
        };
        let Started::NoPlace(pending, call) = started else { return started };
        let held = match may_wait {
            true => self.pending.waiting.hold(pending, call),
            false => Err((pending, call)),
        };
        held.map_or_else(
            |(pending, call)| {
                self.counters.waiting.refused += 1;
                Started::Refused(pending, call)
            },
            |()| Started::Later,
        )
    }

    /// Lends memory for a call and passes it to the store.
    fn start(
        &mut self,
        cx: &Cx<'_>,
        mut pending: PendingCall,
        mut call: StoreCall,
        payload: Option<Extent>,
    ) -> Started {
        let Some(ticket) = self.pending.next_ticket() else {
            return Started::NoPlace(pending, call);
        };
        let is_lent = lend(cx, &mut pending, &mut call, payload).is_some();
        if !is_lent || !self.pending.may_hold(&pending.memories) {
            take_back(&mut pending, &mut call);
            return Started::NoPlace(pending, call);
        }
        match self.store.begin(call, ticket) {
            Begun::Later => {
                self.counters.waiting.put_off += 1;
                self.pending.put(pending);
                Started::Later
            }
            Begun::Done(done) => Started::Done(pending, done),
            Begun::Refused(mut call) => {
                self.counters.waiting.refused += 1;
                take_back(&mut pending, &mut call);
                Started::Refused(pending, call)
            }
        }
    }

    /// Executes calls of other shards, which counts as work like the calls of clients.
    pub(super) fn serve_others(&mut self, cx: &mut Cx<'_>) {
        if self.store.serve_others(&mut TurnsOfOthers(cx)) {
            cx.note_work();
        }
    }

    /// Begins waiting calls for which there are places now, first the calls that need no buffer.
    pub(super) fn begin_queued(&mut self, cx: &mut Cx<'_>) {
        for need in Need::ALL {
            let mut failures = 0;
            for _ in 0..ATTEMPTS {
                if self.pending.next_ticket().is_none() {
                    return;
                }
                let Some(QueuedCall { pending, call, .. }) = self.pending.waiting.pop(need) else {
                    break;
                };
                if !pending.is_awaited() {
                    // It has had no effect, and its caller is gone.
                    continue;
                }
                match self.start(cx, pending, call, None) {
                    Started::Later => {}
                    Started::Done(pending, done) => self.tell(cx, pending, done),
                    Started::Refused(pending, call) => self.tell_to_ask_again(cx, pending, call),
                    Started::NoPlace(pending, call) => {
                        self.pending.waiting.put_back(pending, call);
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
    pub(super) fn give_up_queued(&mut self, cx: &mut Cx<'_>) {
        while let Some(QueuedCall { pending, call, .. }) = self.pending.waiting.pop_older(cx.now())
        {
            self.counters.waiting.withdrawn += 1;
            self.tell_to_ask_again(cx, pending, call);
        }
    }

    /// Asks the caller of a call that had no effect to retry.
    pub(super) fn tell_to_ask_again(
        &mut self,
        cx: &mut Cx<'_>,
        mut pending: PendingCall,
        call: StoreCall,
    ) {
        if let Some(compound) = pending.compound.take() {
            drop(std::mem::take(&mut pending.memories).regain(call));
            return self.resume_compound(cx, compound, WaitResult::busy());
        }
        let requester = pending.requester;
        let answer = self.let_go(cx, pending, call);
        if let Some(Requester { id, peer, .. }) = requester {
            self.conclude(cx, id, peer, answer);
        }
    }

    /// Releases the memory and the entries of a call that had no effect.
    pub(super) fn let_go(
        &mut self,
        cx: &Cx<'_>,
        pending: PendingCall,
        call: StoreCall,
    ) -> Result<Answer, NoMessage> {
        self.end_change(&pending);
        self.end(cx.now(), &pending, None);
        self.turn_away(cx, pending, call)
    }
}
