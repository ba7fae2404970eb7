//! Test pattern that follows from a seed, a file and a place: written octets need not be remembered
//! to be compared.

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
        // A word at a time after the first, which may begin in its middle.
        let skip = usize::try_from(offset % 8).unwrap_or(0);
        let (head, words) = room.split_at_mut(room.len().min((8 - skip) % 8));
        for (at, octet) in (offset..).zip(head.iter_mut()) {
            *octet = self.octet(at);
        }
        for (number, word) in (offset.div_ceil(8)..).zip(words.chunks_mut(8)) {
            let octets = mix(self.0 ^ number).to_le_bytes();
            word.copy_from_slice(octets.get(..word.len()).unwrap_or_default());
        }
    }

    /// The first place in `octets`, which begin at `offset`, that differs, as (offset, expected,
    /// found).
    pub fn differs(self, offset: u64, octets: &[u8]) -> Option<(u64, u8, u8)> {
        let mut room = [0; 4_096];
        for (start, found) in (offset..).step_by(room.len()).zip(octets.chunks(room.len())) {
            let expected = room.get_mut(..found.len()).unwrap_or_default();
            self.fill(start, expected);
            if expected != found {
                let mut pairs = (start..).zip(expected.iter().zip(found));
                let (at, (expected, found)) =
                    pairs.find(|(_, (expected, found))| expected != found)?;
                return Some((at, *expected, *found));
            }
        }
        None
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
    fn a_part_is_the_same_octets_as_in_the_whole() {
        let pattern = Pattern::new(7, 3);
        for offset in 0..20 {
            for len in 0..40 {
                let mut part = vec![0; len];
                pattern.fill(offset, &mut part);
                let expected: Vec<_> = (offset..).take(len).map(|at| pattern.octet(at)).collect();
                assert_eq!(part, expected, "{len} octets at {offset}");
            }
        }
    }

    #[test]
    fn a_difference_behind_the_first_pages_is_found() {
        let pattern = Pattern::new(1, 2);
        let mut octets = vec![0; 20_001];
        pattern.fill(5, &mut octets);
        assert_eq!(pattern.differs(5, &octets), None);
        octets[20_000] ^= 1;
        assert_eq!(pattern.differs(5, &octets), Some((20_005, octets[20_000] ^ 1, octets[20_000])));
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
