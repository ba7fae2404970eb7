//! Byte-range locks: LOCK, LOCKT and LOCKU (RFC 8881 §9.1–§9.6, §18.10–§18.12).

use super::entry::{LockEntry, StateEntry, StateKind};
use super::stateid::next_seqid;
use super::{
    ClientKey, FileId, RecallScope, StateFault, StateKey, StateRequest, StateTables, StateidKind,
};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::state::{HeldLock, LockRange, LockRefusal};
use stag_protocol::nfs::v4::{LockType, Stateid, Status4, share};

/// The lock-owner of a LOCK (`locker4`).
#[derive(Clone, Copy, Debug)]
pub enum LockerRef<'a> {
    /// One that may have no locks under the open yet.
    New {
        /// The open.
        open: Stateid,
        /// The lock-owner.
        owner: &'a [u8],
    },
    /// One that has a stateid for its locks.
    Known(Stateid),
}

/// Arguments of LOCK.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// The client of the session.
    pub client: ClientKey,
    /// The current filehandle's file.
    pub file: FileId,
    /// Type.
    pub kind: LockType,
    /// True if the lock was held before the server restarted.
    pub reclaim: bool,
    /// The first octet.
    pub offset: u64,
    /// Number of octets; all ones = to the end.
    pub length: u64,
    /// Owner.
    pub locker: LockerRef<'a>,
}

/// Arguments of LOCKT.
#[derive(Clone, Copy, Debug)]
pub struct LockTestRequest<'a> {
    /// The client of the session.
    pub client: ClientKey,
    /// The current filehandle's file.
    pub file: FileId,
    /// Type.
    pub kind: LockType,
    /// The first octet.
    pub offset: u64,
    /// Number of octets; all ones = to the end.
    pub length: u64,
    /// The lock-owner, whose own locks do not conflict.
    pub owner: &'a [u8],
}

/// Arguments of LOCKU.
#[derive(Clone, Copy, Debug)]
pub struct UnlockRequest {
    /// The locks.
    pub locks: StateRequest,
    /// The first octet.
    pub offset: u64,
    /// Number of octets; all ones = to the end.
    pub length: u64,
}

/// A lock that conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeniedLock {
    /// Its octets.
    pub range: LockRange,
    /// True for a write lock.
    pub exclusive: bool,
    /// The locks that it is one of: [`StateTables::lock_owner`] tells whose they are.
    pub holder: StateKey,
}

/// A LOCK that nothing stands in the way of.
#[derive(Debug)]
struct LockPlan {
    open: Key,
    /// The lock state, if the owner has one under this open.
    state: Option<Key>,
    file: Key,
    asked: HeldLock,
}

impl StateTables {
    /// LOCK: locks a range, or changes the type of what the owner has locked of it.
    ///
    /// # Errors
    /// INVAL for a range that is none, OPENMODE, [`StateFault::Denied`], GRACE and its like, DELAY
    /// when a table is full. A request that waits ([`LockType::WriteWait`]) and is denied is told
    /// when the range may be free.
    pub fn lock(&mut self, request: &LockRequest<'_>, now: u64) -> Result<Stateid, StateFault> {
        let plan = match self.plan_lock(request, now) {
            Ok(plan) => plan,
            Err(StateFault::Denied(denied)) => {
                self.queue_waiter(request, now);
                return Err(StateFault::Denied(denied));
            }
            Err(fault) => return Err(fault),
        };
        let is_downgrade = !plan.asked.exclusive;
        let key = match plan.state {
            Some(key) => key,
            None => self.add_lock_state(request, &plan).map_err(|status| self.refusal(status))?,
        };
        let range = plan.asked.range;
        if let Err(status) = self.set_ranges(plan.file, plan.asked.owner, range, Some(plan.asked)) {
            if plan.state.is_none() {
                self.drop_state(key);
            }
            return Err(self.refusal(status));
        }
        self.drop_waiter(plan.file, key, range);
        if is_downgrade {
            self.notify_waiters(plan.file);
        }
        let stateid = match plan.state {
            Some(_) => self.changed_locks(key)?,
            None => self.stateid(StateKey(key)).ok_or(Status4::ServerFault)?,
        };
        Ok(stateid)
    }

