//! Receives: the posted ones, and the number promised to connections (DESIGN D8).

use crate::{app::App, config::Config, shard::Shard};
use stag_pools::{Budget, Buf, Pool};
use stag_verbs::Provider;

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
    }

    /// Ends the promise of `count`.
    pub(crate) const fn release(&mut self, count: usize) {
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

    pub(crate) fn budget(&self) -> Budget {
        self.pool.budget()
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Returns a receive to the fabric once its message is handled.
    #[inline(always)]
    pub(crate) fn repost(&mut self, receive: Buf) {
        // A receive that the fabric does not accept returns to its pool, and is posted later.
        drop(self.provider.post_receive(receive));
    }

    /// Keeps all receives posted that no call holds, so that all promises are covered.
    #[inline]
    pub(crate) fn replenish(&mut self) {
        // Nearly always all are posted.
        if !self.core.receives.pool.is_empty() {
            self.post_receives();
        }
        debug_assert!(
            !self.core.receives.are_short() || self.core.receives.pool.available(1) > 0,
            "a promise that no receive covers"
        );
    }

    /// Posts all receives in the pool, as far as the fabric accepts them.
    #[inline(never)]
    fn post_receives(&mut self) {
        // draft 002 §4.3.1 [bidir-12] what was promised is posted
        while let Some(buf) = self.core.receives.pool.take(self.core.receives.len) {
            if let Err(back) = self.provider.post_receive(buf) {
                drop(back);
                // draft 004 §4.5.1 [exp-28] a promise that no receive covers is withdrawn
                if self.core.receives.are_short() {
                    self.withdraw_promises();
                }
                break;
            }
        }
    }
}
