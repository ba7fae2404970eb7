//! DDP segment headers (RFC 5041 §4). The RDMAP octet travels inside them as the ULP's control.

use super::octets::Octets;

/// Octets of a tagged header (RFC 5041 §4.2).
pub const TAGGED_LEN: usize = 14;
/// Octets of an untagged header (RFC 5041 §4.3).
pub const UNTAGGED_LEN: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
// RFC 5041 §4.1 [5041-13]: the DDP version is 1 in every segment
// RFC 5044 §3, §C.1 [5044-7]: MPA settles the DDP and RDMAP versions
const VERSION: u8 = 0x01;

/// The Send family (RFC 5040 §4.1).
pub const QUEUE_SEND: u32 = 0;
/// Read Requests.
pub const QUEUE_READ: u32 = 1;
/// The Terminate.
pub const QUEUE_TERMINATE: u32 = 2;

/// A segment aimed at a tagged buffer: Write, Read Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Last segment of its message.
    pub last: bool,
    /// The RDMAP control octet, see [`super::rdmap::Opcode`].
    pub control: u8,
    /// The buffer.
    pub stag: u32,
    /// Offset in the tagged buffer at which this segment starts; opaque, never a pointer.
    pub to: u64,
}

/// A segment aimed at a queue: Send family, Read Request, Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// Last segment of its message.
    pub last: bool,
    /// The RDMAP control octet, see [`super::rdmap::Opcode`].
    pub control: u8,
    /// The Invalidate STag of Send with Invalidate, else zero and ignored.
    pub invalidate: u32,
    /// Queue number.
    pub queue: u32,
    /// Message sequence number: 1 for the first message of a queue, wraps to 0.
    pub msn: u32,
    /// Octets of the message before this segment.
    pub mo: u32,
}

/// The header of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// See [`Tagged`].
    Tagged(Tagged),
    /// See [`Untagged`].
    Untagged(Untagged),
}

/// Why octets are not a DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The ULPDU ends inside the header.
    Short,
    /// The DDP version of a tagged segment is not 1 (RFC 5041 §7.2: type 1, code 04).
    TaggedVersion,
    /// The DDP version of an untagged segment is not 1 (RFC 5041 §7.2: type 2, code 06).
    UntaggedVersion,
}

/// Octets of the header that starts with `control`.
pub const fn header_len(control: u8) -> usize {
    if control & TAGGED == 0 { UNTAGGED_LEN } else { TAGGED_LEN }
}

impl Header {
    /// Splits an ULPDU into its header and its payload. Reserved bits are ignored (RFC 5041 §4.1).
    pub fn parse(ulpdu: &[u8]) -> Result<(Self, &[u8]), Error> {
        let control = *ulpdu.first().ok_or(Error::Short)?;
        // RFC 5041 §4.1 [5041-12]: reserved bits are ignored
        let right_version = control & VERSION_MASK == VERSION;
        // RFC 5041 §4.1 [5041-8]: flag T selects a tagged buffer
        if control & TAGGED == 0 {
            let (header, payload) = ulpdu.split_first_chunk().ok_or(Error::Short)?;
            if !right_version {
                // RFC 5041 §4.1 [5041-13]: the DDP version is 1 in every segment
                return Err(Error::UntaggedVersion);
            }
            Ok((Self::Untagged(Untagged::parse(header)), payload))
        } else {
            let (header, payload) = ulpdu.split_first_chunk().ok_or(Error::Short)?;
            if !right_version {
                // RFC 5041 §4.1 [5041-13]: the DDP version is 1 in every segment
                return Err(Error::TaggedVersion);
            }
            Ok((Self::Tagged(Tagged::parse(header)), payload))
        }
    }

    /// The header's octets.
    pub fn emit(&self) -> Octets<UNTAGGED_LEN> {
        match self {
            Self::Tagged(header) => Octets::of(&[&header.emit()]),
            Self::Untagged(header) => Octets::of(&[&header.emit()]),
        }
    }
}

const fn ddp_control(last: bool) -> u8 {
    // RFC 5041 §4.1 [5041-11]: reserved bits are sent as zero
    if last { LAST | VERSION } else { VERSION }
}

impl Tagged {
    pub(super) fn parse(octets: &[u8; TAGGED_LEN]) -> Self {
        let [ddp, control, s0, s1, s2, s3, to @ ..] = *octets;
        Self {
            last: ddp & LAST != 0,
            control,
            stag: u32::from_be_bytes([s0, s1, s2, s3]),
            to: u64::from_be_bytes(to),
        }
    }

    /// The header's octets.
    pub const fn emit(&self) -> [u8; TAGGED_LEN] {
        let [s0, s1, s2, s3] = self.stag.to_be_bytes();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.to.to_be_bytes();
        let ddp = TAGGED | ddp_control(self.last);
        // RFC 5041 §4.2 [5041-14]: a tagged header is control, upper layer octet, STag, TO
        [ddp, self.control, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5, t6, t7]
    }
}

impl Untagged {
    fn parse(octets: &[u8; UNTAGGED_LEN]) -> Self {
        let [ddp, control, i0, i1, i2, i3, q0, q1, q2, q3, n0, n1, n2, n3, mo @ ..] = *octets;
        Self {
            last: ddp & LAST != 0,
            control,
            invalidate: u32::from_be_bytes([i0, i1, i2, i3]),
            queue: u32::from_be_bytes([q0, q1, q2, q3]),
            msn: u32::from_be_bytes([n0, n1, n2, n3]),
            mo: u32::from_be_bytes(mo),
        }
    }

    /// The header's octets.
    pub const fn emit(&self) -> [u8; UNTAGGED_LEN] {
        let [i0, i1, i2, i3] = self.invalidate.to_be_bytes();
        let [q0, q1, q2, q3] = self.queue.to_be_bytes();
        let [n0, n1, n2, n3] = self.msn.to_be_bytes();
        let [m0, m1, m2, m3] = self.mo.to_be_bytes();
        let ddp = ddp_control(self.last);
        // RFC 5041 §4.3 [5041-17]: an untagged header ends with queue, MSN and MO
        [ddp, self.control, i0, i1, i2, i3, q0, q1, q2, q3, n0, n1, n2, n3, m0, m1, m2, m3]
    }
}
