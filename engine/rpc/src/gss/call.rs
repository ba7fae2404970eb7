//! One call in a context (RFC 2203 §5.3): signed each time it is sent, its reply verified.

use super::ClientContext;
use crate::{error::UnprovenReply, shard::random};
use stag_engine::{CannotSign, Cx, Request, SignCall, Token};
use stag_gss::{ProtectedRoom, Protection, TokenFault};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{
        self, Accepted, Auth, AuthStatus, CallHeader, Credential, Denied, ReplyHeader, Xid,
        gss::{CREDENTIAL_MAX, GssCredential, GssData, GssService},
    },
    xdr::{NoRoom, Reader, Writer, padded},
};
use std::{cell::Cell, rc::Rc, time::Duration};

/// Offset of the sequence number in a call: XID to procedure have six words, the flavor and the
/// length of the credential two, its version and its procedure two.
const SEQUENCE_AT: usize = 40;
/// Transmissions of one call whose replies are recognized.
const NUMBERS: usize = 4;
/// Octets that the verifier of a reply has more than AUTH_NONE.
const REPLY_VERIFIER: usize = 40;

/// The result of [`ProtectedCall::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyVerdict {
    /// The reply is the server's, and its results are in the clear. A denial is proven by nothing;
    /// it has no results.
    Taken,
    /// The server does not have the context any more: the call was not executed, and may be made
    /// again in another one.
    NoContext,
    /// The reply must not be used.
    Unproven(UnprovenReply),
}

/// A call of a program inside a context.
#[derive(Debug)]
pub struct ProtectedCall {
    context: Rc<ClientContext>,
    /// Protection of its arguments and results.
    service: GssService,
    /// True if it ends the context.
    is_destroy: bool,
    /// Numbers of its transmissions, the latest first; zero where there was none.
    numbers: Cell<[u32; NUMBERS]>,
    /// The number of the next transmission, which was taken when the call was made.
    first: Cell<Option<u32>>,
    /// Octets of the header, with the verifier.
    header_len: usize,
    /// The arguments that are protected, in the clear: encryption happens in the message.
    arguments: Vec<u8>,
}

/// Program, version and procedure of a protected call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalledProgram {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure's number.
    pub procedure: u32,
}

impl ProtectedCall {
    /// A call with these arguments, which are XDR. Under [`GssService::None`] an argument that
    /// travels in a chunk is not among them. None: the context's numbers are used up.
    pub fn new(context: &Rc<ClientContext>, arguments: &[u8]) -> Option<Rc<Self>> {
        debug_assert!(arguments.len().is_multiple_of(4), "XDR has words");
        Self::with(context, context.service(), arguments.to_vec()).map(Rc::new)
    }

