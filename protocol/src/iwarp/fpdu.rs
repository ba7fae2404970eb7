//! FPDU framing: length, pad, CRC and markers (RFC 5044 §4).

use core::ops::Range;

use super::octets::Octets;
use super::rdmap::Terminate;
use super::{ddp, mpa};

/// Octets of the ULPDU Length field.
pub const LENGTH_LEN: usize = 2;
/// Octets of the CRC field.
pub const CRC_LEN: usize = 4;
/// Octets of the largest FPDU that a length field can announce, without markers. Some peers send
/// FPDUs of nearly that size (siw on loopback), so a receive buffer holds at least one.
pub const FPDU_MAX: usize = fpdu_len(u16::MAX);
/// Octets between the starts of two markers (RFC 5044 §4.3).
pub const MARKER_INTERVAL: usize = 512;
/// Octets of a marker.
pub const MARKER_LEN: usize = 4;
/// The smallest MULPDU (RFC 5044 §4.5).
pub const MULPDU_MIN: u16 = 128;
/// The largest MULPDU (RFC 5044 §4.5).
// RFC 5044 §3, §4.5 [5044-4]: the largest ULPDU has 128 to 64,768 octets
pub const MULPDU_MAX: u16 = 64_768;

const _: () = assert!(FPDU_MAX == 65_544);

/// A running CRC32c (polynomial 0x1EDC6F41, reflected, initial and final xor all ones): `123456789`
/// gives 0xE3069283.
pub trait Crc32c {
    /// The CRC of no octets.
    fn start() -> Self;
    /// Takes in `octets`.
    fn update(&mut self, octets: &[u8]);
    /// The CRC of all octets taken in.
    fn finish(self) -> u32;
    /// The CRC of `octets`.
    fn of(octets: &[u8]) -> u32
    where
        Self: Sized,
    {
        let mut crc = Self::start();
        crc.update(octets);
        crc.finish()
    }
    /// The CRC of `head`, `body` and `pad`; `body` is copied to `copy`, which is as long.
    fn copied(head: &[u8], body: &[u8], copy: &mut [u8], pad: &[u8]) -> u32
    where
        Self: Sized,
    {
        copy.copy_from_slice(body);
        let mut crc = Self::start();
        [head, body, pad].iter().for_each(|octets| crc.update(octets));
        crc.finish()
    }
}

/// Pad octets after an ULPDU of `ulpdu_len`, so that the FPDU is a multiple of four (RFC 5044
/// §4.1).
pub const fn pad_len(ulpdu_len: usize) -> usize {
    // RFC 5044 §4.2, §4.3 [5044-13]: the two low bits of an FPDU pointer are zero
    ulpdu_len.wrapping_add(LENGTH_LEN).wrapping_neg() & 3
}

/// Octets of a whole FPDU without markers.
pub const fn fpdu_len(ulpdu_len: u16) -> usize {
    let ulpdu_len = ulpdu_len as usize;
    LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len) + CRC_LEN
}

/// The largest ULPDU whose FPDU fits a TCP segment of `emss` octets (RFC 5044 §4.5).
pub const fn mulpdu(emss: usize, markers: bool) -> u16 {
    let marked = if markers { MARKER_LEN * emss.div_ceil(MARKER_INTERVAL) } else { 0 };
    // RFC 5044 §4.5 [5044-27]: the largest ULPDU fits a TCP segment, but for software
    let fits = emss.saturating_sub(LENGTH_LEN + CRC_LEN + marked + emss % 4);
    // RFC 5044 §4.5 [5044-28]: the largest ULPDU does not fall below 128 octets
    if fits < MULPDU_MIN as usize {
        MULPDU_MIN
    } else if fits > MULPDU_MAX as usize {
        MULPDU_MAX
    } else {
        fits as u16 // `fits <= MULPDU_MAX`
    }
}

/// Result of parsing the start of the received octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The FPDU is incomplete: it is this many octets long, counted from its start, or at least
    /// this many.
    NeedMore(usize),
    /// One FPDU.
    Fpdu {
        /// Range of its ULPDU.
        ulpdu: Range<usize>,
        /// Octets of the whole FPDU.
        consumed: usize,
    },
}

