//! Judgement of connections by whoever runs the server: its lists may change while connections
//! live.

use stag_engine::{Over, PeerAddress};

/// Lists and limits of a server's connections, shared by all its shards.
///
/// A shard asks when a connection comes up and when it ends, and once per pass whether the lists
/// have changed; never for a call.
pub trait ConnectionPolicy: Send + Sync {
    /// Number of changes so far.
    fn edition(&self) -> u64;

    /// True if a peer may stay connected.
    fn admits(&self, peer: PeerAddress, over: Over) -> bool;

    /// True if the user who called is root of his host, as far as a connection can prove that. Over
    /// RDMA, those of other hosts are believed.
    fn is_proven(&self, peer: PeerAddress, over: Over) -> bool;

    /// Counts a connection that came up; false if it is one too many of its address. One that is
    /// not wanted is counted until [`closed`](Self::closed) as well.
    fn opened(&self, peer: PeerAddress) -> bool;

    /// Counts a connection that ended.
    fn closed(&self, peer: PeerAddress);
}
