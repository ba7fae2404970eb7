//! Clients and their leases: renewal, expiry, and the state of expired clients, which is kept until
//! another client conflicts with it (RFC 8881 §8.3, §8.4.3).

use crate::{
    ClientKey, StateFault, StateTables, StateWork,
    entry::{ClientEntry, EntryRecord, LeasePhase},
    hosts::SharedTable,
    lock_waiters::WAITERS_PER_TURN,
};
use stag_pools::{steps, table::Key};
use stag_protocol::nfs::v4::Status4;
use stag_protocol::nfs::v4::state::ReclaimState;

/// Clients whose leases one call of [`StateTables::handle_time`] checks.
const CLIENTS_PER_TURN: usize = 64;

/// Milliseconds for which the state of an expired client is kept if it causes no conflict.
pub const COURTESY_MS: u64 = 24 * 3_600_000;

/// Leases of silence for which an expired client with state stays recorded. A restart after that
/// does not wait for it: it would come back within the grace period by chance only, and gets
/// NFS4ERR_NO_GRACE (RFC 8881 §8.4.2.1). Without a restart it still finds its state.
pub const RECORDED_LEASES: u64 = 4;

impl StateTables {
    /// Adds a client with the client ID `id`, whose lease begins; `None` when the table is full.
    /// `listed` says that the records allow it to reclaim.
    pub fn add_client(&mut self, id: u64, listed: bool, now: u64) -> Option<ClientKey> {
        let reclaim = ReclaimState { listed, complete: false };
        self.clients.insert(ClientEntry::new(id, reclaim, now)).ok().map(ClientKey)
    }

    /// Returns true if there is a place for one more client.
    pub fn has_place_for_client(&self) -> bool {
        self.clients.len() < self.limits.clients
    }

    /// Returns true if [`release_some`](Self::release_some) with this limit drops all of a client.
    pub fn is_small(&self, client: ClientKey, most: usize) -> bool {
        self.clients
            .get(client.0)
            .is_none_or(|client| client.states.len() + client.held.of(SharedTable::Ranges) < most)
    }

    /// Drops a client and all of its state: it expired, it is destroyed, or a new incarnation of it
    /// was confirmed.
    pub fn release_client(&mut self, client: ClientKey) {
        while let Some(state) = self.clients.get(client.0).and_then(|it| it.states.last()) {
            self.drop_state(*state);
        }
        self.set_phase(client.0, LeasePhase::Active);
        self.leave_host(client.0);
        if let Some(mut gone) = self.clients.remove(client.0) {
            self.recovery.forget(&mut gone.reclaim);
        }
    }

    /// Begins to drop a client with much state. Until all of it [is dropped](Self::release_some),
    /// it counts as state of an expired client.
    pub fn begin_release(&mut self, client: ClientKey) {
        self.set_phase(client.0, LeasePhase::AwaitRelease);
    }

    /// Drops at most `most` states and locked ranges of a client, and the client with the last.
    /// Returns true when it is gone.
    pub fn release_some(&mut self, client: ClientKey, most: usize) -> bool {
        let mut left = most;
        while left > 0 {
            steps::count();
            let Some(state) = self.clients.get(client.0).and_then(|it| it.states.last()) else {
                self.release_client(client);
                return true;
            };
            // An open would remove all of its locks with it, and a lock state all of its ranges.
            let state = self.lock_state_under(*state).unwrap_or(*state);
            left -= self.drop_ranges_of(state, left);
            if left > 0 {
                self.drop_state(state);
                left -= 1;
            }
        }
        false
    }

    /// SEQUENCE: renews the lease. An expired client whose state caused no conflict continues as if
    /// nothing had happened. Returns false if the client was released.
    #[inline]
    pub fn renew(&mut self, client: ClientKey, now: u64) -> bool {
        let Some(entry) = self.clients.get_mut(client.0) else { return false };
        if entry.phase != LeasePhase::Active {
            self.bring_back(client);
        }
        let Some(entry) = self.clients.get_mut(client.0) else { return false };
        // RFC 8881 §8.3 [8881-221]: SEQUENCE renews the lease
        entry.renewed_at = now;
        true
    }

    /// Reactivates an expired client that has sent a SEQUENCE.
    #[cold]
    fn bring_back(&mut self, client: ClientKey) {
        self.set_phase(client.0, LeasePhase::Active);
        let Some(entry) = self.clients.get(client.0) else { return };
        let is_forgotten = entry.record == EntryRecord::Missing && entry.reclaim.complete;
        if is_forgotten && !entry.states.is_empty() {
            self.work.push(StateWork::Returned(client));
        }
    }

