//! File handles of this server (`nfs_fh3`, RFC 1813 §2.6): a file's identity, and a tag that only
//! this server can make.
//!
//! | octets | what, by birth time | what, by the kernel's handle | what, by Ceph's number |
//! |---|---|---|---|
//! | 0 | version, 1 | version, 2 | version, 3 |
//! | 1 | zero | kind of the kernel's handle | zero |
//! | 2 | zero | its octets, N: at most 32 | zero |
//! | 3 | zero | zero | zero |
//! | 4–7 | export id | export id | export id |
//! | 8–15 | inode number | inode number | inode number |
//! | 16–27 | birth time: seconds, nanoseconds | – | – |
//! | 16–23 | – | – | snapshot |
//! | N octets | – | the kernel's handle | – |
//! | last 16 | SipHash-2-4 (128 bits) over all before | the same | the same |
//!
//! Numbers are big-endian; the key is that of the state directory. The tag keeps a client from
//! naming a file whose handle it never got; the kernel opens any handle of a file system, so with
//! its handles nothing else would. Even the longest handle has room for the whole tag. The birth
//! time distinguishes a file from a later one with the same inode number; where the file system
//! records none it is zero, and that protection is missing. The kernel's handle has a generation
//! number for that. Ceph never reuses an inode number.

use core::fmt;

use rustix::fs::{Statx, StatxFlags};
use siphasher::sip128::SipHasher24;
use stag_ceph::Vino;
use stag_nfs_os::KernelHandle;
use stag_protocol::nfs::v3::{FileHandle, Status};
use subtle::ConstantTimeEq;

use super::config::ExportId;

/// A file's time of creation in its file system; orders files that share an inode number.
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

/// A location for a file: an inode number of an export. Reused after the file is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The file's export.
    pub export: ExportId,
    /// Its inode number.
    pub inode: u64,
}

/// One file, as opposed to any before or after it in the same location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Location of the file.
    pub file: FileId,
    /// Birth of the file, which distinguishes it from others that were at the same location.
    pub birth: Birth,
}

/// Content of a file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A file by its birth time; the index knows its names.
    Birth(Identity),
    /// A file by the kernel's handle, which opens it.
    Kernel(FileId, KernelHandle),
}

impl Named {
    /// Returns the location of the file.
    pub fn file(&self) -> FileId {
        match self {
            Self::Birth(identity) => identity.file,
            Self::Kernel(file, _) => *file,
        }
    }
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
    /// Bytes of a key.
    pub const LEN: usize = 16;

    const VERSION_BIRTH: u8 = 1;
    const VERSION_KERNEL: u8 = 2;
    const VERSION_CEPH: u8 = 3;
    const TAG_LEN: usize = 16;
    /// Version, export id, inode number.
    const HEAD_LEN: usize = 16;

    /// Handles under this key.
    pub fn new(key: &[u8; Self::LEN]) -> Self {
        Self(SipHasher24::new_with_key(key))
    }

    /// The handle of a file.
    pub fn seal(&self, named: &Named) -> FileHandle {
        let mut octets = [0; FileHandle::MAX];
        let mut body = HandleBody { octets: &mut octets, len: 0 };
        match named {
            Named::Birth(Identity { file, birth }) => {
                body.head([Self::VERSION_BIRTH, 0, 0, 0], file);
                body.put(&birth.seconds.to_be_bytes());
                body.put(&birth.nanos.to_be_bytes());
            }
            Named::Kernel(file, handle) => {
                let len = u8::try_from(handle.octets().len()).expect("at most 32");
                body.head([Self::VERSION_KERNEL, handle.kind(), len, 0], file);
                body.put(handle.octets());
            }
        }
        self.tag(body)
    }

    /// The handle of a file that Ceph identifies by number.
    pub fn seal_inode(&self, export: ExportId, vino: Vino) -> FileHandle {
        let mut octets = [0; FileHandle::MAX];
        let mut body = HandleBody { octets: &mut octets, len: 0 };
        body.head([Self::VERSION_CEPH, 0, 0, 0], &FileId { export, inode: vino.inode });
        body.put(&vino.snapshot.to_be_bytes());
        self.tag(body)
    }

    /// The export and the file named by a handle of [`seal_inode`](Self::seal_inode).
    ///
    /// # Errors
    /// [`Status::BadHandle`] unless it was made there with this key.
    pub fn open_inode(&self, handle: &FileHandle) -> Result<(ExportId, Vino), Status> {
        let parse = || {
            let (head, file, rest) = self.parse_head(handle.octets())?;
            let snapshot = u64::from_be_bytes(rest.try_into().ok()?);
            let vino = Vino { inode: file.inode, snapshot };
            (head == [Self::VERSION_CEPH, 0, 0, 0]).then_some((file.export, vino))
        };
        // RFC 1813 §2.6 [1813-7]: a handle that is not ours gets NFS3ERR_BADHANDLE
        parse().ok_or(Status::BadHandle)
    }

