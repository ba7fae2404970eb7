//! The line of orders to the thread of an asynchronous client, and the app that takes them there.

use super::slot::{CallSlot, Completion, Order, lock};
use crate::{app::CallEnds, call::room_for_item, reply::copy};
use stag_engine::{
    CallFault, Cause, Cx, Outcome, PeerId, Request, RequestItem, Time, Token, Waker,
};
use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
};

/// Orders on their way, and slots for more.
#[derive(Debug)]
pub(super) struct OrderLine {
    orders: Mutex<OrderList>,
    /// Slots that no call uses.
    pub(super) free: Mutex<Vec<Arc<CallSlot>>>,
    calls: AtomicU64,
    /// Wakes the thread; none in simulated time.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct OrderList {
    list: Vec<Order>,
    /// The client's thread has ended.
    is_closed: bool,
}

impl OrderLine {
    pub(super) fn new(waker: Option<Waker>) -> Self {
        let (orders, free) = (Mutex::default(), Mutex::default());
        Self { orders, free, calls: AtomicU64::new(0), waker }
    }

    /// A number for one more call.
    pub(super) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an order. Behind the end of the thread it is dropped, which fails its call.
    pub(super) fn tell(&self, order: Order) {
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

/// Takes orders on the client's thread, and tells its calls how they ended.
pub(super) struct OrderTaker {
    line: Arc<OrderLine>,
    /// Orders that were taken and not carried out; its room is that of the line's list in turn.
    taken: Vec<Order>,
    calls: HashMap<Token, Completion>,
    peer: Option<PeerId>,
    /// Says once if there is a connection.
    connected: Option<Sender<Result<(), Cause>>>,
}

impl OrderTaker {
    pub(super) fn new(line: Arc<OrderLine>, connected: Sender<Result<(), Cause>>) -> Self {
        let calls = HashMap::new();
        Self { line, taken: Vec::new(), calls, peer: None, connected: Some(connected) }
    }

    fn call(&mut self, cx: &mut Cx<'_>, token: Token, completion: Completion) {
        let Some(peer) = self.peer else { return };
        match request(cx, token, &completion) {
            Some(request) => {
                self.calls.insert(token, completion);
                cx.call(peer, request);
            }
            None => completion.complete(Err(CallFault::Limit), |_| ()),
        }
    }
}

/// The call that was ordered, in memory of the shard.
fn request(cx: &Cx<'_>, token: Token, completion: &Completion) -> Option<Request> {
    let state = completion.state();
    let order = &state.order;
    let octets = order.room.get(..order.message_len)?;
    let mut message = cx.message(octets.len())?;
    message.append(octets).ok()?;
    let item = match order.item_at {
        Some(position) => Some(RequestItem { position, octets: copy(cx, &order.item)? }),
        None => None,
    };
    let result = room_for_item(cx, order.item_max).ok()?;
    let (reply_max, timeout) = (order.reply_max, order.timeout);
    Some(Request { message, item, reply_max, result, timeout, token })
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

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        let mut orders = mem::take(&mut self.taken);
        mem::swap(&mut lock(&self.line.orders).list, &mut orders);
        for order in orders.drain(..) {
            match order {
                Order::Call(token, completion) => self.call(cx, token, completion),
                Order::Cancel(token) => {
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
