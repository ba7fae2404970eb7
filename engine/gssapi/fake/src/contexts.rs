//! The boundary: contexts and their exported keys.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "RFC 2744 says what each function does and what its caller promises"
)]

use crate::{
    c::{
        ASKED, Buffer, CONTINUE, FAILURE, KRB5, MUTUAL, Oid, UNKNOWN, end, fail, fill, give, keep,
        object, octets,
    },
    objects::{
        CONTEXTS, FakeContext, FakeCredential, FakeName, FakeTicket, LUCID, NAMES, REPLY, error,
        framed, token, words,
    },
};
use std::{ffi::c_void, ptr::null_mut, sync::atomic::Ordering};

#[repr(C)]
pub struct FakeLucidKey {
    enctype: u32,
    length: u32,
    data: *mut c_void,
}

#[repr(C)]
pub struct FakeOldKeys {
    algorithms: [u32; 2],
    key: FakeLucidKey,
}

#[repr(C)]
pub struct FakeNewKeys {
    has_subkey: u32,
    key: FakeLucidKey,
    subkey: FakeLucidKey,
}

/// `gss_krb5_lucid_context_v1_t`.
#[repr(C)]
pub struct FakeLucid {
    version: u32,
    initiate: u32,
    end: u32,
    sequences: [u64; 2],
    protocol: u32,
    old: FakeOldKeys,
    new: FakeNewKeys,
}

const _: () = assert!(size_of::<FakeLucid>() == 104);

