//! Calls that may wait: they are begun in the store, and answered when it completes them.
//!
//! **A call runs once.** A retransmission that arrives meanwhile is not executed: its caller takes
//! the place of the first one. So a WRITE that hangs and is sent again never overtakes a newer one.
//!
//! **Patience.** NFS3ERR_JUKEBOX says that nothing was done and that the caller may ask again. A
//! call that the store refuses gets it at once. A call that has not started gets it after
//! [`UNSTARTED_MAX`], while in the store's queue or waiting for a ticket (`held`). A call that has
//! started and changes nothing gets it after [`HARMLESS_MAX`]; its result is discarded when it
//! comes. A call that changes something is answered when the store answers, however long that
//! takes: otherwise its client would send a new call with another XID, and find the change of the
//! first one made, or be overtaken by it.

use std::time::Duration;

use stag_engine::{Answer, Cx, Pulled, Time};
use stag_protocol::{
    nfs::{
        mount::Procedure as MountProcedure,
        v3::{Call, Procedure, Status},
    },
    rpc::CallHeader,
};

use super::{Gateway, NoMessage, held::Started, lending::Payload, nfs4::answered};
use crate::{
    deferred::{Deferred, DeferredCall, DeferredRead},
    drc::{self, CallSource},
    held::UNSTARTED_MAX,
    parked::{CallMemories, ParkedCall, Requester},
    reply::ReplyWriter,
    v3::CallMemory,
    v4::{ChangeScope, WaitResult},
};
use stag_nfs_store::{
    Answered, Effort, Store, StoreCall, StoreCallDone, StoreOutcome, StoreRequest, TRANSFER_MAX,
    WaitTicket, objects,
};

/// Time after which the caller of a call that changes nothing is asked to retry.
pub(super) const HARMLESS_MAX: Duration = Duration::from_secs(5);
/// Time between two checks of how long calls have been pending.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A call to begin in the store and to answer later.
pub(super) struct PutOff<'a> {
    pub(super) source: CallSource,
    pub(super) header: &'a CallHeader<'a>,
    pub(super) call: &'a Call<'a>,
    pub(super) pulled: Pulled<'a>,
}

impl<S: Store> Gateway<S> {
    /// Returns true if a call has to be begun in the store.
    #[inline]
    pub(super) fn waits(&self, call: &Call<'_>) -> bool {
        S::MAY_WAIT && {
            let effort = Effort::of(call);
            objects(call).into_iter().flatten().any(|object| self.store.waits(object, effort))
        }
    }

    /// Begins a call in the store.
    pub(super) fn put_off(
        &mut self,
        cx: &mut Cx<'_>,
        PutOff { source, header, call, pulled }: PutOff<'_>,
    ) -> Result<Answer, NoMessage> {
        let operation = StoreRequest::of(call).ok_or(NoMessage::Dropped)?;
        let is_harmless = operation.is_harmless();
        let change = ChangeScope::of(&operation).filter(|_| self.nfs4.is_some());
        if !is_harmless && !self.cache.knows(source.from, cx.now()) {
            let waits = self.cache.wait(cx, source, header, call);
            return Err(waits.map_or(NoMessage::Dropped, |()| NoMessage::Waits));
        }
        let name = self.cache.name(source.from, header, call);
        if let Some(parked) = self.parked.find(&name) {
            let requester = Requester::of(source);
            let earlier = parked.requester.replace(requester);
            self.cache.count_busy();
            return take_place(cx, earlier, requester);
        }
        let procedure = call.procedure();
        if !is_harmless && let Some(octets) = self.cache.replay(&name, cx.now()) {
            // Its first reply is kept: it is not executed again.
            let mut reply = ReplyWriter::begin(cx, header.xid, 0).ok_or(NoMessage::Dropped)?;
            reply.replace(octets);
            return Ok(reply.finish());
        }
        let octets = match call {
            Call::Write(args) => args.data.octets().unwrap_or_default(),
            Call::Symlink(args) => args.path.octets().unwrap_or_default(),
            _ => &[],
        };
        // A WRITE above the largest size is done in part.
        let octets = octets.get(..TRANSFER_MAX as usize).unwrap_or(octets);
        let payload = Payload { octets, shared: pulled.share(octets) };
        let message = if is_harmless {
            None
        } else {
            Some(ReplyWriter::message_of(cx).ok_or(NoMessage::Dropped)?)
        };
        let parked = ParkedCall {
            requester: Some(Requester::of(source)),
            xid: header.xid,
            procedure: Some(procedure),
            compound: None,
            name: Some(name),
            is_harmless,
            change,
            is_started: false,
            began: cx.now(),
            message,
            memories: CallMemories::default(),
        };
        let call =
            StoreCall { caller: self.caller(source, header), operation, room: None, payload: None };
        self.begin(cx, parked, call, payload)
    }

