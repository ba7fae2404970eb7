//! The handles of one life of the store (`nfs_fh3`, RFC 1813 §2.6).
//!
//! | octets | what |
//! |---|---|
//! | 0 | version, 2 |
//! | 1–3 | zero |
//! | 4–11 | instance: random, drawn when the store is made |
//! | 12–15 | place in the table of inodes |
//! | 16–23 | file number, never used again |
//! | 24–39 | SipHash-2-4 (128 bits) over octets 0–23, under a key that is drawn with the instance |
//!
//! A handle of another instance is stale; one of this instance that the tag does not fit was not made here.

use rustix::rand::{GetRandomFlags, getrandom};
use siphasher::sip128::SipHasher24;
use stag_protocol::nfs::v3::{FileHandle, Status};
use subtle::ConstantTimeEq;

/// One inode: its place, and which of the files that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InodeId {
    /// Its place in the table.
    pub index: u32,
    /// Its file number.
    pub number: u64,
}

/// Makes and checks the handles of one life.
pub(super) struct Handles {
    instance: [u8; 8],
    key: SipHasher24,
}

impl core::fmt::Debug for Handles {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Handles")
    }
}

impl Handles {
    const VERSION: [u8; 4] = [2, 0, 0, 0];
    const BODY_LEN: usize = 24;
    /// Octets of every handle.
    pub const LEN: usize = Self::BODY_LEN + 16;

    /// A fresh instance and key.
    ///
    /// # Errors
    /// As `getrandom(2)`.
    pub fn draw() -> rustix::io::Result<Self> {
        let mut drawn = [0; 24];
        let filled = getrandom(&mut drawn, GetRandomFlags::empty())?;
        assert_eq!(filled, drawn.len(), "up to 256 octets come at once");
        let (instance, key) = drawn.split_first_chunk().expect("24 octets hold 8");
        let key: [u8; 16] = key.try_into().expect("24 octets hold 8 and 16");
        // RFC 1813 §3.3.7 [1813-46]
        Ok(Self { instance: *instance, key: SipHasher24::new_with_key(&key) })
    }

    /// What tells this life of the store from every other: also its write verifier.
    pub fn instance(&self) -> [u8; 8] {
        self.instance
    }

    /// The handle of an inode.
    pub fn seal(&self, inode: InodeId) -> FileHandle {
        let mut octets = [0; Self::LEN];
        let (body, tag) = octets.split_at_mut(Self::BODY_LEN);
        body.copy_from_slice(&self.body(inode));
        tag.copy_from_slice(&self.key.hash(body).as_bytes());
        FileHandle::new(&octets).expect("40 octets are at most 64")
    }

    /// The inode that a handle names. It need not exist.
    ///
    /// # Errors
    /// [`Status::Stale`] for a handle of another life, [`Status::BadHandle`] for one that nobody gave out.
    pub fn open(&self, handle: &FileHandle) -> Result<InodeId, Status> {
        let octets: &[u8; Self::LEN] = handle.octets().try_into().map_err(|_| Status::BadHandle)?;
        let (version, rest) = octets.split_first_chunk::<4>().ok_or(Status::BadHandle)?;
        let (instance, rest) = rest.split_first_chunk::<8>().ok_or(Status::BadHandle)?;
        let (index, rest) = rest.split_first_chunk::<4>().ok_or(Status::BadHandle)?;
        let (number, tag) = rest.split_first_chunk::<8>().ok_or(Status::BadHandle)?;
        if *version != Self::VERSION {
            return Err(Status::BadHandle);
        }
        if *instance != self.instance {
            return Err(Status::Stale);
        }
        let inode = InodeId { index: u32::from_be_bytes(*index), number: u64::from_be_bytes(*number) };
        let expected = self.key.hash(&self.body(inode)).as_bytes();
        // RFC 1813 §2.6 [1813-7]
        if bool::from(expected.as_slice().ct_eq(tag)) { Ok(inode) } else { Err(Status::BadHandle) }
    }

    fn body(&self, inode: InodeId) -> [u8; Self::BODY_LEN] {
        let mut body = [0; Self::BODY_LEN];
        let parts: [&[u8]; 4] =
            [&Self::VERSION, &self.instance, &inode.index.to_be_bytes(), &inode.number.to_be_bytes()];
        let mut rest = body.as_mut_slice();
        for part in parts {
            let (room, behind) = rest.split_at_mut(part.len());
            room.copy_from_slice(part);
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "the parts fill the body");
        body
    }
}

const _: () = assert!(Handles::LEN <= FileHandle::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: InodeId = InodeId { index: 0x0102_0304, number: 0x1112_1314_1516_1718 };

    #[test]
    fn a_handle_names_its_inode_in_its_own_life_only() {
        let (this, next) = (Handles::draw().unwrap(), Handles::draw().unwrap());
        let handle = this.seal(INODE);
        assert_eq!(this.open(&handle), Ok(INODE));
        assert_eq!(next.open(&handle), Err(Status::Stale));
    }

    #[test]
    fn a_handle_with_any_bit_flipped_or_cut_is_refused() {
        let handles = Handles::draw().unwrap();
        let good = handles.seal(INODE);
        for bit in 0..Handles::LEN * 8 {
            let mut octets = good.octets().to_vec();
            octets[bit / 8] ^= 1 << (bit % 8);
            let expected = if (4..12).contains(&(bit / 8)) { Status::Stale } else { Status::BadHandle };
            assert_eq!(handles.open(&FileHandle::new(&octets).unwrap()), Err(expected), "bit {bit}");
        }
        let mut longer = good.octets().to_vec();
        longer.resize(FileHandle::MAX, 0);
        for len in (0..=FileHandle::MAX).filter(|len| *len != Handles::LEN) {
            assert_eq!(handles.open(&FileHandle::new(&longer[..len]).unwrap()), Err(Status::BadHandle));
        }
    }
}
