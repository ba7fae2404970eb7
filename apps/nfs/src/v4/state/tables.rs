//! The tables of a shard, and how clients, states and files get into them and out of them.

use super::entry::{ClientEntry, FileEntry, StateEntry, StateKind};
use super::presence::{Presence, PresenceFilter};
use super::recent::RecentRecalls;
use super::recovery::Recovery;
use super::work::WorkQueue;
use super::{ClientKey, FileId, FileRef, StateKey, StateLimits, StateName};
use stag_pools::table::{Key, Table};
use stag_protocol::nfs::v4::{Stateid, Status4};
use std::collections::HashMap;
use std::sync::Arc;

/// The state that clients have at one shard.
#[derive(Debug)]
pub struct StateTables {
    home: u8,
    epoch: u16,
    pub(super) limits: StateLimits,
    pub(super) clients: Table<ClientEntry>,
    pub(super) states: Table<StateEntry>,
    pub(super) files: Table<FileEntry>,
    by_id: HashMap<FileId, Key>,
    pub(super) work: WorkQueue,
    pub(super) recovery: Recovery,
    /// Milliseconds of a lease.
    pub(super) lease: u64,
    /// Place of the client whose lease is looked at next.
    pub(super) next_client: usize,
    pub(super) recent: RecentRecalls,
    pub(super) presence: Presence,
    /// Delegations that were recalled. Some of them may be gone.
    pub(super) recalling: Vec<StateKey>,
    /// Place of the recall that is looked at next.
    pub(super) next_recall: usize,
    /// Time from which CB_RECALL_ANY may be sent.
    pub(super) next_recall_any: u64,
    /// Delegations of all clients, revoked ones among them.
    pub(super) delegations: usize,
    /// Opens of all clients.
    pub(super) opens: usize,
    /// Lock states of all clients.
    pub(super) lock_states: usize,
    /// Locked ranges of all clients.
    pub(super) ranges: usize,
    /// Requests that wait for locks.
    pub(super) waiters: usize,
}

impl StateTables {
    /// Empty tables of the shard `home`, without a grace period. `epoch` counts the starts of the
    /// server: stateids of another epoch name nothing. `lease` is in milliseconds.
    pub fn new(home: u8, epoch: u16, lease: u64, limits: StateLimits) -> Self {
        Self {
            home,
            epoch,
            clients: Table::new(limits.clients),
            states: Table::new(limits.states()),
            files: Table::new(limits.opens + limits.delegations),
            by_id: HashMap::with_capacity(limits.opens + limits.delegations),
            work: WorkQueue::default(),
            recovery: Recovery::none(),
            lease,
            next_client: 0,
            recent: RecentRecalls::new(),
            presence: Presence::new(Arc::new(PresenceFilter::new())),
            recalling: Vec::new(),
            next_recall: 0,
            next_recall_any: 0,
            delegations: 0,
            opens: 0,
            lock_states: 0,
            ranges: 0,
            waiters: 0,
            limits,
        }
    }

    /// Shows the files that may have delegations or denials in a filter that shards have in common.
    /// To be called before anybody has state.
    pub fn share_presence(&mut self, filter: Arc<PresenceFilter>) {
        assert!(self.states.is_empty(), "the filter would miss what is there");
        self.presence = Presence::new(filter);
    }

    /// The stateid of a state with its current sequence ID.
    pub fn stateid(&self, state: StateKey) -> Option<Stateid> {
        let entry = self.states.get(state.0)?;
        Some(self.name(state.0, &entry.kind).stateid(entry.seqid))
    }

    pub(super) const fn name(&self, key: Key, kind: &StateKind) -> StateName {
        StateName { home: self.home, kind: kind.tag(), epoch: self.epoch, key }
    }

    /// Returns true if the name is of this shard and of this start of the server.
    pub(super) const fn is_ours(&self, name: &StateName) -> bool {
        name.home == self.home && name.epoch == self.epoch
    }

    /// The place of a file, if it has state.
    pub(super) fn find_file(&self, id: FileId) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn file(&self, id: FileId) -> Option<&FileEntry> {
        self.files.get(self.find_file(id)?)
    }

    /// The place of a file, which is added if it has no state yet.
    pub(super) fn add_file(&mut self, file: &FileRef<'_>) -> Result<Key, Status4> {
        if let Some(key) = self.find_file(file.id) {
            return Ok(key);
        }
        let key = self.files.insert(FileEntry::new(file)).map_err(|_| Status4::Delay)?;
        self.by_id.insert(file.id, key);
        Ok(key)
    }

    /// Drops a file that nobody has state of.
    pub(super) fn sweep_file(&mut self, key: Key) {
        if self.files.get(key).is_some_and(FileEntry::is_empty)
            && let Some(file) = self.files.remove(key)
        {
            self.waiters -= file.waiters.len(); // for a local process: its locks are not known here
            self.by_id.remove(&file.id);
        }
    }

