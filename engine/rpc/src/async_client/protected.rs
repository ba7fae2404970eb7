//! Calls of an asynchronous client in a context of RPCSEC_GSS (RFC 2203). They wait here for the
//! context, and for room in its window of sequence numbers. A context is not destroyed at the end:
//! its server forgets it with its ticket, or for newer ones (RFC 2203 §5.4).

use super::slot::{CallOrder, Completion, index_of};
use crate::{
    RawCall,
    call::{CLIENT_TOKEN, CallError, room_for_item},
    gss::{
        CalledProgram, ClientContext, ContextFault, ContextSource, CreationFault, CreationRequest,
        CreationRoute, GssService, ProtectedCall, ReplyVerdict, Tickets,
    },
    raw::insert,
    reply::copy,
};
use stag_engine::{CallFault, Cause, Cx, PeerId, Request, RequestItem, Token};
use stag_protocol::rpc::{Credential, gss::CREDENTIAL_MAX};
use std::{collections::VecDeque, rc::Rc, time::Duration};

/// The call that asks for a context; no slot has this place.
pub(super) const ASKED: Token = Token(CLIENT_TOKEN | u32::MAX as u64);

/// A call that is to be made.
pub(super) struct WaitingCall {
    pub(super) token: Token,
    pub(super) completion: Completion,
    /// It is made for the second time, because its server did not have its first context.
    pub(super) is_repeated: bool,
}

/// A call that was taken out of the queue.
pub(super) struct MadeCall {
    pub(super) call: WaitingCall,
    /// An error is its outcome.
    pub(super) made: Result<(), CallError>,
}

/// A call that is outstanding.
pub(super) struct OutstandingOrder {
    token: Token,
    message: Rc<ProtectedCall>,
    pub(super) is_repeated: bool,
}

/// Contexts of an asynchronous client, and the calls that need them.
pub(super) struct OrderProtector {
    source: Box<dyn ContextSource>,
    service: GssService,
    timeout: Duration,
    context: Option<Rc<ClientContext>>,
    route: CreationRoute,
    /// The request for one, while it is outstanding.
    asked: Option<CreationRequest>,
    /// The connection ended while that was outstanding.
    lost: Option<Cause>,
    waiting: VecDeque<WaitingCall>,
    sent: Vec<OutstandingOrder>,
    /// The latest reply in the clear.
    pub(super) clear: Vec<u8>,
}

impl OrderProtector {
    /// Opens the tickets, on the client's thread.
    pub(super) fn open(
        tickets: &Tickets,
        route: CreationRoute,
        timeout: Duration,
    ) -> Result<Self, ContextFault> {
        Ok(Self {
            source: tickets.source()?,
            service: tickets.service(),
            timeout,
            context: None,
            route,
            asked: None,
            lost: None,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            clear: Vec::new(),
        })
    }

    /// Queues a call; [`OrderProtector::next`] makes it.
    pub(super) fn add(&mut self, call: WaitingCall) {
        match call.is_repeated {
            true => self.waiting.push_front(call),
            false => self.waiting.push_back(call),
        }
    }

    /// Takes out all calls that wait for a context that cannot be had.
    pub(super) fn take_waiting(&mut self) -> VecDeque<WaitingCall> {
        std::mem::take(&mut self.waiting)
    }

    /// Sends the next call, if it has a context with room. None: nothing can be sent.
    ///
    /// # Errors
    /// No context can be asked for.
    pub(super) fn next(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
    ) -> Result<Option<MadeCall>, ContextFault> {
        while self.waiting.front().is_some_and(|call| call.completion.is_given_up()) {
            self.waiting.pop_front();
        }
        let Some(first) = self.waiting.front() else { return Ok(None) };
        let Some(context) = self.context.clone() else {
            let to = first.completion.order().and_then(program);
            self.ask(cx, peer, to)?;
            return if self.context.is_some() { self.next(cx, peer) } else { Ok(None) };
        };
        if self.sent.len() >= context.window() as usize {
            return Ok(None);
        }
        let Some(call) = self.waiting.pop_front() else { return Ok(None) };
        let Some(message) = call.completion.order().map(|order| self.message(&context, order))
        else {
            return Ok(Some(MadeCall { call, made: Err(CallFault::Limit.into()) }));
        };
        let Some(message) = message else {
            // Its numbers are used up.
            self.lose(&context);
            self.waiting.push_front(call);
            return self.next(cx, peer);
        };
        let sent = self.send(cx, peer, &call, message);
        Ok(Some(MadeCall { call, made: sent.ok_or(CallFault::Limit.into()) }))
    }

    /// The message of a call. None: the context's numbers are used up.
    fn message(&self, context: &Rc<ClientContext>, order: &CallOrder) -> Option<Rc<ProtectedCall>> {
        let mut arguments = order.room.get(..order.arguments_len).unwrap_or_default().to_vec();
        if let (Some(at), true) = (order.item_at, self.service != GssService::None) {
            insert(&mut arguments, at, &order.item);
        }
        ProtectedCall::new(context, &arguments)
    }

