//! Version 4 at the gateway: NULL and COMPOUND (RFC 8881 §16), and the waits that compounds ask
//! for.

use std::sync::Arc;

use stag_engine::{Answer, Call, Cx, Pulled};
use stag_protocol::{
    nfs::v3::{self, Procedure},
    rpc::{Accepted, ReplyHeader, Xid},
    xdr::Reader,
};

use super::{CallTarget, Gateway, NoMessage, inline_reply::write_header, start_call::Started};
use crate::{
    owner_names::OwnerNames,
    pending::{
        call::{CallMemories, PendingCall},
        deferred_reads::{Deferred, DeferredRead},
    },
    requester::{CallSource, OWN, Requester},
    v4::{
        CallFacts, CompoundCall, CompoundId, CompoundOutcome, ForwardedCompound, Nfs4, Nfs4Config,
        Nfs4Records, NoReply, Resumption, ShardContext, StateDesk, StoreWait, WaitFor, WaitMeans,
        WaitResult,
    },
};
use stag_nfs_store::{
    Answered, Procedures as _, StartError, Status, Store, StoreCall, StoreCallDone,
    exports::security::SecurityFlavors,
};

impl<S: Store> Gateway<S> {
    /// Serves version 4, too, with all its clients on this shard.
    #[must_use]
    pub fn with_nfs4(mut self, config: Nfs4Config) -> Self {
        self.nfs4 = Some(Box::new(Nfs4::new(config, &self.store)));
        self.serves_4 = true;
        self
    }

    /// The place for questions about the clients and states of version 4, if that is served.
    pub fn state_desk(&self) -> Option<Arc<StateDesk>> {
        self.nfs4.as_ref().map(|nfs4| nfs4.desk())
    }

