//! Resumption of suspended compounds: after the event they wait for, or over another connection
//! when the client sends them again (RFC 8881 §2.10.6.2).

use stag_engine::{Cx, Pulled};
use stag_protocol::{
    nfs::v4::{Compound, SequenceArgs, Status4},
    xdr::Reader,
};

use super::{
    CallFacts, CompoundOutcome, RunEnd, SequenceOutcome,
    suspended::{CompoundId, SuspendedCompound},
};
use crate::{
    requester::{CallSource, Requester},
    v4::{
        Nfs4,
        context::{
            CompoundContext, CompoundState, OpResult, WaitMeans,
            saved_arguments::SavedArguments,
            shard_context::{ForwardedReply, Placement, ShardContext},
        },
    },
};
use stag_nfs_store::{Answered, Brought, Caller, Status, Store};

/// A compound that is resumed.
#[derive(Debug)]
pub(crate) struct Resumption {
    pub(crate) id: CompoundId,
    pub(crate) told: WaitResult,
    pub(crate) means: WaitMeans,
    /// The home takes one more compound like this one.
    pub(crate) has_room: bool,
}

/// A compound that has run again.
pub(crate) struct Resumed {
    /// The caller to answer.
    pub(crate) requester: Option<Requester>,
    /// The state that the compound reached.
    pub(crate) outcome: CompoundOutcome,
    /// The call, if the home has to execute it: see [`CompoundOutcome::NeedsHome`].
    pub(crate) call: Option<SuspendedCall>,
}

/// The call of a compound that has waited.
#[derive(Debug)]
pub(crate) struct SuspendedCall {
    pub(crate) source: CallSource,
    pub(crate) caller: Caller,
    pub(crate) facts: CallFacts,
    pub(crate) arguments: SavedArguments,
}

impl Resumed {
    const fn without_call(requester: Option<Requester>, outcome: CompoundOutcome) -> Self {
        Self { requester, outcome, call: None }
    }
}

/// Event that a compound waited for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is given")]
pub(crate) enum WaitResult {
    /// The answer of the store.
    Answered(Answered),
    /// Data of a READ was fetched, to the page cache or to our memory.
    Fetched(Option<Brought>),
    /// Delegations may have been returned, or its time to wait for them is over.
    Recalled,
    /// The home has executed its part.
    Home(ForwardedReply),
    /// Its turn has come.
    Turn,
}

impl WaitResult {
    /// The result for a call that had no effect: the client may retry later.
    pub(crate) const fn busy() -> Self {
        Self::Answered(Answered::failed(Status::Jukebox))
    }
}

impl Nfs4 {
    /// Resumes a compound that waited.
    pub(crate) fn resume<S: Store>(
        &mut self,
        cx: &mut Cx<'_>,
        store: &mut S,
        Resumption { id, told, means, has_room }: Resumption,
    ) -> Resumed {
        let Some(SuspendedCompound { state: mut compound, awaits_record, at_home, .. }) =
            self.suspended.take(id)
        else {
            debug_assert!(false, "a compound goes on once");
            return Resumed::without_call(None, CompoundOutcome::Silent);
        };
        if let Some(client) = awaits_record {
            self.recovery.hold_reply(client);
        }
        let home = compound.note(told).and_then(|reply| Some((at_home?, reply)));
        let requester = compound.requester;
        let Some(kept) = compound.replay_log.kept.clone() else {
            debug_assert!(false, "arguments are kept before an operation waits");
            return Resumed::without_call(requester, CompoundOutcome::Silent);
        };
        let (source, caller, facts) = (compound.source, compound.caller, compound.call_facts());
        let pieces = kept.pieces();
        let arguments = Reader::over(&pieces);
        let shard_context = compound.shard_context(has_room);
        let mut context = CompoundContext {
            nfs4: self,
            store,
            cx,
            arguments: arguments.clone(),
            pulled: Pulled::default(),
            means,
            compound,
            has_changed: false,
            has_acted: false,
            is_replay: false,
            shard_context,
        };
        if let Some((away, reply)) = home
            && !context.take_from_home(away, &reply)
        {
            return of_requester(requester, context.conclude_run(RunEnd::Over));
        }
        // They were parsed before: completed operations are skipped.
        let Ok(mut operations) = Compound::parse(arguments) else {
            debug_assert!(false, "arguments are kept as they were");
            context.release_slot();
            return Resumed::without_call(requester, CompoundOutcome::Silent);
        };
        for _ in 0..context.compound.progress.count {
            operations.next();
        }
        let end = context.run(operations);
        let step = context.conclude_run(end);
        let needs_home = matches!(step, CompoundOutcome::NeedsHome(_));
        let call = needs_home.then_some(SuspendedCall { source, caller, facts, arguments: kept });
        Resumed { call, ..of_requester(requester, step) }
    }
}

