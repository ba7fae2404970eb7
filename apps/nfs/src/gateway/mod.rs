//! The gateway: the app that answers MOUNT 3, NFS 3 (RFC 1813), 4.1 (RFC 8881) and 4.2 (RFC 7862)
//! from a store, over any transport.
//!
//! Each call is answered before the next one is looked at, unless
//!
//! - the replies of its client are still on another shard ([`crate::reply_cache`]),
//! - a disk has to supply the data of a READ ([`stag_nfs_store::helpers`]),
//! - the store executes it elsewhere (`begin_call`),
//! - it is a compound that waits for one of these, or for delegations, a client record, its turn or
//!   another shard (`compounds`),
//! - the home shard has to execute it, or to judge a call of version 3 (`shards`).
//!
//! Small results that change nothing are written in place in the send buffer. A procedure that
//! changes something runs only once the message of its reply is reserved, so that every change made
//! can be answered.
//!
//! | file | what |
//! |---|---|
//! | `dispatch.rs`, `mounts.rs` | the procedure and the caller of a call; calls of MOUNT |
//! | `flavors.rs` | calls of version 3 whose security flavor an export refuses |
//! | `inline_reply.rs` | replies written in place |
//! | `begin_call.rs`, `start_call.rs`, `finish_call.rs` | calls that wait, until their replies |
//! | `compounds.rs` | NULL and COMPOUND of version 4, and the events that compounds wait for |
//! | `short_compounds.rs` | the most frequent compounds, answered without the interpreter |
//! | `shards.rs` | version 4 on several shards |
//! | `peers.rs`, `connection_policy.rs` | connected peers, and the operator's rules for them |

use std::sync::Arc;

use stag_engine::{
    Answer, App, Call, CallId, Cause, Cx, Outcome, PeerId, PeerSecurity, Pulled, Time, config,
};
use stag_pools::Buf;
use stag_protocol::{
    nfs::{
        mount,
        v3::{self, GetAttrArgs, Procedure, ReadArgs},
    },
    rpc::{Accepted, CallHeader, ReplyHeader},
};

mod begin_call;
mod compounds;
pub(crate) mod connection_policy;
mod dispatch;
mod finish_call;
mod flavors;
mod inline_reply;
mod mounts;
mod peers;
mod shards;
mod short_compounds;
mod start_call;

use crate::{
    mount::list::MountList,
    pending::{deferred_reads::DeferredReads, table::PendingCalls},
    reply::ReplyWriter,
    reply_cache::{self, CacheHandle, CacheVerdict, ShardCache, WaitingCall},
    report::{GatewayCounters, GatewayReport},
    requester::{BufferLimits, CallSource, ShardPeer},
    v3::CallMemory,
    v4::{ArrivalEnd, BegunSlot, Nfs4, characteristic_operation},
};
use begin_call::CallToBegin;
use dispatch::{CallTarget, ServedVersions, route};
use inline_reply::write_header;
use peers::ConnectedPeers;
use stag_nfs_store::{Effort, Procedures as _, Store, TRANSFER_MAX, files::Files};

// The data of a READ or WRITE fit one buffer of the pool, and a call with that much is pulled.
const _: () = assert!(TRANSFER_MAX as usize <= config::ITEM_MAX);

/// The app of one shard. It answers MOUNT and NFS from a store.
#[derive(Debug)]
pub struct Gateway<S = Files> {
    store: S,
    counters: GatewayCounters,
    cache: ShardCache,
    reads: DeferredReads,
    pending: PendingCalls,
    peers: ConnectedPeers,
    mounts: Arc<MountList>,
    /// Version 3 is served.
    serves_3: bool,
    /// Version 4 is served, here or by the home.
    serves_4: bool,
    /// Version 4, if it is served here.
    nfs4: Option<Box<Nfs4>>,
    /// The link to the home, if that is another shard.
    arrival: Option<Box<ArrivalEnd>>,
    /// Time of the next check of how long calls have been pending.
    next_look: Time,
    /// True if the last flush of the handle index failed; reported once, not in every pass.
    is_flush_failing: bool,
}

/// Reason for which there is no message to answer a call with.
enum NoMessage {
    /// Its reply was written in place in the send buffer.
    Sent,
    /// It gets one when its client's replies have arrived here, or the data of its file.
    Waits,
    /// Another shard has to check it or continue it: see `CompoundOutcome::NeedsHome`.
    NeedsHome(Option<BegunSlot>),
    /// It gets none: there is no memory, or the call is running on another connection.
    Dropped,
}