/// Finds the FPDU at the start of `octets`. We never ask a peer for markers, so there are none. Pad
/// octets may have any value; with `crc` off the CRC field may too (RFC 5044 §4.1, §4.4).
///
/// Errors: [`Terminate::MPA_CRC`], or [`Terminate::MPA_LENGTH`] when the ULPDU cannot hold its DDP
/// header.
pub fn parse<C: Crc32c>(octets: &[u8], crc: bool) -> Result<Parsed, Terminate> {
    let Some((length, rest)) = octets.split_first_chunk() else {
        return Ok(Parsed::NeedMore(LENGTH_LEN));
    };
    let length = u16::from_be_bytes(*length);
    let ulpdu_len = usize::from(length);
    if ulpdu_len < ddp::TAGGED_LEN {
        return Err(Terminate::MPA_LENGTH);
    }
    // RFC 5044 §4.1 [5044-10]: the content of the padding is ignored
    let consumed = fpdu_len(length);
    // RFC 5044 §5.2, §6 [5044-30]: the length field determines the end of an FPDU
    let (Some((covered, sum)), Some(ulpdu)) = (
        octets.get(..consumed).and_then(<[u8]>::split_last_chunk::<CRC_LEN>),
        rest.get(..ulpdu_len),
    ) else {
        return Ok(Parsed::NeedMore(consumed));
    };
    // RFC 5044 §4.1, §7.1.1 [5044-11]: the CRC field is present but unchecked while CRC is off
    if crc {
        // RFC 5041 §3 [5041-4]: a CRC32c covers every segment
        // RFC 5044 §4.4, §6, §8 [5044-26]: a wrong CRC makes the FPDU invalid
        if C::of(covered) != u32::from_le_bytes(*sum) {
            return Err(Terminate::MPA_CRC);
        }
    }
    if ulpdu.first().is_none_or(|control| ulpdu_len < ddp::header_len(*control)) {
        return Err(Terminate::MPA_LENGTH);
    }
    // RFC 5041 §3 [5041-3]: boundaries and lengths of segments are kept
    // RFC 5044 §3 [5044-3]: one FPDU holds exactly one ULPDU
    Ok(Parsed::Fpdu { ulpdu: LENGTH_LEN..LENGTH_LEN + ulpdu_len, consumed })
}

/// Pad and CRC, which follow the payload.
pub type Trailer = Octets<{ 3 + CRC_LEN }>;

/// Closes the segments of one connection into FPDUs, in the order they are sent.
#[derive(Clone, Debug)]
pub struct Framer {
    crc: bool,
    /// Octets sent since the last marker began, 0 when one is due before the next octet; `None`
    /// without markers.
    since_marker: Option<u16>,
}

impl Framer {
    /// The sending half of a negotiated connection, before its first FPDU.
    pub const fn new(negotiated: &mpa::Negotiated) -> Self {
        Self::with(negotiated.crc, negotiated.send_markers)
    }

    /// A framer with or without CRC and markers.
    pub const fn with(crc: bool, markers: bool) -> Self {
        // RFC 5044 §4.3, §7.1.1 [5044-16]: a marker stands at the start and at every 512th octet
        // RFC 5044 §4.3, §7.1.1 [5044-38]: a peer that says M=0 gets no markers
        Self { crc, since_marker: if markers { Some(0) } else { None } }
    }

    /// Closes one segment: `header` starts with the ULPDU Length
    /// ([`super::stream::Segment::header`]), `payload` is in any number of pieces. The FPDU counts
    /// as sent: the caller sends whole FPDUs in the order it framed them.
    ///
    /// With CRC off the CRC field is zero, as siw sends it.
    pub fn frame<'a, C, P>(&mut self, header: &[u8], payload: P) -> Framed
    where
        C: Crc32c,
        P: IntoIterator<Item = &'a [u8]>,
        P::IntoIter: Clone,
    {
        let payload = payload.into_iter();
        let payload_len = payload.clone().map(<[u8]>::len).sum::<usize>();
        let ulpdu_len = header.len().saturating_sub(LENGTH_LEN) + payload_len;
        debug_assert_eq!(header.first_chunk(), Some(&(ulpdu_len as u16).to_be_bytes()));
        debug_assert!(ulpdu_len <= usize::from(MULPDU_MAX), "segments of `Stream` are no larger");
        // RFC 5044 §4.1 [5044-9]: zero padding makes an FPDU a multiple of four octets
        let pad: &[u8] = match pad_len(ulpdu_len) {
            0 => &[],
            1 => &[0],
            2 => &[0; 2],
            _ => &[0; 3],
        };
        let mut framed = Framed {
            trailer: Octets::EMPTY,
            sizes: match self.since_marker {
                None => [header.len(), payload_len, pad.len() + CRC_LEN, 0],
                // A marker may fall between pad and CRC.
                Some(_) => [header.len(), payload_len, pad.len(), CRC_LEN],
            },
            since_marker: self.since_marker,
        };
        let mut sum = 0;
        // RFC 5044 §4.4, §7.1.1 [5044-21]: a CRC that the peer asked for is used to the end
        if self.crc {
            let mut crc = C::start();
            match self.since_marker {
                None => {
                    // RFC 5044 §4.4 [5044-25]: the CRC covers length field, ULPDU, padding and
                    // markers
                    crc.update(header);
                    payload.for_each(|piece| crc.update(piece));
                    crc.update(pad);
                }
                Some(_) => framed.add_with_markers(&mut crc, header, payload, pad),
            }
            sum = crc.finish();
        }
        // RFC 5044 §4.1 [5044-8]: an FPDU is length, ULPDU, padding and CRC field
        framed.trailer.push(pad);
        // RFC 5044 §4.4 [5044-23]: every FPDU has its CRC field
        framed.trailer.push(&sum.to_le_bytes());
        self.since_marker = framed.since_marker_after();
        framed
    }
}

