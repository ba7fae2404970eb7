//! Byte-range locks: LOCK, LOCKT and LOCKU (RFC 8881 §9.1–§9.6, §18.10–§18.12).

use crate::{
    ClientKey, FileId, RecallScope, StateFault, StateKey, StateRequest, StateTables, StateWork,
    StateidKind,
    entry::StateKind,
    hosts::SharedTable,
    owners::{NO_OWNER, client_of},
    ranges::LockChange,
    stateid::next_seqid,
};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::state::{HeldLock, LockRange};
use stag_protocol::nfs::v4::{LockType, Stateid, Status4, share};

/// The lock-owner of a LOCK (`locker4`).
#[derive(Clone, Copy, Debug)]
pub enum LockerRef<'a> {
    /// A lock-owner that may have no locks under the open yet.
    New {
        /// The open.
        open: Stateid,
        /// The lock-owner.
        owner: &'a [u8],
    },
    /// A lock-owner with a stateid for its locks.
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
    /// Number of octets; all ones = to the end of the file.
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
    /// Number of octets; all ones = to the end of the file.
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
    /// Number of octets; all ones = to the end of the file.
    pub length: u64,
}

/// A lock that conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeniedLock {
    /// Its octets.
    pub range: LockRange,
    /// True for a write lock.
    pub exclusive: bool,
    /// The locks that it is one of: [`StateTables::lock_owner`] returns their owner.
    pub holder: StateKey,
}

/// A LOCK without conflicts.
#[derive(Debug)]
struct LockPlan {
    open: Key,
    /// The lock state, if the owner has one under this open.
    state: Option<Key>,
    file: Key,
    asked: HeldLock,
    change: LockChange,
}

/// Conflicting locks that are examined to find one whose client has not expired.
pub(crate) const LOCKS_JUDGED: usize = 64;

/// Locked ranges that one operation, or one pass, removes.
const RANGES_SWEPT: usize = 256;

impl StateTables {
    /// LOCK: locks a range, or changes the type of the owner's locks in it.
    ///
    /// # Errors
    /// INVAL for an invalid range, OPENMODE, [`StateFault::Denied`], GRACE and similar, DELAY when
    /// a table is full, SERVERFAULT when the client or the file has too many ranges;
    /// [`StateFault::AwaitPart`] when thousands of write locks become one for reading. The owner of
    /// a waiting request ([`LockType::WriteWait`]) that is denied is notified when the range may be
    /// free.
    pub fn lock(&mut self, request: &LockRequest<'_>, now: u64) -> Result<Stateid, StateFault> {
        let plan = match self.plan_lock(request, now) {
            Ok(plan) => plan,
            Err(StateFault::Denied(denied)) => {
                self.queue_waiter(request, now, false);
                return Err(StateFault::Denied(denied));
            }
            Err(fault) => return Err(fault),
        };
        let HeldLock { range, exclusive, .. } = plan.asked;
        let (key, change) = match plan.state {
            Some(key) => (key, plan.change),
            None => {
                let added = self.add_locker(request, &plan).map_err(|it| self.refusal(it))?;
                (added.0, plan.change.of_owner(added.1))
            }
        };
        let is_over = self.change_ranges(plan.file, &change);
        self.drop_waiter(plan.file, key, range);
        if !exclusive && !is_over {
            // Until it is complete, other owners are kept out of more than is locked.
            if plan.state.is_none()
                && let Some(state) = self.states.get_mut(key)
            {
                state.seqid = 0;
            }
            return Err(StateFault::AwaitPart);
        }
        if !exclusive {
            self.notify_waiters(plan.file);
        }
        let stateid = match plan.state {
            Some(_) => self.changed_locks(key)?,
            None => self.stateid(StateKey(key)).ok_or(Status4::ServerFault)?,
        };
        Ok(stateid)
    }

