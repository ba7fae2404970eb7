//! Counters of the duplicate request cache.

use serde::Serialize;

/// Counters of one shard's duplicate request cache since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Replies that are kept at this moment.
    pub kept: u64,
    /// Duplicates answered with the reply of the original.
    pub replayed: u64,
    /// Duplicates of a call that was being carried out: their connections were closed.
    pub busy: u64,
    /// Replies pushed out by newer ones: the cache was full.
    pub evicted: u64,
    /// Times a client's replies came from another shard, and went to another one.
    pub fetched: u64,
    /// Times a client's replies went to another shard.
    pub given: u64,
    /// Calls that waited for their client's replies.
    pub waited: u64,
    /// Times such a call had waited for another two seconds, and the other shard was asked again.
    pub asked_again: u64,
    /// Calls that could not wait, because too many did already or memory was short: their
    /// connections were closed.
    pub turned_away: u64,
}
