//! A shard's buffers, and the part of them that peers may use.
//!
//! Three quarters of the medium and large slots are for all peers. The last quarter is for peers
//! that have shown that octets move ([`Account::is_proven`](crate::account::Account::is_proven)),
//! so that a crowd of slow newcomers cannot use up all memory.

use crate::{account::SMALL_MAX, config::Config};
use stag_pools::{Budget, Buf, Class, Extent, Pool};
use std::io;

/// One slot in `PARTS` is reserved for proven peers, and no peer holds more than such a part.
const PARTS: usize = 4;

/// The part of the memory that a peer may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// All of it.
    Proven,
    /// All but the reserved part.
    Newcomer,
}

/// Buffers for everything but receives.
#[derive(Debug)]
pub(crate) struct Memory {
    pool: Pool,
    /// Octets of medium and large slots that one peer may hold.
    share: u64,
    /// For each class above [`SMALL_MAX`]: the length of its slots, and the number reserved.
    kept: [(usize, usize); 2],
    /// The number of slots in each of these classes.
    counts: [usize; 2],
    /// Octets of the longest slot.
    slot_max: usize,
    /// One slot of that length, for records of TCP servers. Our calls may hold all other buffers,
    /// and free them only by the reply that needs one.
    reply_room: Option<Pool>,
    /// One slot of that length, for a reply to protect. Items of other such replies may hold all
    /// other buffers, and free them only when these replies are protected.
    protect_room: Option<Pool>,
}

impl Memory {
    /// The memory of `pool`, which was made with the classes of `config`.
    pub(crate) fn new(pool: Pool, config: &Config) -> Self {
        let [_, mediums, larges] = config.classes();
        let octets = mediums.slot_len * mediums.count + larges.slot_len * larges.count;
        let kept = [mediums, larges].map(|class| (class.slot_len, class.count / PARTS));
        let counts = [mediums.count, larges.count];
        let slot_max = match counts {
            [0, 0] => SMALL_MAX,
            [_, 0] => mediums.slot_len,
            _ => larges.slot_len,
        };
        debug_assert!(slot_max <= pool.slot_max(), "the pool has the classes of the configuration");
        Self {
            pool,
            share: (octets / PARTS) as u64,
            kept,
            counts,
            slot_max,
            reply_room: None,
            protect_room: None,
        }
    }

    /// Octets that one peer may hold.
    pub(crate) const fn share(&self) -> u64 {
        self.share
    }

    /// Octets of the longest buffer, free or not.
    pub(crate) const fn slot_max(&self) -> usize {
        self.slot_max
    }

    /// Returns true if a peer could have buffers for all these lengths at once while no other
    /// buffer is in use.
    pub(crate) fn fits(&self, lens: impl Iterator<Item = usize>, lane: Lane) -> bool {
        let [(medium_len, mediums_kept), (large_len, larges_kept)] = self.kept;
        let [mediums, larges] = match lane {
            Lane::Proven => self.counts,
            Lane::Newcomer => [self.counts[0] - mediums_kept, self.counts[1] - larges_kept],
        };
        let mut needed = [0, 0];
        for len in lens.filter(|len| *len > SMALL_MAX) {
            match len {
                len if len <= medium_len => needed[0] += 1,
                len if len <= large_len => needed[1] += 1,
                _ => return false,
            }
        }
        needed[1] <= larges && needed[0] + needed[1] <= mediums + larges
    }

    /// An empty buffer for at least `len` octets: for our own work, and for calls whose length is
    /// limited elsewhere.
    #[inline]
    pub(crate) fn take(&self, len: usize) -> Option<Buf> {
        self.pool.take(len)
    }

    /// As [`take`](Self::take), for a buffer that a peer writes and we read.
    #[inline]
    pub(crate) fn take_room(&self, len: usize) -> Option<Buf> {
        self.pool.take_room(len)
    }

    /// The same within the part of the memory that peers may use.
    pub(crate) fn lend_room(&self, len: usize, lane: Lane) -> Option<Buf> {
        self.pool.take_room(self.lendable(len, lane)?)
    }

    /// An empty buffer for a peer.
    pub(crate) fn lend(&self, len: usize, lane: Lane) -> Option<Buf> {
        self.pool.take(self.lendable(len, lane)?)
    }

    /// Makes the slot that is reserved for replies over TCP, unless it exists.
    pub(crate) fn keep_reply_room(&mut self) -> io::Result<()> {
        if self.reply_room.is_none() {
            self.reply_room = Some(Pool::new(&[Class { slot_len: self.slot_max, count: 1 }])?);
        }
        Ok(())
    }

    /// Adds the slot that is reserved for replies to protect; `make` makes a pool.
    pub(crate) fn with_protect_room(
        self,
        make: impl FnOnce(&[Class]) -> io::Result<Pool>,
    ) -> io::Result<Self> {
        let room = make(&[Class { slot_len: self.slot_max, count: 1 }])?;
        Ok(Self { protect_room: Some(room), ..self })
    }

