//! Tokens and contexts, by their rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod contexts;
mod tokens;

use stag_gss::{AcceptorContext, ContextKey, ContextKeys, Enctype, GssRole, InitiatorContext};

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
