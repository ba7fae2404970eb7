//! Read leases of files: `fcntl(F_SETLEASE)`. A local program that opens a leased file for writing
//! or truncates it blocks, and the process that holds the lease receives a signal. When that
//! releases the lease, or `fs.lease-break-time` later, the program proceeds. Changes of names or
//! attributes do not block.
//!
//! The signal goes to one thread, which alone blocks it and reads it from a descriptor
//! ([`LeaseSignals`]): by default it would end the process.

use core::marker::PhantomData;
use core::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result};

// linux/fcntl.h and asm-generic/fcntl.h; libc has them for some targets only.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex` (fcntl(2)).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// The thread that receives signals of conflicting leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseThread(libc::pid_t);

/// A signal of a lease conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSignal {
    /// A conflict with the lease of the file with this descriptor, unless that was closed since.
    Of(RawFd),
    /// Possible conflicts with any lease: the system's queue of signals overflowed.
    Any,
}

/// The signals of the thread that made it, which it alone can read.
#[derive(Debug)]
pub struct LeaseSignals {
    signals: OwnedFd,
    thread: LeaseThread,
    /// It belongs to the thread that made it.
    of_one_thread: PhantomData<*const ()>,
}

impl LeaseSignals {
    /// Blocks the signals of leases in the calling thread, until it ends, and reads them from here
    /// on.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn of_this_thread() -> Result<Self> {
        // SAFETY: all zeros are a `sigset_t`, and the empty set of Linux.
        let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
        for signal in [libc::SIGIO, lease_signal()] {
            // SAFETY: the call changes `set`, which lives through it.
            let added = unsafe { libc::sigaddset(&raw mut set, signal) };
            crate::returned(added.into())?;
        }
        // SAFETY: the call reads `set`, which lives through it, and changes this thread's mask.
        let failed = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut())
        };
        if failed != 0 {
            return Err(Errno::from_raw_os_error(failed));
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the call reads `set`, which lives through it.
        let made = unsafe { libc::signalfd(-1, &raw const set, flags) };
        crate::returned(made.into())?;
        // SAFETY: the call returned a descriptor, which has no other owner.
        let signals = unsafe { OwnedFd::from_raw_fd(made) };
        let thread = LeaseThread(rustix::thread::gettid().as_raw_nonzero().get());
        Ok(Self { signals, thread, of_one_thread: PhantomData })
    }

    /// The thread, for use with [`take_read`].
    pub const fn thread(&self) -> LeaseThread {
        self.thread
    }

    /// The next signal; none when none is pending.
    ///
    /// # Errors
    /// Only those of reading a signalfd(2).
    pub fn next_signal(&self) -> Result<Option<LeaseSignal>> {
        let mut octets = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signals, &mut octets) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: the structure is plain numbers, for which all octets are valid, and the array has
        // as many as it has.
        let told: libc::signalfd_siginfo =
            unsafe { core::ptr::read_unaligned(octets.as_ptr().cast()) };
        let is_of_one = i64::from(told.ssi_signo) == i64::from(lease_signal());
        Ok(Some(if is_of_one { LeaseSignal::Of(told.ssi_fd) } else { LeaseSignal::Any }))
    }
}

impl AsFd for LeaseSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

/// The first signal that is queued with its descriptor and not used by a library.
fn lease_signal() -> libc::c_int {
    libc::SIGRTMIN()
}

/// Takes a read lease of a file that is open for reading. It belongs to the open file, and ends
/// when that is closed. `thread` is signalled on a conflict.
///
/// # Errors
/// [`Errno::AGAIN`] when the file is open for writing; [`Errno::ACCESS`] when the file is another
/// user's and the process has no `CAP_LEASE`; [`Errno::INVAL`] if the file system has no leases.
pub fn take_read(file: impl AsFd, thread: LeaseThread) -> Result<()> {
    let file = file.as_fd();
    let owner = Owner { kind: F_OWNER_TID, id: thread.0 };
    // SAFETY: the call reads `owner`, which lives through it; the descriptor is open because it is
    // borrowed.
    let told = unsafe { libc::fcntl(file.as_raw_fd(), F_SETOWN_EX, &raw const owner) };
    crate::returned(told.into())?;
    number(file, F_SETSIG, lease_signal())?;
    number(file, libc::F_SETLEASE, libc::F_RDLCK).map(drop)
}

/// Returns true while the open file has a read lease without a conflict.
pub fn is_whole(file: impl AsFd) -> bool {
    number(file.as_fd(), libc::F_GETLEASE, 0) == Ok(libc::F_RDLCK.into())
}

/// A call of fcntl that takes a number.
fn number(file: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> Result<libc::c_long> {
    // SAFETY: these commands take a number and touch no memory; the descriptor is open because it
    // is borrowed.
    let returned = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
    crate::returned(returned.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{Mode, OFlags};
    use std::{fs::File, thread, time::Duration};

    /// The signal that arrives within this time.
    fn within(signals: &LeaseSignals, time: Duration) -> Option<LeaseSignal> {
        let time = Timespec::try_from(time).unwrap();
        poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&time)).unwrap();
        signals.next_signal().unwrap()
    }

    #[test]
    fn whoever_opens_the_file_for_writing_waits_until_the_lease_is_given_back() {
        thread::spawn(|| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let path = file.path().to_owned();
            let open = || File::open(&path).unwrap();
            let signals = LeaseSignals::of_this_thread().unwrap();
            let leased = open();
            assert_eq!(
                take_read(&leased, signals.thread()),
                Err(Errno::AGAIN),
                "it is being written"
            );
            drop(file.into_temp_path().keep().unwrap());
            take_read(&leased, signals.thread()).unwrap();
            drop(open());
            assert!(is_whole(&leased), "who reads is in nobody's way");
            assert_eq!(within(&signals, Duration::ZERO), None);
            let access = OFlags::RDWR | OFlags::NONBLOCK;
            let refused = rustix::fs::open(&path, access, Mode::empty()).unwrap_err();
            assert_eq!(refused, Errno::AGAIN, "who does not wait is refused");
            let told = within(&signals, Duration::from_secs(60));
            assert_eq!(told, Some(LeaseSignal::Of(leased.as_raw_fd())));
            assert!(!is_whole(&leased));
            let writer = thread::spawn({
                let path = path.clone();
                move || drop(File::options().write(true).open(path).unwrap())
            });
            drop(leased);
            writer.join().unwrap();
            std::fs::remove_file(path).unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn names_and_attributes_change_beside_a_lease() {
        thread::spawn(|| {
            let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
            let signals = LeaseSignals::of_this_thread().unwrap();
            let leased = File::open(&file).unwrap();
            take_read(&leased, signals.thread()).unwrap();
            let mut mode = leased.metadata().unwrap().permissions();
            mode.set_readonly(true);
            std::fs::set_permissions(&file, mode).unwrap();
            drop(file);
            assert!(is_whole(&leased));
            assert_eq!(within(&signals, Duration::ZERO), None);
        })
        .join()
        .unwrap();
    }
}
