//! Shares of the tables by host and by client: a host always leaves places to others.
//!
//! The caller names the host of a client: an address, or a name that was proven. A host gets a
//! place while it has fewer places than are free. It has half of a table at most, and two hosts
//! have a third each. A client of a host gets a place while twice its own are fewer than are free,
//! so that other clients of the host find some, too. Reclaims are exempt: state that was granted
//! before a restart is granted again, in any order.

use crate::{ClientKey, StateFault, StateTables};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::Status4;

/// Tables whose places are shared among hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedTable {
    Opens,
    LockStates,
    Ranges,
    Delegations,
    Waiters,
}

impl SharedTable {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Opens, Self::LockStates, Self::Ranges, Self::Delegations, Self::Waiters];
}

/// Places of a client, or of a host, in each shared table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldPlaces([u32; 5]);

impl HeldPlaces {
    /// Places in one table.
    pub const fn of(&self, table: SharedTable) -> usize {
        let Self([opens, lock_states, ranges, delegations, waiters]) = *self;
        let held = match table {
            SharedTable::Opens => opens,
            SharedTable::LockStates => lock_states,
            SharedTable::Ranges => ranges,
            SharedTable::Delegations => delegations,
            SharedTable::Waiters => waiters,
        };
        held as usize
    }

    const fn count(&mut self, table: SharedTable, added: usize, gone: usize) {
        let Self([opens, lock_states, ranges, delegations, waiters]) = self;
        let held = match table {
            SharedTable::Opens => opens,
            SharedTable::LockStates => lock_states,
            SharedTable::Ranges => ranges,
            SharedTable::Delegations => delegations,
            SharedTable::Waiters => waiters,
        };
        *held = *held + added as u32 - gone as u32;
    }
}

/// A host that clients come from.
#[derive(Debug)]
pub(crate) struct HostEntry {
    id: u64,
    /// Its clients.
    pub clients: usize,
    /// Places of all of them.
    pub held: HeldPlaces,
}

impl StateTables {
    /// Sets the host of a client. Must be called while the client has no state; without it, the
    /// client has no share and only the limits of a client.
    pub fn set_host(&mut self, client: ClientKey, host: u64) {
        self.leave_host(client.0);
        let key = match self.by_host.get(&host).copied() {
            Some(key) => key,
            None => {
                let entry = HostEntry { id: host, clients: 0, held: HeldPlaces::default() };
                let Ok(key) = self.hosts.insert(entry) else { return };
                self.by_host.insert(host, key);
                key
            }
        };
        if let (Some(client), Some(host)) =
            (self.clients.get_mut(client.0), self.hosts.get_mut(key))
        {
            debug_assert!(client.states.is_empty(), "its places would be counted nowhere");
            client.host = Some(key);
            host.clients += 1;
        }
        self.order_in_host(client.0, true);
    }

    /// The host that a client comes from.
    pub fn host_of(&self, client: ClientKey) -> Option<u64> {
        let host = self.clients.get(client.0)?.host?;
        self.hosts.get(host).map(|host| host.id)
    }

    /// Removes a client without state from its host, when it ends or gets another host.
    pub(crate) fn leave_host(&mut self, client: Key) {
        self.order_in_host(client, false);
        let Some(key) = self.clients.get_mut(client).and_then(|it| it.host.take()) else { return };
        let Some(host) = self.hosts.get_mut(key) else { return };
        host.clients -= 1;
        if host.clients == 0 {
            let id = host.id;
            self.hosts.remove(key);
            self.by_host.remove(&id);
        }
    }

    /// Counts places that a client took or returned.
    pub(crate) fn count_places(
        &mut self,
        client: Key,
        table: SharedTable,
        added: usize,
        gone: usize,
    ) {
        let Some(client) = self.clients.get_mut(client) else { return };
        client.held.count(table, added, gone);
        if let Some(host) = client.host.and_then(|host| self.hosts.get_mut(host)) {
            host.held.count(table, added, gone);
        }
    }

    /// Number of free places.
    const fn free_places(&self, table: SharedTable) -> usize {
        let (limit, used) = match table {
            SharedTable::Opens => (self.limits.opens, self.opens),
            SharedTable::LockStates => (self.limits.lock_states, self.lock_states),
            SharedTable::Ranges => (self.limits.ranges, self.ranges),
            SharedTable::Delegations => (self.limits.delegations, self.delegations),
            SharedTable::Waiters => (self.limits.waiters, self.waiters),
        };
        limit.saturating_sub(used)
    }

    /// Returns true if a client may take one more place within its share and that of its host.
    pub(crate) fn has_share(&self, client: ClientKey, table: SharedTable) -> bool {
        let Some(client) = self.clients.get(client.0) else { return true };
        let Some(host) = client.host.and_then(|host| self.hosts.get(host)) else { return true };
        let free = self.free_places(table);
        client.held.of(table) * 2 < free && host.held.of(table) < free
    }

    /// The error for a client that has used its share: only state of an expired client of the same
    /// host may make room.
    pub(crate) fn when_over_share(&self, client: ClientKey) -> StateFault {
        let host = self.clients.get(client.0).and_then(|client| client.host);
        host.and_then(|host| self.oldest_expired_of(host))
            .map_or(StateFault::Failed(Status4::Delay), StateFault::AwaitRemoval)
    }
}
