//! Commands of the control thread to shards (DESIGN D11): one word to look at and one descriptor to
//! wake by.

use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io,
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
    mpsc::{Receiver, Sender, channel},
};

/// A command to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Take no more peers, finish what is in progress, disconnect, return.
    Stop = 1,
    /// Send a snapshot of the counters.
    Snapshot = 2,
    /// Make a pass: the app has mail. See [`Waker`].
    Look = 4,
}

#[derive(Debug)]
struct Shared {
    commands: AtomicU32,
    wake: OwnedFd,
}

/// The shard's end: it looks once per pass, which costs one load.
#[derive(Debug)]
pub struct Control<R> {
    shared: Arc<Shared>,
    snapshots: Sender<R>,
}

/// The control thread's end.
#[derive(Debug)]
pub struct Handle<R> {
    shared: Arc<Shared>,
    snapshots: Receiver<R>,
}

/// Makes both ends. Fails as `eventfd(2)` does.
pub fn pair<R>() -> std::io::Result<(Control<R>, Handle<R>)> {
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let shared = Arc::new(Shared { commands: AtomicU32::new(0), wake });
    let (sender, receiver) = channel();
    Ok((
        Control { shared: Arc::clone(&shared), snapshots: sender },
        Handle { shared, snapshots: receiver },
    ))
}

/// Wakes a shard, from any thread: for apps that write to each other.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Makes the shard end its sleep and make a pass; one that does not sleep makes one anyway.
    pub fn wake(&self) {
        self.0.tell(Command::Look);
    }
}

/// The eventfd that ends the shard's sleep, for the system to ring: whatever adds to it causes a
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
            // Whoever told it first wakes the shard, which has not looked since.
            return;
        }
        // A full counter wakes as well; nothing else can fail.
        let _ = io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl<R> Handle<R> {
    /// Tells the shard; wakes it if it sleeps.
    pub fn tell(&self, command: Command) {
        if command == Command::Snapshot {
            // An answer that nobody waited for long enough is not the answer to this.
            while self.snapshots.try_recv().is_ok() {}
        }
        self.shared.tell(command);
    }

    /// The descriptor that wakes the shard.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// Waits for the snapshot that [`Command::Snapshot`] asked for. None when the shard is gone or
    /// does not answer in `timeout`.
    pub fn snapshot(&self, timeout: std::time::Duration) -> Option<R> {
        self.snapshots.recv_timeout(timeout).ok()
    }
}

impl<R> Control<R> {
    /// The descriptor that wakes this shard.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// The commands that came since the last look, as bits of [`Command`].
    pub(crate) fn look(&self) -> u32 {
        if self.shared.commands.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.shared.commands.swap(0, Ordering::Acquire)
    }

    /// Takes wake-ups back after a sleep. A command that was looked at between its bit and its
    /// wake-up leaves one behind, which would end every later sleep at once.
    pub(crate) fn awake(&self) {
        let mut counter = [0; 8];
        // Nothing to read means that something else ended the sleep.
        let _ = io::read(&self.shared.wake, &mut counter);
    }

    pub(crate) fn send(&self, snapshot: R) {
        // Nobody listens any more: nobody misses it.
        let _ = self.snapshots.send(snapshot);
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
        handle.tell(Command::Snapshot);
        handle.tell(Command::Stop);
        assert_eq!(control.look(), Command::Stop as u32 | Command::Snapshot as u32);
        assert_eq!(control.look(), 0);
        handle.waker().wake();
        assert_eq!(control.look(), Command::Look as u32);
        assert_eq!(control.look(), 0);
        control.send(7);
        assert_eq!(handle.snapshot(std::time::Duration::from_secs(1)), Some(7));
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
