//! A caller's rights to content, which is read and written through files opened as root.
//!
//! libcephfs checks names for the caller of each call. Content is checked here, by the current
//! attributes: mode, owner, group, and the access control list if there is one. In addition, as in
//! the store of files (RFC 1813 §4.4): the owner of a regular file may read and write it regardless
//! of its mode, and execute permission implies read.

use super::acl::{self, AclVerdict, LIST_MAX};
use crate::contract::acl::ACCESS_LIST;
use rustix::io::Errno;
use stag_ceph::{CephInode, CephStat, UserPerm};
use stag_nfs_os::User;
use stag_protocol::nfs::v3::{Access, FileKind, Status};

/// Rights as `rwx` bits.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

/// Groups of a user: the first one and the others.
pub(super) fn all_groups(user: &User) -> Vec<u32> {
    core::iter::once(user.gid()).chain(user.other_groups()).collect()
}

/// The rights of `user` to a file with these attributes.
///
/// # Errors
/// The library's error when the list cannot be read.
pub(super) fn rights(inode: &CephInode, stat: &CephStat, user: &User) -> Result<u32, Errno> {
    let mode = u32::from(stat.mode);
    let is_directory = kind(stat) == FileKind::Directory;
    if user.uid() == 0 {
        let execute = if is_directory || mode & 0o111 != 0 { EXECUTE } else { 0 };
        return Ok(READ | WRITE | execute);
    }
    if user.uid() == stat.uid {
        return Ok(mode >> 6 & 0o7);
    }
    let groups = all_groups(user);
    let mut list = [0; LIST_MAX];
    let root = UserPerm::root(inode.library());
    match inode.extended(ACCESS_LIST, &mut list, &root) {
        Ok(len) if len > 0 => {
            let list = list.get(..len).unwrap_or_default();
            return Ok(acl::rights(
                list,
                stat.gid,
                &AclVerdict { uid: user.uid(), groups: &groups },
            ));
        }
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {}
        // The list is longer than the limit.
        Err(Errno::RANGE) => return Ok(0),
        Err(errno) => return Err(errno),
    }
    let shift = if groups.contains(&stat.gid) { 3 } else { 0 };
    Ok(mode >> shift & 0o7)
}

/// Refuses a user access to content without the right.
///
/// # Errors
/// [`Errno::ACCESS`], or as in [`rights`].
pub(super) fn judge(
    inode: &CephInode,
    stat: &CephStat,
    user: &User,
    need: u32,
) -> Result<(), Errno> {
    if user.uid() == 0 || (user.uid() == stat.uid && kind(stat) == FileKind::Regular) {
        return Ok(());
    }
    let rights = rights(inode, stat, user)?;
    // RFC 1813 §4.4 [1813-101]: a caller that may execute a file may read it
    let is_enough = rights & need != 0 || (need == READ && rights & EXECUTE != 0);
    if is_enough { Ok(()) } else { Err(Errno::ACCESS) }
}

/// The NFS rights that follow from a file system's.
pub(super) fn granted(stat: &CephStat, rights: u32, is_read_only: bool) -> Access {
    let has = |need, access| if rights & need != 0 { access } else { Access::NONE };
    let change = Access::MODIFY | Access::EXTEND;
    let (look, change) = match kind(stat) {
        FileKind::Directory => (
            has(READ, Access::READ) | has(EXECUTE, Access::LOOKUP),
            has(WRITE, change | Access::DELETE),
        ),
        _ => {
            (has(READ | EXECUTE, Access::READ) | has(EXECUTE, Access::EXECUTE), has(WRITE, change))
        }
    };
    // RFC 1813 §3.3.4 [1813-31]: an ACCESS reply holds for this credential and export
    if is_read_only { look } else { look | change }
}

/// Returns the kind of a file.
pub(super) fn kind(stat: &CephStat) -> FileKind {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(stat.mode.into()) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Character,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

/// Refuses content access to anything but regular files.
///
/// # Errors
/// The status of the reply.
pub(super) fn must_be_regular(stat: &CephStat) -> Result<(), Status> {
    match kind(stat) {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::IsDir),
        _ => Err(Status::Inval),
    }
}
