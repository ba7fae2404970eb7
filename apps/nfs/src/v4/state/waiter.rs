//! Lock-owners that wait for a lock, and are told when it may be free (CB_NOTIFY_LOCK, RFC 8881
//! §9.6, §20.11).

use super::entry::StateKind;
use super::lock::{LockRequest, LockerRef};
use super::owners::NO_OWNER;
use super::{ClientKey, FileId, StateTables, StateWork};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::LockType;
use stag_protocol::nfs::v4::state::{HeldLock, LockRange};

/// A request for a lock that was denied.
#[derive(Debug)]
pub(super) struct LockWaiter {
    client: Key,
    owner: Box<[u8]>,
    range: LockRange,
    exclusive: bool,
    /// Time from which it counts as given up: a client that wants a lock asks again and again.
    until: u64,
}

/// CB_NOTIFY_LOCK to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockNotice {
    /// The client.
    pub client: ClientKey,
    /// Filehandle of the file.
    pub handle: Box<[u8]>,
    /// The lock-owner.
    pub owner: Box<[u8]>,
}

impl StateTables {
    /// Enters a denied request, if it waits: [`StateTables::lock`] does so itself, and a caller for
    /// whom a local process is in the way. A full queue leaves it to the client to ask again.
    pub fn queue_waiter(&mut self, request: &LockRequest<'_>, now: u64) {
        if !matches!(request.kind, LockType::ReadWait | LockType::WriteWait) || request.reclaim {
            return;
        }
        let owner = match request.locker {
            LockerRef::New { owner, .. } => Some(Box::from(owner)),
            LockerRef::Known(stateid) => self
                .find_state(&stateid)
                .and_then(|key| self.lock_owner(super::StateKey(key)))
                .map(|(_, owner)| Box::from(owner)),
        };
        let range = LockRange::new(request.offset, request.length).ok();
        let (Some(owner), Some(range)) = (owner, range) else { return };
        let exclusive = request.kind.is_exclusive();
        let until = now.saturating_add(self.lease);
        let waiter = LockWaiter { client: request.client.0, owner, range, exclusive, until };
        let Some(file) = self.find_file(request.file) else { return };
        let Some(file) = self.files.get_mut(file) else { return };
        let before = file.waiters.len();
        file.waiters.retain(|one| {
            let is_same =
                one.client == waiter.client && one.owner == waiter.owner && one.range == range;
            now < one.until && !is_same
        });
        self.waiters -= before - file.waiters.len();
        if self.waiters < self.limits.waiters && file.waiters.len() < self.limits.waiters_per_file {
            file.waiters.push(waiter);
            self.waiters += 1;
        }
    }

    /// Forgets requests of an owner that got its lock.
    pub(super) fn drop_waiter(&mut self, file: Key, locks: Key, range: LockRange) {
        let Some(state) = self.states.get(locks) else { return };
        let StateKind::Locks(locks) = &state.kind else { return };
        let Some(file) = self.files.get_mut(file) else { return };
        let before = file.waiters.len();
        file.waiters.retain(|one| {
            one.client != state.client || one.owner != locks.owner || !one.range.overlaps(&range)
        });
        self.waiters -= before - file.waiters.len();
    }

    /// Forgets the requests of a client that closes the file: one that has it open otherwise, too,
    /// asks again.
    pub(super) fn drop_waiters_of(&mut self, file: Key, client: Key) {
        let Some(file) = self.files.get_mut(file) else { return };
        let before = file.waiters.len();
        file.waiters.retain(|one| one.client != client);
        self.waiters -= before - file.waiters.len();
    }

    /// Marks a file whose waiters may get their locks. They are told when work is asked for: once,
    /// however many locks went at a time.
    pub(super) fn notify_waiters(&mut self, key: Key) {
        if let Some(file) = self.files.get_mut(key)
            && !file.waiters.is_empty()
            && !std::mem::replace(&mut file.is_unlocked, true)
        {
            self.unlocked.push(key);
        }
    }

    /// Tells those who wait for locks of the marked files.
    pub(super) fn tell_waiters(&mut self) {
        while let Some(file) = self.unlocked.pop() {
            self.tell_waiters_of(file);
        }
    }

    /// Tells those whose lock nothing denies any more. They leave the queue: nothing is held for
    /// them, and who is too late waits again.
    fn tell_waiters_of(&mut self, key: Key) {
        let Some(file) = self.files.get(key) else { return };
        let is_free = |waiter: &LockWaiter| {
            let owner = self.find_owner(file.id, ClientKey(waiter.client), &waiter.owner);
            let LockWaiter { range, exclusive, .. } = *waiter;
            let asked = HeldLock { owner: owner.unwrap_or(NO_OWNER), range, exclusive };
            file.locks.conflict(&asked, None).is_none()
        };
        let free: Vec<bool> = file.waiters.iter().map(is_free).collect();
        let Some(file) = self.files.get_mut(key) else { return };
        file.is_unlocked = false;
        let mut free = free.into_iter();
        let told = file.waiters.extract_if(.., |_| free.next().unwrap_or(false));
        for waiter in told {
            self.waiters -= 1;
            let handle = file.handle.clone();
            let notice =
                LockNotice { client: ClientKey(waiter.client), handle, owner: waiter.owner };
            self.work.push(StateWork::NotifyLock(notice));
        }
    }

    /// A lock of a local process may be gone: tells those who wait for locks of the file.
    pub fn handle_local_unlock(&mut self, file: FileId) {
        if let Some(key) = self.find_file(file) {
            self.notify_waiters(key);
        }
    }

    /// Files and ranges that somebody waits for, for a caller who has to look for locks of local
    /// processes.
    pub fn waiting(&self) -> impl Iterator<Item = (FileId, LockRange, bool)> {
        let files = self.files.iter().map(|(_, file)| file);
        files.flat_map(|file| {
            file.waiters.iter().map(move |waiter| (file.id, waiter.range, waiter.exclusive))
        })
    }
}
