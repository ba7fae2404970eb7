//! Files and directories that are held by their inode: attributes, space, extended attributes.

use crate::{
    abi::{CephStat, RawInode, Stamp, StatMask, Vino},
    mount::MountHandle,
    user::UserPerm,
};
use libc::c_int;
use rustix::io::Errno;
use std::{ffi::CStr, fmt, sync::Arc};

/// A reference to a file, which the library keeps known until it is dropped.
pub struct CephInode {
    pub(crate) mount: Arc<MountHandle>,
    pub(crate) raw: RawInode,
}

// SAFETY: the library's calls on an inode may come from several threads at a time.
unsafe impl Send for CephInode {}
// SAFETY: as above.
unsafe impl Sync for CephInode {}

impl fmt::Debug for CephInode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode of {:?}", self.mount)
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetStamp {
    /// The time at which it is set. Every user who may write the file may ask for it.
    Now(Stamp),
    /// Another time, which only the owner may ask for.
    At(Stamp),
}

/// Attributes to be set; None stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStat {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Octets.
    pub size: Option<u64>,
    /// Time of the last access.
    pub accessed: Option<SetStamp>,
    /// Time of the last change of the content.
    pub modified: Option<SetStamp>,
}

/// Bits of `CEPH_SETATTR_*`.
const SET_MODE: c_int = 1;
const SET_UID: c_int = 1 << 1;
const SET_GID: c_int = 1 << 2;
const SET_MODIFIED: c_int = 1 << 3;
const SET_ACCESSED: c_int = 1 << 4;
const SET_SIZE: c_int = 1 << 5;
const SET_MODIFIED_NOW: c_int = 1 << 7;
const SET_ACCESSED_NOW: c_int = 1 << 8;

impl SetStat {
    fn octets(&self) -> (CephStat, c_int) {
        let mut stat = CephStat::default();
        let mut mask = 0;
        if let Some(mode) = self.mode {
            // The type's bits are not set by this call, so sixteen bits are all there are.
            stat.mode = (mode & 0o7777) as u16;
            mask |= SET_MODE;
        }
        if let Some(uid) = self.uid {
            stat.uid = uid;
            mask |= SET_UID;
        }
        if let Some(gid) = self.gid {
            stat.gid = gid;
            mask |= SET_GID;
        }
        if let Some(size) = self.size {
            stat.size = size;
            mask |= SET_SIZE;
        }
        let mut stamp = |set, one, now| match set {
            None => Stamp::default(),
            Some(SetStamp::Now(stamp)) => {
                mask |= one | now;
                stamp
            }
            Some(SetStamp::At(stamp)) => {
                mask |= one;
                stamp
            }
        };
        stat.accessed = stamp(self.accessed, SET_ACCESSED, SET_ACCESSED_NOW);
        stat.modified = stamp(self.modified, SET_MODIFIED, SET_MODIFIED_NOW);
        (stat, mask)
    }
}

/// Space of a file system, or below a directory with a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUse {
    /// Octets of a block.
    pub block_len: u64,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that are free.
    pub free: u64,
    /// Blocks that anybody may use.
    pub available: u64,
    /// Files.
    pub files: u64,
    /// Files that may still be made.
    pub files_free: u64,
}

impl CephInode {
    /// Takes over the reference that a call gave.
    pub(crate) fn adopt(mount: &Arc<MountHandle>, raw: RawInode) -> Self {
        assert!(!raw.is_null(), "a call that succeeds gives an inode");
        Self { mount: Arc::clone(mount), raw }
    }

    /// Refuses an inode of another mount: its pointer means nothing to this one.
    pub(crate) fn with(&self, other: &Self) -> Result<(), Errno> {
        if Arc::ptr_eq(&self.mount, &other.mount) { Ok(()) } else { Err(Errno::STALE) }
    }

    /// The library that it came from.
    pub fn library(&self) -> &'static crate::Library {
        self.mount.library
    }

    /// The generation of the mount it belongs to.
    pub fn generation(&self) -> u64 {
        self.mount.generation
    }

    /// Its attributes, as far as they are asked for. Checks no permission.
    ///
    /// # Errors
    /// As the library says.
    pub fn attributes(&self, want: StatMask, user: &UserPerm<'_>) -> Result<CephStat, Errno> {
        let mut stat = CephStat::default();
        let (library, mount) = (self.mount.library, self.mount.raw);
        // SAFETY: the inode is held by its mount, the user borrowed, the structure ours.
        let code =
            unsafe { (library.ceph_ll_getattr)(mount, self.raw, &mut stat, want.0, 0, user.raw) };
        self.mount.returned(code)?;
        Ok(stat)
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// As the library says: it judges the user.
    pub fn set_attributes(&self, set: &SetStat, user: &UserPerm<'_>) -> Result<(), Errno> {
        let (mut stat, mask) = set.octets();
        let (library, mount) = (self.mount.library, self.mount.raw);
        // SAFETY: as in `getattr`.
        let code = unsafe { (library.ceph_ll_setattr)(mount, self.raw, &mut stat, mask, user.raw) };
        self.mount.returned(code).map(drop)
    }

    /// Space of the file system. Asks a monitor, always.
    ///
    /// # Errors
    /// As the library says.
    pub fn space(&self) -> Result<SpaceUse, Errno> {
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        let (library, mount) = (self.mount.library, self.mount.raw);
        // SAFETY: the inode is held by its mount; the library fills the structure.
        let code = unsafe { (library.ceph_ll_statfs)(mount, self.raw, found.as_mut_ptr()) };
        self.mount.returned(code)?;
        // SAFETY: zeros are a value of a structure of numbers, and it was filled above.
        let found = unsafe { found.assume_init() };
        Ok(SpaceUse {
            block_len: found.f_frsize,
            blocks: found.f_blocks,
            free: found.f_bfree,
            available: found.f_bavail,
            files: found.f_files,
            files_free: found.f_ffree,
        })
    }

    /// Reads an extended attribute to `into`, and returns its octets.
    ///
    /// # Errors
    /// As the library says: [`Errno::NODATA`] where there is none, [`Errno::RANGE`] where it is
    /// longer.
    pub fn extended(
        &self,
        name: &CStr,
        into: &mut [u8],
        user: &UserPerm<'_>,
    ) -> Result<usize, Errno> {
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (room, len) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: the name and the room live during the call, and the room has that length.
        let code = unsafe {
            (library.ceph_ll_getxattr)(mount, self.raw, name.as_ptr(), room, len, user.raw)
        };
        let found = self.mount.returned(code)?;
        usize::try_from(found).ok().filter(|found| *found <= len).ok_or(Errno::RANGE)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As the library says.
    pub fn set_extended(
        &self,
        name: &CStr,
        value: &[u8],
        user: &UserPerm<'_>,
    ) -> Result<(), Errno> {
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (from, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: the name and the value live during the call.
        let code = unsafe {
            (library.ceph_ll_setxattr)(mount, self.raw, name.as_ptr(), from, len, 0, user.raw)
        };
        self.mount.returned(code).map(drop)
    }

    /// Its name for ever.
    ///
    /// # Errors
    /// As the library says.
    pub fn vino(&self) -> Result<Vino, Errno> {
        let user = UserPerm::root(self.mount.library);
        let stat = self.attributes(StatMask::INODE, &user)?;
        Ok(Vino { inode: stat.inode, snapshot: stat.device })
    }
}

impl Drop for CephInode {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, its mount lives, and nothing borrows this.
        let _ = unsafe { (self.mount.library.ceph_ll_put)(self.mount.raw, self.raw) };
    }
}
