//! A thread whose credentials never change, for calls that the kernel takes from one security
//! context alone.
//!
//! Linux refuses writes to the descriptors of rdma_cm and uverbs from credentials other than those
//! that opened them (`ib_safe_file_access`: "changed security contexts after opening file
//! descriptor"). It compares the kernel's objects and not their contents, so a thread that acts as
//! its callers on files, and comes back to what it was, may write no more. So where a shard does
//! that, one thread of the process makes all calls that write: it opens devices, makes and changes
//! queue pairs, registers memory, and talks to the connection manager. The shard waits for it. It
//! polls by itself, and posts by itself where that is no system call. Threads that this one starts
//! have its credentials, and call by themselves ([`spawn`]).

use crate::errands::NICE;
use libc::c_int;
use rustix::{
    process::{getpid, nice},
    thread::{sched_getaffinity, sched_setaffinity},
};
use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        OnceLock,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
};

/// A call of a thread that waits for its end.
struct ApartJob {
    call: *mut (dyn FnMut() + 'static),
    done: SyncSender<()>,
}

// SAFETY: the thread that made it waits until it is done, and touches nothing of it meanwhile.
unsafe impl Send for ApartJob {}

/// The channel to the thread, which starts with the first use.
fn thread() -> io::Result<Sender<ApartJob>> {
    static THREAD: OnceLock<Sender<ApartJob>> = OnceLock::new();
    if let Some(sender) = THREAD.get() {
        return Ok(sender.clone());
    }
    let (sender, jobs) = channel::<ApartJob>();
    thread::Builder::new().name("stag-verbs".to_owned()).spawn(move || {
        IS_APART.set(true);
        leave_the_core();
        for ApartJob { call, done } in jobs {
            // SAFETY: the thread that made the job keeps it until `done` says that it is over.
            let call = AssertUnwindSafe(|| unsafe { (*call)() });
            if catch_unwind(call).is_err() {
                // The calling thread would wait for ever.
                process::abort();
            }
            let _ = done.send(());
        }
    })?;
    // If two threads start one at the same time, the second one ends with its channel.
    Ok(THREAD.get_or_init(|| sender).clone())
}

/// Lets this thread run on every core of the process. It inherits the one core of the shard that
/// starts it, where it would wait for that shard's polling. Without the right to, it is slower.
fn leave_the_core() {
    if let Ok(cores) = sched_getaffinity(Some(getpid())) {
        let _ = sched_setaffinity(None, &cores);
    }
}

/// Starts the thread, if it is not there. The calling thread must have the credentials that devices
/// are opened with.
///
/// # Errors
/// Errors of starting a thread.
pub(crate) fn start() -> io::Result<()> {
    thread().map(drop)
}

/// Starts a thread for work that may wait: on any core that the process began with, and after all
/// threads of the usual priority. Its credentials never change; with `is_apart` they are those of
/// the thread of this module.
///
/// # Errors
/// Errors of starting a thread.
pub(crate) fn spawn(
    name: &str,
    is_apart: bool,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let begin = move || {
        IS_APART.set(is_apart);
        leave_the_core();
        let _ = nice(NICE);
        work();
    };
    let builder = thread::Builder::new().name(name.to_owned());
    if !is_apart {
        return builder.spawn(begin);
    }
    // SAFETY: the new thread has all that it uses.
    unsafe { run(move || builder.spawn(begin)) }
}

thread_local! {
    /// This thread has the credentials that devices are opened with.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
    /// The channel on which calls of this thread are completed.
    static ANSWERS: (SyncSender<()>, Receiver<()>) = sync_channel(1);
}

/// Makes a call of the libraries in that thread; the error number that it leaves is this thread's.
///
/// # Safety
/// Memory and objects of the call may be used by another thread while this one waits.
pub(crate) unsafe fn run<R>(call: impl FnOnce() -> R) -> R {
    if IS_APART.get() {
        return call();
    }
    let (mut call, mut result, mut errno) = (Some(call), None, 0);
    #[cfg(test)]
    let mut host = crate::fake::take();
    let mut job = || {
        #[cfg(test)]
        crate::fake::put(host.take());
        result = call.take().map(|call| call());
        errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        #[cfg(test)]
        {
            host = crate::fake::take();
        }
    };
    let at: *mut (dyn FnMut() + '_) = &mut job;
    // SAFETY: only the lifetime differs, and this thread waits for the end of the job below.
    let call =
        unsafe { std::mem::transmute::<*mut (dyn FnMut() + '_), *mut (dyn FnMut() + 'static)>(at) };
    let is_done = ANSWERS.with(|(done, answers)| {
        let sent = thread().map(|sender| sender.send(ApartJob { call, done: done.clone() }));
        matches!(sent, Ok(Ok(()))) && answers.recv().is_ok()
    });
    assert!(is_done, "the thread of verbs lives as long as the process");
    #[cfg(test)]
    crate::fake::put(host.take());
    set_errno(errno);
    result.expect("the call was made")
}

fn set_errno(errno: c_int) {
    // SAFETY: the place is this thread's.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = errno };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::CpuSet;

    #[test]
    fn a_thread_that_a_pinned_one_starts_leaves_its_core() {
        let all = sched_getaffinity(Some(getpid())).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
        let pinned = thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            let (sender, cores) = sync_channel(1);
            let work = move || sender.send(sched_getaffinity(None).unwrap()).unwrap();
            spawn("stag-test", false, work).unwrap().join().unwrap();
            cores.recv().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), all);
    }

    #[test]
    fn calls_are_made_by_one_thread_and_leave_result_and_error_here() {
        let here = thread::current().id();
        let call = || {
            set_errno(libc::ENOSPC);
            thread::current().id()
        };
        // SAFETY: nothing is shared.
        let [first, second] = [(); 2].map(|()| unsafe { run(call) });
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSPC));
        assert!(first == second && first != here);
        let others: Vec<_> = (0..4)
            // SAFETY: nothing is shared.
            .map(|_| thread::spawn(move || unsafe { run(|| thread::current().id()) }))
            .collect();
        assert!(others.into_iter().all(|other| other.join().unwrap() == first));
    }

    #[test]
    fn a_thread_that_it_starts_calls_by_itself_and_gives_way_to_others() {
        start().unwrap();
        for is_apart in [false, true] {
            let (sender, facts) = sync_channel(1);
            let work = move || {
                let own = thread::current().id();
                // SAFETY: nothing is shared.
                let called = unsafe { run(|| thread::current().id()) };
                sender.send((own == called, nice(0).unwrap())).unwrap();
            };
            spawn("stag-test", is_apart, work).unwrap().join().unwrap();
            let base = nice(0).unwrap();
            assert_eq!(facts.recv().unwrap(), (is_apart, (base + NICE).min(19)));
        }
    }
}
