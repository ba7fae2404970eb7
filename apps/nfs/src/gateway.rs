//! The gateway: the app that answers MOUNT version 3 and NFS version 3 (RFC 1813) from a store, over any transport.
//!
//! It keeps nothing between two calls but its counters, and the replies that a client may ask for again ([`crate::drc`]): every call is
//! answered before the next one is looked at, but for one whose client's replies are still with another shard, and for a
//! READ that a disk has to bring ([`crate::helpers`]). The
//! message of a reply is taken before the procedure runs, so that whatever was done can be answered.

use stag_engine::{
    Answer, AnswerItem, App, Call, CallId, Cause, Cx, Extents, PeerAddress, PeerId, Pulled, config,
};
use stag_pools::Buf;
use stag_protocol::{
    nfs::{
        mount::{self, Procedure as MountProcedure},
        v3::{self, Procedure, ReadArgs},
    },
    rpc::{Accepted, AuthStatus, CallHeader, Credential, Denied, ReplyHeader},
    xdr::{Codec, NoRoom, Writer},
};

use crate::deferred::{Deferred, Table};
use crate::drc::{self, Branch, Desk, Verdict};
use crate::report::{Counters, Report};
use crate::store::{self, Store, TRANSFER_MAX, User, files::Files};
use crate::v3::Turn;

/// Octets of the longest reply without item, listings excepted: it then also has room for an item that travels inline.
const MESSAGE_LEN: usize = config::INLINE_LEN;

// A file's octets fit one buffer of the pool, and a call with as many is pulled.
const _: () = assert!(TRANSFER_MAX as usize <= config::ITEM_MAX);

/// The app of one shard. See the module.
#[derive(Debug)]
pub struct Gateway<S = Files> {
    store: S,
    counters: Counters,
    desk: Desk,
    reads: Table,
    /// Whether the last flush of the handle index failed: said once, not in every pass.
    is_flush_failing: bool,
}

/// Who waits for an answer, and where.
type Caller = (CallId, PeerId, PeerAddress);

/// Why a call has no answer yet.
enum Unanswered {
    /// It gets one when its client's replies are here, or its file's octets.
    Waits,
    /// It gets none: there is no memory, or it is being carried out on another connection.
    Dropped,
}

/// A procedure to carry out.
enum Target {
    Mount(MountProcedure),
    Nfs(Procedure),
}

impl<S: Store> Gateway<S> {
    /// The gateway to one store.
    pub fn new(store: S) -> Self {
        let counters = Counters::new(store.verifier());
        let desk = Desk::new(Branch::alone(), drc::REPLIES);
        Self { store, counters, desk, reads: Table::new(), is_flush_failing: false }
    }

    /// Lets the gateways of several shards know each other's replies, up to `replies` of each at a time.
    #[must_use]
    pub fn with_duplicates(mut self, branch: Branch, replies: usize) -> Self {
        self.desk = Desk::new(branch, replies);
        self
    }