/// Payload length from which the copy and the CRC are done in one pass. For less, the CRC is
/// computed over the whole FPDU, which saves starting and ending a pass.
pub const TOGETHER: usize = 256;

impl Framer {
    /// Writes a whole FPDU to the start of `out`: `header` and `payload` as for
    /// [`frame`](Self::frame), pad, CRC. Returns its length, or `None`, with nothing sent, if `out`
    /// is shorter, or with markers.
    #[inline]
    pub fn write<C: Crc32c, const N: usize>(
        &mut self,
        header: &[u8; N],
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let covered = header.len() + payload.len();
        let pad = pad_len(covered.saturating_sub(LENGTH_LEN));
        let fpdu =
            out.get_mut(..covered + pad + CRC_LEN).filter(|_| self.since_marker.is_none())?;
        let (head, rest) = fpdu.split_first_chunk_mut()?;
        *head = *header;
        let (body, trailer) = rest.split_at_mut_checked(payload.len())?;
        // RFC 5044 §4.1 [5044-8]: an FPDU is length, ULPDU, padding and CRC field
        *trailer.first_chunk_mut()? = [0; CRC_LEN]; // the padding is shorter than the CRC field
        if self.crc && payload.len() >= TOGETHER {
            let (padding, sum) = trailer.split_last_chunk_mut::<CRC_LEN>()?;
            // RFC 5044 §4.4 [5044-25]: the CRC covers length field, ULPDU, padding and markers
            *sum = C::copied(head, payload, body, padding).to_le_bytes();
            return Some(fpdu.len());
        }
        body.copy_from_slice(payload);
        let (octets, sum) = fpdu.split_last_chunk_mut::<CRC_LEN>()?;
        // RFC 5044 §4.4 [5044-23]: every FPDU has its CRC field
        // RFC 5044 §4.4 [5044-25]: the CRC covers length field, ULPDU, padding and markers
        *sum = if self.crc { C::of(octets).to_le_bytes() } else { [0; CRC_LEN] };
        Some(fpdu.len())
    }
}

/// One FPDU ready to be sent: the order of header, payload and trailer among the markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Pad and CRC.
    pub trailer: Trailer,
    sizes: [usize; 4],
    since_marker: Option<u16>,
}

/// A run of octets of an FPDU, in the order of the stream. Ranges count within header, payload or
/// trailer and are never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A marker.
    Marker([u8; MARKER_LEN]),
    /// Of the header given to [`Framer::frame`].
    Header(Range<usize>),
    /// Of the payload given to it.
    Payload(Range<usize>),
    /// Of [`Framed::trailer`].
    Trailer(Range<usize>),
}

impl Framed {
    /// The FPDU's octets, in order. Without markers these are header, payload (if any) and trailer.
    pub const fn parts(&self) -> Parts {
        Parts {
            sizes: self.sizes,
            since_marker: self.since_marker,
            field: 0,
            at: 0,
            since_length: None,
        }
    }

    /// Octets of the FPDU with its markers.
    pub fn wire_len(&self) -> usize {
        match self.since_marker {
            None => self.sizes.iter().sum(),
            Some(_) => self.parts().map(|part| part.len()).sum(),
        }
    }

    fn since_marker_after(&self) -> Option<u16> {
        let since = usize::from(self.since_marker?) + self.wire_len();
        Some((since % MARKER_INTERVAL) as u16)
    }

