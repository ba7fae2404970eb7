//! Calls of peers that wait for memory or room, and in which order they go on.
//!
//! A peer's calls wait behind one another, so that it waits for one thing at a time. Peers whose
//! first call waits for memory stand in one of two lines, proven ones and newcomers. A buffer goes
//! to the first peer of a line, which then goes to its end if it has more calls. All other peers
//! wait for something of their own (room in their send queue, or in their share), and are served
//! when a piece of their work has ended.

use crate::{account::SMALL_MAX, app::PeerId, core::Core, memory::Lane, peer::Peer};
use stag_pools::{
    Buf,
    table::{Key, Walk},
};
use stag_verbs::Time;
use std::{collections::VecDeque, time::Duration};

/// The obstacle of a peer whose calls, or whose record, cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing waits.
    Nothing,
    /// Its turn, later in this pass or in the next one.
    Turn,
    /// The end of work of its own: a Read, a reply, a Send.
    Itself,
    /// A buffer of the shard for at least so many octets.
    Memory(usize),
}

/// All peers that wait.
#[derive(Debug)]
pub(crate) struct Line {
    /// The call that waits behind each place of `inbound`.
    behind: Box<[Option<Key>]>,
    /// Peers that wait for memory, in order: proven ones, and newcomers. Each stands in one of
    /// them, once.
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

    /// Returns true if nobody waits.
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

    /// Takes a peer out of the line in which it stands, if any.
    pub(crate) fn leave(&mut self, peer: PeerId) {
        for lane in &mut self.lanes {
            if let Some(at) = lane.iter().position(|other| *other == peer) {
                lane.remove(at);
                return;
            }
        }
    }

    /// Peers that stand in a line.
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
    /// The part of the memory that a peer may use.
    pub(crate) fn lane(&self, peer: PeerId) -> Lane {
        let share = self.memory.share();
        let is_proven =
            self.peers.get(peer).is_some_and(|entry| entry.served.account.is_proven(share));
        if is_proven { Lane::Proven } else { Lane::Newcomer }
    }

    /// An empty buffer for the app, as far as the peer may have it whose call it is looking at.
    #[inline]
    pub(crate) fn take_for_app(&self, len: usize) -> Option<Buf> {
        match self.responder.serving {
            Some(peer) => self.take_for_peer(peer, len),
            None => self.memory.take(len),
        }
    }

    /// The same for a peer to write.
    pub(crate) fn room_for_app(&self, len: usize) -> Option<Buf> {
        match self.responder.serving {
            Some(peer) if len > SMALL_MAX => self.memory.lend_room(len, self.lane(peer)),
            _ => self.memory.take_room(len),
        }
    }

    /// An empty buffer, as far as this peer may have it.
    pub(crate) fn take_for_peer(&self, peer: PeerId, len: usize) -> Option<Buf> {
        match len > SMALL_MAX {
            true => self.memory.lend(len, self.lane(peer)),
            false => self.memory.take(len),
        }
    }

    /// Returns true if somebody waits for this part of the memory.
    pub(crate) fn is_awaited(&self, lane: Lane) -> bool {
        let [proven, newcomers] = &self.responder.line.lanes;
        match lane {
            Lane::Proven => !proven.is_empty(),
            Lane::Newcomer => !newcomers.is_empty(),
        }
    }