    /// Tells what LOCK would answer, and changes nothing: for a caller who has to lock the file
    /// somewhere else in between.
    ///
    /// # Errors
    /// Those of [`StateTables::lock`].
    pub fn check_lock(&self, request: &LockRequest<'_>, now: u64) -> Result<(), StateFault> {
        self.plan_lock(request, now).map(|_| ())
    }

    /// LOCKT: looks for a lock that conflicts.
    ///
    /// # Errors
    /// As LOCK.
    pub fn test_lock(&mut self, request: &LockTestRequest<'_>, now: u64) -> Result<(), StateFault> {
        let range = LockRange::new(request.offset, request.length)?;
        self.check_grant(request.client, now)?;
        let Some(file) = self.find_file(request.file) else { return Ok(()) };
        // The holder of a write delegation keeps its locks to itself.
        self.recall(request.file, Some(request.client), RecallScope::Writers, now)?;
        let owner = self.find_owner(file, request.client, request.owner);
        let exclusive = request.kind.is_exclusive();
        let asked = HeldLock { owner: owner.unwrap_or(NOBODY), range, exclusive };
        self.check_ranges(file, asked)
    }

    /// LOCKU: unlocks what the owner has locked of a range; nothing of it is no error.
    ///
    /// # Errors
    /// INVAL for a range that is none, those of the stateid, DELAY when a lock would have to be
    /// split and there is no place.
    pub fn unlock(&mut self, request: &UnlockRequest) -> Result<Stateid, StateFault> {
        let range = LockRange::new(request.offset, request.length)?;
        let key = self.resolve(&request.locks, Some(StateidKind::Locks))?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        let StateKind::Locks(locks) = &state.kind else { return Err(Status4::BadStateid.into()) };
        let (file, number) = (state.file, locks.number);
        self.set_ranges(file, number, range, None)?;
        self.notify_waiters(file);
        self.changed_locks(key)
    }

    /// The client ID and the lock-owner that locks belong to.
    pub fn lock_owner(&self, locks: StateKey) -> Option<(u64, &[u8])> {
        let state = self.states.get(locks.0)?;
        match &state.kind {
            StateKind::Locks(locks) => Some((self.clients.get(state.client)?.id, &locks.owner)),
            _ => None,
        }
    }

    /// Finds what a LOCK is about, and judges it.
    fn plan_lock(&self, request: &LockRequest<'_>, now: u64) -> Result<LockPlan, StateFault> {
        let range = LockRange::new(request.offset, request.length)?;
        let exclusive = request.kind.is_exclusive();
        let (open, state) = self.locker(request)?;
        let entry = self.states.get(open).ok_or(Status4::BadStateid)?;
        let StateKind::Open(opened) = &entry.kind else { return Err(Status4::BadStateid.into()) };
        let needed = if exclusive { share::WRITE } else { share::READ };
        if opened.access & needed == 0 {
            // RFC 8881 §18.10.4 [8881-217]: a lock needs an open for what it protects
            return Err(Status4::OpenMode.into());
        }
        if request.reclaim {
            self.check_reclaim(request.client, now)?;
        } else {
            self.check_grant(request.client, now)?;
        }
        let owner = match (state.and_then(|key| self.number_of(key)), &request.locker) {
            (Some(number), _) => number,
            (None, LockerRef::New { owner, .. }) => {
                let known = self.find_owner(entry.file, request.client, owner);
                known.unwrap_or_else(|| self.free_number(entry.file, request.client))
            }
            (None, LockerRef::Known(_)) => return Err(Status4::BadStateid.into()),
        };
        let plan =
            LockPlan { open, state, file: entry.file, asked: HeldLock { owner, range, exclusive } };
        match self.check_ranges(plan.file, plan.asked) {
            // RFC 8881 §9.11 [8881-218]: a reclaim that conflicts with another is refused as such
            Err(StateFault::Denied(_)) if request.reclaim => Err(Status4::ReclaimConflict.into()),
            judged => judged.map(|()| plan),
        }
    }

