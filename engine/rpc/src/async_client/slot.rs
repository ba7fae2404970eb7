//! Slots of calls, shared by the threads that make calls and the thread that sends them. Slots are
//! reused with their buffers: no call allocates once there is a slot for each concurrent call.

use super::line::OrderLine;
use crate::call::{CLIENT_TOKEN, CallError};
use stag_engine::{CallFault, Token};
use stag_protocol::rpc::CallHeader;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task,
    time::Duration,
};

/// Locks, even after a panic elsewhere: every change of these values is one step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call, from its order to the end of its reply.
#[derive(Debug)]
pub(super) struct CallSlot {
    /// The place in the tables of the client's thread.
    index: u32,
    state: Mutex<ReplySlotState>,
    /// The caller no longer wants the call. Not under the lock: it is asked between two sends.
    is_given_up: AtomicBool,
    /// The line that it returns to.
    home: Weak<OrderLine>,
}

impl CallSlot {
    pub(super) fn new(index: u32, home: Weak<OrderLine>) -> Self {
        Self { index, state: Mutex::default(), is_given_up: AtomicBool::new(false), home }
    }
}

/// The place of a call's slot, by the call's token.
pub(super) fn index_of(token: Token) -> usize {
    token.0 as u32 as usize
}

/// The state of a call.
#[derive(Debug, Default)]
pub(super) struct ReplySlotState {
    /// The memory of an order, which the next call of this slot uses; none during a call.
    order: Option<Box<CallOrder>>,
    pub(super) reply: OwnedReply,
    pub(super) ended: Option<Result<(), CallError>>,
    pub(super) waker: Option<task::Waker>,
    /// Handles of the slot; the last one returns it.
    handles: u8,
    /// Calls before this one.
    calls: u32,
}

/// A call in the form in which its thread sends it.
#[derive(Debug, Default)]
pub(super) struct CallOrder {
    /// None before the first call.
    pub(super) header: Option<CallHeader<'static>>,
    /// Room for the longest arguments so far; the current ones are `arguments_len` octets of it.
    pub(super) room: Vec<u8>,
    pub(super) arguments_len: usize,
    pub(super) item: Vec<u8>,
    /// The offset of the item in the arguments, if there is one.
    pub(super) item_at: Option<usize>,
    pub(super) reply_max: usize,
    pub(super) item_max: usize,
    pub(super) timeout: Duration,
}

/// The octets of a reply, copied out of the shard's memory.
#[derive(Debug, Default)]
pub(super) struct OwnedReply {
    pub(super) message: Vec<u8>,
    pub(super) chunk: Vec<u8>,
}

impl OwnedReply {
    /// Copies a reply into it.
    pub(super) fn fill(&mut self, message: &[u8], chunk: &[u8]) {
        self.message.clear();
        self.message.extend_from_slice(message);
        self.chunk.clear();
        self.chunk.extend_from_slice(chunk);
    }

    /// Returns true if it has buffers.
    const fn is_some(&self) -> bool {
        self.message.capacity() > 0
    }
}

/// One of the two holders of a slot.
#[derive(Debug)]
struct SlotEnd(Arc<CallSlot>);

impl SlotEnd {
    fn state(&self) -> MutexGuard<'_, ReplySlotState> {
        lock(&self.0.state)
    }

    /// Makes the last change of this end and releases the slot, in one step: the other end never
    /// sees the change while this one still holds the slot. The last end returns it.
    fn leave(&self, last_change: impl FnOnce(&mut ReplySlotState)) {
        let mut state = self.state();
        last_change(&mut state);
        state.handles -= 1;
        if state.handles > 0 {
            return;
        }
        state.ended = None;
        let waker = state.waker.take();
        drop(state);
        // A waker is foreign code: no lock is held while it is dropped.
        drop(waker);
        if let Some(home) = self.0.home.upgrade() {
            home.take_back(Arc::clone(&self.0));
        }
    }
}

/// The caller's end of a call: its future, then its reply.
#[derive(Debug)]
pub(super) struct SlotHandle {
    end: SlotEnd,
    /// The buffers of the reply, while the caller has them.
    pub(super) reply: OwnedReply,
}

