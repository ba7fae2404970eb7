//! The boundary: structures of MIT's headers, and the functions of buffers, names, statuses and
//! credentials.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "RFC 2744 says what each function does and what its caller promises"
)]

use crate::objects::{BUFFERS, CREDENTIALS, FakeCredential, FakeName, LiveCounts, NAMES};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicI64, Ordering},
};

#[repr(C)]
pub struct Buffer {
    length: usize,
    value: *mut c_void,
}

#[repr(C)]
pub struct Oid {
    length: u32,
    elements: *mut c_void,
}

#[repr(C)]
pub struct FakeSetting {
    key: *const c_char,
    value: *const c_char,
}

#[repr(C)]
pub struct FakeSettings {
    count: u32,
    elements: *mut FakeSetting,
}

pub(crate) const CONTINUE: u32 = 1;
const NAME: u32 = 2 << 16;
pub(crate) const NO_CREDENTIAL: u32 = 7 << 16;
pub(crate) const FAILURE: u32 = 13 << 16;
/// `KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN` and `ERROR_TABLE_BASE_krb5`.
pub(crate) const UNKNOWN: u32 = 0x96c7_3a07;
pub(crate) const KRB5: u32 = 0x96c7_3a00;
/// The minor status of faults that a test asks for.
pub(crate) const ASKED: u32 = 0x0bad;
pub(crate) const MUTUAL: u32 = 2;

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

/// Fails: writes the minor status and returns the major one.
///
/// # Safety
/// As of [`give`].
pub(crate) unsafe fn fail(minor: *mut u32, status: u32, cause: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { give(minor, cause) };
    status
}

/// Hands an object to the caller.
pub(crate) fn keep<T>(counter: &AtomicI64, object: T) -> *mut c_void {
    counter.fetch_add(1, Ordering::SeqCst);
    Box::into_raw(Box::new(object)).cast()
}

/// Ends an object, and clears the caller's pointer to it.
///
/// # Safety
/// The pointer is to null or to an object of this type that [`keep`] made.
pub(crate) unsafe fn end<T>(counter: &AtomicI64, object: *mut *mut c_void) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    let object = unsafe { object.replace(null_mut()) };
    if object.is_null() {
        return None;
    }
    counter.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    Some(unsafe { Box::from_raw(object.cast()) })
}

/// An object of the caller, if it has one.
///
/// # Safety
/// It is null or an object of this type that lives for `'a`.
pub(crate) unsafe fn object<'a, T>(object: *mut c_void) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { object.cast::<T>().as_ref() }
}

/// Bytes of the caller.
///
/// # Safety
/// The buffer is null or lives for `'a`, and so do its bytes.
pub(crate) unsafe fn octets<'a>(buffer: *mut Buffer) -> &'a [u8] {
    // SAFETY: the caller's promise.
    let Some(buffer) = (unsafe { buffer.as_ref() }) else { return &[] };
    if buffer.length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(buffer.value.cast(), buffer.length) }
}