/// `GSS_S_DEFECTIVE_TOKEN`.
const DEFECTIVE: u32 = 9 << 16;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_accept_sec_context(
    minor: *mut u32,
    context: *mut *mut c_void,
    credential: *mut c_void,
    input: *mut Buffer,
    _bindings: *mut c_void,
    source: *mut *mut c_void,
    _mechanism: *mut *mut Oid,
    output: *mut Buffer,
    flags: *mut u32,
    _lasts: *mut u32,
    _delegated: *mut *mut c_void,
) -> u32 {
    // SAFETY: the caller's credential.
    let is_acceptor = unsafe { object::<FakeCredential>(credential) }
        .is_some_and(|credential| credential.is_acceptor);
    // SAFETY: the caller's token.
    let Some(words) = words(unsafe { octets(input) }).filter(|_| is_acceptor) else {
        // SAFETY: room for a number.
        return unsafe { fail(minor, DEFECTIVE, 0) };
    };
    let ticket = FakeTicket::parse(&words);
    if let Some((status, cause)) = ticket.status {
        let code = cause.wrapping_sub(KRB5);
        // SAFETY: room for a buffer.
        unsafe { fill(output, &error(u8::try_from(code).unwrap_or(60))) };
        // SAFETY: room for a number.
        return unsafe { fail(minor, status, cause) };
    }
    let name = FakeName { text: ticket.principal.clone(), fail: ticket.fail.clone() };
    if ticket.is_mutual {
        // SAFETY: room for a buffer.
        unsafe { fill(output, &framed(REPLY, ticket.words().as_bytes())) };
        // SAFETY: room for a number.
        unsafe { give(flags, MUTUAL) };
    }
    // SAFETY: room for a pointer.
    unsafe { give(source, keep(&NAMES, name)) };
    let status = if ticket.is_unfinished { CONTINUE } else { 0 };
    let made = FakeContext { ticket, is_initiator: false };
    // SAFETY: room for a pointer.
    unsafe { give(context, keep(&CONTEXTS, made)) };
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_init_sec_context(
    minor: *mut u32,
    credential: *mut c_void,
    context: *mut *mut c_void,
    target: *mut c_void,
    _mechanism: *mut Oid,
    request: u32,
    _time: u32,
    _bindings: *mut c_void,
    input: *mut Buffer,
    _actual: *mut *mut Oid,
    output: *mut Buffer,
    flags: *mut u32,
    _lasts: *mut u32,
) -> u32 {
    // SAFETY: the caller's target.
    let target = unsafe { object::<FakeName>(target) }.map_or("", |name| &name.text);
    // SAFETY: the caller's credential.
    let enctype = unsafe { object::<FakeCredential>(credential) }.map_or(0, |own| own.enctype);
    // SAFETY: the caller's pointer, to a context or null.
    let known = unsafe { context.read() };
    // SAFETY: the caller's context, or none.
    if let Some(known) = unsafe { object::<FakeContext>(known) } {
        // SAFETY: the caller's token.
        let is_right = unsafe { octets(input) } == framed(REPLY, known.ticket.words().as_bytes());
        // SAFETY: room for a number.
        return if is_right { 0 } else { unsafe { fail(minor, FAILURE, ASKED) } };
    }
    if target.contains("unknown") {
        // SAFETY: room for a number.
        return unsafe { fail(minor, FAILURE, UNKNOWN) };
    }
    let mutual = if request & MUTUAL == 0 { "" } else { " mutual" };
    let asked = if target.contains("unexportable") { " fail=export" } else { "" };
    let text = format!("principal=alice@STAG.TEST enctype={enctype} end=4000000000{mutual}{asked}");
    let text = if target.contains("long") { text + &" ".repeat(65_536) } else { text };
    // SAFETY: room for a buffer.
    unsafe { fill(output, &token(&text)) };
    // SAFETY: room for a number.
    unsafe { give(flags, request & MUTUAL) };
    let made = FakeContext { ticket: FakeTicket::parse(&text), is_initiator: true };
    // SAFETY: room for a pointer.
    unsafe { give(context, keep(&CONTEXTS, made)) };
    if mutual.is_empty() { 0 } else { CONTINUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_delete_sec_context(
    _minor: *mut u32,
    context: *mut *mut c_void,
    _token: *mut Buffer,
) -> u32 {
    // SAFETY: a context of an accept or an initiation.
    drop(unsafe { end::<FakeContext>(&CONTEXTS, context) });
    0
}

/// A key for the caller, in a box of its own.
fn lucid_key(enctype: u32, octets: Vec<u8>) -> FakeLucidKey {
    let length = u32::try_from(octets.len()).unwrap_or(0);
    FakeLucidKey { enctype, length, data: Box::into_raw(octets.into_boxed_slice()).cast() }
}

fn no_key() -> FakeLucidKey {
    FakeLucidKey { enctype: 0, length: 0, data: null_mut() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_krb5_export_lucid_sec_context(
    minor: *mut u32,
    context: *mut *mut c_void,
    version: u32,
    lucid: *mut *mut c_void,
) -> u32 {
    // SAFETY: the caller's pointer, to a context.
    let known = unsafe { context.read() };
    // SAFETY: the caller's context.
    let known = unsafe { object::<FakeContext>(known) };
    let Some(FakeContext { ticket, is_initiator }) = known.filter(|_| version == 1) else {
        // SAFETY: room for a number.
        return unsafe { fail(minor, FAILURE, ASKED) };
    };
    if ticket.fail == "export" {
        // The context stays the caller's.
        // SAFETY: room for a number.
        return unsafe { fail(minor, FAILURE, ASKED) };
    }
    let key = lucid_key(ticket.enctype, ticket.key());
    let (key, subkey) = if ticket.is_mutual { (no_key(), key) } else { (key, no_key()) };
    let made = FakeLucid {
        version: if ticket.fail == "version" { 2 } else { 1 },
        initiate: (*is_initiator).into(),
        end: ticket.end,
        sequences: [7; 2],
        protocol: if ticket.fail == "protocol" { 0 } else { 1 },
        old: FakeOldKeys { algorithms: [0; 2], key: no_key() },
        new: FakeNewKeys { has_subkey: ticket.is_mutual.into(), key, subkey },
    };
    LUCID.fetch_add(1, Ordering::SeqCst);
    // SAFETY: room for a pointer.
    unsafe { give(lucid, Box::into_raw(Box::new(made)).cast()) };
    // SAFETY: the caller's context, which ends.
    drop(unsafe { end::<FakeContext>(&CONTEXTS, context) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gss_krb5_free_lucid_sec_context(
    _minor: *mut u32,
    lucid: *mut c_void,
) -> u32 {
    LUCID.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: the export made it, and it is freed once.
    let lucid = unsafe { Box::from_raw(lucid.cast::<FakeLucid>()) };
    for key in [lucid.new.key, lucid.new.subkey] {
        if !key.data.is_null() {
            let len = usize::try_from(key.length).unwrap_or(0);
            let octets = std::ptr::slice_from_raw_parts_mut(key.data.cast::<u8>(), len);
            // SAFETY: `lucid_key` made a box of this many bytes.
            drop(unsafe { Box::from_raw(octets) });
        }
    }
    0
}
