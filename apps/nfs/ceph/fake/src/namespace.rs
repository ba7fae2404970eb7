//! Inodes and names: finding, making, renaming, removing, attributes.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "libcephfs.h says what each function does and what its caller promises"
)]

use crate::{
    c::{
        LIVE, RawVino, Statx, caller, code, give, name, named, number, octets, pointer, room,
        statx, text,
    },
    node::SecondsAndNanos,
    tree::{NewObject, OrErrno, ROOT, WantedChange},
    world::{FakeCluster, enter},
};
use libc::{
    EEXIST, EINVAL, ENOENT, ESTALE, O_EXCL, S_IFDIR, S_IFLNK, S_IFREG, c_char, c_int, c_uint,
    c_void, statvfs,
};

/// Gives the caller an inode that it holds from then on, and its attributes.
///
/// # Safety
/// Both pointers are null or room.
unsafe fn found(
    cluster: &mut FakeCluster,
    client: u64,
    inode: u64,
    to: *mut *mut c_void,
    stat: *mut Statx,
) -> OrErrno<c_int> {
    // SAFETY: the caller's promise.
    unsafe { give(stat, statx(inode, cluster.tree.node(inode)?)) };
    if !to.is_null() {
        cluster.hold(client, inode);
    }
    // SAFETY: the caller's promise.
    unsafe { give(to, pointer(inode)) };
    Ok(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_lookup_root(mount: *mut c_void, to: *mut *mut c_void) -> c_int {
    let client = number(mount);
    code(enter(client, "ceph_ll_lookup_root", |cluster| {
        let root = cluster.clients.get(&client).map_or(ROOT, |known| known.root);
        // SAFETY: the caller gives room for a pointer.
        unsafe { found(cluster, client, root, to, std::ptr::null_mut()) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_lookup_vino(
    mount: *mut c_void,
    vino: RawVino,
    to: *mut *mut c_void,
) -> c_int {
    let client = number(mount);
    code(enter(client, "ceph_ll_lookup_vino", |cluster| {
        if vino.snapshot != LIVE {
            return Err(ESTALE);
        }
        // SAFETY: the caller gives room for a pointer.
        unsafe { found(cluster, client, vino.inode, to, std::ptr::null_mut()) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_lookup(
    mount: *mut c_void,
    parent: *mut c_void,
    name_in: *const c_char,
    to: *mut *mut c_void,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    perm: *mut c_void,
) -> c_int {
    let client = number(mount);
    code(enter(client, "ceph_ll_lookup", |cluster| {
        // SAFETY: name and user are good during the call.
        let (name, caller) = unsafe { named(name_in, perm) }?;
        let inode = cluster.tree.lookup(number(parent), name, &caller)?;
        // SAFETY: the caller gives room for both.
        unsafe { found(cluster, client, inode, to, stat) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_put(mount: *mut c_void, inode: *mut c_void) -> c_int {
    let put = |cluster: &mut FakeCluster| cluster.put(number(mount), number(inode));
    code(
        crate::world::cluster(number(mount)).and_then(|shared| put(&mut shared.lock())).map(|()| 0),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_getattr(
    mount: *mut c_void,
    inode: *mut c_void,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    _perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_getattr", |cluster| {
        // SAFETY: the caller gives room for the attributes.
        unsafe { give(stat, statx(number(inode), cluster.tree.node(number(inode))?)) };
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_setattr(
    mount: *mut c_void,
    inode: *mut c_void,
    stat: *mut Statx,
    mask: c_int,
    perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_setattr", |cluster| {
        // SAFETY: the caller gives the attributes.
        let stat = unsafe { *stat };
        let has = |bit: c_int| mask & bit != 0;
        let [accessed, _, modified, _] =
            stat.times.map(|[seconds, nanos]| -> SecondsAndNanos { (seconds, nanos) });
        let change = WantedChange {
            mode: has(1).then_some(u32::from(stat.mode)),
            uid: has(1 << 1).then_some(stat.uid),
            gid: has(1 << 2).then_some(stat.gid),
            size: has(1 << 5).then_some(stat.size),
            modified: has(1 << 3).then_some(modified),
            accessed: has(1 << 4).then_some(accessed),
            is_now: (!has(1 << 3) || has(1 << 7)) && (!has(1 << 4) || has(1 << 8)),
        };
        // SAFETY: the user is good during the call.
        let caller = unsafe { caller(perm) };
        cluster.tree.set(number(inode), &change, &caller).map(|()| 0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_create(
    mount: *mut c_void,
    parent: *mut c_void,
    name_in: *const c_char,
    mode: u32,
    open_flags: c_int,
    to: *mut *mut c_void,
    file: *mut *mut c_void,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    perm: *mut c_void,
) -> c_int {
    let client = number(mount);
    code(enter(client, "ceph_ll_create", |cluster| {
        // SAFETY: name and user are good during the call.
        let (name, caller) = unsafe { named(name_in, perm) }?;
        let mode = S_IFREG | (mode & 0o7777);
        let wanted = NewObject { mode, special: 0, target: &[] };
        let inode = match cluster.tree.lookup(number(parent), name, &caller) {
            Ok(_) if open_flags & O_EXCL != 0 => return Err(EEXIST),
            Ok(there) => {
                cluster.tree.open(there, true, &caller)?;
                there
            }
            Err(ENOENT) => cluster.tree.make(number(parent), name, &wanted, &caller)?,
            Err(error) => return Err(error),
        };
        let open = cluster.open(client, inode, true);
        // SAFETY: the caller gives room for a pointer.
        unsafe { give(file, pointer(open)) };
        // SAFETY: the caller gives room for both.
        unsafe { found(cluster, client, inode, to, stat) }
    }))
}

/// Makes an object that is no regular file.
///
/// # Safety
/// Name, user and results are good during the call.
unsafe fn make(
    call: &'static str,
    [mount, parent, perm]: [*mut c_void; 3],
    name_in: *const c_char,
    wanted: &NewObject<'_>,
    to: *mut *mut c_void,
    stat: *mut Statx,
) -> c_int {
    let client = number(mount);
    code(enter(client, call, |cluster| {
        // SAFETY: the caller's promise.
        let (name, caller) = unsafe { named(name_in, perm) }?;
        let inode = cluster.tree.make(number(parent), name, wanted, &caller)?;
        // SAFETY: the caller's promise.
        unsafe { found(cluster, client, inode, to, stat) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_mkdir(
    mount: *mut c_void,
    parent: *mut c_void,
    name: *const c_char,
    mode: u32,
    to: *mut *mut c_void,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    perm: *mut c_void,
) -> c_int {
    let wanted = NewObject { mode: S_IFDIR | (mode & 0o7777), special: 0, target: &[] };
    // SAFETY: the caller's promises.
    unsafe { make("ceph_ll_mkdir", [mount, parent, perm], name, &wanted, to, stat) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_mknod(
    mount: *mut c_void,
    parent: *mut c_void,
    name: *const c_char,
    mode: u32,
    special: u64,
    to: *mut *mut c_void,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    perm: *mut c_void,
) -> c_int {
    let wanted = NewObject { mode, special, target: &[] };
    // SAFETY: the caller's promises.
    unsafe { make("ceph_ll_mknod", [mount, parent, perm], name, &wanted, to, stat) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_symlink(
    mount: *mut c_void,
    parent: *mut c_void,
    name: *const c_char,
    target: *const c_char,
    to: *mut *mut c_void,
    stat: *mut Statx,
    _want: c_uint,
    _flags: c_uint,
    perm: *mut c_void,
) -> c_int {
    // SAFETY: the target is a C string.
    let target = unsafe { text(target) };
    let wanted = NewObject { mode: S_IFLNK | 0o777, special: 0, target };
    // SAFETY: the caller's promises.
    unsafe { make("ceph_ll_symlink", [mount, parent, perm], name, &wanted, to, stat) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_readlink(
    mount: *mut c_void,
    inode: *mut c_void,
    to: *mut c_char,
    len: usize,
    _perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_readlink", |cluster| {
        let node = cluster.tree.node(number(inode))?;
        if node.kind() != S_IFLNK {
            return Err(EINVAL);
        }
        // SAFETY: the caller gives room of that length.
        let to = unsafe { room(to.cast(), len) };
        to.iter_mut().zip(&node.target).for_each(|(to, from)| *to = *from);
        Ok(node.target.len().min(len) as c_int)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_link(
    mount: *mut c_void,
    inode: *mut c_void,
    parent: *mut c_void,
    name_in: *const c_char,
    perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_link", |cluster| {
        // SAFETY: name and user are good during the call.
        let (name, caller) = unsafe { named(name_in, perm) }?;
        cluster.tree.link(number(inode), number(parent), name, &caller).map(|()| 0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_unlink(
    mount: *mut c_void,
    parent: *mut c_void,
    name_in: *const c_char,
    perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_unlink", |cluster| {
        // SAFETY: name and user are good during the call.
        let (name, caller) = unsafe { named(name_in, perm) }?;
        let inode = cluster.tree.unlink(number(parent), name, &caller)?;
        cluster.forget(inode);
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_rmdir(
    mount: *mut c_void,
    parent: *mut c_void,
    name_in: *const c_char,
    perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_rmdir", |cluster| {
        // SAFETY: name and user are good during the call.
        let (name, caller) = unsafe { named(name_in, perm) }?;
        let inode = cluster.tree.rmdir(number(parent), name, &caller)?;
        cluster.forget(inode);
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_rename(
    mount: *mut c_void,
    from: *mut c_void,
    old_name: *const c_char,
    to: *mut c_void,
    new_name: *const c_char,
    perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_rename", |cluster| {
        // SAFETY: the name is good during the call.
        let old = unsafe { name(old_name) }?;
        // SAFETY: name and user are good during the call.
        let (new, caller) = unsafe { named(new_name, perm) }?;
        let replaced = cluster.tree.rename([number(from), number(to)], [old, new], &caller)?;
        if let Some(inode) = replaced {
            cluster.forget(inode);
        }
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_statfs(
    mount: *mut c_void,
    _inode: *mut c_void,
    to: *mut statvfs,
) -> c_int {
    code(enter(number(mount), "ceph_ll_statfs", |cluster| {
        // SAFETY: the caller gives room for the structure.
        let to = unsafe { &mut *to };
        (to.f_bsize, to.f_frsize) = (4 << 20, 4 << 20);
        (to.f_blocks, to.f_bfree, to.f_bavail) = (1_000, 900, 900);
        (to.f_files, to.f_ffree) = (cluster.tree.files(), u64::MAX);
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_getxattr(
    mount: *mut c_void,
    inode: *mut c_void,
    name: *const c_char,
    to: *mut c_void,
    len: usize,
    _perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_getxattr", |cluster| {
        // SAFETY: the name is a C string.
        let name = unsafe { text(name) };
        // SAFETY: the caller gives room of that length.
        let to = unsafe { room(to, len) };
        cluster.tree.extended(number(inode), name, to).map(|len| len as c_int)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_setxattr(
    mount: *mut c_void,
    inode: *mut c_void,
    name: *const c_char,
    from: *const c_void,
    len: usize,
    _flags: c_int,
    perm: *mut c_void,
) -> c_int {
    code(enter(number(mount), "ceph_ll_setxattr", |cluster| {
        // SAFETY: the name is a C string.
        let name = unsafe { text(name) };
        // SAFETY: the value is that long.
        let value = unsafe { octets(from, len) };
        // SAFETY: the user is good during the call.
        let caller = unsafe { caller(perm) };
        cluster.tree.set_extended(number(inode), name, value, &caller).map(|()| 0)
    }))
}
