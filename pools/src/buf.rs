//! Buffer: the only owner of one slot, out of reach of any peer.

use crate::{
    extent::Extent,
    pool::{PoolInner, PoolPlace, SlotId, Writer},
    window::{Access, Exposed},
};
use std::{
    fmt,
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
    rc::Rc,
};

/// The only owner of one slot, or of adjacent ones ([`Pool::take_run`](crate::Pool::take_run)). It
/// derefs to its content: the octets between the head room and the spare room.
///
/// Dropping it returns what it owns to the pool.
///
/// A buffer is accessed many times for each message, so it stores the address of its slot.
pub struct Buf {
    pool: Rc<PoolInner>,
    /// The slot's first octet, at which there are `capacity` of them as long as `pool` lives.
    address: NonNull<u8>,
    slot: SlotId,
    capacity: u32,
    /// `start <= end <= capacity`, always.
    start: u32,
    end: u32,
}

// Messages change hands many times.
const _: () = assert!(size_of::<Option<Buf>>() == 32);

/// More octets than the buffer has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Buf {
    /// Takes over a slot, or adjacent ones from `slot` on, that were just popped from the free
    /// list, so that they have no other holder. `address` is the pool's value for `slot`, and
    /// `capacity` the sum of their octets.
    #[inline]
    pub(crate) const fn adopt(
        pool: Rc<PoolInner>,
        slot: SlotId,
        address: NonNull<u8>,
        capacity: u32,
    ) -> Self {
        Self { pool, address, slot, capacity, start: 0, end: 0 }
    }

    /// Octets that its slots hold, head room and spare room included.
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Place at which the content begins.
    pub fn place(&self) -> PoolPlace {
        self.pool.place(self.slot, self.start)
    }

    /// Octets in front of the content.
    #[inline]
    pub const fn head_room(&self) -> usize {
        self.start as usize
    }

    /// Octets after the content.
    #[inline]
    pub const fn spare_len(&self) -> usize {
        self.capacity() - self.end as usize
    }

    /// Empties the buffer and leaves `head_room` octets for headers that are written later.
    ///
    /// # Panics
    /// When the capacity is less than `head_room`.
    #[inline]
    pub fn reset(&mut self, head_room: usize) {
        assert!(head_room <= self.capacity(), "the head room fits the buffer");
        self.start = head_room as u32;
        self.end = head_room as u32;
    }

    /// The octets after the content, to be filled and then claimed by [`extend`](Self::extend).
    /// They may hold what an earlier owner of the slot left there.
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let end = self.end as usize;
        self.slot_mut().split_at_mut(end).1
    }

    /// Makes the first `len` spare octets part of the content.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    pub fn extend(&mut self, len: usize) {
        assert!(len <= self.spare_len(), "only existing octets become content");
        self.end += len as u32;
    }

    /// Appends `octets` to the content.
    #[inline]
    pub fn append(&mut self, octets: &[u8]) -> Result<(), Full> {
        self.spare_mut().get_mut(..octets.len()).ok_or(Full)?.copy_from_slice(octets);
        self.extend(octets.len());
        Ok(())
    }

    /// Makes the last `len` octets of the head room part of the content and returns them.
    #[inline]
    pub fn prepend(&mut self, len: usize) -> Result<&mut [u8], Full> {
        let start = self.head_room().checked_sub(len).ok_or(Full)?;
        self.start = start as u32;
        let content: &mut [u8] = self;
        Ok(content.split_at_mut(len).0)
    }

    /// Keeps the first `len` octets of the content.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.end = self.start + len as u32;
        }
    }

    /// Drops the first `len` octets of the content, all of them when there are fewer.
    #[inline]
    pub fn trim_front(&mut self, len: usize) {
        self.start += len.min(self.len()) as u32;
    }

    /// Lets many readers share the content, which can no longer change. Slots of a run that have
    /// nothing of it are freed.
    pub fn freeze(self) -> Extent {
        let (slot, address, start, end) = (self.slot, self.address, self.start, self.end);
        if slot.is_run() {
            return self.freeze_run();
        }
        Extent::adopt(self.into_pool(), slot, address, start..end)
    }

    #[cold]
    fn freeze_run(self) -> Extent {
        let (slot, address, capacity) = (self.slot, self.address, self.capacity);
        let content = self.start..self.end;
        // As an extent of all slots, of which the content is a part.
        let whole = Extent::adopt_run(self.into_pool(), slot, address, capacity);
        whole.slice(content.start as usize..content.end as usize)
    }

    /// Opens the octets `span` of the content to a peer. There is no way to reach the content
    /// before the window that names it is fenced.
    ///
    /// # Panics
    /// When `span` is not inside the content.
    pub fn expose(self, span: Range<usize>, access: Access) -> Exposed {
        if access == Access::RemoteWrite {
            self.forget_writer();
        }
        Exposed::new(self, span, access)
    }

    /// The same, for a device, which does not report what a peer wrote: octets that the peer may
    /// write are cleared first, unless `writer` wrote them. Otherwise a peer that claims to have
    /// written them could disclose an earlier owner's octets. Also returns the number of octets
    /// cleared.
    ///
    /// # Panics
    /// When `span` is not inside the content.
    pub fn expose_cleared(
        self,
        span: Range<usize>,
        access: Access,
        writer: Writer,
    ) -> (Exposed, usize) {
        let place = self.start as usize + span.start..self.start as usize + span.end;
        let known = match access {
            Access::RemoteWrite => self.pool.mark(self.slot, writer, place),
            Access::RemoteRead => 0,
        };
        Exposed::new_cleared(self, span, access, known)
    }

    /// Clears the record of the peer that wrote its octets
    /// ([`Pool::take_room`](crate::Pool::take_room)).
    pub fn forget_writer(&self) {
        self.pool.forget_writer(self.slot);
    }

    /// Forgets the slot without giving it back.
    fn into_pool(self) -> Rc<PoolInner> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the reference moves out exactly once.
        unsafe { std::ptr::read(&raw const this.pool) }
    }

    fn slot_mut(&mut self) -> &mut [u8] {
        // SAFETY: `address` is valid for `capacity` initialised octets while `self.pool` lives, and
        // this `Buf` is the only holder of the slots they are in; the result borrows `self`
        // mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.capacity()) }
    }

    /// The first octet of the content.
    #[inline]
    fn content(&self) -> NonNull<u8> {
        // SAFETY: `start <= capacity`, so the result is in the buffer's slots or at their end.
        unsafe { self.address.add(self.start as usize) }
    }

    #[inline]
    const fn content_len(&self) -> usize {
        debug_assert!(self.start <= self.end && self.end <= self.capacity);
        (self.end - self.start) as usize
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the content is in the buffer's slots, for `start <= end <= capacity`, whose
        // octets are adjacent, initialised and there while `self.pool` lives; this `Buf` is their
        // only holder, and the result borrows it, so nothing changes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.content().as_ptr(), self.content_len()) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the result borrows `self` mutably.
        unsafe { std::slice::from_raw_parts_mut(self.content().as_ptr(), self.content_len()) }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        match self.slot.is_run() {
            false => self.pool.give(self.slot),
            true => self.pool.give_run(self.slot, self.capacity),
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} of {} octets)", self.len(), self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Pool};

    fn buf(len: usize) -> Buf {
        Pool::new(&[Class { slot_len: len, count: 1 }]).unwrap().take(len).unwrap()
    }

    #[test]
    fn headers_go_in_front_of_what_is_already_written() {
        let mut buf = buf(64);
        buf.reset(8);
        buf.append(b"payload").unwrap();
        buf.prepend(3).unwrap().copy_from_slice(b"hd:");
        assert_eq!(&buf[..], b"hd:payload");
        assert_eq!(buf.prepend(6), Err(Full));
        assert_eq!(buf.head_room(), 5);
        buf.trim_front(3);
        buf.truncate(3);
        assert_eq!(&buf[..], b"pay");
    }

    #[test]
    fn content_never_leaves_the_slot() {
        let mut buf = buf(64);
        assert_eq!(buf.append(&[0; 65]), Err(Full));
        buf.append(&[1; 64]).unwrap();
        assert_eq!(buf.append(&[0]), Err(Full));
        buf.trim_front(100);
        assert!(buf.is_empty());
        buf.truncate(9);
        assert!(buf.is_empty());
    }

    #[test]
    #[should_panic(expected = "only existing octets")]
    fn spare_octets_that_do_not_exist_cannot_be_claimed() {
        buf(64).extend(65);
    }
}
