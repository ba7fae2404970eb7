//! MPA connection set-up: Request and Reply frames (RFC 5044 §7.1, RFC 6581 §6, §9) and what two sides agree on.
//!
//! ```text
//! initiator                                   responder
//! Initiator::new(Config)   -- Request -->     Request::parse
//! Initiator::handle_reply  <-- Reply ---      Request::accept or Request::reject
//! Negotiated               -- FPDU ---->      Negotiated: sends nothing before this first FPDU
//! ```
//!
//! The initiator sends nothing behind its Request before the Reply is there (siw resets on octets behind the Request).
//! FPDUs may follow a Reply in the same read: what [`Parsed::Frame`] did not consume belongs to [`super::fpdu::parse`].

use super::octets::Octets;
use super::rdmap::{Peer, Terminate};
use super::{fpdu, stream};

/// Private data that fits every peer: siw takes 256 octets including the 4 of [`Enhanced`], and counts what it sends in
/// an octet.
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
// RFC 5044 §7.1.1 [5044-34]
const REQUEST_KEY: &[u8; KEY_LEN] = b"MPA ID Req Frame";
// RFC 5044 §7.1.1 [5044-36]
const REPLY_KEY: &[u8; KEY_LEN] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
/// A reserved bit that siw gives a meaning and echoes; hardware leaves it zero.
// RFC 5044 §7.1.1 [5044-39]
const SOFTWARE: u8 = 0x08;
/// A reserved bit that only our Reply has, and only towards a Request with [`SOFTWARE`]: tells us from siw.
// RFC 5044 §7.1.1 [5044-39]
const STAG: u8 = 0x04;

const HIGH_FLAG: u16 = 0x8000;
const LOW_FLAG: u16 = 0x4000;
const DEPTH_MASK: u16 = 0x3FFF;

/// Which frame.
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

/// Ready-to-receive indications: which zero-length message may come first from the initiator (RFC 6581 §9.2).
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

    /// The one we like best among these: a Write needs neither a receive nor IRD; Linux' server has no IRD.
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
        let set =
            RtrSet { send: ird & LOW_FLAG != 0, write: ord & HIGH_FLAG != 0, read: ord & LOW_FLAG != 0 };
        Self {
            rtr: (ird & HIGH_FLAG != 0).then_some(set), // without A the others "MUST be ignored" [6581-24]
            ird: ird & DEPTH_MASK,
            ord: ord & DEPTH_MASK,
        }
    }

    /// The indication that a responder names: the best one offered, one of its own when none is (RFC 6581 §9.2).
    fn answered(&self) -> Option<Rtr> {
        // RFC 6581 §9.2 [6581-19] [6581-20]
        self.rtr.map(|set| set.best().unwrap_or(Rtr::Write))
    }

    fn emit(&self) -> [u8; ENHANCED_LEN] {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        // RFC 6581 §9.2 [6581-23]
        let set = self.rtr.unwrap_or_default();
        // RFC 6581 §9.2 [6581-16]
        let ird = self.ird & DEPTH_MASK | flag(self.rtr.is_some(), HIGH_FLAG) | flag(set.send, LOW_FLAG);
        let ord = self.ord & DEPTH_MASK | flag(set.write, HIGH_FLAG) | flag(set.read, LOW_FLAG);
        // RFC 6581 §9 [6581-6]
        let ([i0, i1], [o0, o1]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [i0, i1, o0, o1]
    }
}

/// A Request or Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which frame.
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

/// What the start of the received octets is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The frame goes on: at least this many octets in all.
    NeedMore(usize),
    /// A whole frame, and its length; octets behind it are the caller's.
    Frame(Frame<'a>, usize),
}