impl SlotHandle {
    /// Both ends of an unused slot, the token of its call, and what `write` returns, which writes
    /// the call.
    pub(super) fn pair<R>(
        home: &Arc<OrderLine>,
        write: impl FnOnce(&mut CallOrder) -> R,
    ) -> (Self, Completion, Token, R) {
        let slot = home.free_slot();
        slot.is_given_up.store(false, Ordering::Relaxed); // it has no other holder
        let (call, mut order) = {
            let mut state = lock(&slot.state);
            state.handles = 2;
            // The bit above is that of a client's tokens.
            state.calls = (state.calls + 1) & (u32::MAX >> 1);
            let call = u64::from(state.calls) << 32 | u64::from(slot.index);
            (call, state.order.take().unwrap_or_default())
        };
        // Before `write`, which is foreign code: if it panics, both ends leave the slot.
        let end = SlotEnd(Arc::clone(&slot));
        let (ended, has_left) = (Err(CallFault::NoPeer.into()), false);
        let mut completion = Completion { end, ended, order: None, has_left };
        let caller = Self { end: SlotEnd(slot), reply: OwnedReply::default() };
        let written = write(&mut order);
        completion.order = Some(order);
        (caller, completion, Token(CLIENT_TOKEN | call), written)
    }

    /// The caller does not want the call any more.
    pub(super) fn give_up(&self) {
        // If it is seen late, the call is sent, and a `SlotOrder::Cancel` follows.
        self.end.0.is_given_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ReplySlotState> {
        self.end.state()
    }
}

impl Drop for SlotHandle {
    fn drop(&mut self) {
        let Self { end, reply } = self;
        end.leave(|state| {
            if reply.is_some() {
                std::mem::swap(&mut state.reply, reply);
            }
        });
    }
}

/// The thread's end of a call. Dropping it fails the call, because there is no connection.
#[derive(Debug)]
pub(super) struct Completion {
    end: SlotEnd,
    ended: Result<(), CallError>,
    /// The call, until this end leaves. Only this end sees it, so it is read without a lock.
    order: Option<Box<CallOrder>>,
    has_left: bool,
}

impl Completion {
    pub(super) fn state(&self) -> MutexGuard<'_, ReplySlotState> {
        self.end.state()
    }

    /// The call.
    pub(super) fn order(&self) -> Option<&CallOrder> {
        self.order.as_deref()
    }

    /// Returns true if the caller no longer wants the call. It may change at any time; then a
    /// [`SlotOrder::Cancel`] follows.
    pub(super) fn is_given_up(&self) -> bool {
        self.end.0.is_given_up.load(Ordering::Relaxed)
    }

    /// Ends the call, and returns the waker of who waits for it. `reply` fills the buffers of a
    /// received reply.
    pub(super) fn complete(
        mut self,
        ended: Result<(), CallError>,
        reply: impl FnOnce(&mut OwnedReply),
    ) -> Option<task::Waker> {
        self.ended = ended;
        self.leave(reply)
    }

    fn leave(&mut self, reply: impl FnOnce(&mut OwnedReply)) -> Option<task::Waker> {
        if std::mem::replace(&mut self.has_left, true) {
            return None;
        }
        let (mut waker, order) = (None, self.order.take());
        self.end.leave(|state| {
            reply(&mut state.reply);
            state.order = order;
            state.ended = Some(self.ended);
            waker = state.waker.take();
        });
        waker
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(waker) = self.leave(|_| ()) {
            waker.wake();
        }
    }
}

/// Orders of other threads to the client's thread.
#[derive(Debug)]
pub(super) enum SlotOrder {
    /// Makes a call.
    Call(Token, Completion),
    /// Cancels a call.
    Cancel(Token),
}

#[cfg(test)]
mod tests {
    use super::{Arc, Completion, Mutex, OrderLine, SlotHandle, lock};
    use std::task::{Wake, Waker};

    /// Releases the caller's end as soon as it is woken, and makes a call at once.
    struct CallsAgain(Mutex<Option<SlotHandle>>);

    impl Wake for CallsAgain {
        fn wake(self: Arc<Self>) {
            let caller = lock(&self.0).take().expect("woken once");
            let line = caller.end.0.home.upgrade().expect("the test has the line");
            drop(caller);
            drop(SlotHandle::pair(&line, |_| ()));
        }
    }

    #[test]
    fn a_call_made_by_whoever_is_woken_takes_the_slot_of_the_call_that_ended() {
        let line = Arc::new(OrderLine::new(None));
        let completed: fn(Completion) = |end| {
            end.complete(Ok(()), |_| ()).into_iter().for_each(Waker::wake);
        };
        let ends = [completed, drop];
        for end in ends {
            let (caller, completion, ..) = SlotHandle::pair(&line, |_| ());
            let again = Arc::new(CallsAgain(Mutex::default()));
            caller.state().waker = Some(Waker::from(Arc::clone(&again)));
            *lock(&again.0) = Some(caller);
            end(completion);
            assert_eq!(line.slots(), (1, 1));
        }
    }
}
