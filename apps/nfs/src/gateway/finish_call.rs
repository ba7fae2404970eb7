//! Calls that waited, at their end: answered when the store or a disk completes them, or when they
//! have waited long enough. READs of version 3 that the shard executes itself also begin here
//! (`read`): one whose data a disk has to supply is deferred, and resumed by `resume_reads`.
//!
//! **Patience.** NFS3ERR_JUKEBOX says that nothing was done and that the caller may ask again. A
//! call that the store refuses gets it at once. A call that has not started gets it after
//! [`UNSTARTED_MAX`], while in the store's queue or waiting for a ticket (`pending::admission`). A
//! call that has started and changes nothing gets it after [`HARMLESS_MAX`]; its result is
//! discarded when it comes. A call that changes something is answered when the store answers,
//! however long that takes: otherwise its client would send a new call with another XID, and find
//! the change of the first one made, or be overtaken by it.

use std::time::Duration;

use stag_engine::{Answer, Cx, Pulled, Time};
use stag_protocol::{
    nfs::{
        mount::Procedure as MountProcedure,
        v3::{Procedure, ReadArgs, Status},
    },
    rpc::{CallHeader, Xid},
};

use super::{Gateway, NoMessage, compounds::answered};
use crate::{
    mount::service::{MNT_LEN, answer_mounted},
    pending::{
        admission::UNSTARTED_MAX,
        call::PendingCall,
        deferred_reads::{Deferred, DeferredCall, DeferredRead},
    },
    reply::ReplyWriter,
    reply_cache,
    requester::{CallSource, Requester},
    v3::{CallMemory, ReadAttempt, Turn},
    v4::WaitResult,
};
use stag_nfs_store::{
    self, Answered, Procedures as _, Store, StoreCall, StoreCallDone, StoreOutcome, StoreRequest,
    WaitTicket, exports::security::SecurityFlavors,
};

