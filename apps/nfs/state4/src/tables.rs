//! The tables of a shard, and how clients, states and files enter and leave them.

use crate::{
    ClientKey, FileId, FileRef, StateKey, StateLimits, StateName,
    actions::WorkQueue,
    conflict_filter::{ConflictFilter, Presence},
    entry::{ClientEntry, FileEntry, LockOwner, StateEntry, StateKind},
    expired::ExpiredClients,
    fact_changes::Watch,
    hashes::{OwnerHashes, Spread},
    hosts::HostEntry,
    recent::RecentRecalls,
    recovery::Recovery,
    stateid::StateStart,
};
use stag_pools::table::{Key, Table};
use stag_protocol::nfs::v4::{Stateid, Status4, state::LockRange};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The state that clients have at one shard.
#[derive(Debug)]
pub struct StateTables {
    home: u8,
    epoch: u16,
    /// Secret of the run, by which stateids are sealed.
    secret: [u8; 16],
    pub(crate) limits: StateLimits,
    pub(crate) clients: Table<ClientEntry>,
    /// Hosts of clients, with the places that the clients have.
    pub(crate) hosts: Table<HostEntry>,
    pub(crate) by_host: HashMap<u64, Key>,
    /// Clients whose leases expired.
    pub(crate) expired: ExpiredClients,
    pub(crate) states: Table<StateEntry>,
    pub(crate) files: Table<FileEntry>,
    by_id: HashMap<FileId, Key, Spread>,
    /// Opens by the hash of client, file and open-owner.
    by_owner: HashMap<u128, Key, Spread>,
    pub(crate) lock_owners: Table<LockOwner>,
    /// Lock-owners by the hash of client, file and name.
    pub(crate) by_lock_owner: HashMap<u128, Key, Spread>,
    /// Lock states by open and number of the lock-owner.
    pub(crate) by_open: HashMap<(Key, u64), Key>,
    owner_hashes: OwnerHashes,
    pub(crate) work: WorkQueue,
    pub(crate) recovery: Recovery,
    /// Milliseconds of a lease.
    pub(crate) lease: u64,
    /// Place of the client whose lease is checked next.
    pub(crate) next_client: usize,
    pub(crate) recent: RecentRecalls,
    pub(crate) presence: Presence,
    /// Files that have waiters, in turns. Some of them may have none any more, or be gone.
    pub(crate) waited: VecDeque<Key>,
    /// Files whose waiters have to be notified. Some of them may be gone.
    pub(crate) unlocked: Vec<Key>,
    /// Ranges in which a lock was released or became weaker. Some of the files may be gone.
    pub(crate) weakened: Vec<(Key, LockRange)>,
    /// Files, with the owners whose [obsolete](crate::ranges) ranges have to be removed.
    pub(crate) sweeping: VecDeque<(Key, u64)>,
    /// Recalled delegations. Some of them may be gone.
    pub(crate) recalling: Vec<StateKey>,
    /// Place of the recall that is checked next.
    pub(crate) next_recall: usize,
    /// Time from which CB_RECALL_ANY may be sent.
    pub(crate) next_recall_any: u64,
    /// Delegations of all clients, including revoked ones.
    pub(crate) delegations: usize,
    /// Opens of all clients.
    pub(crate) opens: usize,
    /// Lock states of all clients.
    pub(crate) lock_states: usize,
    /// Locked ranges of all clients.
    pub(crate) ranges: usize,
    /// Requests that wait for locks.
    pub(crate) waiters: usize,
    /// Files of which a delegation ended, if the caller asked to note them. Some may have others.
    pub(crate) undelegated: Option<Vec<FileId>>,
    /// States that changed.
    pub(crate) watch: Watch,
    /// Handles of files that have no state any more.
    swept: Vec<Box<[u8]>>,
}

/// The index key of an open.
pub(crate) struct OpenIndexEntry<'a> {
    pub client: Key,
    pub file: FileId,
    pub owner: &'a [u8],
}

impl StateTables {
    /// Empty tables of the shard `home`, without a grace period. `epoch` counts the starts of the
    /// server: stateids of another epoch are invalid. `lease` is in milliseconds.
    pub fn new(home: u8, epoch: u16, lease: u64, limits: StateLimits) -> Self {
        assert!(limits.states() <= StateName::PLACES, "a stateid names any place");
        let files = limits.opens + limits.delegations;
        Self {
            home,
            epoch,
            secret: [0; 16],
            clients: Table::sparse(limits.clients),
            hosts: Table::sparse(limits.clients),
            by_host: HashMap::new(),
            expired: ExpiredClients::default(),
            states: Table::sparse(limits.states()),
            files: Table::sparse(limits.files()),
            by_id: HashMap::with_capacity_and_hasher(files, Spread::new()),
            by_owner: HashMap::with_capacity_and_hasher(limits.opens, Spread::new()),
            lock_owners: Table::sparse(limits.lock_states),
            by_lock_owner: HashMap::with_hasher(Spread::new()),
            by_open: HashMap::new(),
            owner_hashes: OwnerHashes::new(),
            work: WorkQueue::default(),
            recovery: Recovery::none(),
            lease,
            next_client: 0,
            recent: RecentRecalls::new(),
            presence: Presence::new(Arc::new(ConflictFilter::new())),
            waited: VecDeque::new(),
            unlocked: Vec::new(),
            weakened: Vec::new(),
            sweeping: VecDeque::new(),
            recalling: Vec::new(),
            next_recall: 0,
            next_recall_any: 0,
            delegations: 0,
            opens: 0,
            lock_states: 0,
            ranges: 0,
            waiters: 0,
            undelegated: None,
            watch: Watch::default(),
            swept: Vec::new(),
            limits,
        }
    }

