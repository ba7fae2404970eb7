//! librados, as far as `stag-ceph` loads it: objects of one pool, `data`, in memory. A connection
//! is a client as one of libcephfs is, with the same faults.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "librados.h says what each function does and what its caller promises"
)]

use crate::{
    c::{code, give, number, octets, pointer, room, text},
    tree::OrErrno,
    world::{self, FakeCluster, enter},
};
use libc::{EEXIST, ENOENT, c_char, c_int, c_void, time_t};

/// An object of a namespace.
pub(crate) type ObjectName = (Vec<u8>, Vec<u8>);

/// Steps that are carried out together, or not at all.
#[derive(Default)]
struct WriteOp {
    must_exist: bool,
    must_be_new: bool,
    /// Octets for the object, and where they go; without a place they are all of it.
    writes: Vec<(Vec<u8>, Option<u64>)>,
}

const NAMESPACE: &str = "fake_namespace";

fn object(cluster: &FakeCluster, client: u64, name: &[u8]) -> ObjectName {
    let known = cluster.clients.get(&client);
    let space = known.and_then(|client| client.options.get(NAMESPACE).cloned());
    (space.unwrap_or_default().into_bytes(), name.to_vec())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_create(cluster: *mut *mut c_void, _id: *const c_char) -> c_int {
    // SAFETY: the caller gives room for a pointer.
    unsafe { give(cluster, pointer(world::create())) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_conf_read_file(cluster: *mut c_void, path: *const c_char) -> c_int {
    // SAFETY: the caller's promises are those of that function.
    unsafe { crate::c::ceph_conf_read_file(cluster, path) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_conf_set(
    cluster: *mut c_void,
    option: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: the caller's promises are those of that function.
    unsafe { crate::c::ceph_conf_set(cluster, option, value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_connect(cluster: *mut c_void) -> c_int {
    let client = number(cluster);
    code(world::cluster(client).and_then(|shared| shared.lock().mount(client, b"/")).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_shutdown(cluster: *mut c_void) {
    world::release(number(cluster));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_ioctx_create(
    cluster: *mut c_void,
    pool: *const c_char,
    io: *mut *mut c_void,
) -> c_int {
    // SAFETY: the name is a C string.
    if unsafe { text(pool) } != b"data" {
        return -ENOENT;
    }
    // SAFETY: the caller gives room for a pointer.
    unsafe { give(io, cluster) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_ioctx_destroy(_: *mut c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_ioctx_set_namespace(io: *mut c_void, name: *const c_char) {
    // SAFETY: the name is a C string.
    let name = String::from_utf8_lossy(unsafe { text(name) }).into_owned();
    let _ = world::set_option(number(io), NAMESPACE, &name);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_stat(
    io: *mut c_void,
    name: *const c_char,
    size: *mut u64,
    _time: *mut time_t,
) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    code(enter(number(io), "rados_stat", |cluster| {
        let object = object(cluster, number(io), name);
        let len = cluster.objects.get(&object).ok_or(ENOENT)?.len() as u64;
        // SAFETY: the caller gives room for a number.
        unsafe { give(size, len) };
        Ok(0)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_read(
    io: *mut c_void,
    name: *const c_char,
    to: *mut c_char,
    len: usize,
    offset: u64,
) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    // SAFETY: the caller gives room of that length.
    let to = unsafe { room(to.cast(), len) };
    code(enter(number(io), "rados_read", |cluster| {
        let object = object(cluster, number(io), name);
        let found = cluster.objects.get(&object).ok_or(ENOENT)?;
        let from = found.get(offset as usize..).unwrap_or_default();
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(to.len().min(from.len()) as c_int)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_remove(io: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    code(enter(number(io), "rados_remove", |cluster| {
        let object = object(cluster, number(io), name);
        cluster.objects.remove(&object).map(|_| 0).ok_or(ENOENT)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn rados_create_write_op() -> *mut c_void {
    Box::into_raw(Box::<WriteOp>::default()).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_release_write_op(op: *mut c_void) {
    // SAFETY: it came from `rados_create_write_op` and is given back once.
    drop(unsafe { Box::from_raw(op.cast::<WriteOp>()) });
}

/// # Safety
/// It came from [`rados_create_write_op`] and lives.
unsafe fn op<'a>(op: *mut c_void) -> &'a mut WriteOp {
    // SAFETY: the caller's promise.
    unsafe { &mut *op.cast::<WriteOp>() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_write_op_assert_exists(to: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { op(to) }.must_exist = true;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_write_op_create(
    to: *mut c_void,
    exclusive: c_int,
    _category: *const c_char,
) {
    // SAFETY: the caller's promise.
    unsafe { op(to) }.must_be_new = exclusive == 1;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_write_op_write(
    to: *mut c_void,
    from: *const c_char,
    len: usize,
    offset: u64,
) {
    // SAFETY: the caller gives that many octets.
    let from = unsafe { octets(from.cast(), len) }.to_vec();
    // SAFETY: the caller's promise.
    unsafe { op(to) }.writes.push((from, Some(offset)));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_write_op_write_full(
    to: *mut c_void,
    from: *const c_char,
    len: usize,
) {
    // SAFETY: the caller gives that many octets.
    let from = unsafe { octets(from.cast(), len) }.to_vec();
    // SAFETY: the caller's promise.
    unsafe { op(to) }.writes.push((from, None));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_write_op_operate(
    from: *mut c_void,
    io: *mut c_void,
    name: *const c_char,
    _time: *mut time_t,
    _flags: c_int,
) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { text(name) };
    // SAFETY: the caller's promise.
    let wanted = unsafe { op(from) };
    code(enter(number(io), "rados_write_op_operate", |cluster| {
        let object = object(cluster, number(io), name);
        operate(cluster, object, wanted).map(|()| 0)
    }))
}

fn operate(cluster: &mut FakeCluster, object: ObjectName, wanted: &WriteOp) -> OrErrno<()> {
    let is_there = cluster.objects.contains_key(&object);
    if wanted.must_exist && !is_there {
        return Err(ENOENT);
    }
    if wanted.must_be_new && is_there {
        return Err(EEXIST);
    }
    let content = cluster.objects.entry(object).or_default();
    for (octets, offset) in &wanted.writes {
        match offset {
            None => content.clone_from(octets),
            Some(offset) => {
                let (start, end) = (*offset as usize, *offset as usize + octets.len());
                content.resize(content.len().max(end), 0);
                content.get_mut(start..end).unwrap_or_default().copy_from_slice(octets);
            }
        }
    }
    Ok(())
}
