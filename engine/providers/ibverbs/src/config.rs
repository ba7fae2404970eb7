//! What an [`Ibverbs`](crate::Ibverbs) is made of.

use stag_pools::Class;
use stag_verbs::{Limits, Time};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

/// Where to listen or connect, written `rdma://IP:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub SocketAddr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rdma://{}", self.0)
    }
}

impl FromStr for Address {
    type Err = std::net::AddrParseError;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix("rdma://").unwrap_or(text).parse().map(Self)
    }
}

/// Which device a shard uses. Its memory is registered there, so all its connections go through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// The one with this address of ours; the first one for an unspecified address.
    Local(IpAddr),
    /// The one that leads to this peer.
    Toward(SocketAddr),
}

/// What an [`Ibverbs`](crate::Ibverbs) is made of. [`Config::new`] has defaults for all but the limits and the device.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it holds. Lowered to what the device can: connections to those whose work fits one completion queue, windows to
    /// those it has, private data to 56 octets (what fits beside the address in a connect request).
    pub limits: Limits,
    /// The device.
    pub through: Through,
    /// Work requests of one connection that the device holds at a time; more wait here.
    pub queue_depth: usize,
    /// Longest message that travels in its work request. Lowered to what the device takes.
    pub inline_max: u32,
    /// Reads of the peer under way at a time, and ours. Lowered to what the device and the peer can.
    pub reads: u8,
    /// How often a message that finds no receive is sent again: 0 to 6 times, or 7: for ever.
    pub rnr_retry: u8,
    /// How long set-up may take.
    pub connect_timeout: Duration,
    /// How long what was posted may take to reach the peer after we ended the connection.
    pub linger: Duration,
    /// How long the device may take to give a dead connection's work back before its queue is destroyed.
    pub flush_timeout: Duration,
    /// How long to wait for the device's word that it holds no receive of a dead connection. Some devices never say it.
    pub last_receive_timeout: Duration,
    /// Longest time between two looks at the connection manager and the device.
    pub look_interval: Duration,
    /// Peers beyond the limit of connections whose requests the engine hears nevertheless, so that it can make room.
    pub spare: usize,
    /// Let Reads land in an arena of their own also where the device does not ask for it.
    pub always_sinks: bool,
    /// What that arena is made of: the longest slot is the longest span of a Read.
    pub sinks: [Class; 2],
    /// The time before the first poll.
    pub now: Time,
}

impl Config {
    /// The defaults around `limits` and the device.
    pub const fn new(limits: Limits, through: Through, now: Time) -> Self {
        Self {
            limits,
            through,
            queue_depth: 128,
            inline_max: 256,
            reads: 16,
            // Credits promise a receive (RFC 8166 §3.3.1): a peer that has none for seconds gets no more time.
            rnr_retry: 6,
            connect_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            flush_timeout: Duration::from_secs(5),
            last_receive_timeout: Duration::from_millis(20),
            look_interval: Duration::from_micros(200),
            spare: 8,
            always_sinks: false,
            sinks: [Class { slot_len: 64 << 10, count: 64 }, Class { slot_len: 1 << 20, count: 16 }],
            now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_written() {
        for text in ["rdma://10.0.2.15:20049", "rdma://[fe80::1]:20049"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.0.to_string().parse(), Ok(address));
        }
        assert!("iwarp://127.0.0.1:1".parse::<Address>().is_err());
    }
}
