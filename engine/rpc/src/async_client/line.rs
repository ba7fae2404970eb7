//! The queue of orders to the thread of an asynchronous client, and the handler that carries them
//! out there.

use super::slot::{CallSlot, Completion, SlotOrder, lock};
use crate::{
    app::CallEnds,
    call::{goes_short, header_len, room_for_item},
    reply::copy,
};
use stag_engine::{
    CallFault, Cause, Cx, Outcome, PeerId, Request, RequestItem, ShortRequest, Time, Token, Waker,
};
use stag_protocol::xdr::Writer;
use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
};

/// Queued orders, and free slots.
#[derive(Debug)]
pub(super) struct OrderLine {
    orders: Mutex<OrderList>,
    /// Unused slots.
    pub(super) free: Mutex<Vec<Arc<CallSlot>>>,
    calls: AtomicU64,
    /// Wakes the thread; none in simulated time.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct OrderList {
    list: Vec<SlotOrder>,
    /// The client's thread has ended.
    is_closed: bool,
}

impl OrderLine {
    pub(super) fn new(waker: Option<Waker>) -> Self {
        let (orders, free) = (Mutex::default(), Mutex::default());
        Self { orders, free, calls: AtomicU64::new(0), waker }
    }

    /// A number for the next call.
    pub(super) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
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
    calls: HashMap<Token, Completion>,
    peer: Option<PeerId>,
    /// Reports once that the connection is made or has failed.
    connected: Option<Sender<Result<(), Cause>>>,
}

impl OrderTaker {
    pub(super) fn new(line: Arc<OrderLine>, connected: Sender<Result<(), Cause>>) -> Self {
        let calls = HashMap::new();
        Self { line, taken: Vec::new(), calls, peer: None, connected: Some(connected) }
    }

    /// Makes a call. With `behind_cancel`, the call is queued even if it is short, because the
    /// entry that it may need is freed only when the cancelled calls are.
    fn call(&mut self, cx: &mut Cx<'_>, token: Token, completion: Completion, behind_cancel: bool) {
        let Some(peer) = self.peer else { return };
        let sent = match !behind_cancel && goes_at_once(&completion) {
            true => send_short(cx, peer, token, &completion),
            false => send(cx, peer, token, &completion),
        };
        match sent {
            Some(()) => {
                self.calls.insert(token, completion);
            }
            None => completion.complete(Err(CallFault::Limit), |_| ()),
        }
    }
}

/// Returns true if the ordered call is a short one.
fn goes_at_once(completion: &Completion) -> bool {
    let state = completion.state();
    let order = &state.order;
    order.item_at.is_none()
        && order.item_max == 0
        && order.header.is_some_and(|header| {
            let len = header_len(&header.credential) + order.arguments_len;
            goes_short(len, order.reply_max)
        })
}

/// Makes the ordered short call, which is sent at once if possible.
fn send_short(cx: &mut Cx<'_>, peer: PeerId, token: Token, completion: &Completion) -> Option<()> {
    let state = completion.state();
    let order = &state.order;
    let (header, arguments) = (order.header?, order.room.get(..order.arguments_len)?);
    let (reply_max, timeout) = (order.reply_max, order.timeout);
    let request = ShortRequest { header, reply_max, timeout, token };
    cx.call_short(peer, &request, |to| to.fixed(arguments)).ok()
}

/// Makes the ordered call in memory of the shard. None if there is no memory for it.
fn send(cx: &mut Cx<'_>, peer: PeerId, token: Token, completion: &Completion) -> Option<()> {
    let state = completion.state();
    let order = &state.order;
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
        let Some(completion) = self.calls.remove(&outcome.token) else { return };
        let chunk = outcome.result.as_deref().unwrap_or_default();
        completion.complete(outcome.reply.map(drop), |reply| {
            reply.message.clear();
            reply.message.extend_from_slice(outcome.reply.unwrap_or_default());
            reply.chunk.clear();
            reply.chunk.extend_from_slice(chunk);
        });
    }

    fn on_peer_up(&mut self, _: Time, peer: PeerId) {
        self.peer = Some(peer);
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Ok(()));
        }
    }

    fn on_peer_down(&mut self, _: Time, _: PeerId, cause: Cause) {
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
        mem::swap(&mut lock(&self.line.orders).list, &mut orders);
        let mut behind_cancel = false;
        for order in orders.drain(..) {
            match order {
                SlotOrder::Call(token, completion) => {
                    self.call(cx, token, completion, behind_cancel);
                }
                SlotOrder::Cancel(token) => {
                    behind_cancel = true;
                    if let Some(peer) = self.peer.filter(|_| self.calls.contains_key(&token)) {
                        cx.cancel(peer, token);
                    }
                }
            }
        }
        self.taken = orders;
    }
}

impl Drop for OrderTaker {
    fn drop(&mut self) {
        let orders = {
            let mut orders = lock(&self.line.orders);
            orders.is_closed = true;
            mem::take(&mut orders.list)
        };
        drop(orders);
    }
}
