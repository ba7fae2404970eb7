//! Lock-owners that wait for a lock, and their notification when it may be free (CB_NOTIFY_LOCK,
//! RFC 8881 §9.6, §20.11).

use crate::{
    ClientKey, FileId, StateTables, StateWork,
    entry::{FileEntry, LeasePhase, StateKind},
    hosts::SharedTable,
    lock::{LOCKS_JUDGED, LockRequest, LockerRef},
    owners::{NO_OWNER, client_of},
};
use stag_pools::{steps, table::Key};
use stag_protocol::nfs::v4::LockType;
use stag_protocol::nfs::v4::state::{HeldLock, LockRange};

/// A request for a lock that was denied.
#[derive(Debug)]
pub(crate) struct LockWaiter {
    client: Key,
    owner: Box<[u8]>,
    range: LockRange,
    exclusive: bool,
    /// Time from which it counts as abandoned: a client that waits for a lock retries periodically.
    until: u64,
    /// A local process has a conflicting lock.
    is_local: bool,
}

/// Milliseconds within which a client retries its lock, unless it has given up. Linux retries after
/// 30 seconds at the latest.
const ASKS_AGAIN_MS: u64 = 60_000;

/// Waiters that one call of [`StateTables::handle_time`] examines; the last file may exceed it.
pub(crate) const WAITERS_PER_TURN: usize = 512;