impl CompoundState {
    /// Notes the event that it waited for: its operation runs again. Returns the reply of the home.
    fn note(&mut self, told: WaitResult) -> Option<ForwardedReply> {
        let mut home = None;
        match told {
            WaitResult::Answered(answer) => self.replay_log.add(answer),
            WaitResult::Fetched(brought) => self.replay_log.bring(brought),
            WaitResult::Recalled | WaitResult::Turn => {}
            WaitResult::Home(reply) => {
                self.replay_log.clear();
                home = Some(reply);
            }
        }
        self.replay_log.restart();
        home
    }

    /// Relation to other shards, as it was before the compound waited. `has_room` means that the
    /// home takes one more compound: it may have to begin this one again.
    fn shard_context(&self, has_room: bool) -> ShardContext<'static> {
        let facts = self.shard_facts;
        let placement = match self.placement {
            // The home's part of it has been announced, and is not asked for twice.
            Placement::Here { first_change, .. } => {
                Placement::Here { first_change, has_room: has_room && facts.home.is_none() }
            }
            placement => placement,
        };
        ShardContext { placement, facts, ..ShardContext::default() }
    }

    /// The facts of its call.
    fn call_facts(&self) -> CallFacts {
        let (principal, request_len) = (self.principal, self.request_len);
        CallFacts { xid: self.reply.xid(), principal, request_len }
    }
}

/// Pairs a step with the caller to answer.
fn of_requester(requester: Option<Requester>, step: CompoundOutcome) -> Resumed {
    let outcome = match (requester, step) {
        // The reply is in the slot, if it is to be cached there.
        (None, CompoundOutcome::Done(_)) => CompoundOutcome::Silent,
        (_, step) => step,
    };
    Resumed::without_call(requester, outcome)
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Lets this caller take the place of the previous caller of the same request.
    pub(in crate::v4) fn join(&mut self, args: &SequenceArgs) -> OpResult<SequenceOutcome> {
        let requester = Requester::of(self.compound.source);
        let waiting = self.nfs4.suspended.in_slot(&args.session, args.slot);
        if waiting.is_none() {
            return self.join_away(args);
        }
        // RFC 8881 §2.10.6.2: a client that keeps the connection waits for the reply.
        let is_new =
            |former: Option<Requester>| former.is_none_or(|former| former.at() != requester.at());
        let Some(waiting) = waiting.filter(|waiting| is_new(waiting.state.requester)) else {
            return Err(Status4::Delay.into());
        };
        waiting.state.reply.readdress(self.compound.reply.xid());
        waiting.state.source = self.compound.source;
        let former = waiting.state.requester.replace(requester);
        self.nfs4.tally.joined += 1;
        if let Some(former) = former {
            // A client sends it again because it has lost this connection: no other call that it
            // has outstanding there can be answered.
            self.nfs4.disconnect(self.cx, former.at());
        }
        Ok(SequenceOutcome::Joined)
    }
}
