//! Lock-owners and their lock states: the indexes by which LOCK, CLOSE and the end of a client find
//! them without visiting all lock states of a file.

use crate::{
    ClientKey, FileId, StateFault, StateKey, StateTables,
    entry::{LockEntry, LockOwner, StateEntry, StateKind},
    hosts::SharedTable,
};
use stag_pools::{steps, table::Key};
use stag_protocol::nfs::v4::{Status4, state::LockRange};

/// The number of an owner without locks, which no client has.
pub(crate) const NO_OWNER: u64 = u64::MAX;

/// The place of an owner's client, by its number.
pub(crate) const fn client_of(number: u64) -> usize {
    (number >> 32) as usize
}

/// The place of a lock-owner, by its number.
const fn owner_of(number: u64) -> usize {
    (number & u32::MAX as u64) as usize
}

/// The number of a client's lock-owner.
const fn number_of(client: Key, owner: Key) -> u64 {
    (client.index() as u64) << 32 | owner.index() as u64
}

impl StateTables {
    /// The number of a lock-owner with lock states of the file.
    pub(crate) fn find_owner(&self, file: FileId, client: ClientKey, owner: &[u8]) -> Option<u64> {
        let hash = self.owner_hash(client.0, file, owner);
        Some(number_of(client.0, *self.by_lock_owner.get(&hash)?))
    }

    /// The lock state of a lock-owner under an open.
    pub(crate) fn find_lock_state(&self, open: Key, number: u64) -> Option<Key> {
        self.by_open.get(&(open, number)).copied()
    }

    /// A lock state of the lock-owner of this number.
    pub(crate) fn holder_of(&self, number: u64) -> Option<StateKey> {
        let owner = self.lock_owners.at(owner_of(number))?;
        owner.states.first().map(|key| StateKey(*key))
    }

    /// Checks for a place for one more lock state of a file.
    ///
    /// # Errors
    /// DELAY without one; [`StateFault::AwaitRemoval`].
    pub(crate) fn check_room_for_owner(
        &self,
        client: ClientKey,
        file: Key,
        is_reclaim: bool,
    ) -> Result<(), StateFault> {
        if self.lock_states >= self.limits.lock_states {
            return Err(self.when_full());
        }
        if !is_reclaim && !self.has_share(client, SharedTable::LockStates) {
            return Err(self.when_over_share(client));
        }
        let of_file = self.files.get(file).map_or(0, |file| file.lock_states);
        let is_full = of_file >= self.limits.lock_states_per_file;
        if is_full { Err(Status4::Delay.into()) } else { Ok(()) }
    }

    /// Adds a lock state under an open. Returns it and the number of its lock-owner.
    pub(crate) fn add_lock_state(
        &mut self,
        client: ClientKey,
        open: Key,
        owner: &[u8],
    ) -> Result<(Key, u64), Status4> {
        let opened = self.states.get(open).ok_or(Status4::BadStateid)?;
        let (file, file_id) = (opened.file, opened.file_id);
        let hash = self.owner_hash(client.0, file_id, owner);
        let known = self.by_lock_owner.get(&hash).copied();
        let key = match known {
            Some(key) => key,
            None => {
                let owner = LockOwner { hash, states: Vec::new(), ranges: 0 };
                self.lock_owners.insert(owner).map_err(|_| Status4::Delay)?
            }
        };
        let number = number_of(client.0, key);
        let place_of_owner = self.lock_owners.get(key).map_or(0, |owner| owner.states.len());
        let place = match &opened.kind {
            StateKind::Open(open) => open.locks.len(),
            _ => return Err(Status4::BadStateid),
        };
        let entry = LockEntry { open, owner: owner.into(), number, place, place_of_owner };
        let added = self.add_state(client, file, StateKind::Locks(entry)).inspect_err(|_| {
            if known.is_none() {
                self.lock_owners.remove(key);
            }
        })?;
        self.by_lock_owner.insert(hash, key);
        self.by_open.insert((open, number), added.0);
        self.lock_states += 1;
        self.count_places(client.0, SharedTable::LockStates, 1, 0);
        if let Some(owner) = self.lock_owners.get_mut(key) {
            owner.states.push(added.0);
        }
        if let Some(file) = self.files.get_mut(file) {
            file.lock_states += 1;
        }
        if let Some(StateKind::Open(open)) = self.states.get_mut(open).map(|it| &mut it.kind) {
            open.locks.push(added.0);
        }
        Ok((added.0, number))
    }

