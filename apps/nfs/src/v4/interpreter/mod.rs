//! COMPOUND (RFC 8881 §16.2): operations are parsed and executed one after the other, their results
//! appended to the reply, until one fails. An operation that has to wait suspends its compound
//! (`suspended`), and runs again after the event that it waits for (`replay_log`).
//!
//! | file | what |
//! |---|---|
//! | [`sequence`] | SEQUENCE: a new request, a retry, or one begun by another shard |
//! | [`suspended`] | the table of suspended compounds |
//! | [`characteristic`] | the operation by which a compound is timed |
//! | [`resumption`] | resumes them; a retry takes the place of the former caller |
//! | [`short_compounds`] | the most frequent compounds, answered without the interpreter |

pub(in crate::v4) mod characteristic;
pub(in crate::v4) mod resumption;
mod sequence;
pub(in crate::v4) mod short_compounds;
pub(in crate::v4) mod suspended;

use crate::{
    reply::ReplyWriter,
    requester::{CallSource, OWN, Requester},
    v4::context::{CompoundState, Progress},
};
use stag_engine::{Answer, Cx, Pulled};
use stag_protocol::{
    nfs::v4::{Attribute, Compound, Operation, OperationFault, Request, Status4},
    rpc::{Accepted, CallHeader, Outcome, ReplyHeader, Xid},
    xdr::{Error, Reader, padded},
};

use super::{
    LIMITS, Nfs4,
    context::{
        CompoundContext, Filehandles, OpExit, OpResult, WaitMeans,
        filehandle::Node,
        owner_names::AwaitedNames,
        position::Step,
        replay_log::{ReplayLog, WaitFor},
        shard_context::{Placement, ShardContext, is_apart},
    },
    op,
    recovery::grace::HeldReply,
    session::{BegunSlot, CELL_LEN, Principal, reply_data::take_data_out},
};
use stag_nfs_store::{Caller, Store};
use suspended::CompoundId;

/// Place of the compound's status in a reply.
const STATUS_AT: usize = ReplyHeader::LEN;
/// Octets of the results of a failed operation: room for them is left after each result.
const FAILURE_LEN: usize = 8;
/// Octets of a credential of RPCSEC_GSS: five words, and a handle of the engine.
const GSS_CREDENTIAL_LEN: usize = 20 + 16;

/// Facts of a call that its compound is checked and answered by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFacts {
    pub(crate) xid: Xid,
    pub(super) principal: Principal,
    /// Octets of the whole call.
    pub(super) request_len: usize,
}

impl CallFacts {
    /// The header of a reply that refuses its arguments.
    pub(crate) const fn garbage(&self) -> ReplyHeader<'static> {
        ReplyHeader { xid: self.xid, outcome: Outcome::accepted(Accepted::GarbageArgs) }
    }

    /// The facts of a call with these arguments.
    #[inline]
    pub(crate) fn of(header: &CallHeader<'_>, arguments: &Reader<'_>) -> Self {
        let principal = Principal::from(&header.credential);
        Self { xid: header.xid, principal, request_len: request_len(header, arguments) }
    }
}

/// A COMPOUND as it arrived.
pub(crate) struct CompoundCall<'a> {
    pub(crate) source: CallSource,
    pub(crate) facts: CallFacts,
    pub(crate) arguments: Reader<'a>,
    pub(crate) pulled: Pulled<'a>,
    pub(crate) caller: Caller,
    pub(crate) means: WaitMeans,
    pub(crate) shard_context: ShardContext<'a>,
}

/// Reason for which a compound gets no reply of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// Its arguments cannot be decoded: GARBAGE_ARGS.
    Garbage,
    /// There is no memory.
    NoMemory,
}

/// The state that a compound reached.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub(crate) enum CompoundOutcome {
    /// It is complete: its reply.
    Done(Answer),
    /// It gets no reply now: its caller is gone, or it is a retry of a compound that waits, and is
    /// answered when that completes.
    Silent,
    /// It was suspended, with a wish.
    Waits(CompoundId, WaitFor),
    /// The home executes it, in a slot of this shard; or, without one, it waits at the home for the
    /// slots of its session. No part of it has been executed.
    NeedsHome(Option<BegunSlot>),
}

