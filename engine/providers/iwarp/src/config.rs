//! What an [`Iwarp`](crate::Iwarp) is made of.

use stag_protocol::iwarp::mpa::{self, Crc};
use stag_verbs::{Limits, Time};
use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

/// Where to listen or connect, written `iwarp://IP:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub SocketAddr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iwarp://{}", self.0)
    }
}

impl FromStr for Address {
    type Err = std::net::AddrParseError;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix("iwarp://").unwrap_or(text).parse().map(Self)
    }
}

/// How long FPDUs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduMax {
    /// As long as the peer takes well: one TCP segment for adapters, the full length for software.
    Auto,
    /// One TCP segment for everybody.
    Segment,
    /// The full length for everybody.
    Full,
    /// This many octets of ULPDU, brought into the range of RFC 5044 §4.5.
    Ulpdu(u16),
}

/// Most inbound, and most outbound, Reads of one connection: the places in its tables, which are most of the memory that an
/// idle connection has. Reads beyond wait their turn; adapters have as many (RFC 6581 §9.1 lets the sides agree on fewer).
pub const READS_MAX: u16 = 32;

// A peer that rounds up to a power of two (siw) does not go beyond what it was granted.
const _: () = assert!(READS_MAX.is_power_of_two());

/// What an [`Iwarp`](crate::Iwarp) is made of. [`Config::new`] has defaults for all but the limits and the seed.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it holds. `private_data_len` is brought down to 248 (what every peer takes).
    pub limits: Limits,
    /// Makes window keys unpredictable (RFC 5042 §6.4): take it from the operating system's generator.
    pub seed: [u8; 32],
    /// When to ask for CRCs. Only an administrator may turn them off (RFC 5044 §4.4), and the peer may still insist.
    pub crc: Crc,
    /// Inbound Reads of one connection: a power of two, at most [`READS_MAX`].
    pub ird: u16,
    /// Outbound Reads of one connection, at most [`READS_MAX`].
    pub ord: u16,
    /// How long FPDUs are made.
    pub fpdu_max: FpduMax,
    /// How long a peer that connected may take for its MPA Request (RFC 5044 §7.1.2).
    pub request_timeout: Duration,
    /// How long a peer that we accepted may take for its first FPDU; a peer that sends none holds a place of `connections`.
    /// Whoever connects sends one at once, because the acceptor has to wait for it (RFC 5044 §7.1.2): the indication of
    /// RFC 6581 §9.2, or its first message. Linux' NFS client, which connects when it has a call to send, does either.
    pub first_message_timeout: Duration,
    /// How long TCP and MPA set-up may take as seen by the side that connects.
    pub reply_timeout: Duration,
    /// How long to read on after a Terminate or our FIN, so that the peer sees them before a reset.
    pub linger: Duration,
    /// How long octets may stay unacknowledged before TCP gives the peer up.
    pub user_timeout: Duration,
    /// How long a connection may be silent before TCP asks whether the peer lives.
    pub keepalive: Duration,
    /// How long to take no connections when descriptors run out.
    pub accept_pause: Duration,
    /// Accepted TCP connections at a time whose MPA Request is not there yet. They take no place of `connections`. When there
    /// is one more, the oldest is closed: among those of its own host, if that has more than a quarter of them, else of all.
    pub half_open: usize,
    /// Peers beyond `connections` whose connect requests the engine hears nevertheless, so that it can make room for the
    /// next attempt. It cannot accept them while all connections are taken: they are rejected, as those beyond are unheard.
    pub spare: usize,
    /// Messages that may wait for a receive, of all connections together.
    pub parking: usize,
    /// Let several listeners share a port, the kernel choosing among them.
    pub reuse_port: bool,
    /// Connect from a port below 1024, where this process may take one ([`stag_verbs::source`]).
    pub reserved_port: bool,
    /// `SO_SNDBUF` in octets; `None` leaves it to the kernel's tuning.
    pub send_buffer: Option<usize>,
    /// `SO_RCVBUF` in octets; `None` leaves it to the kernel's tuning.
    pub receive_buffer: Option<usize>,
    /// The time before the first poll.
    pub now: Time,
}

impl Config {
    /// The defaults around `limits` and `seed`.
    pub const fn new(limits: Limits, seed: [u8; 32], now: Time) -> Self {
        Self {
            limits,
            seed,
            crc: Crc::Auto,
            ird: READS_MAX,
            ord: READS_MAX,
            fpdu_max: FpduMax::Auto,
            request_timeout: Duration::from_secs(5),
            first_message_timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            user_timeout: Duration::from_secs(20),
            keepalive: Duration::from_secs(10),
            accept_pause: Duration::from_millis(100),
            half_open: 64,
            spare: 8,
            parking: 64,
            reuse_port: false,
            reserved_port: false,
            send_buffer: None,
            receive_buffer: None,
            now,
        }
    }

    /// What MPA negotiates from.
    pub(crate) fn mpa(&self) -> mpa::Config {
        mpa::Config {
            crc: self.crc,
            // RFC 5040 §5.2.2, §6.1 [5040-31]
            ird: self.ird.min(READS_MAX),
            ord: self.ord.min(READS_MAX),
            ..mpa::Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_written() {
        for text in ["iwarp://127.0.0.1:20049", "iwarp://[::1]:20049"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.0.to_string().parse(), Ok(address));
        }
        assert!("rdma://127.0.0.1:1".parse::<Address>().is_err());
    }

    #[test]
    fn no_more_reads_are_negotiated_than_have_places() {
        let limits = Limits {
            connections: 1,
            send_queue: 1,
            receives: 1,
            receive_len: 1024,
            windows: 1,
            read_spans: 1,
            private_data_len: 0,
            remote_invalidation: true,
        };
        for (asked, offered) in
            [(1, 1), (READS_MAX, READS_MAX), (READS_MAX + 1, READS_MAX), (u16::MAX, READS_MAX)]
        {
            let mpa = Config { ird: asked, ord: asked, ..Config::new(limits, [0; 32], Time(0)) }.mpa();
            assert_eq!((mpa.ird, mpa.ord), (offered, offered));
        }
    }
}
