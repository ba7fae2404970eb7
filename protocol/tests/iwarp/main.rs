//! Wire tests of the software RNIC's protocol: every rule that shows without a socket.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod ends;
mod fpdu;
mod inbound;
mod mpa;
mod outbound;
mod terminate;

use stag_protocol::iwarp::fpdu::Crc32c;

/// CRC32c bit by bit, as the polynomial says.
pub struct Bitwise(u32);

impl Crc32c for Bitwise {
    fn start() -> Self {
        Self(u32::MAX)
    }

    fn update(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 ^= u32::from(*octet);
            for _ in 0..8 {
                self.0 = (self.0 >> 1) ^ (0x82F6_3B78 & (self.0 & 1).wrapping_neg());
            }
        }
    }

    fn finish(self) -> u32 {
        !self.0
    }
}

pub fn crc32c(octets: &[u8]) -> u32 {
    let mut crc = Bitwise::start();
    crc.update(octets);
    crc.finish()
}

/// The octets of a hex string; spaces are skipped.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// SplitMix64: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit as u64) as usize
    }

    pub fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw() as u8).collect()
    }
}

#[test]
fn the_check_value_of_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}
