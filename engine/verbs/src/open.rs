//! Providers made from addresses: all that a table of fabrics has to know of one.

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

/// The form of a fabric's addresses, behind `SCHEME://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// `IP:PORT`.
    Ip,
    /// The absolute path of a socket, then parameters behind a question mark.
    Path,
    /// Anything else.
    Other,
}

/// The way in which several shards of one server listen at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All listen at the same port, and connections are spread over them.
    Port,
    /// Each shard listens at an address of its own ([`Open::of_shard`]).
    Apart,
    /// One shard listens, and no other.
    Nobody,
}

/// Has the address of a peer decide which of several shards that share a port gets it.
#[derive(Clone)]
pub struct Steering {
    set: Arc<SetListener>,
    place: fn(IpAddr, u32) -> u32,
    shards: u32,
}

/// Gets a socket that listens, and the number of shards; its error ends the attempt to listen.
type SetListener = dyn Fn(BorrowedFd<'_>, u32) -> io::Result<()> + Send + Sync;

impl Steering {
    /// Steers to `shards` shards. `place` says which one, counted in the order in which they began
    /// to listen, and `set` has the system do as it says for a socket that listens.
    pub fn new(
        shards: u32,
        place: fn(IpAddr, u32) -> u32,
        set: impl Fn(BorrowedFd<'_>, u32) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { set: Arc::new(set), place, shards }
    }

    /// Has the system steer the peers of `listener`.
    ///
    /// # Errors
    /// As the system refuses it.
    pub fn set(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        (self.set)(listener, self.shards)
    }

    /// The place of the shard that a peer from `source` gets.
    pub fn place(&self, source: IpAddr) -> usize {
        (self.place)(source, self.shards) as usize
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steering({} shards)", self.shards)
    }
}

/// Settings of connections over InfiniBand and RoCE. What is not set is left to the connection
/// manager and the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Traffic class of packets that this side sends: the octet whose upper six bits are the DSCP.
    pub traffic_class: Option<u8>,
    /// Time after which a packet without acknowledgement is sent again: 4.096 µs times two to the
    /// power of this, 0 to 31, of which 0 is no limit.
    pub ack_timeout: Option<u8>,
    /// Number of times that it is, 0 to 7, before the connection ends.
    pub retries: Option<u8>,
}

/// Settings for providers of every fabric. A fabric takes those that mean something to it.
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
    /// Number of this shard among those that listen at the same addresses, and how many these are:
    /// a fabric of devices divides its devices among them.
    pub place: usize,
    /// See [`place`](Self::place).
    pub places: usize,
    /// Has addresses of peers decide which of the shards that share a port gets them.
    pub steering: Option<Steering>,
    /// The thread that polls the provider changes its credentials, as one does that acts as other
    /// users on files. The kernel takes some calls about devices from unchanged ones alone.
    pub changes_user: bool,
    /// Connect from a port below 1024, where this process may take one ([`crate::source`]).
    pub reserved_port: bool,
    /// Protect messages by CRCs where the fabric lets us choose.
    pub crc: bool,
    /// Set-ups at a time that have not become connections, if not the fabric's default.
    pub half_open: Option<usize>,
    /// Peers that are heard while all connections are taken, if not the fabric's default.
    pub spare: Option<usize>,
    /// Processes of this host at a time, if not the fabric's default.
    pub links: Option<usize>,
    /// Users whose processes may connect, beside our own and root.
    pub allow: Vec<u32>,
    /// Sockets to listen by, in place of the provider's own.
    pub passed: PassedListeners,
    /// Connections over InfiniBand and RoCE.
    pub link: LinkSettings,
    /// Hears that a device cannot be reached, and why.
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

/// An address of this host at which two of its processes can meet, and facts about the fabric
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here<A> {
    /// The address; a port of 0 is chosen when somebody listens.
    pub at: A,
    /// Names and values, for people.
    pub facts: Vec<(&'static str, String)>,
}

/// A provider that URLs can name. Addresses are read from the whole URL and shown as one.
pub trait Open: Provider<Address: FromStr<Err: Display> + PartialEq> + Sized {
    /// The form of its addresses.
    const NOTATION: Notation;

    /// The way in which shards share an address.
    const SHARING: Sharing;

    /// True when a connection is a TCP connection, which takes a descriptor of this process.
    const IS_OVER_TCP: bool = false;

    /// True when both ends belong to one thread: a fabric for tests.
    const IS_SIMULATED: bool = false;

    /// The address on an IP network, if it is on one.
    fn ip(at: &Self::Address) -> Option<SocketAddr> {
        let _ = at;
        None
    }

    /// True when peers at `at` may map pools of ours, which then have to be shared ones.
    fn is_trusting(at: &Self::Address) -> bool {
        let _ = at;
        false
    }

    /// The address of shard `index` of a server that listens at `at`.
    ///
    /// # Errors
    /// A sentence when there is no such address.
    fn of_shard(at: &Self::Address, index: usize) -> Result<Self::Address, String> {
        let _ = index;
        Ok(at.clone())
    }

    /// The NUMA node of the device that shard `place` of a server at `at` has, on a fabric of
    /// devices, if the host says so.
    fn node(at: &[Self::Address], place: usize) -> Option<u32> {
        let _ = (at, place);
        None
    }

    /// An address of this host. A fabric of processes has its socket at `socket`, where nothing is
    /// yet.
    ///
    /// # Errors
    /// A sentence when the fabric has no address here.
    fn here(socket: &Path) -> Result<Here<Self::Address>, String>;

    /// A provider that listens at the addresses `at`; there is at least one.
    ///
    /// # Errors
    /// As the fabric's memory and descriptors fail.
    fn for_listening(settings: Settings, at: &[Self::Address]) -> io::Result<Self>;

    /// A provider that connects to `to`; or to nothing, for calls over TCP streams only.
    ///
    /// # Errors
    /// As the fabric's memory and descriptors fail, and when the fabric cannot lend memory to a
    /// peer.
    fn for_connecting(settings: Settings, to: Option<&Self::Address>) -> io::Result<Self>;
}
