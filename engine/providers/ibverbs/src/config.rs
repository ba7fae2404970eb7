//! Settings of an [`Ibverbs`](crate::Ibverbs).

use crate::device::DeviceAbout;
use stag_pools::Class;
use stag_verbs::{Limits, LinkSettings, OutageReport, Steering, Time};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Octets of private data a connect request has room for on InfiniBand: 92 without the address.
const PRIVATE_DATA_MAX: usize = 56;

/// Selects the device of a shard. The shard's memory is registered there, so all its connections
/// use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// The device with this local address; the first one for an unspecified address.
    Local(IpAddr),
    /// The device that leads to this peer.
    Toward(SocketAddr),
}

/// Settings of an [`Ibverbs`](crate::Ibverbs). [`IbverbsConfig::new`] has defaults for all but the
/// limits and the device.
#[derive(Clone, Debug)]
pub struct IbverbsConfig {
    /// Limits of the provider, lowered to what the device can do: connections to the number whose
    /// work fits one completion queue, windows to those of the device, private data to 56 octets
    /// (the room next to the address in a connect request).
    pub limits: Limits,
    /// The device.
    pub through: Through,
    /// Work requests of one connection that the device holds at a time; more wait here.
    pub queue_depth: usize,
    /// Longest message that travels in its work request. Lowered to what the device takes.
    pub inline_max: u32,
    /// Reads of the peer in flight at a time, and ours. Lowered to what the device and the peer
    /// can.
    pub reads: u8,
    /// Number of times that the device sends a message again if the peer has no receive for it: 0
    /// to 6, or 7 for no limit.
    pub rnr_retry: u8,
    /// Settings of connections over InfiniBand and RoCE; an error on an iWARP device.
    pub link: LinkSettings,
    /// Time limit for the set-up of an outgoing connection.
    pub connect_timeout: Duration,
    /// Time limit for the set-up of a peer's connection, up to our answer and again after it.
    pub accept_timeout: Duration,
    /// Time limit for posted work to reach the peer after this side ended the connection.
    pub linger: Duration,
    /// Time limit for the device to return the work of a dead connection; after it, the queue pair
    /// is destroyed.
    pub flush_timeout: Duration,
    /// Time limit for the device to report that it holds no receive of a dead connection. Some
    /// devices never report it.
    pub last_receive_timeout: Duration,
    /// Longest time between two looks at the connection manager and the device.
    pub look_interval: Duration,
    /// Receives of each connection, on a device whose connections share none.
    pub receives_each: usize,
    /// Peers beyond the limit of connections whose requests are nevertheless passed to the engine,
    /// so that it can make room.
    pub spare: usize,
    /// Let shards of this process share a port: the first one that listens there has the listener.
    pub shared_port: bool,
    /// Has addresses of peers decide which of these shards gets them; else it is the one with the
    /// fewest connections.
    pub steering: Option<Steering>,
    /// Addresses of devices that other shards of the process have, and listen at.
    pub elsewhere: Vec<IpAddr>,
    /// Open buffers by regions for one use where the device has no windows. The provider then has
    /// connections to one host at a time.
    pub opens_regions: bool,
    /// The thread of this provider changes its credentials: calls that the kernel accepts only from
    /// the credentials that opened the device are made by a thread of their own.
    pub is_apart: bool,
    /// Let Reads land in an arena of their own also where the device does not ask for it.
    pub always_sinks: bool,
    /// Receives reports that the device cannot be used, and why.
    pub outage: OutageReport,
    /// Slot classes of the arena for Reads; the longest slot is the longest span of a Read.
    pub sinks: [Class; 2],
    /// The time before the first poll.
    pub now: Time,
}

impl IbverbsConfig {
    /// The defaults around `limits` and the device.
    pub fn new(limits: Limits, through: Through, now: Time) -> Self {
        Self {
            limits,
            through,
            queue_depth: 128,
            inline_max: 256,
            reads: 16,
            // Credits promise a receive (RFC 8166 §3.3.1): a peer that has none for seconds gets no
            // more time.
            rnr_retry: 6,
            link: LinkSettings::default(),
            connect_timeout: Duration::from_secs(10),
            accept_timeout: Duration::from_secs(5),
            linger: Duration::from_secs(1),
            flush_timeout: Duration::from_secs(5),
            last_receive_timeout: Duration::from_millis(20),
            look_interval: Duration::from_micros(200),
            receives_each: 32,
            spare: 8,
            shared_port: false,
            steering: None,
            elsewhere: Vec::new(),
            opens_regions: false,
            is_apart: false,
            always_sinks: false,
            outage: OutageReport::default(),
            sinks: [
                Class { slot_len: 64 << 10, count: 64 },
                // 1 MiB with the rest of a Long call's message around it.
                Class { slot_len: (1 << 20) + 8_192, count: 16 },
            ],
            now,
        }
    }
}

