//! CM private data: the sizes and options that two peers exchange during connection set-up (RFC
//! 8797).

/// Longest message one side sends or receives, in octets. Always a multiple of 1024, from 1024 to
/// 262144.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InlineSize(u32);

/// Longest message in one direction, header included, in octets: the smaller of its two sides (RFC
/// 8166 §3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InlineThreshold(u32);

impl InlineSize {
    /// Size that a silent version 1 peer accepts (RFC 8797 §5.1, RFC 8166 §3.3.3).
    pub const DEFAULT_V1: Self = Self(1024);

    /// The largest size that the wire can say.
    pub const MAX: Self = Self::from_wire(u8::MAX);

    /// The largest size that is not above `octets`; 1024 for anything less.
    pub const fn at_most(octets: u32) -> Self {
        let rounded = octets & !1023;
        // RFC 8166 §3.3.3 [8166-8]: messages of 1024 octets can be received
        if rounded < Self::DEFAULT_V1.0 {
            Self::DEFAULT_V1
        } else if rounded > Self::MAX.0 {
            Self::MAX
        } else {
            Self(rounded)
        }
    }

    /// The size in octets.
    pub const fn octets(self) -> u32 {
        self.0
    }

    /// Returns the inline threshold between a sender of this size and that receiver (RFC 8797
    /// §4.2).
    pub const fn threshold(self, receive: Self) -> InlineThreshold {
        InlineThreshold(if self.0 < receive.0 { self.0 } else { receive.0 })
    }

    /// The wire counts kilo-octets beyond the first (RFC 8797 §4.2).
    const fn from_wire(size: u8) -> Self {
        Self((size as u32 + 1) * 1024)
    }

    fn to_wire(self) -> u8 {
        u8::try_from(self.0 / 1024 - 1).expect("`from_wire` and `at_most` make no other value")
    }
}

impl InlineThreshold {
    /// The threshold towards a peer that said nothing (RFC 8166 §3.3.3).
    pub const DEFAULT_V1: Self = Self(1024);

    /// The least threshold of version 2, private data or not (draft 000 §2.3).
    pub const DEFAULT_V2: Self = Self(4096);

    /// The threshold in octets.
    pub const fn octets(self) -> usize {
        self.0 as usize
    }
}

/// Private data of RPC-over-RDMA (RFC 8797), as fixed for the life of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// The peer may be sent an invalidating reply (RFC 8797 §4.1).
    pub remote_invalidation: bool,
    /// Longest message the peer sends.
    pub send: InlineSize,
    /// Longest message the peer receives.
    pub receive: InlineSize,
}

impl PrivateData {
    /// Octets on the wire.
    pub const LEN: usize = 8;
    const FORMAT: [u8; 4] = 0xf6ab_0e18_u32.to_be_bytes();
    const VERSION: u8 = 1;

    /// Values that hold for a silent peer (RFC 8797 §5.1).
    pub const SILENT: Self = Self {
        remote_invalidation: false,
        send: InlineSize::DEFAULT_V1,
        receive: InlineSize::DEFAULT_V1,
    };

    /// Finds the offer among other private data, at any alignment (RFC 8797 §5.2).
    pub fn find(private_data: &[u8]) -> Self {
        private_data
            .windows(Self::LEN)
            .find_map(|octets| Self::parse(octets.first_chunk()?))
            // RFC 8166 §3.3.3 [8166-9]: a silent peer takes 1024 octets inline
            // RFC 8797 §5.1 [8797-6]: a silent peer takes 1024 octets, and no invalidation
            // draft 004 §4.2.1 [exp-24]: the default inline threshold is 1024 octets
            .unwrap_or(Self::SILENT)
    }

    fn parse(octets: &[u8; Self::LEN]) -> Option<Self> {
        let [f0, f1, f2, f3, version, flags, send, receive] = *octets;
        // RFC 8797 §5.2 [8797-7]: private data without the format identifier count as none
        if [f0, f1, f2, f3] != Self::FORMAT || version != Self::VERSION {
            return None;
        }
        Some(Self {
            // RFC 8797 §4 [8797-3]: the seven reserved bits are ignored
            remote_invalidation: flags & 1 == 1,
            send: InlineSize::from_wire(send),
            receive: InlineSize::from_wire(receive),
        })
    }

    /// Writes the offer in place. It goes first in the private data, the only place where Linux
    /// looks.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let [f0, f1, f2, f3] = Self::FORMAT;
        // RFC 8797 §4 [8797-2]: the seven reserved bits are sent as zero
        let flags = u8::from(self.remote_invalidation);
        *out = [f0, f1, f2, f3, Self::VERSION, flags, self.send.to_wire(), self.receive.to_wire()];
    }
}

/// An end's statement about version 2: private data of our own after its [`PrivateData`], which
/// other peers ignore (RFC 8797 §5.2). Nothing on the wire distinguishes the dialects of version 2,
/// so each end has to know before the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialects {
    /// The peer reads and writes the two words that draft 001 §4.1 puts before the chunk lists.
    pub directed: bool,
}

