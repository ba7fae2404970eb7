//! Calls of a [`RawClient`] in a context of RPCSEC_GSS (RFC 2203): the context is created over the
//! same connection, or by TCP, when the first call needs it, renewed when its server does not have
//! it any more or its numbers are used up, and destroyed before the connection is closed.

use super::{FinishedCall, LEAVE, MARGIN, RawCall, RawClient, keeper::CallKeeper};
use crate::{
    call::{CLIENT_TOKEN, CallError, accepted, encode, room_for_item},
    codec::{Encoder, XdrType as _},
    gss::{
        CalledProgram, ClientContext, ContextFault, ContextSource, CreationFault, CreationRequest,
        CreationRoute, ProtectedCall, TcpCreation,
    },
    program::{ArgumentsOf, Procedure},
    reply::copy,
};
use stag_engine::{CallFault, Cx, PeerId, Request, RequestItem, Token};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{
        Accepted, Credential, ReplyHeader,
        gss::{CREDENTIAL_MAX, GssService},
    },
    xdr::{NoRoom, Reader, Writer, padded},
};
use stag_verbs::Provider;
use std::{fmt, rc::Rc, time::Duration};

/// Contexts of a client.
pub(super) struct Protector {
    source: Box<dyn ContextSource>,
    service: GssService,
    route: CreationRoute,
    /// The context of further calls, and the program that granted it.
    context: Option<(Rc<ClientContext>, CalledProgram)>,
    /// The reason why the last creation failed.
    fault: Option<ContextFault>,
}

impl fmt::Debug for Protector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protector").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A call in a context that is outstanding.
#[derive(Debug)]
pub(super) struct SentCall {
    pub(super) token: Token,
    pub(super) message: Rc<ProtectedCall>,
    to: CalledProgram,
    results_max: usize,
    item_max: usize,
    /// The position in the arguments of the item that may travel in a chunk.
    item_at: Option<usize>,
    /// It is made for the second time, because its server did not have its first context.
    pub(super) is_repeated: bool,
    /// It ends its context; its outcome does not matter.
    pub(super) is_destroy: bool,
}

/// A call that its server did not execute.
#[derive(Debug)]
pub(super) struct UnsentCall {
    pub(super) call: SentCall,
    pub(super) item: Option<Buf>,
}

/// A call whose arguments are encoded, except for an item that may travel in a chunk.
struct EncodedCall<'a> {
    to: CalledProgram,
    arguments: Vec<u8>,
    /// The item, with its position in the arguments.
    item: Option<(usize, &'a [u8])>,
    results_max: usize,
    item_max: usize,
}

/// Makes an item part of arguments, with its padding.
pub(crate) fn insert(arguments: &mut Vec<u8>, at: usize, item: &[u8]) {
    let padding = padded(item.len()) - item.len();
    let zeros = std::iter::repeat_n(0, padding);
    arguments.splice(at..at, item.iter().copied().chain(zeros));
}

impl SentCall {
    /// Makes the call. Its outcome carries its token.
    fn request(
        &self,
        cx: &Cx<'_>,
        item: Option<Buf>,
        timeout: Duration,
    ) -> Result<Request, CallError> {
        let message = self.message.message(cx, self.to);
        let message = message.ok_or(CallError::Failed(CallFault::Limit))?;
        // Without protection of the body nothing follows the arguments.
        let arguments_at = message.len().saturating_sub(self.message.arguments().len());
        let results_max = ReplyHeader::LEN + self.results_max;
        let (reply_max, apart) = self.message.reply_room(results_max, self.item_max);
        let position = arguments_at + self.item_at.unwrap_or_default();
        let item = item.map(|octets| RequestItem { position, octets });
        let result = room_for_item(cx, apart)?;
        Ok(Request { message, item, reply_max, result, timeout, token: self.token })
    }
}

impl<P: Provider> RawClient<P> {
    /// Lets [`send_protected`](Self::send_protected) make calls with this protection, in contexts
    /// from `source`. A context is created when the first call needs it.
    pub fn protect(&mut self, source: Box<dyn ContextSource>, service: GssService) {
        let (route, context, fault) = Default::default();
        self.protector = Some(Protector { source, service, route, context, fault });
    }