/// Why octets are not the frame that was expected. Always answered by closing the TCP connection, without a word
/// (RFC 5044 §7.1.2).
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
    /// Octets follow the Request before the Reply: the caller's finding ([`Request::parse`] leaves it to count).
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
        // RFC 5044 §7.1.1, §7.1.2 [5044-35] [5044-37]
        if !key.starts_with(arrived) {
            // RFC 5044 §7.1.2 [5044-52]
            return Err(if other.starts_with(arrived) { FrameError::WrongKind } else { FrameError::NotMpa });
        }
        let Some((header, rest)) = octets.split_first_chunk::<HEADER_LEN>() else {
            return Ok(Parsed::NeedMore(HEADER_LEN));
        };
        let [.., flags, revision, l0, l1] = *header;
        let len = u16::from_be_bytes([l0, l1]);
        let revision = match revision {
            // RFC 6581 §6, §10 [6581-3]
            1 => Revision::One,
            2 => Revision::Two,
            // RFC 5044 §7.1.1 [5044-41]
            other => return Err(FrameError::Revision(other)),
        };
        // In revision 1 the bit is reserved and "MUST NOT be checked".
        let is_enhanced = flags & ENHANCED != 0 && revision == Revision::Two;
        // RFC 5044 §7.1.1, §7.1.2 [5044-43]
        if usize::from(len) > PRIVATE_DATA_LIMIT {
            return Err(FrameError::TooLong(len));
        }
        if is_enhanced && usize::from(len) < ENHANCED_LEN {
            return Err(FrameError::NoEnhancedData);
        }
        let whole = HEADER_LEN + usize::from(len);
        // RFC 5044 §7.1.2 [5044-53]
        let Some(data) = rest.get(..usize::from(len)) else { return Ok(Parsed::NeedMore(whole)) };
        let (enhanced, private_data) = match data.split_first_chunk() {
            Some((enhanced, private_data)) if is_enhanced => (Some(Enhanced::parse(enhanced)), private_data),
            _ => (None, data),
        };
        let set = |bit| flags & bit != 0;
        let frame = Frame {
            kind,
            markers: set(MARKERS),
            crc: set(CRC),
            reject: set(REJECT) && kind == Kind::Reply, // in a Request it is "not checked on reception"
            software: set(SOFTWARE),
            stag: set(STAG),
            revision,
            enhanced,
            private_data,
        };
        Ok(Parsed::Frame(frame, whole))
    }

    /// The frame's octets; send them with one call (siw reads nothing but whole frames well). Private data is at most
    /// [`PRIVATE_DATA_MAX`] octets: the caller's own promise.
    pub fn emit(&self) -> FrameOctets {
        assert!(self.private_data.len() <= PRIVATE_DATA_MAX, "private data fits every peer's limit");
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.enhanced.is_some(), ENHANCED)
            | flag(self.software, SOFTWARE)
            | flag(self.stag, STAG);
        let revision = match self.revision {
            // RFC 5044 §7.1.1 [5044-40]
            Revision::One => 1,
            Revision::Two => 2,
        };
        let enhanced = self.enhanced.map(|enhanced| enhanced.emit());
        let enhanced = enhanced.as_ref().map_or(&[][..], |octets| octets);
        let len = (enhanced.len() + self.private_data.len()) as u16; // at most PRIVATE_DATA_MAX + 4 [5044-42]
        let [l0, l1] = len.to_be_bytes();
        let key = match self.kind {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        };
        // RFC 6581 §6 [6581-4]
        Octets::of(&[key, &[flags, revision, l0, l1], enhanced, self.private_data])
    }
}

/// Whether a frame of ours has reserved bits set, as those have that tell software from adapters.
pub fn is_marked(frame: &[u8]) -> bool {
    frame.get(KEY_LEN).is_some_and(|flags| flags & (SOFTWARE | STAG) != 0)
}

/// A frame of ours.
pub type FrameOctets = Octets<{ HEADER_LEN + ENHANCED_LEN + PRIVATE_DATA_MAX }>;

/// When this side asks for CRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// From everybody.
    Always,
    /// From everybody but a Linux siw that connects and asks for none; the provider asks none of a siw that has lost a
    /// connection by them.
    ///
    /// siw forgets where it was when the padding and the CRC of an FPDU arrive in two parts (seen in Linux 6.1, `siw_qp_rx.c`), and
    /// then ends the connection with a CRC error. Any FPDU longer than a TCP segment meets that sooner or later, so both sides
    /// agreeing on none, as siw does with itself, is what works.
    #[default]
    Auto,
    /// From nobody: an administrator's choice (RFC 5044 §4.4).
    Never,
}