/// Fills a buffer of the caller.
///
/// # Safety
/// As of [`give`].
pub(crate) unsafe fn fill(to: *mut Buffer, content: &[u8]) {
    let mut buffer = Buffer { length: content.len(), value: null_mut() };
    if !content.is_empty() {
        BUFFERS.fetch_add(1, Ordering::SeqCst);
        buffer.value = Box::into_raw(Box::<[u8]>::from(content)).cast();
    }
    // SAFETY: the caller's promise.
    unsafe { give(to, buffer) };
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_counts(to: &mut LiveCounts) {
    *to = LiveCounts::now();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_release_buffer(_minor: *mut u32, buffer: *mut Buffer) -> u32 {
    // SAFETY: the caller's buffer, which is cleared.
    let Buffer { length, value } =
        unsafe { buffer.replace(Buffer { length: 0, value: null_mut() }) };
    if !value.is_null() {
        BUFFERS.fetch_sub(1, Ordering::SeqCst);
        let octets = std::ptr::slice_from_raw_parts_mut(value.cast::<u8>(), length);
        // SAFETY: `fill` made a box of this many bytes.
        drop(unsafe { Box::from_raw(octets) });
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_import_name(
    minor: *mut u32,
    text: *mut Buffer,
    _form: *mut Oid,
    name: *mut *mut c_void,
) -> u32 {
    // SAFETY: the caller's buffer.
    let text = String::from_utf8_lossy(unsafe { octets(text) }).into_owned();
    if text.is_empty() {
        // SAFETY: room for a number.
        return unsafe { fail(minor, NAME, 0) };
    }
    // SAFETY: room for a pointer.
    unsafe { give(name, keep(&NAMES, FakeName { text, fail: String::new() })) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_display_name(
    minor: *mut u32,
    name: *mut c_void,
    text: *mut Buffer,
    _form: *mut *mut Oid,
) -> u32 {
    // SAFETY: the caller's name.
    let name = unsafe { object::<FakeName>(name) };
    match name {
        Some(name) if name.fail == "gss_display_name" => {
            // SAFETY: room for a number.
            unsafe { fail(minor, FAILURE, ASKED) }
        }
        name => {
            let shown = name.map_or("", |name| &name.text);
            // A name that is not UTF-8.
            let octets = if shown == "latin@1" { &b"\xe4@1"[..] } else { shown.as_bytes() };
            // SAFETY: room for a buffer.
            unsafe { fill(text, octets) };
            0
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_localname(
    minor: *mut u32,
    name: *mut c_void,
    _mechanism: *mut Oid,
    local: *mut Buffer,
) -> u32 {
    // SAFETY: the caller's name.
    let name = unsafe { object::<FakeName>(name) };
    let user = name.and_then(|name| name.text.strip_suffix("@STAG.TEST"));
    let Some(user) = user else {
        // SAFETY: room for a number.
        return unsafe { fail(minor, FAILURE, ASKED) };
    };
    // SAFETY: room for a buffer.
    unsafe { fill(local, user.as_bytes()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_release_name(_minor: *mut u32, name: *mut *mut c_void) -> u32 {
    // SAFETY: a name of `gss_import_name` or of an accept.
    drop(unsafe { end::<FakeName>(&NAMES, name) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_display_status(
    _minor: *mut u32,
    status: u32,
    kind: c_int,
    _mechanism: *mut Oid,
    more: *mut u32,
    text: *mut Buffer,
) -> u32 {
    let kind = if kind == 1 { "major" } else { "minor" };
    // SAFETY: room for a number.
    unsafe { give(more, 0) };
    // SAFETY: room for a buffer.
    unsafe { fill(text, format!("{kind} status {status:x}").as_bytes()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_acquire_cred_from(
    minor: *mut u32,
    name: *mut c_void,
    _time: u32,
    _mechanisms: *mut c_void,
    usage: c_int,
    store: *const FakeSettings,
    credential: *mut *mut c_void,
    _actual: *mut c_void,
    _lasts: *mut u32,
) -> u32 {
    // SAFETY: the caller's name, or none.
    let name = unsafe { object::<FakeName>(name) };
    // SAFETY: the caller's settings, or none.
    let settings = unsafe { settings(store) };
    if settings.contains("missing") || name.is_some_and(|name| name.text.contains("missing")) {
        // SAFETY: room for a number.
        return unsafe { fail(minor, NO_CREDENTIAL, 2) };
    }
    let made = FakeCredential { is_acceptor: usage == 2, settings, enctype: 0 };
    // SAFETY: room for a pointer.
    unsafe { give(credential, keep(&CREDENTIALS, made)) };
    0
}

/// The caller's settings as text.
///
/// # Safety
/// It is null or a set of settings with C strings.
unsafe fn settings(store: *const FakeSettings) -> String {
    // SAFETY: the caller's promise.
    let Some(store) = (unsafe { store.as_ref() }) else { return String::new() };
    let count = usize::try_from(store.count).unwrap_or(0);
    // SAFETY: the caller's promise.
    let elements = unsafe { std::slice::from_raw_parts(store.elements, count) };
    let mut text = String::new();
    for element in elements {
        for part in [element.key, element.value] {
            // SAFETY: the caller's promise.
            let part = unsafe { CStr::from_ptr(part) };
            text.push_str(&part.to_string_lossy());
            text.push(' ');
        }
    }
    text
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_krb5_set_allowable_enctypes(
    minor: *mut u32,
    credential: *mut c_void,
    count: u32,
    enctypes: *mut i32,
) -> u32 {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller gives this many numbers.
    let enctypes = unsafe { std::slice::from_raw_parts(enctypes, count) };
    // SAFETY: the caller's credential, which no other thread uses.
    let credential = unsafe { credential.cast::<FakeCredential>().as_mut() };
    match credential {
        Some(credential) if !credential.settings.contains("unrestricted") => {
            let highest = enctypes.iter().max().copied().unwrap_or(0);
            credential.enctype = highest.cast_unsigned();
            0
        }
        // SAFETY: room for a number.
        _ => unsafe { fail(minor, FAILURE, ASKED) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_release_cred(_minor: *mut u32, credential: *mut *mut c_void) -> u32 {
    // SAFETY: a credential of `gss_acquire_cred_from`.
    drop(unsafe { end::<FakeCredential>(&CREDENTIALS, credential) });
    0
}
