//! Grace period after a restart: which clients may reclaim, and when the others get state again
//! (RFC 8881 §8.4.2, §18.51).

use crate::nfs::v4::Status4;

/// A client as the grace period sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimState {
    /// According to the records it had state before the server restarted, and none was revoked
    /// since.
    pub listed: bool,
    /// It said RECLAIM_COMPLETE for all file systems.
    pub complete: bool,
}

/// The grace period of a server. Times are the caller's, of any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// Listed clients that are not complete.
    left: u32,
    ends_at: u64,
}

impl Grace {
    /// A grace period for `listed` clients, until `ends_at` at the latest. There is none for no
    /// clients.
    pub const fn begin(listed: u32, ends_at: u64) -> Self {
        Self { left: listed, ends_at }
    }

    /// Returns true in the grace period.
    pub const fn is_on(&self, now: u64) -> bool {
        self.left > 0 && now < self.ends_at
    }

    /// Listed clients that are not complete.
    pub const fn awaited(&self) -> u32 {
        self.left
    }

    /// The time at which it ends at the latest.
    pub const fn ends_at(&self) -> u64 {
        self.ends_at
    }

    /// Ends it early: clients that are not complete reclaim nothing more.
    pub const fn end(&mut self) {
        self.ends_at = 0;
    }

    /// Checks a reclaim: OPEN by CLAIM_PREVIOUS, LOCK with reclaim.
    pub const fn reclaim(&self, client: &ReclaimState, now: u64) -> Result<(), Status4> {
        // RFC 8881 §8.4.2.1 [8881-48]: nothing is reclaimed outside of the grace period
        // RFC 8881 §8.4.3 [8881-49]: who is not in the records reclaims nothing
        // RFC 8881 §18.51.3 [8881-50]: nothing is reclaimed after RECLAIM_COMPLETE
        if self.is_on(now) && client.listed && !client.complete {
            Ok(())
        } else {
            Err(Status4::NoGrace)
        }
    }

    /// Judges a request for state that is no reclaim.
    pub const fn grant(&self, client: &ReclaimState, now: u64) -> Result<(), Status4> {
        // RFC 8881 §8.4.2.1 [8881-51]: in the grace period no client gets other state
        // RFC 8881 §18.51.3 [8881-52]: a client gets other state after its RECLAIM_COMPLETE
        if self.is_on(now) || !client.complete { Err(Status4::Grace) } else { Ok(()) }
    }

    /// RECLAIM_COMPLETE. One for a single file system changes nothing.
    pub const fn complete(
        &mut self,
        client: &mut ReclaimState,
        one_fs: bool,
    ) -> Result<(), Status4> {
        if one_fs {
            return Ok(());
        }
        // RFC 8881 §18.51.3 [8881-53]: a client completes its reclaims once
        if client.complete {
            return Err(Status4::CompleteAlready);
        }
        self.forget(client);
        client.complete = true;
        Ok(())
    }

    /// Stops waiting for a client that is gone: destroyed, or replaced by its next incarnation.
    pub const fn forget(&mut self, client: &mut ReclaimState) {
        if client.listed && !client.complete {
            self.left = self.left.saturating_sub(1);
        }
        client.listed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_at_every_time_may_reclaim_or_get_state_as_the_text_says() {
        for (left, now) in [(0, 5), (1, 5), (1, 9), (1, 10), (0, 10), (3, 0)] {
            for bits in 0..4 {
                let client = ReclaimState { listed: bits & 1 > 0, complete: bits & 2 > 0 };
                let grace = Grace::begin(left, 10);
                let on = left > 0 && now < 10;
                assert_eq!(grace.is_on(now), on);
                let may_reclaim = on && client.listed && !client.complete;
                let reclaim = if may_reclaim { Ok(()) } else { Err(Status4::NoGrace) };
                assert_eq!(grace.reclaim(&client, now), reclaim, "{client:?} {left} {now}");
                let grant = if !on && client.complete { Ok(()) } else { Err(Status4::Grace) };
                assert_eq!(grace.grant(&client, now), grant, "{client:?} {left} {now}");
            }
        }
    }

    #[test]
    fn grace_that_is_ended_gives_no_listed_client_anything_back() {
        let client = ReclaimState { listed: true, complete: false };
        let mut grace = Grace::begin(2, 10);
        assert_eq!((grace.ends_at(), grace.reclaim(&client, 0)), (10, Ok(())));
        grace.end();
        assert!(!grace.is_on(0));
        assert_eq!(grace.reclaim(&client, 0), Err(Status4::NoGrace));
        assert_eq!(grace.grant(&ReclaimState { complete: true, ..client }, 0), Ok(()));
    }

    #[test]
    fn grace_ends_early_when_the_last_listed_client_is_complete_or_gone() {
        let listed = ReclaimState { listed: true, complete: false };
        let (mut one, mut two, mut other) = (listed, listed, ReclaimState::default());
        let mut grace = Grace::begin(2, 100);
        assert_eq!(grace.complete(&mut other, false), Ok(()));
        assert_eq!(grace.complete(&mut one, true), Ok(()), "one file system is not all");
        assert_eq!(grace.reclaim(&one, 1), Ok(()));
        assert_eq!(grace.complete(&mut one, false), Ok(()));
        assert_eq!(grace.complete(&mut one, false), Err(Status4::CompleteAlready));
        assert_eq!(grace.complete(&mut one, true), Ok(()));
        assert!(grace.is_on(1), "the second is not complete");
        grace.forget(&mut two);
        grace.forget(&mut two);
        assert!(!grace.is_on(1));
        assert_eq!(grace.grant(&other, 1), Ok(()));
        assert_eq!(grace.reclaim(&two, 1), Err(Status4::NoGrace));
    }

    #[test]
    fn a_complete_client_that_goes_is_not_waited_for_twice() {
        let listed = ReclaimState { listed: true, complete: false };
        let (mut one, mut two) = (listed, listed);
        let mut grace = Grace::begin(2, 100);
        grace.complete(&mut one, false).unwrap();
        grace.forget(&mut one);
        assert!(grace.is_on(1), "the other is still waited for");
        grace.complete(&mut two, false).unwrap();
        assert!(!grace.is_on(1));
    }
}
