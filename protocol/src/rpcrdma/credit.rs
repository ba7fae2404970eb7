//! Credits of one direction: how many calls may be outstanding (RFC 8166 §3.3).
//!
//! Each direction of a connection counts by itself (RFC 8167 §4.1).

use core::fmt;

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
    max: u32,
}

impl RequesterCredits {
    /// A fresh connection: one call until the first reply (RFC 8166 §3.3.3), never more than `max` afterwards.
    ///
    /// # Panics
    /// When `max` is zero: such a side does not call.
    pub const fn new(max: u32) -> Self {
        assert!(max > 0, "a side that calls has at least one credit");
        Self { in_flight: 0, limit: 1, max }
    }

    /// Takes a credit for one call.
    pub fn take(&mut self) -> Result<(), NoCredit> {
        if self.in_flight >= self.limit {
            return Err(NoCredit);
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Gives the credit of a finished call back: replied, failed by RDMA_ERROR, or its connection gone. Cancelling a call gives nothing back.
    ///
    /// # Panics
    /// When no call is in flight: that is a bug of ours.
    pub fn give(&mut self) {
        self.in_flight = self.in_flight.checked_sub(1).expect("every `give` follows its `take`");
    }

    /// Takes the grant of a reply: at least one, at most our own `max`. It may shrink below what is in flight; then calls
    /// wait until enough of them ended (RFC 8166 §3.3.1).
    pub fn handle_grant(&mut self, granted: Credits) {
        self.limit = granted.0.clamp(1, self.max);
    }

    /// What the credit word of a call says.
    pub const fn requested(&self) -> Credits {
        Credits(self.max)
    }

    /// Calls in flight.
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

/// The answering side's count of one connection's direction. The grant is fixed.
#[derive(Clone, Copy, Debug)]
pub struct ResponderCredits {
    outstanding: u32,
    grant: u32,
}

impl ResponderCredits {
    /// Grants `grant` calls at once; as many receives are posted before the first reply says so (RFC 8166 §3.3.1).
    ///
    /// # Panics
    /// When `grant` is zero, which no reply may say (RFC 8166 §3.3.1).
    pub const fn new(grant: u32) -> Self {
        assert!(grant > 0, "a grant is never zero");
        Self { outstanding: 0, grant }
    }

    /// Counts a call of the peer. A peer that has one credit before its first reply may use the whole grant at once: the
    /// receives are posted. Beyond the grant its connection is closed.
    pub fn handle_call(&mut self) -> Result<(), PeerFault> {
        if self.outstanding >= self.grant {
            return Err(PeerFault::CreditsExceeded);
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Counts a reply or an RDMA_ERROR for a call that was counted.
    ///
    /// # Panics
    /// When no call is outstanding: that is a bug of ours.
    pub fn handle_reply(&mut self) {
        self.outstanding = self.outstanding.checked_sub(1).expect("every reply follows its call");
    }

    /// What the credit word of every reply and every RDMA_ERROR says.
    pub const fn granted(&self) -> Credits {
        Credits(self.grant)
    }

    /// Calls of the peer without a reply yet.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (granted, limit) in [(0, 1), (1, 1), (2, 2), (31, 31), (32, 32), (33, 32), (u32::MAX, 32)] {
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
}
