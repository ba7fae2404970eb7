//! Memory of TCP connections: how much may be read, longer buffers for records, and the account of
//! each peer.

use super::Look;
use crate::{
    account::SMALL_MAX,
    app::{App, PeerId},
    memory::Lane,
    shard::Shard,
    state::{Link, Wait},
    tcp::{Role, Stream},
};
use stag_pools::{Buf, table::Key};
use stag_verbs::{Cause, FabricFault, Provider};

/// A whole record.
pub(super) enum Record<'a> {
    /// In the staging buffer.
    Staged(&'a [u8]),
    /// In a buffer of its own.
    Gathered(Buf),
}

impl Record<'_> {
    /// The record of `len` octets that was gathered in `buf`.
    pub(super) fn gathered(buf: Option<Buf>, len: usize) -> Self {
        let Some(mut buf) = buf else { return Self::Staged(&[]) };
        buf.truncate(len);
        Self::Gathered(buf)
    }

    /// Its octets.
    pub(super) fn octets(&self) -> &[u8] {
        match self {
            Self::Staged(octets) => octets,
            Self::Gathered(buf) => buf,
        }
    }
}

// Memory of records and replies, charged to the peer's account (RFC 5531 §11 sets no limit to a
// record).
impl<P: Provider, A: App> Shard<P, A> {
    /// Octets that may be read from a connection, so that there is memory for any content. Fails if
    /// its record needs a longer buffer, which the connection then waits for.
    pub(super) fn room_to_read(&mut self, key: Key) -> Result<usize, Look> {
        let lane = self.lane_of(key);
        let stream = self.streams.connections.get_mut(key).ok_or(Look::Empty)?;
        let Some(record) = &stream.record else {
            return Ok(self.core.memory.longest(lane).max(SMALL_MAX));
        };
        if record.spare_len() > 0 {
            return Ok(record.spare_len());
        }
        let peer = stream.peer.ok_or(Look::Empty)?;
        let wanted = record.len() + 1;
        stream.wanted = wanted;
        if wanted > self.core.memory.slot_max() {
            return Err(Look::Closed(Cause::Fabric(FabricFault::Exhausted)));
        }
        // A reply is not queued in a line: the calls in it may wait for memory of the call that the
        // reply ends.
        let is_served = stream.role != Role::Responder || !self.core.is_awaited(lane);
        if is_served && self.lengthen_record(peer).is_ok() {
            let record =
                self.streams.connections.get(key).and_then(|stream| stream.record.as_ref());
            return record.map(Buf::spare_len).ok_or(Look::Empty);
        }
        self.core.counters.stats.limits.memory += 1;
        self.core.set_wait(peer, Wait::Memory(wanted));
        self.streams.queue(key);
        Err(Look::Empty)
    }

    /// Moves the record of a TCP connection to the longer buffer that it waits for. Fails with the
    /// needed octets if there is none.
    pub(crate) fn lengthen_record(&mut self, peer: PeerId) -> Result<(), usize> {
        let Some(Link::Stream(key)) = self.core.peers.get(peer).map(|entry| &entry.link) else {
            return Ok(());
        };
        let key = *key;
        let lane = self.lane_of(key);
        let Some(stream) = self.streams.connections.get_mut(key).filter(|stream| stream.wanted > 0)
        else {
            return Ok(());
        };
        let longer = match stream.role {
            Role::Responder => self.core.memory.lend(stream.wanted, lane),
            Role::Connecting | Role::Requester => self.core.memory.lend_to_reply(stream.wanted),
        };
        let mut longer = longer.ok_or(stream.wanted)?;
        debug_assert!(longer.capacity() >= stream.wanted, "it has the requested length");
        longer.reset(0);
        if let Some(shorter) = stream.record.take() {
            longer.append(&shorter).expect("it is longer");
        }
        (stream.record, stream.wanted) = (Some(longer), 0);
        self.streams.queue(key);
        Ok(())
    }

    /// The part of the memory that serves a connection. Replies to our own calls must not be
    /// delayed by other peers.
    pub(super) fn lane_of(&self, key: Key) -> Lane {
        match self.streams.connections.get(key) {
            Some(Stream { role: Role::Responder, peer: Some(peer), .. }) => self.core.lane(*peer),
            _ => Lane::Proven,
        }
    }

    /// Updates the account of a connection's peer with the octets that it holds and that have
    /// moved.
    pub(super) fn settle_stream(&mut self, key: Key) {
        let (now, share) = (self.core.now, self.core.memory.share());
        let Some(stream) = self.streams.connections.get_mut(key) else { return };
        let Some(entry) = stream.peer.and_then(|peer| self.core.peers.get_mut(peer)) else {
            return;
        };
        // First, because octets moved before the peer began to hold memory say nothing about that
        // memory.
        let moved = std::mem::take(&mut stream.moved);
        entry.served.count_octets(moved);
        let account = entry.served.account();
        account.settle(now);
        account.earn(moved, share);
        account.hold_in_all(stream.held(), now);
        if self.judge_share(key) {
            self.streams.set_interest(key);
        }
    }

    /// Checks if the peer of a connection has its share of the memory: by output that it does not
    /// take, or by calls that we work on. Returns true if that has changed.
    pub(crate) fn judge_share(&mut self, key: Key) -> bool {
        let share = self.core.memory.share();
        let Some(stream) = self.streams.connections.get_mut(key) else { return false };
        let Some(entry) = stream.peer.and_then(|peer| self.core.peers.get_mut(peer)) else {
            return false;
        };
        let account = entry.served.account();
        // A record alone never exceeds the share: only reading can complete it.
        let is_counted = stream.is_refused() || account.has_work();
        let is_over_share = is_counted && !account.allows(0, share);
        let has_changed = stream.is_over_share != is_over_share;
        stream.is_over_share = is_over_share;
        self.core.counters.stats.limits.share += u64::from(has_changed && is_over_share);
        has_changed
    }
}