    /// Every octet up to the CRC field is covered, markers too (RFC 5044 §4.4).
    fn add_with_markers<'a, C: Crc32c>(
        &self,
        crc: &mut C,
        header: &[u8],
        payload: impl Iterator<Item = &'a [u8]>,
        pad: &[u8],
    ) {
        let mut payload = Gather { pieces: payload, piece: &[] };
        for part in self.parts() {
            match part {
                // RFC 5044 §4.3, §4.4 [5044-18]: the CRC covers a marker in front of its FPDU
                Part::Marker(marker) => crc.update(&marker),
                Part::Header(range) => crc.update(header.get(range).unwrap_or_default()),
                Part::Payload(range) => payload.take(range.len(), |octets| crc.update(octets)),
                // `get` ends at the pad: the CRC field does not cover itself.
                // RFC 5044 §4.4 [5044-25]: the CRC covers length field, ULPDU, padding and markers
                Part::Trailer(range) => crc.update(pad.get(range).unwrap_or_default()),
            }
        }
    }
}

impl Part {
    /// Octets of this part.
    pub fn len(&self) -> usize {
        match self {
            Self::Marker(_) => MARKER_LEN,
            Self::Header(range) | Self::Payload(range) | Self::Trailer(range) => range.len(),
        }
    }

    /// Never: a part has octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Iterates over payload that is in several pieces.
struct Gather<'a, I> {
    pieces: I,
    piece: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> Gather<'a, I> {
    fn take(&mut self, mut len: usize, mut each: impl FnMut(&'a [u8])) {
        while len > 0 {
            if self.piece.is_empty() {
                let Some(piece) = self.pieces.next() else { return };
                self.piece = piece;
            }
            let (octets, rest) = self.piece.split_at(len.min(self.piece.len()));
            each(octets);
            self.piece = rest;
            len -= octets.len();
        }
    }
}

/// The parts of one FPDU, in the order of the stream.
#[derive(Clone, Debug)]
pub struct Parts {
    sizes: [usize; 4],
    since_marker: Option<u16>,
    field: usize,
    at: usize,
    /// Stream octets since the ULPDU Length field began; `None` before it.
    since_length: Option<u16>,
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let mut size = *self.sizes.get(self.field)?;
        while self.at == size {
            self.field += 1;
            self.at = 0;
            size = *self.sizes.get(self.field)?;
        }
        if self.since_marker == Some(0) {
            return Some(self.marker());
        }
        let to_marker =
            self.since_marker.map_or(usize::MAX, |since| MARKER_INTERVAL - usize::from(since));
        let len = (size - self.at).min(to_marker);
        let range = self.at..self.at + len;
        self.at += len;
        self.advance(len);
        Some(match self.field {
            0 => Part::Header(range),
            1 => Part::Payload(range),
            2 => Part::Trailer(range),
            // The CRC follows the pad in the trailer.
            _ => {
                let [.., pad, _] = self.sizes;
                Part::Trailer(range.start + pad..range.end + pad)
            }
        })
    }
}

impl Parts {
    fn marker(&mut self) -> Part {
        // FPDUPTR: from the ULPDU Length field to the marker, zero between two FPDUs (RFC 5044
        // §4.3).
        // RFC 5044 §4.3 [5044-17]: an FPDU pointer counts from the length field to the marker
        let [high, low] = self.since_length.unwrap_or(0).to_be_bytes();
        self.since_marker = Some(MARKER_LEN as u16);
        if let Some(since) = &mut self.since_length {
            *since = since.wrapping_add(MARKER_LEN as u16);
        }
        // RFC 5044 §4.2 [5044-12]: a marker is 16 zero bits and the FPDU pointer
        Part::Marker([0, 0, high, low])
    }

    fn advance(&mut self, len: usize) {
        self.since_marker =
            self.since_marker.map(|since| ((usize::from(since) + len) % MARKER_INTERVAL) as u16);
        // An FPDU of at most MULPDU_MAX with its markers stays below 2^16 (asserted below).
        self.since_length = Some(self.since_length.unwrap_or(0).wrapping_add(len as u16));
    }
}

// FPDUPTR has 16 bits: why MULPDU ends at 64,768.
const _: () = {
    let unmarked = fpdu_len(MULPDU_MAX);
    assert!(
        unmarked + MARKER_LEN * (unmarked / (MARKER_INTERVAL - MARKER_LEN) + 1)
            <= u16::MAX as usize
    );
};
