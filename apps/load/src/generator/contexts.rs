//! Contexts of RPCSEC_GSS (RFC 2203) for the calls of a generator.
//!
//! Each connection has a context of its own, as a client with one connection has; connections
//! above `LoadPlan::contexts_max` share them. Sequence numbers belong to a context, and its server
//! drops a call without an answer if the number is below its window: a call is made only while all
//! outstanding numbers of the context are inside. Contexts exist before the first call that counts.
//! If the server has one no more, its calls are made again in another one, and their time goes on.

use super::{Generator, GeneratorPhase};
use crate::{report::model::ContextFigures, workload::ProtectedOutlet};
use stag_client::Error;
use stag_engine::{CallFault, Cause, Cx, PeerId, Time, Token};
use stag_protocol::rpc::{
    Credential,
    gss::{CREDENTIAL_MAX, GssService, MAXSEQ},
};
use stag_rpc::{
    CallError, RawCall,
    gss::{
        CalledProgram, ClientContext, ContextFault, ContextSource, CreationFault, CreationRequest,
        CreationRoute, ProtectedCall, ReplyVerdict, Tickets,
    },
};
use std::{collections::VecDeque, fmt, rc::Rc, time::Duration};

/// Sequence numbers of a server's window that are used at most.
const WINDOW_MAX: u32 = 4_096;
/// Numbers of a context that are left to retransmissions when it is renewed.
const RESERVED: u32 = 2 * WINDOW_MAX;
/// Tokens of creations and ends of contexts, below those of places in no run.
const TOKENS: u64 = 1 << 62;

/// A context of some of the connections.
#[derive(Default)]
struct ContextPlace {
    /// The context of further calls.
    granted: Option<Rc<ClientContext>>,
    /// The request for one, while it is outstanding.
    asked: Option<CreationRequest>,
    /// The connection ended while that was outstanding.
    lost: Option<Cause>,
    has_been: bool,
    /// Calls since the oldest outstanding one: the number of each, and true once it is over.
    numbers: VecDeque<(u32, bool)>,
    /// Calls that left `numbers` in front.
    left: u64,
}

impl ContextPlace {
    /// Makes further calls in this context.
    fn grant(&mut self, context: ClientContext, counts: &mut ContextFigures) {
        let is_other = std::mem::replace(&mut self.has_been, true);
        self.numbers.reserve(context.window().min(WINDOW_MAX) as usize);
        self.granted = Some(Rc::new(context));
        counts.created += 1;
        counts.renewed += u64::from(is_other);
    }

    /// Sequence numbers that may be outstanding.
    fn window(&self) -> u32 {
        self.granted.as_ref().map_or(0, |context| context.window()).min(WINDOW_MAX)
    }

    /// Returns true if a call may be made: its number and all that are outstanding are in the
    /// server's window.
    fn has_room(&self) -> bool {
        let Some(context) = &self.granted else { return false };
        let next = context.next_number();
        let oldest = self.numbers.front().map_or(next, |(number, _)| *number);
        next < MAXSEQ - RESERVED && next.saturating_sub(oldest) < self.window()
    }

    /// Records a call that is made next; returns its place among the numbers.
    fn begin(&mut self, number: u32) -> u64 {
        self.numbers.push_back((number, false));
        self.left + self.numbers.len() as u64 - 1
    }

    /// The call at this place is over.
    fn finish(&mut self, at: u64) {
        let place = at.checked_sub(self.left).and_then(|at| usize::try_from(at).ok());
        if let Some((_, is_over)) = place.and_then(|at| self.numbers.get_mut(at)) {
            *is_over = true;
        }
        while self.numbers.front().is_some_and(|(_, is_over)| *is_over) {
            self.numbers.pop_front();
            self.left += 1;
        }
    }

    /// Drops the context; calls of it stay outstanding without a place.
    fn lose(&mut self) {
        self.granted = None;
        self.left += self.numbers.len() as u64;
        self.numbers.clear();
    }
}

/// The call of a place of the generator.
#[derive(Default)]
struct CallPlace {
    message: Option<Rc<ProtectedCall>>,
    /// Place of its context.
    context: usize,
    /// Place among the numbers of the context.
    at: u64,
    is_outstanding: bool,
    /// It is made for the second time.
    is_repeated: bool,
}

/// A reply after its verification.
pub(super) enum OpenedReply {
    /// It is used as it came.
    AsItCame,
    /// Its results were protected; these are header and results in the clear.
    Cleared(Vec<u8>),
    /// The call was not executed, and is made again in another context.
    Again,
    /// It must not be used.
    Refused(Error),
}

