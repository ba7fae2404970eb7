//! Byte-range locks of clients and of local programs on the same files (RFC 8881 §9).
//!
//! **Clients' locks, as local programs see them.** The store has the strongest lock that clients
//! have on each octet (`Store::show_lock`). It is updated before a client is granted a lock, and
//! after a range is *weakened*: a lock in it was released or replaced by a weaker one, or a lock
//! was shown that the client did not get. `show_weakened` then shows the locks that remain.
//!
//! **Local programs' locks, as clients see them.** A LOCK or LOCKT that conflicts with one is
//! refused with NFS4ERR_DENIED. The kernel does not report when the range is free, so
//! `tend_local_waiters` looks once a second, and notifies clients that wait for it
//! (CB_NOTIFY_LOCK).

use stag_engine::Time;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Status4, state::LockRange},
};

use crate::v4::{
    LOOK_INTERVAL, Nfs4,
    context::{
        CompoundContext, OpExit, OpResult,
        state_calls::{StateRefusal, file_id},
    },
};
use stag_nfs_store::{LocalLock, Store};
use stag_nfs4_state::LockRequest;

/// Reason why a client gets no lock.
pub(in crate::v4) enum LockRefused {
    /// The tables of state refuse it.
    Blocked(StateRefusal),
    /// A local program has a conflicting one.
    Local(LocalLock),
}

impl From<StateRefusal> for LockRefused {
    fn from(blocked: StateRefusal) -> Self {
        Self::Blocked(blocked)
    }
}

impl From<OpExit> for LockRefused {
    fn from(stop: OpExit) -> Self {
        Self::Blocked(StateRefusal::Stopped(stop))
    }
}

impl From<Status4> for LockRefused {
    fn from(status: Status4) -> Self {
        Self::Blocked(StateRefusal::Stopped(status.into()))
    }
}

/// Limits of the parts of files that one pass shows to local programs, each by a system call, and
/// of the locks from which they are made.
const PARTS_SHOWN: usize = 256;

impl Nfs4 {
    /// Shows local programs the locks that remain where others were released. A pass shows some,
    /// and the next one continues: until then a program is kept out of more than is locked.
    pub(crate) fn show_weakened<S: Store>(&mut self, store: &mut S) {
        if !store.has_local_locks() {
            return self.state.forget_weakened();
        }
        let (mut left, mut shown) = (PARTS_SHOWN, None);
        while left > 0
            && let Some((file, range)) = self.state.next_weakened()
        {
            if shown.is_some_and(|(same, free)| same == file && covers(free, range)) {
                continue;
            }
            let Some(handle) = self.state.handle_of(file).and_then(FileHandle::new) else {
                continue;
            };
            let (free, rest) = self.show(store, &handle, range, &mut left);
            shown = free.map(|free| (file, free)).or(shown);
            if let Some(rest) = rest {
                self.state.note_weakened(file, rest);
            }
        }
    }

    /// Checks once a second for ranges that clients wait for and local programs have unlocked,
    /// which the kernel does not report. Notifies their clients.
    pub(crate) fn tend_local_waiters<S: Store>(&mut self, store: &mut S, now: Time) {
        if !self.state.has_waiters() || !store.has_local_locks() || now < self.next_local_look {
            return;
        }
        self.next_local_look = now + LOOK_INTERVAL;
        for wait in self.state.local_waits(PARTS_SHOWN) {
            let handle = self.state.handle_of(wait.file).and_then(FileHandle::new);
            let is_free = |handle: FileHandle| {
                store.find_local_lock(&handle, wait.range, wait.exclusive).is_none()
            };
            if handle.is_some_and(is_free) {
                self.state.handle_local_unlock(&wait);
            }
        }
    }

    /// Returns the time of the next check for locks that clients wait for, while some do.
    pub(crate) fn next_waiter_look(&self) -> Option<Time> {
        self.state.has_waiters().then_some(self.next_look)
    }

    /// Shows the locks of clients in a range. Returns the last part without locks, and the rest of
    /// the range, which the next pass shows.
    fn show<S: Store>(
        &self,
        store: &mut S,
        handle: &FileHandle,
        range: LockRange,
        left: &mut usize,
    ) -> (Option<LockRange>, Option<LockRange>) {
        let (file, mut free, mut rest) = (file_id(handle), None, Some(range));
        while *left > 0
            && let Some(range) = rest
        {
            let part = self.state.shadow_part(file, range, left);
            // A lock that is weaker than the one shown before conflicts with no program. One that
            // could not be shown may conflict; its client keeps it.
            let _in_the_way = store.show_lock(handle, part.range, part.lock);
            free = if part.lock.is_none() { Some(part.range) } else { free };
            rest = range.behind(&part.range);
        }
        (free, rest)
    }
}

/// Returns true if `inner` is a part of `outer`.
const fn covers(outer: LockRange, inner: LockRange) -> bool {
    outer.offset() <= inner.offset() && inner.last() <= outer.last()
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Shows local programs a lock that its client is about to get.
    pub(in crate::v4) fn show_lock(
        &mut self,
        file: &FileHandle,
        fsid: u64,
        request: &LockRequest<'_>,
    ) -> Result<(), LockRefused> {
        if !self.store.has_local_locks() {
            return Ok(());
        }
        match self.try_state(|state, now| state.check_lock(request, now)) {
            // The tables refuse it again, and queue the waiter.
            Err(StateRefusal::Denied(_)) => return Ok(()),
            checked => checked?,
        }
        // The file description by which locks are shown is open for writing.
        self.await_unwatched(file, fsid)?;
        let range = LockRange::new(request.offset, request.length)?;
        // Where a client may have a lock, no other has a stronger one.
        let shown = self.store.show_lock(file, range, Some(request.kind.is_exclusive()));
        shown.map_err(LockRefused::Local)
    }

    /// Finds a program's lock that conflicts with one that does not conflict with clients' locks.
    /// No client has a delegation of a file that is watched.
    pub(in crate::v4) fn find_local_lock(
        &mut self,
        file: &FileHandle,
        offset: u64,
        length: u64,
        exclusive: bool,
    ) -> OpResult<Option<LocalLock>> {
        if !self.store.has_local_locks() {
            return Ok(None);
        }
        let range = LockRange::new(offset, length)?;
        Ok(self.store.find_local_lock(file, range, exclusive))
    }
}