impl<S: Store> Gateway<S> {
    /// The gateway to one store.
    pub fn new(store: S) -> Self {
        let counters = GatewayCounters::new(store.verifier());
        let cache = ShardCache::new(CacheHandle::alone(), reply_cache::REPLIES);
        Self {
            store,
            counters,
            cache,
            reads: DeferredReads::new(),
            pending: PendingCalls::new(BufferLimits::of(config::Config::default().slots)),
            peers: ConnectedPeers::default(),
            mounts: Arc::default(),
            serves_3: true,
            serves_4: false,
            nfs4: None,
            arrival: None,
            next_look: Time(0),
            is_flush_failing: false,
        }
    }

    /// Limits the memory that pending calls hold to a quarter of a shard's medium and large
    /// buffers; `slots` is from the shard's configuration.
    #[must_use]
    pub fn with_slots(mut self, slots: [usize; 3]) -> Self {
        self.pending = PendingCalls::new(BufferLimits::of(slots));
        self
    }

    /// Shares replies among the gateways of several shards, up to `replies` of each.
    #[must_use]
    pub fn with_duplicates(mut self, handle: CacheHandle, replies: usize) -> Self {
        self.cache = ShardCache::new(handle, replies);
        self
    }

    /// Returns the cost of the duplicate request cache.
    pub const fn duplicates(&self) -> reply_cache::ReplyCacheBudget {
        self.cache.budget()
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    fn answer(&mut self, cx: &mut Cx<'_>, call: Call<'_>) -> Result<Answer, NoMessage> {
        let header = &call.header;
        let source = CallSource::own(call.id, call.peer, call.from);
        let served = ServedVersions { three: self.serves_3, four: self.serves_4 };
        let target = route(header, served);
        if self.store.has_security()
            && let Ok(CallTarget::Nfs(procedure)) = &target
            && let Some(answer) = self.judge_flavor(cx, &call, *procedure)
        {
            return answer;
        }
        if self.serves_4
            && let Some(answer) = self.refuse_beside(cx, &call, &target)
        {
            return answer;
        }
        self.carry_out(cx, source, &call, target)
    }

    /// Executes a call that no conflict holds back.
    #[inline(always)]
    fn carry_out(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        target: Result<CallTarget, ReplyHeader<'_>>,
    ) -> Result<Answer, NoMessage> {
        let header = &call.header;
        let answer = match target {
            Ok(CallTarget::Mount(procedure)) => {
                match mount::Call::parse(procedure, call.arguments.clone()) {
                    Ok(mount::Call::Mnt(path)) if S::MAY_WAIT && self.store.mount_waits() => {
                        return self.begin_mount(cx, source, header, path.0);
                    }
                    Ok(call) => self.mount(cx, source, header, &call),
                    Err(_) => return self.refuse(cx, call.id, header.reply(Accepted::GarbageArgs)),
                }
            }
            // The most frequent calls have their own path.
            Ok(CallTarget::Nfs(Procedure::Read)) => {
                match call.arguments.clone().whole::<ReadArgs>() {
                    Ok(args) if S::MAY_WAIT && self.store.waits(&args.file, Effort::Plain) => {
                        let (call, pulled) = (&v3::Call::Read(args), call.pulled);
                        return self.begin_call(cx, CallToBegin { source, header, call, pulled });
                    }
                    Ok(args) => return self.read(cx, source, header, &args),
                    Err(_) => return self.refuse(cx, call.id, header.reply(Accepted::GarbageArgs)),
                }
            }
            Ok(CallTarget::Nfs(Procedure::GetAttr)) => {
                match call.arguments.clone().whole::<GetAttrArgs>() {
                    Ok(args) if S::MAY_WAIT && self.store.waits(&args.object, Effort::Plain) => {
                        let (call, pulled) = (&v3::Call::GetAttr(args), call.pulled);
                        return self.begin_call(cx, CallToBegin { source, header, call, pulled });
                    }
                    Ok(args) => return self.getattr(cx, source, header, &args),
                    Err(_) => return self.refuse(cx, call.id, header.reply(Accepted::GarbageArgs)),
                }
            }
            Ok(CallTarget::Null4) => return self.null4(cx, call),
            Ok(CallTarget::Compound) => {
                cx.note_operation(call.id, || {
                    characteristic_operation(call.arguments.clone()).map(u32::from)
                });
                return match self.compound_short(cx, source, call) {
                    Some(answer) => answer,
                    None => self.compound(cx, source, call),
                };
            }
            Ok(CallTarget::Nfs(procedure)) => {
                match v3::Call::parse(procedure, call.arguments.clone()) {
                    Ok(nfs) if self.waits(&nfs) => {
                        let pulled = call.pulled;
                        return self
                            .begin_call(cx, CallToBegin { source, header, call: &nfs, pulled });
                    }
                    Ok(nfs) if reply_cache::is_kept(procedure) => {
                        return self.nfs_once(cx, source, header, &nfs);
                    }
                    Ok(nfs) if crate::v3::is_small(procedure) => {
                        return self.nfs_small(cx, source, header, &nfs);
                    }
                    Ok(nfs) => {
                        self.nfs(CallMemory { cx, pulled: call.pulled }, source, header, &nfs)
                    }
                    // RFC 8166 §4.5.2 [8166-53]: arguments that cannot be parsed get GARBAGE_ARGS
                    // RFC 5531 §8.1 [5531-11]: arguments that cannot be decoded get GARBAGE_ARGS
                    Err(_) => return self.refuse(cx, call.id, header.reply(Accepted::GarbageArgs)),
                }
            }
            Err(refusal) => return self.refuse(cx, call.id, refusal),
        };
        answer.ok_or(NoMessage::Dropped)
    }

    fn nfs(
        &mut self,
        memory: CallMemory<'_, '_>,
        source: CallSource,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Option<Answer> {
        let len = crate::v3::results_len(call);
        let mut reply = ReplyWriter::begin(memory.cx, header.xid, len)?;
        let caller = self.caller(source, header);
        self.store.now().act_as(&caller);
        let data = &mut self.counters.data;
        let status = crate::v3::answer(self.store.now(), data, memory, call, &mut reply);
        self.counters.count_nfs(call.procedure(), status);
        Some(reply.finish())
    }

    /// As [`nfs`](Self::nfs), but a retransmitted call gets its first reply.
    fn nfs_once(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Result<Answer, NoMessage> {
        if !self.cache.knows(source.from, cx.now()) {
            let waits = self.cache.wait(cx, source, header, call);
            return Err(waits.map_or(NoMessage::Dropped, |()| NoMessage::Waits));
        }
        self.carry_out_once(cx, source, header, call).ok_or(NoMessage::Dropped)
    }

    fn carry_out_once(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Option<Answer> {
        let mut reply = ReplyWriter::begin(cx, header.xid, 0)?;
        match self.cache.judge(source.from, header, call, cx.now()) {
            // RFC 1813 §4.5 [1813-103]: a repeated call gets its first reply, not a second run
            // RFC 5531 §5 [5531-4]: a repeated call gets its first reply
            CacheVerdict::Replay(octets) => reply.replace(octets),
            CacheVerdict::Busy => return None,
            CacheVerdict::Execute(ticket) => {
                let caller = self.caller(source, header);
                self.store.now().act_as(&caller);
                let memory = CallMemory { cx, pulled: Pulled::default() };
                let data = &mut self.counters.data;
                let status = crate::v3::answer(self.store.now(), data, memory, call, &mut reply);
                self.counters.count_nfs(call.procedure(), status);
                self.cache.finish(ticket, reply.message());
            }
        }
        Some(reply.finish())
    }

    /// Sends or drops the reply, as the result of [`answer`](Self::answer) requires.
    fn conclude(
        &mut self,
        cx: &mut Cx<'_>,
        id: CallId,
        peer: PeerId,
        answer: Result<Answer, NoMessage>,
    ) {
        match answer {
            Ok(answer) => {
                self.write_index();
                cx.answer(id, answer);
            }
            Err(NoMessage::Sent | NoMessage::Waits) => {}
            // `NeedsHome` has been handled where compounds are executed.
            Err(NoMessage::NeedsHome(_) | NoMessage::Dropped) => {
                // A call that cannot be answered must not stay open. It had no effect.
                // RFC 8166 §4.5.4 [8166-55]: a call that cannot be answered ends the connection
                self.counters.count_unanswered();
                cx.disconnect(peer);
            }
        }
    }

    /// Resumes calls that waited for replies from other shards, then sends the replies that those
    /// await.
    fn exchange_mail(&mut self, cx: &mut Cx<'_>) {
        self.cache.read_mail(cx.now());
        while let Some(waiting) = self.cache.next_ready(cx.now()) {
            let (header, call) = waiting.call();
            let WaitingCall { id, peer, from, .. } = waiting;
            let source = CallSource::own(id, peer, from);
            let answer = if self.waits(&call) {
                let pulled = Pulled::default();
                self.begin_call(cx, CallToBegin { source, header: &header, call: &call, pulled })
            } else {
                self.carry_out_once(cx, source, &header, &call).ok_or(NoMessage::Dropped)
            };
            self.conclude(cx, id, peer, answer);
        }
        self.cache.write_mail();
    }

    /// Writes newly issued handles to the index.
    fn write_index(&mut self) {
        write_index(&mut self.store, &mut self.counters, &mut self.is_flush_failing);
    }

    fn refuse(
        &mut self,
        cx: &mut Cx<'_>,
        id: CallId,
        refusal: ReplyHeader<'_>,
    ) -> Result<Answer, NoMessage> {
        self.counters.count_refusal(&refusal.outcome);
        let (xid, why) = (refusal.xid.0, refusal.outcome);
        tracing::debug!(target: "stag", xid, ?why, "a call was refused");
        Err(write_header(cx, id, refusal))
    }
}

/// Writes newly issued handles to the index. Called before a reply that carries one may be sent,
/// which over shared memory is at once.
///
/// If it fails the replies are sent nevertheless: the handles are valid for the life of this
/// process, and the records wait for the next call. Only a restart before a write succeeds makes
/// those handles stale.
#[inline]
fn write_index<S: Store>(store: &mut S, counters: &mut GatewayCounters, is_failing: &mut bool) {
    match store.flush() {
        Ok(()) => *is_failing = false,
        Err(error) => {
            counters.count_failed_flush();
            if !std::mem::replace(is_failing, true) {
                eprintln!(
                    "stag-nfs: cannot write the handle index: {error}; handles given out \
                     meanwhile end with this process"
                );
            }
        }
    }
}

impl<S: Store> App for Gateway<S> {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        GatewayReport {
            duplicates: self.cache.report(),
            nfs4: self.report_nfs4(),
            faults: self.store.faults(),
            ..self.counters.report(self.store.verifier())
        }
    }

    fn detailed_report(&self) -> GatewayReport {
        GatewayReport { sessions: self.session_states(), ..self.report() }
    }

    fn wants_idle_passes(&self) -> bool {
        self.cache.has_work()
            || self.reads.are_deferred()
            || self.pending.are_under_way()
            || self.nfs4.as_ref().is_some_and(|nfs4| nfs4.has_work())
            || self.arrival.as_ref().is_some_and(|arrival| arrival.has_work())
            || self.store.wants_idle_passes()
    }

    fn idle_pass_at(&self) -> Option<Time> {
        let recalls = self.nfs4.as_ref().and_then(|nfs4| nfs4.recalls_until());
        let waiters = self.nfs4.as_ref().and_then(|nfs4| nfs4.next_waiter_look());
        recalls.into_iter().chain(waiters).chain(self.next_patience_look()).min()
    }

    fn sink(&mut self, len: usize) -> Option<Buf> {
        self.store.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let (id, peer) = (call.id, call.peer);
        let answer = self.answer(cx, call);
        self.conclude(cx, id, peer, answer);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.take_callback_reply(cx, &outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.peers.add(cx, peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, peer: PeerId, _cause: Cause) {
        self.cache.forget(peer);
        self.reads.forget(peer);
        self.pending.forget(peer);
        self.peers.remove(peer);
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.forget_peer(ShardPeer::own(peer));
        }
        if let Some(arrival) = &mut self.arrival {
            arrival.forget(peer);
        }
    }

    fn on_security(&mut self, _cx: &mut Cx<'_>, peer: PeerId, security: &PeerSecurity) {
        self.note_security(peer, security);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.exchange_mail(cx);
        self.resume_reads(cx);
        if S::MAY_WAIT {
            self.resume_calls(cx);
        }
        self.peers.review(cx);
        if self.serves_4 {
            self.read_messages(cx);
        }
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.tidy(cx.now());
            nfs4.answer_desk(&self.store, cx.now());
            nfs4.tend_local_waiters(&mut self.store, cx.now());
            nfs4.call_back(cx);
            nfs4.tend_watched(&mut self.store, cx.now());
            nfs4.show_weakened(&mut self.store);
            nfs4.unpin_swept(&mut self.store);
        }
        self.resume_suspended(cx);
        if self.serves_4 {
            self.send_messages();
        }
        self.serve_others(cx);
        self.store.tidy(cx.now());
        self.write_index();
    }
}
