//! Slots of calls, shared by the threads that make calls and the thread that sends them. Slots are
//! reused with their buffers: no call allocates once there is a slot for each concurrent call.

use super::line::OrderLine;
use stag_engine::{CallFault, Token};
use stag_protocol::rpc::CallHeader;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task,
    time::Duration,
};

/// Locks, even after a panic elsewhere: every change of these values is one step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call, from its order to the end of its reply.
#[derive(Debug, Default)]
pub(super) struct CallSlot(Mutex<ReplySlotState>);

/// The state of a call.
#[derive(Debug, Default)]
pub(super) struct ReplySlotState {
    pub(super) order: CallOrder,
    pub(super) reply: OwnedReply,
    pub(super) ended: Option<Result<(), CallFault>>,
    pub(super) waker: Option<task::Waker>,
    /// Handles of the slot; the last one returns it.
    handles: u8,
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

/// A slot, and the line that it returns to.
#[derive(Debug)]
struct SlotEnd {
    slot: Arc<CallSlot>,
    home: Arc<OrderLine>,
}

impl SlotEnd {
    fn state(&self) -> MutexGuard<'_, ReplySlotState> {
        lock(&self.slot.0)
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
        lock(&self.home.free).push(Arc::clone(&self.slot));
    }
}

/// The caller's end of a call: its future, then its reply.
#[derive(Debug)]
pub(super) struct SlotHandle(SlotEnd);

impl SlotHandle {
    /// Both ends of an unused slot.
    pub(super) fn pair(home: &Arc<OrderLine>) -> (Self, Completion) {
        let slot = lock(&home.free).pop().unwrap_or_default();
        lock(&slot.0).handles = 2;
        let other = SlotEnd { slot: Arc::clone(&slot), home: Arc::clone(home) };
        let caller = Self(SlotEnd { slot, home: Arc::clone(home) });
        (caller, Completion { end: other, ended: Err(CallFault::NoPeer) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ReplySlotState> {
        self.0.state()
    }
}

impl Drop for SlotHandle {
    fn drop(&mut self) {
        self.0.leave(|_| ());
    }
}

/// The thread's end of a call. Dropping it fails the call, because there is no connection.
#[derive(Debug)]
pub(super) struct Completion {
    end: SlotEnd,
    ended: Result<(), CallFault>,
}

impl Completion {
    pub(super) fn state(&self) -> MutexGuard<'_, ReplySlotState> {
        self.end.state()
    }

    /// Ends the call. `reply` fills the buffers of a received reply.
    pub(super) fn complete(
        mut self,
        ended: Result<(), CallFault>,
        reply: impl FnOnce(&mut OwnedReply),
    ) {
        reply(&mut self.state().reply);
        self.ended = ended;
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let mut waker = None;
        self.end.leave(|state| {
            state.ended = Some(self.ended);
            waker = state.waker.take();
        });
        if let Some(waker) = waker {
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
            let line = Arc::clone(&caller.0.home);
            drop(caller);
            drop(SlotHandle::pair(&line));
        }
    }

    #[test]
    fn a_call_made_by_whoever_is_woken_takes_the_slot_of_the_call_that_ended() {
        let line = Arc::new(OrderLine::new(None));
        let ends: [fn(Completion); 2] = [|end| end.complete(Ok(()), |_| ()), drop];
        for end in ends {
            let (caller, completion) = SlotHandle::pair(&line);
            let again = Arc::new(CallsAgain(Mutex::default()));
            caller.state().waker = Some(Waker::from(Arc::clone(&again)));
            *lock(&again.0) = Some(caller);
            end(completion);
            assert_eq!(lock(&line.free).len(), 1);
        }
    }
}
