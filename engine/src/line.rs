//! Calls of peers that wait for memory or room, and in which order they go on.
//!
//! A peer's calls wait behind one another, so that it waits for one thing at a time. Peers whose first call waits for memory
//! stand in one of two lines, for memory goes to the first one; each gets one call served and goes to the end. All others
//! wait for something of their own (room in their send queue, or in their share), and are looked at when a piece of their work has ended.

use crate::{
    app::PeerId,
    core::{Core, Peer},
    memory::Lane,
};
use stag_pools::table::Key;
use std::{collections::VecDeque, time::Duration};

/// What a peer waits for whose calls, or whose record, cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing waits.
    Nothing,
    /// It is looked at in this pass.
    Turn,
    /// The end of work of its own.
    Itself,
    /// A buffer of the shard for at least so many octets.
    Memory(usize),
}

/// All peers that wait.
#[derive(Debug)]
pub(crate) struct Line {
    /// The call that waits behind each place of `inbound`.
    behind: Box<[Option<Key>]>,
    /// Peers that wait for memory, in order: proven ones, and newcomers. A peer may have left meanwhile.
    lanes: [VecDeque<PeerId>; 2],
    /// Peers that are to be looked at.
    turns: VecDeque<PeerId>,
    /// Peers that wait for anything.
    count: usize,
    /// Free buffers when those in the lines were looked at.
    pub(crate) seen: usize,
}

impl Line {
    /// For so many calls of so many peers.
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

    /// Whether nobody waits.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Peers of this part of the memory that wait for a buffer.
    pub(crate) const fn lane(&mut self, lane: Lane) -> &mut VecDeque<PeerId> {
        let [proven, newcomers] = &mut self.lanes;
        match lane {
            Lane::Proven => proven,
            Lane::Newcomer => newcomers,
        }
    }

    /// Peers that stand in a line, at most.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// The peer whose turn it is.
    pub(crate) fn next_turn(&mut self) -> Option<PeerId> {
        self.turns.pop_front()
    }

    /// Peers whose turn it is.
    pub(crate) fn turns(&self) -> usize {
        self.turns.len()
    }
}

impl Core {
    /// Which part of the memory a peer may use.
    pub(crate) fn lane(&self, peer: PeerId) -> Lane {
        let share = self.memory.share();
        let is_proven = self.peers.get(peer.0).is_some_and(|entry| entry.account.is_proven(share));
        if is_proven { Lane::Proven } else { Lane::Newcomer }
    }

    /// Whether somebody waits for this part of the memory.
    pub(crate) fn is_awaited(&self, lane: Lane) -> bool {
        let [proven, newcomers] = &self.line.lanes;
        match lane {
            Lane::Proven => !proven.is_empty(),
            Lane::Newcomer => !newcomers.is_empty(),
        }
    }

    /// Puts a call behind all others of its peer that wait.
    pub(crate) fn defer(&mut self, peer: PeerId, call: Key) {
        let Some(entry) = self.peers.get_mut(peer.0) else { return };
        if let Some(place) = self.line.behind.get_mut(call.index()) {
            *place = None;
        }
        entry.deferred = match entry.deferred {
            Some((first, last)) => {
                if let Some(place) = self.line.behind.get_mut(last.index()) {
                    *place = Some(call);
                }
                Some((first, call))
            }
            None => Some((call, call)),
        };
    }

    /// The first call of a peer that waits.
    pub(crate) fn first_deferred(&self, peer: PeerId) -> Option<Key> {
        self.peers.get(peer.0)?.deferred.map(|(first, _)| first)
    }

    /// The first call of a peer waits no more.
    pub(crate) fn advance(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(peer.0) else { return };
        let Some((first, last)) = entry.deferred else { return };
        let next = self.line.behind.get_mut(first.index()).and_then(Option::take);
        entry.deferred = next.map(|next| (next, last));
        entry.waits_since = self.now;
    }

    /// Says what a peer waits for.
    pub(crate) fn set_wait(&mut self, peer: PeerId, wait: Wait) {
        let (now, lane) = (self.now, self.lane(peer));
        let Some(entry) = self.peers.get_mut(peer.0) else { return };
        let was = std::mem::replace(&mut entry.wait, wait);
        let in_line = |wait: Wait| matches!(wait, Wait::Memory(_));
        match (was, wait) {
            (Wait::Nothing, Wait::Nothing) => return,
            (Wait::Nothing, _) => {
                self.line.count += 1;
                entry.waits_since = now;
            }
            (_, Wait::Nothing) => self.line.count -= 1,
            _ => {}
        }
        match wait {
            Wait::Memory(_) if !in_line(was) => self.line.lane(lane).push_back(peer),
            Wait::Turn if was != Wait::Turn => self.line.turns.push_back(peer),
            _ => {}
        }
    }

    /// Has a peer looked at that waits for work of its own, for some of that has ended.
    #[inline]
    pub(crate) fn wake(&mut self, peer: PeerId) {
        if self.peers.get(peer.0).is_some_and(|entry| entry.wait == Wait::Itself) {
            self.set_wait(peer, Wait::Turn);
        }
    }

    /// Forgets the calls of a peer that wait, for its connection is over.
    pub(crate) fn forget_deferred(&mut self, peer: PeerId) {
        self.set_wait(peer, Wait::Nothing);
        self.peers.get_mut(peer.0).into_iter().for_each(|entry| entry.deferred = None);
    }

    /// Has everybody looked at that waits for work of its own, whatever became of that.
    pub(crate) fn wake_all(&mut self) {
        for place in 0..self.peers.capacity() {
            self.peers.key_at(place).into_iter().for_each(|key| self.wake(PeerId(key)));
        }
    }

    /// The longest time that a peer has stood in a line.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let in_line = |peer: &Peer| matches!(peer.wait, Wait::Memory(_)).then_some(peer.waits_since);
        let first =
            |lane: &VecDeque<PeerId>| lane.iter().find_map(|peer| self.peers.get(peer.0).and_then(in_line));
        self.line.lanes.iter().filter_map(first).map(|since| self.now.since(since)).max()
    }
}
