//! Encryption types of Kerberos that protect messages here, and keys of contexts (RFC 3962,
//! RFC 8009).
#![forbid(unsafe_code)]

use std::fmt;
use zeroize::Zeroizing;

/// An encryption type that contexts may have: the four with AES. All others are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KerberosEnctype {
    /// aes128-cts-hmac-sha1-96 (RFC 3962).
    Aes128Sha1,
    /// aes256-cts-hmac-sha1-96 (RFC 3962).
    Aes256Sha1,
    /// aes128-cts-hmac-sha256-128 (RFC 8009).
    Aes128Sha256,
    /// aes256-cts-hmac-sha384-192 (RFC 8009).
    Aes256Sha384,
}

impl KerberosEnctype {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 4] =
        [Self::Aes256Sha384, Self::Aes128Sha256, Self::Aes256Sha1, Self::Aes128Sha1];

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    /// The type of this number, if it is one of the four.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|enctype| enctype.number() == number)
    }

    /// Length of its keys in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// The name in krb5.conf.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha256 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha384 => "aes256-cts-hmac-sha384-192",
        }
    }
}

impl fmt::Display for KerberosEnctype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The key of a context. Its bytes are overwritten when it is dropped, and are in no output.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    enctype: KerberosEnctype,
    octets: Zeroizing<Vec<u8>>,
}

impl SessionKey {
    /// A copy of a key with this number of its type; None if the type is not one of the four or
    /// the length is not that of the type.
    #[must_use]
    pub fn new(enctype: u32, octets: &[u8]) -> Option<Self> {
        let enctype = KerberosEnctype::from_number(enctype)?;
        let is_whole = octets.len() == enctype.key_len();
        is_whole.then(|| Self { enctype, octets: Zeroizing::new(octets.to_vec()) })
    }

    /// Its encryption type.
    #[must_use]
    pub fn enctype(&self) -> KerberosEnctype {
        self.enctype
    }

    /// Its bytes, [`KerberosEnctype::key_len`] of them.
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
pub struct ContextKeys {
    /// The key from which those of each direction are derived.
    pub key: SessionKey,
    /// True if the acceptor chose it; tokens then have the flag AcceptorSubkey (RFC 4121 §4.2.2).
    /// False: it is the initiator's subkey, or the ticket's key if that chose none.
    pub is_acceptor_subkey: bool,
    /// The ticket's end, in seconds since 1970-01-01 00:00:00 UTC.
    pub end_time: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_are_those_of_the_rfcs_and_others_are_refused() {
        let all: Vec<_> =
            (0..64).filter_map(|n| Some((n, KerberosEnctype::from_number(n)?.key_len()))).collect();
        assert_eq!(all, [(17, 16), (18, 32), (19, 16), (20, 32)]);
        for number in 0..64 {
            for len in 0..64 {
                let key = SessionKey::new(number, &vec![7; len]);
                assert_eq!(key.is_some(), all.contains(&(number, len)), "{number} {len}");
            }
        }
    }

    #[test]
    fn a_key_shows_its_type_and_no_bytes() {
        let key = SessionKey::new(17, &[0xab; 16]).unwrap();
        let keys = ContextKeys { key, is_acceptor_subkey: true, end_time: 5 };
        let text = format!("{keys:?}").to_lowercase();
        assert!(text.contains("aes128-cts-hmac-sha1-96"), "{text}");
        assert!(!text.contains("ab") && !text.contains("171"), "{text}");
    }
}
