//! RDMAP operations, the Read Request header and the Terminate message (RFC 5040 §4).

use core::fmt;

use super::ddp;
use super::octets::Octets;

const VERSION_MASK: u8 = 0xC0;
// RFC 5040 §4.1 [5040-7]: the RDMAP version is 1 in every message
// RFC 5044 §3, §C.1 [5044-7]: MPA settles the DDP and RDMAP versions
const VERSION: u8 = 0x40;
const OPCODE_MASK: u8 = 0x0F;

/// Operation of a message (RFC 5040 §4.2). Immediate data and atomics (RFC 7306) are refused as
/// unexpected opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    // RFC 5040 §4.1 [5040-5]: each kind of message has its own opcode
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
}

impl Opcode {
    /// The opcode of an RDMAP control octet; reserved bits are ignored.
    ///
    /// Errors: [`Terminate::RDMAP_VERSION`] or [`Terminate::UNEXPECTED_OPCODE`].
    pub const fn parse(control: u8) -> Result<Self, Terminate> {
        // RFC 5040 §7.2 [5040-57]: another RDMAP version is an error
        if control & VERSION_MASK != VERSION {
            return Err(Terminate::RDMAP_VERSION);
        }
        // RFC 5040 §4.1 [5040-8]: the reserved bits of control are sent as zero and ignored
        Ok(match control & OPCODE_MASK {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            // RFC 5040 §7.2 [5040-56]: an opcode that is unknown or out of place is an error
            _ => return Err(Terminate::UNEXPECTED_OPCODE),
        })
    }

    /// The control octet, version 1.
    pub const fn control(self) -> u8 {
        // RFC 5040 §4.1 [5040-2]: the control octet is version, two reserved bits, opcode
        // RFC 5040 §4.1 [5040-8]: the reserved bits of control are sent as zero and ignored
        VERSION | self as u8
    }

    /// The opcode of the Send family that does this.
    pub const fn send(invalidate: bool, solicited: bool) -> Self {
        match (invalidate, solicited) {
            (false, false) => Self::Send,
            // RFC 5040 §5.3 [5040-37]: a Send with Invalidate names an STag
            (true, false) => Self::SendInvalidate,
            (false, true) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Returns true if the segments of the message have the tagged header.
    pub const fn is_tagged(self) -> bool {
        // RFC 5040 §4.1, §5.1, §5.2.2 [5040-4]: only Writes and Read Responses are tagged
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// Returns true if the message names an STag to invalidate.
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// Returns true if the message asks for a solicited event.
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate)
    }

    /// The queue of an untagged opcode (RFC 5040 §4.1); `None` for a tagged one.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            // RFC 5040 §4.1, §5.2.1, §5.3, §5.4 [5040-6]: sends use queue 0, Read Requests 1, the
            // Terminate 2
            Self::ReadRequest => Some(ddp::QUEUE_READ),
            Self::Terminate => Some(ddp::QUEUE_TERMINATE),
            _ => Some(ddp::QUEUE_SEND),
        }
    }
}

/// The Read Request header (RFC 5040 §4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadHeader {
    /// Key of the requester's sink for the data: copied into the response, never interpreted.
    pub sink_stag: u32,
    /// Offset in the sink.
    pub sink_to: u64,
    /// Octets to read.
    pub len: u32,
    /// Key of the data at the responder.
    pub source_stag: u32,
    /// Offset in the source.
    pub source_to: u64,
}

impl ReadHeader {
    /// Octets of the header.
    pub const LEN: usize = 28;

    /// The header's meaning.
    pub fn parse(octets: &[u8; Self::LEN]) -> Self {
        let [a0, a1, a2, a3, b0, b1, b2, b3, b4, b5, b6, b7, rest @ ..] = *octets;
        let [l0, l1, l2, l3, c0, c1, c2, c3, source_to @ ..] = rest;
        Self {
            sink_stag: u32::from_be_bytes([a0, a1, a2, a3]),
            sink_to: u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
            source_stag: u32::from_be_bytes([c0, c1, c2, c3]),
            source_to: u64::from_be_bytes(source_to),
        }
    }

    /// The header's octets.
    // RFC 5040 §4.2, §4.4 [5040-10]: a Read Request is a header of 28 octets without payload
    pub fn emit(&self) -> Octets<{ Self::LEN }> {
        Octets::of(&[
            &self.sink_stag.to_be_bytes(),
            &self.sink_to.to_be_bytes(),
            &self.len.to_be_bytes(),
            &self.source_stag.to_be_bytes(),
            &self.source_to.to_be_bytes(),
        ])
    }

