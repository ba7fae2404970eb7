//! Calls that nobody has begun because too many are under way, or hold too much memory: they wait
//! for one that ends, in the order in which they came among those that need the same.
//!
//! A caller that is told to ask again (NFS3ERR_JUKEBOX) pauses, a Linux client for five seconds. So
//! that is said only when a place does not come in time ([`UNSTARTED_MAX`]), or when those that
//! wait are too many, too. Only calls wait that change nothing and brought no octets: they hold no
//! buffer meanwhile, and nobody minds when they end late.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use stag_engine::{PeerId, Time, config};

use crate::parked::ParkedCall;
use crate::store::StoreCall;

/// Time after which a call that nobody has begun is given up.
pub(crate) const UNSTARTED_MAX: Duration = Duration::from_secs(2);
/// Calls of a shard that wait at a time, and those of one connection.
const HELD_MAX: usize = 512;
const HELD_OF_PEER: usize = 128;

/// The scarcest thing that a call needs beside its ticket.
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

/// A call that waits. Nothing is lent yet.
#[derive(Debug)]
pub(crate) struct HeldCall {
    pub(crate) parked: ParkedCall,
    pub(crate) call: StoreCall,
    /// The connection that it is counted for.
    peer: Option<PeerId>,
}

/// Those of one shard, by what they need.
#[derive(Debug, Default)]
pub(crate) struct HeldCalls {
    ticket: VecDeque<HeldCall>,
    medium: VecDeque<HeldCall>,
    large: VecDeque<HeldCall>,
    of_peer: HashMap<PeerId, usize>,
}

impl HeldCalls {
    fn all(&self) -> [&VecDeque<HeldCall>; 3] {
        [&self.ticket, &self.medium, &self.large]
    }

    fn all_mut(&mut self) -> [&mut VecDeque<HeldCall>; 3] {
        [&mut self.ticket, &mut self.medium, &mut self.large]
    }

    fn queue(&mut self, need: Need) -> &mut VecDeque<HeldCall> {
        match need {
            Need::Ticket => &mut self.ticket,
            Need::Medium => &mut self.medium,
            Need::Large => &mut self.large,
        }
    }

    /// Returns true if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().into_iter().all(VecDeque::is_empty)
    }

    /// Returns true if none waits that needs the same.
    pub(crate) fn has_none(&mut self, need: Need) -> bool {
        self.queue(need).is_empty()
    }

    /// Their callers.
    pub(crate) fn calls(&mut self) -> impl Iterator<Item = &mut ParkedCall> {
        self.all_mut().into_iter().flatten().map(|held| &mut held.parked)
    }

    /// Lets a call wait that changes nothing. It comes back when too many do.
    #[allow(clippy::result_large_err, reason = "a call that cannot wait goes back as it came")]
    pub(crate) fn hold(
        &mut self,
        parked: ParkedCall,
        call: StoreCall,
    ) -> Result<(), (ParkedCall, StoreCall)> {
        let peer = parked.asker.map(|asker| asker.peer);
        let of_peer = peer.and_then(|peer| self.of_peer.get(&peer).copied()).unwrap_or_default();
        let all: usize = self.all().into_iter().map(VecDeque::len).sum();
        if all >= HELD_MAX || of_peer >= HELD_OF_PEER {
            return Err((parked, call));
        }
        if let Some(peer) = peer {
            self.of_peer.insert(peer, of_peer + 1);
        }
        self.queue(Need::of(&call)).push_back(HeldCall { parked, call, peer });
        Ok(())
    }

    /// Takes the first of those that need the same.
    pub(crate) fn pop(&mut self, need: Need) -> Option<HeldCall> {
        let held = self.queue(need).pop_front()?;
        self.uncount(held.peer);
        Some(held)
    }

    /// Lets a call wait on, as the last of those that need the same: it may be its connection alone
    /// that gets no buffer.
    pub(crate) fn put_back(&mut self, parked: ParkedCall, call: StoreCall) {
        let peer = parked.asker.map(|asker| asker.peer);
        if let Some(peer) = peer {
            *self.of_peer.entry(peer).or_default() += 1;
        }
        self.queue(Need::of(&call)).push_back(HeldCall { parked, call, peer });
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

    /// The time at which the first came.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.all().into_iter().flatten().map(|held| held.parked.began).min()
    }

    /// Takes one that has waited for too long.
    pub(crate) fn pop_older(&mut self, now: Time) -> Option<HeldCall> {
        let is_over = |held: &HeldCall| now.since(held.parked.began) >= UNSTARTED_MAX;
        let found = self.all_mut().into_iter().find_map(|queue| {
            let place = queue.iter().position(is_over)?;
            queue.remove(place)
        })?;
        self.uncount(found.peer);
        Some(found)
    }
}