impl Dialects {
    /// Octets on the wire: "Stag", a version, flags, two reserved octets.
    pub const LEN: usize = 8;
    const FORMAT: [u8; 4] = *b"Stag";
    const VERSION: u8 = 1;

    /// Finds it among other private data, at any alignment. A peer without it speaks draft 000.
    pub fn find(private_data: &[u8]) -> Self {
        private_data
            .windows(Self::LEN)
            .find_map(|octets| Self::parse(octets.first_chunk()?))
            .unwrap_or_default()
    }

    fn parse(octets: &[u8; Self::LEN]) -> Option<Self> {
        let [f0, f1, f2, f3, version, flags, _, _] = *octets;
        let is_it = [f0, f1, f2, f3] == Self::FORMAT && version == Self::VERSION;
        is_it.then_some(Self { directed: flags & 1 == 1 })
    }

    /// Writes it in place, after the [`PrivateData`].
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let [f0, f1, f2, f3] = Self::FORMAT;
        *out = [f0, f1, f2, f3, Self::VERSION, u8::from(self.directed), 0, 0];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const OFFER: PrivateData = PrivateData {
        remote_invalidation: true,
        send: InlineSize::from_wire(3),
        receive: InlineSize::MAX,
    };

    #[test]
    fn an_offer_survives_a_round_trip_at_any_alignment() {
        for before in 0..64 {
            let mut wire = vec![0xee; before + PrivateData::LEN + 3];
            OFFER.emit((&mut wire[before..before + PrivateData::LEN]).try_into().unwrap());
            assert_eq!(PrivateData::find(&wire), OFFER, "{before} octets before");
        }
    }

    #[test]
    fn dialects_are_found_behind_an_offer_and_do_not_hide_it() {
        for directed in [false, true] {
            for between in 0..9 {
                let mut wire = vec![0; PrivateData::LEN + between + Dialects::LEN];
                OFFER.emit(wire.first_chunk_mut().unwrap());
                Dialects { directed }.emit(wire.last_chunk_mut().unwrap());
                assert_eq!(
                    (PrivateData::find(&wire), Dialects::find(&wire)),
                    (OFFER, Dialects { directed })
                );
                for cut in 0..wire.len() {
                    assert_eq!(Dialects::find(&wire[..cut]), Dialects::default(), "cut at {cut}");
                }
            }
        }
        let mut wire = [0; Dialects::LEN];
        Dialects { directed: true }.emit(&mut wire);
        assert_eq!(wire, [b'S', b't', b'a', b'g', 1, 1, 0, 0]);
        for octet in 0..5 {
            let mut other = wire;
            other[octet] ^= 1;
            assert_eq!(Dialects::find(&other), Dialects::default(), "octet {octet}");
        }
        wire[5..].copy_from_slice(&[0xff; 3]);
        assert!(Dialects::find(&wire).directed, "reserved bits are ignored");
    }

    #[test]
    fn every_truncated_offer_reads_as_silence() {
        let mut wire = [0; PrivateData::LEN];
        OFFER.emit(&mut wire);
        for cut in 0..PrivateData::LEN {
            assert_eq!(PrivateData::find(&wire[..cut]), PrivateData::SILENT, "cut at {cut}");
        }
    }

    #[test]
    fn every_other_format_or_version_reads_as_silence_and_reserved_bits_are_ignored() {
        let mut wire = [0; PrivateData::LEN];
        OFFER.emit(&mut wire);
        assert_eq!(wire, [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 255]);
        for at in 0..5 {
            for value in 0..=255 {
                let mut other = wire;
                other[at] = value;
                let expected = if value == wire[at] { OFFER } else { PrivateData::SILENT };
                assert_eq!(PrivateData::find(&other), expected, "octet {at} is {value}");
            }
        }
        for flags in 0..=255 {
            wire[5] = flags;
            let expected = PrivateData { remote_invalidation: flags % 2 == 1, ..OFFER };
            assert_eq!(PrivateData::find(&wire), expected, "flags {flags}");
        }
    }

    #[test]
    fn every_size_survives_a_round_trip_and_the_smaller_side_is_the_threshold() {
        for send in 0..=255 {
            for receive in 0..=255 {
                let (send, receive) = (InlineSize::from_wire(send), InlineSize::from_wire(receive));
                let mut wire = [0; PrivateData::LEN];
                PrivateData { remote_invalidation: false, send, receive }.emit(&mut wire);
                assert_eq!(
                    PrivateData::find(&wire),
                    PrivateData { remote_invalidation: false, send, receive }
                );
                assert_eq!(
                    send.threshold(receive).octets(),
                    send.octets().min(receive.octets()) as usize
                );
            }
        }
    }

    #[test]
    fn a_size_is_rounded_down_and_clamped() {
        for (octets, size) in
            [(0, 1024), (1023, 1024), (1024, 1024), (4095, 3072), (4096, 4096), (u32::MAX, 262_144)]
        {
            assert_eq!(InlineSize::at_most(octets).octets(), size, "{octets}");
        }
    }
}
