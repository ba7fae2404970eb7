//! The queue of orders to the thread of an asynchronous client, and the handler that carries them
//! out there.

use super::{
    protected::{ASKED, MadeCall, OrderProtector, OutstandingOrder, WaitingCall},
    slot::{CallOrder, CallSlot, Completion, SlotOrder, index_of, lock},
};
use crate::{
    app::CallEnds,
    call::{CallError, goes_short, header_len, room_for_item},
    gss::{ContextFault, ReplyVerdict},
    reply::copy,
};
use stag_engine::{
    CallFault, Cause, Cx, Outcome, PeerId, Request, RequestItem, ShortRequest, Time, Token, Waker,
};
use stag_protocol::xdr::Writer;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, mpsc::Sender},
    task,
};

/// Queued orders, and free slots.
#[derive(Debug)]
pub(super) struct OrderLine {
    orders: Mutex<OrderList>,
    slots: Mutex<FreeSlots>,
    /// Wakes the client's thread; none without one.
    waker: Option<Waker>,
    context_fault: Mutex<Option<ContextFault>>,
}

/// Unused slots, and the number of all.
#[derive(Debug, Default)]
struct FreeSlots {
    list: Vec<Arc<CallSlot>>,
    made: u32,
}

#[derive(Debug, Default)]
struct OrderList {
    list: Vec<SlotOrder>,
    /// The client's thread has ended.
    is_closed: bool,
    /// Nothing runs the passes of a local client any more: its callers have to poll.
    has_lost_runner: bool,
}

impl OrderLine {
    pub(super) fn new(waker: Option<Waker>) -> Self {
        let (orders, slots, context_fault) = Default::default();
        Self { orders, slots, waker, context_fault }
    }

    /// Takes the reason of the latest context that could not be had.
    pub(super) fn take_context_fault(&self) -> Option<ContextFault> {
        lock(&self.context_fault).take()
    }

    /// Has all callers woken by the next pass.
    pub(super) fn lose_runner(&self) {
        lock(&self.orders).has_lost_runner = true;
    }

    /// An unused slot; a new one if there is none.
    pub(super) fn free_slot(self: &Arc<Self>) -> Arc<CallSlot> {
        let mut slots = lock(&self.slots);
        slots.list.pop().unwrap_or_else(|| {
            let index = slots.made;
            slots.made += 1;
            Arc::new(CallSlot::new(index, Arc::downgrade(self)))
        })
    }

    /// Takes a slot back that is not used any more.
    pub(super) fn take_back(&self, slot: Arc<CallSlot>) {
        lock(&self.slots).list.push(slot);
    }

    /// The number of all slots, and of unused ones.
    #[cfg(test)]
    pub(super) fn slots(&self) -> (u32, usize) {
        let slots = lock(&self.slots);
        (slots.made, slots.list.len())
    }

    /// Adds an order. After the end of the thread it is dropped, which fails its call.
    pub(super) fn tell(&self, order: SlotOrder) {
        let refused = {
            let mut orders = lock(&self.orders);
            match orders.is_closed {
                true => Some(order),
                false => {
                    orders.list.push(order);
                    None
                }
            }
        };
        drop(refused);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }
}

/// Carries out orders on the client's thread, and reports the outcomes of its calls.
pub(super) struct OrderTaker {
    line: Arc<OrderLine>,
    /// Orders taken but not carried out; its allocation is swapped with that of the line's list.
    taken: Vec<SlotOrder>,
    /// Calls that are not over, each at the index of its slot.
    calls: Vec<Option<(Token, Completion)>>,
    /// Wakers of calls that have ended, woken at the end of the pass.
    woken: VecDeque<task::Waker>,
    peer: Option<PeerId>,
    /// Reports once that the connection is made or has failed.
    connected: Option<Sender<Result<(), Cause>>>,
    /// Of a client with tickets.
    protector: Option<OrderProtector>,
}

impl OrderTaker {
    pub(super) fn new(
        line: Arc<OrderLine>,
        connected: Sender<Result<(), Cause>>,
        protector: Option<OrderProtector>,
    ) -> Self {
        let (taken, calls, woken) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { line, taken, calls, woken, peer: None, connected: Some(connected), protector }
    }

