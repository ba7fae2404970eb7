//! Watching of delegated files that local programs may change. Each has a read lease, which blocks
//! programs that open it for writing or truncate it, and an inotify watch, which reports changes
//! that leases do not stop: other names, other attributes.
//!
//! One thread (`stag-watch`) receives the system's events and reports them to the shard that
//! watches. A file is reported once, and once more when a program starts waiting for it; the shard
//! recalls its delegations, and then stops watching.

use std::{
    collections::{HashMap, VecDeque},
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{
        Mode, OFlags,
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        openat,
    },
    io::{Errno, write},
    path::DecInt,
};
use stag_nfs_os::lease::{self, LeaseSignal, LeaseSignals, LeaseThread};
use stag_protocol::nfs::v3::FileHandle;

use super::{Files, attributes::attributes};
use crate::{
    TouchedFile,
    exports::{config::stat, handle::FileId},
    start_error::StartError,
};

/// Changes that a lease does not stop.
const EVENTS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF);
/// Bytes of events that are read at once.
const EVENTS_LEN: usize = 4_096;
/// Seconds that the system lets a program wait for a lease; 0: forever.
const BREAK_TIME: &str = "/proc/sys/fs/lease-break-time";
/// The system's default.
const USUAL_BREAK_TIME: u64 = 45;

/// Watched files of one store, and the thread that receives their events.
#[derive(Debug)]
pub(super) struct HostWatch {
    watch: Arc<Watch>,
    leases: LeaseThread,
    /// Files watched at most; each takes a descriptor.
    limit: usize,
    thread: Option<JoinHandle<()>>,
}

/// The part that the thread shares.
#[derive(Debug)]
struct Watch {
    files: Mutex<Watched>,
    inotify: OwnedFd,
    /// Wakes the thread to end it.
    bell: OwnedFd,
    is_over: AtomicBool,
    /// True if files may have been touched.
    is_filled: AtomicBool,
}

#[derive(Debug, Default)]
struct Watched {
    files: HashMap<FileId, WatchedFile>,
    by_lease: HashMap<RawFd, FileId>,
    /// One inotify watch covers all files of an inode, which may be in several exports.
    by_event: HashMap<i32, Vec<FileId>>,
    /// Files not yet reported to the shard.
    touched: VecDeque<TouchedFile>,
}

#[derive(Debug)]
struct WatchedFile {
    handle: FileHandle,
    /// The file, open for reading: the lease belongs to this description.
    lease: OwnedFd,
    event: i32,
    is_touched: bool,
    /// True once the shard was notified that a program waits for it.
    is_awaited: bool,
}

impl Watched {
    /// Records that a file was touched. False if that was known, or it is not watched.
    fn touch(&mut self, file: FileId, patience: Option<Duration>) -> bool {
        let Some(watched) = self.files.get_mut(&file) else { return false };
        // A limit to the wait is news, whatever was reported before.
        let is_first_wait = patience.is_some() && !watched.is_awaited;
        watched.is_awaited |= is_first_wait;
        let is_new = !std::mem::replace(&mut watched.is_touched, true) || is_first_wait;
        if is_new {
            self.touched.push_back(TouchedFile { file: watched.handle, patience });
        }
        is_new
    }

    fn touch_all(&mut self, files: Vec<FileId>, patience: Option<Duration>) -> bool {
        files.into_iter().fold(false, |any, file| self.touch(file, patience) | any)
    }

    /// Handles the signal that a program waits for a lease.
    fn take_signal(&mut self, signal: LeaseSignal) -> bool {
        let is_broken = |file: &FileId| {
            let watched = self.files.get(file);
            watched.is_some_and(|watched| !lease::is_whole(&watched.lease))
        };
        // The descriptor may belong to another file by now.
        let broken: Vec<_> = match signal {
            LeaseSignal::Of(lease) => {
                self.by_lease.get(&lease).copied().filter(is_broken).into_iter().collect()
            }
            LeaseSignal::Any => self.files.keys().copied().filter(is_broken).collect(),
        };
        !broken.is_empty() && self.touch_all(broken, lease_patience())
    }