/// What this side wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// When to ask for CRCs; the peer may still insist (RFC 5044 §4.4).
    pub crc: Crc,
    /// Revision and enhanced data an initiator sends; 1 is for peers that reset on 2 (RFC 6581 §10).
    pub revision: Revision,
    /// The indications an initiator offers; `None` is the client-server model, which irdma refuses.
    pub rtr: Option<RtrSet>,
    /// Inbound Reads this side serves at a time at most; the table behind it has this many places. Rounded down to a
    /// power of two, because siw rounds what it is granted up to one.
    pub ird: u16,
    /// Outbound Reads this side wants outstanding at most.
    pub ord: u16,
}

impl Default for Config {
    /// What siw, cxgb4 and irdma all take: revision 2, CRC, Write or Read as indication.
    fn default() -> Self {
        // RFC 6581 §9.2 [6581-17]
        let rtr = RtrSet { send: false, write: true, read: true };
        Self { crc: Crc::Auto, revision: Revision::Two, rtr: Some(rtr), ird: 16, ord: 16 }
    }
}

/// How large FPDUs to this peer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduSize {
    /// One TCP segment: adapters may not take more.
    Segment,
    /// As large as the length field allows: software reassembles anyway.
    Full,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Which end this is.
    pub side: stream::Side,
    /// Revision of the frames.
    pub revision: Revision,
    /// Generate and check CRCs.
    pub crc: bool,
    /// Put markers into what we send; we never receive any.
    pub send_markers: bool,
    /// Inbound Reads we serve at a time; more is a violation.
    pub ird: u16,
    /// Outbound Reads we may have outstanding.
    pub ord: u16,
    /// The indication that the initiator sends before anything else and the responder awaits.
    pub rtr: Option<Rtr>,
    /// Who the peer is.
    pub peer: Peer,
    /// The peer's own words, for the ULP (RFC 6581 §9.1).
    pub offered: Option<Enhanced>,
}

impl Negotiated {
    /// How large FPDUs may be, unless configured otherwise.
    pub const fn fpdu_size(&self) -> FpduSize {
        match self.peer {
            Peer::Hardware => FpduSize::Segment,
            Peer::Siw | Peer::Stag => FpduSize::Full,
        }
    }

    /// The largest ULPDU for `size` on a connection whose TCP segments carry `emss` octets. A segment-sized FPDU is a
    /// multiple of eight octets, so that segmentation offload cuts between FPDUs.
    pub const fn mulpdu(&self, size: FpduSize, emss: usize) -> u16 {
        match size {
            FpduSize::Segment => fpdu::mulpdu(emss & !7, self.send_markers),
            // RFC 5044 §4.5 [5044-27]
            FpduSize::Full => fpdu::MULPDU_MAX,
        }
    }
}

/// The connecting side, between Request and Reply.
#[derive(Clone, Copy, Debug)]
pub struct Initiator {
    config: Config,
    enhanced: Option<Enhanced>,
}

/// What a Reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The connection stands.
    Accepted(Negotiated, &'a [u8]),
    /// The peer refused; its enhanced data and private data say why.
    Rejected(Option<Enhanced>, &'a [u8]),
}

/// Why a Reply ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Close the TCP connection, without a word.
    Close(FrameError),
    /// Send this Terminate as the first and only FPDU, framed as the [`Negotiated`] beside it says, then close.
    Terminate(Terminate, Negotiated),
}

impl Initiator {
    /// Prepares a connection.
    pub fn new(mut config: Config) -> Self {
        // An offered Read indication is a Read: it needs an ORD of one.
        let least_ord = u16::from(config.rtr.is_some_and(|set| set.read) && config.revision == Revision::Two);
        config.ird = power_of_two(config.ird);
        config.ord = config.ord.clamp(least_ord, NOT_NEGOTIATED - 1);
        let words = Enhanced { rtr: config.rtr, ird: config.ird, ord: config.ord };
        // RFC 6581 §6 [6581-2]
        Self { config, enhanced: (config.revision == Revision::Two).then_some(words) }
    }