    /// Returns true if locks would remain when an open is closed: locks of an owner that has no
    /// lock state of the file under another open.
    pub(crate) fn has_locks(&self, open: Key) -> bool {
        let under = match self.states.get(open).map(|open| &open.kind) {
            Some(StateKind::Open(open)) => &open.locks[..],
            _ => &[],
        };
        under.iter().any(|key| {
            let Some(StateKind::Locks(locks)) = self.states.get(*key).map(|it| &it.kind) else {
                return false;
            };
            let owner = self.lock_owners.at(owner_of(locks.number));
            owner.is_some_and(|owner| owner.ranges > 0 && owner.states.len() == 1)
        })
    }

    /// Removes an ended lock state from its file, with its locks.
    pub(crate) fn end_locks(&mut self, entry: &StateEntry) {
        let StateKind::Locks(locks) = &entry.kind else { return };
        self.lock_states -= 1;
        self.count_places(entry.client, SharedTable::LockStates, 0, 1);
        self.by_open.remove(&(locks.open, locks.number));
        if let Some(file) = self.files.get_mut(entry.file) {
            file.lock_states -= 1;
        }
        if let Some(StateKind::Open(open)) = self.states.get_mut(locks.open).map(|it| &mut it.kind)
        {
            open.locks.swap_remove(locks.place);
            let moved = open.locks.get(locks.place).copied();
            self.move_locks(moved, |moved| moved.place = locks.place);
        }
        let Some(owner) = self.lock_owners.at_mut(owner_of(locks.number)) else { return };
        owner.states.swap_remove(locks.place_of_owner);
        let moved = owner.states.get(locks.place_of_owner).copied();
        let (is_last, hash) = (owner.states.is_empty(), owner.hash);
        self.move_locks(moved, |moved| moved.place_of_owner = locks.place_of_owner);
        if is_last {
            self.drop_ranges(entry.file, locks.number, usize::MAX);
            self.by_lock_owner.remove(&hash);
            if let Some(key) = self.lock_owners.key_at(owner_of(locks.number)) {
                self.lock_owners.remove(key);
            }
        }
    }

    fn move_locks(&mut self, key: Option<Key>, change: impl FnOnce(&mut LockEntry)) {
        let state = key.and_then(|key| self.states.get_mut(key));
        if let Some(StateKind::Locks(locks)) = state.map(|state| &mut state.kind) {
            change(locks);
        }
    }

    /// Drops at most `most` ranges of an ending state, if they end with it. Returns their number.
    pub(crate) fn drop_ranges_of(&mut self, state: Key, most: usize) -> usize {
        let Some(entry) = self.states.get(state) else { return 0 };
        let StateKind::Locks(locks) = &entry.kind else { return 0 };
        let (file, number) = (entry.file, locks.number);
        let owner = self.lock_owners.at(owner_of(number));
        match owner.is_some_and(|owner| owner.states.len() == 1) {
            true => self.drop_ranges(file, number, most),
            false => 0,
        }
    }

    /// Drops at most `most` ranges of a lock-owner. Returns their number.
    fn drop_ranges(&mut self, key: Key, number: u64, most: usize) -> usize {
        let Some(file) = self.files.get_mut(key) else { return 0 };
        let weakened = &mut self.weakened;
        let released = file.locks.release(number, most, |range| weakened.push((key, range)));
        if released > 0 {
            self.count_ranges(number, 0, released);
            self.notify_waiters(key);
        }
        released
    }

    /// Number of ranges of a lock-owner.
    pub(crate) fn ranges_of(&self, number: u64) -> usize {
        self.lock_owners.at(owner_of(number)).map_or(0, |owner| owner.ranges)
    }

    /// Updates the number of ranges of a lock-owner.
    pub(crate) fn count_ranges(&mut self, number: u64, added: usize, gone: usize) {
        self.ranges = self.ranges + added - gone;
        if let Some(client) = self.clients.key_at(client_of(number)) {
            self.count_places(client, SharedTable::Ranges, added, gone);
        }
        if let Some(owner) = self.lock_owners.at_mut(owner_of(number)) {
            owner.ranges = owner.ranges + added - gone;
        }
    }

    /// The lock state under an open that is removed next.
    pub(crate) fn lock_state_under(&self, open: Key) -> Option<Key> {
        match &self.states.get(open)?.kind {
            StateKind::Open(open) => open.locks.last().copied(),
            _ => None,
        }
    }

    /// Removes at most `most` lock states under an open. Returns true if none is left.
    pub(crate) fn drop_lock_states(&mut self, open: Key, most: usize) -> bool {
        for _ in 0..most {
            steps::count();
            let Some(locks) = self.lock_state_under(open) else { return true };
            self.drop_state(locks);
        }
        self.lock_state_under(open).is_none()
    }

    /// Notes a range that was shown to local programs, and is not locked.
    pub fn note_weakened(&mut self, file: FileId, range: LockRange) {
        self.weakened.extend(self.find_file(file).map(|file| (file, range)));
    }
}
