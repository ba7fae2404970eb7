//! CRC32c of few octets by the processor's own instruction.
//!
//! It is here because such instructions are unsafe to call where the processor may lack them, and
//! the crates that frame messages have no unsafe code.

/// Returns the CRC32c (polynomial 0x1EDC6F41, reflected, initial and final xor all ones) of
/// `octets`, or `None` where the processor has no instruction for it. One octet follows the other:
/// for more than some hundred octets other algorithms are faster.
#[inline]
pub fn crc32c(octets: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE 4.2, as it was just asked.
        return Some(unsafe { by_sse42(octets) });
    }
    let _ = octets;
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_sse42(octets: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (eights, rest) = octets.as_chunks::<8>();
    let (fours, rest) = rest.as_chunks::<4>();
    let mut crc = u64::from(u32::MAX);
    for eight in eights {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*eight));
    }
    let mut crc = crc as u32; // the instruction leaves the upper half zero
    for four in fours {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*four));
    }
    for octet in rest {
        crc = _mm_crc32_u8(crc, *octet);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the polynomial says.
    fn slow(octets: &[u8]) -> u32 {
        !octets.iter().fold(!0, |crc, octet| {
            (0..8).fold(crc ^ u32::from(*octet), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 }
            })
        })
    }

    #[test]
    fn every_length_at_every_alignment_agrees_with_the_definition() {
        let octets: Vec<u8> = (0..300_u32).map(|i| (i * 7 + i / 251) as u8).collect();
        assert!(crc32c(b"123456789").is_none_or(|crc| crc == 0xE306_9283));
        for start in 0..9 {
            for end in start..octets.len() {
                let octets = &octets[start..end];
                assert!(crc32c(octets).is_none_or(|crc| crc == slow(octets)), "{start}..{end}");
            }
        }
    }
}
