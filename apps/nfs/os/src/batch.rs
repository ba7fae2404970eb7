//! Threads that do work for others and preempt no thread when they wake (SCHED_BATCH, sched(7)).
//!
//! A waking thread usually preempts the running one. Where many threads pass one call along on one
//! core, each step then is a switch of threads. A batch thread waits until the running one sleeps,
//! so that several steps become one.

use core::marker::PhantomData;

use rustix::io::Errno;

/// While it lives, the thread that made it is a batch thread. Threads that it starts meanwhile are
/// batch threads for good.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct BatchThread {
    was_plain: bool,
    /// It belongs to the thread that made it.
    of_one_thread: PhantomData<*const ()>,
}

impl BatchThread {
    /// Begins it. A thread with an explicitly set policy keeps it, and so does one whose policy the
    /// system does not let change: only core time depends on it.
    pub fn begin() -> Self {
        let was_plain = policy().is_ok_and(|policy| policy == libc::SCHED_OTHER)
            && set_policy(libc::SCHED_BATCH).is_ok();
        Self { was_plain, of_one_thread: PhantomData }
    }
}

impl Drop for BatchThread {
    fn drop(&mut self) {
        if self.was_plain {
            let _ = set_policy(libc::SCHED_OTHER);
        }
    }
}

/// The calling thread's policy, without the flag that children do not inherit it.
fn policy() -> rustix::io::Result<libc::c_int> {
    // SAFETY: the call takes a number and touches no memory of this process.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if policy < 0 { Err(last()) } else { Ok(policy) }
}

/// Sets one of the unprivileged policies of the calling thread, both without a priority.
fn set_policy(policy: libc::c_int) -> rustix::io::Result<()> {
    // SAFETY: all zeros are a `sched_param`, of priority 0.
    let none: libc::sched_param = unsafe { core::mem::zeroed() };
    // SAFETY: `none` lives through the call, which only reads it.
    let set = unsafe { libc::sched_setscheduler(0, policy, &raw const none) };
    if set == 0 { Ok(()) } else { Err(last()) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_is_a_batch_thread_while_it_is_told_to_and_its_children_stay_so() {
        thread::spawn(|| {
            assert_eq!(policy(), Ok(libc::SCHED_OTHER));
            let batch = BatchThread::begin();
            assert_eq!(policy(), Ok(libc::SCHED_BATCH));
            assert_eq!(thread::spawn(policy).join().unwrap(), Ok(libc::SCHED_BATCH));
            drop(batch);
            assert_eq!(policy(), Ok(libc::SCHED_OTHER));
            assert_eq!(thread::spawn(policy).join().unwrap(), Ok(libc::SCHED_OTHER));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_policy_that_somebody_chose_stays() {
        thread::spawn(|| {
            set_policy(libc::SCHED_IDLE).unwrap();
            drop(BatchThread::begin());
            assert_eq!(policy(), Ok(libc::SCHED_IDLE));
        })
        .join()
        .unwrap();
    }
}
