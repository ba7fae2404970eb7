//! Wire tests of the software RNIC's protocol: every rule that shows without a socket.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod ends;
mod foretold;
mod fpdu;
mod inbound;
mod mpa;
mod outbound;
mod terminate;

use fastrand::Rng;
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
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Random octets.
pub fn octets(random: &mut Rng, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    random.fill(&mut octets);
    octets
}

#[test]
fn the_check_value_of_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}