/// The contexts of a generator.
pub(super) struct Contexts {
    source: Box<dyn ContextSource>,
    service: GssService,
    route: CreationRoute,
    /// The program, the version and the procedure, 0, that grants them.
    program: CalledProgram,
    places: Box<[ContextPlace]>,
    /// Of each place for a call, and of the step of a session in the last one.
    calls: Box<[CallPlace]>,
    /// Places whose call is made again.
    again: Vec<u32>,
    /// Room for a reply in the clear.
    clear: Vec<u8>,
    counts: ContextFigures,
    fault: Option<ContextFault>,
    /// Ends of contexts without an answer so far.
    ending: usize,
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, counts, .. } = self;
        f.debug_struct("Contexts").field("service", service).field("counts", counts).finish()
    }
}

impl Contexts {
    /// None yet: `count` contexts for the calls of `calls` places.
    pub(super) fn open(
        tickets: &Tickets,
        route: CreationRoute,
        program: CalledProgram,
        count: usize,
        calls: usize,
    ) -> Result<Self, ContextFault> {
        Ok(Self {
            source: tickets.source()?,
            service: tickets.service(),
            route,
            program,
            places: (0..count).map(|_| ContextPlace::default()).collect(),
            calls: (0..=calls).map(|_| CallPlace::default()).collect(),
            again: Vec::with_capacity(calls),
            clear: Vec::new(),
            counts: ContextFigures::default(),
            fault: None,
            ending: 0,
        })
    }

    /// The place of the step of a session.
    pub(super) fn step(&self) -> u32 {
        u32::try_from(self.calls.len() - 1).unwrap_or(u32::MAX)
    }

    fn place(&self, connection: usize) -> usize {
        connection.checked_rem(self.places.len()).unwrap_or(0)
    }

    /// Returns true if a call over this connection may be made.
    #[inline]
    pub(super) fn has_room(&self, connection: usize) -> bool {
        self.places.get(self.place(connection)).is_some_and(ContextPlace::has_room)
    }