    /// The header of what remains after `done` octets, as a Terminate reports it (RFC 5040 §4.8).
    pub const fn after(&self, done: u32) -> Self {
        Self {
            // RFC 5040 §4.8 [5040-18]: bit R announces the Read Request header, advanced
            sink_to: self.sink_to.wrapping_add(done as u64),
            len: self.len.saturating_sub(done),
            source_to: self.source_to.wrapping_add(done as u64),
            ..*self
        }
    }
}

/// Why a connection is terminated: layer, error type and code (RFC 5040 Figure 9, RFC 5041 §7.2,
/// RFC 5044 §8,
/// RFC 6581 §8).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terminate {
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA); four bits.
    pub layer: u8,
    /// The layer's error type; four bits.
    pub error_type: u8,
    /// The type's error code.
    pub code: u8,
}

macro_rules! causes {
    ($($name:ident = $layer:literal, $error_type:literal, $code:literal: $text:literal;)*) => {
        impl Terminate {
            $(
                #[doc = $text]
                pub const $name: Self =
                    Self { layer: $layer, error_type: $error_type, code: $code };
            )*

            /// Name of the cause, for people.
            pub const fn name(self) -> &'static str {
                match (self.layer, self.error_type, self.code) {
                    $(($layer, $error_type, $code) => $text,)*
                    // RFC 5040 Figure 9: the type has no codes, "any value in this field is
                    // acceptable".
                    (0, 0, _) => Self::RDMAP_LOCAL_CATASTROPHIC.name(),
                    _ => "unknown cause",
                }
            }

            /// Every cause with a name.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

causes! {
    // RFC 5040 §4.8 [5040-13]: layer, type and code of a Terminate follow the RFC
    RDMAP_LOCAL_CATASTROPHIC = 0, 0, 0x00: "RDMAP local catastrophic error";
    RDMAP_INVALID_STAG = 0, 1, 0x00: "RDMAP invalid STag";
    RDMAP_BOUNDS = 0, 1, 0x01: "RDMAP base or bounds violation";
    RDMAP_ACCESS = 0, 1, 0x02: "RDMAP access rights violation";
    RDMAP_NOT_ASSOCIATED = 0, 1, 0x03: "RDMAP STag not associated with the stream";
    RDMAP_WRAP = 0, 1, 0x04: "RDMAP tagged offset wraps";
    RDMAP_CANNOT_INVALIDATE = 0, 1, 0x09: "RDMAP STag cannot be invalidated (protection)";
    RDMAP_PROTECTION_UNSPECIFIED = 0, 1, 0xFF: "RDMAP unspecified protection error";
    RDMAP_VERSION = 0, 2, 0x05: "RDMAP invalid version";
    UNEXPECTED_OPCODE = 0, 2, 0x06: "RDMAP unexpected opcode";
    RDMAP_CATASTROPHIC_STREAM = 0, 2, 0x07: "RDMAP catastrophic error of this stream";
    RDMAP_CATASTROPHIC_GLOBAL = 0, 2, 0x08: "RDMAP catastrophic error of the device";
    RDMAP_INVALIDATE_UNKNOWN = 0, 2, 0x09: "RDMAP STag cannot be invalidated (operation)";
    RDMAP_UNSPECIFIED = 0, 2, 0xFF: "RDMAP unspecified operation error";
    // RFC 5041 §7.2 [5041-48]: errors have the numbers of the RFC
    DDP_LOCAL_CATASTROPHIC = 1, 0, 0x00: "DDP local catastrophic error";
    DDP_INVALID_STAG = 1, 1, 0x00: "DDP invalid STag";
    DDP_BOUNDS = 1, 1, 0x01: "DDP base or bounds violation";
    DDP_NOT_ASSOCIATED = 1, 1, 0x02: "DDP STag not associated with the stream";
    DDP_WRAP = 1, 1, 0x03: "DDP tagged offset wraps";
    DDP_TAGGED_VERSION = 1, 1, 0x04: "DDP invalid version, tagged";
    DDP_INVALID_QUEUE = 1, 2, 0x01: "DDP invalid queue number";
    DDP_NO_BUFFER = 1, 2, 0x02: "DDP no buffer for this message";
    DDP_INVALID_MSN = 1, 2, 0x03: "DDP message sequence number out of range";
    DDP_INVALID_MO = 1, 2, 0x04: "DDP invalid message offset";
    DDP_TOO_LONG = 1, 2, 0x05: "DDP message too long for its buffer";
    DDP_UNTAGGED_VERSION = 1, 2, 0x06: "DDP invalid version, untagged";
    MPA_TCP_LOST = 2, 0, 0x01: "MPA TCP connection closed, terminated or lost";
    MPA_CRC = 2, 0, 0x02: "MPA CRC check failed";
    MPA_LENGTH = 2, 0, 0x03: "MPA marker and length fields do not match";
    MPA_BAD_FRAME = 2, 0, 0x04: "MPA invalid Request or Reply frame";
    MPA_LOCAL_CATASTROPHIC = 2, 0, 0x05: "MPA local catastrophic error";
    MPA_INSUFFICIENT_IRD = 2, 0, 0x06: "MPA insufficient IRD resources";
    MPA_NO_RTR = 2, 0, 0x07: "MPA no matching RTR option";
}

impl fmt::Debug for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{:x}/{:02x} {}", self.layer, self.error_type, self.code, self.name())
    }
}