    /// The client ID of a client.
    pub fn client_id(&self, client: ClientKey) -> Option<u64> {
        self.clients.get(client.0).map(|client| client.id)
    }

    /// Number of states that a client has.
    pub fn states_of(&self, client: ClientKey) -> usize {
        self.clients.get(client.0).map_or(0, |it| it.states.len())
    }

    /// Returns true if the client's lease expired and its state is kept out of courtesy.
    pub(crate) fn is_courtesy(&self, client: Key) -> bool {
        self.clients.get(client).is_some_and(|client| client.phase != LeasePhase::Active)
    }

    /// Returns true if the client is gone, or its lease expired.
    pub fn is_expired(&self, client: ClientKey) -> bool {
        self.clients.get(client.0).is_none_or(|client| client.phase != LeasePhase::Active)
    }

    /// Returns true if the client is recorded and has no state to reclaim.
    pub(crate) fn is_recorded_without_state(&self, client: ClientKey) -> bool {
        self.clients.get(client.0).is_some_and(|client| {
            let has_none = client.states.is_empty() && !client.was_given;
            client.record == EntryRecord::Stable && has_none
        })
    }

    /// Returns true if the client is recorded and expired.
    pub(crate) fn is_recorded_and_expired(&self, client: ClientKey) -> bool {
        self.clients.get(client.0).is_some_and(|client| {
            client.record == EntryRecord::Stable && client.phase == LeasePhase::Courtesy
        })
    }

    /// Returns true if the client was found to be expired for good, and has not come back.
    pub fn is_to_go(&self, client: ClientKey) -> bool {
        self.clients.get(client.0).is_some_and(|it| it.phase == LeasePhase::AwaitRelease)
    }

    /// The error when a table is full.
    pub(crate) fn when_full(&self) -> StateFault {
        self.oldest_expired().map_or(StateFault::Failed(Status4::Delay), StateFault::AwaitRemoval)
    }

    /// The error for a request that a table refused with this status.
    pub(crate) fn refusal(&self, status: Status4) -> StateFault {
        if status == Status4::Delay { self.when_full() } else { status.into() }
    }

    /// Places that are searched for clients, in turns.
    fn client_places(&self) -> usize {
        // A shard that is not the home has none.
        if self.clients.is_empty() { 0 } else { self.clients.opened() }
    }

    /// Calls of [`handle_time`](Self::handle_time) that check every client and every request that
    /// waits for a lock: at least one.
    pub fn turns(&self) -> usize {
        let clients = self.client_places().div_ceil(CLIENTS_PER_TURN);
        clients.max(self.waiters.div_ceil(WAITERS_PER_TURN)).max(1)
    }

    /// Checks some leases, in turns, as time passes.
    pub(crate) fn expire_clients(&mut self, now: u64) {
        let places = self.client_places();
        for _ in 0..CLIENTS_PER_TURN.min(places) {
            let place = self.next_client % places;
            self.next_client = place + 1;
            let lease = self.lease;
            let Some((key, client)) = self.clients.entry_at(place) else { continue };
            let idle = now.saturating_sub(client.renewed_at);
            let mut phase = client.phase;
            // RFC 8881 §8.4.1 [8881-222]: no other client gets the state before the lease expires
            if phase == LeasePhase::Active && idle > lease {
                phase = LeasePhase::Courtesy;
            }
            if std::mem::take(&mut client.was_given) || !client.states.is_empty() {
                client.had_state_at = now;
            }
            let stateless = now.saturating_sub(client.had_state_at);
            let is_active = phase == LeasePhase::Active;
            if is_active && client.record == EntryRecord::Stable && stateless > lease {
                self.work.push(StateWork::Stateless(ClientKey(key)));
            }
            let is_over = client.states.is_empty() || idle > COURTESY_MS;
            if phase == LeasePhase::Courtesy && is_over {
                phase = LeasePhase::AwaitRelease;
                self.work.push(StateWork::Expired(ClientKey(key)));
            }
            let is_recorded = client.record == EntryRecord::Stable;
            if phase == LeasePhase::Courtesy && is_recorded && idle > RECORDED_LEASES * lease {
                self.work.push(StateWork::Silent(ClientKey(key)));
            }
            self.set_phase(key, phase);
        }
    }

    /// Handles the passing of time: leases expire, recalled delegations are due, and the grace
    /// period ends. Must be called in every pass; one call does a bounded amount of work.
    pub fn handle_time(&mut self, now: u64) {
        self.expire_clients(now);
        self.tend_waiters(now);
        self.expire_recalls(now);
        self.recall_any(now);
        if self.recovery.must_record(now) {
            self.work.push(StateWork::EndGrace);
        }
    }
}
