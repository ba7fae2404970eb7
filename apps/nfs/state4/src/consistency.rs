//! Consistency checks across the tables, for tests and fuzzing.

use crate::{
    ClientKey, StateKey, StateTables,
    entry::{FileEntry, StateEntry, StateKind},
    hosts::SharedTable,
};
use stag_pools::table::Key;

impl StateTables {
    /// Asserts that lists, counts and tables agree, and that no two grants exclude each other. The
    /// time is proportional to the state.
    ///
    /// # Panics
    /// When they do not agree, which is a bug in this module.
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
                let found = self.find_open(entry.client, entry.file_id, &open.owner);
                assert_eq!(found, Some(key), "an open is in the index");
                assert_ne!(open.share.access(), 0, "an open has access");
                let class = open.share.class();
                assert!(file.opens.of(|one| one == class).any(|one| one == key), "by its class");
                file.opens.iter().nth(open.place) == Some(key)
            }
            StateKind::Locks(locks) => {
                let open = self.states.get(locks.open);
                let is_under = open.is_some_and(|open| {
                    matches!(open.kind, StateKind::Open(_))
                        && (open.client, open.file) == (entry.client, entry.file)
                });
                let under = self.find_lock_state(locks.open, locks.number);
                assert_eq!(under, Some(key), "a lock state is in the index");
                let client = ClientKey(entry.client);
                let number = self.find_owner(entry.file_id, client, &locks.owner);
                assert_eq!(number, Some(locks.number), "a lock-owner is in the index");
                is_under && file.lock_states > 0
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
        let share_of = |key| match self.states.get(key).map(|state| &state.kind) {
            Some(StateKind::Open(open)) => Some((key, open.share)),
            _ => None,
        };
        let opens: Vec<_> = file.opens.iter().filter_map(share_of).collect();
        assert_eq!(opens.len(), file.opens.len());
        for (key, open) in &opens {
            let excluded =
                opens.iter().any(|(other, one)| other != key && open.deny() & one.access() != 0);
            assert!(!excluded, "an open has what another denies");
        }
        for lock in file.locks.held() {
            let holder = self.holder_of(lock.owner);
            let number = holder.and_then(|holder| self.number_of(holder.0));
            assert_eq!(number, Some(lock.owner), "locks have an owner");
            assert_eq!(file.locks.conflict(&lock, None), None, "locks of two owners conflict");
        }
        let delegations = || self.delegations_of(file);
        for (_, state, delegation) in delegations() {
            let excluded = delegations().any(|(_, other, one)| {
                other.client != state.client && (one.write || delegation.write)
            });
            assert!(!excluded, "a writer is alone");
            let is_opened = opens.iter().any(|(key, open)| {
                let holder = self.states.get(*key).map(|it| it.client);
                let is_change = open.access() & 2 != 0;
                holder != Some(state.client) && (delegation.write || is_change)
            });
            assert!(!is_opened, "another client has what a delegation excludes");
        }
        let is_present =
            delegations().next().is_some() || opens.iter().any(|(_, open)| open.deny() != 0);
        assert_eq!(file.is_present, is_present);
        assert!(!is_present || self.presence().may_conflict(file.id));
        assert_eq!(file.is_held, delegations().any(|(_, _, delegation)| delegation.write));
        assert!(!file.is_held || self.presence().may_be_held(file.id));
    }

    fn assert_hosts(&self) {
        for (key, host) in self.hosts.iter() {
            let clients = || self.clients.iter().filter(|(_, it)| it.host == Some(key));
            assert_eq!(clients().count(), host.clients, "a host has its clients");
            assert_ne!(host.clients, 0, "a host without clients goes");
            for table in SharedTable::ALL {
                let held: usize = clients().map(|(_, client)| client.held.of(table)).sum();
                assert_eq!(held, host.held.of(table), "a host has the places of its clients");
            }
        }
        assert_eq!(self.hosts.len(), self.by_host.len());
        self.assert_expired();
    }

    fn assert_counts(&self) {
        let clients = || self.clients.iter().map(|(_, client)| client);
        let files = || self.files.iter().map(|(_, file)| file);
        let states: usize = clients().map(|client| client.states.len()).sum();
        assert_eq!(states, self.states.len());
        let opens: usize = files().map(|file| file.opens.len()).sum();
        let of_clients = |table| clients().map(|client| client.held.of(table)).sum::<usize>();
        assert_eq!((opens, opens), (self.opens, of_clients(SharedTable::Opens)));
        let ranges: usize = files().map(|file| file.locks.len()).sum();
        assert_eq!((ranges, ranges), (self.ranges, of_clients(SharedTable::Ranges)));
        let kept: usize = files().map(|file| file.delegations.len()).sum();
        assert_eq!((kept, kept), (self.delegations, of_clients(SharedTable::Delegations)));
        assert_eq!(self.lock_states, of_clients(SharedTable::LockStates));
        assert_eq!(self.waiters, of_clients(SharedTable::Waiters));
        self.assert_hosts();
        let live: usize = files().map(|file| self.delegations_of(file).count()).sum();
        assert_eq!(kept - live, clients().map(|client| client.revoked).sum::<usize>());
        assert_eq!(files().map(|file| file.lock_states).sum::<usize>(), self.lock_states);
        assert_eq!(files().map(|file| file.waiters.len()).sum::<usize>(), self.waiters);
        assert_eq!((self.files.len(), opens), (self.files_by_id(), self.opens_by_owner()));
        let owners = || self.lock_owners.iter().map(|(_, owner)| owner);
        assert_eq!(owners().map(|owner| owner.ranges).sum::<usize>(), ranges);
        assert_eq!(owners().map(|owner| owner.states.len()).sum::<usize>(), self.lock_states);
        assert_eq!(owners().count(), self.by_lock_owner.len());
        assert_eq!(self.by_open.len(), self.lock_states);
        let limits = &self.limits;
        assert!(opens <= limits.opens + limits.opens_promised && ranges <= limits.ranges);
        assert!(kept <= limits.delegations && self.waiters <= limits.waiters);
        assert!(self.recalling.len() <= limits.delegations);
    }
}
