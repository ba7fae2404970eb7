//! Batched syncs of one file: callers that arrive during a sync wait for the next one, which serves
//! all of them. A sync costs a metadata server a journal write, and a client that writes stably has
//! many in flight.

use rustix::io::Errno;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The syncs of a file, by number.
#[derive(Debug, Default)]
struct SyncRuns {
    begun: u64,
    ended: u64,
    /// The last failed sync, and its error.
    failed: Option<(u64, Errno)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SharedSync {
    runs: Mutex<SyncRuns>,
    over: Condvar,
}

impl SharedSync {
    fn runs(&self) -> MutexGuard<'_, SyncRuns> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a sync that begins after this call: another waiter's, or `sync`.
    ///
    /// # Errors
    /// Its error, or that of a later sync that failed before this caller could look.
    pub(super) fn wait(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut runs = self.runs();
        let wanted = runs.begun + 1;
        while runs.ended < wanted {
            if runs.begun == runs.ended {
                runs.begun += 1;
                drop(runs);
                // Waiters are served even if this sync does not complete.
                let mut end = SyncEnd { of: self, outcome: Err(Errno::IO) };
                end.outcome = sync();
                return end.outcome;
            }
            runs = self.over.wait(runs).unwrap_or_else(PoisonError::into_inner);
        }
        match runs.failed {
            Some((number, errno)) if number >= wanted => Err(errno),
            _ => Ok(()),
        }
    }
}

/// The end of a sync; dropping it notifies the waiters.
struct SyncEnd<'a> {
    of: &'a SharedSync,
    outcome: Result<(), Errno>,
}

impl Drop for SyncEnd<'_> {
    fn drop(&mut self) {
        let mut runs = self.of.runs();
        runs.ended = runs.begun;
        if let Err(errno) = self.outcome {
            runs.failed = Some((runs.ended, errno));
        }
        drop(runs);
        self.of.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
            mpsc::{Receiver, Sender, channel},
        },
        thread::{self, JoinHandle},
    };

    /// A sync that reports its start and ends with the outcome sent to it.
    struct Gate {
        begun: Receiver<()>,
        end: Sender<Result<(), Errno>>,
        waiting: JoinHandle<Result<(), Errno>>,
    }

    fn gate(shared: &Arc<SharedSync>) -> Gate {
        let ((tell, begun), (end, ending)) = (channel(), channel());
        let shared = Arc::clone(shared);
        let waiting = thread::spawn(move || {
            shared.wait(|| {
                tell.send(()).unwrap();
                ending.recv().unwrap()
            })
        });
        Gate { begun, end, waiting }
    }

    /// Runs callers that arrive during a sync; returns the number of syncs they make, each with
    /// this outcome.
    fn crowd(
        shared: &Arc<SharedSync>,
        outcome: Result<(), Errno>,
    ) -> (Vec<JoinHandle<Result<(), Errno>>>, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let come = Arc::new(AtomicUsize::new(0));
        let crowd: Vec<_> = (0..8)
            .map(|_| {
                let (shared, made, come) = (Arc::clone(shared), made.clone(), come.clone());
                thread::spawn(move || {
                    come.fetch_add(1, Ordering::SeqCst);
                    shared.wait(|| {
                        made.fetch_add(1, Ordering::SeqCst);
                        outcome
                    })
                })
            })
            .collect();
        while come.load(Ordering::SeqCst) < 8 {
            thread::yield_now();
        }
        (crowd, made)
    }

    #[test]
    fn whoever_comes_while_a_sync_is_under_way_is_served_by_a_later_one() {
        for outcome in [Ok(()), Err(Errno::IO)] {
            let shared = Arc::new(SharedSync::default());
            let first = gate(&shared);
            first.begun.recv().unwrap();
            let (crowd, made) = crowd(&shared, outcome);
            assert_eq!(made.load(Ordering::SeqCst), 0, "the first one began before they came");
            first.end.send(Ok(())).unwrap();
            assert_eq!(first.waiting.join().unwrap(), Ok(()));
            assert!(crowd.into_iter().all(|caller| caller.join().unwrap() == outcome));
            assert!((1..=8).contains(&made.load(Ordering::SeqCst)));
        }
    }

    #[test]
    fn an_error_is_that_of_those_who_waited_for_it() {
        let shared = Arc::new(SharedSync::default());
        assert_eq!(shared.wait(|| Err(Errno::SHUTDOWN)), Err(Errno::SHUTDOWN));
        assert_eq!(shared.wait(|| Ok(())), Ok(()));
        let first = gate(&shared);
        first.begun.recv().unwrap();
        let second = gate(&shared);
        first.end.send(Err(Errno::IO)).unwrap();
        assert_eq!(first.waiting.join().unwrap(), Err(Errno::IO));
        second.begun.recv().unwrap();
        second.end.send(Ok(())).unwrap();
        assert_eq!(second.waiting.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_sync_that_does_not_come_to_its_end_keeps_nobody_waiting() {
        let shared = Arc::new(SharedSync::default());
        let broken = Arc::clone(&shared);
        assert!(thread::spawn(move || broken.wait(|| panic!("a mistake"))).join().is_err());
        assert_eq!(shared.wait(|| Ok(())), Ok(()));
    }
}
