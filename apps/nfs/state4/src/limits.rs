//! Limits of the state of a shard, by table.

/// Sizes of the tables of one shard. Places of opens, lock states, delegations and clients are
/// allocated when the shard starts; lists of a file grow with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// Clients.
    pub clients: usize,
    /// Opens.
    pub opens: usize,
    /// Opens of one client.
    pub opens_per_client: usize,
    /// Opens of one file.
    pub opens_per_file: usize,
    /// Opens beyond these limits, for files that were created or cut for an OPEN which found room.
    pub opens_promised: usize,
    /// Pairs of an open and a lock-owner.
    pub lock_states: usize,
    /// Such pairs of one file.
    pub lock_states_per_file: usize,
    /// Locked ranges.
    pub ranges: usize,
    /// Locked ranges of one client.
    pub ranges_per_client: usize,
    /// Locked ranges of one file.
    pub ranges_per_file: usize,
    /// Requests for locks whose owners are notified when the range may be free.
    pub waiters: usize,
    /// Such requests of one file.
    pub waiters_per_file: usize,
    /// Delegations.
    pub delegations: usize,
    /// Delegations of one client.
    pub delegations_per_client: usize,
    /// Delegations of one file: all of them have to be returned before a client writes.
    pub delegations_per_file: usize,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self {
            clients: 4_096,
            opens: 131_072,
            opens_per_client: 65_536,
            opens_per_file: 16_384,
            opens_promised: 8_192,
            lock_states: 65_536,
            lock_states_per_file: 4_096,
            ranges: 131_072,
            ranges_per_client: 65_536,
            ranges_per_file: 16_384,
            waiters: 4_096,
            waiters_per_file: 64,
            delegations: 32_768,
            delegations_per_client: 16_384,
            delegations_per_file: 256,
        }
    }
}

impl StateLimits {
    /// Files that have opens or delegations.
    pub const fn files(&self) -> usize {
        self.opens + self.opens_promised + self.delegations
    }

    /// States of all kinds.
    pub const fn states(&self) -> usize {
        self.opens + self.opens_promised + self.lock_states + self.delegations
    }
}
