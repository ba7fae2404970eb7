//! The connections of a session, for those who watch. No call is judged by them: every connection
//! carries the fore channel of any session.

use super::BOUND_MAX;
use crate::parked::PeerAt;

/// The latest connections that a session was made over or bound to by BIND_CONN_TO_SESSION, the
/// oldest first.
#[derive(Debug, Default)]
pub(in crate::v4) struct BoundPeers(Vec<PeerAt>);

impl BoundPeers {
    /// Adds a connection. The oldest one makes room.
    pub(in crate::v4) fn add(&mut self, peer: PeerAt) {
        self.forget(peer);
        if self.0.len() >= BOUND_MAX {
            self.0.remove(0);
        }
        self.0.push(peer);
    }

    /// Forgets a connection that is gone.
    pub(in crate::v4) fn forget(&mut self, peer: PeerAt) {
        self.0.retain(|bound| *bound != peer);
    }

    /// The connections.
    pub(in crate::v4) fn iter(&self) -> impl Iterator<Item = PeerAt> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_engine::PeerId;

    fn peer(number: u16) -> PeerAt {
        PeerAt { shard: number, peer: PeerId::from_bits(1) }
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
    }
}
