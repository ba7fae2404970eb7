//! Sizes of one shard of a server (DESIGN D14): its tables, its buffers, and its time limits.

use stag_engine::{Allowed, Config, ConfigFault, Spin, config::INLINE_LEN};
use std::time::Duration;

/// RDMA connections of one shard, if it has enough descriptors.
pub const CONNECTIONS: usize = 1_024;
/// TCP connections of one shard.
pub const STREAMS: usize = 1_024;
/// Receives of one shard: one call at a time for each connection, and more for busy ones.
const RECEIVES: usize = 4_160;
const _: () = assert!(RECEIVES > 2 * CONNECTIONS);
/// Calls over TCP at a time.
const STREAM_CALLS: usize = 1_024;
/// The server's own calls: version 4 callbacks.
const OUTBOUND: usize = 512;
/// Concurrent callbacks of one client, as with Linux' server: receives are reserved for them.
const CALLBACKS: u32 = 2;
/// Minimum slots of each class, sufficient for several calls at a time.
const SLOTS_MIN: [usize; 3] = [256, 16, 16];

/// Sizes of one shard. `Default` has those of a server without settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSizes {
    /// Connections over its fabric at a time.
    pub connections: usize,
    /// TCP connections at a time.
    pub streams: usize,
    /// Calls that one connection may have outstanding at most (RFC 8166 §3.3.1).
    pub credits: u32,
    /// Receives, which all connections share.
    pub receives: usize,
    /// Bytes of each receive: the longest message that a client may send without chunks.
    pub receive_len: usize,
    /// Calls in progress at a time, on all connections.
    pub calls: usize,
    /// Message, medium and large slots.
    pub slots: [usize; 3],
    /// Time that calls in progress have when the server stops.
    pub drain: Duration,
    /// Time that a core polls without work before it sleeps.
    pub spin: Spin,
}

impl Default for ShardSizes {
    fn default() -> Self {
        let Config { grant, slots, drain, spin, .. } = Config::default();
        Self {
            connections: CONNECTIONS,
            streams: STREAMS,
            credits: grant,
            receives: RECEIVES,
            receive_len: INLINE_LEN,
            calls: RECEIVES + STREAM_CALLS,
            slots,
            drain,
            spin,
        }
    }
}

impl ShardSizes {
    /// Sets the receives required for `connections`, and table entries for their calls.
    #[must_use]
    pub fn for_connections(self, connections: usize) -> Self {
        let receives = connections.saturating_mul(4).max(RECEIVES);
        Self { connections, ..self.with_receives(receives) }
    }

    /// Sets the number of receives, and table entries for their calls.
    #[must_use]
    pub fn with_receives(self, receives: usize) -> Self {
        Self { receives, calls: receives.saturating_add(STREAM_CALLS), ..self }
    }

    /// Sets slots of all classes with a total of about `octets` bytes, in the default proportion.
    #[must_use]
    pub fn with_buffers(self, octets: usize) -> Self {
        let usual = Config::default();
        let all: usize = usual.classes().iter().map(|class| class.slot_len * class.count).sum();
        let share = |slots: usize| {
            let slots = slots as u128 * octets as u128 / all as u128;
            usize::try_from(slots).unwrap_or(usize::MAX)
        };
        Self { slots: usual.slots.map(share), ..self }
    }

    /// The configuration of a shard with these sizes. Grants follow use, from receives that all
    /// connections share (DESIGN D8).
    pub(super) fn config(&self, xid_seed: u32) -> Config {
        Config {
            peers: self.connections,
            streams: self.streams,
            grant: self.credits,
            receives: self.receives,
            receive_len: self.receive_len,
            inbound: self.calls,
            outbound: OUTBOUND,
            reverse_calls_max: CALLBACKS,
            slots: self.slots,
            drain: self.drain,
            spin: self.spin,
            xid_seed,
            ..Config::default()
        }
    }

    /// Bytes of the buffers of one shard.
    pub fn octets(&self) -> usize {
        self.config(0).octets()
    }

    /// Bytes of the slots alone.
    pub fn slot_octets(&self) -> usize {
        self.config(0).classes().iter().map(|class| class.slot_len * class.count).sum()
    }

    /// Checks that the sizes agree with each other.
    ///
    /// # Errors
    /// A sentence that names the size by its flag, and a valid value.
    pub fn check(&self) -> Result<(), String> {
        if let Some(least) = self.too_few_slots() {
            return Err(format!(
                "--buffers of {} KiB are too few: give at least {} KiB for each core",
                self.slot_octets() >> 10,
                least.div_ceil(1 << 10)
            ));
        }
        // Every connection has a receive of its own, and active ones have more.
        let least = self.connections.saturating_mul(2).saturating_add(1);
        if self.receives < least {
            return Err(format!(
                "--receives {} is too few for {} connections on each core: give at least {least}, \
                 or fewer --connections",
                self.receives, self.connections
            ));
        }
        if self.calls < self.receives {
            return Err(format!(
                "--calls {} is less than the {} receives of each core, any of which can bring a \
                 call: give at least as many",
                self.calls, self.receives
            ));
        }
        self.config(0).check_sizes().map_err(|fault| self.beyond(&fault))
    }