    /// Makes a call. With `behind_cancel`, the call is queued even if it is short, because the
    /// entry that it may need is freed only when the cancelled calls are.
    fn call(&mut self, cx: &mut Cx<'_>, token: Token, completion: Completion, behind_cancel: bool) {
        let Some(peer) = self.peer else { return };
        if let Some(protector) = &mut self.protector {
            return protector.add(WaitingCall { token, completion, is_repeated: false });
        }
        // Without a lock: unlocking would wait until the stores of the previous message are visible
        // to other cores.
        let order = completion.order().filter(|_| !completion.is_given_up());
        let Some(order) = order else { return };
        let sent = match !behind_cancel && goes_at_once(order) {
            true => send_short(cx, peer, token, order),
            false => send(cx, peer, token, order),
        };
        match sent {
            Some(()) => self.keep(token, completion),
            None => self.fail(completion, CallFault::Limit.into()),
        }
    }

    /// Ends a call with this error.
    fn fail(&mut self, completion: Completion, error: CallError) {
        self.woken.extend(completion.complete(Err(error), |_| ()));
    }

    /// Makes the calls that have a context, and asks for one that is missing.
    fn send_protected(&mut self, cx: &mut Cx<'_>) {
        let Some(peer) = self.peer else { return };
        if let Some(protector) = &self.protector {
            protector.cancel_lost(cx, peer);
        }
        while let Some(protector) = &mut self.protector {
            match protector.next(cx, peer) {
                Ok(None) => return,
                Ok(Some(MadeCall { call, made: Ok(()) })) => self.keep(call.token, call.completion),
                Ok(Some(MadeCall { call, made: Err(error) })) => self.fail(call.completion, error),
                Err(fault) => return self.fail_waiting(fault),
            }
        }
    }

    /// Ends all calls that wait for a context.
    fn fail_waiting(&mut self, fault: ContextFault) {
        let Some(protector) = &mut self.protector else { return };
        protector.note(&fault);
        *lock(&self.line.context_fault) = Some(fault);
        for call in protector.take_waiting() {
            self.fail(call.completion, CallError::NoContext);
        }
    }

    /// Ends a call in a context, or queues it again.
    fn finish_protected(
        &mut self,
        sent: &OutstandingOrder,
        completion: Completion,
        outcome: &Outcome<'_>,
    ) {
        let (Some(protector), Ok(reply)) = (&mut self.protector, outcome.reply) else {
            let fault = outcome.reply.err().unwrap_or(CallFault::Cancelled);
            return self.fail(completion, fault.into());
        };
        match protector.judge(sent, reply) {
            ReplyVerdict::NoContext if !sent.is_repeated => {
                protector.add(WaitingCall { token: outcome.token, completion, is_repeated: true });
            }
            // A second denial is the outcome.
            ReplyVerdict::Taken | ReplyVerdict::NoContext => {
                let (chunk, clear) = (outcome.result.as_deref(), &protector.clear);
                let ended = completion.complete(Ok(()), |reply| {
                    reply.fill(clear, chunk.unwrap_or_default());
                });
                self.woken.extend(ended);
            }
            ReplyVerdict::Unproven(fault) => self.fail(completion, CallError::Unproven(fault)),
        }
    }
}

impl OrderTaker {
    fn keep(&mut self, token: Token, completion: Completion) {
        let index = index_of(token);
        if self.calls.len() <= index {
            self.calls.resize_with(index + 1, || None);
        }
        if let Some(place) = self.calls.get_mut(index) {
            debug_assert!(place.is_none(), "a slot has one call at a time");
            *place = Some((token, completion));
        }
    }

    /// Wakes callers one after the other: if one panics, the others are not lost.
    fn wake_all(&mut self) {
        while let Some(waker) = self.woken.pop_front() {
            waker.wake();
        }
    }

    fn has(&self, token: Token) -> bool {
        let place = self.calls.get(index_of(token));
        matches!(place, Some(Some((known, _))) if *known == token)
    }

    /// Takes out the call of this token.
    fn end(&mut self, token: Token) -> Option<Completion> {
        let place = self.calls.get_mut(index_of(token))?;
        let (_, completion) = place.take_if(|(known, _)| *known == token)?;
        Some(completion)
    }
}

