//! Connected peers of one shard: their addresses, and the identities their connections prove.

use std::{collections::HashMap, fmt, sync::Arc};

use stag_engine::{Cx, Over, PeerAddress, PeerId};

use super::connection_policy::ConnectionPolicy;
use stag_nfs_store::log_rate::EventRate;

/// One connected peer.
#[derive(Clone, Copy, Debug)]
struct ConnectedPeer {
    address: PeerAddress,
    over: Over,
    is_proven: bool,
}

/// Connected peers, and the policy that checks them. Without a policy, all peers are trusted and
/// none are counted.
pub(super) struct ConnectedPeers {
    policy: Option<Arc<dyn ConnectionPolicy>>,
    /// The policy's edition by which all peers were checked.
    edition: u64,
    peers: HashMap<PeerId, ConnectedPeer>,
    /// Rate of peers that exceeded the limit of their address.
    crowded: EventRate,
}

impl Default for ConnectedPeers {
    fn default() -> Self {
        let crowded = EventRate::new("connections beyond --connections-per-address");
        Self { policy: None, edition: 0, peers: HashMap::new(), crowded }
    }
}

impl fmt::Debug for ConnectedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedPeers").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl ConnectedPeers {
    /// Connected peers that `policy` checks.
    pub fn new(policy: Arc<dyn ConnectionPolicy>) -> Self {
        let mut peers = Self::default();
        (peers.edition, peers.policy) = (policy.edition(), Some(policy));
        peers
    }

    /// True if a peer's user is root of its host, or no policy requires that.
    pub fn is_proven(&self, peer: PeerId) -> bool {
        self.policy.is_none() || self.peers.get(&peer).is_some_and(|peer| peer.is_proven)
    }

    /// Notes a new peer. A peer above the limit of its address is disconnected.
    pub fn add(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        let (Some(policy), Some((address, over))) = (&self.policy, cx.whereabouts(peer)) else {
            return;
        };
        let is_proven = policy.is_proven(address, over);
        // The lists may have changed since it was admitted, and others of its address have come.
        let (has_room, is_listed) = (policy.opened(address), policy.admits(address, over));
        if let Some(before) = self.peers.insert(peer, ConnectedPeer { address, over, is_proven }) {
            policy.closed(before.address);
        }
        if !is_listed {
            tracing::warn!(target: "stag", peer = %address, "not a client any more");
        } else if !has_room && self.crowded.allows(cx.now()) {
            tracing::warn!(
                target: "stag",
                peer = %address,
                "refused: others of its address came at the same moment \
                 (--connections-per-address)"
            );
        }
        if !(has_room && is_listed) {
            cx.disconnect(peer);
        }
    }

    /// Removes a disconnected peer.
    pub fn remove(&mut self, peer: PeerId) {
        if let (Some(policy), Some(gone)) = (&self.policy, self.peers.remove(&peer)) {
            policy.closed(gone.address);
        }
    }

    /// Disconnects peers that the lists no longer admit, once after each change.
    pub fn review(&mut self, cx: &mut Cx<'_>) {
        let Some(policy) = &self.policy else { return };
        let edition = policy.edition();
        if edition == self.edition {
            return;
        }
        self.edition = edition;
        for (id, peer) in &mut self.peers {
            peer.is_proven = policy.is_proven(peer.address, peer.over);
            if !policy.admits(peer.address, peer.over) {
                tracing::warn!(target: "stag", peer = %peer.address, "not a client any more");
                cx.disconnect(*id);
            }
        }
    }
}

impl Drop for ConnectedPeers {
    fn drop(&mut self) {
        let Some(policy) = &self.policy else { return };
        self.peers.values().for_each(|peer| policy.closed(peer.address));
    }
}