    /// Lets contexts be created at this place if the server refuses that over the connection, with
    /// the source and the protection of [`protect`](Self::protect). Default: there is none.
    pub fn create_contexts_at(&mut self, tcp: Option<TcpCreation>) {
        if let Some(protector) = &mut self.protector {
            protector.route = CreationRoute::new(tcp, true);
        }
    }

    /// Returns true if calls can be made in a context.
    pub const fn is_protected(&self) -> bool {
        self.protector.is_some()
    }

    /// The sequence numbers that the server of the present context remembers: the maximum of
    /// outstanding calls.
    pub fn context_window(&self) -> Option<u32> {
        let (context, _) = self.protector.as_ref()?.context.as_ref()?;
        Some(context.window())
    }

    /// The reason why the last creation of a context failed, once.
    pub fn take_context_fault(&mut self) -> Option<ContextFault> {
        self.protector.as_mut()?.fault.take()
    }

    /// Makes a call in a context; its own credential is ignored. Waits for the context if there is
    /// none. If the server does not have the context any more, the call is made once again in
    /// another one, with the same token.
    ///
    /// # Errors
    /// [`CallError::NoContext`] without a context, and as [`send`](Self::send).
    pub fn send_protected(
        &mut self,
        call: &RawCall<'_>,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<Token, CallError> {
        let mut arguments = vec![0; call.arguments_max];
        let mut writer = Writer::new(&mut arguments);
        emit(&mut writer).map_err(|NoRoom| CallError::TooLong)?;
        let len = writer.len();
        arguments.truncate(len);
        let &RawCall { program, version, procedure, results_max, item_max, item, .. } = call;
        let to = CalledProgram { program, version, procedure };
        let item = item.map(|octets| (len, octets));
        self.send_encoded(EncodedCall { to, arguments, item, results_max, item_max })
    }

    /// Makes a call of `Q` in a context, as [`send_protected`](Self::send_protected) does.
    pub(crate) fn begin_protected<Q: Procedure>(
        &mut self,
        arguments: &ArgumentsOf<'_, Q>,
    ) -> Result<Token, CallError> {
        let mut room = vec![0; Q::Arguments::LEN_MAX];
        let mut encoder = Encoder::new(&mut room);
        encode::<Q>(&mut encoder, arguments).map_err(|NoRoom| CallError::TooLong)?;
        let (len, item) = encoder.finish();
        room.truncate(len);
        let item = item.as_ref().map(|(at, octets)| (*at, &**octets));
        self.send_encoded(EncodedCall {
            to: CalledProgram { program: Q::PROGRAM, version: Q::VERSION, procedure: Q::NUMBER },
            arguments: room,
            item,
            results_max: Q::Results::LEN_MAX,
            item_max: Q::Results::ITEM_MAX,
        })
    }

    fn send_encoded(&mut self, call: EncodedCall<'_>) -> Result<Token, CallError> {
        let service = self.protector.as_ref().ok_or(CallError::NoContext)?.service;
        let EncodedCall { to, mut arguments, item, results_max, item_max } = call;
        let (item_at, apart) = match item {
            Some((at, octets)) if service == GssService::None => (Some(at), Some(octets)),
            item => {
                if let Some((at, octets)) = item {
                    insert(&mut arguments, at, octets);
                }
                (None, None)
            }
        };
        let message = self.in_context(to, arguments)?;
        let peer = self.peer.ok_or(CallFault::NoPeer)?;
        if self.keeper().done.len() >= self.outcomes_max {
            return Err(CallFault::Limit.into());
        }
        let token = Token(CLIENT_TOKEN | self.calls);
        let (is_repeated, is_destroy) = (false, false);
        let call = SentCall {
            token,
            message,
            to,
            results_max,
            item_max,
            item_at,
            is_repeated,
            is_destroy,
        };
        self.start(peer, call, |cx| match apart {
            Some(item) => copy(cx, item).map(Some).ok_or(CallFault::Limit.into()),
            None => Ok(None),
        })?;
        self.calls = (self.calls + 1) & !CLIENT_TOKEN;
        Ok(token)
    }

