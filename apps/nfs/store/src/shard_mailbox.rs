//! Inbox of a thread for messages from other threads: bounded and non-blocking, with a wakeup that
//! ends the thread's sleep.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

type WakeFn = Box<dyn Fn() + Send + Sync>;

/// The sending end of a thread's mail, usable from any thread. The thread has the receiver.
pub struct Inbox<T> {
    messages: SyncSender<T>,
    is_filled: AtomicBool,
    wake: OnceLock<WakeFn>,
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

/// Wakes the thread of an inbox, from any thread.
#[derive(Clone)]
pub struct Wakeup(Arc<dyn AttachWake>);

/// An inbox with any type of messages.
trait AttachWake: Send + Sync {
    fn attach(&self, wake: WakeFn);
}

impl<T: Send> AttachWake for Inbox<T> {
    fn attach(&self, wake: WakeFn) {
        Self::attach(self, wake);
    }
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wakeup")
    }
}

impl Wakeup {
    /// The wakeup of the thread that reads `inbox`.
    pub fn new<T: Send + 'static>(inbox: &Arc<Inbox<T>>) -> Self {
        Self(Arc::<Inbox<T>>::clone(inbox))
    }

    /// Registers `wake` to wake the thread. Without it a sleeping thread finds its messages when it
    /// wakes by itself. Only the first registration counts.
    pub fn attach(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.0.attach(Box::new(wake));
    }
}

impl<T> Inbox<T> {
    /// Room for `capacity` messages; allocates all memory they ever need.
    pub fn new(capacity: usize) -> (Self, Receiver<T>) {
        let (messages, receiver) = sync_channel(capacity);
        (Self { messages, is_filled: AtomicBool::new(false), wake: OnceLock::new() }, receiver)
    }

    /// As in [`Wakeup::attach`].
    pub(crate) fn attach(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Adds a message without waking the thread. Returns it when the inbox is full or the thread is
    /// gone.
    pub fn put(&self, message: T) -> Result<(), T> {
        use std::sync::mpsc::TrySendError::{Disconnected, Full};
        let put = self
            .messages
            .try_send(message)
            .map_err(|(Full(message) | Disconnected(message))| message);
        if put.is_ok() {
            self.fill();
        }
        put
    }

    /// Sets the flag. Each swap synchronizes with the earlier ones, so that a look sees the
    /// messages of all senders.
    fn fill(&self) {
        self.is_filled.swap(true, Ordering::AcqRel);
    }

    /// Wakes the thread, and makes it check the inbox.
    pub fn wake(&self) {
        self.fill();
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// True if a message was added, or the thread woken, since the last [`look`](Self::look).
    pub fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Relaxed)
    }

    /// As [`is_filled`](Self::is_filled), and clears the flag: one load if it was not set. A
    /// message added from here on is found by the next look.
    pub fn look(&self) -> bool {
        self.is_filled() && self.is_filled.swap(false, Ordering::Acquire)
    }
}

/// The next message of an inbox: one load when none was added since the last look.
pub(crate) fn next_of<T>(inbox: &Inbox<T>, messages: &Receiver<T>) -> Option<T> {
    if !inbox.is_filled() {
        return None;
    }
    messages.try_recv().ok().or_else(|| look_again(inbox, messages))
}

/// Checks once more an inbox that was found empty, and clears its flag.
#[cold]
fn look_again<T>(inbox: &Inbox<T>, messages: &Receiver<T>) -> Option<T> {
    // A message added from here on is found now, or sets the flag again.
    inbox.look();
    let message = messages.try_recv().ok()?;
    // More messages may have come with it, whose flag was just cleared.
    inbox.fill();
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn messages_are_seen_once_and_only_wake_wakes() {
        let (inbox, messages) = Inbox::new(2);
        let inbox = Arc::new(inbox);
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        Wakeup::new(&inbox).attach(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(!inbox.look());
        inbox.put(1).unwrap();
        assert!(inbox.is_filled() && inbox.look() && !inbox.look());
        assert_eq!((messages.try_recv(), woken.load(Ordering::Relaxed)), (Ok(1), 0));
        inbox.wake();
        assert!(inbox.look());
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn messages_that_come_together_behind_a_look_at_an_empty_box_are_all_found() {
        let (inbox, messages) = Inbox::new(3);
        inbox.put(1).unwrap();
        assert_eq!(next_of(&inbox, &messages), Some(1));
        // The inbox was found empty, and then these came.
        assert!(messages.try_recv().is_err() && inbox.is_filled());
        inbox.put(2).unwrap();
        inbox.put(3).unwrap();
        assert_eq!(look_again(&inbox, &messages), Some(2));
        assert_eq!(next_of(&inbox, &messages), Some(3));
        assert_eq!((next_of(&inbox, &messages), inbox.is_filled()), (None, false));
    }

    #[test]
    fn a_full_box_and_one_whose_thread_is_gone_give_the_message_back() {
        let (inbox, messages) = Inbox::new(1);
        inbox.put(1).unwrap();
        assert_eq!(inbox.put(2), Err(2));
        drop(messages);
        assert_eq!(inbox.put(3), Err(3));
    }
}