    /// The open of a LOCK, and its lock state if there is one.
    fn locker(&self, request: &LockRequest<'_>) -> Result<(Key, Option<Key>), StateFault> {
        let of = |stateid| StateRequest { client: request.client, file: request.file, stateid };
        match request.locker {
            LockerRef::New { open, owner } => {
                let open = self.resolve(&of(open), Some(StateidKind::Open))?;
                let state = self.lock_states(request.file).find(|(_, _, locks)| {
                    locks.open == open && *locks.owner == *owner // it lost its stateid
                });
                Ok((open, state.map(|(key, ..)| key)))
            }
            LockerRef::Known(stateid) => {
                let key = self.resolve(&of(stateid), Some(StateidKind::Locks))?;
                match self.states.get(key).map(|state| &state.kind) {
                    Some(StateKind::Locks(locks)) => Ok((locks.open, Some(key))),
                    _ => Err(Status4::BadStateid.into()),
                }
            }
        }
    }

    /// Judges a lock against those that are held of the file.
    pub(super) fn check_ranges(&self, file: Key, asked: HeldLock) -> Result<(), StateFault> {
        let Some(entry) = self.files.get(file) else { return Ok(()) };
        let mut expired = None;
        for held in entry.locks.conflicts(asked) {
            let Some(client) = self.clients.key_at(client_of(held.owner)) else { continue };
            if self.is_courtesy(client) {
                expired = Some(ClientKey(client));
                continue;
            }
            let mut owners = entry.lock_states.iter();
            let holder = owners.find(|key| self.number_of(**key) == Some(held.owner));
            let holder = StateKey(*holder.ok_or(Status4::ServerFault)?);
            let HeldLock { range, exclusive, .. } = held;
            // RFC 8881 §18.10.3 [8881-219]: a denied lock names the lock in its way
            return Err(StateFault::Denied(DeniedLock { range, exclusive, holder }));
        }
        expired.map_or(Ok(()), |client| Err(StateFault::AwaitRemoval(client)))
    }

    /// Gives a range of an owner the type of `lock`, or none, and counts.
    fn set_ranges(
        &mut self,
        file: Key,
        owner: u64,
        range: LockRange,
        lock: Option<HeldLock>,
    ) -> Result<(), Status4> {
        let entry = self.files.get_mut(file).ok_or(Status4::ServerFault)?;
        let client = self.clients.key_at(client_of(owner)).ok_or(Status4::ServerFault)?;
        let client = self.clients.get_mut(client).ok_or(Status4::ServerFault)?;
        let before = entry.locks.held().len();
        let room = (self.limits.ranges - self.ranges)
            .min(self.limits.ranges_per_client.saturating_sub(client.ranges))
            .min(self.limits.ranges_per_file.saturating_sub(before));
        // A change of one range adds two at most.
        entry.locks.table_mut().resize(before + room.min(2), HeldLock::default());
        let changed = match lock {
            Some(lock) => entry.locks.lock(lock),
            None => entry.locks.unlock(owner, range),
        };
        if changed.is_ok() && lock.is_none_or(|lock| !lock.exclusive) {
            self.weakened.push((file, range));
        }
        let after = entry.locks.held().len();
        client.ranges = client.ranges + after - before;
        self.ranges = self.ranges + after - before;
        changed.map_err(|refusal| match refusal {
            LockRefusal::Denied(_) => Status4::ServerFault,
            LockRefusal::Full => Status4::Delay,
        })
    }

    fn add_lock_state(
        &mut self,
        request: &LockRequest<'_>,
        plan: &LockPlan,
    ) -> Result<Key, Status4> {
        let LockerRef::New { owner, .. } = request.locker else { return Err(Status4::BadStateid) };
        let of_file = self.files.get(plan.file).map_or(0, |file| file.lock_states.len());
        if self.lock_states >= self.limits.lock_states
            || of_file >= self.limits.lock_states_per_file
        {
            return Err(Status4::Delay);
        }
        let locks = LockEntry { open: plan.open, owner: owner.into(), number: plan.asked.owner };
        let key = self.add_state(request.client, plan.file, StateKind::Locks(locks))?.0;
        self.lock_states += 1;
        if let Some(file) = self.files.get_mut(plan.file) {
            file.lock_states.push(key);
        }
        Ok(key)
    }

