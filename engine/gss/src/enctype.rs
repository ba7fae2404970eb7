//! The four AES enctypes (RFC 3962, RFC 8009).

use core::fmt;

/// Encryption type of a context's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Enctype {
    /// aes128-cts-hmac-sha1-96 (RFC 3962).
    Aes128Sha1 = 17,
    /// aes256-cts-hmac-sha1-96 (RFC 3962).
    Aes256Sha1 = 18,
    /// aes128-cts-hmac-sha256-128 (RFC 8009).
    Aes128Sha256 = 19,
    /// aes256-cts-hmac-sha384-192 (RFC 8009).
    Aes256Sha384 = 20,
}

impl Enctype {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 4] =
        [Self::Aes256Sha384, Self::Aes128Sha256, Self::Aes256Sha1, Self::Aes128Sha1];

    /// The enctype of this number; `None` for DES, RC4, Camellia and others.
    pub fn new(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|enctype| enctype.number() == number)
    }

    /// Its number (RFC 3961 §8).
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Its name in krb5.conf.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha256 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha384 => "aes256-cts-hmac-sha384-192",
        }
    }

    /// Octets of a key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// Octets of a truncated HMAC.
    pub const fn checksum_len(self) -> usize {
        match self {
            // RFC 3962 §6 [3962-2]: 96 bits
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            // RFC 8009 §5 [8009-4]: 128 and 192 bits of the HMAC are kept
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }

    /// Returns true if the HMAC covers ciphertext (RFC 8009), false if it covers plaintext (RFC
    /// 3962).
    pub(crate) const fn signs_ciphertext(self) -> bool {
        matches!(self, Self::Aes128Sha256 | Self::Aes256Sha384)
    }
}

impl fmt::Display for Enctype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_four_aes_enctypes_exist() {
        let known: Vec<_> =
            (0..70_000).filter_map(|n| Some((n, Enctype::new(n)?.key_len()))).collect();
        assert_eq!(known, [(17, 16), (18, 32), (19, 16), (20, 32)]);
        assert!(known.iter().all(|(n, _)| Enctype::new(*n).is_some_and(|it| it.number() == *n)));
    }
}
