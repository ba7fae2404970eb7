//! Tokens and contexts, by their rules and by captures of Linux with Linux.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod captures;
mod contexts;
mod header;
mod tokens;

// The machinery of the captures in `stag-protocol`, of which RPC is above RDMA.
#[allow(dead_code)]
#[path = "../../../protocol/tests/captures/calls.rs"]
mod calls;
#[path = "../../../protocol/tests/captures/crc.rs"]
mod crc;
#[allow(dead_code)]
#[path = "../../../protocol/tests/captures/pcap.rs"]
mod pcap;
#[allow(dead_code)]
#[path = "../../../protocol/tests/captures/wire.rs"]
mod wire;

use stag_gss::{AcceptorContext, ContextKey, ContextKeys, Enctype, GssRole, InitiatorContext};

/// The octets of hexadecimal digits.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// A key of this enctype, from a seed.
pub fn key_octets(enctype: Enctype, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..enctype.key_len()).map(|_| random.u8(..)).collect()
}

/// Keys of both ends of one context: initiator, acceptor.
pub fn ends(enctype: Enctype, acceptor_subkey: bool) -> [ContextKeys; 2] {
    let octets = key_octets(enctype, 1);
    let key = ContextKey { enctype, octets: &octets, acceptor_subkey };
    [GssRole::Initiator, GssRole::Acceptor].map(|role| ContextKeys::new(&key, role).unwrap())
}

/// Both ends of one context.
pub fn contexts(key: &ContextKey<'_>) -> (InitiatorContext, AcceptorContext) {
    (InitiatorContext::new(key, 0).unwrap(), AcceptorContext::new(key).unwrap())
}