/// Time after which the caller of a call that changes nothing is asked to retry.
pub(super) const HARMLESS_MAX: Duration = Duration::from_secs(5);
/// Time between two checks of how long calls have been pending.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl<S: Store> Gateway<S> {
    /// Answers completed calls, and calls that have waited long enough.
    pub(super) fn resume_calls(&mut self, cx: &mut Cx<'_>) {
        let mut has_place = false;
        while let Some(done) = self.store.next_done() {
            let Some(pending) = self.pending.take(done.ticket) else {
                debug_assert!(false, "a ticket comes back once");
                continue;
            };
            self.tell(cx, pending, done);
            has_place = true;
        }
        // Buffers may be free even if no call has completed: this is checked from time to time.
        if !self.pending.waiting.is_empty() && (has_place || cx.now() >= self.next_look) {
            self.begin_queued(cx);
        }
        self.counters.waiting.under_way = self.pending.len() as u64;
        if !self.pending.are_under_way() {
            self.counters.waiting.oldest_ms = 0;
        }
        self.look_at_patience(cx);
    }

    /// Reports a completed call to its caller or compound.
    pub(super) fn tell(&mut self, cx: &mut Cx<'_>, pending: PendingCall, done: StoreCallDone) {
        if let Some(compound) = pending.compound {
            let told = WaitResult::Answered(answered(pending, done));
            return self.resume_compound(cx, compound, told);
        }
        self.end_change(&pending);
        let requester = pending.requester;
        let answer = self.settle(cx, pending, done);
        if let Some(Requester { id, peer, .. }) = requester {
            self.conclude(cx, id, peer, answer.ok_or(NoMessage::Dropped));
            cx.end_turn(peer);
        }
    }

    /// Writes the reply of a completed call, and reclaims its memory.
    pub(super) fn settle(
        &mut self,
        cx: &Cx<'_>,
        mut pending: PendingCall,
        done: StoreCallDone,
    ) -> Option<Answer> {
        let StoreCallDone { call, outcome, .. } = done;
        let operation = call.operation;
        let filled = std::mem::take(&mut pending.memories).regain(call);
        let Some(procedure) = pending.procedure else {
            return self.settle_mount(cx, &pending, &outcome);
        };
        let mut store = Answered::new(outcome, filled);
        let is_wanted = pending.requester.is_some() || !pending.is_harmless;
        let mut reply = if is_wanted { self.reply_to(cx, &mut pending, &operation) } else { None };
        if let Some(reply) = &mut reply {
            let memory = CallMemory { cx, pulled: Pulled::default() };
            let call = operation.call(&[]).expect("it is no MNT");
            let data = &mut self.counters.data;
            let status = crate::v3::answer(&mut store, data, memory, &call, reply);
            self.counters.count_nfs(procedure, status);
        }
        let is_kept = reply_cache::is_kept(procedure) || pending.requester.is_none();
        let kept = reply.as_ref().filter(|_| is_kept && !pending.is_harmless);
        self.end(cx.now(), &pending, kept.map(ReplyWriter::message));
        pending.requester.and(reply).map(ReplyWriter::finish)
    }

    fn settle_mount(
        &mut self,
        cx: &Cx<'_>,
        pending: &PendingCall,
        outcome: &StoreOutcome,
    ) -> Option<Answer> {
        pending.requester?;
        let mounted = match outcome {
            StoreOutcome::Mounted(result) => *result,
            _ => Err(Status::ServerFault),
        };
        let mut reply = ReplyWriter::begin(cx, pending.xid, MNT_LEN)?;
        let outcome = answer_mounted(mounted, pending.flavors, &mut reply);
        self.counters.count_mount(MountProcedure::Mnt, outcome);
        Some(reply.finish())
    }

    /// Ends a change, and keeps its reply if there is one to keep.
    pub(super) fn end(&mut self, now: Time, pending: &PendingCall, reply: Option<&[u8]>) {
        if !pending.is_harmless
            && let Some(name) = &pending.name
        {
            self.cache.end(name, reply, now);
        }
    }

    /// A pending change by version 3 is complete: delegations of the file may be granted.
    pub(super) fn end_change(&mut self, pending: &PendingCall) {
        if let (Some(nfs4), Some(change)) = (&mut self.nfs4, pending.change) {
            nfs4.end_change(change);
        }
    }

    fn reply_to(
        &self,
        cx: &Cx<'_>,
        pending: &mut PendingCall,
        operation: &StoreRequest,
    ) -> Option<ReplyWriter> {
        match pending.message.take() {
            Some(message) => Some(ReplyWriter::over(message, pending.xid)),
            None => {
                let len = operation.call(&[]).map_or(0, |call| crate::v3::results_len(&call));
                ReplyWriter::begin(cx, pending.xid, len)
            }
        }
    }

    /// Reclaims the memory of a call that had no effect, and answers its caller accordingly.
    pub(super) fn turn_away(
        &mut self,
        cx: &Cx<'_>,
        mut pending: PendingCall,
        call: StoreCall,
    ) -> Result<Answer, NoMessage> {
        drop(std::mem::take(&mut pending.memories).regain(call));
        let message = pending.message.take();
        let reply = message.map(|message| ReplyWriter::over(message, pending.xid));
        let reply = reply.or_else(|| ReplyWriter::begin(cx, pending.xid, 0));
        reply.map(|reply| self.ask_again(reply, pending.procedure)).ok_or(NoMessage::Dropped)
    }

    /// The reply that asks the client to retry later.
    fn ask_again(&mut self, mut reply: ReplyWriter, procedure: Option<Procedure>) -> Answer {
        match procedure {
            Some(procedure) => {
                let status = crate::v3::refuse(procedure, Status::Jukebox, &mut reply);
                self.counters.count_nfs(procedure, status);
            }
            None => {
                let flavors = SecurityFlavors::default();
                let outcome = answer_mounted(Err(Status::Jukebox), flavors, &mut reply);
                self.counters.count_mount(MountProcedure::Mnt, outcome);
            }
        }
        reply.finish()
    }

    /// The time of the next check for calls that have waited long enough.
    pub(super) fn next_patience_look(&self) -> Option<Time> {
        let are_under_way = self.pending.are_under_way() || self.reads.are_deferred();
        are_under_way.then_some(self.next_look)
    }

    /// Checks for calls that have waited long enough.
    fn look_at_patience(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        if self.next_patience_look().is_none_or(|at| now < at) {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        self.give_up_reads(cx);
        self.give_up_queued(cx);
        self.counters.waiting.oldest_ms =
            self.pending.oldest().map_or(0, |began| now.since(began).as_millis() as u64);
        for ticket in WaitTicket::all() {
            let Some(pending) = self.pending.get_mut(ticket) else { continue };
            let age = now.since(pending.began);
            if age >= UNSTARTED_MAX && !pending.is_started {
                self.withdraw(cx, ticket);
            } else if age >= HARMLESS_MAX && pending.is_harmless && pending.is_awaited() {
                self.give_up(cx, ticket);
            }
        }
    }

    /// Asks the callers of READs that a disk does not supply in time to retry.
    fn give_up_reads(&mut self, cx: &mut Cx<'_>) {
        let patience = HARMLESS_MAX.as_nanos() as u64;
        let Some(began) = cx.now().0.checked_sub(patience) else { return };
        while let Some(Deferred { read, .. }) = self.reads.take_older(Time(began)) {
            self.counters.waiting.given_up += 1;
            match read {
                DeferredRead::Call(DeferredCall { id, peer, xid, .. }) => {
                    let reply = ReplyWriter::begin(cx, xid, 0);
                    let answer = reply.map(|reply| self.ask_again(reply, Some(Procedure::Read)));
                    self.conclude(cx, id, peer, answer.ok_or(NoMessage::Dropped));
                }
                DeferredRead::Compound(id) => self.resume_compound(cx, id, WaitResult::busy()),
            }
        }
    }

    /// Withdraws a call that has not begun.
    fn withdraw(&mut self, cx: &mut Cx<'_>, ticket: WaitTicket) {
        let Some(call) = self.store.withdraw(ticket) else {
            if let Some(pending) = self.pending.get_mut(ticket) {
                pending.is_started = true;
            }
            return;
        };
        let Some(pending) = self.pending.take(ticket) else { return };
        self.counters.waiting.withdrawn += 1;
        self.tell_to_ask_again(cx, pending, call);
    }

    /// Asks the caller of a call in progress that changes nothing to retry. The call continues, and
    /// holds its memory.
    fn give_up(&mut self, cx: &mut Cx<'_>, ticket: WaitTicket) {
        let Some(pending) = self.pending.get_mut(ticket) else { return };
        self.counters.waiting.given_up += 1;
        if let Some(compound) = pending.compound.take() {
            return self.resume_compound(cx, compound, WaitResult::busy());
        }
        let Some(Requester { id, peer, .. }) = pending.requester.take() else { return };
        let (xid, procedure) = (pending.xid, pending.procedure);
        let reply = ReplyWriter::begin(cx, xid, 0);
        let answer = reply.map(|reply| self.ask_again(reply, procedure));
        self.conclude(cx, id, peer, answer.ok_or(NoMessage::Dropped));
    }
}