    /// Makes another call of `this`; `fill` appends its arguments to an empty vector. The memory of
    /// the former call is used again unless a shard still has that call. None: the context's
    /// numbers are used up, and `this` is unchanged.
    pub fn renew(
        this: &mut Rc<Self>,
        context: &Rc<ClientContext>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Option<()> {
        let former = Rc::get_mut(this).map(|call| std::mem::take(&mut call.arguments));
        let mut arguments = former.unwrap_or_default();
        arguments.clear();
        fill(&mut arguments);
        debug_assert!(arguments.len().is_multiple_of(4), "XDR has words");
        let call = Self::with(context, context.service(), arguments)?;
        match Rc::get_mut(this) {
            Some(place) => *place = call,
            None => *this = Rc::new(call),
        }
        Some(())
    }

    /// A call that ends the context (RFC 2203 §5.4). It has neither arguments nor results.
    pub fn destroy(context: &Rc<ClientContext>) -> Option<Rc<Self>> {
        let destroy = Self::with(context, GssService::None, Vec::new())?;
        Some(Rc::new(Self { is_destroy: true, ..destroy }))
    }

    fn with(context: &Rc<ClientContext>, service: GssService, arguments: Vec<u8>) -> Option<Self> {
        // RFC 2203 §5.3.3.1 [2203-14]: each transmission has a higher number
        let first = context.keys.next_sequence()?;
        let credential = 8 + padded(20 + context.handle().len());
        Some(Self {
            context: Rc::clone(context),
            service,
            is_destroy: false,
            numbers: Cell::default(),
            first: Cell::new(Some(first)),
            header_len: SEQUENCE_AT - 16 + credential + Self::verifier_len(context),
            arguments,
        })
    }

    const fn verifier_len(context: &ClientContext) -> usize {
        8 + padded(context.keys.keys().mic_len())
    }

    /// Its context.
    pub const fn context(&self) -> &Rc<ClientContext> {
        &self.context
    }

    /// Protection of its arguments and results.
    pub const fn service(&self) -> GssService {
        self.service
    }

    /// Its arguments in the clear.
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// The number of its latest transmission, or of the first one before that.
    pub fn sequence(&self) -> u32 {
        let [latest, ..] = self.numbers.get();
        self.first.get().unwrap_or(latest)
    }

    /// Octets that protection adds to its arguments.
    fn room(&self) -> ProtectedRoom {
        self.context.keys.keys().room(self.service)
    }

    /// Octets of the message.
    pub fn message_len(&self) -> usize {
        let room = self.room();
        self.header_len + room.front + self.arguments.len() + room.back
    }

    /// Sizes of the longest reply, whose unprotected results would be in a message of `reply_max`
    /// octets and an item of `item_max`: octets of the message, and of the item that may travel in
    /// a chunk of its own.
    pub fn reply_room(&self, reply_max: usize, item_max: usize) -> (usize, usize) {
        let room = self.room();
        // RFC 8166 §8.2.2.3: with integrity or privacy no part of a message is in a chunk alone
        let (apart, within) = match self.service {
            GssService::None => (item_max, 0),
            _ => (0, padded(item_max)),
        };
        let results = reply_max.saturating_add(within).max(ReplyHeader::REFUSAL_LEN_MAX);
        (results + REPLY_VERIFIER + room.front + room.back, apart)
    }

    /// Writes the message into `writer`, which has room for [`ProtectedCall::message_len`] octets.
    /// Its signatures are missing: [`ProtectedCall::signer`] adds them.
    ///
    /// # Errors
    /// If there is no room.
    pub fn write(&self, to: CalledProgram, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let (context, mut room) = (&self.context, [0; CREDENTIAL_MAX]);
        let data = GssData { sequence: 0, service: self.service, handle: context.handle() };
        let credential = match self.is_destroy {
            true => GssCredential::Destroy(data),
            false => GssCredential::Data(data),
        };
        let body = credential.emit(&mut room)?;
        let CalledProgram { program, version, procedure } = to;
        let mic = [0; Auth::BODY_MAX];
        let mic = mic.get(..context.keys.keys().mic_len()).ok_or(NoRoom)?;
        let header = CallHeader {
            xid: Xid(0),
            program,
            version,
            procedure,
            credential: Credential::Other(Auth::gss(body)),
            verifier: Auth::gss(mic),
        };
        header.emit(writer)?;
        debug_assert_eq!(writer.len(), self.header_len, "the header has a known length");
        let around = self.room();
        for _ in 0..around.front / 4 {
            writer.u32(0)?;
        }
        writer.fixed(&self.arguments)?;
        for _ in 0..around.back / 4 {
            writer.u32(0)?;
        }
        Ok(())
    }

    /// The request of a call without chunks for its items and without results, as
    /// [`ProtectedCall::destroy`] makes one. None when memory for it is short.
    pub fn whole_request(
        &self,
        cx: &Cx<'_>,
        to: CalledProgram,
        timeout: Duration,
        token: Token,
    ) -> Option<Request> {
        let message = self.message(cx, to)?;
        let (reply_max, _) = self.reply_room(ReplyHeader::LEN, 0);
        Some(Request { message, item: None, reply_max, result: None, timeout, token })
    }

    /// The message in memory of the shard. Its signatures are missing.
    pub fn message(&self, cx: &Cx<'_>, to: CalledProgram) -> Option<Buf> {
        let len = self.message_len();
        let mut message = cx.message(len)?;
        let mut writer = Writer::new(message.spare_mut().get_mut(..len)?);
        self.write(to, &mut writer).ok()?;
        message.extend(len);
        Some(message)
    }

    /// Signs the call each time it is sent ([`Cx::call_signed`](stag_engine::Cx::call_signed)).
    pub fn signer(self: &Rc<Self>) -> Rc<dyn SignCall> {
        Rc::<Self>::clone(self)
    }

    /// Judges a reply, and leaves its header and its results in the clear.
    pub fn open(&self, reply: &mut Vec<u8>) -> ReplyVerdict {
        let ProvenReply { results_at, sequence, is_protected } = match self.prove(reply) {
            Ok(proven) => proven,
            Err(verdict) => return verdict,
        };
        if !is_protected {
            return ReplyVerdict::Taken;
        }
        // RFC 2203 §5.3.3.2 [2203-24]: results have the service and the number of their call
        let body = reply.get_mut(results_at..).unwrap_or_default();
        match self.context.keys.open_results(self.service, sequence, body) {
            Ok(results) => {
                reply.truncate(results_at + results.end);
                reply.drain(results_at..results_at + results.start);
                ReplyVerdict::Taken
            }
            Err(fault) => ReplyVerdict::Unproven(UnprovenReply::Results(fault)),
        }
    }

    /// Judges a reply where it is; its results have to be opened by [`ProtectedCall::open`] unless
    /// the call's service is [`GssService::None`].
    pub fn judge(&self, reply: &[u8]) -> ReplyVerdict {
        debug_assert_eq!(self.service, GssService::None, "results are in the clear");
        self.prove(reply).map_or_else(|verdict| verdict, |_| ReplyVerdict::Taken)
    }

    /// Verifies the verifier of a reply, if it has results or the status of an accepted call.
    fn prove(&self, reply: &[u8]) -> Result<ProvenReply, ReplyVerdict> {
        let unproven = |fault| ReplyVerdict::Unproven(UnprovenReply::Verifier(fault));
        let mut reader = Reader::new(reply);
        let Ok(ReplyHeader { outcome, .. }) = ReplyHeader::parse(&mut reader) else {
            // It cannot be decoded, and is not used.
            return Err(unproven(TokenFault::Length));
        };
        let (verifier, status) = match outcome {
            rpc::Outcome::Accepted { verifier, status } => (verifier, status),
            // RFC 2203 §5.3.3.3: the client creates another context and makes the call again
            rpc::Outcome::Denied(Denied::AuthError(
                AuthStatus::GSS_CREDENTIAL_PROBLEM | AuthStatus::GSS_CONTEXT_PROBLEM,
            )) => return Err(ReplyVerdict::NoContext),
            rpc::Outcome::Denied(_) => return Err(ReplyVerdict::Taken),
        };
        let results_at = reply.len() - reader.remaining();
        // RFC 2203 §5.3.3.2 [2203-23]: an accepted reply's verifier signs the call's number
        let numbers = self.numbers.get();
        let sent = numbers.split(|number| *number == 0).next().unwrap_or_default();
        let sequence = self.context.keys.verify_reply(&verifier, sent).map_err(unproven)?;
        let is_protected = status == Accepted::Success && self.service != GssService::None;
        Ok(ProvenReply { results_at, sequence, is_protected })
    }

    /// Gives `message` a new number and the signatures for it.
    fn protect(&self, message: &mut [u8]) -> Option<()> {
        let ClientContext { keys, .. } = &*self.context;
        // RFC 2203 §5.3.3.1 [2203-14]: each transmission has a higher number
        let sequence = self.first.take().or_else(|| keys.next_sequence())?;
        let [one, two, three, _] = self.numbers.get();
        self.numbers.set([sequence, one, two, three]);
        message.get_mut(SEQUENCE_AT..SEQUENCE_AT + 4)?.copy_from_slice(&sequence.to_be_bytes());
        let signed = self.header_len - Self::verifier_len(&self.context);
        // RFC 2203 §5.3.1 [2203-15]: the verifier covers the header up to the credential's end
        let mic = keys.sign_call(message.get(..signed)?, self.context.next_token());
        message.get_mut(signed + 8..signed + 8 + mic.len())?.copy_from_slice(&mic);
        let service = self.service;
        if service == GssService::None {
            return Some(());
        }
        let token_sequence = self.context.next_token();
        let protection = Protection { service, sequence, token_sequence };
        let front = self.room().front;
        let body = message.get_mut(self.header_len..)?;
        body.get_mut(front..front + self.arguments.len())?.copy_from_slice(&self.arguments);
        keys.protect_arguments(&protection, body, &random().ok()?).ok()
    }
}

/// A reply whose verifier is the server's.
struct ProvenReply {
    /// Octets of its header.
    results_at: usize,
    /// The number of the transmission that it answers.
    sequence: u32,
    /// Its results are signed or encrypted.
    is_protected: bool,
}

impl SignCall for ProtectedCall {
    fn sign(&self, message: &mut [u8]) -> Result<(), CannotSign> {
        self.protect(message).ok_or(CannotSign)
    }
}
