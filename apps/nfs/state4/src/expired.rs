//! Clients whose leases expired, in the order in which their state is removed when a table is full
//! (RFC 8881 §8.3). The order is maintained: a refused operation scans no table.

use crate::{ClientKey, StateTables, entry::LeasePhase};
use stag_pools::{steps, table::Key};
use std::collections::BTreeSet;

/// Expired clients of one host that are examined to find one with state. A client without state is
/// dropped within a turn, so that there are hardly ever more.
const LOOKS: usize = 8;

/// The expired clients, in two orders. A client is in it while its phase is not
/// [`LeasePhase::Active`].
#[derive(Debug, Default)]
pub(crate) struct ExpiredClients {
    /// By the time of their last SEQUENCE.
    all: BTreeSet<(u64, Key)>,
    /// The same, by host.
    of_hosts: BTreeSet<(Key, u64, Key)>,
}

impl StateTables {
    /// Changes the phase of a client's lease.
    pub(crate) fn set_phase(&mut self, key: Key, phase: LeasePhase) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let was_active = std::mem::replace(&mut client.phase, phase) == LeasePhase::Active;
        let at = client.renewed_at;
        match (was_active, phase == LeasePhase::Active) {
            (true, false) => {
                self.expired.all.insert((at, key));
                self.order_in_host(key, true);
            }
            (false, true) => {
                self.expired.all.remove(&(at, key));
                self.order_in_host(key, false);
            }
            _ => {}
        }
    }

    /// Enters an expired client in the order of its host, or removes it.
    pub(crate) fn order_in_host(&mut self, key: Key, is_added: bool) {
        let Some(client) = self.clients.get(key) else { return };
        let Some(place) = client.host.map(|host| (host, client.renewed_at, key)) else { return };
        match is_added {
            true if client.phase != LeasePhase::Active => self.expired.of_hosts.insert(place),
            true => false,
            false => self.expired.of_hosts.remove(&place),
        };
    }

    /// The client that expired first, whose state may be removed when a table is full.
    pub(crate) fn oldest_expired(&self) -> Option<ClientKey> {
        steps::count();
        self.expired.all.first().map(|(_, key)| ClientKey(*key))
    }

    /// The first one of a host that has state.
    pub(crate) fn oldest_expired_of(&self, host: Key) -> Option<ClientKey> {
        let from = (host, 0, Key::from_bits(0));
        let of_host = self.expired.of_hosts.range(from..).take_while(|(it, ..)| *it == host);
        let mut clients = of_host.take(LOOKS).map(|(.., key)| ClientKey(*key));
        clients.find(|client| {
            steps::count();
            self.states_of(*client) > 0
        })
    }

    /// Panics unless the order has exactly the expired clients.
    pub(crate) fn assert_expired(&self) {
        let expired = || self.clients.iter().filter(|(key, _)| self.is_courtesy(*key));
        let all: BTreeSet<_> = expired().map(|(key, it)| (it.renewed_at, key)).collect();
        assert_eq!(all, self.expired.all, "they are in order");
        let of_hosts = expired().filter_map(|(key, it)| Some((it.host?, it.renewed_at, key)));
        assert_eq!(of_hosts.collect::<BTreeSet<_>>(), self.expired.of_hosts);
    }
}
