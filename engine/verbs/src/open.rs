//! Providers made from addresses: the interface of a fabric for the table of fabrics.

use crate::{Limits, OutageReport, PassedListeners, Provider, Time};
use std::{
    fmt::{self, Display},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    path::Path,
    str::FromStr,
    sync::Arc,
};

/// The form of a fabric's addresses, after `SCHEME://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// `IP:PORT`.
    Ip,
    /// The absolute path of a socket, then parameters after a question mark.
    Path,
    /// Anything else.
    Other,
}

/// The way in which several shards of one server listen at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All listen at the same port, and connections are distributed over them.
    Port,
    /// Each shard listens at an address of its own ([`Open::of_shard`]).
    Apart,
    /// Only one shard can listen.
    Nobody,
}

/// Chooses one of several shards that share a port, by the address of the peer.
#[derive(Clone)]
pub struct Steering {
    set: Arc<SetListener>,
    place: fn(IpAddr, u32) -> u32,
    shards: u32,
}

/// Configures a listening socket for a number of shards; its error ends the attempt to listen.
type SetListener = dyn Fn(BorrowedFd<'_>, u32) -> io::Result<()> + Send + Sync;

impl Steering {
    /// Steers to `shards` shards. `place` returns the index of a peer's shard, in the order in
    /// which the shards began to listen; `set` makes the system follow it for a listening socket.
    pub fn new(
        shards: u32,
        place: fn(IpAddr, u32) -> u32,
        set: impl Fn(BorrowedFd<'_>, u32) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { set: Arc::new(set), place, shards }
    }

    /// Makes the system steer the peers of `listener`.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn set(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        (self.set)(listener, self.shards)
    }

    /// The index of the shard for a peer from `source`.
    pub fn place(&self, source: IpAddr) -> usize {
        (self.place)(source, self.shards) as usize
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steering({} shards)", self.shards)
    }
}

/// Settings of connections over InfiniBand and RoCE. Unset ones are left to the connection manager
/// and the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Traffic class of packets that this side sends: the octet whose upper six bits are the DSCP.
    pub traffic_class: Option<u8>,
    /// Time after which an unacknowledged packet is retransmitted: 4.096 µs times two to the power
    /// of this, 0 to 31, where 0 means no limit.
    pub ack_timeout: Option<u8>,
    /// Number of retransmissions, 0 to 7, before the connection ends.
    pub retries: Option<u8>,
}

/// Settings for providers of every fabric. A fabric ignores settings that do not apply to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The provider's limits.
    pub limits: Limits,
    /// Makes window keys unpredictable (RFC 5042 §6.4): take it from the operating system's
    /// generator.
    pub seed: [u8; 32],
    /// The time before the first poll.
    pub now: Time,
    /// Share ports with other shards ([`Sharing::Port`]).
    pub shared_port: bool,
    /// Index of this shard among the shards that listen at the same addresses; their number is
    /// `places`. A fabric of devices divides its devices among them.
    pub place: usize,
    /// See [`place`](Self::place).
    pub places: usize,
    /// Steers peers by address to one of the shards that share a port.
    pub steering: Option<Steering>,
    /// The polling thread changes its credentials, to act as other users on files. The kernel
    /// accepts some calls about devices only with unchanged credentials.
    pub changes_user: bool,
    /// Connect from a port below 1024, if this process may bind one ([`crate::source`]).
    pub reserved_port: bool,
    /// Protect messages by CRCs where the fabric makes that optional.
    pub crc: bool,
    /// Maximum of set-ups that have not become connections, if not the fabric's default.
    pub half_open: Option<usize>,
    /// Peers whose requests are reported although all connections are taken, if not the fabric's
    /// default.
    pub spare: Option<usize>,
    /// Maximum of processes of this host, if not the fabric's default.
    pub links: Option<usize>,
    /// Users whose processes may connect, in addition to our own and root.
    pub allow: Vec<u32>,
    /// Sockets to listen on, in place of the provider's own.
    pub passed: PassedListeners,
    /// Connections over InfiniBand and RoCE.
    pub link: LinkSettings,
    /// Is notified that a device cannot be reached, with the reason.
    pub outage: OutageReport,
}

impl Settings {
    /// The defaults around `limits` and `seed`.
    pub fn new(limits: Limits, seed: [u8; 32], now: Time) -> Self {
        Self {
            limits,
            seed,
            now,
            shared_port: false,
            place: 0,
            places: 1,
            steering: None,
            changes_user: false,
            reserved_port: false,
            crc: true,
            half_open: None,
            spare: None,
            links: None,
            allow: Vec::new(),
            passed: PassedListeners::NONE,
            link: LinkSettings::default(),
            outage: OutageReport::default(),
        }
    }
}

/// An address of this host at which two of its processes can connect, and facts about its fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here<A> {
    /// The address; a port of 0 is chosen on listening.
    pub at: A,
    /// Names and values, for display.
    pub facts: Vec<(&'static str, String)>,
}

/// A provider that URLs can name. Addresses are parsed from, and displayed as, the whole URL.
pub trait Open: Provider<Address: FromStr<Err: Display> + PartialEq> + Sized {
    /// The form of its addresses.
    const NOTATION: Notation;

    /// The way in which shards share an address.
    const SHARING: Sharing;

    /// True if a connection is a TCP connection, which takes a descriptor of this process.
    const IS_OVER_TCP: bool = false;

    /// True if both ends belong to one thread: a fabric for tests.
    const IS_SIMULATED: bool = false;

    /// The IP address and port, if the fabric has them.
    fn ip(at: &Self::Address) -> Option<SocketAddr> {
        let _ = at;
        None
    }

    /// True if peers at `at` may map our pools, which then have to be shared ones.
    fn is_trusting(at: &Self::Address) -> bool {
        let _ = at;
        false
    }

    /// The address of shard `index` of a server that listens at `at`.
    ///
    /// # Errors
    /// A sentence if there is no such address.
    fn of_shard(at: &Self::Address, index: usize) -> Result<Self::Address, String> {
        let _ = index;
        Ok(at.clone())
    }

    /// The NUMA node of the device that shard `place` of a server at `at` uses, on a fabric of
    /// devices, if the host reports it.
    fn node(at: &[Self::Address], place: usize) -> Option<u32> {
        let _ = (at, place);
        None
    }

    /// An address of this host. A fabric of processes has its socket at `socket`, which must not
    /// exist yet.
    ///
    /// # Errors
    /// A sentence if the fabric has no address here.
    fn here(socket: &Path) -> Result<Here<Self::Address>, String>;

    /// A provider that listens at the addresses `at`, at least one.
    ///
    /// # Errors
    /// As the fabric's memory and descriptors fail.
    fn for_listening(settings: Settings, at: &[Self::Address]) -> io::Result<Self>;

    /// A provider that connects to `to`; with `None`, one that only serves calls over TCP streams.
    ///
    /// # Errors
    /// As the fabric's memory and descriptors fail, and if the fabric cannot lend memory to a peer.
    fn for_connecting(settings: Settings, to: Option<&Self::Address>) -> io::Result<Self>;
}
