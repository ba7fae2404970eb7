//! Open files and directories.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "libcephfs.h says what each function does and what its caller promises"
)]

use crate::{
    c::{Statx, caller, code, give, number, octets, pointer, room, statx},
    node::HashedEntries,
    tree::{OrErrno, READ},
    world::{FakeCluster, Opened, enter},
};
use libc::{
    DT_UNKNOWN, EBADF, EINVAL, ENOTDIR, O_ACCMODE, O_RDONLY, S_IFDIR, c_char, c_int, c_uint,
    c_void, dirent64,
};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_open(
    mount: *mut c_void,
    inode: *mut c_void,
    flags: c_int,
    file: *mut *mut c_void,
    perm: *mut c_void,
) -> c_int {
    let client = number(mount);
    code(enter(client, "ceph_ll_open", |cluster| {
        // SAFETY: the user is good during the call.
        let caller = unsafe { caller(perm) };
        let writes = flags & O_ACCMODE != O_RDONLY;
        cluster.tree.open(number(inode), writes, &caller)?;
        // SAFETY: the caller gives room for a pointer.
        unsafe { give(file, pointer(cluster.open(client, number(inode), writes))) };
        Ok(0)
    }))
}

/// The inode of an open file.
fn inode_of(cluster: &mut FakeCluster, mount: *mut c_void, file: *mut c_void) -> OrErrno<u64> {
    cluster.opened(number(mount), number(file)).map(|open| open.inode)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_read(
    mount: *mut c_void,
    file: *mut c_void,
    offset: i64,
    len: u64,
    to: *mut c_char,
) -> c_int {
    code(enter(number(mount), "ceph_ll_read", |cluster| {
        let inode = inode_of(cluster, mount, file)?;
        let offset = u64::try_from(offset).map_err(|_| EINVAL)?;
        // SAFETY: the caller gives room of that length.
        let to = unsafe { room(to.cast(), len as usize) };
        cluster.tree.read(inode, offset, to).map(|len| len as c_int)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_write(
    mount: *mut c_void,
    file: *mut c_void,
    offset: i64,
    len: u64,
    from: *const c_char,
) -> c_int {
    code(enter(number(mount), "ceph_ll_write", |cluster| {
        let Opened { inode, writes, .. } = *cluster.opened(number(mount), number(file))?;
        let offset = u64::try_from(offset).map_err(|_| EINVAL)?;
        if !writes {
            return Err(EBADF);
        }
        // SAFETY: the caller gives that many octets.
        let from = unsafe { octets(from.cast(), len as usize) };
        cluster.tree.write(inode, offset, from).map(|()| len as c_int)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_fsync(mount: *mut c_void, file: *mut c_void, _: c_int) -> c_int {
    code(enter(number(mount), "ceph_ll_fsync", |cluster| inode_of(cluster, mount, file).map(|_| 0)))
}

/// Closes a file or directory.
fn close(call: &str, mount: *mut c_void, open: *mut c_void) -> c_int {
    let (client, number) = (number(mount), number(open));
    let closed = enter(client, call, |_| Ok(0));
    if let Ok(shared) = crate::world::cluster(client) {
        shared.lock().close(client, number);
    }
    code(closed)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_close(mount: *mut c_void, file: *mut c_void) -> c_int {
    close("ceph_ll_close", mount, file)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_opendir(
    mount: *mut c_void,
    inode: *mut c_void,
    directory: *mut *mut c_void,
    perm: *mut c_void,
) -> c_int {
    let client = number(mount);
    code(enter(client, "ceph_ll_opendir", |cluster| {
        // SAFETY: the user is good during the call.
        let caller = unsafe { caller(perm) };
        if cluster.tree.node(number(inode))?.kind() != S_IFDIR {
            return Err(ENOTDIR);
        }
        cluster.tree.judge(number(inode), READ, &caller)?;
        // SAFETY: the caller gives room for a pointer.
        unsafe { give(directory, pointer(cluster.open(client, number(inode), false))) };
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_releasedir(mount: *mut c_void, directory: *mut c_void) -> c_int {
    close("ceph_ll_releasedir", mount, directory)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_seekdir(mount: *mut c_void, directory: *mut c_void, place: i64) {
    let _ = enter(number(mount), "ceph_seekdir", |cluster| {
        cluster.opened(number(mount), number(directory))?.place =
            u64::try_from(place).map_err(|_| EINVAL)?;
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_readdirplus_r(
    mount: *mut c_void,
    directory: *mut c_void,
    entry: *mut dirent64,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    _inode: *mut *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_readdirplus_r", |cluster| {
        let Opened { inode, place, .. } = *cluster.opened(number(mount), number(directory))?;
        let node = cluster.tree.node(inode)?;
        let next: Option<(u64, &[u8], u64)> = match place {
            0 => Some((1, b".", inode)),
            1 => Some((HashedEntries::ABOVE, b"..", node.parent)),
            _ => node.entries.behind(place),
        };
        let Some((next, name, found)) = next else { return Ok(0) };
        // SAFETY: the caller gives room for an entry.
        let entry = unsafe { &mut *entry };
        (entry.d_ino, entry.d_off, entry.d_type) = (found, next as i64, DT_UNKNOWN);
        let ended = name.iter().chain(&[0]);
        entry.d_name.iter_mut().zip(ended).for_each(|(to, from)| *to = *from as c_char);
        // SAFETY: the caller gives room for the attributes.
        unsafe { give(stat, statx(found, cluster.tree.node(found)?)) };
        cluster.opened(number(mount), number(directory))?.place = next;
        Ok(1)
    }))
}
