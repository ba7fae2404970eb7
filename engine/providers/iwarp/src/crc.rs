//! CRC32c with whatever instructions this machine has.

use crc_fast::{CrcAlgorithm, Digest};
use stag_pools::crc32c;
use stag_protocol::iwarp::fpdu::Crc32c;

/// Longest octets for which choosing among algorithms costs more than it gains.
const SHORT: usize = 256;

/// A running CRC32c.
pub(crate) struct Crc(Digest);

impl Crc32c for Crc {
    fn start() -> Self {
        // RFC 5044 §4.4 [5044-24]: the CRC is CRC32c as in iSCSI
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    fn update(&mut self, octets: &[u8]) {
        self.0.update(octets);
    }

    fn finish(self) -> u32 {
        self.0.finalize() as u32 // a 32-bit CRC in the 64 bits that serve every algorithm
    }

    #[inline]
    fn of(octets: &[u8]) -> u32 {
        if octets.len() <= SHORT
            && let Some(crc) = crc32c(octets)
        {
            return crc;
        }
        crc_fast::crc32_iscsi(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc_of(pieces: &[&[u8]]) -> u32 {
        let mut crc = Crc::start();
        pieces.iter().for_each(|piece| crc.update(piece));
        crc.finish()
    }

    /// Bit by bit, as RFC 5044 §4.4 and RFC 3385 define it.
    fn slow(octets: &[u8]) -> u32 {
        !octets.iter().fold(!0, |crc, octet| {
            (0..8).fold(crc ^ u32::from(*octet), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 }
            })
        })
    }

    #[test]
    fn the_check_value_and_the_vectors_of_the_rfc_come_out() {
        assert_eq!(crc_of(&[b"123456789"]), 0xE306_9283);
        // RFC 5044 Figure 5: a marker, the header of a Send, 24 zeros.
        let mut octets = vec![0; 4 + 20 + 24];
        octets[4..8].copy_from_slice(&[0x00, 0x2A, 0x41, 0x43]);
        octets[19] = 1;
        assert_eq!(crc_of(&[&octets]).to_le_bytes(), [0x52, 0x23, 0x99, 0x83]);
    }

    #[test]
    fn every_length_and_every_cut_agree_with_the_definition() {
        let octets: Vec<u8> = (0..700_u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for len in 0..octets.len() {
            assert_eq!(crc_of(&[&octets[..len]]), slow(&octets[..len]), "length {len}");
            assert_eq!(Crc::of(&octets[..len]), slow(&octets[..len]), "length {len}, at once");
        }
        for cut in 0..octets.len() {
            assert_eq!(crc_of(&[&octets[..cut], &octets[cut..]]), slow(&octets), "cut {cut}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_instructions_are_chosen_at_run_time() {
        let has_clmul = std::is_x86_feature_detected!("pclmulqdq");
        let target = crc_fast::get_calculator_target(CrcAlgorithm::Crc32Iscsi);
        assert_eq!(has_clmul, target.contains("pclmulqdq"), "{target}");
    }
}
