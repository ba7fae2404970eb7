//! Receives: those that are posted, and those that are promised to connections (DESIGN D8).

use crate::{app::App, config::Config, shard::Shard};
use stag_pools::{Budget, Buf, Pool};
use stag_verbs::Provider;

/// The receives of a shard. They have a pool of their own, so that nothing else can use them up.
#[derive(Debug)]
pub(crate) struct Receives {
    pool: Pool,
    /// Octets of each.
    len: usize,
    /// All of them.
    count: usize,
    /// Those promised to connections: for the calls that they were granted, and for the replies
    /// that they may bring.
    promised: usize,
}

impl Receives {
    /// Receives beyond every promise: for RDMA_ERROR messages and for garbage.
    const SLACK: usize = 8;

    /// The receives of `pool`, which was made for those of `config`.
    pub(crate) const fn new(pool: Pool, config: &Config) -> Self {
        Self { pool, len: config.receive_len, count: config.receives, promised: 0 }
    }

    /// All receives.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Receives that are promised to connections.
    pub(crate) const fn promised(&self) -> usize {
        self.promised
    }

    /// Receives that are promised to nobody.
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

    /// Returns true if those taken do not cover all promises.
    pub(crate) fn are_short(&self) -> bool {
        self.taken() < self.promised
    }

    pub(crate) fn budget(&self) -> Budget {
        self.pool.budget()
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Gives a receive back to the fabric at once, when its message is done with.
    #[inline(always)]
    pub(crate) fn repost(&mut self, receive: Buf) {
        // A receive without a place goes back to its pool, and is posted from there later.
        drop(self.provider.post_receive(receive));
    }

    /// Keeps every receive posted that no call holds, so that all promises are kept.
    #[inline]
    pub(crate) fn replenish(&mut self) {
        // Nearly always all of them are.
        if !self.core.receives.pool.is_empty() {
            self.post_receives();
        }
        debug_assert!(
            !self.core.receives.are_short() || self.core.receives.pool.available(1) > 0,
            "a promise that no receive covers"
        );
    }

    /// Posts every receive that nobody holds, as far as the fabric takes them.
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
