//! Keys that are derived from a context's key (RFC 3961 §5.1, RFC 3962 §4, RFC 8009 §3).

use aes::{
    Aes128Enc, Aes256Enc, Block,
    cipher::{BlockCipherEncrypt, KeyInit},
};
use zeroize::{Zeroize, Zeroizing};

use crate::{enctype::Enctype, mac::Mac};

/// Octets of the longest key.
const KEY_MAX: usize = 32;

/// Octets of one key; those after its length are zero.
type KeyOctets = Zeroizing<[u8; KEY_MAX]>;

/// Role of a derived key (RFC 3961 §5.3): the octet after the usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum KeyPurpose {
    /// Kc: checksums.
    Checksum = 0x99,
    /// Ke: encryption.
    Encryption = 0xAA,
    /// Ki: integrity of what is encrypted.
    Integrity = 0x55,
}

impl Enctype {
    /// Octets of a key for `purpose`.
    const fn derived_len(self, purpose: KeyPurpose) -> usize {
        match (self, purpose) {
            // RFC 8009 §5 [8009-3]: Kc and Ki have the length of the checksum, Ke that of the key
            (Self::Aes256Sha384, KeyPurpose::Checksum | KeyPurpose::Integrity) => 24,
            _ => self.key_len(),
        }
    }

    /// Derives a key from `key`, which has [`Enctype::key_len`] octets.
    pub(crate) fn derive(self, key: &[u8], usage: u32, purpose: KeyPurpose) -> DerivedKey {
        let [a, b, c, d] = usage.to_be_bytes();
        // RFC 8009 §5 [8009-2]: the label is the usage and the octet of the purpose
        let label = [a, b, c, d, purpose as u8];
        let octets = if self.signs_ciphertext() {
            derive_sha2(self, key, label, self.derived_len(purpose))
        } else {
            derive_cbc(key, &label)
        };
        DerivedKey { octets, len: self.derived_len(purpose) }
    }
}

/// A derived key.
pub(crate) struct DerivedKey {
    octets: KeyOctets,
    len: usize,
}

impl DerivedKey {
    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

/// KDF-HMAC-SHA2 of RFC 8009 §3: one block of it holds every key.
fn derive_sha2(enctype: Enctype, key: &[u8], label: [u8; 5], len: usize) -> KeyOctets {
    let bits = u32::try_from(len * 8).unwrap_or_default();
    let mut mac = Mac::new(enctype, key);
    // RFC 8009 §3 [8009-1]: 1, the label, a zero octet, the length of the key in bits
    for part in [&1_u32.to_be_bytes()[..], &label, &[0], &bits.to_be_bytes()] {
        mac.update(part);
    }
    let mut octets = KeyOctets::default();
    let (front, _) = octets.split_at_mut(len.min(KEY_MAX));
    mac.finish_key(front);
    octets
}

/// DK of RFC 3961 §5.1: the folded label, encrypted again and again.
fn derive_cbc(key: &[u8], label: &[u8]) -> KeyOctets {
    // RFC 3962 §6 [3962-4]: keys come from the folded usage
    let mut block = Block::from(fold::<16>(label));
    let mut octets = KeyOctets::default();
    for part in octets.chunks_exact_mut(block.len()) {
        if let Ok(cipher) = Aes256Enc::new_from_slice(key) {
            cipher.encrypt_block(&mut block);
        } else if let Ok(cipher) = Aes128Enc::new_from_slice(key) {
            cipher.encrypt_block(&mut block);
        }
        part.copy_from_slice(&block);
    }
    block.as_mut_slice().zeroize();
    octets
}

/// n-fold of RFC 3961 §5.1: copies of `input`, each rotated right by 13 bits more than the last,
/// cut into pieces of `N` octets and added with end-around carry.
fn fold<const N: usize>(input: &[u8]) -> [u8; N] {
    let bits = input.len() * 8;
    let total = (1..).map(|n| n * N).find(|total| total.is_multiple_of(input.len().max(1)));
    let bit = |at: usize| {
        let (copy, within) = (at / bits, at % bits);
        let from = (within + bits - 13 * copy % bits) % bits;
        input.get(from / 8).map_or(0, |octet| u32::from(octet >> (7 - from % 8) & 1))
    };
    let mut columns = [0_u32; N];
    for at in 0..total.unwrap_or_default() {
        let octet = (0..8).fold(0, |octet, low| octet << 1 | bit(at * 8 + low));
        if let Some(column) = columns.get_mut(at % N) {
            *column += octet;
        }
    }
    // The first pass may carry out of the first column into the last one, and the second pass too.
    let mut carry = 0;
    for _ in 0..3 {
        for column in columns.iter_mut().rev() {
            let sum = *column + carry;
            (*column, carry) = (sum & 0xFF, sum >> 8);
        }
    }
    columns.map(|column| column as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    #[test]
    fn folds_are_those_of_rfc_3961() {
        assert_eq!(fold::<8>(b"012345").to_vec(), hex("be072631276b1955"));
        assert_eq!(fold::<7>(b"password").to_vec(), hex("78a07b6caf85fa"));
        assert_eq!(
            fold::<8>(b"Rough Consensus, and Running Code").to_vec(),
            hex("bb6ed30870b7f0e0")
        );
        assert_eq!(
            fold::<21>(b"password").to_vec(),
            hex("59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e")
        );
        assert_eq!(
            fold::<24>(b"MASSACHVSETTS INSTITVTE OF TECHNOLOGY").to_vec(),
            hex("db3b0d8f0b061e603282b308a50841229ad798fab9540c1b")
        );
        assert_eq!(
            fold::<21>(b"Q").to_vec(),
            hex("518a54a2 15a8452a 518a54a2 15a8452a 518a54a2 15")
        );
        assert_eq!(fold::<16>(b"kerberos").to_vec(), hex("6b65726265726f737b9b5b2b93132b93"));
    }

    #[test]
    fn keys_are_those_of_rfc_8009() {
        use KeyPurpose::{Checksum, Encryption, Integrity};
        let key128 = hex("3705D96080C17728A0E800EAB6E0D23C");
        let key256 = hex("6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52");
        for (enctype, key, purpose, expected) in [
            (Enctype::Aes128Sha256, &key128, Checksum, "B31A018A48F54776F403E9A396325DC3"),
            (Enctype::Aes128Sha256, &key128, Encryption, "9B197DD1E8C5609D6E67C3E37C62C72E"),
            (Enctype::Aes128Sha256, &key128, Integrity, "9FDA0E56AB2D85E1569A688696C26A6C"),
            (
                Enctype::Aes256Sha384,
                &key256,
                Checksum,
                "EF5718BE86CC84963D8BBB5031E9F5C4BA41F28FAF69E73D",
            ),
            (
                Enctype::Aes256Sha384,
                &key256,
                Encryption,
                "56AB22BEE63D82D7BC5227F6773F8EA7A5EB1C825160C38312980C442E5C7E49",
            ),
            (
                Enctype::Aes256Sha384,
                &key256,
                Integrity,
                "69B16514E3CD8E56B82010D5C73012B622C4D00FFC23ED1F",
            ),
        ] {
            assert_eq!(enctype.derive(key, 2, purpose).octets(), hex(expected), "{enctype:?}");
        }
    }
}
