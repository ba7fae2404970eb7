//! CRC32c by the fastest instructions of this machine.

use crc_fast::{CrcAlgorithm, Digest};
use stag_pools::{RunningCrc, copy_octets, crc32c, crc32c_copied};
use stag_protocol::iwarp::fpdu::Crc32c;

/// A running CRC32c.
pub(crate) enum Crc {
    /// By the processor's CRC instructions.
    Own(RunningCrc),
    /// By a library, for processors without instructions that [`RunningCrc`] supports.
    Other(OtherCrc),
}

/// The state of a running CRC only: the library's own state is large.
pub(crate) struct OtherCrc(u32);

impl OtherCrc {
    const START: Self = Self(u32::MAX);

    #[cold]
    #[inline(never)]
    fn of(parts: &[&[u8]]) -> u32 {
        let mut crc = Self::START;
        parts.iter().for_each(|octets| crc.update(octets));
        !crc.0
    }

    #[cold]
    fn update(&mut self, octets: &[u8]) {
        let algorithm = CrcAlgorithm::Crc32Iscsi;
        let mut digest = Digest::new_with_init_state(algorithm, u64::from(self.0));
        digest.update(octets);
        self.0 = digest.get_state() as u32; // a 32-bit CRC in the 64 bits of every algorithm
    }
}

impl Crc32c for Crc {
    #[inline]
    fn start() -> Self {
        // RFC 5044 §4.4 [5044-24]: the CRC is CRC32c as in iSCSI
        match RunningCrc::start() {
            Some(crc) => Self::Own(crc),
            None => Self::Other(OtherCrc::START),
        }
    }

    #[inline]
    fn update(&mut self, octets: &[u8]) {
        match self {
            Self::Own(crc) => crc.update(octets),
            Self::Other(crc) => crc.update(octets),
        }
    }

    #[inline]
    fn finish(self) -> u32 {
        match self {
            Self::Own(crc) => crc.finish(),
            Self::Other(crc) => !crc.0,
        }
    }

    #[inline(always)]
    fn of(octets: &[u8]) -> u32 {
        crc32c(octets).unwrap_or_else(|| OtherCrc::of(&[octets]))
    }

    #[inline]
    fn copied(head: &[u8], body: &[u8], copy: &mut [u8], pad: &[u8]) -> u32 {
        crc32c_copied(head, body, copy, pad).unwrap_or_else(|| {
            copy_octets(body, copy);
            OtherCrc::of(&[head, body, pad])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRC of `pieces`, by each kind of [`Crc`].
    fn crc_of(pieces: &[&[u8]]) -> u32 {
        let other = Crc::Other(OtherCrc::START);
        let [crc, other] = [Crc::start(), other].map(|mut crc| {
            pieces.iter().for_each(|piece| crc.update(piece));
            crc.finish()
        });
        assert_eq!((crc, OtherCrc::of(pieces)), (other, other));
        crc
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
            let (head, rest) = octets.split_at(cut);
            assert_eq!(crc_of(&[head, rest]), slow(&octets), "cut {cut}");
            let (body, pad) = rest.split_at(rest.len().saturating_sub(cut % 4));
            let mut copy = vec![0; body.len()];
            assert_eq!(Crc::copied(head, body, &mut copy, pad), slow(&octets), "cut {cut}");
            assert_eq!(copy, body);
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
