//! The table of all peers of a shard.

use super::peer::{FabricLink, Link, Peer};
use crate::peer_view::PeerId;
use stag_pools::{
    Table,
    table::{Line, Walk},
};
use stag_protocol::rpcrdma::Connection;
use stag_verbs::{Qp, Time};
use std::time::Duration;

/// Longest pause between two attempts to connect, and the first one that is not zero.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The index of no peer.
const NOBODY: u32 = u32::MAX;

/// All peers of a shard.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) table: Table<Peer, Line>,
    /// The peer's index for each index of the provider's connection table. It may be stale: the
    /// peer's link is compared. Sixteen entries share a cache line.
    by_qp: Vec<u32>,
    /// Peers whose connection is to be re-established.
    pub(crate) lost: usize,
    /// Peers that may come back.
    pub(crate) absent: usize,
    jitter: u64,
}

impl Peers {
    /// Room for `places` peers, on a fabric with `connections` connections; `seed` varies the
    /// pauses between attempts to connect.
    pub(crate) fn new(places: usize, connections: usize, seed: u32) -> Self {
        Self {
            table: Table::new(places),
            by_qp: vec![NOBODY; connections],
            lost: 0,
            absent: 0,
            jitter: seed.into(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.table.get(peer.0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.table.get_mut(peer.0)
    }

    /// The connection of a fabric peer.
    pub(crate) fn connection(&mut self, peer: PeerId) -> Option<(Qp, &mut Connection)> {
        match &mut self.get_mut(peer)?.link {
            Link::Fabric(FabricLink { qp, state: Some(state) }) => Some((*qp, state)),
            Link::Fabric(FabricLink { state: None, .. })
            | Link::Lost { .. }
            | Link::Absent { .. }
            | Link::Stream(_) => None,
        }
    }

    /// The peer of a connection of the provider.
    #[inline]
    pub(crate) fn of_qp(&self, qp: Qp) -> Option<PeerId> {
        let place = *self.by_qp.get(qp.0.index())? as usize;
        match &self.table.at(place)?.link {
            Link::Fabric(link) if link.qp == qp => self.table.key_at(place).map(PeerId),
            _ => None,
        }
    }

    /// The same, mutably.
    #[inline(always)]
    pub(crate) fn of_qp_mut(&mut self, qp: Qp) -> Option<(PeerId, &mut Peer)> {
        let place = *self.by_qp.get(qp.0.index())? as usize;
        let (key, entry) = self.table.entry_at(place)?;
        let is_it = matches!(&entry.link, Link::Fabric(link) if link.qp == qp);
        is_it.then_some((PeerId(key), entry))
    }

    /// The successor of a peer whose name went to another connection; otherwise the peer itself.
    #[inline]
    pub(crate) fn known_as(&self, peer: PeerId) -> PeerId {
        self.get(peer).map_or(peer, |entry| entry.known_as(peer))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.table.iter().map(|(key, peer)| (PeerId(key), peer))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PeerId, &mut Peer)> {
        self.table.iter_mut().map(|(key, peer)| (PeerId(key), peer))
    }

    /// The next peer of a walk.
    pub(crate) fn next(&mut self, walk: &mut Walk) -> Option<(PeerId, &mut Peer)> {
        walk.next(&mut self.table).map(|(key, peer)| (PeerId(key), peer))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The maximum number of peers.
    pub(crate) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns true if a connection is to be re-established.
    pub(crate) const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Records the peer of a connection. A provider may use indices beyond its maximum of
    /// connections, because some are still ending. The table then grows at a connection's start,
    /// never while a call is handled.
    pub(crate) fn name_qp(&mut self, qp: Qp, peer: PeerId) {
        debug_assert!(self.get(peer).is_some(), "a connection has a peer in the table");
        let place = qp.0.index();
        if place >= self.by_qp.len() {
            self.by_qp.resize(place + 1, NOBODY);
        }
        if let Some(entry) = self.by_qp.get_mut(place) {
            *entry = peer.0.index() as u32;
        }
    }

    /// Records the peer of a link's fabric connection.
    pub(crate) fn name_link(&mut self, peer: PeerId) {
        if let Some(&Peer { link: Link::Fabric(FabricLink { qp, .. }), .. }) = self.get(peer) {
            self.name_qp(qp, peer);
        }
    }

    /// Clears the entry of a connection that has ended.
    pub(crate) fn forget_qp(&mut self, qp: Qp) {
        if let Some(entry) = self.by_qp.get_mut(qp.0.index()) {
            *entry = NOBODY;
        }
    }

    /// The earliest time at which a connection is to be retried.
    pub(crate) fn retry_at(&self) -> Option<Time> {
        let retry_at = |peer: &Peer| match peer.link {
            Link::Lost { retry_at } => Some(retry_at),
            _ => None,
        };
        self.table.iter().filter_map(|(_, peer)| retry_at(peer)).min()
    }

    /// The pause before attempt `attempts` to connect: none, then 50 ms doubling to 5 s. A quarter
    /// of it is random, so that clients of one server do not reconnect together.
    pub(crate) fn pause(&mut self, attempts: u32) -> Duration {
        let Some(doublings) = attempts.checked_sub(1) else { return Duration::ZERO };
        let pause = PAUSE_MIN.saturating_mul(1 << doublings.min(7)).min(PAUSE_MAX);
        // A linear congruential step (Knuth): good enough to spread clients, and a seed repeats it.
        self.jitter = self
            .jitter
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        debug_assert!((PAUSE_MIN..=PAUSE_MAX).contains(&pause), "a pause keeps its limits");
        let quarter = pause / 4;
        pause - quarter + quarter.mul_f64((self.jitter >> 40) as f64 / f64::from(1 << 24))
    }
}
