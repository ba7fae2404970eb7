//! Names in directories: finding, making, renaming, removing. The library judges the user.

use crate::{
    abi::{CephStat, StatMask},
    file::CephFile,
    inode::CephInode,
    user::UserPerm,
};
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, c_int};
use rustix::io::Errno;
use std::{ffi::CStr, ptr::null_mut};

/// Ways to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlags {
    /// To read.
    Read,
    /// To read and to write.
    ReadWrite,
}

/// An object that was found or made, with all its attributes.
type FoundInode = (CephInode, CephStat);

impl CephInode {
    /// The object of this name in the directory; `.` and `..` are names, too.
    ///
    /// # Errors
    /// As the library says.
    pub fn lookup(&self, name: &CStr, user: &UserPerm<'_>) -> Result<FoundInode, Errno> {
        let (mut inode, mut stat) = (null_mut(), CephStat::default());
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (name, want) = (name.as_ptr(), StatMask::ALL.0);
        // SAFETY: the directory is held by its mount; name, user and results live during the call.
        let code = unsafe {
            (library.ceph_ll_lookup)(
                mount, self.raw, name, &mut inode, &mut stat, want, 0, user.raw,
            )
        };
        self.mount.returned(code)?;
        Ok((Self::adopt(&self.mount, inode), stat))
    }

