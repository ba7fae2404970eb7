//! Counters of the duplicate request cache.

use serde::Serialize;

/// Counters of one shard's duplicate request cache since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Replies that are cached now.
    pub kept: u64,
    /// Duplicates answered with the reply of the original.
    pub replayed: u64,
    /// Duplicates of a call that was being executed: their connections were closed.
    pub busy: u64,
    /// Replies evicted by newer ones because the cache was full.
    pub evicted: u64,
    /// Number of times that a client's replies came from another shard.
    pub fetched: u64,
    /// Number of times that a client's replies went to another shard.
    pub given: u64,
    /// Calls that waited for their client's replies.
    pub waited: u64,
    /// Number of times that such a call waited another two seconds, and the other shard was asked
    /// again.
    pub asked_again: u64,
    /// Calls that could not wait, because too many waited or memory was short: their connections
    /// were closed.
    pub turned_away: u64,
}