    /// Begins a MNT in the store.
    pub(super) fn put_off_mount(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        path: &[u8],
    ) -> Result<Answer, NoMessage> {
        let parked = ParkedCall {
            requester: Some(Requester::of(source)),
            xid: header.xid,
            procedure: None,
            compound: None,
            name: None,
            is_harmless: true,
            change: None,
            is_started: false,
            began: cx.now(),
            message: None,
            memories: CallMemories::default(),
        };
        let call = StoreCall {
            caller: self.caller(source, header),
            operation: StoreRequest::Mount,
            room: None,
            payload: None,
        };
        self.begin(cx, parked, call, Payload { octets: path, shared: None })
    }

    /// Begins a call, or lets it wait for a place.
    fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        parked: ParkedCall,
        call: StoreCall,
        payload: Payload<'_>,
    ) -> Result<Answer, NoMessage> {
        if !parked.is_harmless
            && let Some(name) = &parked.name
        {
            self.cache.begin(name);
        }
        if let (Some(nfs4), Some(change)) = (&mut self.nfs4, parked.change) {
            nfs4.begin_change(change);
        }
        let Ok(payload) = payload.extent(cx) else {
            self.counters.waiting.refused += 1;
            return self.let_go(cx, parked, call);
        };
        match self.start_or_hold(cx, parked, call, payload) {
            Started::Later => Err(NoMessage::Waits),
            Started::Done(parked, done) => {
                self.end_change(&parked);
                self.settle(cx, parked, done).ok_or(NoMessage::Dropped)
            }
            Started::Refused(parked, call) | Started::NoPlace(parked, call) => {
                self.let_go(cx, parked, call)
            }
        }
    }

    /// Answers completed calls, and calls that have waited long enough.
    pub(super) fn resume_calls(&mut self, cx: &mut Cx<'_>) {
        let mut has_place = false;
        while let Some(done) = self.store.next_done() {
            let Some(parked) = self.parked.take(done.ticket) else {
                debug_assert!(false, "a ticket comes back once");
                continue;
            };
            self.tell(cx, parked, done);
            has_place = true;
        }
        // Buffers may be free even if no call has completed: this is checked from time to time.
        if !self.parked.waiting.is_empty() && (has_place || cx.now() >= self.next_look) {
            self.begin_held(cx);
        }
        self.counters.waiting.under_way = self.parked.len() as u64;
        if !self.parked.are_under_way() {
            self.counters.waiting.oldest_ms = 0;
        }
        self.look_at_patience(cx);
    }

    /// Reports a completed call to its caller or compound.
    pub(super) fn tell(&mut self, cx: &mut Cx<'_>, parked: ParkedCall, done: StoreCallDone) {
        if let Some(compound) = parked.compound {
            let told = WaitResult::Answered(answered(parked, done));
            return self.resume_compound(cx, compound, told);
        }
        self.end_change(&parked);
        let requester = parked.requester;
        let answer = self.settle(cx, parked, done);
        if let Some(Requester { id, peer, .. }) = requester {
            self.conclude(cx, id, peer, answer.ok_or(NoMessage::Dropped));
            cx.end_turn(peer);
        }
    }

    /// Writes the reply of a completed call, and reclaims its memory.
    fn settle(
        &mut self,
        cx: &Cx<'_>,
        mut parked: ParkedCall,
        done: StoreCallDone,
    ) -> Option<Answer> {
        let StoreCallDone { call, outcome, .. } = done;
        let operation = call.operation;
        let filled = std::mem::take(&mut parked.memories).regain(call);
        let Some(procedure) = parked.procedure else {
            return self.settle_mount(cx, &parked, &outcome);
        };
        let mut store = Answered::new(outcome, filled);
        let is_wanted = parked.requester.is_some() || !parked.is_harmless;
        let mut reply = if is_wanted { self.reply_to(cx, &mut parked, &operation) } else { None };
        if let Some(reply) = &mut reply {
            let memory = CallMemory { cx, pulled: Pulled::default() };
            let call = operation.call(&[]).expect("it is no MNT");
            let data = &mut self.counters.data;
            let status = crate::v3::answer(&mut store, data, memory, &call, reply);
            self.counters.count_nfs(procedure, status);
        }
        let is_kept = drc::is_kept(procedure) || parked.requester.is_none();
        let kept = reply.as_ref().filter(|_| is_kept && !parked.is_harmless);
        self.end(cx.now(), &parked, kept.map(ReplyWriter::message));
        parked.requester.and(reply).map(ReplyWriter::finish)
    }

    fn settle_mount(
        &mut self,
        cx: &Cx<'_>,
        parked: &ParkedCall,
        outcome: &StoreOutcome,
    ) -> Option<Answer> {
        parked.requester?;
        let mounted = match outcome {
            StoreOutcome::Mounted(result) => *result,
            _ => Err(Status::ServerFault),
        };
        let mut reply = ReplyWriter::begin(cx, parked.xid, crate::mount::MNT_LEN)?;
        let outcome = crate::mount::answer_mounted(mounted, &mut reply);
        self.counters.count_mount(MountProcedure::Mnt, outcome);
        Some(reply.finish())
    }

    /// Ends a change, and keeps its reply if there is one to keep.
    pub(super) fn end(&mut self, now: Time, parked: &ParkedCall, reply: Option<&[u8]>) {
        if !parked.is_harmless
            && let Some(name) = &parked.name
        {
            self.cache.end(name, reply, now);
        }
    }

    /// A pending change by version 3 is complete: delegations of the file may be granted.
    pub(super) fn end_change(&mut self, parked: &ParkedCall) {
        if let (Some(nfs4), Some(change)) = (&mut self.nfs4, parked.change) {
            nfs4.end_change(change);
        }
    }

    fn reply_to(
        &self,
        cx: &Cx<'_>,
        parked: &mut ParkedCall,
        operation: &StoreRequest,
    ) -> Option<ReplyWriter> {
        match parked.message.take() {
            Some(message) => Some(ReplyWriter::over(message, parked.xid)),
            None => {
                let len = operation.call(&[]).map_or(0, |call| crate::v3::results_len(&call));
                ReplyWriter::begin(cx, parked.xid, len)
            }
        }
    }

    /// Reclaims the memory of a call that had no effect, and answers its caller accordingly.
    pub(super) fn turn_away(
        &mut self,
        cx: &Cx<'_>,
        mut parked: ParkedCall,
        call: StoreCall,
    ) -> Result<Answer, NoMessage> {
        drop(std::mem::take(&mut parked.memories).regain(call));
        let message = parked.message.take();
        let reply = message.map(|message| ReplyWriter::over(message, parked.xid));
        let reply = reply.or_else(|| ReplyWriter::begin(cx, parked.xid, 0));
        reply.map(|reply| self.ask_again(reply, parked.procedure)).ok_or(NoMessage::Dropped)
    }

    /// The reply that asks the client to retry later.
    fn ask_again(&mut self, mut reply: ReplyWriter, procedure: Option<Procedure>) -> Answer {
        match procedure {
            Some(procedure) => {
                let status = crate::v3::refuse(procedure, Status::Jukebox, &mut reply);
                self.counters.count_nfs(procedure, status);
            }
            None => {
                let outcome = crate::mount::answer_mounted(Err(Status::Jukebox), &mut reply);
                self.counters.count_mount(MountProcedure::Mnt, outcome);
            }
        }
        reply.finish()
    }

    /// The time of the next check for calls that have waited long enough.
    pub(super) fn next_patience_look(&self) -> Option<Time> {
        let are_under_way = self.parked.are_under_way() || self.reads.are_put_off();
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
        self.give_up_held(cx);
        self.counters.waiting.oldest_ms =
            self.parked.oldest().map_or(0, |began| now.since(began).as_millis() as u64);
        for ticket in WaitTicket::all() {
            let Some(parked) = self.parked.get_mut(ticket) else { continue };
            let age = now.since(parked.began);
            if age >= UNSTARTED_MAX && !parked.is_started {
                self.withdraw(cx, ticket);
            } else if age >= HARMLESS_MAX && parked.is_harmless && parked.is_awaited() {
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
            if let Some(parked) = self.parked.get_mut(ticket) {
                parked.is_started = true;
            }
            return;
        };
        let Some(parked) = self.parked.take(ticket) else { return };
        self.counters.waiting.withdrawn += 1;
        self.tell_to_ask_again(cx, parked, call);
    }

    /// Asks the caller of a call in progress that changes nothing to retry. The call continues, and
    /// holds its memory.
    fn give_up(&mut self, cx: &mut Cx<'_>, ticket: WaitTicket) {
        let Some(parked) = self.parked.get_mut(ticket) else { return };
        self.counters.waiting.given_up += 1;
        if let Some(compound) = parked.compound.take() {
            return self.resume_compound(cx, compound, WaitResult::busy());
        }
        let Some(Requester { id, peer, .. }) = parked.requester.take() else { return };
        let (xid, procedure) = (parked.xid, parked.procedure);
        let reply = ReplyWriter::begin(cx, xid, 0);
        let answer = reply.map(|reply| self.ask_again(reply, procedure));
        self.conclude(cx, id, peer, answer.ok_or(NoMessage::Dropped));
    }
}

/// Lets the newest caller of a call take the place of an earlier one, which has probably gone: no
/// reply can reach it on its connection any more.
fn take_place(
    cx: &mut Cx<'_>,
    earlier: Option<Requester>,
    requester: Requester,
) -> Result<Answer, NoMessage> {
    match earlier {
        // A retransmission on the same connection, handled as for any call in progress.
        Some(earlier) if earlier.peer == requester.peer => Err(NoMessage::Dropped),
        Some(earlier) => {
            cx.disconnect(earlier.peer);
            Err(NoMessage::Waits)
        }
        None => Err(NoMessage::Waits),
    }
}