    /// Makes a regular file, or opens the one that is there unless `is_new` is set.
    ///
    /// # Errors
    /// As the library says; [`Errno::EXIST`] where `is_new` is set and the name is taken.
    pub fn create(
        &self,
        name: &CStr,
        mode: u32,
        is_new: bool,
        user: &UserPerm<'_>,
    ) -> Result<(Self, CephFile, CephStat), Errno> {
        let (mut inode, mut file, mut stat) = (null_mut(), null_mut(), CephStat::default());
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (name, want) = (name.as_ptr(), StatMask::ALL.0);
        let flags: c_int = O_RDWR | O_CREAT | if is_new { O_EXCL } else { 0 };
        // SAFETY: as in `lookup`.
        let code = unsafe {
            (library.ceph_ll_create)(
                mount, self.raw, name, mode, flags, &mut inode, &mut file, &mut stat, want, 0,
                user.raw,
            )
        };
        self.mount.returned(code)?;
        Ok((Self::adopt(&self.mount, inode), CephFile::adopt(&self.mount, file), stat))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As the library says.
    pub fn make_directory(
        &self,
        name: &CStr,
        mode: u32,
        user: &UserPerm<'_>,
    ) -> Result<FoundInode, Errno> {
        let (mut inode, mut stat) = (null_mut(), CephStat::default());
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (name, want) = (name.as_ptr(), StatMask::ALL.0);
        // SAFETY: as in `lookup`.
        let code = unsafe {
            (library.ceph_ll_mkdir)(
                mount, self.raw, name, mode, &mut inode, &mut stat, want, 0, user.raw,
            )
        };
        self.mount.returned(code)?;
        Ok((Self::adopt(&self.mount, inode), stat))
    }

    /// Makes a special file: `mode` has its type, `device` is `makedev`'s number.
    ///
    /// # Errors
    /// As the library says.
    pub fn make_node(
        &self,
        name: &CStr,
        mode: u32,
        device: u64,
        user: &UserPerm<'_>,
    ) -> Result<FoundInode, Errno> {
        let (mut inode, mut stat) = (null_mut(), CephStat::default());
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (name, want) = (name.as_ptr(), StatMask::ALL.0);
        // SAFETY: as in `lookup`.
        let code = unsafe {
            (library.ceph_ll_mknod)(
                mount, self.raw, name, mode, device, &mut inode, &mut stat, want, 0, user.raw,
            )
        };
        self.mount.returned(code)?;
        Ok((Self::adopt(&self.mount, inode), stat))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As the library says.
    pub fn make_link(
        &self,
        name: &CStr,
        target: &CStr,
        user: &UserPerm<'_>,
    ) -> Result<FoundInode, Errno> {
        let (mut inode, mut stat) = (null_mut(), CephStat::default());
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (name, target, want) = (name.as_ptr(), target.as_ptr(), StatMask::ALL.0);
        // SAFETY: as in `lookup`; the target lives during the call.
        let code = unsafe {
            (library.ceph_ll_symlink)(
                mount, self.raw, name, target, &mut inode, &mut stat, want, 0, user.raw,
            )
        };
        self.mount.returned(code)?;
        Ok((Self::adopt(&self.mount, inode), stat))
    }

    /// Reads the target of a symbolic link to `into`, and returns its octets.
    ///
    /// # Errors
    /// As the library says; [`Errno::INVAL`] unless this is a symbolic link.
    pub fn read_link(&self, into: &mut [u8], user: &UserPerm<'_>) -> Result<usize, Errno> {
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (room, len) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: the inode is held; the room has that length.
        let code = unsafe { (library.ceph_ll_readlink)(mount, self.raw, room, len, user.raw) };
        let found = self.mount.returned(code)?;
        Ok(usize::try_from(found).unwrap_or(len).min(len))
    }

    /// Gives the file one more name, in `directory`.
    ///
    /// # Errors
    /// As the library says; [`Errno::STALE`] for a directory of another mount.
    pub fn link(&self, directory: &Self, name: &CStr, user: &UserPerm<'_>) -> Result<(), Errno> {
        self.with(directory)?;
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (to, name) = (directory.raw, name.as_ptr());
        // SAFETY: both inodes are held by this mount; name and user live during the call.
        let code = unsafe { (library.ceph_ll_link)(mount, self.raw, to, name, user.raw) };
        self.mount.returned(code).map(drop)
    }

    /// Removes the name of an object other than a directory.
    ///
    /// # Errors
    /// As the library says.
    pub fn unlink(&self, name: &CStr, user: &UserPerm<'_>) -> Result<(), Errno> {
        let (library, mount) = (self.mount.library, self.mount.raw);
        // SAFETY: as in `lookup`.
        let code = unsafe { (library.ceph_ll_unlink)(mount, self.raw, name.as_ptr(), user.raw) };
        self.mount.returned(code).map(drop)
    }

    /// Removes a directory without entries.
    ///
    /// # Errors
    /// As the library says.
    pub fn remove_directory(&self, name: &CStr, user: &UserPerm<'_>) -> Result<(), Errno> {
        let (library, mount) = (self.mount.library, self.mount.raw);
        // SAFETY: as in `lookup`.
        let code = unsafe { (library.ceph_ll_rmdir)(mount, self.raw, name.as_ptr(), user.raw) };
        self.mount.returned(code).map(drop)
    }

    /// Renames `name` to `new_name` in `directory`.
    ///
    /// # Errors
    /// As the library says; [`Errno::STALE`] for a directory of another mount.
    pub fn rename(
        &self,
        name: &CStr,
        directory: &Self,
        new_name: &CStr,
        user: &UserPerm<'_>,
    ) -> Result<(), Errno> {
        self.with(directory)?;
        let (library, mount) = (self.mount.library, self.mount.raw);
        let (name, to, new_name) = (name.as_ptr(), directory.raw, new_name.as_ptr());
        // SAFETY: both directories are held by this mount; names and user live during the call.
        let code =
            unsafe { (library.ceph_ll_rename)(mount, self.raw, name, to, new_name, user.raw) };
        self.mount.returned(code).map(drop)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// As the library says: it judges the user.
    pub fn open(&self, flags: OpenFlags, user: &UserPerm<'_>) -> Result<CephFile, Errno> {
        let mut file = null_mut();
        let (library, mount) = (self.mount.library, self.mount.raw);
        let flags = match flags {
            OpenFlags::Read => O_RDONLY,
            OpenFlags::ReadWrite => O_RDWR,
        };
        // SAFETY: the inode is held by its mount; the user lives during the call.
        let code = unsafe { (library.ceph_ll_open)(mount, self.raw, flags, &mut file, user.raw) };
        self.mount.returned(code)?;
        Ok(CephFile::adopt(&self.mount, file))
    }
}
