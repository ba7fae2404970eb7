//! The connections that are associated with a session (RFC 8881 §2.10.3.1): it was created over
//! them, they were bound to it, or they carried a SEQUENCE from an origin of its client. A request
//! over any other connection is first checked by its origin.

use super::BOUND_MAX;
use crate::requester::ShardPeer;

/// The latest connections that were associated with a session, the oldest first.
#[derive(Debug, Default)]
pub(in crate::v4) struct BoundPeers {
    /// The latest one, which carries most requests.
    latest: Option<ShardPeer>,
    all: Vec<ShardPeer>,
}

impl BoundPeers {
    /// Adds a connection, in place of the oldest one if there are too many.
    pub(in crate::v4) fn add(&mut self, peer: ShardPeer) {
        self.forget(peer);
        if self.all.len() >= BOUND_MAX {
            self.all.remove(0);
        }
        self.all.push(peer);
        self.latest = Some(peer);
    }

    /// Returns true if a connection is associated.
    #[inline]
    pub(in crate::v4) fn has(&self, peer: ShardPeer) -> bool {
        self.latest == Some(peer) || self.all.contains(&peer)
    }

    /// Removes a closed connection.
    pub(in crate::v4) fn forget(&mut self, peer: ShardPeer) {
        self.all.retain(|bound| *bound != peer);
        self.latest.take_if(|latest| *latest == peer);
    }

    /// Returns true if no connection is associated.
    pub(in crate::v4) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The connections.
    pub(in crate::v4) fn iter(&self) -> impl Iterator<Item = ShardPeer> {
        self.all.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_engine::PeerId;

    fn peer(number: u16) -> ShardPeer {
        ShardPeer { shard: number, peer: PeerId::from_bits(1) }
    }

    #[test]
    fn the_latest_connections_are_remembered_each_once_until_they_are_gone() {
        let mut bound = BoundPeers::default();
        let latest = BOUND_MAX as u16 + 2;
        (0..latest).chain([5]).for_each(|number| bound.add(peer(number)));
        bound.forget(peer(7));
        bound.forget(peer(0));
        let expected = [2, 3, 4, 6].into_iter().chain(8..latest).chain([5]).map(peer);
        assert!(bound.iter().eq(expected), "{bound:?}");
        assert!(bound.has(peer(5)) && bound.has(peer(3)) && !bound.has(peer(7)));
        bound.forget(peer(5));
        assert!(!bound.has(peer(5)));
    }
}
