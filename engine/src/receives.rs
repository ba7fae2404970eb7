//! Receives are posted as long as no call holds them (DESIGN D8).

use crate::{app::App, shard::Shard};
use stag_pools::Buf;
use stag_verbs::Provider;

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
        if self.core.receives.has_free() {
            self.post_receives();
        }
        debug_assert!(
            !self.core.receives.are_short() || self.core.receives.has_free(),
            "a promise that no receive covers"
        );
    }

    /// Posts all receives in the pool, as far as the fabric accepts them.
    #[inline(never)]
    fn post_receives(&mut self) {
        // draft 002 §4.3.1 [bidir-12] what was promised is posted
        while let Some(buf) = self.core.receives.take() {
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