    fn take_event(&mut self, watch: i32, events: ReadFlags) -> bool {
        let files = if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.files.keys().copied().collect()
        } else if events.contains(ReadFlags::IGNORED) {
            Vec::new()
        } else {
            self.by_event.get(&watch).cloned().unwrap_or_default()
        };
        self.touch_all(files, None)
    }
}

/// Three quarters of the time after which the system breaks a lease that a program waits for; none
/// if it waits forever.
fn lease_patience() -> Option<Duration> {
    let found = std::fs::read_to_string(BREAK_TIME).ok();
    // Reading requires a free descriptor.
    let seconds = found.and_then(|found| found.trim().parse().ok()).unwrap_or(USUAL_BREAK_TIME);
    (seconds > 0).then(|| Duration::from_secs(seconds) / 4 * 3)
}

impl Watch {
    fn files(&self) -> MutexGuard<'_, Watched> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the system's events until the end. Calls `wake` when there are events for the
    /// shard.
    fn run(&self, signals: &LeaseSignals, wake: impl Fn()) {
        let mut room = [MaybeUninit::uninit(); EVENTS_LEN];
        loop {
            let mut all = [self.inotify.as_fd(), signals.as_fd(), self.bell.as_fd()]
                .map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
            match poll(&mut all, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // Out of memory for a moment.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            let mut any = false;
            while let Ok(Some(signal)) = signals.next_signal() {
                any |= self.files().take_signal(signal);
            }
            let mut events = Reader::new(&self.inotify, &mut room);
            while let Ok(event) = events.next() {
                any |= self.files().take_event(event.wd(), event.events());
            }
            if any {
                self.is_filled.store(true, Ordering::Release);
                wake();
            }
        }
    }
}

impl HostWatch {
    /// Starts the thread, which calls `wake` when there are events for the shard.
    fn start(limit: usize, wake: impl Fn() + Send + 'static) -> rustix::io::Result<Self> {
        let watch = Arc::new(Watch {
            files: Mutex::default(),
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_over: AtomicBool::new(false),
            is_filled: AtomicBool::new(false),
        });
        let (started, begun) = sync_channel(1);
        let run = {
            let watch = Arc::clone(&watch);
            move || watch_until_over(&watch, &started, wake)
        };
        let thread = thread::Builder::new().name("stag-watch".to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        let leases = begun.recv().unwrap_or(Err(Errno::NOMEM))?;
        Ok(Self { watch, leases, limit, thread: Some(thread) })
    }

    /// Watches a file, unless it is open for writing. `open` opens it for reading; `is_same` is
    /// called once every further change will be reported.
    fn begin(
        &self,
        file: FileId,
        handle: &FileHandle,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
        is_same: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> bool {
        let mut all = self.watch.files();
        if let Some(watched) = all.files.get(&file) {
            let lease = watched.lease.as_fd();
            return !watched.is_touched && lease::is_whole(lease) && is_same(lease);
        }
        if all.files.len() >= self.limit {
            return false;
        }
        let Ok(lease) = open() else { return false };
        if lease::take_read(&lease, self.leases).is_err() {
            return false;
        }
        let Ok(event) = inotify::add_watch(&self.watch.inotify, link(&lease), EVENTS) else {
            return false;
        };
        all.by_lease.insert(lease.as_raw_fd(), file);
        all.by_event.entry(event).or_default().push(file);
        let is_good = lease::is_whole(&lease) && is_same(lease.as_fd());
        let (handle, is_touched, is_awaited) = (*handle, false, false);
        all.files.insert(file, WatchedFile { handle, lease, event, is_touched, is_awaited });
        drop(all);
        if !is_good {
            self.end(file);
        }
        is_good
    }

    /// Stops watching a file; programs that wait for its lease proceed.
    fn end(&self, file: FileId) {
        let mut all = self.watch.files();
        let Some(WatchedFile { lease, event, .. }) = all.files.remove(&file) else { return };
        all.by_lease.remove(&lease.as_raw_fd());
        let is_last = all.by_event.get_mut(&event).is_none_or(|files| {
            files.retain(|other| *other != file);
            files.is_empty()
        });
        if is_last {
            all.by_event.remove(&event);
            // If the file is gone, so is the watch.
            let _ = inotify::remove_watch(&self.watch.inotify, event);
        }
        // This releases the lease. The descriptor's number may be reused from here on.
        drop(lease);
    }

    fn next_touched(&self) -> Option<TouchedFile> {
        if !self.is_filled() {
            return None;
        }
        let mut all = self.watch.files();
        let touched = all.touched.pop_front();
        if touched.is_none() {
            self.watch.is_filled.store(false, Ordering::Relaxed);
        }
        touched
    }

    /// Returns true if files may have been touched.
    pub(super) fn is_filled(&self) -> bool {
        self.watch.is_filled.load(Ordering::Acquire)
    }
}

impl Drop for HostWatch {
    fn drop(&mut self) {
        self.watch.is_over.store(true, Ordering::Release);
        let rung = write(&self.watch.bell, &1_u64.to_ne_bytes());
        debug_assert!(rung.is_ok(), "an event counter that nobody else writes has room");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's body: reports whether it could start, and its id for leases.
fn watch_until_over(
    watch: &Watch,
    started: &SyncSender<rustix::io::Result<LeaseThread>>,
    wake: impl Fn(),
) {
    let signals = LeaseSignals::of_this_thread();
    let _ = started.send(signals.as_ref().map(LeaseSignals::thread).map_err(|error| *error));
    if let Ok(signals) = signals {
        watch.run(&signals, wake);
    }
}

/// The path through which the system finds an open file.
fn link(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl Files {
    /// `Store::start_watching`.
    pub(super) fn start_host_watch(&mut self) -> Result<(), StartError> {
        let (shared, shard) = (Arc::clone(&self.shared), self.messages.shard());
        let started = HostWatch::start(self.shared.open_files / 2, move || {
            shared.siblings.wake(shard);
        });
        let watch = started.map_err(|error| {
            StartError(format!(
                "cannot watch files for delegations (inotify, signalfd): {error}; see \
                 fs.inotify.max_user_instances"
            ))
        })?;
        self.watch = Some(watch);
        Ok(())
    }

    /// `Store::watch`.
    pub(super) fn watch_file(&mut self, handle: &FileHandle, change: u64) -> bool {
        let Ok(named) = self.shared.handles.open(handle) else { return false };
        let file = named.file();
        // Exports with blocking calls have no leases, or the system requests them elsewhere.
        if self.is_slow(handle) {
            return false;
        }
        // Our own write descriptor conflicts, too.
        if let Some(slot) = self.cache.look_for(file) {
            self.stop_writing_now(slot);
        }
        let Some(watch) = &self.watch else { return false };
        let Some(export) = self.serving.export(file.export) else { return false };
        let Some(path) = self.shared.pins.path(file) else { return false };
        let is_same = |lease: BorrowedFd<'_>| {
            let found = stat(lease);
            found.is_ok_and(|found| {
                found.stx_nlink > 0 && attributes(&found, export).change == change
            })
        };
        let open = || {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
            openat(&self.shared.descriptors, DecInt::from_fd(&path), flags, Mode::empty())
        };
        let begun = watch.begin(file, handle, open, is_same);
        if !begun {
            // A retry may succeed.
            self.shared.siblings.ask_to_stop_writing(&self.messages, file);
        }
        begun
    }

    /// `Store::unwatch`.
    pub(super) fn unwatch_file(&self, handle: &FileHandle) {
        if let Some(watch) = &self.watch
            && let Ok(named) = self.shared.handles.open(handle)
        {
            watch.end(named.file());
        }
    }

    /// `Store::next_touched`.
    pub(super) fn next_touched_file(&self) -> Option<TouchedFile> {
        self.watch.as_ref()?.next_touched()
    }
}
