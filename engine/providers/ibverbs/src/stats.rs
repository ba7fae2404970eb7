//! Counters of the provider. The code that counts reads none of them.

use stag_verbs::Count;

/// Counters since the provider was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct IbverbsStats {
    /// Chains of work requests handed to the device: doorbells.
    pub doorbells: u64,
    /// Work requests in them.
    pub work_requests: u64,
    /// Messages that went with their work request, not fetched by the device.
    pub inline_sends: u64,
    /// Windows bound.
    pub binds: u64,
    /// Octets that were cleared before a peer could write there.
    pub cleared: u64,
    /// Windows that a peer invalidated.
    pub remote_invalidations: u64,
    /// Windows that were made again after the end of their connection.
    pub windows_remade: u64,
    /// Completions.
    pub completions: u64,
    /// Chains of receives handed to the queue that connections share: doorbells.
    pub receive_chains: u64,
    /// Receives that failed and were posted again.
    pub receives_failed: u64,
    /// Looks at what other shards and the device report: a few system calls each.
    pub looks: u64,
    /// Times a port went down, or its address changed.
    pub port_events: u64,
    /// Times that the device was lost: removed, or reset by its driver.
    pub device_losses: u64,
    /// Connections that ended before the device said that it holds no receive of theirs: some never
    /// say so.
    pub ends_by_timeout: u64,
    /// Connect requests beyond all limits, which were not passed to the engine.
    pub shed: u64,
    /// Places for Reads that got a key for a connection, where the device wants that.
    pub sinks_opened: u64,
    /// Such places that are out of use, because the device did not give up their keys.
    pub sinks_lost: u64,
    /// Times that the device kept a queue pair or a window that was to go: its connection waits
    /// with its memory, and it is tried again.
    pub kept_by_device: u64,
}

impl IbverbsStats {
    /// The counters by name, for monitoring.
    pub(crate) fn counts(&self) -> Count {
        Count::group([
            ("doorbells", self.doorbells.into()),
            ("work_requests", self.work_requests.into()),
            ("inline_sends", self.inline_sends.into()),
            ("binds", self.binds.into()),
            ("cleared", self.cleared.into()),
            ("remote_invalidations", self.remote_invalidations.into()),
            ("windows_remade", self.windows_remade.into()),
            ("completions", self.completions.into()),
            ("receive_chains", self.receive_chains.into()),
            ("receives_failed", self.receives_failed.into()),
            ("looks", self.looks.into()),
            ("port_events", self.port_events.into()),
            ("device_losses", self.device_losses.into()),
            ("ends_by_timeout", self.ends_by_timeout.into()),
            ("shed", self.shed.into()),
            ("sinks_opened", self.sinks_opened.into()),
            ("sinks_lost", self.sinks_lost.into()),
            ("kept_by_device", self.kept_by_device.into()),
        ])
    }
}
