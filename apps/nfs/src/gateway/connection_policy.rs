//! Connection policy set by the server's operator: its lists may change while connections are open.

use stag_engine::{Over, PeerAddress};

/// Lists and limits of a server's connections, shared by all its shards.
///
/// A shard calls it when a connection opens and closes, and once per pass to check for changed
/// lists; never for a call.
pub trait ConnectionPolicy: Send + Sync {
    /// Number of changes so far.
    fn edition(&self) -> u64;

    /// True if a peer may stay connected.
    fn admits(&self, peer: PeerAddress, over: Over) -> bool;

    /// True if the calling user is root of its host, as far as a connection can prove that. Over
    /// RDMA, users of other hosts are trusted.
    fn is_proven(&self, peer: PeerAddress, over: Over) -> bool;

    /// Counts a new connection; false if it exceeds the limit of its address. A refused one is
    /// counted until [`closed`](Self::closed) as well.
    fn opened(&self, peer: PeerAddress) -> bool;

    /// Counts a connection that ended.
    fn closed(&self, peer: PeerAddress);
}
