//! Inodes that the metadata servers want back: the library names them from a thread of its own.

use crate::abi::Vino;
use libc::c_void;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Inodes that are remembered; when there are more, all are wanted back.
const REMEMBERED: usize = 4_096;

/// Inodes that a mount is asked to let go of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// These.
    These(Vec<Vino>),
    /// All: more came than are remembered.
    All,
}

/// Inodes that came and were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct ReleaseQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    inodes: VecDeque<Vino>,
    is_over: bool,
}

impl ReleaseQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, inode: Vino) {
        let mut waiting = self.waiting();
        if waiting.inodes.len() < REMEMBERED {
            waiting.inodes.push_back(inode);
        } else {
            waiting.is_over = true;
        }
    }

    /// Takes what came since the last call.
    pub(crate) fn take(&self) -> Released {
        let mut waiting = self.waiting();
        let inodes = std::mem::take(&mut waiting.inodes);
        match std::mem::take(&mut waiting.is_over) {
            true => Released::All,
            false => Released::These(inodes.into()),
        }
    }
}

/// The callback: remembers `inode` and returns. It may be called while the library holds locks of
/// its own, so it calls nothing of it.
///
/// # Safety
/// `queue` is a [`ReleaseQueue`] that outlives the mount at which this was registered.
pub(crate) unsafe extern "C" fn on_release(queue: *mut c_void, inode: Vino) {
    // SAFETY: the caller's promise; the queue is only ever shared.
    let queue = unsafe { &*queue.cast::<ReleaseQueue>() };
    queue.push(inode);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_come_in_order_and_too_many_are_all() {
        let queue = ReleaseQueue::default();
        let inodes: Vec<_> = (1..=3).map(Vino::live).collect();
        inodes.iter().for_each(|inode| queue.push(*inode));
        assert_eq!(queue.take(), Released::These(inodes));
        assert_eq!(queue.take(), Released::These(Vec::new()));
        (0..=REMEMBERED as u64).for_each(|inode| queue.push(Vino::live(inode)));
        assert_eq!(queue.take(), Released::All);
        assert_eq!(queue.take(), Released::These(Vec::new()));
    }
}