    /// Adds a state with the sequence ID 1.
    pub(super) fn add_state(
        &mut self,
        client: ClientKey,
        file: Key,
        kind: StateKind,
    ) -> Result<StateKey, Status4> {
        let owner = self.clients.get_mut(client.0).ok_or(Status4::StaleClientid)?;
        let file_id = self.files.get(file).ok_or(Status4::ServerFault)?.id;
        let place = owner.states.len();
        let entry = StateEntry { client: client.0, file, file_id, seqid: 1, place, kind };
        let key = self.states.insert(entry).map_err(|_| Status4::Delay)?;
        owner.states.push(key);
        Ok(StateKey(key))
    }

    /// Takes a state out of the table and out of its client's list.
    pub(super) fn take_state(&mut self, key: Key) -> Option<StateEntry> {
        let entry = self.states.remove(key)?;
        if let Some(client) = self.clients.get_mut(entry.client) {
            client.states.swap_remove(entry.place);
            if let Some(moved) = client.states.get(entry.place)
                && let Some(moved) = self.states.get_mut(*moved)
            {
                moved.place = entry.place;
            }
        }
        Some(entry)
    }

    /// Ends a state, whatever it is.
    pub(super) fn drop_state(&mut self, key: Key) {
        let Some(entry) = self.take_state(key) else { return };
        match entry.kind {
            StateKind::Open(_) => self.end_open(key, &entry),
            StateKind::Locks(_) => self.end_locks(key, &entry),
            StateKind::Delegation(_) => self.end_delegation(key, &entry),
        }
        self.sweep_file(entry.file);
    }
}

#[cfg(test)]
impl StateTables {
    /// Asserts that the tables agree with each other.
    pub(super) fn check(&self) {
        for (key, entry) in self.states.iter() {
            let client = self.clients.get(entry.client).expect("a state has a client");
            assert_eq!(client.states[entry.place], key, "a state is in its client's list");
            let file = self.files.get(entry.file).expect("a state has a file");
            assert_eq!(file.id, entry.file_id);
            match &entry.kind {
                StateKind::Open(open) => {
                    let share = file.shares.get(key.to_bits()).expect("an open is in the table");
                    assert_eq!(share.access(), open.access);
                }
                StateKind::Delegation(held) => {
                    assert!(file.delegations.contains(&key));
                    assert!(!held.is_recalled() || self.recalling.contains(&StateKey(key)));
                }
                StateKind::Locks(locks) => {
                    assert!(file.lock_states.contains(&key));
                    let open = self.states.get(locks.open).expect("locks have an open");
                    assert_eq!((open.client, open.file), (entry.client, entry.file));
                }
            }
        }
        self.check_ranges_agree();
        self.check_delegations_agree();
        let states: usize = self.clients.iter().map(|(_, client)| client.states.len()).sum();
        assert_eq!(states, self.states.len());
        let opens: usize = self.files.iter().map(|(_, file)| file.shares.opens().len()).sum();
        assert_eq!(opens, self.opens);
        assert_eq!(opens, self.clients.iter().map(|(_, client)| client.opens).sum::<usize>());
        assert_eq!(self.files.len(), self.by_id.len());
        assert!(self.files.iter().all(|(_, file)| !file.is_empty()), "a file without state goes");
    }

    fn check_delegations_agree(&self) {
        let clients = || self.clients.iter().map(|(_, client)| client);
        assert_eq!(clients().map(|client| client.delegations).sum::<usize>(), self.delegations);
        let kept = self.files.iter().map(|(_, file)| file.delegations.len()).sum::<usize>();
        assert_eq!(kept, self.delegations);
        let filter = self.presence();
        for (_, file) in self.files.iter() {
            let delegations: Vec<_> = self.delegations_of(file).collect();
            let is_present =
                !delegations.is_empty() || file.shares.opens().iter().any(|open| open.deny() != 0);
            assert_eq!(file.is_present, is_present);
            assert!(!is_present || filter.may_conflict(file.id));
            let writers = delegations.iter().filter(|(_, _, held)| held.write).count();
            assert!(writers == 0 || delegations.len() == 1, "a writer is alone");
        }
    }

    fn check_ranges_agree(&self) {
        let files = || self.files.iter().map(|(_, file)| file);
        for file in files() {
            for held in file.locks.held() {
                let mut owners = file.lock_states.iter().filter_map(|key| self.number_of(*key));
                assert!(owners.any(|number| number == held.owner), "locks have an owner");
            }
        }
        let ranges = files().map(|file| file.locks.held().len()).sum::<usize>();
        assert_eq!(ranges, self.ranges);
        assert_eq!(ranges, self.clients.iter().map(|(_, client)| client.ranges).sum::<usize>());
        assert_eq!(files().map(|file| file.lock_states.len()).sum::<usize>(), self.lock_states);
        assert_eq!(files().map(|file| file.waiters.len()).sum::<usize>(), self.waiters);
    }
}
