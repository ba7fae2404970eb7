//! RPCSEC_GSS with Kerberos 5, per message: tokens of RFC 4121 with the AES enctypes of RFC 3962
//! and RFC 8009, the replay window of RFC 2203, and both ends of a context.
//!
//! Contexts are set up elsewhere, by a library that exports a key. From then on everything is here:
//! [`AcceptorContext`] verifies calls and signs replies, [`InitiatorContext`] mirrors it, both on
//! expanded [`ContextKeys`]. Nothing allocates per message, does I/O, or has a source of random
//! numbers: confounders are the caller's. Long bodies may be worked on in steps
//! ([`Protecting`], [`Unprotecting`]), so that a caller spreads a MiB over several passes.
//!
//! | file | content |
//! |---|---|
//! | `enctype.rs`, `derive.rs` | the four enctypes; derivation of keys |
//! | `role.rs` | [`GssRole`]: initiator and acceptor |
//! | `keys.rs` | [`ContextKeys`]: one context's expanded keys |
//! | `mac.rs`, `cipher.rs` | HMAC; AES in CBC mode with ciphertext stealing |
//! | `token.rs` | headers of tokens |
//! | `mic.rs`, `wrap.rs` | checksum tokens; sealed tokens |
//! | `body.rs` | arguments and results under integrity and privacy |
//! | `window.rs` | [`ReplayWindow`]: sequence numbers seen |
//! | `context.rs` | [`AcceptorContext`], [`InitiatorContext`]: calls and replies |
#![forbid(unsafe_code)]

mod body;
mod cipher;
mod context;
mod derive;
mod enctype;
mod keys;
mod mac;
mod mic;
mod role;
mod token;
mod window;
mod wrap;

use sha2::{Digest as _, Sha256};
use stag_protocol::rpc::PrincipalId;

pub use body::{BodyFault, ProtectedRoom, Protecting, Protection, Unprotecting};
pub use context::{AcceptorContext, CallFault, InitiatorContext, VerifiedCall};
pub use enctype::Enctype;
pub use keys::{ContextKey, ContextKeys, WrongKeyLen};
pub use mic::{MIC_MAX, MicState, MicToken};
pub use role::GssRole;
pub use token::{EXTRA_MAX, TokenFault};
pub use window::{ReplayWindow, Replayed, VerifiedSequence, WINDOW};
pub use wrap::{CONFOUNDER, Opening, SEALED_FRONT, Sealing, WrongBuffer};

/// The identity that stands for a principal: the first half of its name's SHA-256.
pub fn identity_of(principal: &str) -> PrincipalId {
    let digest: [u8; 32] = Sha256::digest(principal.as_bytes()).into();
    let mut identity = [0; 16];
    identity.iter_mut().zip(digest).for_each(|(to, octet)| *to = octet);
    PrincipalId(identity)
}

#[cfg(test)]
mod tests;
