//! Choices from a seed.

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct FuzzRandom(u64);

impl FuzzRandom {
    /// The choices of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    pub const fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any 32 bits.
    pub const fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// Any octet.
    pub const fn u8(&mut self) -> u8 {
        (self.u64() >> 56) as u8
    }

    /// Below `bound`; zero when that is zero.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.u64() as u128 * bound as u128) >> 64) as usize
    }

    /// True once in `times`.
    pub const fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// `len` octets.
    pub fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u8()).collect()
    }

    /// A word as fields have them: mostly small, sometimes at the end of what a word can say,
    /// sometimes anything.
    pub fn word(&mut self) -> u32 {
        match self.below(16) {
            0..=4 => 0,
            5..=8 => 1,
            9..=11 => self.below(9) as u32,
            12 => self.below(300) as u32,
            13 => self.pick(&EDGES),
            _ => self.u32(),
        }
    }
}

/// Words at which sums, signs and limits turn.
pub const EDGES: [u32; 14] = [
    0,
    1,
    2,
    3,
    4,
    16,
    17,
    64,
    400,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_fffe,
    0xffff_ffff,
];
