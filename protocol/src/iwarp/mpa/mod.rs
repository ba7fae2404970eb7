//! MPA connection set-up: Request and Reply frames (RFC 5044 §7.1, RFC 6581 §6, §9) and the agreed
//! terms.
//!
//! ```text
//! initiator                                   responder
//! Initiator::new(Config)   -- Request -->     Request::parse
//! Initiator::handle_reply  <-- Reply ---      Request::accept or Request::reject
//! Negotiated               -- FPDU ---->      Negotiated: sends nothing before this first FPDU
//! ```
//!
//! The initiator sends nothing after its Request until the Reply arrives (siw resets on octets
//! after the Request). FPDUs may follow a Reply in the same read: octets that [`Parsed::Frame`] did
//! not consume belong to [`super::fpdu::parse`].

mod startup;

pub use startup::{Config, Crc, Failure, FpduSize, Initiator, Negotiated, Outcome, Request, Side};

use super::octets::Octets;

/// Private data that fits every peer: siw takes 256 octets including the 4 of [`Enhanced`], and
/// stores the length that it sends in an octet.
pub const PRIVATE_DATA_MAX: usize = 248;
/// Octets of Private Data that the RFC allows, counting [`Enhanced`] (RFC 5044 §7.1.1).
pub const PRIVATE_DATA_LIMIT: usize = 512;
/// IRD or ORD that is not to be negotiated (RFC 6581 §9.1).
pub const NOT_NEGOTIATED: u16 = 0x3FFF;
/// Octets of the largest frame a peer may send.
pub const FRAME_MAX: usize = HEADER_LEN + PRIVATE_DATA_LIMIT;

const KEY_LEN: usize = 16;
const HEADER_LEN: usize = KEY_LEN + 4;
const ENHANCED_LEN: usize = 4;
// RFC 5044 §7.1.1 [5044-34]: a Request begins with the key of Requests
const REQUEST_KEY: &[u8; KEY_LEN] = b"MPA ID Req Frame";
// RFC 5044 §7.1.1 [5044-36]: a Reply begins with the key of Replies
const REPLY_KEY: &[u8; KEY_LEN] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
/// A reserved bit that siw gives a meaning and echoes; hardware leaves it zero.
// RFC 5044 §7.1.1 [5044-39]: a deviation: reserved bits mark software, not adapters
const SOFTWARE: u8 = 0x08;
/// A reserved bit that only our Reply has, and only in reply to a Request with [`SOFTWARE`]:
/// distinguishes us from siw.
// RFC 5044 §7.1.1 [5044-39]: a deviation: reserved bits mark software, not adapters
const STAG: u8 = 0x04;

const HIGH_FLAG: u16 = 0x8000;
const LOW_FLAG: u16 = 0x4000;
const DEPTH_MASK: u16 = 0x3FFF;

/// Kind of a frame: Request or Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Initiator to responder.
    Request,
    /// Responder to initiator.
    Reply,
}

/// The MPA revision of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    #[default]
    Two,
}

/// Ready-to-receive indications: which zero-length message may come first from the initiator (RFC
/// 6581 §9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrSet {
    /// A zero-length Send.
    pub send: bool,
    /// A zero-length Write.
    pub write: bool,
    /// A zero-length Read.
    pub read: bool,
}

/// One ready-to-receive indication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length Send.
    Send,
    /// A zero-length Write.
    Write,
    /// A zero-length Read; it counts against the ORD.
    Read,
}

impl RtrSet {
    const fn only(rtr: Rtr) -> Self {
        Self {
            send: matches!(rtr, Rtr::Send),
            write: matches!(rtr, Rtr::Write),
            read: matches!(rtr, Rtr::Read),
        }
    }

    /// The preferred one of these: a Write needs neither a receive nor IRD; Linux' server has no
    /// IRD.
    const fn best(self) -> Option<Rtr> {
        match self {
            Self { write: true, .. } => Some(Rtr::Write),
            Self { read: true, .. } => Some(Rtr::Read),
            Self { send: true, .. } => Some(Rtr::Send),
            _ => None,
        }
    }

    const fn and(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }
}