/// Regions of a device that are left for pools.
const KEPT_REGIONS: usize = 64;

/// Lowers the limits to those of the device; limits that cannot be lowered are an error. Returns
/// the depth of send queues.
pub(crate) fn fit(config: &mut IbverbsConfig, about: &DeviceAbout) -> io::Result<usize> {
    let too_few = |what: &str, has: usize, wanted: usize| {
        let text = format!("{} has {has} {what} and {wanted} are wanted", about.name);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    if about.is_iwarp && config.link != LinkSettings::default() {
        let text = format!(
            "{} speaks iWARP, which has no traffic class, acknowledgements and retries of its own: \
             leave --rdma-tos, --rdma-ack-timeout and --rdma-retry out",
            about.name
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let depth = config.queue_depth.min(about.queue_depth).max(1);
    let limits = &mut config.limits;
    // A device without shared queues: each connection has its part.
    if about.receives == 0 {
        let each = config.receives_each.min(about.queue_depth).min(limits.receives).max(1);
        limits.connections = limits.connections.min(limits.receives / each);
        limits.receives_each = Some(each);
    } else if limits.receives > about.receives {
        return too_few("receives", about.receives, limits.receives);
    }
    if about.has_windows && limits.windows > about.windows {
        return too_few("windows", about.windows, limits.windows);
    }
    // DESIGN D8: one completion queue holds whatever its send queues and receives bring; that is
    // the limit of connections.
    let held = about.completions.saturating_sub(limits.receives) / depth;
    if held == 0 {
        return too_few("completions", about.completions, limits.receives + depth);
    }
    limits.connections = limits.connections.min(held).min(about.queue_pairs.saturating_sub(1));
    limits.private_data_len = limits.private_data_len.min(PRIVATE_DATA_MAX);
    limits.windows = match (about.has_windows, config.opens_regions) {
        (true, _) => limits.windows,
        (false, true) => limits.windows.min(about.regions.saturating_sub(KEPT_REGIONS)),
        (false, false) => 0,
    };
    limits.sends_invalidation = about.sends_invalidation;
    limits.bears_invalidation = about.has_windows;
    config.reads = config.reads.min(about.reads);
    Ok(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections: 1_024,
        send_queue: 256,
        receives: 4_160,
        receives_each: None,
        receive_len: 4_096,
        windows: 32,
        read_spans: 64,
        private_data_len: 196,
        sends_invalidation: true,
        bears_invalidation: true,
    };

    fn fitted(change: impl FnOnce(&mut DeviceAbout)) -> io::Result<(Limits, usize)> {
        let mut about = DeviceAbout {
            name: "dev0".to_owned(),
            is_iwarp: false,
            has_windows: true,
            sends_invalidation: true,
            queue_pairs: 65_536,
            queue_depth: 16_384,
            completions: 32_767,
            receives: 32_768,
            windows: 1_024,
            regions: 4_096,
            reads: 16,
            invalidation_flags: 0,
            wants_sinks: false,
            is_soft: false,
        };
        change(&mut about);
        let mut config =
            IbverbsConfig::new(LIMITS, Through::Local(IpAddr::from([0, 0, 0, 0])), Time(0));
        let depth = fit(&mut config, &about)?;
        Ok((config.limits, depth))
    }

    #[test]
    fn connections_are_as_many_as_one_completion_queue_holds() {
        let (limits, depth) = fitted(|_| {}).unwrap();
        assert_eq!((limits.connections, depth), (223, 128));
        assert!(limits.receives + limits.connections * depth <= 32_767);
        let (limits, depth) = fitted(|about| about.queue_depth = 16).unwrap();
        assert_eq!((limits.connections, depth), (1_024, 16));
        assert_eq!(fitted(|about| about.queue_pairs = 9).unwrap().0.connections, 8);
        assert_eq!(limits.private_data_len, PRIVATE_DATA_MAX);
    }

    #[test]
    fn remote_invalidation_is_sent_and_borne_as_the_device_can() {
        let facts = |(limits, _): (Limits, usize)| {
            (limits.windows, limits.sends_invalidation, limits.bears_invalidation)
        };
        let without = fitted(|about| (about.has_windows, about.windows) = (false, 0)).unwrap();
        assert_eq!(facts(without), (0, true, false));
        assert_eq!(facts(fitted(|_| {}).unwrap()), (32, true, true));
        let cannot_send = fitted(|about| about.sends_invalidation = false).unwrap();
        assert_eq!(facts(cannot_send), (32, false, true));
    }

    #[test]
    fn a_device_that_has_too_little_says_of_what() {
        for (change, what) in [
            ((|about| about.receives = 4_159) as fn(&mut DeviceAbout), "4159 receives"),
            (|about| about.windows = 31, "31 windows"),
            (|about| about.completions = 4_160, "4160 completions"),
        ] {
            let error = fitted(change).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
