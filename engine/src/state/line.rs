//! Peers whose calls wait for memory or room (see `responder/line.rs`).

use crate::{memory::Lane, peer_view::PeerId};
use stag_pools::table::Key;
use std::collections::VecDeque;

/// The obstacle of a peer whose calls or record cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing waits.
    Nothing,
    /// Its turn, later in this pass or in the next one.
    Turn,
    /// The completion of its own work: a Read, a reply, a Send.
    Itself,
    /// A buffer of the shard for at least this number of octets.
    Memory(usize),
}

/// All peers that wait.
#[derive(Debug)]
pub(crate) struct Line {
    /// For each entry of `inbound`, the next waiting call of its peer.
    pub(crate) behind: Box<[Option<Key>]>,
    /// Peers that wait for memory, in order: proven ones, and newcomers. Each peer is in one line,
    /// once.
    pub(crate) lanes: [VecDeque<PeerId>; 2],
    /// Peers to be served next.
    pub(crate) turns: VecDeque<PeerId>,
    /// Number of peers that wait for anything.
    pub(crate) count: usize,
    /// Number of free buffers when the lines were last served.
    pub(crate) seen: usize,
}

impl Line {
    /// A line for `calls` calls of `peers` peers.
    pub(crate) fn new(calls: usize, peers: usize) -> Self {
        let lane = || VecDeque::with_capacity(peers);
        Self {
            behind: vec![None; calls].into(),
            lanes: [lane(), lane()],
            turns: lane(),
            count: 0,
            seen: usize::MAX,
        }
    }

    /// Returns true if no peer waits.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Peers of this lane that wait for a buffer.
    pub(crate) const fn lane(&mut self, lane: Lane) -> &mut VecDeque<PeerId> {
        let [proven, newcomers] = &mut self.lanes;
        match lane {
            Lane::Proven => proven,
            Lane::Newcomer => newcomers,
        }
    }

    /// Removes a peer from its line, if it is in one.
    pub(crate) fn leave(&mut self, peer: PeerId) {
        for lane in &mut self.lanes {
            if let Some(at) = lane.iter().position(|other| *other == peer) {
                lane.remove(at);
                debug_assert!(
                    !self.lanes.iter().any(|lane| lane.contains(&peer)),
                    "one line, once"
                );
                return;
            }
        }
    }

    /// Number of peers in the lines.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// The peer whose turn it is.
    pub(crate) fn next_turn(&mut self) -> Option<PeerId> {
        self.turns.pop_front()
    }

    /// Number of peers whose turn it is.
    pub(crate) fn turns(&self) -> usize {
        self.turns.len()
    }
}