    /// Uses names of owners in version 4, which must be served already.
    #[must_use]
    pub fn with_owner_names(mut self, names: Arc<OwnerNames>) -> Self {
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.name_owners(names);
        }
        self
    }

    /// Starts version 4, which must be served already, with records of its clients.
    #[must_use]
    pub fn with_records(mut self, records: Nfs4Records) -> Self {
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.recover(records);
        }
        self
    }

    /// Grants delegations of files of these exports, which only this server changes. Call after
    /// [`with_nfs4`](Self::with_nfs4).
    #[must_use]
    pub fn with_exclusive(mut self, exports: &[String]) -> Self {
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.set_exclusive(exports, &self.store);
        }
        self
    }

    /// Grants delegations to read files of these exports, which local programs change, too. Call
    /// after [`with_nfs4`](Self::with_nfs4).
    ///
    /// # Errors
    /// A sentence when the store cannot watch files.
    pub fn with_watched(mut self, exports: &[String]) -> Result<Self, StartError> {
        // Also exports that are absent at this moment.
        if !exports.is_empty() {
            self.store.start_watching()?;
        }
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.set_watched(exports, &self.store);
        }
        Ok(self)
    }

    /// Does not serve version 3.
    #[must_use]
    pub fn without_nfs3(mut self) -> Self {
        self.serves_3 = false;
        self
    }

    /// Refuses a call of version 3 that conflicts with state of version 4 clients.
    #[inline]
    pub(super) fn refuse_beside(
        &mut self,
        cx: &Cx<'_>,
        call: &Call<'_>,
        target: &Result<CallTarget, ReplyHeader<'_>>,
    ) -> Option<Result<Answer, NoMessage>> {
        if self.arrival.is_some() {
            return self.ask_beside(cx, call, target);
        }
        let is_beside = self.nfs4.as_ref().is_some_and(|nfs4| nfs4.is_beside());
        match target {
            Ok(CallTarget::Nfs(procedure)) if is_beside => self.judge_beside(cx, call, *procedure),
            _ => None,
        }
    }

    fn judge_beside(
        &mut self,
        cx: &Cx<'_>,
        call: &Call<'_>,
        procedure: Procedure,
    ) -> Option<Result<Answer, NoMessage>> {
        // Arguments that cannot be decoded are refused on the usual path.
        let nfs = v3::Call::parse(procedure, call.arguments.clone()).ok()?;
        let source = CallSource::own(call.id, call.peer, call.from);
        let caller = self.caller(source, &call.header);
        let nfs4 = self.nfs4.as_mut()?;
        self.store.now().act_as(&caller);
        let status = nfs4.judge_beside(&mut self.store, &nfs, cx.now()).err()?;
        Some(self.refuse_call(cx, &call.header, procedure, status))
    }

    /// NULL of version 4.
    pub(super) fn null4(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) -> Result<Answer, NoMessage> {
        match call.arguments.clone().finish() {
            Ok(()) => Err(write_header(cx, call.id, call.header.reply(Accepted::Success))),
            Err(_) => self.refuse(cx, call.id, call.header.reply(Accepted::GarbageArgs)),
        }
    }

    /// Executes a compound of version 4.
    pub(super) fn compound(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
    ) -> Result<Answer, NoMessage> {
        let Call { header, arguments, pulled, .. } = call;
        let means = self.means();
        let caller = self.caller(source, header);
        let shard_context = ShardContext::default();
        let pulled = *pulled;
        let facts = CallFacts::of(header, arguments);
        let compound = CompoundCall {
            source,
            facts,
            arguments: arguments.clone(),
            pulled,
            caller,
            means,
            shard_context,
        };
        if self.arrival.is_some() {
            return self.compound_beside_home(cx, compound);
        }
        match self.compound_here(cx, compound) {
            Err(NoMessage::NeedsHome(_)) => {
                self.await_slots(cx, source, caller, facts, arguments.clone())
            }
            answer => answer,
        }
    }

    /// The same for a compound that another shard forwards, or that was kept.
    pub(super) fn compound_of(
        &mut self,
        cx: &mut Cx<'_>,
        compound: &ForwardedCompound,
        arguments: Reader<'_>,
    ) -> Result<Answer, NoMessage> {
        let ForwardedCompound { source, caller, facts, takes_loans, .. } = *compound;
        let begun = compound.begun.as_ref();
        let (means, pulled) = (self.means(), Pulled::default());
        let asked = compound.asked();
        let shard_context = ShardContext { begun, takes_loans, asked, ..ShardContext::default() };
        let call = CompoundCall { source, facts, arguments, pulled, caller, means, shard_context };
        self.compound_here(cx, call)
    }

    #[inline]
    pub(super) fn compound_here(
        &mut self,
        cx: &mut Cx<'_>,
        call: CompoundCall<'_>,
    ) -> Result<Answer, NoMessage> {
        let Some(nfs4) = &mut self.nfs4 else { return Err(NoMessage::Dropped) };
        let (requester, facts) = (Requester::of(call.source), call.facts);
        let step = nfs4.compound(cx, &mut self.store, call);
        nfs4.tell_conflicts();
        match step {
            Ok(CompoundOutcome::Done(answer)) => Ok(answer),
            Ok(CompoundOutcome::NeedsHome(begun)) => Err(NoMessage::NeedsHome(begun)),
            Ok(step) => self.follow(cx, step),
            // A forwarding shard has already refused arguments that cannot be decoded.
            Err(NoReply::Garbage) if requester.shard == OWN => {
                self.refuse(cx, requester.id, facts.garbage())
            }
            Err(NoReply::Garbage | NoReply::NoMemory) => Err(NoMessage::Dropped),
        }
    }

    /// Means by which a compound can wait.
    pub(super) fn means(&self) -> WaitMeans {
        let read_ticket = if S::MAY_WAIT { self.reads.next_ticket() } else { None };
        WaitMeans { read_ticket, limits: self.pending.limits() }
    }

    /// Fulfils the wishes of a compound, until it is complete or waits.
    fn follow(&mut self, cx: &mut Cx<'_>, mut step: CompoundOutcome) -> Result<Answer, NoMessage> {
        loop {
            let (id, event) = match step {
                CompoundOutcome::Done(answer) => return Ok(answer),
                CompoundOutcome::Silent => {
                    // A held reply may carry handles.
                    self.write_index();
                    return Err(NoMessage::Waits);
                }
                CompoundOutcome::Waits(id, event) => (id, event),
                CompoundOutcome::NeedsHome(begun) => return Err(NoMessage::NeedsHome(begun)),
            };
            let answered = match event {
                WaitFor::Store(event) => self.begin_for(cx, id, event),
                WaitFor::Fetch => {
                    let read = DeferredRead::Compound(id);
                    self.reads.put(Deferred { read, began: cx.now() });
                    None
                }
                WaitFor::Recall => None,
                WaitFor::Turn => {
                    let nfs4 = self.nfs4.as_ref();
                    if let Some(holder) = nfs4.and_then(|nfs4| nfs4.holder_of(id)) {
                        cx.put_aside(holder);
                    }
                    None
                }
                WaitFor::Home(event) => {
                    if let (Some(arrival), Some(nfs4)) = (&mut self.arrival, &mut self.nfs4) {
                        arrival.ask_home(nfs4, id, event);
                    }
                    None
                }
            };
            let Some(answered) = answered else { return Err(NoMessage::Waits) };
            step = self.step(cx, id, WaitResult::Answered(answered)).1;
        }
    }

    /// Resumes a compound. Returns the caller to answer, and the state that the compound reached.
    fn step(
        &mut self,
        cx: &mut Cx<'_>,
        id: CompoundId,
        told: WaitResult,
    ) -> (Option<Requester>, CompoundOutcome) {
        let means = self.means();
        let resumption = Resumption { id, told, means };
        match &mut self.nfs4 {
            Some(nfs4) => {
                let resumed = nfs4.resume(cx, &mut self.store, resumption);
                nfs4.tell_conflicts();
                resumed
            }
            None => (None, CompoundOutcome::Silent),
        }
    }

    /// Resumes a compound whose wish was fulfilled, and charges its client for that.
    pub(super) fn resume_compound(&mut self, cx: &mut Cx<'_>, id: CompoundId, told: WaitResult) {
        let holder = self.nfs4.as_ref().and_then(|nfs4| nfs4.holder_of(id));
        self.carry_on(cx, id, told);
        if let Some(holder) = holder {
            cx.end_turn(holder);
        }
    }

    /// Resumes a compound, and answers it when it is complete.
    fn carry_on(&mut self, cx: &mut Cx<'_>, id: CompoundId, told: WaitResult) {
        let (requester, step) = self.step(cx, id, told);
        let answer = self.follow(cx, step);
        if let Some(requester) = requester {
            self.conclude_compound(cx, requester, answer);
        }
    }

    /// Resumes compounds that waited for delegations.
    fn resume_recalls(&mut self, cx: &mut Cx<'_>) {
        let Some(nfs4) = self.nfs4.as_mut().filter(|nfs4| nfs4.awaits_recalls()) else { return };
        let has_returned = nfs4.take_return();
        nfs4.plan_names_look(cx.now());
        for id in CompoundId::all() {
            let due = self.nfs4.as_ref();
            if due.is_some_and(|nfs4| nfs4.is_recall_due(id, cx.now(), has_returned)) {
                self.resume_compound(cx, id, WaitResult::Recalled);
            }
        }
    }

    /// Resumes compounds whose delegations were returned, and compounds whose turn has come.
    pub(super) fn resume_suspended(&mut self, cx: &mut Cx<'_>) {
        self.resume_recalls(cx);
        self.resume_turns(cx);
    }

    /// Resumes compounds that wait for their turn, as far as it has come.
    fn resume_turns(&mut self, cx: &mut Cx<'_>) {
        let waiting = self.nfs4.as_ref().map_or(0, |nfs4| nfs4.turns());
        for _ in 0..waiting {
            let Some(nfs4) = &mut self.nfs4 else { return };
            let Some((id, holder)) = nfs4.next_for_turn() else { continue };
            if cx.take_turn(holder) {
                self.carry_on(cx, id, WaitResult::Turn);
                cx.end_turn(holder);
            } else {
                nfs4.keep_for_turn(id);
            }
        }
    }

    /// Begins a call in the store for a compound. Returns an immediate answer, if there is one.
    fn begin_for(
        &mut self,
        cx: &mut Cx<'_>,
        id: CompoundId,
        StoreWait { operation, payload }: StoreWait,
    ) -> Option<Answered> {
        let caller = self.nfs4.as_ref().and_then(|nfs4| nfs4.caller_of(id))?;
        let is_harmless = operation.is_harmless();
        let pending = PendingCall {
            requester: None,
            xid: Xid(0),
            procedure: None,
            compound: Some(id),
            flavors: SecurityFlavors::default(),
            name: None,
            is_harmless,
            change: None,
            is_started: false,
            began: cx.now(),
            message: None,
            memories: CallMemories::default(),
        };
        let call = StoreCall { caller, operation, room: None, payload: None };
        match self.start_or_queue(cx, pending, call, payload) {
            Started::Later => None,
            Started::Done(pending, done) => Some(answered(pending, done)),
            Started::Refused(..) | Started::NoPlace(..) => Some(Answered::failed(Status::Jukebox)),
        }
    }
}

/// The answer of a completed call, with the memory that was lent for it.
pub(super) fn answered(pending: PendingCall, done: StoreCallDone) -> Answered {
    let StoreCallDone { call, outcome, .. } = done;
    Answered::new(outcome, pending.memories.regain(call))
}
