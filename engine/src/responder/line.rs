//! Order of calls of peers that wait for memory or room.
//!
//! The calls of one peer are queued one after the other, so that each peer waits for one thing at a
//! time. Peers whose first call waits for memory are in one of two lines: proven peers, or
//! newcomers. A buffer goes to the first peer of a line, which then moves to the end if it has more
//! calls. All other peers wait for work of their own (room in their send queue, or in their share),
//! and are served when some of that work has completed.

use crate::{
    account::SMALL_MAX,
    config::HEAD_ROOM,
    core::Core,
    memory::Lane,
    peer_view::PeerId,
    state::{Peer, Wait, inbound::InboundState},
};
use stag_pools::{
    Buf,
    table::{Key, Walk},
};
use stag_verbs::Time;
use std::{collections::VecDeque, time::Duration};

impl Core {
    /// The part of the memory that a peer may use.
    pub(crate) fn lane(&self, peer: PeerId) -> Lane {
        let share = self.memory.share();
        let is_proven =
            self.peers.get(peer).is_some_and(|entry| entry.served.account.is_proven(share));
        if is_proven { Lane::Proven } else { Lane::Newcomer }
    }

    /// An empty buffer for the app, within the limits of the peer whose call it is serving.
    #[inline]
    pub(crate) fn take_for_app(&self, len: usize) -> Option<Buf> {
        match self.responder.serving {
            Some(peer) => self.take_for_peer(peer, len),
            None => self.memory.take(len),
        }
    }

    /// An empty message, as [`Cx::message`](crate::Cx::message) makes it.
    pub(crate) fn message_for_app(&self, len: usize) -> Option<Buf> {
        let mut buf = self.take_for_app(HEAD_ROOM.checked_add(len)?)?;
        buf.reset(HEAD_ROOM);
        Some(buf)
    }

    /// The same for a peer to write.
    pub(crate) fn room_for_app(&self, len: usize) -> Option<Buf> {
        match self.responder.serving {
            Some(peer) if len > SMALL_MAX => self.memory.lend_room(len, self.lane(peer)),
            _ => self.memory.take_room(len),
        }
    }

    /// An empty buffer, within the limits of this peer.
    pub(crate) fn take_for_peer(&self, peer: PeerId, len: usize) -> Option<Buf> {
        match len > SMALL_MAX {
            true => self.memory.lend(len, self.lane(peer)),
            false => self.memory.take(len),
        }
    }

    /// Returns true if a peer waits for this part of the memory.
    pub(crate) fn is_awaited(&self, lane: Lane) -> bool {
        let [proven, newcomers] = &self.responder.line.lanes;
        match lane {
            Lane::Proven => !proven.is_empty(),
            Lane::Newcomer => !newcomers.is_empty(),
        }
    }

    /// Queues a call after all other waiting calls of its peer.
    pub(crate) fn defer(&mut self, peer: PeerId, call: Key) {
        debug_assert!(
            self.responder.calls.get(call).is_some_and(|it| it.state == InboundState::AwaitSink),
            "only a call that lacks memory or room waits"
        );
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

    /// The first waiting call of a peer.
    pub(crate) fn first_deferred(&self, peer: PeerId) -> Option<Key> {
        self.peers.get(peer)?.served.deferred.map(|(first, _)| first)
    }

    /// Removes the first waiting call of a peer from its queue; returns the start of its wait.
    pub(crate) fn advance(&mut self, peer: PeerId) -> Time {
        let Some(entry) = self.peers.get_mut(peer) else { return self.now };
        debug_assert!(entry.served.deferred.is_some(), "a call leaves a queue that has one");
        if let Some((first, last)) = entry.served.deferred {
            let next = self.responder.line.behind.get_mut(first.index()).and_then(Option::take);
            entry.served.deferred = next.map(|next| (next, last));
        }
        std::mem::replace(&mut entry.served.waits_since, self.now)
    }

    /// Undoes [`advance`](Self::advance) for a call that cannot continue.
    pub(crate) fn put_back(&mut self, peer: PeerId, call: Key, waits_since: Time) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        if let Some(place) = self.responder.line.behind.get_mut(call.index()) {
            *place = entry.served.deferred.map(|(next, _)| next);
        }
        entry.served.deferred = Some((call, entry.served.deferred.map_or(call, |(_, last)| last)));
        entry.served.waits_since = waits_since;
    }

    /// Octets of the buffer that a peer waits for in line.
    pub(crate) fn awaited_len(&self, peer: PeerId) -> usize {
        match self.peers.get(peer).map(|entry| entry.served.wait) {
            Some(Wait::Memory(len)) => len,
            _ => 0,
        }
    }

    /// Moves a peer to the end of the other line if its credit has changed: in the proven line, a
    /// peer that may no longer use the reserved buffers would block peers that may. Returns true if
    /// it moved.
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

    /// Records the obstacle of a peer.
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
            (_, Wait::Nothing) => {
                debug_assert!(self.responder.line.count > 0, "a peer that waits is counted");
                self.responder.line.count -= 1;
            }
            _ => {}
        }
        match wait {
            Wait::Memory(_) if !in_line(was) => {
                let line = self.responder.line.lane(lane);
                debug_assert!(!line.contains(&peer), "a peer is in line once");
                line.push_back(peer);
            }
            Wait::Turn if was != Wait::Turn => self.responder.line.turns.push_back(peer),
            _ => {}
        }
    }

    /// Gives a peer that waits for work of its own its turn, because some of that work has
    /// completed.
    #[inline]
    pub(crate) fn wake(&mut self, peer: PeerId) {
        if self.peers.get(peer).is_some_and(|entry| entry.served.wait == Wait::Itself) {
            self.set_wait(peer, Wait::Turn);
        }
    }

    /// Requeues a peer that exchanged its connection with another one: the lines hold peer IDs.
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

    /// Excludes the next `time` from all charges: the shard was busy with other work, or did not
    /// run.
    #[cold]
    pub(crate) fn forgive(&mut self, time: Duration) {
        for (_, entry) in self.peers.iter_mut() {
            entry.served.account.forgive(time);
            entry.served.waits_since = entry.served.waits_since + time;
        }
    }

    /// The longest time that a peer has been in a line.
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
