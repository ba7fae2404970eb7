//! Behaviour of a fabric, and default limits of ends.

use stag_verbs::Limits;
use std::ops::Range;

/// Faults and delays of the fabric. All chances are per million; all delays are uniform, in
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// From the doorbell, or the answer, to the other end.
    pub delay: Range<u64>,
    /// From the moment the fabric is done with a work request to its completion.
    pub completion_delay: Range<u64>,
    /// From the arrival of a Read Request to the fetch of its data; later arrivals do not wait for
    /// it.
    pub fetch_delay: Range<u64>,
    /// The chance that a connection breaks, for each thing that arrives.
    pub lost: u32,
    /// The connection on which the arrival with this number happens breaks there; the first one is
    /// 0.
    pub lost_at: Option<u64>,
    /// The chance that a connect is refused although there is a listener.
    pub refused: u32,
    /// The chance that a Send or Write completes before it arrives, as it does on TCP.
    pub early: u32,
    /// The chance that a short message is taken as a copy when that is asked for
    /// ([`Provider::send_inline`](stag_verbs::Provider)).
    pub inline: u32,
    /// Reads that one connection has in flight; work after one more waits.
    pub reads: usize,
    /// Messages of one connection that wait for a receive; one more ends the connection.
    pub parked: usize,
    /// True if a local invalidation of a key that is not bound is refused. Otherwise it panics,
    /// because it is a bug of the engine.
    pub lenient: bool,
}

impl Faults {
    /// No delay, no fault: whatever is rung out is due at once.
    pub const NONE: Self = Self {
        delay: 0..1,
        completion_delay: 0..1,
        fetch_delay: 0..1,
        lost: 0,
        lost_at: None,
        refused: 0,
        early: 0,
        inline: 1_000_000,
        reads: 16,
        parked: 256,
        lenient: false,
    };

    /// Everything is late by its own time, and nothing breaks.
    pub const DELAYS: Self = Self {
        delay: 1_000..20_000,
        completion_delay: 100..20_000,
        fetch_delay: 0..10_000,
        early: 300_000,
        inline: 600_000,
        ..Self::NONE
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// Default limits of an end, for [`Fabric::end`](crate::Fabric::end).
pub const LIMITS: Limits = Limits {
    connections: 16,
    send_queue: 128,
    receives: 256,
    receives_each: None,
    receive_len: 4096,
    windows: 256,
    read_spans: 64,
    private_data_len: 196,
    sends_invalidation: true,
    bears_invalidation: true,
};
