//! Open directories.

use crate::{
    abi::{CephStat, RawDirectory, StatMask},
    inode::CephInode,
    mount::MountHandle,
    user::UserPerm,
};
use libc::dirent64;
use rustix::io::Errno;
use std::{
    fmt,
    mem::MaybeUninit,
    ptr::{addr_of, null_mut},
    sync::Arc,
};

/// An open directory; closed when it is dropped. Its place belongs to its holder.
pub struct CephDirectory {
    mount: Arc<MountHandle>,
    raw: RawDirectory,
    entry: MaybeUninit<dirent64>,
}

// SAFETY: the library's calls may come from any thread, one at a time, as `&mut` sees to.
unsafe impl Send for CephDirectory {}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// Name, also `.` and `..`.
    pub name: &'a [u8],
    /// The place after it, for [`CephDirectory::seek`]: the same for all clients.
    pub next: u64,
    /// Attributes of the object, as far as they were asked for.
    pub attributes: CephStat,
}

impl CephInode {
    /// Opens the directory.
    ///
    /// # Errors
    /// As the library says: it judges the user.
    pub fn open_directory(&self, user: &UserPerm<'_>) -> Result<CephDirectory, Errno> {
        let mut raw = null_mut();
        let (library, mount) = (self.mount.library, self.mount.raw);
        // SAFETY: the inode is held by its mount, the user borrowed, the pointer ours.
        let code = unsafe { (library.ceph_ll_opendir)(mount, self.raw, &mut raw, user.raw) };
        self.mount.returned(code)?;
        assert!(!raw.is_null(), "a call that succeeds gives an open directory");
        let mount = Arc::clone(&self.mount);
        Ok(CephDirectory { mount, raw, entry: MaybeUninit::zeroed() })
    }
}

impl CephDirectory {
    /// Goes to a place that an entry named; 0 is the beginning.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a place that there cannot be.
    pub fn seek(&mut self, place: u64) -> Result<(), Errno> {
        let place = i64::try_from(place).map_err(|_| Errno::INVAL)?;
        // SAFETY: the directory is open, and nothing else uses it.
        unsafe { (self.mount.library.ceph_seekdir)(self.mount.raw, self.raw, place) };
        Ok(())
    }

    /// The next entry, with these attributes of its object; None at the end.
    ///
    /// # Errors
    /// As the library says.
    pub fn next(&mut self, want: StatMask) -> Result<Option<DirectoryEntry<'_>>, Errno> {
        let mut attributes = CephStat::default();
        let (library, mount) = (self.mount.library, self.mount.raw);
        let entry = self.entry.as_mut_ptr();
        // SAFETY: the directory is open and nothing else uses it; both structures are ours; no
        // inode is asked for.
        let code = unsafe {
            (library.ceph_readdirplus_r)(
                mount,
                self.raw,
                entry,
                &mut attributes,
                want.0,
                0,
                null_mut(),
            )
        };
        if self.mount.returned(code)? == 0 {
            return Ok(None);
        }
        // SAFETY: zeros are an entry, and the library filled it.
        let entry = unsafe { self.entry.assume_init_ref() };
        // SAFETY: the name's octets are all initialised, and a name is at most as long as its room.
        let octets = unsafe { &*addr_of!(entry.d_name).cast::<[u8; 256]>() };
        let name = octets.split(|octet| *octet == 0).next().unwrap_or_default();
        let next = u64::try_from(entry.d_off).map_err(|_| Errno::OVERFLOW)?;
        Ok(Some(DirectoryEntry { name, next, attributes }))
    }
}

impl Drop for CephDirectory {
    fn drop(&mut self) {
        // SAFETY: the open directory is ours, its mount lives, and nothing borrows this.
        let _ = unsafe { (self.mount.library.ceph_ll_releasedir)(self.mount.raw, self.raw) };
    }
}

impl fmt::Debug for CephDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "directory of {:?}", self.mount)
    }
}
