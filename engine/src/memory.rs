//! A shard's buffers, and the part of them that peers may use.
//!
//! Three quarters of the medium and large slots are for everybody. The last quarter is for peers that have shown that octets move
//! ([`Account::is_proven`](crate::account::Account::is_proven)): a crowd of newcomers that take their time does not take it.

use crate::{account::SMALL_MAX, config::Config};
use stag_pools::{Budget, Buf, Pool};

/// One part in so many is kept for proven peers, and no peer holds more.
const PARTS: usize = 4;

/// Which part of the memory a peer may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// All of it.
    Proven,
    /// All but what is kept.
    Newcomer,
}

/// Buffers for everything but receives.
#[derive(Debug)]
pub(crate) struct Memory {
    pool: Pool,
    /// Octets of medium and large slots that one peer may hold.
    share: u64,
    /// For each class beyond [`SMALL_MAX`]: the length of its slots, and how many are kept.
    kept: [(usize, usize); 2],
    /// The part that serves the call that the app is looking at.
    lane: Lane,
}

impl Memory {
    /// The memory of `pool`, which was made with the classes of `config`.
    pub(crate) fn new(pool: Pool, config: &Config) -> Self {
        let [_, mediums, larges] = config.classes();
        let octets = mediums.slot_len * mediums.count + larges.slot_len * larges.count;
        let kept = [mediums, larges].map(|class| (class.slot_len, class.count / PARTS));
        Self { pool, share: (octets / PARTS) as u64, kept, lane: Lane::Proven }
    }

    /// Octets that one peer may hold.
    pub(crate) const fn share(&self) -> u64 {
        self.share
    }

    /// An empty buffer for at least `len` octets: for work of our own, and for calls whose length is bounded elsewhere.
    #[inline]
    pub(crate) fn take(&self, len: usize) -> Option<Buf> {
        self.pool.take(len)
    }

    /// The same for the app, as far as the peer may have it whose call it is looking at.
    #[inline]
    pub(crate) fn take_for_app(&self, len: usize) -> Option<Buf> {
        if len > SMALL_MAX { self.lend(len, self.lane) } else { self.pool.take(len) }
    }

    /// The same for a peer.
    pub(crate) fn lend(&self, len: usize, lane: Lane) -> Option<Buf> {
        self.pool.take(self.lendable(len, lane)?)
    }

    /// Whether [`lend`](Self::lend) has such a buffer.
    pub(crate) fn can_lend(&self, len: usize, lane: Lane) -> bool {
        self.lendable(len, lane).is_some()
    }

    /// What to ask the pool for when a peer needs `len` octets: a newcomer gets none of those that are kept, of whichever class.
    fn lendable(&self, len: usize, lane: Lane) -> Option<usize> {
        if lane == Lane::Proven || len <= SMALL_MAX {
            return (self.pool.available(len) > 0).then_some(len);
        }
        let [(medium_len, mediums_kept), (large_len, larges_kept)] = self.kept;
        let larges = self.pool.available(large_len);
        match self.pool.available(medium_len) - larges {
            mediums if len <= medium_len && mediums > mediums_kept => Some(len),
            _ if len <= large_len && larges > larges_kept => Some(large_len),
            _ => None,
        }
    }

    /// Octets of the longest buffer that can be lent.
    pub(crate) fn longest(&self, lane: Lane) -> usize {
        let lent = self.kept.iter().rev().map(|(slot_len, _)| *slot_len);
        lent.chain([SMALL_MAX]).find(|len| self.can_lend(*len, lane)).unwrap_or(0)
    }

    /// Buffers beyond [`SMALL_MAX`] that nobody has.
    pub(crate) fn available(&self) -> usize {
        self.pool.available(SMALL_MAX + 1)
    }

    /// The app looks at a call of a peer that may use this part; [`Lane::Proven`] when it does not.
    pub(crate) const fn serve(&mut self, lane: Lane) {
        self.lane = lane;
    }

    /// Buffers that somebody has.
    pub(crate) fn taken(&self) -> usize {
        self.pool.taken()
    }

    /// What it costs.
    pub(crate) fn budget(&self) -> Budget {
        self.pool.budget()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LARGE_LEN, MEDIUM_LEN};

    #[test]
    fn newcomers_leave_a_quarter_of_each_class() {
        let config = Config { slots: [8, 8, 16], ..Config::small() };
        let memory = Memory::new(Pool::new(&config.classes()).unwrap(), &config);
        let larges: Vec<_> = std::iter::from_fn(|| memory.lend(LARGE_LEN, Lane::Newcomer)).collect();
        assert_eq!((larges.len(), memory.longest(Lane::Newcomer)), (12, MEDIUM_LEN));
        let mediums: Vec<_> = std::iter::from_fn(|| memory.lend(MEDIUM_LEN, Lane::Newcomer)).collect();
        assert_eq!((mediums.len(), memory.longest(Lane::Newcomer)), (6, SMALL_MAX));
        assert_eq!(memory.longest(Lane::Proven), LARGE_LEN);
        drop(larges);
        let spilt: Vec<_> = std::iter::from_fn(|| memory.lend(MEDIUM_LEN, Lane::Newcomer)).collect();
        assert_eq!((spilt.len(), memory.can_lend(LARGE_LEN, Lane::Newcomer)), (12, false));
        let rest: Vec<_> = std::iter::from_fn(|| memory.lend(LARGE_LEN, Lane::Proven)).collect();
        assert_eq!(rest.len(), 4);
        assert_eq!(memory.lend(SMALL_MAX, Lane::Newcomer).map(|buf| buf.capacity()), Some(SMALL_MAX));
    }

    #[test]
    fn the_app_gets_for_a_call_what_its_peer_may_have() {
        let config = Config { slots: [8, 0, 4], ..Config::small() };
        let mut memory = Memory::new(Pool::new(&config.classes()).unwrap(), &config);
        memory.serve(Lane::Newcomer);
        let lent: Vec<_> = std::iter::from_fn(|| memory.take_for_app(LARGE_LEN)).collect();
        assert_eq!(lent.len(), 3);
        memory.serve(Lane::Proven);
        assert!(memory.take_for_app(LARGE_LEN).is_some());
    }
}