    /// Returns the outcome that LOCK would have, and changes nothing: for a caller who has to lock
    /// the file elsewhere in between.
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
        // The holder of a write delegation does not report its locks to the server.
        self.recall(request.file, Some(request.client), RecallScope::Writers, now)?;
        let owner = self.find_owner(request.file, request.client, request.owner);
        let exclusive = request.kind.is_exclusive();
        let asked = HeldLock { owner: owner.unwrap_or(NO_OWNER), range, exclusive };
        self.check_ranges(file, asked)
    }

    /// LOCKU: unlocks the owner's locks in a range; it is no error if there are none.
    ///
    /// # Errors
    /// INVAL for an invalid range, the errors of the stateid, SERVERFAULT or DELAY when a lock
    /// would have to be split and there is no place; [`StateFault::AwaitPart`] when the owner has
    /// too many locks there for one operation.
    pub fn unlock(&mut self, request: &UnlockRequest) -> Result<Stateid, StateFault> {
        let range = LockRange::new(request.offset, request.length)?;
        let key = self.resolve(&request.locks, Some(StateidKind::Locks))?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        let StateKind::Locks(locks) = &state.kind else { return Err(Status4::BadStateid.into()) };
        let (file, number) = (state.file, locks.number);
        let change = self.plan_change(file, number, range, None)?;
        if !self.change_ranges(file, &change) {
            return Err(StateFault::AwaitPart);
        }
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

    /// Finds the open and the lock state of a LOCK, and checks it.
    fn plan_lock(&self, request: &LockRequest<'_>, now: u64) -> Result<LockPlan, StateFault> {
        let range = LockRange::new(request.offset, request.length)?;
        let exclusive = request.kind.is_exclusive();
        let (open, state) = self.locker(request)?;
        let entry = self.states.get(open).ok_or(Status4::BadStateid)?;
        let StateKind::Open(opened) = &entry.kind else { return Err(Status4::BadStateid.into()) };
        let needed = if exclusive { share::WRITE } else { share::READ };
        if opened.share.access() & needed == 0 {
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
                self.find_owner(request.file, request.client, owner).unwrap_or(NO_OWNER)
            }
            (None, LockerRef::Known(_)) => return Err(Status4::BadStateid.into()),
        };
        let (file, asked) = (entry.file, HeldLock { owner, range, exclusive });
        match self.check_ranges(file, asked) {
            // RFC 8881 §9.11 [8881-218]: a reclaim that conflicts with another is refused as such
            Err(StateFault::Denied(_)) if request.reclaim => {
                return Err(Status4::ReclaimConflict.into());
            }
            judged => judged?,
        }
        let change = self.plan_change(file, owner, range, Some((request.client, exclusive)))?;
        if state.is_none() {
            self.check_room_for_owner(request.client, file, request.reclaim)?;
        }
        if change.growth() > 0
            && !request.reclaim
            && !self.has_share(request.client, SharedTable::Ranges)
        {
            return Err(self.when_over_share(request.client));
        }
        Ok(LockPlan { open, state, file, asked, change })
    }

    /// The open of a LOCK, and its lock state if there is one.
    fn locker(&self, request: &LockRequest<'_>) -> Result<(Key, Option<Key>), StateFault> {
        let of = |stateid| StateRequest { client: request.client, file: request.file, stateid };
        match request.locker {
            LockerRef::New { open, owner } => {
                let open = self.resolve(&of(open), Some(StateidKind::Open))?;
                let number = self.find_owner(request.file, request.client, owner);
                let state = number.and_then(|number| self.find_lock_state(open, number));
                Ok((open, state))
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

    /// Checks a lock against the locks of the file.
    pub(crate) fn check_ranges(&self, file: Key, asked: HeldLock) -> Result<(), StateFault> {
        let Some(entry) = self.files.get(file) else { return Ok(()) };
        let (mut past, mut expired) = (None, None);
        for _ in 0..LOCKS_JUDGED {
            let Some(held) = entry.locks.conflict(&asked, past) else { break };
            past = Some(held);
            let Some(client) = self.clients.key_at(client_of(held.owner)) else { continue };
            if self.is_courtesy(client) {
                expired = Some(ClientKey(client));
                continue;
            }
            let holder = self.holder_of(held.owner).ok_or(Status4::ServerFault)?;
            let HeldLock { range, exclusive, .. } = held;
            // RFC 8881 §18.10.3 [8881-219]: a denied lock names the lock in its way
            return Err(StateFault::Denied(DeniedLock { range, exclusive, holder }));
        }
        expired.map_or(Ok(()), |client| Err(StateFault::AwaitRemoval(client)))
    }

    /// Plans a change of the type of an owner's range, or its unlocking, and checks that there is
    /// room for it.
    fn plan_change(
        &self,
        file: Key,
        owner: u64,
        range: LockRange,
        lock: Option<(ClientKey, bool)>,
    ) -> Result<LockChange, StateFault> {
        let entry = self.files.get(file).ok_or(Status4::ServerFault)?;
        if entry.locks.is_changing(owner) {
            return Err(StateFault::AwaitPart);
        }
        let change = entry.locks.plan(owner, range, lock.map(|(_, exclusive)| exclusive));
        let client = match lock {
            Some((client, _)) => self.clients.get(client.0),
            None => self.clients.at(client_of(owner)),
        };
        let of_client = client.map_or(0, |client| client.held.of(SharedTable::Ranges));
        let (growth, limits) = (change.growth(), &self.limits);
        let is_full = of_client + growth > limits.ranges_per_client
            || entry.locks.len() + growth > limits.ranges_per_file;
        if growth > 0 && is_full {
            // Waiting does not help. Of the statuses that RFC 8881 §15.2 allows for LOCK and LOCKU,
            // only the generic one applies.
            return Err(Status4::ServerFault.into());
        }
        if growth > 0 && self.ranges + growth > limits.ranges {
            return Err(self.when_full());
        }
        Ok(change)
    }

    /// Makes a change for which there is room. Returns true if it is complete; if not, the ranges
    /// that it made obsolete are removed later.
    fn change_ranges(&mut self, key: Key, change: &LockChange) -> bool {
        let Some(file) = self.files.get_mut(key) else { return true };
        let before = file.locks.len();
        self.weakened.extend(file.locks.begin(change).map(|range| (key, range)));
        let after = file.locks.len();
        self.count_ranges(change.owner, after, before);
        self.sweep_owner(key, change.owner, RANGES_SWEPT);
        let is_over = self.files.get(key).is_none_or(|file| !file.locks.is_changing(change.owner));
        if !is_over {
            self.sweeping.push_back((key, change.owner));
        }
        is_over
    }

    /// Removes at most `most` obsolete ranges of an owner. Returns their number.
    fn sweep_owner(&mut self, key: Key, owner: u64, most: usize) -> usize {
        let Some(file) = self.files.get_mut(key) else { return 0 };
        let weakened = &mut self.weakened;
        let count = file.locks.sweep(owner, most, |range| weakened.push((key, range)));
        self.count_ranges(owner, 0, count);
        count
    }

    /// Continues incomplete changes. Must be called in every pass.
    #[inline]
    pub fn sweep_ranges(&mut self) {
        if !self.sweeping.is_empty() {
            self.sweep_some_ranges();
        }
    }

    #[cold]
    fn sweep_some_ranges(&mut self) {
        let mut left = RANGES_SWEPT;
        while left > 0
            && let Some((key, owner)) = self.sweeping.front().copied()
        {
            left -= self.sweep_owner(key, owner, left).clamp(1, left);
            let file = self.files.get(key);
            if file.is_none_or(|file| !file.locks.is_changing(owner)) {
                self.sweeping.pop_front();
                if let Some(id) = file.map(|file| file.id) {
                    self.notify_waiters(key);
                    self.work.push(StateWork::GoOn(id));
                }
            }
        }
    }

    /// Returns true while there is work for [`StateTables::sweep_ranges`], or a range for
    /// [`StateTables::next_weakened`].
    pub fn has_ranges_to_go(&self) -> bool {
        !self.sweeping.is_empty() || !self.weakened.is_empty()
    }

    fn add_locker(
        &mut self,
        request: &LockRequest<'_>,
        plan: &LockPlan,
    ) -> Result<(Key, u64), Status4> {
        let LockerRef::New { owner, .. } = request.locker else { return Err(Status4::BadStateid) };
        self.add_lock_state(request.client, plan.open, owner)
    }

    fn changed_locks(&mut self, key: Key) -> Result<Stateid, StateFault> {
        let state = self.states.get_mut(key).ok_or(Status4::BadStateid)?;
        // RFC 8881 §9.4 [8881-220]: each LOCK and LOCKU that is done raises the sequence ID
        state.seqid = next_seqid(state.seqid);
        self.note_changed(key);
        Ok(self.stateid(StateKey(key)).ok_or(Status4::BadStateid)?)
    }

    /// The number that a lock state's owner has in the table of ranges.
    pub(crate) fn number_of(&self, key: Key) -> Option<u64> {
        match &self.states.get(key)?.kind {
            StateKind::Locks(locks) => Some(locks.number),
            _ => None,
        }
    }
}