    /// Makes a call. None if there is no memory for it.
    fn send(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        call: &WaitingCall,
        protected: Rc<ProtectedCall>,
    ) -> Option<()> {
        let order = call.completion.order()?;
        let message = protected.message(cx, program(order)?)?;
        let item = match order.item_at.filter(|_| self.service == GssService::None) {
            Some(at) => {
                let arguments_at = message.len().saturating_sub(order.arguments_len);
                let octets = copy(cx, &order.item)?;
                Some(RequestItem { position: arguments_at + at, octets })
            }
            None => None,
        };
        let (reply_max, apart) = protected.reply_room(order.reply_max, order.item_max);
        let result = room_for_item(cx, apart).ok()?;
        let (timeout, token) = (order.timeout, call.token);
        let signer = protected.signer();
        self.sent.push(OutstandingOrder {
            token,
            message: protected,
            is_repeated: call.is_repeated,
        });
        let request = Request { message, item, reply_max, result, timeout, token };
        cx.call_signed(peer, request, signer);
        Some(())
    }

    /// Asks for a context, unless a request is outstanding, or creates one over TCP.
    fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        to: Option<CalledProgram>,
    ) -> Result<(), ContextFault> {
        let Some(to) = to.filter(|_| self.asked.is_none()) else { return Ok(()) };
        let created = self.route.create(&mut *self.source, self.service, to, self.timeout);
        if let Some(created) = created {
            self.context = Some(Rc::new(created?));
            return Ok(());
        }
        let CalledProgram { program, version, .. } = to;
        let request = CreationRequest::new(&mut *self.source)?;
        let mut room = [0; CREDENTIAL_MAX];
        let call = RawCall {
            credential: Credential::Other(CreationRequest::credential(&mut room)),
            arguments_max: request.arguments.len(),
            results_max: CreationRequest::RESULTS_MAX + CreationRequest::VERIFIER_MAX,
            // RFC 2203 §5.2: a context is created by procedure 0 of the program
            ..RawCall::new(program, version, 0)
        };
        let made = call.write(cx, self.timeout, ASKED, |to| to.fixed(&request.arguments));
        cx.call(peer, made.map_err(|error| ContextFault(error.to_string()))?);
        self.asked = Some(request);
        Ok(())
    }

    /// Takes the reply to the request for a context. If the server refuses it over RDMA, the next
    /// request goes over TCP.
    pub(super) fn take(&mut self, reply: Result<&[u8], CallFault>) -> Result<(), ContextFault> {
        let Some(request) = self.asked.take() else { return Ok(()) };
        let lost = self.lost.take();
        let reply = lost.map_or(reply, |cause| Err(CallFault::Disconnected(cause)));
        let created = match reply {
            Err(fault) => Err(CreationFault::Call(fault.into())),
            Ok(reply) => request.finish(reply, self.service),
        };
        match created {
            Ok(context) => self.context = Some(Rc::new(context)),
            Err(fault) => self.route.leave_connection(fault)?,
        }
        Ok(())
    }

    /// The connection has ended, perhaps because of an outstanding request for a context, which a
    /// kept connection must not make again.
    pub(super) fn note_loss(&mut self, cause: Cause) {
        if self.asked.is_some() && self.route.watches_losses() {
            self.lost = Some(cause);
        }
    }

    /// Cancels the request for a context that was outstanding on a lost connection.
    pub(super) fn cancel_lost(&self, cx: &mut Cx<'_>, peer: PeerId) {
        if self.lost.is_some() {
            cx.cancel(peer, ASKED);
        }
    }

    /// Reports to the source that a context cannot be had.
    pub(super) fn note(&mut self, fault: &ContextFault) {
        self.source.on_fault(fault);
    }

    /// Takes out an outstanding call.
    pub(super) fn finish(&mut self, token: Token) -> Option<OutstandingOrder> {
        let at = self.sent.iter().position(|call| index_of(call.token) == index_of(token))?;
        Some(self.sent.swap_remove(at))
    }

    /// Judges the reply to a call; `clear` has it in the clear if it is taken.
    pub(super) fn judge(&mut self, sent: &OutstandingOrder, reply: &[u8]) -> ReplyVerdict {
        self.clear.clear();
        self.clear.extend_from_slice(reply);
        let verdict = sent.message.open(&mut self.clear);
        if verdict == ReplyVerdict::NoContext {
            let context = Rc::clone(sent.message.context());
            self.lose(&context);
        }
        verdict
    }

    /// Uses this context for no further call.
    fn lose(&mut self, context: &Rc<ClientContext>) {
        if self.context.as_ref().is_some_and(|known| Rc::ptr_eq(known, context)) {
            self.context = None;
        }
    }
}

/// The program, version and procedure of a call.
fn program(order: &CallOrder) -> Option<CalledProgram> {
    let header = order.header?;
    let (program, version, procedure) = (header.program, header.version, header.procedure);
    Some(CalledProgram { program, version, procedure })
}
