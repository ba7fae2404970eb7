//! CRC32c (polynomial 0x1EDC6F41, reflected, initial and final xor all ones) by the processor's own
//! instructions, optionally while copying.
//!
//! It is here because such instructions are unsafe to call where the processor may lack them, and
//! the crates that frame messages have no unsafe code. Each call chooses the fastest of three ways
//! for its length and processor: one chain of the CRC instruction, three chains, or carry-less
//! products of 64 octets.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(not(target_arch = "x86_64"))]
use none as x86;

/// Returns the CRC32c of `octets`, or `None` where the processor has no instruction for it.
#[inline(always)]
pub fn crc32c(octets: &[u8]) -> Option<u32> {
    let mut crc = RunningCrc::start()?;
    crc.update(octets);
    Some(crc.finish())
}

/// Returns the CRC32c of `head`, `body` and `pad`, and copies `body` to `copy`. `None`, and nothing
/// is copied, where the processor has no instruction for it.
///
/// # Panics
/// When `body` and `copy` differ in length.
#[inline]
pub fn crc32c_copied(head: &[u8], body: &[u8], copy: &mut [u8], pad: &[u8]) -> Option<u32> {
    assert_eq!(body.len(), copy.len(), "a copy is as long as what it is of");
    Some(!x86::HasCrc::ask()?.copied(u32::MAX, [head, body, pad], copy))
}

/// A CRC32c of octets that come in parts.
#[derive(Clone, Copy, Debug)]
pub struct RunningCrc {
    state: u32,
    /// A value exists only where the processor has the instruction.
    has: x86::HasCrc,
}

impl RunningCrc {
    /// The CRC of no octets; `None` where the processor has no instruction for it.
    #[inline]
    pub fn start() -> Option<Self> {
        Some(Self { state: u32::MAX, has: x86::HasCrc::ask()? })
    }

    /// Takes in `octets`.
    #[inline]
    pub fn update(&mut self, octets: &[u8]) {
        self.state = self.has.update(self.state, octets);
    }

    /// The CRC of all octets taken in.
    #[inline]
    pub const fn finish(self) -> u32 {
        !self.state
    }
}

/// Processors without an instruction that we know.
#[cfg(not(target_arch = "x86_64"))]
mod none {
    /// There is no value.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum HasCrc {}

    impl HasCrc {
        pub(super) const fn ask() -> Option<Self> {
            None
        }

        pub(super) fn update(self, _: u32, _: &[u8]) -> u32 {
            match self {}
        }

        pub(super) fn copied(self, _: u32, _: [&[u8]; 3], _: &mut [u8]) -> u32 {
            match self {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bit by bit, as the polynomial says; the state before the final xor.
    pub(crate) fn slow(state: u32, octets: &[u8]) -> u32 {
        octets.iter().fold(state, |crc, octet| {
            (0..8).fold(crc ^ u32::from(*octet), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 }
            })
        })
    }

    pub(crate) fn octets(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(7) + i / 251) as u8).collect()
    }

    #[test]
    fn every_length_at_every_alignment_agrees_with_the_definition() {
        let octets = octets(300);
        assert!(crc32c(b"123456789").is_none_or(|crc| crc == 0xE306_9283));
        for start in 0..9 {
            for end in start..octets.len() {
                let octets = &octets[start..end];
                let right = !slow(u32::MAX, octets);
                assert!(crc32c(octets).is_none_or(|crc| crc == right), "{start}..{end}");
            }
        }
    }

    #[test]
    fn parts_and_copies_agree_with_the_whole() {
        let octets = octets(9_000);
        for len in (0..octets.len()).step_by(61) {
            let octets = &octets[..len];
            let Some(right) = crc32c(octets) else { return };
            assert_eq!(right, !slow(u32::MAX, octets), "{len}");
            for cut in [0, 1, 20, len / 3, len] {
                let (front, rest) = octets.split_at(cut.min(len));
                let mut crc = RunningCrc::start().unwrap();
                [front, rest].iter().for_each(|part| crc.update(part));
                assert_eq!(crc.finish(), right, "{len}, cut at {cut}");
                let (body, pad) = rest.split_at(rest.len().saturating_sub(len % 4));
                let mut copy = vec![0; body.len() + 2];
                let crc = crc32c_copied(front, body, &mut copy[1..=body.len()], pad);
                assert_eq!(crc, Some(right), "{len}, cut at {cut}");
                assert_eq!(copy[1..=body.len()], *body, "{len}, cut at {cut}");
                assert_eq!((copy[0], copy[body.len() + 1]), (0, 0), "no octet beside the copy");
            }
        }
    }

    #[test]
    #[should_panic = "a copy is as long as what it is of"]
    fn a_copy_that_is_too_short_is_our_mistake() {
        crc32c_copied(b"", b"ab", &mut [0], b"");
    }
}
