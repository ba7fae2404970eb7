//! Names, credentials and contexts, as the fake library has them.

use std::sync::atomic::{AtomicI64, Ordering};

/// Live objects by kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Names.
    pub names: i64,
    /// Credentials.
    pub credentials: i64,
    /// Contexts.
    pub contexts: i64,
    /// Buffers with content.
    pub buffers: i64,
    /// Exported contexts.
    pub lucid: i64,
}

/// Counters of live objects.
pub(crate) static NAMES: AtomicI64 = AtomicI64::new(0);
pub(crate) static CREDENTIALS: AtomicI64 = AtomicI64::new(0);
pub(crate) static CONTEXTS: AtomicI64 = AtomicI64::new(0);
pub(crate) static BUFFERS: AtomicI64 = AtomicI64::new(0);
pub(crate) static LUCID: AtomicI64 = AtomicI64::new(0);

impl LiveCounts {
    pub(crate) fn now() -> Self {
        let [names, credentials, contexts, buffers, lucid] =
            [&NAMES, &CREDENTIALS, &CONTEXTS, &BUFFERS, &LUCID]
                .map(|counter| counter.load(Ordering::SeqCst));
        Self { names, credentials, contexts, buffers, lucid }
    }
}

/// The Kerberos 5 mechanism with its tag and length.
const MECHANISM: [u8; 11] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// Kinds of tokens (RFC 4121 §4.1).
pub(crate) const REQUEST: [u8; 2] = [1, 0];
pub(crate) const REPLY: [u8; 2] = [2, 0];
const ERROR: [u8; 2] = [3, 0];

/// An element of DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[tag, 0x82, high, low], content].concat()
}

/// A token of a kind around a message.
pub(crate) fn framed(kind: [u8; 2], message: &[u8]) -> Vec<u8> {
    der(0x60, &[&MECHANISM[..], &kind, message].concat())
}

/// An initiator's token of these words.
#[must_use]
pub fn token(words: &str) -> Vec<u8> {
    framed(REQUEST, &der(0x6e, words.as_bytes()))
}

/// The words of an initiator's token.
pub(crate) fn words(token: &[u8]) -> Option<String> {
    // Two elements with lengths of two octets, a mechanism and a kind.
    let words = token.get(4 + MECHANISM.len() + REQUEST.len() + 4..)?;
    String::from_utf8(words.to_vec()).ok()
}

/// A KRB-ERROR with this code, of noon on a day.
pub(crate) fn error(code: u8) -> Vec<u8> {
    let time = der(0xa4, &der(0x18, b"20261201120000Z"));
    let code = der(0xa6, &der(0x02, &[code]));
    framed(ERROR, &der(0x7e, &der(0x30, &[time, code].concat())))
}

/// The content of a token.
#[derive(Clone, Default)]
pub(crate) struct FakeTicket {
    pub(crate) principal: String,
    pub(crate) enctype: u32,
    pub(crate) end: u32,
    pub(crate) is_mutual: bool,
    pub(crate) is_unfinished: bool,
    pub(crate) status: Option<(u32, u32)>,
    /// The function that fails.
    pub(crate) fail: String,
}

impl FakeTicket {
    pub(crate) fn parse(words: &str) -> Self {
        let mut ticket = Self { enctype: 20, ..Self::default() };
        for word in words.split(' ') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "principal" => value.clone_into(&mut ticket.principal),
                "enctype" => ticket.enctype = value.parse().unwrap_or(0),
                "end" => ticket.end = value.parse().unwrap_or(0),
                "mutual" => ticket.is_mutual = true,
                "continue" => ticket.is_unfinished = true,
                "status" => ticket.status = value.split_once(',').map(|(a, b)| (hex(a), hex(b))),
                "fail" => value.clone_into(&mut ticket.fail),
                _ => {}
            }
        }
        ticket
    }

    /// The words of which it was made, without the requests for faults.
    pub(crate) fn words(&self) -> String {
        let mutual = if self.is_mutual { " mutual" } else { "" };
        let Self { principal, enctype, end, .. } = self;
        format!("principal={principal} enctype={enctype} end={end}{mutual}")
    }

    /// The key: its length is that of the type, if it is known.
    pub(crate) fn key(&self) -> Vec<u8> {
        let len = if matches!(self.enctype, 17 | 19 | 23) { 16 } else { 32 };
        let mut key: Vec<u8> = self.principal.bytes().cycle().take(len).collect();
        key.resize(len, 0);
        if let Some(first) = key.first_mut() {
            *first = first.wrapping_add(self.enctype as u8);
        }
        key
    }
}

fn hex(digits: &str) -> u32 {
    u32::from_str_radix(digits, 16).unwrap_or(0)
}

/// A name.
#[derive(Clone, Default)]
pub(crate) struct FakeName {
    pub(crate) text: String,
    pub(crate) fail: String,
}

/// A credential.
#[derive(Default)]
pub(crate) struct FakeCredential {
    pub(crate) is_acceptor: bool,
    /// All settings, as text.
    pub(crate) settings: String,
    /// The highest of the allowed encryption types.
    pub(crate) enctype: u32,
}

/// A context.
#[derive(Default)]
pub(crate) struct FakeContext {
    pub(crate) ticket: FakeTicket,
    pub(crate) is_initiator: bool,
}
