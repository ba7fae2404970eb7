//! The boundary: structures, texts, and the functions that make, mount and end a client.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "libcephfs.h says what each function does and what its caller promises"
)]

use crate::{
    node::SecondsAndNanos,
    tree::{FakeCaller, OrErrno},
    world::{self, Asking},
};
use libc::{EINVAL, ENAMETOOLONG, ENOENT, ERANGE, c_char, c_int, c_uint, c_void};
use std::ffi::CStr;

/// `struct ceph_statx`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Statx {
    pub mask: u32,
    pub block_len: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    pub device: u64,
    pub special: u64,
    pub times: [[i64; 2]; 4],
    pub version: u64,
}

const _: () = assert!(size_of::<Statx>() == 24 + 5 * 8 + 4 * 16 + 8);

/// `vinodeno_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawVino {
    pub inode: u64,
    pub snapshot: u64,
}

/// `CEPH_NOSNAP`
pub(crate) const LIVE: u64 = u64::MAX - 1;

/// `struct ceph_client_callback_args`, of which only the last function is called.
#[repr(C)]
pub struct Callbacks {
    handle: *mut c_void,
    others: [*mut c_void; 5],
    release: Option<unsafe extern "C" fn(*mut c_void, RawVino)>,
}

/// The number that the caller knows as a pointer: one that is wrong is not followed.
pub(crate) fn number(pointer: *mut c_void) -> u64 {
    pointer as u64
}

/// A number as the caller knows it.
pub(crate) fn pointer(number: u64) -> *mut c_void {
    number as *mut c_void
}

/// A result as C has it.
pub(crate) fn code(answer: OrErrno<c_int>) -> c_int {
    answer.unwrap_or_else(|errno| -errno)
}

/// A text of the caller.
///
/// # Safety
/// It is a C string that lives for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// A name of the caller, not longer than a name may be.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn name<'a>(name: *const c_char) -> OrErrno<&'a [u8]> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    if name.len() > 255 { Err(ENAMETOOLONG) } else { Ok(name) }
}

/// A name and a user of the caller.
///
/// # Safety
/// As of [`text`] and [`caller`].
pub(crate) unsafe fn named<'a>(
    from: *const c_char,
    perm: *mut c_void,
) -> OrErrno<(&'a [u8], FakeCaller)> {
    // SAFETY: the caller's promise.
    let name = unsafe { name(from) }?;
    // SAFETY: the caller's promise.
    Ok((name, unsafe { caller(perm) }))
}

/// Room of the caller for `len` octets.
///
/// # Safety
/// It is that long and initialised, and nothing else accesses it during `'a`.
pub(crate) unsafe fn room<'a>(room: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(room.cast(), len) }
}

/// Octets of the caller.
///
/// # Safety
/// They are that many, initialised, and live for `'a`.
pub(crate) unsafe fn octets<'a>(from: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(from.cast(), len) }
}

/// Writes a value to the caller's `to`, unless that is null.
///
/// # Safety
/// `to` is null or room for it.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

/// As whom a call is made.
///
/// # Safety
/// `perm` came from [`ceph_userperm_new`] and lives.
pub(crate) unsafe fn caller(perm: *mut c_void) -> FakeCaller {
    // SAFETY: the caller's promise.
    let perm = unsafe { &*perm.cast::<Perm>() };
    // SAFETY: the groups live as long as the object, by the promise of `ceph_userperm_new`.
    let groups = unsafe { octets(perm.groups.cast(), perm.count * size_of::<u32>()) };
    let number = |group: &[u8]| group.try_into().map_or(0, u32::from_ne_bytes);
    let groups = groups.chunks_exact(size_of::<u32>()).map(number).collect();
    FakeCaller { uid: perm.uid, gid: perm.gid, groups }
}

struct Perm {
    uid: u32,
    gid: u32,
    count: usize,
    groups: *mut u32,
}

/// Asks a client to let go of an inode.
pub(crate) fn ask(asking: Asking, inode: u64) {
    let handle = asking.handle as *mut c_void;
    // SAFETY: the client registered both, and promised that they are good until it is released.
    unsafe { (asking.function)(handle, RawVino { inode, snapshot: LIVE }) };
}

