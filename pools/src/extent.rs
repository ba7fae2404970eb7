//! Extent: immutable memory that many readers share.

use crate::{
    buf::Buf,
    pool::{Pool, PoolInner, PoolPlace, SlotId},
};
use std::{fmt, ops::Deref, ops::Range, ptr::NonNull, rc::Rc};

/// A run of immutable octets in a slot, with a reference count for one thread. Dropping the last
/// one frees the slot.
pub struct Extent {
    pool: Rc<PoolInner>,
    /// The slot's first octet, there as long as `pool` lives.
    address: NonNull<u8>,
    slot: SlotId,
    /// `start <= end`, and both are inside the slot, always.
    start: u32,
    end: u32,
}

impl Extent {
    /// Takes over a slot from the one `Buf` that held it; `content` is inside the slot, and
    /// `address` is the slot's first octet.
    pub(crate) fn adopt(
        pool: Rc<PoolInner>,
        slot: SlotId,
        address: NonNull<u8>,
        content: Range<u32>,
    ) -> Self {
        let shares = pool.shares(slot).replace(1);
        assert_eq!(shares, 0, "a buffer's slot is shared with nobody");
        Self { pool, address, slot, start: content.start, end: content.end }
    }

    /// The octets `span` of this extent.
    ///
    /// # Panics
    /// When `span` is not inside.
    pub fn slice(&self, span: Range<usize>) -> Self {
        assert!(span.start <= span.end && span.end <= self.len(), "a slice lies inside its extent");
        let mut part = self.clone();
        part.end = self.start + span.end as u32;
        part.start = self.start + span.start as u32;
        part
    }

    /// Octets of the extent's slot, which stays in use as long as the extent lives.
    pub fn capacity(&self) -> usize {
        self.pool.slot_len(self.slot)
    }

    /// Place at which the extent begins.
    pub fn place(&self) -> PoolPlace {
        self.pool.place(self.slot, self.start)
    }

    /// Returns true if the extent is in the memory of `pool`.
    pub fn is_of(&self, pool: &Pool) -> bool {
        pool.is(&self.pool)
    }

    /// Returns the buffer if no other extent shares the slot, else the extent.
    pub fn try_into_buf(self) -> Result<Buf, Self> {
        if self.pool.shares(self.slot).get() != 1 {
            return Err(self);
        }
        self.pool.shares(self.slot).set(0);
        let (slot, address, start, len) =
            (self.slot, self.address, self.start as usize, self.len());
        let capacity = self.capacity() as u32;
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the reference moves out exactly once.
        let pool = unsafe { std::ptr::read(&raw const this.pool) };
        let mut buf = Buf::adopt(pool, slot, address, capacity);
        buf.reset(start);
        buf.extend(len);
        Ok(buf)
    }
}

impl Clone for Extent {
    fn clone(&self) -> Self {
        let shares = self.pool.shares(self.slot);
        shares.set(shares.get().checked_add(1).expect("fewer than 2^32 extents share a slot"));
        let Self { address, slot, start, end, .. } = *self;
        Self { pool: Rc::clone(&self.pool), address, slot, start, end }
    }
}

impl Deref for Extent {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        debug_assert!(self.start <= self.end && self.end as usize <= self.capacity());
        // SAFETY: `start` is in the slot.
        let first = unsafe { self.address.add(self.start as usize) };
        // SAFETY: the octets from `start` to `end` are in the slot, initialised and there while
        // `self.pool` lives; only extents hold the slot, and none of them gives out a mutable
        // reference.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), (self.end - self.start) as usize) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let shares = self.pool.shares(self.slot);
        let left = shares.get() - 1;
        shares.set(left);
        if left == 0 {
            self.pool.give(self.slot);
        }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} octets)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Class, Pool};

    #[test]
    fn a_slot_comes_back_when_its_last_extent_goes() {
        let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
        let mut buf = pool.take(64).unwrap();
        buf.append(b"abcdef").unwrap();
        let whole = buf.freeze();
        let part = whole.slice(2..4);
        assert_eq!(&part[..], b"cd");
        assert_eq!(&part.slice(1..2)[..], b"d");
        let whole = whole.try_into_buf().unwrap_err();
        drop(whole);
        assert_eq!(pool.taken(), 1);
        let again = part.try_into_buf().unwrap();
        assert_eq!((&again[..], again.head_room()), (&b"cd"[..], 2));
        drop(again);
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    #[should_panic(expected = "a slice lies inside its extent")]
    fn a_slice_cannot_reach_outside() {
        let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
        let _ = pool.take(64).unwrap().freeze().slice(0..1);
    }

    #[test]
    fn an_extent_knows_its_slot_and_its_pool() {
        let class = Class { slot_len: 64, count: 1 };
        let (pool, other) = (Pool::new(&[class]).unwrap(), Pool::new(&[class]).unwrap());
        let mut buf = pool.take(1).unwrap();
        buf.append(b"abc").unwrap();
        let part = buf.freeze().slice(1..2);
        assert_eq!((part.len(), part.capacity()), (1, 64));
        assert!(part.is_of(&pool) && part.is_of(&pool.clone()) && !part.is_of(&other));
    }
}
