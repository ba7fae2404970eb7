//! Counters of the provider. The code that counts reads none of them.

use stag_verbs::{Cause, Count};

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShmStats {
    /// Processes that became peers.
    pub links: u64,
    /// Such processes whose pools are mapped.
    pub trusting: u64,
    /// Processes turned away: their user is not allowed.
    pub denied: u64,
    /// Processes turned away: too many, or they did not identify themselves.
    pub turned_away: u64,
    /// Links that were ended because places were needed for connections whose end their process
    /// never confirmed.
    pub evicted: u64,
    /// Records sent.
    pub records_sent: u64,
    /// Records received.
    pub records_received: u64,
    /// Octets of payload copied into our rings.
    pub octets_in: u64,
    /// Octets of payload copied out of peers' rings.
    pub octets_out: u64,
    /// Octets of payload copied from peers' pools.
    pub octets_fetched: u64,
    /// Wake-ups sent to processes that slept.
    pub wakeups: u64,
    /// Looks at the sockets: system calls.
    pub looks: u64,
    /// Connections that ended because the peer broke a rule.
    pub violations: u64,
    /// Connections that ended because the peer said that we did.
    pub terminated: u64,
    /// Links that ended because the peer wrote nonsense.
    pub corrupt: u64,
    /// Connections that ended because the peer's process was gone.
    pub lost: u64,
}

impl ShmStats {
    /// All of them by name.
    pub(crate) fn counts(&self) -> Count {
        Count::group([
            ("links", self.links.into()),
            ("trusting", self.trusting.into()),
            ("denied", self.denied.into()),
            ("turned_away", self.turned_away.into()),
            ("evicted", self.evicted.into()),
            ("records_sent", self.records_sent.into()),
            ("records_received", self.records_received.into()),
            ("octets_in", self.octets_in.into()),
            ("octets_out", self.octets_out.into()),
            ("octets_fetched", self.octets_fetched.into()),
            ("wakeups", self.wakeups.into()),
            ("looks", self.looks.into()),
            ("violations", self.violations.into()),
            ("terminated", self.terminated.into()),
            ("corrupt", self.corrupt.into()),
            ("lost", self.lost.into()),
        ])
    }

    pub(crate) const fn count_end(&mut self, cause: Cause) {
        match cause {
            Cause::PeerFault(_) => self.violations += 1,
            Cause::Terminated(_) => self.terminated += 1,
            Cause::Fabric(_) => self.lost += 1,
            _ => {}
        }
    }
}