/// The enhanced set-up data of revision 2 (RFC 6581 §9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// `Some` in the peer-to-peer model (control flag A), with the indications named by B, C and D.
    pub rtr: Option<RtrSet>,
    /// Inbound Reads the sender serves at a time; 14 bits, see [`NOT_NEGOTIATED`].
    pub ird: u16,
    /// Outbound Reads the sender wants to have outstanding; 14 bits, see [`NOT_NEGOTIATED`].
    pub ord: u16,
}

impl Enhanced {
    fn parse(octets: &[u8; ENHANCED_LEN]) -> Self {
        let [i0, i1, o0, o1] = *octets;
        let (ird, ord) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([o0, o1]));
        let set = RtrSet {
            send: ird & LOW_FLAG != 0,
            write: ord & HIGH_FLAG != 0,
            read: ord & LOW_FLAG != 0,
        };
        Self {
            // Without A the others "MUST be ignored" [6581-24]
            rtr: (ird & HIGH_FLAG != 0).then_some(set),
            ird: ird & DEPTH_MASK,
            ord: ord & DEPTH_MASK,
        }
    }

    /// The indication that a responder names: the best one offered, one of its own when none is
    /// (RFC 6581 §9.2).
    fn answered(&self) -> Option<Rtr> {
        // RFC 6581 §9.2 [6581-19]: flag A of a Reply is that of its Request
        // RFC 6581 §9.2 [6581-20]: a Reply names an indication that we support
        self.rtr.map(|set| set.best().unwrap_or(Rtr::Write))
    }

    fn emit(&self) -> [u8; ENHANCED_LEN] {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        // RFC 6581 §9.2 [6581-23]: flags B, C and D are zero without flag A
        let set = self.rtr.unwrap_or_default();
        // RFC 6581 §9.2 [6581-16]: flag A asks for the peer-to-peer model
        let ird =
            self.ird & DEPTH_MASK | flag(self.rtr.is_some(), HIGH_FLAG) | flag(set.send, LOW_FLAG);
        let ord = self.ord & DEPTH_MASK | flag(set.write, HIGH_FLAG) | flag(set.read, LOW_FLAG);
        // RFC 6581 §9 [6581-6]: the IRD and ORD have 14 bits each, in network order
        let ([i0, i1], [o0, o1]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [i0, i1, o0, o1]
    }
}

/// A Request or Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind of a frame: Request or Reply.
    pub kind: Kind,
    /// M: the sender wants markers in what it receives.
    pub markers: bool,
    /// C: the sender wants CRCs.
    pub crc: bool,
    /// R: a Reply that refuses the connection.
    pub reject: bool,
    /// The reserved bit 0x08: siw and this implementation.
    pub software: bool,
    /// The reserved bit 0x04: this implementation, in a Reply.
    pub stag: bool,
    /// Revision.
    pub revision: Revision,
    /// S: enhanced set-up data; only with [`Revision::Two`].
    pub enhanced: Option<Enhanced>,
    /// The ULP's private data, without the enhanced data.
    pub private_data: &'a [u8],
}

/// Result of parsing the start of the received octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The frame is incomplete: it has at least this many octets in all.
    NeedMore(usize),
    /// A whole frame, and its length; octets after it are the caller's.
    Frame(Frame<'a>, usize),
}

/// Why octets are not the frame that was expected. Always answered by closing the TCP connection,
/// without a word (RFC 5044 §7.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The key is none of MPA's.
    NotMpa,
    /// A Request where a Reply belongs, or the reverse: both sides initiate or both respond.
    WrongKind,
    /// A revision that is neither 1 nor 2.
    Revision(u8),
    /// More private data than the RFC allows.
    TooLong(u16),
    /// S is set and the private data does not hold the enhanced data.
    NoEnhancedData,
    /// A Reply is enhanced and its Request was not, or the reverse (RFC 6581 §10).
    EnhancementMismatch,
    /// Octets follow the Request before the Reply: found by the caller ([`Request::parse`] leaves
    /// the count to it).
    Surplus,
}

