//! Handles of one instance of the store (`nfs_fh3`, RFC 1813 §2.6).
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
//! A handle of another instance is stale; one of this instance with a wrong tag was not made here.
//! An inode keeps its tag: a handle of an existing inode is compared with that one, in constant
//! time, and only other handles are hashed, to separate stale from forged.

use rustix::rand::{GetRandomFlags, getrandom};
use siphasher::sip128::SipHasher24;
use stag_protocol::nfs::v3::{FileHandle, Status};
use subtle::ConstantTimeEq;

/// One inode: its index in the table, and its file number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InodeId {
    /// Its place in the table.
    pub index: u32,
    /// Its file number.
    pub number: u64,
}

/// The last 16 octets of a handle, which cannot be made without the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandleTag(u128);

impl HandleTag {
    /// Compares in constant time, so that the duration reveals nothing about the octets.
    pub fn is(self, other: Self) -> bool {
        let differences = (self.0 ^ other.0) as u64 | ((self.0 ^ other.0) >> 64) as u64;
        differences.ct_eq(&0).into()
    }
}

/// The fields of a handle of this instance, as sent: it is genuine only if the tag is the inode's.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandleClaim {
    pub inode: InodeId,
    pub tag: HandleTag,
}

/// Makes and checks the handles of one instance.
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
        // RFC 1813 §3.3.7 [1813-46]: each run of the server has its own write verifier
        Ok(Self { instance: *instance, key: SipHasher24::new_with_key(&key) })
    }

    /// Returns the octets that identify this instance of the store; also its write verifier.
    pub fn instance(&self) -> [u8; 8] {
        self.instance
    }

    /// The tag of an inode's handle.
    pub fn tag(&self, inode: InodeId) -> HandleTag {
        HandleTag(u128::from_ne_bytes(self.key.hash(&self.body(inode)).as_bytes()))
    }

    /// The handle of an inode whose tag is known.
    pub fn seal(&self, HandleClaim { inode, tag }: HandleClaim) -> FileHandle {
        let mut octets = [0; Self::LEN];
        let (body, room) = octets.split_at_mut(Self::BODY_LEN);
        body.copy_from_slice(&self.body(inode));
        room.copy_from_slice(&tag.0.to_ne_bytes());
        FileHandle::new(&octets).expect("40 octets are at most 64")
    }

    /// Parses a handle of this instance; does not check its tag.
    ///
    /// # Errors
    ///
    /// [`Status::Stale`] for a handle of another instance, [`Status::BadHandle`] for one that was
    /// never issued.
    pub fn take_apart(&self, handle: &FileHandle) -> Result<HandleClaim, Status> {
        let octets: &[u8; Self::LEN] = handle.octets().try_into().map_err(|_| Status::BadHandle)?;
        let (version, rest) = octets.split_first_chunk::<4>().ok_or(Status::BadHandle)?;
        let (instance, rest) = rest.split_first_chunk::<8>().ok_or(Status::BadHandle)?;
        let (index, rest) = rest.split_first_chunk::<4>().ok_or(Status::BadHandle)?;
        let (number, tag) = rest.split_first_chunk::<8>().ok_or(Status::BadHandle)?;
        let tag: &[u8; 16] = tag.try_into().map_err(|_| Status::BadHandle)?;
        if *version != Self::VERSION {
            return Err(Status::BadHandle);
        }
        if *instance != self.instance {
            return Err(Status::Stale);
        }
        let inode =
            InodeId { index: u32::from_be_bytes(*index), number: u64::from_be_bytes(*number) };
        Ok(HandleClaim { inode, tag: HandleTag(u128::from_ne_bytes(*tag)) })
    }

    /// Status of a handle without a matching inode: [`Status::Stale`] if it had one,
    /// [`Status::BadHandle`] if it was never issued.
    #[cold]
    pub fn refusal(&self, claim: HandleClaim) -> Status {
        // RFC 1813 §2.6 [1813-6]: a handle of a removed object gets NFS3ERR_STALE
        // RFC 1813 §2.6 [1813-7]: a handle that is not ours gets NFS3ERR_BADHANDLE
        if self.tag(claim.inode).is(claim.tag) { Status::Stale } else { Status::BadHandle }
    }

    /// The inode that a handle names, verified by hash. It need not exist.
    #[cfg(test)]
    pub fn open(&self, handle: &FileHandle) -> Result<InodeId, Status> {
        let claim = self.take_apart(handle)?;
        match self.refusal(claim) {
            Status::Stale => Ok(claim.inode),
            status => Err(status),
        }
    }

    fn body(&self, inode: InodeId) -> [u8; Self::BODY_LEN] {
        let mut body = [0; Self::BODY_LEN];
        let parts: [&[u8]; 4] = [
            &Self::VERSION,
            &self.instance,
            &inode.index.to_be_bytes(),
            &inode.number.to_be_bytes(),
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

const _: () = assert!(Handles::LEN <= FileHandle::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CreateMode, NewAttributes, Procedures as _,
        memory::{CAPACITY_MIN, Intent, Memory, MemoryConfig, MemoryExport},
    };

    const INODE: InodeId = InodeId { index: 0x0102_0304, number: 0x1112_1314_1516_1718 };

    #[test]
    fn a_handle_names_its_inode_in_its_own_life_only() {
        let (this, next) = (Handles::draw().unwrap(), Handles::draw().unwrap());
        let handle = this.seal(HandleClaim { inode: INODE, tag: this.tag(INODE) });
        assert_eq!(this.open(&handle), Ok(INODE));
        assert_eq!(next.open(&handle), Err(Status::Stale));
    }

    #[test]
    fn a_handle_with_any_bit_flipped_or_cut_is_refused() {
        let handles = Handles::draw().unwrap();
        let good = handles.seal(HandleClaim { inode: INODE, tag: handles.tag(INODE) });
        for bit in 0..Handles::LEN * 8 {
            let mut octets = good.octets().to_vec();
            octets[bit / 8] ^= 1 << (bit % 8);
            let expected =
                if (4..12).contains(&(bit / 8)) { Status::Stale } else { Status::BadHandle };
            assert_eq!(
                handles.open(&FileHandle::new(&octets).unwrap()),
                Err(expected),
                "bit {bit}"
            );
        }
        let mut longer = good.octets().to_vec();
        longer.resize(FileHandle::MAX, 0);
        for len in (0..=FileHandle::MAX).filter(|len| *len != Handles::LEN) {
            assert_eq!(
                handles.open(&FileHandle::new(&longer[..len]).unwrap()),
                Err(Status::BadHandle)
            );
        }
    }

    /// The answer of [`Memory::resolve`], computed by the handle's hash and then the table.
    fn by_hash(memory: &Memory, handle: &FileHandle) -> Result<InodeId, Status> {
        let id = memory.handles.open(handle)?;
        memory.inodes.get(id).map(|_| id)
    }

    #[test]
    fn a_handle_that_is_compared_gets_the_answer_of_one_that_is_hashed() {
        let exports = ["data", "other"].map(|name| MemoryExport {
            name: name.to_owned(),
            copy_of: None,
            read_only: false,
        });
        let config = MemoryConfig::new(exports.into(), CAPACITY_MIN);
        let (mut memory, mut other) = (
            Memory::new(&config, &mut |_| ()).unwrap(),
            Memory::new(&config, &mut |_| ()).unwrap(),
        );
        let root = memory.mount(b"/data").unwrap();
        let how = CreateMode::Guarded(NewAttributes::default());
        let [live, reused, gone] = ["live", "reused", "gone"]
            .map(|name| memory.create(&root, name.as_bytes(), &how).unwrap().handle);
        memory.remove(&root, b"gone").unwrap();
        memory.remove(&root, b"reused").unwrap();
        let newer = memory.create(&root, b"newer", &how).unwrap().handle;
        let foreign = other.mount(b"/data").unwrap();
        let elsewhere = memory.mount(b"/other").unwrap();
        let mut said = std::collections::HashSet::new();
        for handle in [root, live, reused, gone, newer, foreign, elsewhere] {
            let good = handle.octets();
            let flipped = (0..good.len() * 8).map(|bit| {
                let mut octets = good.to_vec();
                octets[bit / 8] ^= 1 << (bit % 8);
                octets
            });
            let cut = (0..=FileHandle::MAX).map(|len| {
                let mut octets = good.to_vec();
                octets.resize(len, 0);
                octets
            });
            // The front of this handle with the tag of each other one.
            let mixed = [root, live, reused, gone, newer, foreign, elsewhere]
                .map(|other| [&good[..24], &other.octets()[24..]].concat());
            for octets in flipped.chain(cut).chain(mixed).chain([good.to_vec()]) {
                let handle = FileHandle::new(&octets).unwrap();
                let answer = memory.resolve(&handle, Intent::Look);
                assert_eq!(answer, by_hash(&memory, &handle), "{handle:?}");
                said.insert(answer.err());
            }
        }
        let (stale, bad) = (Some(Status::Stale), Some(Status::BadHandle));
        assert_eq!(said, [None, stale, bad].into_iter().collect());
        assert_eq!(memory.resolve(&gone, Intent::Look), Err(Status::Stale));
        assert_eq!(memory.resolve(&reused, Intent::Look), Err(Status::Stale));
    }
}