    /// The way of the call of place `index` over a connection; None without a context.
    pub(super) fn outlet(
        &mut self,
        index: u32,
        connection: usize,
        peer: PeerId,
    ) -> Option<ProtectedOutlet<'_>> {
        let at = self.place(connection);
        let place = self.places.get_mut(at)?;
        let call = self.calls.get_mut(index as usize)?;
        let number = place.granted.as_ref()?.next_number();
        (call.context, call.at, call.is_outstanding) = (at, place.begin(number), true);
        let (context, message) = (place.granted.as_ref()?, &mut call.message);
        Some(ProtectedOutlet { peer, context, message })
    }

    /// A call of this place is made for the first time.
    pub(super) fn note_first(&mut self, index: u32) {
        if let Some(call) = self.calls.get_mut(index as usize) {
            call.is_repeated = false;
        }
    }

    /// The call of place `index` is over.
    pub(super) fn finish(&mut self, index: u32) {
        let Some(call) = self.calls.get_mut(index as usize) else { return };
        if std::mem::take(&mut call.is_outstanding)
            && let Some(place) = self.places.get_mut(call.context)
        {
            place.finish(call.at);
        }
    }

    /// Verifies the reply to the call of place `index`.
    pub(super) fn judge(&mut self, index: u32, reply: &[u8]) -> OpenedReply {
        let step = self.step();
        let Some(call) = self.calls.get_mut(index as usize) else { return OpenedReply::AsItCame };
        let Some(message) = &call.message else { return OpenedReply::AsItCame };
        let (verdict, is_cleared) = match self.service {
            GssService::None => (message.judge(reply), false),
            _ => {
                self.clear.clear();
                self.clear.extend_from_slice(reply);
                (message.open(&mut self.clear), true)
            }
        };
        match verdict {
            ReplyVerdict::NoContext if !call.is_repeated && index < step => {
                // Several calls of one lost context get one other context.
                let context = Rc::clone(message.context());
                let at = call.context;
                call.is_repeated = true;
                self.lose(at, &context);
                self.again.push(index);
                OpenedReply::Again
            }
            ReplyVerdict::Unproven(fault) => OpenedReply::Refused(Error::Unproven(fault)),
            // A second denial is the outcome.
            ReplyVerdict::NoContext => OpenedReply::AsItCame,
            ReplyVerdict::Taken if is_cleared => {
                OpenedReply::Cleared(std::mem::take(&mut self.clear))
            }
            ReplyVerdict::Taken => OpenedReply::AsItCame,
        }
    }

    /// Takes memory back that [`OpenedReply::Cleared`] lent.
    pub(super) fn give(&mut self, clear: Vec<u8>) {
        self.clear = clear;
    }

    /// Uses this context for no further call.
    fn lose(&mut self, at: usize, context: &Rc<ClientContext>) {
        if let Some(place) = self.places.get_mut(at)
            && place.granted.as_ref().is_some_and(|known| Rc::ptr_eq(known, context))
        {
            place.lose();
        }
    }

    /// Returns true if every context is granted.
    fn are_granted(&self) -> bool {
        self.places.iter().all(|place| place.granted.is_some())
    }

    /// Asks for the contexts that are missing or used up, or creates them over TCP.
    fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        peers: &[PeerId],
        timeout: Duration,
    ) -> Result<(), ContextFault> {
        for (at, place) in self.places.iter_mut().enumerate() {
            let is_used_up =
                |context: &Rc<ClientContext>| context.next_number() >= MAXSEQ - RESERVED;
            if place.granted.as_ref().is_some_and(is_used_up) {
                place.lose();
            }
            if place.granted.is_some() || place.asked.is_some() {
                continue;
            }
            let Some(peer) = peers.get(at) else { continue };
            let created = self.route.create(&mut *self.source, self.service, self.program, timeout);
            if let Some(created) = created {
                place.grant(created?, &mut self.counts);
                self.counts.over_tcp += 1;
                continue;
            }
            let request = CreationRequest::new(&mut *self.source)?;
            let call = creation(cx, self.program, &request, timeout, Token(TOKENS + at as u64));
            cx.call(*peer, call.map_err(|error| ContextFault(error.to_string()))?);
            place.asked = Some(request);
        }
        Ok(())
    }

    /// Takes the reply to a creation or an end, if this token is of one.
    pub(super) fn take(&mut self, token: Token, reply: Result<&[u8], Error>) -> bool {
        let at = token.0.checked_sub(TOKENS).and_then(|at| usize::try_from(at).ok());
        let Some(place) = at.and_then(|at| self.places.get_mut(at)) else { return false };
        let Some(request) = place.asked.take() else {
            self.ending = self.ending.saturating_sub(1);
            return true;
        };
        let created = match (place.lost.take(), reply) {
            (Some(cause), _) => Err(CreationFault::Call(CallFault::Disconnected(cause).into())),
            (None, Ok(reply)) => request.finish(reply, self.service),
            (None, Err(Error::Call(fault))) => Err(CreationFault::Call(fault.into())),
            (None, Err(error)) => Err(ContextFault(error.to_string()).into()),
        };
        match created {
            Ok(context) => place.grant(context, &mut self.counts),
            Err(fault) => {
                if let Err(fault) = self.route.leave_connection(fault) {
                    self.note(fault.into());
                }
            }
        }
        true
    }

    /// The connection to `peer` has ended, perhaps because of an outstanding creation, which a kept
    /// connection must not make again.
    pub(super) fn note_loss(
        &mut self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        peers: &[PeerId],
        cause: Cause,
    ) {
        if !self.route.watches_losses() {
            return;
        }
        for (at, place) in self.places.iter_mut().enumerate() {
            if place.asked.is_some() && peers.get(at) == Some(&peer) {
                place.lost = Some(cause);
                cx.cancel(peer, Token(TOKENS + at as u64));
            }
        }
    }

    fn note(&mut self, fault: ContextFault) {
        self.source.on_fault(&fault);
        self.fault.get_or_insert(fault);
    }

    /// Asks the server to forget all contexts.
    fn end(&mut self, cx: &mut Cx<'_>, peers: &[PeerId], timeout: Duration) {
        let to = self.program;
        for (at, place) in self.places.iter_mut().enumerate() {
            let (Some(context), Some(peer)) = (place.granted.take(), peers.get(at)) else {
                continue;
            };
            let message = ProtectedCall::destroy(&context);
            let token = Token(TOKENS + at as u64);
            if let Some(message) = message
                && let Some(request) = message.whole_request(cx, to, timeout, token)
            {
                self.ending += 1;
                cx.call_signed(*peer, request, message.signer());
            }
        }
    }
}

/// The call that asks for a context (RFC 2203 §5.2).
fn creation(
    cx: &Cx<'_>,
    to: CalledProgram,
    request: &CreationRequest,
    timeout: Duration,
    token: Token,
) -> Result<stag_engine::Request, CallError> {
    let mut room = [0; CREDENTIAL_MAX];
    let call = RawCall {
        credential: Credential::Other(CreationRequest::credential(&mut room)),
        arguments_max: request.arguments.len(),
        results_max: CreationRequest::RESULTS_MAX + CreationRequest::VERIFIER_MAX,
        ..RawCall::new(to.program, to.version, to.procedure)
    };
    call.write(cx, timeout, token, |writer| writer.fixed(&request.arguments))
}

