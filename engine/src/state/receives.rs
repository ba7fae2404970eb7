//! Receives: the number promised to connections (DESIGN D8).

use crate::config::Config;
use stag_pools::{Budget, Buf, Pool};

/// The receives of a shard, in a separate pool, so that no other use can exhaust them.
#[derive(Debug)]
pub(crate) struct Receives {
    pool: Pool,
    /// Octets of each receive.
    len: usize,
    /// The number of receives.
    count: usize,
    /// Receives promised to connections: for granted calls and for expected replies.
    promised: usize,
}

impl Receives {
    /// Receives beyond every promise: for RDMA_ERROR messages and for garbage.
    const SLACK: usize = 8;

    /// The receives of `pool`, which was made with the sizes of `config`.
    pub(crate) const fn new(pool: Pool, config: &Config) -> Self {
        Self { pool, len: config.receive_len, count: config.receives, promised: 0 }
    }

    /// The number of receives.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Receives that are promised to connections.
    pub(crate) const fn promised(&self) -> usize {
        self.promised
    }

    /// Receives that are not promised.
    pub(crate) const fn free(&self) -> usize {
        self.count.saturating_sub(self.promised + Self::SLACK)
    }

    /// Returns true if `wanted` more receives can be promised.
    pub(crate) const fn fits(&self, wanted: usize) -> bool {
        wanted <= self.free()
    }

    /// Promises `count` more.
    pub(crate) const fn promise(&mut self, count: usize) {
        self.promised += count;
        debug_assert!(self.promised <= self.count, "a receive is promised once");
    }

    /// Ends the promise of `count`.
    pub(crate) const fn release(&mut self, count: usize) {
        debug_assert!(count <= self.promised, "a promise ends once");
        self.promised -= count;
    }

    /// Receives that are posted, or held by calls.
    pub(crate) fn taken(&self) -> usize {
        self.pool.taken()
    }

    /// Returns true if the taken receives do not cover all promises.
    pub(crate) fn are_short(&self) -> bool {
        self.taken() < self.promised
    }

    /// Returns true if some receive is neither posted nor held by a call.
    #[inline]
    pub(crate) fn has_free(&self) -> bool {
        !self.pool.is_empty()
    }

    /// Such a receive, to be posted.
    pub(crate) fn take(&self) -> Option<Buf> {
        self.pool.take(self.len)
    }

    pub(crate) fn budget(&self) -> Budget {
        self.pool.budget()
    }
}