/// Course of a compound after its SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceOutcome {
    /// Operations are executed.
    Usual,
    /// The reply was taken from the slot: it is complete.
    Replayed,
    /// Its reply was not kept: the next operation fails.
    NotKept,
    /// It is already waiting, and this caller took the place of the previous one.
    Joined,
    /// Another shard has to check it or continue it.
    NeedsHome,
}

/// End of a run of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The reply is complete.
    Over,
    /// It is already waiting, and is answered later.
    Joined,
    /// The next operation waits.
    Waits,
    /// Another shard has to check it or continue it.
    NeedsHome,
}

impl Nfs4 {
    /// Executes a compound, as far as it gets without waiting.
    pub(crate) fn compound<S: Store>(
        &mut self,
        cx: &mut Cx<'_>,
        store: &mut S,
        call: CompoundCall<'_>,
    ) -> Result<CompoundOutcome, NoReply> {
        let CompoundCall { source, facts, arguments, pulled, caller, means, shard_context } = call;
        let CallFacts { xid, principal, request_len } = facts;
        self.tally.compounds += 1;
        // Leases end by time alone, and there may have been no pass since.
        self.tidy(cx.now());
        self.renew_root(store);
        let operations = Compound::parse(arguments.clone()).map_err(|_: Error| NoReply::Garbage)?;
        let reply = ReplyWriter::begin(cx, xid, 0).ok_or(NoReply::NoMemory)?;
        let compound = CompoundState {
            replay_log: self.spare_logs.pop().unwrap_or_default(),
            recall_until: None,
            requester: Some(Requester::of(source)),
            source,
            caller,
            principal,
            request_len,
            operations: operations.head().operations,
            minor_version: operations.head().minor_version,
            reply,
            place: Filehandles::default(),
            slot: None,
            progress: Progress::default(),
            shard_facts: shard_context.facts,
        };
        let mut context = CompoundContext {
            nfs4: self,
            store,
            cx,
            arguments,
            pulled,
            means,
            compound,
            has_changed: false,
            has_acted: false,
            is_replay: false,
            shard_context,
        };
        context.begin(&operations);
        let end = context.run(operations);
        Ok(context.conclude_run(end))
    }
}

impl Nfs4 {
    /// Keeps the replay log of a compound that is over, for another one.
    #[inline]
    fn keep_log(&mut self, mut log: Box<ReplayLog>) {
        log.reset();
        self.spare_logs.push(log);
    }
}

