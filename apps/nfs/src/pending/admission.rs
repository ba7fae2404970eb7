//! Calls queued before their start, because too many are in flight or hold too much memory: they
//! wait for one to end, in the order of arrival among calls with the same need.
//!
//! A client that is asked to retry (NFS3ERR_JUKEBOX) pauses, a Linux client for five seconds. So
//! that answer is given only when no place becomes free in time ([`UNSTARTED_MAX`]), or when the
//! queue is full, too. Only calls wait that change nothing and brought no data: they hold no buffer
//! meanwhile, and may end late.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use stag_engine::{PeerId, Time, config};

use super::call::PendingCall;
use stag_nfs_store::StoreCall;

/// Time after which a call that was not started is dropped.
pub(crate) const UNSTARTED_MAX: Duration = Duration::from_secs(2);
/// Queued calls of a shard, and of one connection.
const QUEUED_MAX: usize = 512;
const QUEUED_OF_PEER: usize = 128;

/// The scarcest resource that a call needs in addition to its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Ticket,
    Medium,
    Large,
}

impl Need {
    pub(crate) const ALL: [Self; 3] = [Self::Ticket, Self::Medium, Self::Large];

    pub(crate) fn of(call: &StoreCall) -> Self {
        match call.operation.room_len() {
            0..=config::MESSAGE_LEN => Self::Ticket,
            len if len <= config::MEDIUM_LEN => Self::Medium,
            _ => Self::Large,
        }
    }
}

/// A queued call. No memory is lent yet.
#[derive(Debug)]
pub(crate) struct QueuedCall {
    pub(crate) pending: PendingCall,
    pub(crate) call: StoreCall,
    /// The connection that it counts against.
    peer: Option<PeerId>,
}

/// The queued calls of one shard, by need.
#[derive(Debug, Default)]
pub(crate) struct AdmissionQueue {
    ticket: VecDeque<QueuedCall>,
    medium: VecDeque<QueuedCall>,
    large: VecDeque<QueuedCall>,
    of_peer: HashMap<PeerId, usize>,
}

impl AdmissionQueue {
    fn all(&self) -> [&VecDeque<QueuedCall>; 3] {
        [&self.ticket, &self.medium, &self.large]
    }

    fn all_mut(&mut self) -> [&mut VecDeque<QueuedCall>; 3] {
        [&mut self.ticket, &mut self.medium, &mut self.large]
    }

    fn queue(&mut self, need: Need) -> &mut VecDeque<QueuedCall> {
        match need {
            Need::Ticket => &mut self.ticket,
            Need::Medium => &mut self.medium,
            Need::Large => &mut self.large,
        }
    }

    /// Returns true if no call waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().into_iter().all(VecDeque::is_empty)
    }

    /// Returns true if no call with the same need waits.
    pub(crate) fn has_none(&mut self, need: Need) -> bool {
        self.queue(need).is_empty()
    }

    /// The callers of the queued calls.
    pub(crate) fn calls(&mut self) -> impl Iterator<Item = &mut PendingCall> {
        self.all_mut().into_iter().flatten().map(|held| &mut held.pending)
    }

    /// Queues a call that changes nothing; returns it when too many wait.
    #[allow(clippy::result_large_err, reason = "a call that cannot wait goes back as it came")]
    pub(crate) fn hold(
        &mut self,
        pending: PendingCall,
        call: StoreCall,
    ) -> Result<(), (PendingCall, StoreCall)> {
        let peer = pending.requester.map(|requester| requester.peer);
        let of_peer = peer.and_then(|peer| self.of_peer.get(&peer).copied()).unwrap_or_default();
        let all: usize = self.all().into_iter().map(VecDeque::len).sum();
        if all >= QUEUED_MAX || of_peer >= QUEUED_OF_PEER {
            return Err((pending, call));
        }
        if let Some(peer) = peer {
            self.of_peer.insert(peer, of_peer + 1);
        }
        self.queue(Need::of(&call)).push_back(QueuedCall { pending, call, peer });
        Ok(())
    }

    /// Takes the first call with this need.
    pub(crate) fn pop(&mut self, need: Need) -> Option<QueuedCall> {
        let held = self.queue(need).pop_front()?;
        self.uncount(held.peer);
        Some(held)
    }

    /// Queues a call again, as the last one with its need: it may be only its connection that gets
    /// no buffer.
    pub(crate) fn put_back(&mut self, pending: PendingCall, call: StoreCall) {
        let peer = pending.requester.map(|requester| requester.peer);
        if let Some(peer) = peer {
            *self.of_peer.entry(peer).or_default() += 1;
        }
        self.queue(Need::of(&call)).push_back(QueuedCall { pending, call, peer });
    }

    fn uncount(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        if let Some(count) = self.of_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(&peer);
            }
        }
    }

    /// The arrival time of the oldest call.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.all().into_iter().flatten().map(|held| held.pending.began).min()
    }

    /// Takes a call that has waited too long.
    pub(crate) fn pop_older(&mut self, now: Time) -> Option<QueuedCall> {
        let is_over = |held: &QueuedCall| now.since(held.pending.began) >= UNSTARTED_MAX;
        let found = self.all_mut().into_iter().find_map(|queue| {
            let place = queue.iter().position(is_over)?;
            queue.remove(place)
        })?;
        self.uncount(found.peer);
        Some(found)
    }
}
