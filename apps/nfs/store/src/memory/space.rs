//! The memory of files: slots of 4 KiB and of 64 KiB, in a pool of the store's own.

use std::io;

use stag_engine::ExtentLists;
use stag_pools::{Budget, Buf, Class, Extent, Pool, RUN_SLOTS};
use stag_protocol::nfs::v3::Status;

/// Bytes of a block, and of a slot that holds a whole one.
pub(super) const BLOCK: usize = 64 << 10;
/// Bytes of a slot for the end of a file, a small file, or a link's target.
pub(super) const SMALL: usize = 4 << 10;
/// Small slots take 1/`SMALL_SHARE` of the capacity.
const SMALL_SHARE: usize = 16;
/// Blocks beyond the capacity, for overwriting bytes that are being sent. Never used for growth.
pub(super) const RESERVE: usize = 16;
/// 1/`SINK_SHARE` of the blocks has to be free for data to be received in place.
const SINK_SHARE: usize = 8;
/// 1/`RUN_SHARE` of the blocks has to be free for data of several blocks. It is in no file before
/// its WRITE is carried out, and a peer that keeps a WRITE from its end holds much of it.
const RUN_SHARE: usize = 2;
/// Initial lists of extents: concurrent READs.
const LISTS: usize = 64;

/// Reason for a request of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// More is stored than before.
    Growth,
    /// The same amount is stored, but the old bytes cannot be changed because they are being sent.
    Change,
}

/// All memory of the store.
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
    /// Room for about `capacity` bytes; `shared` lets other processes map it for reading.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn new(capacity: usize, shared: bool) -> io::Result<Self> {
        let small = capacity / SMALL_SHARE / SMALL;
        let large = (capacity - small * SMALL) / BLOCK;
        // One block of zeros serves all holes.
        let count = large + RESERVE + 1;
        let classes = [Class { slot_len: SMALL, count: small }, Class { slot_len: BLOCK, count }];
        let pool = Pool::with_runs(&classes, shared)?;
        let mut zeros = pool.take(BLOCK).expect("the pool has a slot for zeros");
        zeros.spare_mut().fill(0);
        zeros.extend(BLOCK);
        Ok(Self { pool, zeros: zeros.freeze(), lists: ExtentLists::new(LISTS), small, large })
    }

    /// A buffer for at least `len` bytes, at most [`BLOCK`]; a small one if one is free and long
    /// enough.
    ///
    /// # Errors
    ///
    /// [`Status::NoSpc`] for growth; [`Status::Jukebox`] for a change: slots being sent are freed
    /// soon.
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

    /// A buffer for `len` incoming bytes: up to [`BLOCK`], or in as many adjacent blocks as
    /// [`Pool::take_run`] has, so that each of them can become a block of the file. None for other
    /// lengths, and when space is short: incoming data must not keep data that has arrived from
    /// being stored.
    pub fn sink(&self, len: usize) -> Option<Buf> {
        let free = self.free_large();
        match len {
            0 => None,
            1..=BLOCK if free > self.large / SINK_SHARE => self.take(len, Need::Growth).ok(),
            1..=BLOCK => None,
            // What is left takes the data if it has to be copied: it may span one block more.
            _ if free > self.large / RUN_SHARE + 2 * RUN_SLOTS => self.pool.take_run(len),
            _ => None,
        }
    }

    /// Returns true if an extent may become a file's permanently.
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

    /// Small slots that are free.
    fn free_small(&self) -> usize {
        self.pool.available(SMALL) - self.pool.available(BLOCK)
    }

    /// Blocks that are free for growth.
    fn free_large(&self) -> usize {
        self.pool.available(BLOCK).saturating_sub(RESERVE)
    }

    /// Bytes in all slots, in free slots, and in free slots that are long enough for any block.
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

    /// Slots in use, except the block of zeros.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.pool.taken() - 1
    }
}