    /// An empty buffer for a reply to protect: one that its peer may use, or the reserved one.
    pub(crate) fn take_to_protect(&self, len: usize, lane: Lane) -> Option<Buf> {
        self.lend(len, lane).or_else(|| self.protect_room.as_ref()?.take(len))
    }

    /// Returns true if an extent is in a slot of the shard's buffers.
    pub(crate) fn has(&self, extent: &Extent) -> bool {
        extent.is_of(&self.pool)
    }

    /// An empty buffer for a record of a server: any of the shard, or the reserved one.
    pub(crate) fn lend_to_reply(&self, len: usize) -> Option<Buf> {
        self.pool.take(len).or_else(|| self.reply_room.as_ref()?.take(len))
    }

    /// Returns true if [`lend`](Self::lend) has such a buffer.
    pub(crate) fn can_lend(&self, len: usize, lane: Lane) -> bool {
        self.lendable(len, lane).is_some()
    }

    /// Returns true if another buffer would be left for peers.
    pub(crate) fn can_lend_two(&self, len: usize, lane: Lane) -> bool {
        self.can_lend(len, lane) && self.pool.available(self.slot_max) > 1
    }

    /// The length to request from the pool when a peer needs `len` octets. A newcomer gets no
    /// reserved buffer, of whichever class.
    fn lendable(&self, len: usize, lane: Lane) -> Option<usize> {
        if lane == Lane::Proven || len <= SMALL_MAX {
            return (self.pool.available(len) > 0).then_some(len);
        }
        let [(medium_len, mediums_kept), (large_len, larges_kept)] = self.kept;
        let larges = self.pool.available(large_len);
        debug_assert!(
            self.pool.available(medium_len) >= larges,
            "large slots hold what medium ones do"
        );
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

    /// Free buffers above [`SMALL_MAX`].
    pub(crate) fn available(&self) -> usize {
        let kept = self.reply_room.as_ref().map_or(0, |room| room.available(SMALL_MAX));
        self.pool.available(SMALL_MAX + 1) + kept
    }

    /// Buffers in use.
    pub(crate) fn taken(&self) -> usize {
        let kept = [&self.reply_room, &self.protect_room].into_iter().flatten().map(Pool::taken);
        self.pool.taken() + kept.sum::<usize>()
    }

    /// Its cost.
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
        let larges: Vec<_> =
            std::iter::from_fn(|| memory.lend(LARGE_LEN, Lane::Newcomer)).collect();
        assert_eq!((larges.len(), memory.longest(Lane::Newcomer)), (12, MEDIUM_LEN));
        let mediums: Vec<_> =
            std::iter::from_fn(|| memory.lend(MEDIUM_LEN, Lane::Newcomer)).collect();
        assert_eq!((mediums.len(), memory.longest(Lane::Newcomer)), (6, SMALL_MAX));
        assert_eq!(memory.longest(Lane::Proven), LARGE_LEN);
        drop(larges);
        let spilt: Vec<_> =
            std::iter::from_fn(|| memory.lend(MEDIUM_LEN, Lane::Newcomer)).collect();
        assert_eq!((spilt.len(), memory.can_lend(LARGE_LEN, Lane::Newcomer)), (12, false));
        let rest: Vec<_> = std::iter::from_fn(|| memory.lend(LARGE_LEN, Lane::Proven)).collect();
        assert_eq!(rest.len(), 4);
        assert_eq!(
            memory.lend(SMALL_MAX, Lane::Newcomer).map(|buf| buf.capacity()),
            Some(SMALL_MAX)
        );
    }

    #[test]
    fn what_fits_does_not_depend_on_who_has_it() {
        let config = Config { slots: [8, 8, 16], ..Config::small() };
        let memory = Memory::new(Pool::new(&config.classes()).unwrap(), &config);
        let _all: Vec<_> = std::iter::from_fn(|| memory.lend(MEDIUM_LEN, Lane::Proven)).collect();
        let fits = |larges, mediums, lane| {
            let lens = [(LARGE_LEN, larges), (MEDIUM_LEN, mediums), (SMALL_MAX, 99)];
            memory.fits(
                lens.into_iter().flat_map(|(len, count)| std::iter::repeat_n(len, count)),
                lane,
            )
        };
        assert!(fits(12, 6, Lane::Newcomer) && fits(0, 18, Lane::Newcomer));
        assert!(!fits(13, 0, Lane::Newcomer) && !fits(12, 7, Lane::Newcomer));
        assert!(
            fits(16, 8, Lane::Proven) && !fits(17, 0, Lane::Proven) && !fits(16, 9, Lane::Proven)
        );
        assert!(!memory.fits(std::iter::once(LARGE_LEN + 1), Lane::Proven));
        for (slots, longest) in
            [([8, 0, 0], SMALL_MAX), ([8, 1, 0], MEDIUM_LEN), ([8, 0, 1], LARGE_LEN)]
        {
            let config = Config { slots, ..Config::small() };
            let memory = Memory::new(Pool::new(&config.classes()).unwrap(), &config);
            assert_eq!(memory.slot_max(), longest);
        }
    }
}