impl<'a> Frame<'a> {
    /// Reads a frame from what has arrived so far. A wrong key shows at its first wrong octet.
    pub fn parse(octets: &'a [u8], kind: Kind) -> Result<Parsed<'a>, FrameError> {
        let (key, other) = match kind {
            Kind::Request => (REQUEST_KEY, REPLY_KEY),
            Kind::Reply => (REPLY_KEY, REQUEST_KEY),
        };
        let arrived = octets.get(..KEY_LEN).unwrap_or(octets);
        // RFC 5044 §7.1.1, §7.1.2 [5044-35]: a frame without the key of Requests closes the
        // connection
        // RFC 5044 §7.1.1, §7.1.2 [5044-37]: a frame without the key of Replies closes the
        // connection
        if !key.starts_with(arrived) {
            // RFC 5044 §7.1.2 [5044-52]: two initiators notice each other by the key
            return Err(if other.starts_with(arrived) {
                FrameError::WrongKind
            } else {
                FrameError::NotMpa
            });
        }
        let Some((header, rest)) = octets.split_first_chunk::<HEADER_LEN>() else {
            return Ok(Parsed::NeedMore(HEADER_LEN));
        };
        let [.., flags, revision, l0, l1] = *header;
        let len = u16::from_be_bytes([l0, l1]);
        let revision = match revision {
            // RFC 6581 §6, §10 [6581-3]: requests of revision 1 are accepted as before
            1 => Revision::One,
            2 => Revision::Two,
            // RFC 5044 §7.1.1 [5044-41]: an unknown revision closes the connection
            other => return Err(FrameError::Revision(other)),
        };
        // In revision 1 the bit is reserved and "MUST NOT be checked".
        let is_enhanced = flags & ENHANCED != 0 && revision == Revision::Two;
        // RFC 5044 §7.1.1, §7.1.2 [5044-43]: a PD_Length above 512 or unlike the data is an error
        if usize::from(len) > PRIVATE_DATA_LIMIT {
            return Err(FrameError::TooLong(len));
        }
        if is_enhanced && usize::from(len) < ENHANCED_LEN {
            return Err(FrameError::NoEnhancedData);
        }
        let whole = HEADER_LEN + usize::from(len);
        // RFC 5044 §7.1.2 [5044-53]: no more Private Data is taken than PD_Length says
        let Some(data) = rest.get(..usize::from(len)) else { return Ok(Parsed::NeedMore(whole)) };
        let (enhanced, private_data) = match data.split_first_chunk() {
            Some((enhanced, private_data)) if is_enhanced => {
                (Some(Enhanced::parse(enhanced)), private_data)
            }
            _ => (None, data),
        };
        let set = |bit| flags & bit != 0;
        let frame = Frame {
            kind,
            markers: set(MARKERS),
            crc: set(CRC),
            // In a Request it is "not checked on reception".
            reject: set(REJECT) && kind == Kind::Reply,
            software: set(SOFTWARE),
            stag: set(STAG),
            revision,
            enhanced,
            private_data,
        };
        Ok(Parsed::Frame(frame, whole))
    }

    /// The frame's octets; send them with one call (siw handles only whole frames well). Private
    /// data is at most [`PRIVATE_DATA_MAX`] octets, which the caller ensures.
    pub fn emit(&self) -> FrameOctets {
        assert!(
            self.private_data.len() <= PRIVATE_DATA_MAX,
            "private data fits every peer's limit"
        );
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.enhanced.is_some(), ENHANCED)
            | flag(self.software, SOFTWARE)
            | flag(self.stag, STAG);
        let revision = match self.revision {
            // RFC 5044 §7.1.1 [5044-40]: the revision is 1, or 2 with the enhancements
            Revision::One => 1,
            Revision::Two => 2,
        };
        let enhanced = self.enhanced.map(|enhanced| enhanced.emit());
        let enhanced = enhanced.as_ref().map_or(&[][..], |octets| octets);
        // At most PRIVATE_DATA_MAX + 4 [5044-42]
        let len = (enhanced.len() + self.private_data.len()) as u16;
        let [l0, l1] = len.to_be_bytes();
        let key = match self.kind {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        };
        // RFC 6581 §6 [6581-4]: enhanced data come first in the Private Data
        Octets::of(&[key, &[flags, revision, l0, l1], enhanced, self.private_data])
    }
}

/// Returns true if a frame of ours has one of the reserved bits set that distinguish software from
/// adapters.
pub fn is_marked(frame: &[u8]) -> bool {
    frame.get(KEY_LEN).is_some_and(|flags| flags & (SOFTWARE | STAG) != 0)
}

/// A frame of ours.
pub type FrameOctets = Octets<{ HEADER_LEN + ENHANCED_LEN + PRIVATE_DATA_MAX }>;