impl core::error::Error for Terminate {}

const CONTROL_LEN: usize = 4;
/// Octets of the largest Terminate payload: control, segment length, untagged header, Read Request
/// header.
pub const TERMINATE_MAX: usize = CONTROL_LEN + 2 + ddp::UNTAGGED_LEN + ReadHeader::LEN;

// Header control bits of the RFC's form (RFC 5040 Figure 8).
const SEGMENT_LEN_VALID: u8 = 0x80;
const DDP_HEADER: u8 = 0x40;
const READ_HEADER: u8 = 0x20;

/// A broken rule: the Terminate to send, with the headers that the RFC requires in it (RFC 5040
/// Figure 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The cause.
    pub terminate: Terminate,
    payload: Octets<TERMINATE_MAX>,
}

impl Violation {
    /// A violation without headers: of MPA, or a local catastrophe.
    pub fn new(terminate: Terminate) -> Self {
        Self::with_flags(terminate, 0)
    }

    /// A violation by the segment that starts with `header`, with `payload_len` octets of payload.
    pub fn of_segment(terminate: Terminate, header: &ddp::Header, payload_len: usize) -> Self {
        let header = header.emit();
        let segment_len = header.len().saturating_add(payload_len);
        Self::with_flags(terminate, SEGMENT_LEN_VALID | DDP_HEADER).and(segment_len, &header)
    }

    /// A violation by an ULPDU: its DDP header is returned as received, if it is whole.
    pub fn of_ulpdu(terminate: Terminate, ulpdu: &[u8]) -> Self {
        let len = ulpdu.first().map_or(0, |control| ddp::header_len(*control));
        match ulpdu.get(..len) {
            Some(header) if len > 0 => {
                Self::with_flags(terminate, SEGMENT_LEN_VALID | DDP_HEADER).and(ulpdu.len(), header)
            }
            _ => Self::new(terminate),
        }
    }

    /// A violation by the Read Request `msn`, of which `header` remains to be answered (RFC 5040
    /// §4.8).
    pub fn of_read(terminate: Terminate, msn: u32, header: &ReadHeader) -> Self {
        let untagged = ddp::Untagged {
            last: true,
            control: Opcode::ReadRequest.control(),
            invalidate: 0,
            queue: ddp::QUEUE_READ,
            msn,
            mo: 0,
        };
        let flags = SEGMENT_LEN_VALID | DDP_HEADER | READ_HEADER;
        let mut violation = Self::with_flags(terminate, flags)
            .and(ddp::UNTAGGED_LEN + ReadHeader::LEN, &untagged.emit());
        // RFC 5040 §4.8 [5040-18]: bit R announces the Read Request header, advanced
        violation.payload.push(&header.emit());
        violation
    }

