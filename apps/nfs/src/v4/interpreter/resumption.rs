//! Resumption of suspended compounds: after the event they wait for, or over another connection
//! when the client sends them again (RFC 8881 §2.10.6.2).

use stag_engine::{Cx, Pulled};
use stag_protocol::{
    nfs::v4::{Compound, SequenceArgs, Status4},
    xdr::Reader,
};

use super::{
    CompoundOutcome, RunEnd, SequenceOutcome,
    suspended::{CompoundId, SuspendedCompound},
};
use crate::{
    requester::Requester,
    v4::{
        Nfs4,
        context::{
            CompoundContext, OpResult, WaitMeans,
            shard_context::{ForwardedReply, ShardContext},
        },
    },
};
use stag_nfs_store::{Answered, Brought, Status, Store};

/// A compound that is resumed.
#[derive(Debug)]
pub(crate) struct Resumption {
    pub(crate) id: CompoundId,
    pub(crate) told: WaitResult,
    pub(crate) means: WaitMeans,
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
    /// Resumes a compound that waited. Returns the caller to answer and the state that the compound
    /// reached.
    pub(crate) fn resume<S: Store>(
        &mut self,
        cx: &mut Cx<'_>,
        store: &mut S,
        Resumption { id, told, means }: Resumption,
    ) -> (Option<Requester>, CompoundOutcome) {
        let Some(SuspendedCompound { state: mut compound, awaits_record, at_home, .. }) =
            self.suspended.take(id)
        else {
            debug_assert!(false, "a compound goes on once");
            return (None, CompoundOutcome::Silent);
        };
        if let Some(client) = awaits_record {
            self.recovery.hold_reply(client);
        }
        let mut home = None;
        match told {
            WaitResult::Answered(answer) => compound.replay_log.add(answer),
            WaitResult::Fetched(brought) => compound.replay_log.bring(brought),
            WaitResult::Recalled | WaitResult::Turn => {}
            WaitResult::Home(reply) => {
                compound.replay_log.clear();
                home = at_home.map(|away| (away, reply));
            }
        }
        compound.replay_log.restart();
        let requester = compound.requester;
        let Some(arguments) = compound.replay_log.kept.clone() else {
            debug_assert!(false, "arguments are kept before an operation waits");
            return (requester, CompoundOutcome::Silent);
        };
        let pieces = arguments.pieces();
        let arguments = Reader::over(&pieces);
        let shard_context = ShardContext { facts: compound.shard_facts, ..ShardContext::default() };
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
            return (requester, CompoundOutcome::Silent);
        };
        for _ in 0..context.compound.progress.count {
            operations.next();
        }
        let end = context.run(operations);
        let step = context.conclude_run(end);
        of_requester(requester, step)
    }
}

/// Pairs a step with the caller to answer.
fn of_requester(
    requester: Option<Requester>,
    step: CompoundOutcome,
) -> (Option<Requester>, CompoundOutcome) {
    match (requester, step) {
        // The reply is in the slot, if it is to be cached there.
        (None, CompoundOutcome::Done(_)) => (None, CompoundOutcome::Silent),
        (requester, step) => (requester, step),
    }
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