/// Returns true if the ordered call is a short one.
fn goes_at_once(order: &CallOrder) -> bool {
    order.item_at.is_none()
        && order.item_max == 0
        && order.header.is_some_and(|header| {
            let len = header_len(&header.credential) + order.arguments_len;
            goes_short(len, order.reply_max)
        })
}

/// Makes the ordered short call, which is sent at once if possible.
fn send_short(cx: &mut Cx<'_>, peer: PeerId, token: Token, order: &CallOrder) -> Option<()> {
    let (header, arguments) = (order.header?, order.room.get(..order.arguments_len)?);
    let (reply_max, timeout) = (order.reply_max, order.timeout);
    let request = ShortRequest { header, reply_max, timeout, token };
    cx.call_short(peer, &request, |to| to.fixed(arguments)).ok()
}

/// Makes the ordered call in memory of the shard. None if there is no memory for it.
fn send(cx: &mut Cx<'_>, peer: PeerId, token: Token, order: &CallOrder) -> Option<()> {
    let (header, arguments) = (order.header?, order.room.get(..order.arguments_len)?);
    let (reply_max, timeout) = (order.reply_max, order.timeout);
    let header_len = header_len(&header.credential);
    let len = header_len + arguments.len();
    let mut message = cx.message(len)?;
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).and_then(|()| writer.fixed(arguments)).ok()?;
    message.extend(len);
    let item = match order.item_at {
        Some(at) => Some(RequestItem { position: header_len + at, octets: copy(cx, &order.item)? }),
        None => None,
    };
    let result = room_for_item(cx, order.item_max).ok()?;
    cx.call(peer, Request { message, item, reply_max, result, timeout, token });
    Some(())
}

impl CallEnds for OrderTaker {
    fn on_reply(&mut self, _: Time, outcome: Outcome<'_>) {
        if let (ASKED, Some(protector)) = (outcome.token, &mut self.protector) {
            return match protector.take(outcome.reply) {
                Ok(()) => {}
                Err(fault) => self.fail_waiting(fault),
            };
        }
        let sent = self.protector.as_mut().and_then(|protector| protector.finish(outcome.token));
        let Some(completion) = self.end(outcome.token) else { return };
        if let Some(sent) = sent {
            return self.finish_protected(&sent, completion, &outcome);
        }
        let chunk = outcome.result.as_deref().unwrap_or_default();
        let ended = outcome.reply.map(drop).map_err(CallError::Failed);
        let waker = completion.complete(ended, |reply| {
            reply.fill(outcome.reply.unwrap_or_default(), chunk);
        });
        self.woken.extend(waker);
    }

    fn on_peer_up(&mut self, _: Time, peer: PeerId) {
        self.peer = Some(peer);
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Ok(()));
        }
    }

    fn on_peer_down(&mut self, _: Time, _: PeerId, cause: Cause) {
        if let Some(protector) = &mut self.protector {
            protector.note_loss(cause);
        }
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Err(cause));
        }
    }

    /// Other threads give orders at any time.
    fn wants_idle_passes(&self) -> bool {
        true
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        let mut orders = mem::take(&mut self.taken);
        let has_lost_runner = {
            let mut line = lock(&self.line.orders);
            mem::swap(&mut line.list, &mut orders);
            mem::take(&mut line.has_lost_runner)
        };
        let mut behind_cancel = false;
        for order in orders.drain(..) {
            match order {
                SlotOrder::Call(token, completion) => {
                    self.call(cx, token, completion, behind_cancel);
                }
                SlotOrder::Cancel(token) => {
                    behind_cancel = true;
                    if let Some(peer) = self.peer.filter(|_| self.has(token)) {
                        cx.cancel(peer, token);
                    }
                }
            }
        }
        self.taken = orders;
        self.send_protected(cx);
        if has_lost_runner {
            let waits = self.calls.iter().flatten();
            self.woken.extend(waits.filter_map(|(_, call)| call.state().waker.take()));
        }
        self.wake_all();
    }
}

impl Drop for OrderTaker {
    fn drop(&mut self) {
        self.wake_all();
        let orders = {
            let mut orders = lock(&self.line.orders);
            orders.is_closed = true;
            mem::take(&mut orders.list)
        };
        drop(orders);
    }
}