/// Octets of the whole call.
#[inline(always)]
pub(super) fn request_len(header: &CallHeader<'_>, arguments: &Reader<'_>) -> usize {
    use stag_protocol::rpc::Credential;
    let credential = match &header.credential {
        Credential::None => 0,
        Credential::Sys(sys) => sys.wire_len() as usize,
        Credential::Other(auth) => padded(auth.body.len()),
        Credential::Proven(_) => GSS_CREDENTIAL_LEN,
    };
    arguments.remaining().saturating_add(credential).saturating_add(40)
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Writes the head of the reply.
    fn begin(&mut self, operations: &Compound<'_>) {
        let tag = operations.head().tag;
        let head = self.compound.reply.write(|writer| {
            writer.u32(0)?;
            // RFC 8881 §16.2.3: the tag of the request is returned.
            writer.opaque(tag.0)?;
            writer.u32(0)
        });
        debug_assert_eq!(head, Ok(()), "a message has room for the longest tag");
        let part = self.shard_context.asked.map(|asked| asked.part);
        let passed = part.map_or(0, |part| part.place);
        let until = part.filter(|part| !part.is_rest).map_or(u32::MAX, |part| part.place + 1);
        let count_at = self.compound.reply.len() - 4;
        self.compound.progress = Progress { count: 0, count_at, until, passed };
    }

    /// Executes operations until one fails or waits.
    pub(super) fn run(&mut self, mut operations: Compound<'_>) -> RunEnd {
        let facts = &self.facts();
        let (mut status, mut flow) = (Status4::Ok, SequenceOutcome::Usual);
        // RFC 8881 §16.2.3 [8881-324]: other minor versions are not served
        if !(1..=2).contains(&self.compound.minor_version) {
            self.compound.reply.patch_u32(STATUS_AT, Status4::MinorVersMismatch as u32);
            return RunEnd::Over;
        }
        while let Some(next) = operations.next() {
            let (place, left) = (self.compound.progress.count, operations.left());
            let step = Step { place, left, facts, rest: &operations };
            let before = self.compound.reply.len();
            let place = S::MAY_WAIT.then_some(self.compound.place);
            self.begin_at_home(self.compound.progress.count);
            let (operation, mut done) = match &next {
                Err(OperationFault { operation, status }) => {
                    (*operation, Err(OpExit::Fail(*status)))
                }
                Ok(request) if flow == SequenceOutcome::NotKept => {
                    (Some(request.operation()), Err(Status4::RetryUncachedRep.into()))
                }
                Ok(request) => {
                    let operation = request.operation();
                    (Some(operation), self.step(request, operation, &step, &mut flow))
                }
            };
            match flow {
                SequenceOutcome::Replayed => return RunEnd::Over,
                SequenceOutcome::Joined => return RunEnd::Joined,
                SequenceOutcome::NeedsHome => return RunEnd::NeedsHome,
                SequenceOutcome::Usual | SequenceOutcome::NotKept => {}
            }
            if self.compound.replay_log.is_waiting() {
                // It runs again from its first line, at the place where it began.
                self.compound.reply.truncate(before);
                self.compound.place = place.unwrap_or(self.compound.place);
                return RunEnd::Waits;
            }
            if let Err(stop @ (OpExit::Fail(Status4::Stale) | OpExit::NeedsHome)) = done {
                let has_written = self.compound.shard_facts.io.is_some();
                match self.shard_context.placement {
                    Placement::Here { first_change, has_room }
                        if self.compound.progress.count <= first_change =>
                    {
                        if has_room {
                            return RunEnd::NeedsHome;
                        }
                        done = Err(Status4::Delay.into());
                    }
                    // A repeated WRITE is harmless. A repeated change of names would find the
                    // change made.
                    Placement::Here { .. } if has_written => done = Err(Status4::Delay.into()),
                    _ if stop == OpExit::NeedsHome => done = Err(Status4::Delay.into()),
                    _ => {}
                }
            }
            self.compound.progress.count += 1;
            status = self.conclude(before, operation, done);
            self.nfs4.tally.count(operation, status);
            // RFC 8881 §16.2.3 [8881-325]: no operation is executed after one that failed
            if status != Status4::Ok {
                break;
            }
            self.has_changed = false;
            self.end_changes();
            match S::MAY_WAIT {
                true => self.compound.replay_log.clear(),
                false => self.compound.replay_log.names = AwaitedNames::default(),
            }
            if self.compound.progress.count == self.compound.progress.until {
                break;
            }
            if operations.left() > 0 && self.ends_slice(self.compound.progress.count) {
                return RunEnd::Waits;
            }
        }
        self.compound.reply.patch_u32(STATUS_AT, status as u32);
        self.compound
            .reply
            .patch_u32(self.compound.progress.count_at, self.compound.progress.count);
        RunEnd::Over
    }

    /// Concludes a completed compound, and suspends one that waits.
    pub(super) fn conclude_run(mut self, end: RunEnd) -> CompoundOutcome {
        if end == RunEnd::Waits {
            return self.put_aside();
        }
        if end == RunEnd::NeedsHome {
            let begun = self.begun();
            self.take_back(self.compound.progress.count);
            self.nfs4.keep_log(self.compound.replay_log);
            return CompoundOutcome::NeedsHome(begun);
        }
        let held = match end {
            RunEnd::Over => self.nfs4.recovery.take_held_client(),
            RunEnd::Joined | RunEnd::Waits | RunEnd::NeedsHome => None,
        };
        let is_own = self.compound.source.shard == OWN
            && self.compound.requester.is_none_or(|at| at.shard == OWN);
        let is_kept = self.compound.slot.is_some_and(|slot| slot.cache_this) || self.is_replay;
        if held.is_none() {
            self.release_slot();
        }
        self.end_changes();
        if self.compound.progress.passed > 0 {
            self.take_back(self.compound.progress.count.min(self.compound.progress.passed));
        }
        if S::MAY_WAIT {
            self.drop_pin();
        }
        self.nfs4.keep_log(self.compound.replay_log);
        match (end, held) {
            (RunEnd::Over, None) if is_kept && is_own => {
                let (cx, lists) = (&*self.cx, &self.nfs4.item_lists);
                let take = |message: &mut _| take_data_out(message, cx, lists);
                CompoundOutcome::Done(self.compound.reply.finish_kept(take))
            }
            (RunEnd::Over, None) => CompoundOutcome::Done(self.compound.reply.finish()),
            (_, Some(client)) => {
                // It is sent when the client is recorded; its slot is busy until then.
                let (requester, slot, reply) =
                    (self.compound.requester, self.compound.slot, self.compound.reply);
                self.nfs4.recovery.hold(HeldReply { client, requester, slot, reply });
                CompoundOutcome::Silent
            }
            (RunEnd::Joined | RunEnd::Waits | RunEnd::NeedsHome, None) => CompoundOutcome::Silent,
        }
    }

    /// Uncounts a compound that is mostly executed elsewhere, and its first `count` operations.
    fn take_back(&mut self, count: u32) {
        self.nfs4.tally.compounds -= 1;
        let passed = Compound::parse(self.arguments.clone()).into_iter().flatten();
        for request in passed.take(count as usize).flatten() {
            self.nfs4.tally.take_back(request.operation());
        }
    }

    /// Completes the results of an operation, and returns its status.
    fn conclude(&mut self, before: usize, operation: Option<Operation>, done: OpResult) -> Status4 {
        let status = match done {
            Ok(()) => return Status4::Ok,
            Err(OpExit::Written(status)) => return status,
            Err(OpExit::Fail(status)) => status,
            Err(OpExit::Wait | OpExit::NeedsHome) => {
                debug_assert!(false, "an operation waits for something, or goes elsewhere");
                Status4::ServerFault
            }
        };
        // All results that a failed operation wrote are removed.
        self.compound.reply.truncate(before);
        let fault = OperationFault { operation, status };
        let written = self.compound.reply.write(|writer| {
            fault.emit(writer)?;
            match operation {
                // RFC 8881 §18.30.2: with the attributes that were set, which are none.
                Some(Operation::SetAttr) => writer.u32(0),
                _ => Ok(()),
            }
        });
        debug_assert!(written.is_ok(), "room for a failure is left behind each operation");
        status
    }

    fn step(
        &mut self,
        request: &Request<'_>,
        operation: Operation,
        step: &Step<'_>,
        flow: &mut SequenceOutcome,
    ) -> OpResult {
        step.check_position(request, operation, self.compound.slot.as_ref())?;
        if let Request::Sequence(args) = request {
            *flow = self.sequence(args, step.facts)?;
            return Ok(());
        }
        self.check_room(request)?;
        op::carry_out(self, request)?;
        if is_measured_after(request) {
            self.check_len(self.reply_len().saturating_add(FAILURE_LEN))?;
        }
        if self.store.has_security() {
            self.judge_put(request, step.rest)?;
        }
        // The operations after PUTFH check the handle; here there are none.
        if let (Request::PutFh(_), 0, Ok(Node::Object(it))) = (request, step.left, self.current())
            && !self.refuses(&Node::Object(it))
        {
            return self.getattr(&it).map(drop);
        }
        Ok(())
    }

    /// Looks for room for the results of an operation before it runs (RFC 8881 §2.10.6.4).
    fn check_room(&mut self, request: &Request<'_>) -> OpResult {
        let longest = request.reply_len_max(&LIMITS).saturating_add(2 * FAILURE_LEN);
        if !is_measured_after(request) {
            self.check_len(self.reply_len().saturating_add(longest))?;
        }
        let here = if is_apart(request) { 64 } else { longest };
        if self.compound.reply.ensure(self.cx, here) { Ok(()) } else { Err(Status4::Delay.into()) }
    }

    /// Checks that a reply of `len` octets is within the limits of the session.
    fn check_len(&self, len: usize) -> Result<(), Status4> {
        let Some(slot) = self.compound.slot else { return Ok(()) };
        // RFC 8881 §2.10.6.4 [8881-322]: a reply keeps to the session's limit
        if len > slot.reply_max {
            return Err(Status4::RepTooBig);
        }
        // RFC 8881 §2.10.6.4 [8881-323]: so does one that is to be cached
        if slot.cache_this && len > slot.cached_max.min(CELL_LEN) {
            return Err(Status4::RepTooBigToCache);
        }
        Ok(())
    }
}

/// Returns true if the results of an operation are measured after it has run: it changes nothing,
/// and its results are nearly always much shorter than the maximum.
fn is_measured_after(request: &Request<'_>) -> bool {
    match request {
        Request::GetXattr(_) | Request::ListXattrs(_) => true,
        Request::GetAttr(asked) => asked.contains(Attribute::Acl as u32),
        _ => false,
    }
}