/// A request that waits for a local process to unlock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalWait {
    /// The file.
    pub file: FileId,
    /// The octets.
    pub range: LockRange,
    /// True for a write lock.
    pub exclusive: bool,
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
    /// Enters a request that conflicts with a lock of a local process, if it waits. Call
    /// [`local_waits`](Self::local_waits) periodically afterwards.
    pub fn queue_local_waiter(&mut self, request: &LockRequest<'_>, now: u64) {
        self.queue_waiter(request, now, true);
    }

    /// Enters a denied request, if it waits. If the queue is full, the client has to retry by
    /// itself.
    pub(crate) fn queue_waiter(&mut self, request: &LockRequest<'_>, now: u64, is_local: bool) {
        if !matches!(request.kind, LockType::ReadWait | LockType::WriteWait) || request.reclaim {
            return;
        }
        let owner = match request.locker {
            LockerRef::New { owner, .. } => Some(Box::from(owner)),
            LockerRef::Known(stateid) => self
                .find_state(&stateid)
                .and_then(|key| self.lock_owner(crate::StateKey(key)))
                .map(|(_, owner)| Box::from(owner)),
        };
        let range = LockRange::new(request.offset, request.length).ok();
        let (Some(owner), Some(range)) = (owner, range) else { return };
        let exclusive = request.kind.is_exclusive();
        let until = now.saturating_add(self.lease.max(ASKS_AGAIN_MS));
        let client = request.client.0;
        let waiter = LockWaiter { client, owner, range, exclusive, until, is_local };
        let Some(key) = self.find_file(request.file) else { return };
        self.take_waiters(key, |one| {
            let is_same = one.client == client && one.owner == waiter.owner && one.range == range;
            one.until <= now || is_same
        });
        if !self.has_place_for_waiter(key, request.client) {
            return;
        }
        if let Some(file) = self.files.get_mut(key) {
            file.waiters.push(waiter);
            self.waiters += 1;
            if !std::mem::replace(&mut file.is_waited_for, true) {
                self.waited.push_back(key);
            }
            self.count_places(client, SharedTable::Waiters, 1, 0);
        }
    }

    /// Returns true if one more request of a client may wait for a lock of the file: clients of one
    /// host leave places to others, in the whole table and at each file.
    fn has_place_for_waiter(&self, file: Key, client: ClientKey) -> bool {
        let waiters = self.files.get(file).map_or(&[][..], |file| &file.waiters);
        let free = self.limits.waiters_per_file.saturating_sub(waiters.len());
        let host_of = |client: Key| self.clients.get(client).and_then(|client| client.host);
        let host = host_of(client.0);
        let is_of_host = |one: &&LockWaiter| host.is_some() && host_of(one.client) == host;
        let of_host = waiters.iter().filter(is_of_host).count();
        self.waiters < self.limits.waiters
            && of_host < free
            && self.has_share(client, SharedTable::Waiters)
    }

    /// Removes requests from the queue of a file.
    pub(crate) fn take_waiters(
        &mut self,
        file: Key,
        mut goes: impl FnMut(&LockWaiter) -> bool,
    ) -> Vec<LockWaiter> {
        let Some(file) = self.files.get_mut(file) else { return Vec::new() };
        let gone: Vec<_> = file.waiters.extract_if(.., |one| goes(one)).collect();
        self.waiters -= gone.len();
        for waiter in &gone {
            self.count_places(waiter.client, SharedTable::Waiters, 0, 1);
        }
        gone
    }

    /// Removes requests of an owner that got its lock.
    pub(crate) fn drop_waiter(&mut self, file: Key, locks: Key, range: LockRange) {
        if self.files.get(file).is_none_or(|file| file.waiters.is_empty()) {
            return;
        }
        let Some(state) = self.states.get(locks) else { return };
        let StateKind::Locks(locks) = &state.kind else { return };
        let (client, owner) = (state.client, locks.owner.clone());
        self.take_waiters(file, |one| {
            one.client == client && one.owner == owner && one.range.overlaps(&range)
        });
    }

    /// Removes the requests of a client that closes the file. If it has another open of the file,
    /// it retries.
    pub(crate) fn drop_waiters_of(&mut self, file: Key, client: Key) {
        self.take_waiters(file, |one| one.client == client);
    }

    /// Marks a file whose waiters may get their locks. They are notified when work is polled: once,
    /// however many locks were released.
    pub(crate) fn notify_waiters(&mut self, key: Key) {
        if let Some(file) = self.files.get_mut(key)
            && !file.waiters.is_empty()
            && !std::mem::replace(&mut file.is_unlocked, true)
        {
            self.unlocked.push(key);
        }
    }

    /// Notifies waiters for locks of the marked files.
    pub(crate) fn tell_waiters(&mut self) {
        while let Some(file) = self.unlocked.pop() {
            self.tell_waiters_of(file);
        }
    }

    /// Notifies waiters that nothing denies any more, and removes them. Waking a waiter reserves
    /// nothing; if it loses the race, it queues again.
    fn tell_waiters_of(&mut self, key: Key) {
        let Some(file) = self.files.get(key) else { return };
        let is_free = |waiter: &LockWaiter| {
            !waiter.is_local && file.locks.conflict(&self.asked(file, waiter), None).is_none()
        };
        let free: Vec<bool> = file.waiters.iter().map(is_free).collect();
        let Some(file) = self.files.get_mut(key) else { return };
        file.is_unlocked = false;
        let handle = file.handle.clone();
        let mut free = free.into_iter();
        for waiter in self.take_waiters(key, |_| free.next().unwrap_or(false)) {
            let (client, handle) = (ClientKey(waiter.client), handle.clone());
            let notice = LockNotice { client, handle, owner: waiter.owner };
            self.work.push(StateWork::NotifyLock(notice));
        }
    }

    /// The lock that a waiter asked for.
    fn asked(&self, file: &FileEntry, waiter: &LockWaiter) -> HeldLock {
        let owner = self.find_owner(file.id, ClientKey(waiter.client), &waiter.owner);
        let LockWaiter { range, exclusive, .. } = *waiter;
        HeldLock { owner: owner.unwrap_or(NO_OWNER), range, exclusive }
    }

    /// Examines some waiters, in turns, as time passes. If only locks of clients with expired
    /// leases conflict with a waiter, these clients are removed.
    pub(crate) fn tend_waiters(&mut self, now: u64) {
        let (mut left, mut expired) = (WAITERS_PER_TURN, Vec::new());
        for _ in 0..self.waited.len() {
            if left == 0 {
                break;
            }
            let Some(key) = self.waited.pop_front() else { break };
            let Some(file) = self.files.get_mut(key) else { continue };
            if file.waiters.is_empty() {
                file.is_waited_for = false;
                continue;
            }
            left = left.saturating_sub(file.waiters.len());
            self.waited.push_back(key);
            let Some(file) = self.files.get(key) else { continue };
            for waiter in file.waiters.iter().filter(|waiter| now < waiter.until) {
                self.expired_before(file, waiter, &mut expired);
            }
        }
        for client in expired {
            let phase = self.clients.get(client.0).map(|entry| entry.phase);
            if phase == Some(LeasePhase::Courtesy) {
                self.set_phase(client.0, LeasePhase::AwaitRelease);
                self.work.push(StateWork::Expired(client));
            }
        }
    }

    /// Adds the clients whose locks conflict with a waiter, if the leases of all of them expired.
    fn expired_before(&self, file: &FileEntry, waiter: &LockWaiter, expired: &mut Vec<ClientKey>) {
        if self.is_courtesy(waiter.client) {
            return;
        }
        let (asked, before) = (self.asked(file, waiter), expired.len());
        let mut past = None;
        for _ in 0..LOCKS_JUDGED {
            steps::count();
            let Some(held) = file.locks.conflict(&asked, past) else { return };
            past = Some(held);
            match self.clients.key_at(client_of(held.owner)) {
                Some(client) if self.is_courtesy(client) => expired.push(ClientKey(client)),
                Some(_) => return expired.truncate(before),
                None => {}
            }
        }
    }

    /// Returns true while requests wait for locks.
    pub const fn has_waiters(&self) -> bool {
        self.waiters > 0
    }

    /// Requests that wait for local processes, in turns: of as many files as have `most` of them,
    /// or of one file with more.
    pub fn local_waits(&mut self, most: usize) -> Vec<LocalWait> {
        let (mut waits, mut seen) = (Vec::new(), 0);
        for key in &self.waited {
            if waits.len() >= most {
                break;
            }
            seen += 1;
            let Some(file) = self.files.get(*key) else { continue };
            let local = file.waiters.iter().filter(|waiter| waiter.is_local);
            waits.extend(local.map(|waiter| LocalWait {
                file: file.id,
                range: waiter.range,
                exclusive: waiter.exclusive,
            }));
        }
        self.waited.rotate_left(seen);
        waits
    }

    /// Local processes have no conflicting lock for these requests any more. Notifies the waiters,
    /// unless a client has one.
    pub fn handle_local_unlock(&mut self, wait: &LocalWait) {
        let Some(key) = self.find_file(wait.file) else { return };
        let waiters = self.files.get_mut(key).into_iter().flat_map(|file| &mut file.waiters);
        for waiter in
            waiters.filter(|one| (one.range, one.exclusive) == (wait.range, wait.exclusive))
        {
            waiter.is_local = false;
        }
        self.notify_waiters(key);
    }

    /// Requests that wait for locks.
    pub fn waiting(&self) -> impl Iterator<Item = (FileId, LockRange, bool)> {
        let files = self.files.iter().map(|(_, file)| file);
        files.flat_map(|file| {
            file.waiters.iter().map(move |waiter| (file.id, waiter.range, waiter.exclusive))
        })
    }
}