    /// Seals stateids with a secret, without which they cannot be guessed. Must be called while the
    /// tables are empty.
    #[must_use]
    pub fn with_secret(self, secret: [u8; 16]) -> Self {
        Self { secret, ..self }
    }

    /// Shows the files that may have delegations or denials in a filter that shards share. Must be
    /// called before any client has state.
    pub fn share_presence(&mut self, filter: Arc<ConflictFilter>) {
        assert!(self.states.is_empty(), "the filter would miss what is there");
        self.presence = Presence::new(filter);
    }

    /// The stateid of a state with its current sequence ID.
    pub fn stateid(&self, state: StateKey) -> Option<Stateid> {
        let entry = self.states.get(state.0)?;
        Some(self.name(state.0, entry).stateid(entry.seqid))
    }

    pub(crate) const fn name(&self, key: Key, entry: &StateEntry) -> StateName {
        let (place, seal) = (key.index() as u32, entry.seal);
        StateName { home: self.home, kind: entry.kind.tag(), place, seal }
    }

    /// The state of a stateid, if there is one.
    pub(crate) fn find_state(&self, stateid: &Stateid) -> Option<Key> {
        let name = StateName::of(stateid)?;
        let key = self.states.key_at(usize::try_from(name.place).ok()?)?;
        let entry = self.states.get(key)?;
        (name == self.name(key, entry)).then_some(key)
    }

    pub(crate) fn files_by_id(&self) -> usize {
        self.by_id.len()
    }

    /// The place of a file, if it has state.
    pub(crate) fn find_file(&self, id: FileId) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn file(&self, id: FileId) -> Option<&FileEntry> {
        self.files.get(self.find_file(id)?)
    }

    /// The place of a file, which is added if it has no state yet.
    pub(crate) fn add_file(&mut self, file: &FileRef<'_>) -> Result<Key, Status4> {
        if let Some(key) = self.find_file(file.id) {
            return Ok(key);
        }
        let key = self.files.insert(FileEntry::new(file)).map_err(|_| Status4::Delay)?;
        self.by_id.insert(file.id, key);
        Ok(key)
    }

    /// Drops a file without state.
    pub(crate) fn sweep_file(&mut self, key: Key) {
        if !self.files.get(key).is_some_and(FileEntry::is_empty) {
            return;
        }
        // These wait for a local process, whose locks are not known here.
        self.take_waiters(key, |_| true);
        if let Some(file) = self.files.remove(key) {
            self.by_id.remove(&file.id);
            self.swept.push(file.handle);
        }
    }

    /// Returns true if any client has state of a file.
    pub fn has_file(&self, id: FileId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The handle that a file had when its first state was granted, once for each file that has no
    /// state any more.
    pub fn next_swept(&mut self) -> Option<Box<[u8]>> {
        self.swept.pop()
    }

    /// The index key of an open-owner's open, or of a lock-owner.
    pub(crate) fn owner_hash(&self, client: Key, file: FileId, owner: &[u8]) -> u128 {
        self.owner_hashes.of(client, file.0, owner)
    }

    /// The open that an open-owner has of a file.
    pub(crate) fn find_open(&self, client: Key, file: FileId, owner: &[u8]) -> Option<Key> {
        self.by_owner.get(&self.owner_hash(client, file, owner)).copied()
    }

    /// Enters an open in the index, or removes it.
    pub(crate) fn index_open(&mut self, entry: &OpenIndexEntry<'_>, key: Option<Key>) {
        let hash = self.owner_hash(entry.client, entry.file, entry.owner);
        match key {
            Some(key) => self.by_owner.insert(hash, key),
            None => self.by_owner.remove(&hash),
        };
    }

    pub(crate) fn opens_by_owner(&self) -> usize {
        self.by_owner.len()
    }

    /// Adds a state with the sequence ID 1.
    pub(crate) fn add_state(
        &mut self,
        client: ClientKey,
        file: Key,
        kind: StateKind,
    ) -> Result<StateKey, Status4> {
        let owner = self.clients.get_mut(client.0).ok_or(Status4::StaleClientid)?;
        let file_id = self.files.get(file).ok_or(Status4::ServerFault)?.id;
        let place = owner.states.len();
        let tag = kind.tag();
        let entry = StateEntry { client: client.0, file, file_id, seal: 0, seqid: 1, place, kind };
        let key = self.states.insert(entry).map_err(|_| Status4::Delay)?;
        if let Some(entry) = self.states.get_mut(key) {
            let start = StateStart { epoch: self.epoch, key };
            entry.seal = StateName::sealed(&self.secret, self.home, tag, start).seal;
        }
        owner.states.push(key);
        owner.was_given = true;
        self.note_changed(key);
        Ok(StateKey(key))
    }

    /// Removes a state from the table and from its client's list.
    pub(crate) fn take_state(&mut self, key: Key) -> Option<StateEntry> {
        self.note_gone(key);
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

    /// Ends a state of any kind.
    pub(crate) fn drop_state(&mut self, key: Key) {
        let Some(entry) = self.take_state(key) else { return };
        match entry.kind {
            StateKind::Open(_) => self.end_open(&entry),
            StateKind::Locks(_) => self.end_locks(&entry),
            StateKind::Delegation(_) => self.end_delegation(key, &entry),
        }
        self.sweep_file(entry.file);
    }
}
