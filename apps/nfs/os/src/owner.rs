//! Opening of a file for its owner regardless of its mode, without privilege and without a change
//! of the mode.
//!
//! A process may make a user namespace in which it has every right to the files of its own user and
//! group, and to no others (`user_namespaces(7)`). A thread of a program cannot enter one, so a
//! child does: it shares memory and descriptors with the calling thread, which is suspended
//! meanwhile, as with `vfork(2)`. The child opens the file and exits. That takes some hundred
//! microseconds.
//!
//! This fails on a system that does not permit user namespaces to its users, and for a file whose
//! group is not the process' own.

use core::ffi::c_void;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// Bytes of the child's stack: it makes a few system calls.
const STACK_LEN: usize = 64 << 10;

/// The child's task and its result. All memory is the caller's.
struct OwnerTask {
    /// Text written before the file is opened, each with its path: the maps of users and groups of
    /// the namespace.
    words: [(CString, CString); 3],
    path: CString,
    flags: libc::c_int,
    /// A descriptor, or a negative error number.
    outcome: libc::c_long,
}

/// Opens the file that `file` refers to once more, with these flags, and with all rights of its
/// owner.
///
/// # Errors
///
/// [`Errno::ACCESS`] when the file is another user's or another group's, and those of making a user
/// namespace, as [`Errno::PERM`], [`Errno::NOSPC`] or [`Errno::NOSYS`].
pub fn open(file: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let text = |text: String| CString::new(text).map_err(|_| Errno::INVAL);
    let word = |path: &str, word: String| Ok((text(path.to_owned())?, text(word)?));
    let mut task = OwnerTask {
        words: [
            word("/proc/self/setgroups", "deny".to_owned())?,
            word("/proc/self/uid_map", format!("{uid} {uid} 1"))?,
            word("/proc/self/gid_map", format!("{gid} {gid} 1"))?,
        ],
        // The child's own view of the shared descriptors: it may not access its parent's.
        path: text(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))?,
        flags: (flags | OFlags::CLOEXEC).bits() as libc::c_int,
        outcome: -libc::c_long::from(libc::ECANCELED),
    };
    run(&mut task)?;
    let fd = i32::try_from(task.outcome).map_err(|_| Errno::IO)?;
    if fd < 0 {
        return Err(Errno::from_raw_os_error(-fd));
    }
    // SAFETY: the child made this descriptor in the table that it shared with us, and no other
    // code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs the task in a child with its own namespace, and waits for its end.
fn run(task: &mut OwnerTask) -> rustix::io::Result<()> {
    let mut stack = vec![0_u128; STACK_LEN / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_NEWUSER;
    let everything = Signals::all();
    // No handler of ours may run in the child, which uses its parent's memory.
    let before = everything.block()?;
    let task: *mut OwnerTask = task;
    // SAFETY: `top` is the aligned end of memory that lives until the child is gone, as `task`
    // does, because the parent stands still until then (CLONE_VFORK); `child` makes system calls
    // only.
    let pid = unsafe { libc::clone(child, top, flags, task.cast::<c_void>()) };
    let outcome = crate::returned(pid.into()).and_then(|_| await_end(pid));
    before.block().and(outcome)
}

/// Collects the child. Only its parent's thread is notified of its end.
fn await_end(pid: libc::pid_t) -> rustix::io::Result<()> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is an int that lives through the call.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        match crate::returned(waited.into()) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// The child's body. It shares memory with a suspended thread: no allocation, no panic, only system
/// calls.
extern "C" fn child(task: *mut c_void) -> libc::c_int {
    // SAFETY: `run` passes a task that lives until this child is gone, and that no other code
    // accesses meanwhile.
    let task = unsafe { &mut *task.cast::<OwnerTask>() };
    for (path, word) in &task.words {
        let opened = open_raw(path, libc::O_WRONLY | libc::O_CLOEXEC);
        // An old kernel lacks the first of these files, and the rule with it; failures of the
        // others show below.
        if let Ok(fd) = i32::try_from(opened)
            && fd >= 0
        {
            // SAFETY: the word is as long as it says, and lives through the call.
            unsafe { libc::syscall(libc::SYS_write, fd, word.as_ptr(), word.as_bytes().len()) };
            // SAFETY: the descriptor was just made and has no other user.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
    task.outcome = open_raw(&task.path, task.flags);
    0
}

/// A descriptor, or a negative error number.
fn open_raw(path: &CString, flags: libc::c_int) -> libc::c_long {
    // SAFETY: the path ends with a zero and lives through the call.
    let opened =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    if opened >= 0 {
        return opened;
    }
    // SAFETY: the call only returns an address: this thread's own, which the child has from
    // its parent, which is suspended.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is that of an int that lives as long as the thread.
    let errno = unsafe { *errno };
    -libc::c_long::from(errno)
}

/// A set of signals.
struct Signals(libc::sigset_t);

impl Signals {
    fn none() -> Self {
        let mut set = core::mem::MaybeUninit::uninit();
        // SAFETY: the call fills the set and fails for no valid address.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: it was just filled.
        Self(unsafe { set.assume_init() })
    }

    fn all() -> Self {
        let mut all = Self::none();
        // SAFETY: the address is that of a set.
        unsafe { libc::sigfillset(&raw mut all.0) };
        all
    }

    /// Makes the calling thread block exactly these signals; returns the ones blocked before.
    fn block(&self) -> rustix::io::Result<Self> {
        let mut before = Self::none();
        // SAFETY: both addresses are those of sets that live through the call.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, &raw mut before.0)
        };
        if error == 0 { Ok(before) } else { Err(Errno::from_raw_os_error(error)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::io::{Read, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// Opened by path only, as the store has its files.
    fn by_path(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
    }

    #[test]
    fn a_file_of_ours_that_its_mode_closes_is_opened_and_nothing_of_it_changes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        fs::write(&path, b"x").unwrap();
        for mode in [0o000, 0o200, 0o444] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let before = fs::metadata(&path).unwrap();
            let mut file = match open(by_path(&path), OFlags::RDWR) {
                Ok(file) => File::from(file),
                Err(error) => {
                    eprintln!("skipped: no user namespaces here: {error}");
                    return;
                }
            };
            let mut octet = [0];
            file.read_exact(&mut octet).unwrap();
            let after = fs::metadata(&path).unwrap();
            let times = |found: &fs::Metadata| (found.ctime(), found.ctime_nsec(), found.mode());
            assert_eq!((octet, times(&before)), (*b"x", times(&after)));
            file.write_all(b"").unwrap();
        }
    }

    #[test]
    fn no_descriptor_child_or_blocked_signal_is_left_behind() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        fs::write(&path, b"x").unwrap();
        let file = by_path(&path);
        // Other tests of this process open and close files, too, but fewer.
        let count = || fs::read_dir("/proc/self/fd").unwrap().count();
        let (before, blocked) = (count(), blocked());
        for _ in 0..200 {
            drop(open(&file, OFlags::RDONLY));
        }
        assert!(count() < before + 100, "{before} and then {}", count());
        assert_eq!(self::blocked(), blocked);
        // SAFETY: no address is passed; a thread without children gets an error.
        let waited =
            unsafe { libc::waitpid(-1, core::ptr::null_mut(), libc::__WCLONE | libc::WNOHANG) };
        assert_eq!(crate::returned(waited.into()), Err(Errno::CHILD));
    }

    fn blocked() -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
    }

    #[test]
    fn a_file_of_somebody_else_stays_closed() {
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: root may open every file");
            return;
        }
        assert!(open(by_path("/etc/passwd".as_ref()), OFlags::RDWR).is_err());
    }
}
