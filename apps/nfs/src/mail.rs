//! Letters to a thread from others: bounded, never waited for, with a bell that ends the thread's
//! sleep.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

type Bell = Box<dyn Fn() + Send + Sync>;

/// The end of a thread's mail that others put letters in, from any thread. The thread has the
/// receiver.
pub(crate) struct Letterbox<T> {
    letters: SyncSender<T>,
    is_filled: AtomicBool,
    bell: OnceLock<Bell>,
}

impl<T> fmt::Debug for Letterbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Letterbox")
    }
}

impl<T> Letterbox<T> {
    /// Room for `capacity` letters; all memory they ever need.
    pub(crate) fn new(capacity: usize) -> (Self, Receiver<T>) {
        let (letters, receiver) = sync_channel(capacity);
        (Self { letters, is_filled: AtomicBool::new(false), bell: OnceLock::new() }, receiver)
    }

    /// Lets `ring` wake the thread. Without it a sleeping thread finds its letters when it wakes by
    /// itself. Only the first counts.
    pub(crate) fn attach(&self, ring: impl Fn() + Send + Sync + 'static) {
        let _ = self.bell.set(Box::new(ring));
    }

    /// Puts a letter in and wakes nobody. It comes back when the box is full or its thread is gone.
    pub(crate) fn put(&self, letter: T) -> Result<(), T> {
        use std::sync::mpsc::TrySendError::{Disconnected, Full};
        let put = self.letters.try_send(letter).map_err(|(Full(letter) | Disconnected(letter))| letter);
        if put.is_ok() {
            self.is_filled.store(true, Ordering::Release);
        }
        put
    }

    /// Wakes the thread, and lets it look into the box.
    pub(crate) fn ring(&self) {
        self.is_filled.store(true, Ordering::Release);
        if let Some(ring) = self.bell.get() {
            ring();
        }
    }

    /// True when somebody put a letter in, or rang, since the last [`look`](Self::look).
    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Relaxed)
    }

    /// As [`is_filled`](Self::is_filled), and takes note of it: one load when nobody did. What is
    /// put in from here on is found by the next look.
    pub(crate) fn look(&self) -> bool {
        self.is_filled() && self.is_filled.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicU32};

    #[test]
    fn letters_are_seen_once_and_only_who_rings_wakes() {
        let (letterbox, letters) = Letterbox::new(2);
        let rung = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&rung);
        letterbox.attach(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(!letterbox.look());
        letterbox.put(1).unwrap();
        assert!(letterbox.is_filled() && letterbox.look() && !letterbox.look());
        assert_eq!((letters.try_recv(), rung.load(Ordering::Relaxed)), (Ok(1), 0));
        letterbox.ring();
        assert!(letterbox.look());
        assert_eq!(rung.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_full_box_and_one_whose_thread_is_gone_give_the_letter_back() {
        let (letterbox, letters) = Letterbox::new(1);
        letterbox.put(1).unwrap();
        assert_eq!(letterbox.put(2), Err(2));
        drop(letters);
        assert_eq!(letterbox.put(3), Err(3));
    }
}