    /// The payload of the Terminate message, in the RFC's form.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn with_flags(terminate: Terminate, flags: u8) -> Self {
        // RFC 5040 §4.8 [5040-12]: a Terminate holds control, length and the failed headers
        let first = terminate.layer << 4 | terminate.error_type & 0x0F;
        // RFC 5040 §4.8 [5040-14]: reserved bits of a Terminate are sent as zero
        Self { terminate, payload: Octets::of(&[&[first, terminate.code, flags, 0]]) }
    }

    fn and(mut self, segment_len: usize, header: &[u8]) -> Self {
        // RFC 5040 §4.8 [5040-16]: bit D announces the segment length, bit M its validity
        self.payload.push(&u16::try_from(segment_len).unwrap_or(u16::MAX).to_be_bytes());
        // RFC 5040 §4.8 [5040-17]: bit D announces the DDP header
        self.payload.push(header);
        self
    }
}

/// Implementation of the peer, as far as set-up shows it ([`super::mpa`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// An adapter, or nothing known: FPDUs fit a TCP segment.
    #[default]
    Hardware,
    /// Linux' software RNIC, whose Terminate has its bit fields swapped.
    Siw,
    /// This implementation.
    Stag,
}

/// The encoding a peer gave its Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminateForm {
    /// RFC 5040 Figure 8.
    Rfc,
    /// siw on a little-endian host: the bit fields of each octet in reverse order.
    Siw,
}

/// A Terminate that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// Why.
    pub cause: Terminate,
    /// Encoding that the peer used.
    pub form: TerminateForm,
    /// Length of our segment that the peer complains about. The RFC's form counts the DDP header,
    /// siw's does not.
    pub segment_len: Option<u16>,
    /// The header of that segment.
    pub header: Option<ddp::Header>,
    /// The Read Request, updated to the octets already sent.
    pub read: Option<ReadHeader>,
}

impl Terminated {
    /// Reads a Terminate payload in either form. A part that is announced but cut off, or makes no
    /// sense, is left out: the connection ends in any case and only the cause matters.
    ///
    /// Errors: `None` when not even the control field is there.
    pub fn parse(payload: &[u8], peer: Peer) -> Option<Self> {
        let ([first, code, flags, _], rest) = payload.split_first_chunk::<CONTROL_LEN>()?;
        let form = form(*first, *flags, *code, peer);
        let (high, low) = (first >> 4, first & 0x0F);
        let ((layer, error_type), flags) = match form {
            TerminateForm::Rfc => ((high, low), *flags),
            TerminateForm::Siw => ((low, high), flags.reverse_bits()),
        };
        let mut terminated = Self {
            cause: Terminate { layer, error_type, code: *code },
            form,
            segment_len: None,
            header: None,
            read: None,
        };
        terminated.parse_headers(flags, rest);
        Some(terminated)
    }

    fn parse_headers(&mut self, flags: u8, rest: &[u8]) -> Option<()> {
        // The length "MUST be present when the D bit is set" (RFC 5040 §4.8).
        if flags & (SEGMENT_LEN_VALID | DDP_HEADER) == 0 {
            return None;
        }
        let (segment_len, rest) = rest.split_first_chunk()?;
        self.segment_len =
            (flags & SEGMENT_LEN_VALID != 0).then_some(u16::from_be_bytes(*segment_len));
        if flags & DDP_HEADER == 0 {
            return None;
        }
        let (header, rest) = ddp::Header::parse(rest).ok()?;
        self.header = Some(header);
        // siw sets the bit for a Send with Invalidate too, after which no such header follows.
        let of_read =
            matches!(header, ddp::Header::Untagged(untagged) if untagged.queue == ddp::QUEUE_READ);
        if flags & READ_HEADER != 0 && of_read {
            self.read = Some(ReadHeader::parse(rest.first_chunk()?));
        }
        Some(())
    }
}

/// Distinguishes the two encodings: by the flags if there are any, else by the peer's
/// implementation and by which reading makes sense.
fn form(first: u8, flags: u8, code: u8, peer: Peer) -> TerminateForm {
    if flags & 0xE0 != 0 {
        return TerminateForm::Rfc;
    }
    // RFC 5040 §4.8 [5040-15]: a deviation: reserved bits identify a Terminate of siw
    if flags & 0x07 != 0 || peer == Peer::Siw {
        return TerminateForm::Siw;
    }
    let as_rfc = Terminate { layer: first >> 4, error_type: first & 0x0F, code };
    let as_siw = Terminate { layer: first & 0x0F, error_type: first >> 4, code };
    if !Terminate::ALL.contains(&as_rfc) && Terminate::ALL.contains(&as_siw) {
        return TerminateForm::Siw;
    }
    TerminateForm::Rfc
}