    fn changed_locks(&mut self, key: Key) -> Result<Stateid, StateFault> {
        let state = self.states.get_mut(key).ok_or(Status4::BadStateid)?;
        // RFC 8881 §9.4 [8881-220]: each LOCK and LOCKU that is done raises the sequence ID
        state.seqid = next_seqid(state.seqid);
        self.note_changed(key);
        Ok(self.stateid(StateKey(key)).ok_or(Status4::BadStateid)?)
    }

    /// The lock states of a file.
    pub(super) fn lock_states(&self, file: FileId) -> impl Iterator<Item = (Key, Key, &LockEntry)> {
        let keys = self.file(file).map_or(&[][..], |file| &file.lock_states);
        keys.iter().filter_map(|key| {
            let state = self.states.get(*key)?;
            match &state.kind {
                StateKind::Locks(locks) => Some((*key, state.client, locks)),
                _ => None,
            }
        })
    }

    /// The number that a lock state's owner has in the table of ranges.
    pub(super) fn number_of(&self, key: Key) -> Option<u64> {
        match &self.states.get(key)?.kind {
            StateKind::Locks(locks) => Some(locks.number),
            _ => None,
        }
    }

    /// The number of a lock-owner with lock states of the file.
    pub(super) fn find_owner(&self, file: Key, client: ClientKey, owner: &[u8]) -> Option<u64> {
        let id = self.files.get(file)?.id;
        let is_it = |(_, holder, locks): &(Key, Key, &LockEntry)| {
            *holder == client.0 && *locks.owner == *owner
        };
        self.lock_states(id).find(is_it).map(|(_, _, locks)| locks.number)
    }

    /// A number for a lock-owner without lock states of the file. It tells the client by its place.
    fn free_number(&self, file: Key, client: ClientKey) -> u64 {
        let keys = self.files.get(file).map_or(&[][..], |file| &file.lock_states);
        let base = (client.0.index() as u64) << 32;
        let mine = keys.iter().filter_map(|key| self.number_of(*key));
        let last = mine.filter(|number| number >> 32 == base >> 32).max();
        match last {
            Some(last) if last & u64::from(u32::MAX) < u64::from(u32::MAX) => last + 1,
            Some(_) => self.first_gap(keys, base),
            None => base,
        }
    }

    /// The lowest number of a client that no lock state of the file has.
    fn first_gap(&self, keys: &[Key], base: u64) -> u64 {
        let is_free = |number: &u64| !keys.iter().any(|key| self.number_of(*key) == Some(*number));
        (base..=base | u64::from(u32::MAX)).find(is_free).unwrap_or(base)
    }

    /// Returns true if locks would remain when an open is closed: locks of an owner that has no
    /// lock state of the file under another open.
    pub(super) fn has_locks(&self, file: FileId, open: Key) -> bool {
        let Some(entry) = self.file(file) else { return false };
        let stays = |number| {
            self.lock_states(file).any(|(_, _, locks)| locks.open != open && locks.number == number)
        };
        self.lock_states(file).any(|(_, _, locks)| {
            locks.open == open && entry.locks.has_locks(locks.number) && !stays(locks.number)
        })
    }

    /// Takes a lock state that is gone out of its file, with its locks.
    pub(super) fn end_locks(&mut self, key: Key, entry: &StateEntry) {
        let StateKind::Locks(locks) = &entry.kind else { return };
        self.lock_states -= 1;
        let stays = self
            .lock_states(entry.file_id)
            .any(|(other, _, one)| other != key && one.number == locks.number);
        let Some(file) = self.files.get_mut(entry.file) else { return };
        file.lock_states.retain(|other| *other != key);
        if stays {
            return;
        }
        let released = file.locks.release(locks.number);
        self.ranges -= released;
        if let Some(client) = self.clients.get_mut(entry.client) {
            client.ranges -= released;
        }
        if released > 0 {
            self.weakened.extend(LockRange::between(0, u64::MAX).map(|all| (entry.file, all)));
            self.notify_waiters(entry.file);
        }
    }
}

/// The number of an owner that has no locks: that of no client.
pub(super) const NOBODY: u64 = u64::MAX;

/// The place of the client that an owner's number tells.
const fn client_of(number: u64) -> usize {
    (number >> 32) as usize
}