/// Attributes as C has them.
pub(crate) fn statx(inode: u64, node: &crate::node::FakeNode) -> Statx {
    let pair = |(seconds, nanos): SecondsAndNanos| [seconds, nanos];
    Statx {
        mask: 0x1fff,
        block_len: 4 << 20,
        links: node.links,
        uid: node.uid,
        gid: node.gid,
        mode: node.mode as u16,
        inode,
        size: node.size(),
        blocks: node.content.used(),
        device: LIVE,
        special: node.special,
        times: [pair(node.accessed), pair(node.changed), pair(node.modified), pair(node.born)],
        version: node.version,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) -> *const c_char {
    for (to, value) in [(major, 16), (minor, 2), (patch, 0)] {
        // SAFETY: the caller gives room for three numbers.
        unsafe { give(to, value) };
    }
    c"fake".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_create(mount: *mut *mut c_void, _user: *const c_char) -> c_int {
    // SAFETY: the caller gives room for a pointer.
    unsafe { give(mount, pointer(world::create())) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_conf_read_file(mount: *mut c_void, path: *const c_char) -> c_int {
    if path.is_null() {
        return -ENOENT;
    }
    // SAFETY: the path is a C string.
    let path = unsafe { text(path) };
    let is_there = std::str::from_utf8(path).is_ok_and(|path| std::path::Path::new(path).exists());
    if !is_there {
        return -ENOENT;
    }
    world::join(number(mount), path);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_conf_set(
    mount: *mut c_void,
    option: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: it is a C string.
    let option = unsafe { CStr::from_ptr(option) };
    // SAFETY: so is this.
    let value = unsafe { CStr::from_ptr(value) };
    let texts = option.to_str().ok().zip(value.to_str().ok());
    let Some((option, value)) = texts else { return -EINVAL };
    code(world::set_option(number(mount), option, value).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_conf_get(
    mount: *mut c_void,
    option: *const c_char,
    value: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: the option is a C string.
    let option = unsafe { CStr::from_ptr(option) };
    // SAFETY: the caller gives room of that length.
    let to = unsafe { room(value.cast(), len) };
    let mut get = || {
        let found = world::option(number(mount), option.to_str().map_err(|_| EINVAL)?)?;
        to.get_mut(..found.len()).ok_or(ERANGE)?.copy_from_slice(found.as_bytes());
        *to.get_mut(found.len()).ok_or(ERANGE)? = 0;
        Ok(0)
    };
    code(get())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_init(mount: *mut c_void) -> c_int {
    code(world::cluster(number(mount)).map(|_| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_select_filesystem(_: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    if name == b"fs" { 0 } else { -ENOENT }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_get_fs_cid(_: *mut c_void) -> i64 {
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_mount(mount: *mut c_void, path: *const c_char) -> c_int {
    let client = number(mount);
    // SAFETY: the path is a C string.
    let path = unsafe { text(path) };
    code(world::cluster(client).and_then(|shared| shared.lock().mount(client, path)).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_unmount(mount: *mut c_void) -> c_int {
    let client = number(mount);
    code(world::cluster(client).map(|shared| shared.lock().unmount(client)).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_release(mount: *mut c_void) -> c_int {
    world::release(number(mount));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_start_reclaim(
    mount: *mut c_void,
    name: *const c_char,
    _flags: c_uint,
) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    let ended = world::cluster(number(mount)).map(|shared| shared.lock().reclaim(name));
    code(ended.and_then(|ended| if ended { Ok(0) } else { Err(ENOENT) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_finish_reclaim(_: *mut c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_set_uuid(mount: *mut c_void, name: *const c_char) {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    if let Ok(shared) = world::cluster(number(mount))
        && let Some(client) = shared.lock().clients.get_mut(&number(mount))
    {
        client.uuid = Some(name.to_vec());
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_ll_register_callbacks(mount: *mut c_void, from: *mut Callbacks) {
    // SAFETY: the caller gives a structure that lives during the call.
    let Callbacks { handle, release, .. } = unsafe { &*from };
    if let Ok(shared) = world::cluster(number(mount))
        && let Some(client) = shared.lock().clients.get_mut(&number(mount))
    {
        client.asking = release.map(|function| Asking { function, handle: *handle as usize });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_userperm_new(
    uid: u32,
    gid: u32,
    count: c_int,
    groups: *mut u32,
) -> *mut c_void {
    let count = usize::try_from(count).unwrap_or(0);
    Box::into_raw(Box::new(Perm { uid, gid, count, groups })).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ceph_userperm_destroy(perm: *mut c_void) {
    // SAFETY: it came from `ceph_userperm_new` and is given back once.
    drop(unsafe { Box::from_raw(perm.cast::<Perm>()) });
}
