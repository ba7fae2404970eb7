//! Hash functions of the indexes of the tables.
//!
//! An owner is found by a keyed hash of 128 bits, which stands for it. Keys that are hashes
//! already, of an owner or of a file, are spread over an index by one multiplication with secret
//! numbers.

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use stag_pools::table::Key;
use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
};

/// A number that differs from process to process.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Makes the keyed hashes of owners.
#[derive(Clone, Copy)]
pub(crate) struct OwnerHashes {
    key: [u64; 2],
}

impl OwnerHashes {
    /// With a secret key.
    pub(crate) fn new() -> Self {
        Self { key: [random(), random()] }
    }

    /// The hash of an owner of a client, of an open or of locks of a file. It is secret and has 128
    /// bits, so that a collision can neither be expected nor provoked.
    pub(crate) fn of(&self, client: Key, file: u128, owner: &[u8]) -> u128 {
        let [first, second] = self.key;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        let mut head = [0; 24];
        let (of_client, of_file) = head.split_at_mut(8);
        of_client.copy_from_slice(&client.to_bits().to_ne_bytes());
        of_file.copy_from_slice(&file.to_ne_bytes());
        hasher.write(&head);
        // Only this length varies, and it comes last: no two inputs are the same octets.
        hasher.write(owner);
        hasher.finish128().as_u128()
    }
}

impl fmt::Debug for OwnerHashes {
    /// Without the key, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerHashes").finish_non_exhaustive()
    }
}

/// Spreads keys that are hashes already.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    start: u64,
    factor: u64,
}

impl Spread {
    /// With secret numbers.
    pub(crate) fn new() -> Self {
        Self { start: random(), factor: random() | 1 }
    }
}

impl fmt::Debug for Spread {
    /// Without the numbers, which are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spread").finish_non_exhaustive()
    }
}

impl BuildHasher for Spread {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher { value: self.start, factor: self.factor }
    }
}

/// The hasher of [`Spread`].
#[derive(Clone, Copy)]
pub(crate) struct SpreadHasher {
    value: u64,
    factor: u64,
}

impl Hasher for SpreadHasher {
    #[inline]
    fn write_u128(&mut self, key: u128) {
        self.write_u64(key as u64 ^ (key >> 64) as u64);
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        let product = u128::from(self.value ^ key) * u128::from(self.factor);
        self.value = product as u64 ^ (product >> 64) as u64;
    }

    /// The trait requires it; no key of an index is hashed by it.
    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.write_u64(u64::from(*octet));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_hash_and_all_of_it_counts() {
        let hashes = OwnerHashes::new();
        let (client, file) = (Key::from_bits(1), 2);
        let whole = hashes.of(client, file, b"owner");
        assert_eq!(whole, hashes.of(client, file, b"owner"));
        let others = [
            hashes.of(Key::from_bits(1 << 32), file, b"owner"),
            hashes.of(client, 2 << 64, b"owner"),
            hashes.of(client, file, b"ownes"),
            hashes.of(client, file, b"owner\0"),
            hashes.of(client, file, b""),
            OwnerHashes::new().of(client, file, b"owner"),
        ];
        assert!(others.iter().all(|other| *other != whole));
    }

    #[test]
    fn keys_that_differ_in_few_bits_are_spread() {
        let spread = Spread { start: 0x0123_4567_89ab_cdef, factor: 0x9e37_79b9_7f4a_7c15 };
        let keys = (0..1_024_u128).map(|key| key << 57);
        let places = keys.map(|key| spread.hash_one(key) & 1_023);
        let used: std::collections::HashSet<u64> = places.collect();
        // Of random places, 647 are used.
        assert!(used.len() > 256, "{} of 1,024 places", used.len());
    }
}
