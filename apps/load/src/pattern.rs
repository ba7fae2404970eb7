//! Octets that follow from a seed, a file and a place: what was written need not be remembered to be compared.

/// The content of one file.
#[derive(Clone, Copy, Debug)]
pub struct Pattern(u64);

impl Pattern {
    /// The content of file number `file` in the run with this seed.
    pub const fn new(seed: u64, file: u64) -> Self {
        Self(mix(seed ^ mix(file)))
    }

    /// The octet at `offset`.
    pub fn octet(self, offset: u64) -> u8 {
        let word = mix(self.0 ^ (offset / 8)).to_le_bytes();
        word.get((offset % 8) as usize).copied().unwrap_or_default()
    }

    /// Fills `room` with the octets from `offset` on.
    pub fn fill(self, offset: u64, room: &mut [u8]) {
        for (at, octet) in (offset..).zip(room) {
            *octet = self.octet(at);
        }
    }

    /// The first place in `octets`, which begin at `offset`, that differs, as (offset, expected, found).
    pub fn differs(self, offset: u64, octets: &[u8]) -> Option<(u64, u8, u8)> {
        (offset..)
            .zip(octets)
            .map(|(at, found)| (at, self.octet(at), *found))
            .find(|(_, expected, found)| expected != found)
    }
}

/// A bijection that leaves no pattern (the finalizer of `SplitMix64`).
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_octet_is_found_at_its_place() {
        let pattern = Pattern::new(1, 2);
        let mut octets = [0; 100];
        pattern.fill(1_003, &mut octets);
        assert_eq!(pattern.differs(1_003, &octets), None);
        for at in 0..octets.len() {
            octets[at] ^= 0x10;
            let expected = (1_003 + at as u64, octets[at] ^ 0x10, octets[at]);
            assert_eq!(pattern.differs(1_003, &octets), Some(expected));
            octets[at] ^= 0x10;
        }
    }

    #[test]
    fn files_seeds_and_places_differ() {
        let sample = |seed, file, offset| {
            let mut octets = [0; 32];
            Pattern::new(seed, file).fill(offset, &mut octets);
            octets
        };
        assert_ne!(sample(1, 1, 0), sample(1, 2, 0));
        assert_ne!(sample(1, 1, 0), sample(2, 1, 0));
        assert_ne!(sample(1, 1, 0), sample(1, 1, 8));
        assert_eq!(sample(1, 1, 0)[8..], sample(1, 1, 8)[..24]);
    }
}
