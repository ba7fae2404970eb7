//! The memory that files are made of: slots of 4 KiB and of 64 KiB, in a pool of the store's own.

use std::io;

use stag_engine::ExtentLists;
use stag_pools::{Budget, Buf, Class, Extent, Pool};
use stag_protocol::nfs::v3::Status;

/// Octets of a block, and of a slot that holds a whole one.
pub(super) const BLOCK: usize = 64 << 10;
/// Octets of a slot for the end of a file, a small file, or a link's target.
pub(super) const SMALL: usize = 4 << 10;
/// One part in so many of the capacity is small slots.
const SMALL_SHARE: usize = 16;
/// Blocks beyond the capacity, for what is overwritten while its old octets are being sent. Never
/// filled by growth.
pub(super) const RESERVE: usize = 16;
/// One part in so many of the blocks has to be free for octets to be received in place.
const SINK_SHARE: usize = 8;
/// Lists of extents to begin with: READs under way at once.
const LISTS: usize = 64;

/// Why memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// More is stored than before.
    Growth,
    /// As much as before: the old octets cannot be changed, for they are being sent.
    Change,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Space {
    pool: Pool,
    zeros: Extent,
    lists: ExtentLists,
    /// Slots of each length that files may fill.
    small: usize,
    large: usize,
}

impl Space {
    /// Room for about `capacity` octets; `shared` lets other processes map it to read it.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn new(capacity: usize, shared: bool) -> io::Result<Self> {
        let small = capacity / SMALL_SHARE / SMALL;
        let large = (capacity - small * SMALL) / BLOCK;
        // One block of zeros serves all holes.
        let count = large + RESERVE + 1;
        let classes = [Class { slot_len: SMALL, count: small }, Class { slot_len: BLOCK, count }];
        let pool = if shared { Pool::shared(&classes) } else { Pool::new(&classes) }?;
        let mut zeros = pool.take(BLOCK).expect("the pool has a slot for zeros");
        zeros.spare_mut().fill(0);
        zeros.extend(BLOCK);
        Ok(Self { pool, zeros: zeros.freeze(), lists: ExtentLists::new(LISTS), small, large })
    }

    /// A buffer for at least `len` octets, at most [`BLOCK`]; a small one if there is one that is
    /// long enough.
    ///
    /// # Errors
    ///
    /// [`Status::NoSpc`] for growth; [`Status::Jukebox`] for a change: what is being sent
    /// comes back soon.
    pub fn take(&self, len: usize, need: Need) -> Result<Buf, Status> {
        let small = len <= SMALL && self.free_small() > 0;
        let buf = match need {
            Need::Growth if !small && self.free_large() == 0 => None,
            Need::Growth | Need::Change => self.pool.take(len),
        };
        buf.ok_or(match need {
            Need::Growth => Status::NoSpc,
            Need::Change => Status::Jukebox,
        })
    }

    /// A buffer for `len` octets that are on their way. None when space is short: what is on its
    /// way must not keep what is there already from being stored.
    pub fn sink(&self, len: usize) -> Option<Buf> {
        let is_short = self.free_large() <= self.large / SINK_SHARE;
        if len == 0 || len > BLOCK || is_short { None } else { self.take(len, Need::Growth).ok() }
    }

    /// Returns true if an extent may become a file's for good.
    pub fn owns(&self, extent: &Extent) -> bool {
        extent.is_of(&self.pool)
    }

    /// `len` zeros, at most [`BLOCK`].
    pub fn zeros(&self, len: usize) -> Extent {
        self.zeros.slice(0..len)
    }

    /// Lists for items of several extents.
    pub fn lists(&self) -> &ExtentLists {
        &self.lists
    }

    /// Small slots that can be filled.
    fn free_small(&self) -> usize {
        self.pool.available(SMALL) - self.pool.available(BLOCK)
    }

    /// Blocks that can be filled.
    fn free_large(&self) -> usize {
        self.pool.available(BLOCK).saturating_sub(RESERVE)
    }

    /// Octets in all slots, in those that are free, and in free ones that are long enough for any
    /// block.
    pub fn octets(&self) -> (u64, u64, u64) {
        let large = self.free_large() * BLOCK;
        let total = self.small * SMALL + self.large * BLOCK;
        (total as u64, (large + self.free_small() * SMALL) as u64, large as u64)
    }

    /// The pool.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the memory that the pool takes.
    pub fn budget(&self) -> Budget {
        self.pool.budget()
    }

    /// Slots in use; the block of zeros is always.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.pool.taken() - 1
    }
}