    fn tag(&self, mut body: HandleBody<'_>) -> FileHandle {
        let tag = self.0.hash(body.written()).as_bytes();
        body.put(&tag);
        FileHandle::new(body.written()).expect("as much as the octets of the longest")
    }

    /// The number that distinguishes an export's files from all others (`fsid`, RFC 1813 §2.6). It
    /// is the same for all holders of the key, and after a restart, whatever the host's device
    /// number. No handle is as short as the text hashed here, so the number reveals nothing about a
    /// tag.
    pub fn fsid(&self, export: ExportId) -> u64 {
        let mut message = *b"fsid\0\0\0\0";
        message[4..].copy_from_slice(&export.0.to_be_bytes());
        self.0.hash(&message).h1
    }

    /// The file a handle names. It need not exist.
    ///
    /// # Errors
    /// [`Status::BadHandle`] unless [`HandleKey::seal`] made the handle with this key.
    pub fn open(&self, handle: &FileHandle) -> Result<Named, Status> {
        // RFC 1813 §2.6 [1813-7]: a handle that is not ours gets NFS3ERR_BADHANDLE
        self.parse(handle.octets()).ok_or(Status::BadHandle)
    }

    /// The export that a handle claims to be in. The claim is not verified: use it only to choose
    /// the store that [verifies](Self::open) the handle.
    pub fn claimed_export(handle: &FileHandle) -> Option<ExportId> {
        let (_, rest) = handle.octets().split_first_chunk::<4>()?;
        rest.first_chunk().map(|id| ExportId(u32::from_be_bytes(*id)))
    }

    /// The first four octets of a handle with a valid tag, its file, and the rest.
    fn parse_head<'a>(&self, octets: &'a [u8]) -> Option<([u8; 4], FileId, &'a [u8])> {
        let (body, tag) = octets.split_last_chunk::<{ Self::TAG_LEN }>()?;
        let expected = self.0.hash(body).as_bytes();
        if !bool::from(expected.ct_eq(tag)) {
            return None;
        }
        let (head, rest) = body.split_first_chunk::<4>()?;
        let (export, rest) = rest.split_first_chunk::<4>()?;
        let (inode, rest) = rest.split_first_chunk::<8>()?;
        let file = FileId {
            export: ExportId(u32::from_be_bytes(*export)),
            inode: u64::from_be_bytes(*inode),
        };
        Some((*head, file, rest))
    }

    fn parse(&self, octets: &[u8]) -> Option<Named> {
        let ([version, kind, len, zero], file, rest) = self.parse_head(octets)?;
        match (version, kind, len, zero) {
            (Self::VERSION_BIRTH, 0, 0, 0) => {
                let (seconds, nanos) = rest.split_first_chunk::<8>()?;
                let nanos = u32::from_be_bytes(nanos.try_into().ok()?);
                let birth = Birth { seconds: i64::from_be_bytes(*seconds), nanos };
                Some(Named::Birth(Identity { file, birth }))
            }
            (Self::VERSION_KERNEL, kind, len, 0) if rest.len() == usize::from(len) => {
                Some(Named::Kernel(file, KernelHandle::new(kind, rest)?))
            }
            _ => None,
        }
    }
}

/// Octets of a handle being written.
struct HandleBody<'a> {
    octets: &'a mut [u8; FileHandle::MAX],
    len: usize,
}

impl HandleBody<'_> {
    fn head(&mut self, version: [u8; 4], file: &FileId) {
        self.put(&version);
        self.put(&file.export.0.to_be_bytes());
        self.put(&file.inode.to_be_bytes());
        debug_assert_eq!(self.len, HandleKey::HEAD_LEN);
    }

    fn put(&mut self, part: &[u8]) {
        let room = self.octets.get_mut(self.len..self.len + part.len());
        room.expect("HANDLE_LEN_MAX counts all parts").copy_from_slice(part);
        self.len += part.len();
    }

    fn written(&self) -> &[u8] {
        self.octets.get(..self.len).expect("`put` stays within")
    }
}

