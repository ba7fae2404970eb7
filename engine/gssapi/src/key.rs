//! Keys of contexts, from which `stag-gss` derives those of messages.
#![forbid(unsafe_code)]

use stag_gss::{ContextKey, Enctype};
use std::fmt;
use zeroize::Zeroizing;

/// The key of a context. Its bytes are overwritten when it is dropped, and are in no output.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    enctype: Enctype,
    octets: Zeroizing<Vec<u8>>,
}

impl SessionKey {
    /// A copy of a key with this number of its type; None if the type is not one of the four or
    /// the length is not that of the type.
    #[must_use]
    pub fn new(enctype: u32, octets: &[u8]) -> Option<Self> {
        let enctype = Enctype::new(enctype)?;
        let is_whole = octets.len() == enctype.key_len();
        is_whole.then(|| Self { enctype, octets: Zeroizing::new(octets.to_vec()) })
    }

    /// Its encryption type.
    #[must_use]
    pub fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// Its bytes, [`Enctype::key_len`] of them.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({})", self.enctype)
    }
}

/// The result of setting up a context: all that per-message protection needs (RFC 4121 §2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextSecret {
    /// The key from which those of each direction are derived.
    pub key: SessionKey,
    /// True if the acceptor chose it; tokens then have the flag AcceptorSubkey (RFC 4121 §4.2.2).
    /// False: it is the initiator's subkey, or the ticket's key if that chose none.
    pub is_acceptor_subkey: bool,
    /// The ticket's end, in seconds since 1970-01-01 00:00:00 UTC.
    pub end_time: u64,
}

impl ContextSecret {
    /// The key as the code of messages takes it.
    #[must_use]
    pub fn context_key(&self) -> ContextKey<'_> {
        ContextKey {
            enctype: self.key.enctype(),
            octets: self.key.octets(),
            acceptor_subkey: self.is_acceptor_subkey,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_type_or_length_is_refused() {
        for number in 0..64 {
            for len in 0..64 {
                let key = SessionKey::new(number, &vec![7; len]);
                let fits = Enctype::new(number).is_some_and(|enctype| enctype.key_len() == len);
                assert_eq!(key.is_some(), fits, "{number} {len}");
            }
        }
    }

    #[test]
    fn a_key_shows_its_type_and_no_bytes() {
        let key = SessionKey::new(17, &[0xab; 16]).unwrap();
        let keys = ContextSecret { key, is_acceptor_subkey: true, end_time: 5 };
        let text = format!("{keys:?}").to_lowercase();
        assert!(text.contains("aes128-cts-hmac-sha1-96"), "{text}");
        assert!(!text.contains("ab") && !text.contains("171"), "{text}");
    }
}
