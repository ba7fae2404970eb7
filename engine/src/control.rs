//! Commands of the control thread to shards (DESIGN D11): one atomic word to check and one
//! descriptor to wake the shard.

use crate::{peer_view::PeerId, waiting::Spin};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    time::Duration,
};

/// Maximum of orders pending for one shard.
const ORDERS_MAX: usize = 64;

/// A command to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Accept no more peers, finish calls in progress, disconnect, return.
    Stop = 1,
    /// Send a snapshot of the counters.
    Snapshot = 2,
    /// Make a pass: the app has mail. See [`Waker`].
    Look = 4,
    /// Send a snapshot of the counters, with all peers, the latest watched calls and the details of
    /// the app.
    Detail = 8,
    /// Take the pending orders.
    Obey = 16,
}

/// An instruction with arguments, which a [`Command`] bit cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End the connection of this peer permanently.
    Drop(PeerId),
    /// Let calls in progress finish, end all connections, and accept none until [`Order::Resume`].
    Drain,
    /// Accept connections again.
    Resume,
    /// Set the time limit for calls in progress at a drain and at the end.
    SetDrain(Duration),
    /// Set the time of polling without work before a sleep.
    SetSpin(Spin),
}

#[derive(Debug)]
struct Shared {
    commands: AtomicU32,
    wake: OwnedFd,
}

/// The shard's end: it checks once per pass, at the cost of one load.
#[derive(Debug)]
pub struct Control<R> {
    shared: Arc<Shared>,
    snapshots: Sender<R>,
    orders: Receiver<Order>,
}

/// The control end, shared by any number of threads that watch and command. The shard waits for
/// none of them.
#[derive(Debug)]
pub struct Handle<R> {
    shared: Arc<Shared>,
    /// Locked by the asking thread until the answer arrives.
    snapshots: Mutex<Receiver<R>>,
    orders: SyncSender<Order>,
}

/// A pending request for a snapshot. Other threads that ask wait until it is dropped.
#[derive(Debug)]
pub struct Question<'a, R>(MutexGuard<'a, Receiver<R>>);

impl<R> Question<'_, R> {
    /// Waits for the answer. None when the shard is gone or does not answer in `timeout`.
    pub fn answer(self, timeout: Duration) -> Option<R> {
        self.0.recv_timeout(timeout).ok()
    }
}

/// Makes both ends. Fails as `eventfd(2)` does.
pub fn pair<R>() -> std::io::Result<(Control<R>, Handle<R>)> {
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let shared = Arc::new(Shared { commands: AtomicU32::new(0), wake });
    let (sender, receiver) = channel();
    let (order, orders) = sync_channel(ORDERS_MAX);
    Ok((
        Control { shared: Arc::clone(&shared), snapshots: sender, orders },
        Handle { shared, snapshots: Mutex::new(receiver), orders: order },
    ))
}

/// Wakes a shard from any thread: for apps of several shards that exchange messages.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Ends the shard's sleep and causes a pass; an awake shard makes one anyway.
    pub fn wake(&self) {
        self.0.tell(Command::Look);
    }
}

/// The eventfd that ends the shard's sleep, for use by the kernel: any addition to it causes a
/// pass.
impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

impl Shared {
    fn tell(&self, command: Command) {
        let before = self.commands.fetch_or(command as u32, Ordering::Release);
        if before & command as u32 != 0 {
            // The thread that set the bit first wakes the shard, which has not checked since.
            return;
        }
        // A full counter wakes as well; no other failure is possible.
        let _ = io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl<R> Handle<R> {
    /// Sends a command to the shard; wakes it if it sleeps.
    pub fn tell(&self, command: Command) {
        self.shared.tell(command);
    }

    /// Requests a snapshot by [`Command::Snapshot`] or [`Command::Detail`]. To have several shards
    /// answer at the same time, ask all of them before waiting for the first answer.
    pub fn ask(&self, command: Command) -> Question<'_, R> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        // Discard a late answer to an earlier request that timed out.
        while snapshots.try_recv().is_ok() {}
        self.shared.tell(command);
        Question(snapshots)
    }

    /// Sends an order to the shard. Returns false if too many are pending, or if the shard is gone.
    pub fn order(&self, order: Order) -> bool {
        let is_taken = self.orders.try_send(order).is_ok();
        self.shared.tell(Command::Obey);
        is_taken
    }

    /// The descriptor that wakes the shard.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }
}

impl<R> Control<R> {
    /// The descriptor that wakes this shard.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// The commands that arrived since the last check, as bits of [`Command`].
    pub(crate) fn look(&self) -> u32 {
        if self.shared.commands.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.shared.commands.swap(0, Ordering::Acquire)
    }