    /// The Request to send, and nothing behind it before the Reply is there.
    pub fn request(&self, private_data: &[u8]) -> FrameOctets {
        Frame {
            kind: Kind::Request,
            markers: false,
            crc: self.config.crc != Crc::Never,
            reject: false,
            // RFC 6581 §10 [6581-27]
            software: self.enhanced.is_some(),
            stag: false,
            revision: self.config.revision,
            enhanced: self.enhanced,
            private_data,
        }
        .emit()
    }

    /// Judges the Reply, a frame that [`Frame::parse`] found.
    pub fn handle_reply<'a>(&self, reply: &Frame<'a>) -> Result<Outcome<'a>, Failure> {
        if reply.enhanced.is_some() != self.enhanced.is_some() {
            return Err(Failure::Close(FrameError::EnhancementMismatch));
        }
        if reply.reject {
            return Ok(Outcome::Rejected(reply.enhanced, reply.private_data));
        }
        let mut negotiated = Negotiated {
            side: stream::Side::Initiator,
            revision: reply.revision,
            // RFC 5044 §4.4 [5044-19]
            crc: self.config.crc != Crc::Never || reply.crc,
            // RFC 5044 §4.3, §7.1.1 [5044-15]
            send_markers: reply.markers,
            ird: self.config.ird,
            ord: self.config.ord,
            rtr: None,
            peer: match (self.enhanced.is_some() && reply.software, reply.stag) {
                (false, _) => Peer::Hardware,
                (true, true) => Peer::Stag,
                (true, false) => Peer::Siw,
            },
            // RFC 6581 §9.1 [6581-7]
            offered: reply.enhanced,
        };
        if let Some(words) = reply.enhanced {
            self.adopt(&words, &mut negotiated).map_err(|cause| Failure::Terminate(cause, negotiated))?;
        }
        Ok(Outcome::Accepted(negotiated, reply.private_data))
    }

    /// Applies the responder's words (RFC 6581 §9.1, §9.2).
    fn adopt(&self, words: &Enhanced, negotiated: &mut Negotiated) -> Result<(), Terminate> {
        // RFC 6581 §9.1 [6581-9] [6581-15]
        if words.ord != NOT_NEGOTIATED && words.ord > self.config.ird {
            // RFC 6581 §9.1 [6581-11]
            return Err(Terminate::MPA_INSUFFICIENT_IRD);
        }
        // RFC 6581 §9.1 [6581-13]
        if words.ird != NOT_NEGOTIATED {
            // RFC 6581 §9.1 [6581-10]
            negotiated.ord = negotiated.ord.min(words.ird);
        }
        if let Some(ours) = self.config.rtr {
            // RFC 6581 §9.2 [6581-22]
            let mut common = ours.and(words.rtr.ok_or(Terminate::MPA_NO_RTR)?);
            common.read &= negotiated.ord > 0;
            // RFC 6581 §9.2 [6581-21]
            negotiated.rtr = Some(common.best().ok_or(Terminate::MPA_NO_RTR)?);
        }
        Ok(())
    }
}

/// The listening side, holding a Request it has not answered.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What the peer sent.
    pub frame: Frame<'a>,
}

impl<'a> Request<'a> {
    /// The request in a frame that [`Frame::parse`] found. Octets behind it are a violation ([`FrameError::Surplus`]): no
    /// initiator sends before it has read the Reply.
    pub fn parse(octets: &'a [u8]) -> Result<Option<Self>, FrameError> {
        match Frame::parse(octets, Kind::Request)? {
            Parsed::NeedMore(_) => Ok(None),
            // RFC 5044 §7.1.1, §7.1.2 [5044-43]
            Parsed::Frame(_, len) if len < octets.len() => Err(FrameError::Surplus),
            Parsed::Frame(frame, _) => Ok(Some(Self { frame })),
        }
    }

