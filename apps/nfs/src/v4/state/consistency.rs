//! The agreement of the tables with each other, for tests and for inputs that are made to harm.

use super::entry::{FileEntry, StateEntry, StateKind};
use super::{StateKey, StateTables};
use stag_pools::table::Key;

impl StateTables {
    /// Asserts that lists, counts and tables say the same, and that no two grants exclude each
    /// other. Takes as long as there is state.
    ///
    /// # Panics
    /// When they do not, which is a mistake in this module.
    pub fn assert_consistent(&self) {
        for (key, entry) in self.states.iter() {
            self.assert_state(key, entry);
        }
        for (_, file) in self.files.iter() {
            self.assert_file(file);
        }
        self.assert_counts();
    }

    fn assert_state(&self, key: Key, entry: &StateEntry) {
        let client = self.clients.get(entry.client);
        let listed = client.and_then(|client| client.states.get(entry.place));
        assert_eq!(listed, Some(&key), "a state is in its client's list");
        let file = self.files.get(entry.file).filter(|file| file.id == entry.file_id);
        let is_listed = file.is_some_and(|file| match &entry.kind {
            StateKind::Open(open) => {
                let share = file.shares.get(key.to_bits());
                let found = self.find_open(entry.client, entry.file_id, &open.owner);
                assert_eq!(found, Some(key), "an open is in the index");
                share.is_some_and(|share| share.access() == open.access && open.access != 0)
            }
            StateKind::Locks(locks) => {
                let open = self.states.get(locks.open);
                let is_under = open.is_some_and(|open| {
                    matches!(open.kind, StateKind::Open(_))
                        && (open.client, open.file) == (entry.client, entry.file)
                });
                is_under && file.lock_states.contains(&key)
            }
            StateKind::Delegation(held) => {
                let is_followed = self.recalling.contains(&StateKey(key));
                file.delegations.contains(&key) && (is_followed || !held.is_recalled())
            }
        });
        assert!(is_listed, "a state is in its file: {entry:?}");
    }

    fn assert_file(&self, file: &FileEntry) {
        assert!(!file.is_empty(), "a file without state goes");
        let opens = file.shares.opens();
        for (at, open) in opens.iter().enumerate() {
            let excluded = opens
                .iter()
                .enumerate()
                .any(|(other, one)| other != at && open.deny() & one.access() != 0);
            assert!(!excluded, "an open has what another denies");
        }
        let held = file.locks.held();
        for lock in held {
            let mut owners = file.lock_states.iter().filter_map(|key| self.number_of(*key));
            assert!(owners.any(|number| number == lock.owner), "locks have an owner");
            assert_eq!(file.locks.conflict(lock), None, "locks of two owners conflict");
        }
        let delegations = || self.delegations_of(file);
        for (_, state, delegation) in delegations() {
            let excluded = delegations().any(|(_, other, one)| {
                other.client != state.client && (one.write || delegation.write)
            });
            assert!(!excluded, "a writer is alone");
            let is_opened = opens.iter().any(|open| {
                let holder = self.states.get(Key::from_bits(open.open)).map(|it| it.client);
                let is_change = open.access() & 2 != 0;
                holder != Some(state.client) && (delegation.write || is_change)
            });
            assert!(!is_opened, "another client has what a delegation excludes");
        }
        let is_present =
            delegations().next().is_some() || opens.iter().any(|open| open.deny() != 0);
        assert_eq!(file.is_present, is_present);
        assert!(!is_present || self.presence().may_conflict(file.id));
        assert_eq!(file.is_held, delegations().any(|(_, _, delegation)| delegation.write));
        assert!(!file.is_held || self.presence().may_be_held(file.id));
    }

    fn assert_counts(&self) {
        let clients = || self.clients.iter().map(|(_, client)| client);
        let files = || self.files.iter().map(|(_, file)| file);
        let states: usize = clients().map(|client| client.states.len()).sum();
        assert_eq!(states, self.states.len());
        let opens: usize = files().map(|file| file.shares.opens().len()).sum();
        assert_eq!((opens, opens), (self.opens, clients().map(|client| client.opens).sum()));
        let ranges: usize = files().map(|file| file.locks.held().len()).sum();
        assert_eq!((ranges, ranges), (self.ranges, clients().map(|client| client.ranges).sum()));
        let kept: usize = files().map(|file| file.delegations.len()).sum();
        let of_clients: usize = clients().map(|client| client.delegations).sum();
        assert_eq!((kept, kept), (self.delegations, of_clients));
        let live: usize = files().map(|file| self.delegations_of(file).count()).sum();
        assert_eq!(kept - live, clients().map(|client| client.revoked).sum::<usize>());
        assert_eq!(files().map(|file| file.lock_states.len()).sum::<usize>(), self.lock_states);
        assert_eq!(files().map(|file| file.waiters.len()).sum::<usize>(), self.waiters);
        assert_eq!((self.files.len(), opens), (self.files_by_id(), self.opens_by_owner()));
        let limits = &self.limits;
        assert!(opens <= limits.opens && ranges <= limits.ranges);
        assert!(kept <= limits.delegations && self.waiters <= limits.waiters);
        assert!(self.recalling.len() <= limits.delegations);
    }
}