    /// Resets the eventfd after a sleep. If a command is taken between setting its bit and writing
    /// the eventfd, a wake-up is left over, which would end every later sleep at once.
    pub(crate) fn awake(&self) {
        let mut counter = [0; 8];
        // Nothing to read means that another event ended the sleep.
        let _ = io::read(&self.shared.wake, &mut counter);
    }

    pub(crate) fn send(&self, snapshot: R) {
        // The receiving thread is gone, so the snapshot can be dropped.
        let _ = self.snapshots.send(snapshot);
    }

    /// The next pending order.
    pub(crate) fn next_order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_seen_once() {
        let (control, handle) = pair::<u32>().unwrap();
        assert_eq!(control.look(), 0);
        let question = handle.ask(Command::Snapshot);
        handle.tell(Command::Stop);
        assert_eq!(control.look(), Command::Stop as u32 | Command::Snapshot as u32);
        assert_eq!(control.look(), 0);
        handle.waker().wake();
        assert_eq!(control.look(), Command::Look as u32);
        assert_eq!(control.look(), 0);
        control.send(7);
        assert_eq!(question.answer(Duration::from_secs(1)), Some(7));
    }

    #[test]
    fn an_answer_that_came_too_late_answers_no_other_question() {
        let (control, handle) = pair::<u32>().unwrap();
        assert_eq!(handle.ask(Command::Snapshot).answer(Duration::ZERO), None);
        control.send(1);
        let question = handle.ask(Command::Detail);
        control.send(2);
        assert_eq!(question.answer(Duration::from_secs(1)), Some(2));
        drop(control);
        assert_eq!(handle.ask(Command::Snapshot).answer(Duration::from_secs(1)), None);
    }

    #[test]
    fn orders_come_in_order_and_no_more_than_there_is_room_for() {
        let (control, handle) = pair::<u32>().unwrap();
        assert!(handle.order(Order::Drain) && handle.order(Order::Resume));
        assert_eq!(control.look(), Command::Obey as u32);
        assert_eq!(control.next_order(), Some(Order::Drain));
        assert_eq!(control.next_order(), Some(Order::Resume));
        assert_eq!(control.next_order(), None);
        assert!((0..ORDERS_MAX).all(|_| handle.order(Order::Drain)));
        assert!(!handle.order(Order::Drain), "the shard obeys none of them");
    }

    fn is_awake(control: &Control<u32>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let fd = control.wake_fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .unwrap()
            > 0
    }

    #[test]
    fn a_wake_up_that_was_overtaken_ends_one_sleep_and_no_more() {
        let (control, handle) = pair::<u32>().unwrap();
        // The bit is seen between `tell`'s two steps.
        handle.shared.commands.fetch_or(Command::Look as u32, Ordering::Release);
        assert_eq!(control.look(), Command::Look as u32);
        io::write(&handle.shared.wake, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(control.look(), 0);
        assert!(is_awake(&control), "one sleep ends at once");
        control.awake();
        assert!(!is_awake(&control), "the next one lasts");
    }

    #[test]
    fn a_shard_that_has_not_looked_is_woken_once() {
        let (control, handle) = pair::<u32>().unwrap();
        let rung = || {
            let mut counter = [0; 8];
            io::read(control.wake_fd(), &mut counter).map(|_| u64::from_ne_bytes(counter)).ok()
        };
        let waker = handle.waker();
        for round in 0..3 {
            waker.wake();
            waker.wake();
            assert_eq!((rung(), rung()), (Some(1), None), "round {round}");
            waker.wake();
            assert_eq!(rung(), None, "round {round}: it has not looked since");
            assert_eq!(control.look(), Command::Look as u32);
        }
    }
}