    /// Accepts: the Reply to send, and what is agreed. Nothing follows the Reply before the first FPDU of the initiator
    /// is there (RFC 5044 §7.1.2); [`stream::Stream`] sees to that.
    pub fn accept(&self, config: &Config, private_data: &[u8]) -> (FrameOctets, Negotiated) {
        // RFC 6581 §10 [6581-26]
        let (words, rtr) = match self.frame.enhanced {
            Some(asked) => {
                let rtr = asked.answered();
                (Some(answer(&asked, rtr, config)), rtr)
            }
            None => (None, None),
        };
        let crc = self.crc(config);
        let negotiated = Negotiated {
            side: stream::Side::Responder,
            revision: self.frame.revision,
            crc,
            // RFC 5044 §4.3, §7.1.1 [5044-15]
            send_markers: self.frame.markers,
            ird: depth(words.map(|words| words.ird), power_of_two(config.ird)),
            ord: depth(words.map(|words| words.ord), config.ord),
            rtr,
            peer: self.peer(),
            // RFC 6581 §9.1 [6581-7]
            offered: self.frame.enhanced,
        };
        (self.reply(crc, false, words, private_data), negotiated)
    }

    /// Refuses. `private_data` tells the peer's ULP why; Linux does not pass it on.
    pub fn reject(&self, config: &Config, private_data: &[u8]) -> FrameOctets {
        // RFC 6581 §10 [6581-26]
        let words = self.frame.enhanced.map(|asked| answer(&asked, asked.answered(), config));
        self.reply(self.crc(config), true, words, private_data)
    }

    fn reply(&self, crc: bool, reject: bool, enhanced: Option<Enhanced>, private_data: &[u8]) -> FrameOctets {
        Frame {
            kind: Kind::Reply,
            markers: false,
            crc,
            reject,
            software: self.frame.software,
            stag: self.frame.software,
            revision: self.frame.revision,
            enhanced,
            private_data,
        }
        .emit()
    }

    fn crc(&self, config: &Config) -> bool {
        let ours = match config.crc {
            Crc::Always => true,
            // RFC 5044 §1.2, §4.4 [5044-2]
            Crc::Auto => self.peer() != Peer::Siw,
            Crc::Never => false,
        };
        // RFC 5044 §4.4 [5044-19]
        self.frame.crc || ours
    }

    /// cxgb4 and irdma always ask for CRCs and the peer-to-peer model; siw asks for neither.
    fn peer(&self) -> Peer {
        let is_plain = !self.frame.crc && !self.frame.markers;
        match self.frame.enhanced {
            Some(_) if self.frame.software => Peer::Stag,
            Some(Enhanced { rtr: None, .. }) if is_plain => Peer::Siw,
            _ => Peer::Hardware,
        }
    }
}

/// The responder's words (RFC 6581 §9.1, §9.2). Exactly one indication: cxgb4 trips over two.
fn answer(asked: &Enhanced, rtr: Option<Rtr>, config: &Config) -> Enhanced {
    // An indication by Read needs a place for it, and irdma refuses one beside an IRD of zero.
    let by_read = u16::from(rtr == Some(Rtr::Read));
    let ird = match asked.ord {
        // RFC 6581 §9.1 [6581-12]
        NOT_NEGOTIATED => NOT_NEGOTIATED,
        ord => ceiling(ord.max(by_read)).min(power_of_two(config.ird).max(by_read)),
    };
    let ord = match asked.ird {
        // RFC 6581 §9.1 [6581-14]
        NOT_NEGOTIATED => NOT_NEGOTIATED,
        // RFC 6581 §9.1 [6581-8]
        ird => ird.min(config.ord.min(NOT_NEGOTIATED - 1)),
    };
    Enhanced { rtr: rtr.map(RtrSet::only), ird, ord }
}

/// The depth in force: what was said, or our own when it is not negotiated.
fn depth(said: Option<u16>, own: u16) -> u16 {
    said.filter(|depth| *depth != NOT_NEGOTIATED).unwrap_or(own)
}

/// The largest power of two that is not above `depth`; zero stays zero.
fn power_of_two(depth: u16) -> u16 {
    depth.min(DEPTH_MASK).checked_ilog2().map_or(0, |log| 1 << log)
}

/// The smallest power of two that is not below `depth`; zero stays zero.
fn ceiling(depth: u16) -> u16 {
    if depth == 0 { 0 } else { depth.next_power_of_two() }
}