    /// What the duplicate request cache costs.
    pub const fn duplicates(&self) -> drc::Budget {
        self.desk.budget()
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    fn answer(&mut self, cx: &Cx<'_>, call: Call<'_>) -> Result<Answer, Unanswered> {
        let header = &call.header;
        let caller = (call.id, call.peer, call.from);
        let answer = match route(header) {
            Ok(Target::Mount(procedure)) => match mount::Call::parse(procedure, call.arguments) {
                Ok(call) => self.mount(cx, header, &call),
                Err(_) => self.refuse(cx, header.reply(Accepted::GarbageArgs)),
            },
            Ok(Target::Nfs(procedure)) => match v3::Call::parse(procedure, call.arguments) {
                Ok(nfs) if drc::is_kept(procedure) => return self.nfs_once(cx, caller, header, &nfs),
                Ok(v3::Call::Read(args)) => return self.read(cx, caller, header, args),
                Ok(nfs) => self.nfs((cx, call.pulled), call.from, header, &nfs),
                // RFC 8166 §4.5.2 [8166-53], draft 004 §6.4.1 [exp-38]
                // RFC 5531 §8.1 [5531-11]
                Err(_) => self.refuse(cx, header.reply(Accepted::GarbageArgs)),
            },
            Err(refusal) => self.refuse(cx, refusal),
        };
        answer.ok_or(Unanswered::Dropped)
    }

    fn mount(&mut self, cx: &Cx<'_>, header: &CallHeader<'_>, call: &mount::Call<'_>) -> Option<Answer> {
        let len = crate::mount::results_len(&self.store, call);
        let mut reply = Reply::begin(cx, header.reply(Accepted::Success), len)?;
        let outcome = crate::mount::answer(&mut self.store, call, &mut reply);
        self.counters.count_mount(call.procedure(), outcome);
        Some(reply.finish())
    }

    fn nfs(
        &mut self,
        (cx, pulled): (&Cx<'_>, Pulled<'_>),
        from: PeerAddress,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Option<Answer> {
        let mut reply = Reply::begin(cx, header.reply(Accepted::Success), crate::v3::results_len(call))?;
        self.store.act_as(&caller(&header.credential, from));
        let data = &mut self.counters.data;
        let status = crate::v3::answer(&mut self.store, data, (cx, pulled), call, &mut reply);
        self.counters.count_nfs(call.procedure(), status);
        Some(reply.finish())
    }

    /// As [`nfs`](Self::nfs), but a READ whose octets are not in memory is put off.
    fn read(
        &mut self,
        cx: &Cx<'_>,
        (id, peer, from): Caller,
        header: &CallHeader<'_>,
        args: ReadArgs,
    ) -> Result<Answer, Unanswered> {
        let caller = caller(&header.credential, from);
        let read = Deferred { id, peer, header: header.reply(Accepted::Success), args, caller };
        self.attempt(cx, &read, Turn::First(self.reads.next_ticket()))
    }

    fn attempt(&mut self, cx: &Cx<'_>, read: &Deferred, turn: Turn) -> Result<Answer, Unanswered> {
        let mut reply = Reply::begin(cx, read.header, 0).ok_or(Unanswered::Dropped)?;
        self.store.act_as(&read.caller);
        let data = &mut self.counters.data;
        match crate::v3::read(&mut self.store, data, cx, (&read.args, turn), &mut reply) {
            Some(status) => {
                self.counters.count_nfs(Procedure::Read, status);
                Ok(reply.finish())
            }
            None => {
                self.reads.put(*read);
                Err(Unanswered::Waits)
            }
        }
    }

    /// Carries on the READs whose octets were brought.
    fn resume_reads(&mut self, cx: &mut Cx<'_>) {
        while let Some(fetched) = self.store.next_fetched() {
            if let Some(read) = self.reads.take(fetched.ticket) {
                let answer = self.attempt(cx, &read, Turn::Again(fetched.brought));
                self.conclude(cx, (read.id, read.peer), answer);
            }
        }
    }

    /// As [`nfs`](Self::nfs), but a call that comes again gets the reply that it got the first time.
    fn nfs_once(
        &mut self,
        cx: &Cx<'_>,
        caller: Caller,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Result<Answer, Unanswered> {
        if !self.desk.knows(caller.2, cx.now()) {
            let waits = self.desk.wait(cx, caller, header, call);
            return Err(waits.map_or(Unanswered::Dropped, |()| Unanswered::Waits));
        }
        self.carry_out_once(cx, caller.2, header, call).ok_or(Unanswered::Dropped)
    }

    fn carry_out_once(
        &mut self,
        cx: &Cx<'_>,
        from: PeerAddress,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Option<Answer> {
        // RFC 5531 §5 [5531-4]
        let mut reply = Reply::begin(cx, header.reply(Accepted::Success), 0)?;
        match self.desk.judge(from, header, call, cx.now()) {
            // RFC 1813 §4.5 [1813-103]
            Verdict::Replay(octets) => reply.replace(octets),
            Verdict::Busy => return None,
            Verdict::Execute(ticket) => {
                self.store.act_as(&caller(&header.credential, from));
                let (data, nothing) = (&mut self.counters.data, Pulled::default());
                let status = crate::v3::answer(&mut self.store, data, (cx, nothing), call, &mut reply);
                self.counters.count_nfs(call.procedure(), status);
                self.desk.finish(ticket, &reply.message);
            }
        }
        Some(reply.finish())
    }

    /// Does what the answer of [`answer`](Self::answer) says.
    fn conclude(
        &mut self,
        cx: &mut Cx<'_>,
        (id, peer): (CallId, PeerId),
        answer: Result<Answer, Unanswered>,
    ) {
        match answer {
            Ok(answer) => cx.answer(id, answer),
            Err(Unanswered::Waits) => {}
            Err(Unanswered::Dropped) => {
                // A call that cannot be answered must not stay open. Nothing was done for it.
                // RFC 8166 §4.5.4 [8166-55]
                self.counters.count_unanswered();
                cx.disconnect(peer);
            }
        }
    }

    /// Carries on what waited for replies from other shards, then gives those what they wait for.
    fn exchange_mail(&mut self, cx: &mut Cx<'_>) {
        self.desk.read_mail(cx.now());
        while let Some(waiting) = self.desk.next_ready(cx.now()) {
            let (header, call) = waiting.call();
            let answer = self.carry_out_once(cx, waiting.from, &header, &call);
            self.conclude(cx, (waiting.id, waiting.peer), answer.ok_or(Unanswered::Dropped));
        }
        self.desk.write_mail();
    }

    fn refuse(&mut self, cx: &Cx<'_>, refusal: ReplyHeader<'_>) -> Option<Answer> {
        self.counters.count_refusal(&refusal.outcome);
        let mut message = cx.message(ReplyHeader::REFUSAL_LEN_MAX)?;
        let mut writer = Writer::new(message.spare_mut());
        refusal.emit(&mut writer).expect("the message was taken for the longest refusal");
        let len = writer.len();
        message.extend(len);
        Some(Answer { message, item: None })
    }
}

/// Who calls, for the store.
fn caller(credential: &Credential<'_>, address: PeerAddress) -> store::Caller {
    let user = match credential {
        Credential::Sys(sys) => User::Unix { uid: sys.uid, gid: sys.gid, gids: sys.gids },
        Credential::None | Credential::Other(_) => User::Anyone,
    };
    store::Caller { user, address }
}

/// What is called, or the answer to a caller who cannot call that.
fn route(header: &CallHeader<'_>) -> Result<Target, ReplyHeader<'static>> {
    // RFC 5531 §8.1 [5531-5]
    let target = match (header.program, header.version) {
        // RFC 8267 §5.1 [8267-1]
        (mount::PROGRAM, mount::VERSION) => MountProcedure::new(header.procedure).map(Target::Mount),
        (v3::PROGRAM, v3::VERSION) => Procedure::new(header.procedure).map(Target::Nfs),
        (mount::PROGRAM | v3::PROGRAM, _) => {
            const { assert!(mount::VERSION == v3::VERSION) };
            // RFC 5531 §8.1 [5531-9]
            return Err(header.reply(Accepted::ProgMismatch { low: v3::VERSION, high: v3::VERSION }));
        }
        // RFC 5531 §8.1 [5531-8]
        _ => return Err(header.reply(Accepted::ProgUnavail)),
    };
    // RFC 5531 §8.1 [5531-10]
    let target = target.ok_or_else(|| header.reply(Accepted::ProcUnavail))?;
    match (header.credential, &target) {
        // NULL needs no credential (RFC 5531 §12.1): it shows that the server is there.
        (Credential::None | Credential::Sys(_), _)
        // RFC 1813 §3.3.0 [1813-20]
        // RFC 5531 §12.1 [5531-25]
        | (_, Target::Mount(MountProcedure::Null) | Target::Nfs(Procedure::Null)) => Ok(target),
        // RFC 8166 §8.2.2.3 [8166-70]
        // RFC 5531 §9 [5531-20]
        _ => Err(header.deny(Denied::AuthError(AuthStatus::TOO_WEAK))),
    }
}

impl<S: Store> App for Gateway<S> {
    type Report = Report;

    fn report(&self) -> Report {
        Report { duplicates: self.desk.report(), ..self.counters.report(self.store.verifier()) }
    }

    fn sink(&mut self, len: usize) -> Option<Buf> {
        self.store.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let (id, peer) = (call.id, call.peer);
        let answer = self.answer(cx, call);
        self.conclude(cx, (id, peer), answer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, peer: PeerId, _cause: Cause) {
        self.desk.forget(peer);
        self.reads.forget(peer);
    }

    /// One write for all handles that the pass gave out, before any reply that carries one leaves.
    ///
    /// When it fails the replies leave nevertheless: the handles are good as long as this process lives, and the records
    /// wait for the next pass. Only a restart before a flush succeeds makes those handles stale.
    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.exchange_mail(cx);
        self.resume_reads(cx);
        self.store.tidy(cx.now());
        match self.store.flush() {
            Ok(()) => self.is_flush_failing = false,
            Err(error) => {
                self.counters.count_failed_flush();
                if !std::mem::replace(&mut self.is_flush_failing, true) {
                    eprintln!(
                        "stag-nfs: cannot write the handle index: {error}; handles given out meanwhile end with this process"
                    );
                }
            }
        }
    }
}

/// A reply that is being written in place. Its message already holds the header of a success.
#[derive(Debug)]
pub(crate) struct Reply {
    message: Buf,
    header: ReplyHeader<'static>,
    item: Option<AnswerItem>,
}

impl Reply {
    /// A reply with room for `len` octets of results if there is memory for it, and for all but long listings in any case.
    fn begin(cx: &Cx<'_>, header: ReplyHeader<'static>, len: usize) -> Option<Self> {
        let len = len.saturating_add(ReplyHeader::LEN).max(MESSAGE_LEN);
        let message = cx.message(len).or_else(|| cx.message(MESSAGE_LEN))?;
        let mut reply = Self { message, header, item: None };
        reply.write(|writer| header.emit(writer)).expect("a message has room for the header");
        Some(reply)
    }

    /// Adds what `write` writes; when that fails, nothing.
    pub(crate) fn write<T, E>(
        &mut self,
        write: impl FnOnce(&mut Writer<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = Writer::new(self.message.spare_mut());
        let value = write(&mut writer)?;
        let len = writer.len();
        self.message.extend(len);
        Ok(value)
    }

    /// Adds results. If they do not fit, which is a bug of ours, the call is answered with SYSTEM_ERR.
    pub(crate) fn put<'a>(&mut self, results: &impl Codec<'a>) {
        let written: Result<(), NoRoom> = self.write(|writer| results.emit(writer));
        debug_assert_eq!(written, Ok(()), "results have room in their message");
        if written.is_err() {
            self.fail();
        }
    }

    /// Adds an item whose length word was the last that was put. An empty one is no item (RFC 8166 §3.4.6).
    pub(crate) fn put_item(&mut self, octets: Extents) {
        if !octets.is_empty() {
            self.item = Some(AnswerItem { position: self.message.len(), octets });
        }
    }

    /// Makes it what was answered before.
    fn replace(&mut self, octets: &[u8]) {
        self.message.truncate(0);
        self.message.append(octets).expect("a message has room for any reply that is kept");
    }

    /// Makes it the reply of a server that failed.
    pub(crate) fn fail(&mut self) {
        let outcome = stag_protocol::rpc::Outcome::accepted(Accepted::SystemErr);
        let header = ReplyHeader { outcome, ..self.header };
        self.item = None;
        self.message.truncate(0);
        self.write(|writer| header.emit(writer)).expect("it is as long as the header it replaces");
    }

    fn finish(self) -> Answer {
        Answer { message: self.message, item: self.item }
    }
}
