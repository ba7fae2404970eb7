//! The peers of a shard and its latest watched calls: details beyond the counters
//! (`Command::Detail`).

use crate::{
    app::{App, Drained, Over, PeerId},
    peer::{FabricLink, Link, Peer},
    shard::Shard,
    stage_times::WatchedCall,
};
use stag_protocol::rpcrdma::{Invalidation, Side, Version};
use stag_verbs::{PeerAddress, Provider, Time};
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

impl<P: Provider, A: App> Shard<P, A> {
    /// Describes the peers and the latest watched calls.
    pub fn detail(&self) -> Detail {
        let now = self.core.now;
        let mut peers = Vec::with_capacity(self.core.peers.len());
        // By index of the peer: its index in `peers`.
        let mut place_of = vec![None; self.core.peers.capacity()];
        for (id, peer) in self.core.peers.iter().filter(|(_, peer)| peer.is_up()) {
            if let Some(place) = place_of.get_mut(id.0.index()) {
                *place = Some(peers.len());
            }
            peers.push(peer_state(id, peer, now));
        }
        for (id, came_at) in self.core.responder.in_progress() {
            let place = place_of.get(id.0.index()).copied().flatten();
            if let Some(peer) = place.and_then(|place| peers.get_mut(place)) {
                let age = now.since(came_at);
                peer.calls += 1;
                peer.oldest = Some(peer.oldest.map_or(age, |oldest| oldest.max(age)));
            }
        }
        let calls = self.core.watch.latest();
        Detail { now, is_draining: self.core.stopping, drained: self.core.drained, peers, calls }
    }
}

fn peer_state(id: PeerId, peer: &Peer, now: Time) -> PeerState {
    let latest = peer.grant.latest();
    let (over, rdma) = match &peer.link {
        Link::Stream(_) => (Over::Tcp, None),
        Link::Fabric(FabricLink { state: Some(connection), .. }) => {
            let credits = connection.serves();
            let rdma = RdmaState {
                version: connection.version(),
                requested: latest.wanted,
                granted: credits.map_or(0, |credits| credits.granted().0),
                used: credits.map_or(0, stag_protocol::rpcrdma::ResponderCredits::outstanding),
                send_threshold: connection.send_threshold().octets(),
                receive_threshold: connection.receive_threshold().octets(),
                invalidation: connection.invalidation(),
            };
            (Over::Fabric, Some(rdma))
        }
        Link::Fabric(FabricLink { state: None, .. }) | Link::Lost { .. } | Link::Absent { .. } => {
            (Over::Fabric, None)
        }
    };
    let octets = peer.served.octets();
    PeerState {
        id,
        address: peer.address,
        over,
        side: peer.side,
        rdma,
        calls: 0,
        oldest: None,
        silent: now.since(latest.called_at),
        moved: octets.moved,
        held: octets.held,
    }
}