impl<S: Store> Gateway<S> {
    /// As [`nfs`](Self::nfs), but a READ whose data are not in memory is deferred.
    pub(super) fn read(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        args: &ReadArgs,
    ) -> Result<Answer, NoMessage> {
        let CallSource { id, peer, .. } = source;
        let (xid, caller) = (header.xid, self.caller(source, header));
        let attempt = ReadAttempt { args, turn: Turn::First(self.reads.next_ticket()) };
        let answer = self.attempt(cx, xid, &caller, attempt);
        if let Err(NoMessage::Waits) = answer {
            let call = DeferredCall { id, peer, xid, args: *args, caller };
            self.reads.put(Deferred { read: DeferredRead::Call(call), began: cx.now() });
        }
        answer
    }

    fn attempt(
        &mut self,
        cx: &Cx<'_>,
        xid: Xid,
        caller: &stag_nfs_store::Caller,
        attempt: ReadAttempt<'_>,
    ) -> Result<Answer, NoMessage> {
        let mut reply = ReplyWriter::begin(cx, xid, 0).ok_or(NoMessage::Dropped)?;
        self.store.now().act_as(caller);
        let data = &mut self.counters.data;
        let status = crate::v3::read(self.store.now(), data, cx, attempt, &mut reply);
        self.counters.count_nfs(Procedure::Read, status.ok_or(NoMessage::Waits)?);
        Ok(reply.finish())
    }

    /// Resumes the READs whose data were fetched.
    pub(super) fn resume_reads(&mut self, cx: &mut Cx<'_>) {
        while let Some(fetched) = self.store.next_fetched() {
            match self.reads.take(fetched.ticket).map(|deferred| deferred.read) {
                Some(DeferredRead::Call(read)) => {
                    let turn = Turn::Again(fetched.brought);
                    let attempt = ReadAttempt { args: &read.args, turn };
                    let answer = self.attempt(cx, read.xid, &read.caller, attempt);
                    debug_assert!(
                        !matches!(answer, Err(NoMessage::Waits)),
                        "a READ that was put off once is carried out"
                    );
                    self.conclude(cx, read.id, read.peer, answer);
                    cx.end_turn(read.peer);
                }
                Some(DeferredRead::Compound(id)) => {
                    self.resume_compound(cx, id, WaitResult::Fetched(fetched.brought));
                }
                None => {}
            }
        }
    }
}