    /// The sentence about a size beyond a shard's limits.
    fn beyond(&self, fault: &ConfigFault) -> String {
        let ConfigFault { field, value, allowed, .. } = *fault;
        let (flag, else_where) = match field {
            "slots" => return self.too_many_slots(allowed),
            "peers" => ("--connections", ""),
            "streams" => ("--tcp-connections", ""),
            "receives" => ("--receives", ""),
            "receive_len" => ("--inline", ""),
            "inbound" => ("--calls", ", and fewer --receives or --connections, which they follow"),
            field => return format!("{field} cannot be kept: {fault}"),
        };
        match allowed {
            Allowed::AtMost(most) => format!(
                "{flag} {value} is more than a core can have: give at most {most}{else_where}"
            ),
            Allowed::AtLeast(least) => format!("{flag} {value} is too few: give at least {least}"),
        }
    }

    /// The sentence about too many slots of a class.
    fn too_many_slots(&self, allowed: Allowed) -> String {
        let (Allowed::AtMost(slots) | Allowed::AtLeast(slots)) = allowed;
        let usual = Self::default().slots.into_iter().max().unwrap_or(1);
        let most = slots as u128 * usual_octets() as u128 / usual as u128;
        format!(
            "--buffers of {} MiB are more than a core can have: give at most {}M",
            self.slot_octets() >> 20,
            most >> 20
        )
    }

    /// Sufficient bytes, if there are too few.
    fn too_few_slots(&self) -> Option<usize> {
        let is_short = self.slots.iter().zip(SLOTS_MIN).any(|(slots, least)| *slots < least);
        is_short.then(|| {
            let usual = Self::default();
            let ratio =
                |(least, usual): (usize, usize)| (least * usual_octets()).div_ceil(usual.max(1));
            SLOTS_MIN.into_iter().zip(usual.slots).map(ratio).max().unwrap_or(0)
        })
    }
}

fn usual_octets() -> usize {
    ShardSizes::default().slot_octets()
}

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of the buffers of one shard of a server without settings. Each of its two pools takes
/// whole huge pages.
pub fn shard_buffers() -> usize {
    let sizes = ShardSizes::default();
    let buffers = sizes.slot_octets();
    let pools = [buffers, sizes.octets() - buffers];
    pools.map(|pool| pool.next_multiple_of(HUGE_PAGE)).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Class, Pool};

    #[test]
    fn the_usual_sizes_agree_and_so_do_those_that_follow_from_one_of_them() {
        let usual = ShardSizes::default();
        assert_eq!(usual.check(), Ok(()));
        for connections in [1, 16, 1_024, 16_000] {
            assert_eq!(usual.for_connections(connections).check(), Ok(()), "{connections}");
        }
        let octets = usual.slot_octets();
        assert_eq!(usual.with_buffers(octets), usual);
        let half = usual.with_buffers(octets / 2);
        assert!(half.check() == Ok(()) && half.slot_octets() <= octets / 2, "{half:?}");
        assert!(usual.with_receives(9_000).octets() > usual.octets());
    }

    #[test]
    fn the_huge_pages_of_a_shard_are_those_of_each_of_its_pools() {
        let usual = ShardSizes::default();
        let shard = Pool::new(&usual.config(0).classes()).unwrap();
        let len = usual.config(0).receive_len;
        let receives = Pool::new(&[Class { slot_len: len, count: usual.receives }]).unwrap();
        let pages = |pool: &Pool| pool.span().1.div_ceil(HUGE_PAGE);
        assert_eq!(shard_buffers(), (pages(&shard) + pages(&receives)) * HUGE_PAGE);
        assert!(shard_buffers() > usual.octets(), "{}", usual.octets());
    }

    #[test]
    fn too_few_of_anything_is_said_with_a_number_that_does() {
        let usual = ShardSizes::default();
        let few = usual.with_buffers(1 << 20).check().unwrap_err();
        assert!(few.starts_with("--buffers of ") && few.contains("give at least"), "{few}");
        let least = usual.with_buffers(1).too_few_slots().unwrap();
        assert_eq!(usual.with_buffers(least).check(), Ok(()), "what it says is enough");
        let few = usual.with_receives(2_048).check().unwrap_err();
        assert!(few.contains("give at least 2049"), "{few}");
        let few = ShardSizes { calls: 10, ..usual }.check().unwrap_err();
        assert!(few.starts_with("--calls 10 is less than the 4160 receives"), "{few}");
        let none = ShardSizes { connections: 0, ..usual }.check().unwrap_err();
        assert_eq!(none, "--connections 0 is too few: give at least 1");
    }

    #[test]
    fn too_much_of_anything_is_said_with_a_number_that_does() {
        let usual = ShardSizes::default();
        let many = usual.with_buffers(100 << 40).check().unwrap_err();
        let most = many.split_once("give at most ").and_then(|(_, rest)| rest.strip_suffix('M'));
        let most: usize = most.and_then(|most| most.parse().ok()).expect(&many);
        assert!(many.starts_with("--buffers of 104857"), "{many}");
        assert_eq!(usual.with_buffers(most << 20).check(), Ok(()), "what it says is enough");
        assert!(usual.with_buffers((most + most / 10) << 20).check().is_err());
        let many = usual.for_connections(99_999_999).check().unwrap_err();
        assert!(many.starts_with("--connections 99999999 is more than a core can have"), "{many}");
        let many = ShardSizes { calls: usize::MAX, ..usual }.check().unwrap_err();
        assert!(many.starts_with("--calls ") && many.contains("fewer --receives"), "{many}");
    }
}