    /// Makes a call; `item` gives the argument that may travel in a chunk.
    fn start(
        &mut self,
        peer: PeerId,
        call: SentCall,
        item: impl FnOnce(&Cx<'_>) -> Result<Option<Buf>, CallError>,
    ) -> Result<(), CallError> {
        let timeout = self.timeout;
        self.shard.with_app(|door, cx| {
            let item = item(cx)?;
            let request = call.request(cx, item, timeout)?;
            let signer = call.message.signer();
            door.outcomes.protected.push(call);
            cx.call_signed(peer, request, signer);
            Ok(())
        })
    }

    /// A message of a call in a context, which is created if there is none or its numbers are used
    /// up.
    fn in_context(
        &mut self,
        to: CalledProgram,
        arguments: Vec<u8>,
    ) -> Result<Rc<ProtectedCall>, CallError> {
        let context = self.context(to)?;
        if let Some(message) = ProtectedCall::new(&context, &arguments) {
            return Ok(message);
        }
        self.forget_context(&context);
        let context = self.context(to)?;
        ProtectedCall::new(&context, &arguments).ok_or(CallError::NoContext)
    }

    /// The context of calls to this program.
    fn context(&mut self, to: CalledProgram) -> Result<Rc<ClientContext>, CallError> {
        let protector = self.protector.as_mut().ok_or(CallError::NoContext)?;
        if let Some((context, _)) = &protector.context {
            return Ok(Rc::clone(context));
        }
        let mut protector = self.protector.take().ok_or(CallError::NoContext)?;
        let created = self.create_by_route(&mut protector, to);
        let created = created.map(Rc::new);
        if let Ok(context) = &created {
            protector.context = Some((Rc::clone(context), to));
        }
        self.protector = Some(protector);
        created.map_err(|fault| match fault {
            CreationFault::Call(error) => error,
            fault => self.note_context_fault(fault.into()),
        })
    }

    /// Creates a context over this connection, or by TCP if that is refused here.
    fn create_by_route(
        &mut self,
        protector: &mut Protector,
        to: CalledProgram,
    ) -> Result<ClientContext, CreationFault> {
        let Protector { source, service, route, .. } = protector;
        let (service, timeout) = (*service, self.timeout);
        if let Some(created) = route.create(&mut **source, service, to, timeout) {
            return Ok(created?);
        }
        self.watches_losses = route.watches_losses();
        match self.create_context(&mut **source, service, to) {
            Err(fault) => route.leave_connection(fault)?,
            created => return created,
        }
        let created = route.create(&mut **source, service, to, timeout);
        let context = created.ok_or(CreationFault::Call(CallError::NoContext))??;
        self.restore().map_err(CreationFault::Call)?;
        Ok(context)
    }

    /// Creates a context over this connection.
    pub(crate) fn create_context(
        &mut self,
        source: &mut dyn ContextSource,
        service: GssService,
        to: CalledProgram,
    ) -> Result<ClientContext, CreationFault> {
        let request = CreationRequest::new(source)?;
        let reply = self.ask_for_context(to, &request.arguments).map_err(CreationFault::Call)?;
        request.finish(&reply, service)
    }

    fn note_context_fault(&mut self, fault: ContextFault) -> CallError {
        if let Some(protector) = &mut self.protector {
            protector.source.on_fault(&fault);
            protector.fault = Some(fault);
        }
        CallError::NoContext
    }

    /// Makes a creation request, and waits for its reply.
    fn ask_for_context(
        &mut self,
        to: CalledProgram,
        arguments: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        let mut room = [0; CREDENTIAL_MAX];
        let call = RawCall {
            credential: Credential::Other(CreationRequest::credential(&mut room)),
            arguments_max: arguments.len(),
            results_max: CreationRequest::RESULTS_MAX + CreationRequest::VERIFIER_MAX,
            // RFC 2203 §5.2: a context is created by procedure 0 of the program
            ..RawCall::new(to.program, to.version, 0)
        };
        let token = self.send(&call, |writer| writer.fixed(arguments))?;
        let limit = self.timeout.saturating_add(MARGIN);
        let (losses, watches) = (self.keeper().recovery.losses, self.watches_losses);
        let finished = self.wait(limit, |keeper| match keeper.take(token) {
            Some(finished) => Some(Ok(finished.reply)),
            None if watches && keeper.recovery.losses > losses => {
                let (_, cause) = keeper.down?;
                Some(Err(CallFault::Disconnected(cause)))
            }
            None => None,
        });
        let finished = finished.unwrap_or(Err(CallFault::TimedOut));
        if finished.is_err() {
            self.abandon(token);
        }
        let reply = finished.and_then(|reply| reply).map_err(CallError::Failed)?;
        match accepted(&mut Reader::new(&reply)) {
            // The program is not here in this version, for callers with any credential.
            Err(
                error @ CallError::Rejected(Accepted::ProgUnavail | Accepted::ProgMismatch { .. }),
            ) => Err(error),
            _ => Ok(reply),
        }
    }

    /// Ends a call whose outcome does not matter, so that a kept connection does not make it again.
    fn abandon(&mut self, token: Token) {
        let Some(peer) = self.peer else { return };
        self.shard.with_app(|_, cx| cx.cancel(peer, token));
        let is_over = |keeper: &mut CallKeeper| keeper.take(token).map(drop);
        let _ = self.wait(LEAVE, is_over);
    }

    /// Makes the connection again that the server closed when it was asked for a context.
    fn restore(&mut self) -> Result<(), CallError> {
        if self.is_up() {
            return Ok(());
        }
        let Some(at) = self.dialed.clone() else {
            // It is kept, and calls wait for it.
            return Ok(());
        };
        self.connect(&at).map_err(|fault| CallError::Failed(fault.into()))
    }

    /// Uses this context for no further call.
    fn forget_context(&mut self, context: &Rc<ClientContext>) {
        if let Some(protector) = &mut self.protector
            && protector.context.as_ref().is_some_and(|(known, _)| Rc::ptr_eq(known, context))
        {
            protector.context = None;
        }
    }

    /// Makes a call once again, in another context.
    pub(super) fn make_again(&mut self, again: UnsentCall) {
        let UnsentCall { call, item } = again;
        let token = call.token;
        if let Err(fault) = self.try_again(call, item) {
            let reply = Err(CallFault::Cancelled);
            let finished = FinishedCall { token, reply, result: None, fault: Some(fault) };
            self.shard.with_app(|door, _| door.outcomes.done.push_back(finished));
        }
    }

    fn try_again(&mut self, call: SentCall, item: Option<Buf>) -> Result<(), CallError> {
        // RFC 2203 §5.3.3.3 [2203-28]: after CREDPROBLEM or CTXPROBLEM a context is created
        self.forget_context(call.message.context());
        let message = self.in_context(call.to, call.message.arguments().to_vec())?;
        let peer = self.peer.ok_or(CallFault::NoPeer)?;
        // Part of the item may still be in a socket.
        if call.item_at.is_some() && item.is_none() {
            return Err(CallFault::Limit.into());
        }
        self.start(peer, SentCall { message, is_repeated: true, ..call }, |_| Ok(item))
    }

    /// Asks the server to forget the context, and does not wait for its reply.
    pub(super) fn end_context(&mut self, peer: PeerId) {
        let context = self.protector.as_mut().and_then(|protector| protector.context.take());
        let Some((context, to)) = context else { return };
        let Some(message) = ProtectedCall::destroy(&context) else { return };
        let token = Token(CLIENT_TOKEN | self.calls);
        self.calls = (self.calls + 1) & !CLIENT_TOKEN;
        let call = SentCall {
            token,
            message,
            to: CalledProgram { procedure: 0, ..to },
            results_max: 0,
            item_max: 0,
            item_at: None,
            is_repeated: true,
            is_destroy: true,
        };
        // RFC 2203 §5.4: a client need not wait for the end of its context.
        let _ = self.start(peer, call, |_| Ok(None));
        let now = self.now();
        self.pass(now);
    }
}
