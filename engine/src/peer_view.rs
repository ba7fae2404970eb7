//! Peers as an app sees them: IDs, names, transports, security, and refusals by a limit.

use stag_pools::table::Key;
use stag_tls::{Secured, TlsError};
use stag_verbs::PeerAddress;
use std::{net::IpAddr, time::Duration};

/// One peer, over any transport, for the lifetime of its connection. A peer that is kept connected
/// ([`Shard::keep_connected`](crate::Shard::keep_connected)) or was adopted
/// ([`Cx::adopt`](crate::Cx::adopt)) outlives its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) Key);

impl PeerId {
    /// The index of the peer in its shard's table, and the generation of that entry.
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The peer with these bits. If it is gone or never existed, the ID matches no peer.
    pub const fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }
}

/// The app's name for a client that may reconnect: an identifier of its upper layer, such as the
/// client ID of NFS 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientName(pub u64);

/// The transport of a peer's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// RPC over RDMA, on the shard's fabric.
    Fabric,
    /// RPC over TCP.
    Tcp,
}

/// Counts of a connection that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parted {
    /// The peer's address, if the connection had a peer.
    pub from: Option<PeerAddress>,
    /// Calls of the peer that were not answered.
    pub calls: usize,
    /// Octets pulled from it and pushed to it; over TCP all octets.
    pub octets: u64,
}

/// Security of a connection over TCP, as reported to
/// [`App::on_security`](crate::App::on_security).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerSecurity {
    /// A peer that could have TLS calls without it.
    Clear,
    /// A session is established.
    Secured(Secured),
    /// No session could be established, and the connection ends.
    Failed(TlsError),
}

/// A peer that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPeer {
    /// Its address. None if the connection could not even be accepted.
    pub from: Option<PeerAddress>,
    /// The transport that it used.
    pub over: Over,
    /// The limit.
    pub limit: ConnectLimit,
}

/// A limit that causes peers to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectLimit {
    /// Not even one receive is left for another connection.
    Receives,
    /// All places for peers are taken.
    Peers,
    /// The fabric takes no more connections.
    Fabric,
    /// The process has no more descriptors, or the system no memory.
    Descriptors,
    /// The shard accepts no peers: it stops or drains.
    Stopping,
}

impl ConnectLimit {
    /// The limit, and advice on raising it.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Receives => "no receive is left for another connection: add cores (--cores)",
            Self::Peers => "all places for connections are taken: add cores (--cores)",
            Self::Fabric => "the fabric takes no more connections: add cores (--cores)",
            Self::Descriptors => "no descriptor is left: raise the limit (ulimit -n)",
            Self::Stopping => "this server takes no connections, because it stops or drains",
        }
    }
}

/// The result of a drain, whether ordered or part of stopping the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The time from the order until all peers were disconnected.
    pub took: Duration,
    /// Calls that got no reply.
    pub unanswered: usize,
    /// The time limit [`Config::drain`](crate::Config::drain) ended before all work was done.
    pub is_cut: bool,
}

/// A client host: the unit of fair shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientHost {
    Ip(IpAddr),
    /// A user of this host.
    User(u32),
    /// A connection of a simulated fabric is its own host, at this shard or another one.
    Peer(PeerId),
    Remote(u16, PeerId),
}

impl ClientHost {
    pub(crate) fn of(address: PeerAddress, simulated: Self) -> Self {
        match address {
            PeerAddress::Ip(at) => Self::Ip(at.ip().to_canonical()),
            PeerAddress::Process { uid, .. } => Self::User(uid),
            PeerAddress::Simulated => simulated,
        }
    }
}
