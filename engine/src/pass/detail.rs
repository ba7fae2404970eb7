//! Describes the peers of a shard and its latest watched calls (`Command::Detail`).

use crate::{
    app::{App, Over, PeerId},
    detail::{Detail, PeerState, RdmaState},
    shard::Shard,
    state::{FabricLink, Link, Peer},
};
use stag_verbs::{Provider, Time};

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