    /// Puts a call behind all others of its peer that wait.
    pub(crate) fn defer(&mut self, peer: PeerId, call: Key) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        if let Some(place) = self.responder.line.behind.get_mut(call.index()) {
            *place = None;
        }
        entry.served.deferred = match entry.served.deferred {
            Some((first, last)) => {
                if let Some(place) = self.responder.line.behind.get_mut(last.index()) {
                    *place = Some(call);
                }
                Some((first, call))
            }
            None => Some((call, call)),
        };
    }

    /// The first call of a peer that waits.
    pub(crate) fn first_deferred(&self, peer: PeerId) -> Option<Key> {
        self.peers.get(peer)?.served.deferred.map(|(first, _)| first)
    }

    /// Takes the first waiting call of a peer from its queue. Returns since when it waited.
    pub(crate) fn advance(&mut self, peer: PeerId) -> Time {
        let Some(entry) = self.peers.get_mut(peer) else { return self.now };
        if let Some((first, last)) = entry.served.deferred {
            let next = self.responder.line.behind.get_mut(first.index()).and_then(Option::take);
            entry.served.deferred = next.map(|next| (next, last));
        }
        std::mem::replace(&mut entry.served.waits_since, self.now)
    }

    /// Undoes [`advance`](Self::advance) for a call that cannot go on.
    pub(crate) fn put_back(&mut self, peer: PeerId, call: Key, waits_since: Time) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        if let Some(place) = self.responder.line.behind.get_mut(call.index()) {
            *place = entry.served.deferred.map(|(next, _)| next);
        }
        entry.served.deferred = Some((call, entry.served.deferred.map_or(call, |(_, last)| last)));
        entry.served.waits_since = waits_since;
    }

    /// Octets of the buffer for which a peer stands in line.
    pub(crate) fn awaited_len(&self, peer: PeerId) -> usize {
        match self.peers.get(peer).map(|entry| entry.served.wait) {
            Some(Wait::Memory(len)) => len,
            _ => 0,
        }
    }

    /// Moves a peer to the end of the other line when its credit has changed: in the proven line, a
    /// peer that may no longer use the kept buffers would block those that may. Returns true if it
    /// moved.
    pub(crate) fn change_lane(&mut self, peer: PeerId, from: Lane) -> bool {
        let now = self.now;
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.served.account.settle(now);
        }
        let to = self.lane(peer);
        if to == from {
            return false;
        }
        self.responder.line.leave(peer);
        self.responder.line.lane(to).push_back(peer);
        true
    }

    /// Notes the obstacle of a peer.
    pub(crate) fn set_wait(&mut self, peer: PeerId, wait: Wait) {
        let (now, lane) = (self.now, self.lane(peer));
        let Some(entry) = self.peers.get_mut(peer) else { return };
        let was = std::mem::replace(&mut entry.served.wait, wait);
        let in_line = |wait: Wait| matches!(wait, Wait::Memory(_));
        if in_line(was) && !in_line(wait) {
            self.responder.line.leave(peer);
        }
        match (was, wait) {
            (Wait::Nothing, Wait::Nothing) => return,
            (Wait::Nothing, _) => {
                self.responder.line.count += 1;
                entry.served.waits_since = now;
            }
            (_, Wait::Nothing) => self.responder.line.count -= 1,
            _ => {}
        }
        match wait {
            Wait::Memory(_) if !in_line(was) => self.responder.line.lane(lane).push_back(peer),
            Wait::Turn if was != Wait::Turn => self.responder.line.turns.push_back(peer),
            _ => {}
        }
    }

    /// Gives a peer that waits for work of its own its turn, for some of that work has ended.
    #[inline]
    pub(crate) fn wake(&mut self, peer: PeerId) {
        if self.peers.get(peer).is_some_and(|entry| entry.served.wait == Wait::Itself) {
            self.set_wait(peer, Wait::Turn);
        }
    }

    /// Has a peer wait anew that exchanged its connection with another one: the lines know peers by
    /// their names.
    pub(crate) fn wait_anew(&mut self, peer: PeerId) {
        self.responder.line.leave(peer);
        if self.peers.get(peer).is_some_and(|entry| entry.served.wait != Wait::Nothing) {
            self.set_wait(peer, Wait::Itself);
            self.set_wait(peer, Wait::Turn);
        }
    }

    /// Gives every peer that waits for work of its own its turn.
    pub(crate) fn wake_all(&mut self) {
        let mut walk = Walk::default();
        while let Some((peer, entry)) = self.peers.next(&mut walk) {
            if entry.served.wait == Wait::Itself {
                self.set_wait(peer, Wait::Turn);
            }
        }
    }

    /// Charges nobody for the next `time`: this shard was busy with something else, or did not run.
    #[cold]
    pub(crate) fn forgive(&mut self, time: Duration) {
        for (_, entry) in self.peers.iter_mut() {
            entry.served.account.forgive(time);
            entry.served.waits_since = entry.served.waits_since + time;
        }
    }

    /// The longest time that a peer has stood in a line.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let in_line = |peer: &Peer| {
            matches!(peer.served.wait, Wait::Memory(_)).then_some(peer.served.waits_since)
        };
        let first = |lane: &VecDeque<PeerId>| {
            lane.iter().find_map(|peer| self.peers.get(*peer).and_then(in_line))
        };
        self.responder.line.lanes.iter().filter_map(first).map(|since| self.now.since(since)).max()
    }
}
