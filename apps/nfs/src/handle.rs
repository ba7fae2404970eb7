//! The file handles of this server (`nfs_fh3`, RFC 1813 §2.6): which file, and a tag that only this server can make.
//!
//! | octets | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1–3 | zero |
//! | 4–7 | export id |
//! | 8–15 | inode number |
//! | 16–27 | birth time: seconds, nanoseconds |
//! | 28–43 | SipHash-2-4 (128 bits) over octets 0–27, under the key of the state directory |
//!
//! Numbers are big-endian. The tag keeps a client from naming a file that it was never told of. The birth time tells a file
//! from a later one with the same inode number; where the file system records none it is zero, and that protection is missing.

use core::fmt;

use rustix::fs::{Statx, StatxFlags};
use siphasher::sip128::SipHasher24;
use stag_protocol::nfs::v3::{FileHandle, Status};
use subtle::ConstantTimeEq;

use crate::export::ExportId;

/// When a file was made, as the file system says; orders files that share an inode number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Birth {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanos: u32,
}

impl Birth {
    /// The birth time in `stat`, or [`Birth::default`] where the file system has none.
    pub fn of(stat: &Statx) -> Self {
        if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
            return Self::default();
        }
        Self { seconds: stat.stx_btime.tv_sec, nanos: stat.stx_btime.tv_nsec }
    }
}

/// A place for a file: an inode number of an export. Used again after the file is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The export the file lies in.
    pub export: ExportId,
    /// Its inode number.
    pub inode: u64,
}

/// One file, and no other before or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Where it is.
    pub file: FileId,
    /// Which of the files that were there.
    pub birth: Birth,
}

/// Makes and checks file handles.
#[derive(Clone)]
pub struct HandleKey(SipHasher24);

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey")
    }
}

impl HandleKey {
    /// Octets of a key.
    pub const LEN: usize = 16;

    const VERSION: u8 = 1;
    const BODY_LEN: usize = 28;
    const TAG_LEN: usize = 16;

    /// Octets of every handle of ours.
    pub const HANDLE_LEN: usize = Self::BODY_LEN + Self::TAG_LEN;

    /// Handles under this key.
    pub fn new(key: &[u8; Self::LEN]) -> Self {
        Self(SipHasher24::new_with_key(key))
    }

    /// The handle of a file.
    pub fn seal(&self, identity: &Identity) -> FileHandle {
        let mut octets = [0; Self::HANDLE_LEN];
        let (body, tag) = octets.split_at_mut(Self::BODY_LEN);
        body.copy_from_slice(&Self::body(identity));
        tag.copy_from_slice(&self.0.hash(body).as_bytes());
        FileHandle::new(&octets).expect("44 octets are at most 64")
    }

    /// The file a handle names. It need not exist.
    ///
    /// # Errors
    /// [`Status::BadHandle`] unless [`HandleKey::seal`] made the handle with this key.
    pub fn open(&self, handle: &FileHandle) -> Result<Identity, Status> {
        self.parse(handle.octets()).ok_or(Status::BadHandle)
    }

    fn parse(&self, octets: &[u8]) -> Option<Identity> {
        let octets: &[u8; Self::HANDLE_LEN] = octets.try_into().ok()?;
        let (body, tag) = octets.split_at(Self::BODY_LEN);
        let expected = self.0.hash(body).as_bytes();
        if !bool::from(expected.as_slice().ct_eq(tag)) {
            return None;
        }
        let (head, rest) = body.split_first_chunk::<4>()?;
        let (export, rest) = rest.split_first_chunk::<4>()?;
        let (inode, rest) = rest.split_first_chunk::<8>()?;
        let (seconds, nanos) = rest.split_first_chunk::<8>()?;
        if *head != [Self::VERSION, 0, 0, 0] {
            return None;
        }
        Some(Identity {
            file: FileId { export: ExportId(u32::from_be_bytes(*export)), inode: u64::from_be_bytes(*inode) },
            birth: Birth {
                seconds: i64::from_be_bytes(*seconds),
                nanos: u32::from_be_bytes(nanos.try_into().ok()?),
            },
        })
    }

    fn body(identity: &Identity) -> [u8; Self::BODY_LEN] {
        let mut body = [0; Self::BODY_LEN];
        let parts: [&[u8]; 5] = [
            &[Self::VERSION, 0, 0, 0],
            &identity.file.export.0.to_be_bytes(),
            &identity.file.inode.to_be_bytes(),
            &identity.birth.seconds.to_be_bytes(),
            &identity.birth.nanos.to_be_bytes(),
        ];
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

const _: () = assert!(HandleKey::HANDLE_LEN <= FileHandle::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            file: FileId { export: ExportId(0x0102_0304), inode: 0x1112_1314_1516_1718 },
            birth: Birth { seconds: -0x2122_2324_2526_2728, nanos: 0x3132_3334 },
        }
    }

    fn key() -> HandleKey {
        HandleKey::new(&[7; 16])
    }

    #[test]
    fn a_handle_names_the_file_it_was_made_for() {
        assert_eq!(key().open(&key().seal(&identity())), Ok(identity()));
        assert_eq!(key().seal(&identity()).octets().len(), 44);
    }

    #[test]
    fn a_handle_with_any_bit_flipped_is_refused() {
        let good = key().seal(&identity());
        for bit in 0..good.octets().len() * 8 {
            let mut octets = good.octets().to_vec();
            octets[bit / 8] ^= 1 << (bit % 8);
            let forged = FileHandle::new(&octets).unwrap();
            assert_eq!(key().open(&forged), Err(Status::BadHandle), "bit {bit}");
        }
    }

    #[test]
    fn a_handle_of_any_other_length_is_refused() {
        let good = key().seal(&identity());
        let mut longer = good.octets().to_vec();
        longer.resize(FileHandle::MAX, 0);
        for len in (0..=FileHandle::MAX).filter(|len| *len != HandleKey::HANDLE_LEN) {
            let cut = FileHandle::new(&longer[..len]).unwrap();
            assert_eq!(key().open(&cut), Err(Status::BadHandle), "{len} octets");
        }
    }

    #[test]
    fn a_handle_under_another_key_is_refused() {
        let handle = HandleKey::new(&[8; 16]).seal(&identity());
        assert_eq!(key().open(&handle), Err(Status::BadHandle));
    }

    #[test]
    fn a_rightly_tagged_body_of_another_version_is_refused() {
        for octet in 0..4 {
            let mut body = HandleKey::body(&identity());
            body[octet] ^= 0x80;
            let mut octets = body.to_vec();
            octets.extend(key().0.hash(&body).as_bytes());
            assert_eq!(key().open(&FileHandle::new(&octets).unwrap()), Err(Status::BadHandle));
        }
    }
}