const _: () =
    assert!(HandleKey::HEAD_LEN + KernelHandle::MAX + HandleKey::TAG_LEN <= FileHandle::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FileId {
        FileId { export: ExportId(0x0102_0304), inode: 0x1112_1314_1516_1718 }
    }

    fn by_birth() -> Named {
        Named::Birth(Identity {
            file: file(),
            birth: Birth { seconds: -0x2122_2324_2526_2728, nanos: 0x3132_3334 },
        })
    }

    fn by_kernel(len: usize) -> Named {
        let octets: Vec<_> = (0x41..).take(len).collect();
        Named::Kernel(file(), KernelHandle::new(0x81, &octets).unwrap())
    }

    /// Handles of every form and length.
    fn all() -> impl Iterator<Item = Named> {
        (0..=KernelHandle::MAX).map(by_kernel).chain([by_birth()])
    }

    fn key() -> HandleKey {
        HandleKey::new(&[7; 16])
    }

    fn seal_octets(body: &[u8]) -> FileHandle {
        let octets = [body, &key().0.hash(body).as_bytes()].concat();
        FileHandle::new(&octets).unwrap()
    }

    #[test]
    fn a_handle_names_the_file_it_was_made_for() {
        for named in all() {
            assert_eq!(key().open(&key().seal(&named)), Ok(named));
        }
        assert_eq!(key().seal(&by_birth()).octets().len(), 44);
        assert_eq!(key().seal(&by_kernel(8)).octets().len(), 40);
        assert_eq!(key().seal(&by_kernel(KernelHandle::MAX)).octets().len(), FileHandle::MAX);
    }

    #[test]
    fn a_handle_of_ceph_names_its_file_and_no_changed_or_other_one_does() {
        let (export, vino) = (ExportId(7), Vino { inode: 0x100_0000_0001, snapshot: Vino::LIVE });
        let good = key().seal_inode(export, vino);
        assert_eq!(good.octets().len(), 40);
        assert_eq!(key().open_inode(&good), Ok((export, vino)));
        assert_eq!(key().open(&good), Err(Status::BadHandle), "of another store");
        for other in all().map(|named| key().seal(&named)) {
            assert_eq!(key().open_inode(&other), Err(Status::BadHandle));
        }
        for bit in 0..good.octets().len() * 8 {
            let mut octets = good.octets().to_vec();
            octets[bit / 8] ^= 1 << (bit % 8);
            let forged = FileHandle::new(&octets).unwrap();
            assert_eq!(key().open_inode(&forged), Err(Status::BadHandle), "bit {bit}");
        }
        for len in 0..good.octets().len() - HandleKey::TAG_LEN {
            let cut = seal_octets(&good.octets()[..len]);
            assert_eq!(key().open_inode(&cut), Err(Status::BadHandle), "{len} octets");
        }
        let marked = [&[3, 1][..], &good.octets()[2..24]].concat();
        assert_eq!(key().open_inode(&seal_octets(&marked)), Err(Status::BadHandle));
    }

    #[test]
    fn a_handle_with_any_bit_flipped_is_refused() {
        for good in all().map(|named| key().seal(&named)) {
            for bit in 0..good.octets().len() * 8 {
                let mut octets = good.octets().to_vec();
                octets[bit / 8] ^= 1 << (bit % 8);
                let forged = FileHandle::new(&octets).unwrap();
                assert_eq!(key().open(&forged), Err(Status::BadHandle), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_handle_of_any_other_length_is_refused() {
        for good in all().map(|named| key().seal(&named)) {
            let mut longer = good.octets().to_vec();
            longer.resize(FileHandle::MAX, 0);
            for len in (0..=FileHandle::MAX).filter(|len| *len != good.octets().len()) {
                let cut = FileHandle::new(&longer[..len]).unwrap();
                assert_eq!(key().open(&cut), Err(Status::BadHandle), "{len} octets");
            }
        }
    }

    #[test]
    fn a_handle_under_another_key_is_refused() {
        for named in all() {
            assert_eq!(key().open(&HandleKey::new(&[8; 16]).seal(&named)), Err(Status::BadHandle));
        }
    }

    #[test]
    fn a_rightly_tagged_body_of_another_version_is_refused() {
        for named in [by_birth(), by_kernel(8)] {
            let good = key().seal(&named);
            for octet in [0, 2, 3] {
                let mut body = good.octets()[..good.octets().len() - HandleKey::TAG_LEN].to_vec();
                body[octet] ^= 0x80;
                assert_eq!(
                    key().open(&seal_octets(&body)),
                    Err(Status::BadHandle),
                    "octet {octet}"
                );
            }
        }
    }

    #[test]
    fn a_rightly_tagged_body_of_any_length_is_read_or_refused() {
        for version in [1, 2] {
            for len in 0..=48 {
                let body: Vec<_> =
                    [version, 0, 0, 0].into_iter().chain([9; 44]).take(len).collect();
                let fits = len == if version == 1 { 28 } else { 16 };
                assert_eq!(
                    key().open(&seal_octets(&body)).is_ok(),
                    fits,
                    "version {version}, {len} octets"
                );
            }
        }
    }
}
