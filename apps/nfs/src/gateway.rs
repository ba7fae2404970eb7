//! The gateway: the app that answers MOUNT version 3 and NFS version 3 (RFC 1813) from a store, over any transport.
//!
//! It keeps nothing between two calls but its counters: every call is answered before the next one is looked at. The
//! message of a reply is taken before the procedure runs, so that whatever was done can be answered.

use stag_engine::{Answer, AnswerItem, App, Call, Cx, config};
use stag_pools::{Buf, Extent};
use stag_protocol::{
    nfs::{
        mount::{self, Procedure as MountProcedure},
        v3::{self, Procedure},
    },
    rpc::{Accepted, AuthStatus, CallHeader, Credential, Denied, ReplyHeader},
    xdr::{Codec, NoRoom, Writer},
};

use crate::report::{Counters, Report};
use crate::store::files::Files;

/// Octets of the longest reply without item, listings excepted: it then also has room for an item that travels inline.
const MESSAGE_LEN: usize = config::INLINE_LEN;

// A file's octets fit one buffer of the pool, and a call with as many is pulled.
const _: () = assert!(crate::store::files::system::TRANSFER_MAX as usize <= config::ITEM_MAX);

/// The app of one shard. See the module.
#[derive(Debug)]
pub struct Gateway {
    files: Files,
    counters: Counters,
    /// Whether the last flush of the handle index failed: said once, not in every pass.
    is_flush_failing: bool,
}

/// A procedure to carry out.
enum Target {
    Mount(MountProcedure),
    Nfs(Procedure),
}

impl Gateway {
    /// The gateway to one store.
    pub fn new(files: Files) -> Self {
        let counters = Counters::new(files.shared().verifier());
        Self { files, counters, is_flush_failing: false }
    }

    /// The store.
    pub const fn files(&self) -> &Files {
        &self.files
    }

    /// The reply; nothing when there is no memory for one.
    fn answer(&mut self, cx: &Cx<'_>, call: Call<'_>) -> Option<Answer> {
        let header = &call.header;
        match route(header) {
            Ok(Target::Mount(procedure)) => match mount::Call::parse(procedure, call.arguments) {
                Ok(call) => self.mount(cx, header, &call),
                Err(_) => self.refuse(cx, header.reply(Accepted::GarbageArgs)),
            },
            Ok(Target::Nfs(procedure)) => match v3::Call::parse(procedure, call.arguments) {
                Ok(call) => self.nfs(cx, header, &call),
                Err(_) => self.refuse(cx, header.reply(Accepted::GarbageArgs)),
            },
            Err(refusal) => self.refuse(cx, refusal),
        }
    }

    fn mount(&mut self, cx: &Cx<'_>, header: &CallHeader<'_>, call: &mount::Call<'_>) -> Option<Answer> {
        let len = crate::mount::results_len(self.files.shared().exports(), call);
        let mut reply = Reply::begin(cx, header, len)?;
        let outcome = crate::mount::answer(&mut self.files, call, &mut reply);
        self.counters.count_mount(call.procedure(), outcome);
        Some(reply.finish())
    }

    fn nfs(&mut self, cx: &Cx<'_>, header: &CallHeader<'_>, call: &v3::Call<'_>) -> Option<Answer> {
        let mut reply = Reply::begin(cx, header, crate::v3::results_len(call))?;
        let status = crate::v3::answer(&mut self.files, &mut self.counters.data, cx, call, &mut reply);
        self.counters.count_nfs(call.procedure(), status);
        Some(reply.finish())
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

/// What is called, or the answer to a caller who cannot call that.
fn route(header: &CallHeader<'_>) -> Result<Target, ReplyHeader<'static>> {
    let target = match (header.program, header.version) {
        (mount::PROGRAM, mount::VERSION) => MountProcedure::new(header.procedure).map(Target::Mount),
        (v3::PROGRAM, v3::VERSION) => Procedure::new(header.procedure).map(Target::Nfs),
        (mount::PROGRAM | v3::PROGRAM, _) => {
            const { assert!(mount::VERSION == v3::VERSION) };
            return Err(header.reply(Accepted::ProgMismatch { low: v3::VERSION, high: v3::VERSION }));
        }
        _ => return Err(header.reply(Accepted::ProgUnavail)),
    };
    let target = target.ok_or_else(|| header.reply(Accepted::ProcUnavail))?;
    match (header.credential, &target) {
        // NULL needs no credential (RFC 5531 §12.1): it shows that the server is there.
        (Credential::None | Credential::Sys(_), _)
        | (_, Target::Mount(MountProcedure::Null) | Target::Nfs(Procedure::Null)) => Ok(target),
        _ => Err(header.deny(Denied::AuthError(AuthStatus::TOO_WEAK))),
    }
}

impl App for Gateway {
    type Report = Report;

    fn report(&self) -> Report {
        self.counters.report(self.files.shared().verifier())
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let (id, peer) = (call.id, call.peer);
        match self.answer(cx, call) {
            Some(answer) => cx.answer(id, answer),
            None => {
                // A call that cannot be answered must not stay open (RFC 8166 §4.5.4). Nothing was done for it.
                self.counters.count_unanswered();
                cx.disconnect(peer);
            }
        }
    }

    /// One write for all handles that the pass gave out, before any reply that carries one leaves.
    ///
    /// When it fails the replies leave nevertheless: the handles are good as long as this process lives, and the records
    /// wait for the next pass. Only a restart before a flush succeeds makes those handles stale.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {
        match self.files.flush() {
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
    fn begin(cx: &Cx<'_>, header: &CallHeader<'_>, len: usize) -> Option<Self> {
        let len = len.saturating_add(ReplyHeader::LEN).max(MESSAGE_LEN);
        let message = cx.message(len).or_else(|| cx.message(MESSAGE_LEN))?;
        let mut reply = Self { message, header: header.reply(Accepted::Success), item: None };
        let header = reply.header;
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
    pub(crate) fn put_item(&mut self, octets: Extent) {
        if !octets.is_empty() {
            self.item = Some(AnswerItem { position: self.message.len(), octets: octets.into() });
        }
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
