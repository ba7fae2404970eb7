//! One peer's use of its grant (DESIGN D8).

use stag_protocol::rpcrdma::Credits;
use stag_verbs::Time;

/// One peer's use of its grant.
#[derive(Debug)]
pub(crate) struct GrantUse {
    /// Credits that its latest call requested, and the time of that call.
    wanted: u32,
    called_at: Time,
    /// Replies since the grant was last adapted.
    replies: u32,
}

/// The latest call of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestCall {
    pub(crate) wanted: u32,
    pub(crate) called_at: Time,
}

impl GrantUse {
    pub(crate) const fn new(now: Time) -> Self {
        Self { wanted: 0, called_at: now, replies: 0 }
    }

    /// Records a call of the peer and the credits that it requests.
    #[inline]
    pub(crate) const fn note_call(&mut self, credits: Credits, now: Time) {
        (self.wanted, self.called_at) = (credits.0, now);
    }

    /// Returns true if the next reply uses up a grant of `granted`, so that the grant is to be
    /// adapted. A peer that has one credit and requests no more always keeps it.
    #[inline]
    pub(crate) const fn is_used_up(&self, granted: u32) -> bool {
        self.replies >= granted.saturating_sub(1) && (granted > 1 || self.wanted > 1)
    }

    /// Credits that its latest call requested, and the time of that call.
    pub(crate) const fn latest(&self) -> LatestCall {
        LatestCall { wanted: self.wanted, called_at: self.called_at }
    }

    /// Counts a reply that changes no grant.
    #[inline]
    pub(crate) const fn count_reply(&mut self) {
        self.replies = self.replies.saturating_add(1);
    }

    /// Restarts the count.
    pub(crate) const fn forget_replies(&mut self) {
        self.replies = 0;
    }
}
