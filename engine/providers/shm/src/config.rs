//! Settings of an [`Shm`](crate::Shm).

use rustix::process::geteuid;
use stag_verbs::{Limits, Time};
use std::{collections::BTreeSet, time::Duration};

/// Settings of an [`Shm`](crate::Shm). [`ShmConfig::new`] has defaults for all but the limits and
/// the seed.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// Limits of the provider. `private_data_len` is lowered to 512.
    pub limits: Limits,
    /// Makes window keys unpredictable (RFC 5042 §6.4): take it from the operating system's
    /// generator.
    pub seed: [u8; 32],
    /// True if processes of the same user may map our pools, provided that they allow the same.
    pub trust: bool,
    /// Users whose processes may connect; by default our own and root.
    pub allow: Vec<u32>,
    /// Octets of the ring to each process: a power of two, at least 64 KiB and sixteen times a
    /// receive. Bounds the data in flight to a process; the ring's memory is taken when the process
    /// connects.
    pub ring_len: usize,
    /// Processes at a time.
    pub links: usize,
    /// Time limit for a connecting process to introduce itself, and for a server to accept a
    /// connection.
    pub timeout: Duration,
    /// Time that a link without connections is kept by the side that made it.
    pub linger: Duration,
    /// Interval at which the sockets are polled while there is work.
    pub look_interval: Duration,
    /// Messages that may wait for a receive, of all connections together. One more waits in its
    /// ring, and so do all later records of its process.
    pub parking: usize,
    /// The time before the first poll.
    pub now: Time,
}

/// Octets of private data that fit everywhere.
pub(crate) const PRIVATE_DATA_MAX: usize = 512;
/// Octets of the smallest ring.
pub(crate) const RING_MIN: usize = 64 << 10;
/// Octets of the largest ring that is taken from a peer.
pub(crate) const RING_MAX: usize = 64 << 20;

impl ShmConfig {
    /// The defaults around `limits` and `seed`.
    pub fn new(limits: Limits, seed: [u8; 32], now: Time) -> Self {
        Self {
            limits,
            seed,
            trust: false,
            allow: vec![geteuid().as_raw(), 0],
            ring_len: 1 << 20,
            links: 64,
            timeout: Duration::from_secs(5),
            linger: Duration::from_secs(1),
            look_interval: Duration::from_millis(1),
            parking: 64,
            now,
        }
    }

    /// Links that processes of one user may have: it leaves places to each other user that may
    /// connect. One user alone may have all of them.
    pub(crate) fn links_of_user(&self) -> usize {
        let users = self.allow.iter().collect::<BTreeSet<_>>().len().max(1);
        self.links - (users - 1) * (self.links / (2 * users))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_links_to_each_other_user_that_may_connect() {
        let limits = crate::tests::LIMITS;
        let config = |links, allow: &[u32]| ShmConfig {
            links,
            allow: allow.to_vec(),
            ..ShmConfig::new(limits, [0; 32], Time(0))
        };
        assert_eq!(config(64, &[0, 0]).links_of_user(), 64);
        assert_eq!(config(64, &[1000, 0]).links_of_user(), 48);
        assert_eq!(config(64, &[1000, 0, 7, 8]).links_of_user(), 40);
        assert_eq!(config(1, &[1000, 0]).links_of_user(), 1);
    }
}
