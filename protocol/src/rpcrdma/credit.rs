//! Credits of one direction: how many calls may be outstanding (RFC 8166 §3.3).
//!
//! Each direction of a connection counts by itself (RFC 8167 §4.1).

use core::{fmt, num::NonZeroU32};

use super::{Credits, PeerFault};

/// Every credit is in use: the call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCredit;

impl fmt::Display for NoCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every credit that the peer granted is in use")
    }
}

impl core::error::Error for NoCredit {}

/// The calling side's count of one connection's direction.
#[derive(Clone, Copy, Debug)]
pub struct RequesterCredits {
    in_flight: u32,
    limit: u32,
    max: NonZeroU32,
}

impl RequesterCredits {
    /// A fresh connection: one call until the first reply (RFC 8166 §3.3.3), never more than `max`
    /// afterwards.
    ///
    /// # Panics
    /// When `max` is zero: such a side does not call.
    pub const fn new(max: u32) -> Self {
        let max = NonZeroU32::new(max).expect("a side that calls has at least one credit");
        // RFC 8166 §3.3.3 [8166-6]: a fresh connection has one credit
        Self { in_flight: 0, limit: 1, max }
    }

    /// Takes a credit for one call.
    #[inline]
    pub fn take(&mut self) -> Result<(), NoCredit> {
        // RFC 8166 §3.3.1 [8166-2]: no more calls are outstanding than the grant allows
        if self.in_flight >= self.limit {
            return Err(NoCredit);
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Returns the credit of a finished call: replied, failed by RDMA_ERROR, or its connection
    /// gone. Cancelling a call returns no credit.
    ///
    /// # Panics
    /// When no call is in flight: that is a bug of ours.
    #[inline]
    pub fn give(&mut self) {
        self.in_flight = self.in_flight.checked_sub(1).expect("every `give` follows its `take`");
    }

    /// Takes the grant of a reply: at least one, at most our own `max`. It may shrink below the
    /// number in flight; then calls wait until enough of them ended (RFC 8166 §3.3.1).
    #[inline]
    pub fn handle_grant(&mut self, granted: Credits) {
        // RFC 8166 §3.3.3 [8166-7]: the first reply says how many calls may follow
        // Most replies repeat the grant of the one before.
        if granted.0 != self.limit {
            self.limit = granted.0.clamp(1, self.max.get());
        }
    }

    /// Credits that every call requests in its credit word.
    #[inline]
    pub const fn requested(&self) -> Credits {
        Credits(self.max.get())
    }

    /// Calls in flight.
    #[inline]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that may be in flight at once.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Calls that may start at this moment.
    pub const fn available(&self) -> u32 {
        self.limit.saturating_sub(self.in_flight)
    }
}

/// The answering side's count of one connection's direction.
///
/// The grant may be raised and lowered at any time. A lower one reaches the peer with the next
/// reply, and calls that it sent before may still arrive. So each reply lowers the number of calls
/// that may arrive by one, until it equals the grant.
#[derive(Clone, Copy, Debug)]
pub struct ResponderCredits {
    outstanding: u32,
    grant: NonZeroU32,
    /// Calls that may be outstanding: the grant, or more while the peer may not have received a
    /// lower one.
    allowed: u32,
}

impl ResponderCredits {
    /// Grants `grant` calls at once; as many receives are posted before the first reply says so
    /// (RFC 8166 §3.3.1).
    ///
    /// # Panics
    /// When `grant` is zero, which no reply may say (RFC 8166 §3.3.1).
    pub const fn new(grant: u32) -> Self {
        let nonzero = NonZeroU32::new(grant).expect("a grant is never zero");
        Self { outstanding: 0, grant: nonzero, allowed: grant }
    }

    /// Counts a call of the peer. A peer that has one credit before its first reply may use the
    /// whole grant at once: the receives are posted. Beyond the grant its connection is closed.
    #[inline]
    pub fn handle_call(&mut self) -> Result<(), PeerFault> {
        // RFC 5042 §6.4.3.1 [5042-14]: no peer takes more than its fair share of receives
        if self.outstanding >= self.allowed {
            return Err(PeerFault::CreditsExceeded);
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Counts a reply or an RDMA_ERROR for a call that was counted. Returns true if fewer receives
    /// are [`reserved`](Self::reserved) now.
    ///
    /// # Panics
    /// When no call is outstanding: that is a bug of ours.
    #[inline(always)]
    pub fn handle_reply(&mut self) -> bool {
        self.outstanding = self.outstanding.checked_sub(1).expect("every reply follows its call");
        let before = self.allowed;
        self.allowed = before.saturating_sub(1).max(self.grant.get());
        self.allowed != before
    }

    /// Grants `grant` from the next reply on. Raise it only when as many receives are posted (RFC
    /// 8166 §3.3.1). Zero means one.
    pub fn set_grant(&mut self, grant: u32) {
        // RFC 8166 §3.3.1 [8166-3]: a reply never grants zero credits
        self.grant = NonZeroU32::new(grant).unwrap_or(NonZeroU32::MIN);
        self.allowed = self.allowed.max(self.grant.get());
    }

    /// Credits that every reply and every RDMA_ERROR grants in its credit word.
    #[inline]
    pub const fn granted(&self) -> Credits {
        Credits(self.grant.get())
    }

    /// Receives that have to be posted, or held by calls that arrived: calls that may be
    /// outstanding.
    #[inline]
    pub const fn reserved(&self) -> u32 {
        self.allowed
    }

    /// Calls of the peer without a reply yet.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

// A check that a side does not call, or does not serve, reads no further word.
const _: () = assert!(size_of::<Option<RequesterCredits>>() == 12);
const _: () = assert!(size_of::<Option<ResponderCredits>>() == 12);

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn a_requester_starts_with_one_call_whatever_it_may_have_later() {
        let mut credits = RequesterCredits::new(128);
        assert_eq!(credits.requested(), Credits(128));
        assert_eq!(credits.take(), Ok(()));
        assert_eq!(credits.take(), Err(NoCredit));
        credits.give();
        assert_eq!(credits.take(), Ok(()));
    }

    #[test]
    fn a_grant_is_clamped_between_one_and_our_own_limit() {
        for (granted, limit) in
            [(0, 1), (1, 1), (2, 2), (31, 31), (32, 32), (33, 32), (u32::MAX, 32)]
        {
            let mut credits = RequesterCredits::new(32);
            credits.handle_grant(Credits(granted));
            assert_eq!(credits.limit(), limit, "granted {granted}");
            for _ in 0..limit {
                assert_eq!(credits.take(), Ok(()));
            }
            assert_eq!(credits.take(), Err(NoCredit));
            assert_eq!((credits.in_flight(), credits.available()), (limit, 0));
        }
    }

    #[test]
    fn a_grant_that_shrinks_below_the_calls_in_flight_makes_later_calls_wait() {
        let mut credits = RequesterCredits::new(8);
        credits.handle_grant(Credits(8));
        for _ in 0..8 {
            credits.take().unwrap();
        }
        credits.handle_grant(Credits(3));
        for left in (3..8).rev() {
            assert_eq!(credits.take(), Err(NoCredit));
            credits.give();
            assert_eq!((credits.in_flight(), credits.available()), (left, 0));
        }
        credits.give();
        assert_eq!(credits.available(), 1);
        assert_eq!(credits.take(), Ok(()));
    }

    #[test]
    fn a_responder_takes_its_grant_and_not_one_call_more() {
        for grant in 1..=16 {
            let mut credits = ResponderCredits::new(grant);
            for _ in 0..grant {
                assert_eq!(credits.handle_call(), Ok(()));
            }
            assert_eq!(credits.handle_call(), Err(PeerFault::CreditsExceeded));
            credits.handle_reply();
            assert_eq!(credits.handle_call(), Ok(()));
            assert_eq!((credits.granted(), credits.outstanding()), (Credits(grant), grant));
        }
    }

    #[test]
    fn a_lower_grant_takes_effect_one_reply_at_a_time() {
        let mut credits = ResponderCredits::new(8);
        for _ in 0..8 {
            credits.handle_call().unwrap();
        }
        credits.set_grant(3);
        assert_eq!((credits.granted(), credits.reserved()), (Credits(3), 8));
        // Calls sent before the peer saw the first reply may still arrive, one for each credit it
        // thought it had.
        for reserved in [7, 6, 5, 4, 3, 3] {
            credits.handle_reply();
            assert_eq!(credits.reserved(), reserved);
        }
        assert_eq!(credits.outstanding(), 2);
        assert_eq!(credits.handle_call(), Ok(()));
        assert_eq!(credits.handle_call(), Err(PeerFault::CreditsExceeded));
        credits.set_grant(5);
        assert_eq!(credits.reserved(), 5);
        assert_eq!(credits.handle_call(), Ok(()));
        credits.set_grant(0);
        assert_eq!(credits.granted(), Credits(1));
    }

    /// A peer that keeps to the grants it has seen, however late replies and calls arrive, is never
    /// above what is allowed.
    #[test]
    fn a_peer_that_keeps_to_what_it_has_seen_is_never_closed() {
        let mut random = Rng::with_seed(1);
        let mut responder = ResponderCredits::new(4);
        let mut requester = RequesterCredits::new(32);
        requester.handle_grant(Credits(4));
        let (mut calls, mut replies) = (0_u32, std::collections::VecDeque::new());
        for _ in 0..200_000 {
            match random.u8(..6) {
                0 | 1 if requester.take().is_ok() => calls += 1,
                2 if calls > 0 => {
                    calls -= 1;
                    responder.handle_call().expect("the peer kept to its grant");
                }
                3 if responder.outstanding() > 0 => {
                    responder.handle_reply();
                    replies.push_back(responder.granted());
                }
                4 => {
                    if let Some(granted) = replies.pop_front() {
                        requester.handle_grant(granted);
                        requester.give();
                    }
                }
                5 => responder.set_grant(random.u32(1..=32)),
                _ => {}
            }
        }
    }
}
