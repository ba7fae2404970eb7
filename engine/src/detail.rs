//! The peers of a shard and its latest watched calls: details beyond the counters
//! (`Command::Detail`).

use crate::{
    peer_view::{Drained, Over, PeerId},
    stage_times::WatchedCall,
};
use stag_protocol::rpcrdma::{Invalidation, Side, Version};
use stag_verbs::{PeerAddress, Time};
use std::time::Duration;

/// The peers of a shard and its latest calls, at one moment.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The time of the latest pass.
    pub now: Time,
    /// Connections are refused, because the shard drains.
    pub is_draining: bool,
    /// The result of the drain; none while it runs, and if there was none.
    pub drained: Option<Drained>,
    /// Peers with a connection.
    pub peers: Vec<PeerState>,
    /// The latest watched calls, the oldest first.
    pub calls: Vec<WatchedCall>,
}

/// One peer and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Its ID in the shard, for the lifetime of its connection.
    pub id: PeerId,
    /// Its address.
    pub address: PeerAddress,
    /// Over the fabric, or over TCP.
    pub over: Over,
    /// Our role: server if the peer connected.
    pub side: Side,
    /// Facts about a connection of the fabric; None over TCP, and while connecting.
    pub rdma: Option<RdmaState>,
    /// Calls of the peer that are not answered yet.
    pub calls: u32,
    /// The time for which the oldest of them has been in progress, as of the latest pass.
    pub oldest: Option<Duration>,
    /// The time since its latest call, over the fabric.
    pub silent: Duration,
    /// Octets pulled from it and pushed to it; over TCP all octets.
    pub moved: u64,
    /// Octets of the shard's memory that the peer holds and others cannot use.
    pub held: u64,
}

/// One connection of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaState {
    /// The negotiated version, once it is known.
    pub version: Option<Version>,
    /// Credits that the peer's latest call asked for.
    pub requested: u32,
    /// Credits that are granted to it (RFC 8166 §3.3.1).
    pub granted: u32,
    /// Credits that its calls in progress use.
    pub used: u32,
    /// Longest message that we send inline, in octets (RFC 8166 §3.3.2).
    pub send_threshold: usize,
    /// Longest message that the peer sends inline.
    pub receive_threshold: usize,
    /// The way in which our replies invalidate its keys.
    pub invalidation: Invalidation,
}
