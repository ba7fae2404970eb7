//! Locks of clients as programs of the host see them: the store has the strongest lock that clients
//! have of each octet (`Store::show_lock`). It is told before a client is given a lock, and after
//! one has gone.

use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Status4, state::LockRange},
};

use super::{
    Nfs4,
    state::{FileId, LockRequest},
    stateids::{Blocked, file_id},
    turn::{Done, Stop, Turn},
};
use crate::store::{LocalLock, Store};

/// Reason why a client gets no lock.
pub(super) enum LockRefused {
    /// The tables of state say so.
    Blocked(Blocked),
    /// A program of the host has one.
    Local(LocalLock),
}

impl From<Blocked> for LockRefused {
    fn from(blocked: Blocked) -> Self {
        Self::Blocked(blocked)
    }
}

impl From<Stop> for LockRefused {
    fn from(stop: Stop) -> Self {
        Self::Blocked(Blocked::Stopped(stop))
    }
}

impl From<Status4> for LockRefused {
    fn from(status: Status4) -> Self {
        Self::Blocked(Blocked::Stopped(status.into()))
    }
}

impl Nfs4 {
    /// Shows programs of the host what is left of locks that went.
    pub(crate) fn show_weakened<S: Store>(&mut self, store: &mut S) {
        let shows = store.has_local_locks();
        while let Some((file, range)) = self.state.next_weakened() {
            if shows && let Some(handle) = self.state.handle_of(file).and_then(FileHandle::new) {
                self.show(store, file, &handle, range);
            }
        }
    }

    /// Shows what clients have locked of a range.
    fn show<S: Store>(&self, store: &mut S, file: FileId, handle: &FileHandle, range: LockRange) {
        for part in self.state.lock_shadow(file, range, None) {
            // A lock that is weaker than the one shown before is in nobody's way. One that could
            // not be shown may be in somebody's; its client keeps it.
            let _in_the_way = store.show_lock(handle, part.range, part.lock);
        }
    }
}

impl<S: Store> Turn<'_, '_, S> {
    /// Shows programs of the host a lock that its client is about to get.
    pub(super) fn show_lock(
        &mut self,
        file: &FileHandle,
        fsid: u64,
        request: &LockRequest<'_>,
    ) -> Result<(), LockRefused> {
        if !self.store.has_local_locks() {
            return Ok(());
        }
        match self.try_state(|state, now| state.check_lock(request, now)) {
            // The tables refuse it again, and remember who waits for it.
            Err(Blocked::Denied(_)) => return Ok(()),
            checked => checked?,
        }
        // The description that locks are shown by is open for writing.
        self.await_unwatched(file, fsid)?;
        let range = LockRange::new(request.offset, request.length)?;
        let also = Some(request.kind.is_exclusive());
        for part in self.nfs4.state.lock_shadow(file_id(file), range, also) {
            if let Err(local) = self.store.show_lock(file, part.range, part.lock) {
                self.nfs4.show(self.store, file_id(file), file, range);
                return Err(LockRefused::Local(local));
            }
        }
        Ok(())
    }

    /// Looks for a program's lock that is in the way of one that clients' locks are not. Nobody has
    /// a delegation of a file that is watched.
    pub(super) fn find_local_lock(
        &mut self,
        file: &FileHandle,
        offset: u64,
        length: u64,
        exclusive: bool,
    ) -> Done<Option<LocalLock>> {
        if !self.store.has_local_locks() {
            return Ok(None);
        }
        let range = LockRange::new(offset, length)?;
        Ok(self.store.find_local_lock(file, range, exclusive))
    }
}
