//! Memory of a shard's pool lent to another thread: the shard keeps the buffer and cannot access it
//! until the other thread returns the memory.
//!
//! A buffer counts its owners without locks, so it never leaves its thread. Only the address of its
//! bytes leaves, as a [`LentRoom`] to write to or a [`LentOctets`] to read from. Memory that never
//! returns, because its thread or system call hangs forever, stays out of use forever, and with it
//! the whole pool: memory that may still be written to cannot be unmapped.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use stag_pools::{Buf, Extent};

/// Spare room of a buffer, to be filled by the thread that holds it.
pub struct LentRoom {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: a room is the only way to its octets: `RoomKeeper::lend` took the only owner of the
// buffer, and gives no access to it before the room is back.
unsafe impl Send for LentRoom {}

/// Constant bytes, to be read by the thread that holds them.
pub struct LentOctets {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: an extent's octets never change, and `OctetsKeeper` holds the extent, or leaks it, as
// long as these octets may be read.
unsafe impl Send for LentOctets {}

/// Keeps a buffer whose room is lent. Dropped without the room, it leaks the buffer.
#[derive(Debug)]
#[must_use]
pub struct RoomKeeper(Option<Buf>);

/// Keeps an extent whose bytes are lent. Dropped without them, it leaks the extent.
#[derive(Debug)]
#[must_use]
pub struct OctetsKeeper(Option<Extent>);

impl RoomKeeper {
    /// Lends the first `len` spare bytes of a buffer.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn lend(mut buf: Buf, len: usize) -> (Self, LentRoom) {
        let (room, _) = buf.spare_mut().split_at_mut(len); // which is what was asked for
        let at = NonNull::from(room).cast();
        (Self(Some(buf)), LentRoom { at, len })
    }

    /// The buffer, once its room is returned; its content is unchanged.
    ///
    /// # Panics
    /// When the room belongs to another buffer.
    pub fn regain(mut self, room: LentRoom) -> Buf {
        let mut buf = self.0.take().expect("it is there until it is regained");
        let own = NonNull::from(buf.spare_mut()).cast();
        if own != room.at {
            core::mem::forget(buf);
            panic!("a room comes back to its own buffer");
        }
        buf
    }
}

impl Drop for RoomKeeper {
    fn drop(&mut self) {
        core::mem::forget(self.0.take());
    }
}

impl OctetsKeeper {
    /// Lends the bytes of an extent.
    pub fn lend(extent: Extent) -> (Self, LentOctets) {
        let octets: &[u8] = &extent;
        let (at, len) = (NonNull::from(octets).cast(), octets.len());
        (Self(Some(extent)), LentOctets { at, len })
    }

    /// The extent, once its bytes are returned.
    ///
    /// # Panics
    /// When the bytes belong to another extent.
    pub fn regain(mut self, octets: LentOctets) -> Extent {
        let extent = self.0.take().expect("it is there until it is regained");
        let own: &[u8] = &extent;
        if NonNull::from(own).cast() != octets.at {
            core::mem::forget(extent);
            panic!("octets come back to their own extent");
        }
        extent
    }
}

impl Drop for OctetsKeeper {
    fn drop(&mut self) {
        core::mem::forget(self.0.take());
    }
}

impl Deref for LentRoom {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the octets are initialised memory of a pool, which stays mapped because their
        // buffer is kept or leaked as long as this room exists; no other code reaches them.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for LentRoom {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the result borrows the room, which is the only way to its octets.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Deref for LentOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the octets are those of an extent, which is kept or leaked as long as these may
        // be read, so that they stay mapped, initialised and unchanged.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl fmt::Debug for LentRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentRoom({} octets)", self.len)
    }
}

impl fmt::Debug for LentOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentOctets({} octets)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Class, Pool};

    fn pool() -> Pool {
        Pool::new(&[Class { slot_len: 4096, count: 4 }]).unwrap()
    }

    #[test]
    fn what_another_thread_wrote_to_a_room_is_in_the_buffer_when_it_is_back() {
        let pool = pool();
        let mut buf = pool.take(100).unwrap();
        buf.append(b"head").unwrap();
        let (keeper, mut room) = RoomKeeper::lend(buf, 50);
        let room = std::thread::spawn(move || {
            room.fill(7);
            room
        });
        let mut buf = keeper.regain(room.join().unwrap());
        buf.extend(50);
        assert_eq!(buf[..4], *b"head");
        assert!(buf[4..].iter().all(|octet| *octet == 7) && buf.len() == 54);
        drop(buf);
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn octets_are_read_elsewhere_and_come_back_shared_as_they_were() {
        let pool = pool();
        let mut buf = pool.take(100).unwrap();
        buf.append(b"payload").unwrap();
        let extent = buf.freeze();
        let (keeper, octets) = OctetsKeeper::lend(extent.slice(3..7));
        let (len, octets) =
            std::thread::spawn(move || (octets.iter().filter(|o| **o == b'o').count(), octets))
                .join()
                .unwrap();
        assert_eq!((len, &*octets), (1, &b"load"[..]));
        assert_eq!(*keeper.regain(octets), *b"load");
        drop(extent);
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn a_buffer_whose_room_never_comes_back_is_out_of_use_and_stays_mapped() {
        let pool = pool();
        let (keeper, mut room) = RoomKeeper::lend(pool.take(100).unwrap(), 100);
        drop(keeper);
        assert_eq!(pool.taken(), 1);
        drop(pool);
        room.fill(1);
        assert_eq!(room[99], 1, "nobody unmapped it");
    }

    #[test]
    #[should_panic(expected = "its own buffer")]
    fn a_room_comes_back_to_no_other_buffer() {
        let pool = pool();
        let (keeper, _room) = RoomKeeper::lend(pool.take(100).unwrap(), 100);
        let (_other, room) = RoomKeeper::lend(pool.take(100).unwrap(), 100);
        drop(keeper.regain(room));
    }
}