impl Generator {
    /// Makes calls in contexts.
    pub(crate) fn by_tickets(
        &mut self,
        tickets: &Tickets,
        route: CreationRoute,
        program: CalledProgram,
        contexts_max: usize,
    ) -> Result<(), ContextFault> {
        let count = self.peers.len().min(contexts_max).max(1);
        let contexts = Contexts::open(tickets, route, program, count, self.slots.len())?;
        self.contexts = Some(Box::new(contexts));
        Ok(())
    }

    /// Asks for missing contexts, before the first call. True once all are there.
    ///
    /// # Errors
    /// The server grants none, or its window is shorter than the calls of a context at a time.
    pub(crate) fn ready_contexts(&mut self, cx: &mut Cx<'_>) -> Result<bool, ContextFault> {
        let (timeout, depth) = (self.maker.timeout, self.maker.depth);
        let Some(contexts) = &mut self.contexts else { return Ok(true) };
        if let Some(fault) = contexts.fault.take() {
            return Err(fault);
        }
        contexts.ask(cx, &self.peers, timeout)?;
        if !contexts.are_granted() {
            return Ok(false);
        }
        let together = self.peers.len().div_ceil(contexts.places.len()) * depth;
        let window = contexts.places.iter().map(ContextPlace::window).min().unwrap_or(0);
        if together > window as usize {
            return Err(ContextFault(format!(
                "the server remembers {window} sequence numbers of a context, and {together} calls \
                 of it would be outstanding: give a lower --depth or --connections"
            )));
        }
        Ok(true)
    }

    /// Renews contexts that are gone or used up, and makes their calls again.
    pub(super) fn renew_contexts(&mut self, cx: &mut Cx<'_>, now: Time) {
        let Some(contexts) = &mut self.contexts else { return };
        if !matches!(self.phase, GeneratorPhase::Running | GeneratorPhase::AwaitReplies) {
            return;
        }
        if contexts.fault.is_none()
            && let Err(fault) = contexts.ask(cx, &self.peers, self.maker.timeout)
        {
            contexts.note(fault);
        }
        if contexts.fault.is_some() && !contexts.are_granted() {
            // No call can be made without a context.
            for index in std::mem::take(&mut contexts.again) {
                self.finished.push((index, Err(Error::NoContext)));
            }
            self.failure.get_or_insert(("INIT of RPCSEC_GSS", Error::NoContext));
            return self.give_up(now);
        }
        for _ in 0..contexts.again.len() {
            let Some(contexts) = &mut self.contexts else { return };
            let Some(index) = contexts.again.pop() else { return };
            let Some(slot) = self.slots.get(index as usize).copied() else { continue };
            if !contexts.has_room(slot.peer) {
                contexts.again.insert(0, index);
                continue;
            }
            self.send(cx, index, slot.peer, slot.ask);
        }
    }

    /// Moves a free place to the front whose context has room. False if there is none.
    pub(super) fn bring_ready(&mut self) -> bool {
        let Some(contexts) = &self.contexts else { return true };
        let has_room = |index: &u32| {
            self.slots.get(*index as usize).is_some_and(|slot| contexts.has_room(slot.peer))
        };
        let ready = self.free.iter().position(has_room);
        match ready {
            Some(at) => self.free.swap(0, at),
            None => self.is_held = true,
        }
        ready.is_some()
    }

    /// Asks the server to forget all contexts.
    pub(crate) fn end_contexts(&mut self, cx: &mut Cx<'_>, timeout: Duration) {
        if let Some(contexts) = &mut self.contexts {
            contexts.end(cx, &self.peers, timeout);
        }
    }

    /// Returns true once each end of a context was answered, or failed.
    pub(crate) fn have_contexts_ended(&self) -> bool {
        self.contexts.as_ref().is_none_or(|contexts| contexts.ending == 0)
    }

    /// Contexts of the run; none without tickets.
    pub fn context_counts(&self) -> Option<ContextFigures> {
        self.contexts.as_ref().map(|contexts| contexts.counts)
    }

    /// Takes the reason for which the server grants no context.
    pub(crate) fn take_context_fault(&mut self) -> Option<ContextFault> {
        self.contexts.as_mut()?.fault.take()
    }
}
