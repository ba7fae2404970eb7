//! Exchange of one Request and one Reply, and the terms that both sides agree on.

use super::{
    DEPTH_MASK, Enhanced, Frame, FrameError, FrameOctets, Kind, NOT_NEGOTIATED, Parsed, Revision,
    Rtr, RtrSet,
};
use crate::iwarp::{
    fpdu,
    rdmap::{Peer, Terminate},
};

/// Condition under which this side asks for CRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// From every peer.
    Always,
    /// From every peer but a Linux siw that connects and requests none; the provider requests none
    /// from a siw that has lost a connection by them.
    ///
    /// siw loses its place when the padding and the CRC of an FPDU arrive in two parts (seen in
    /// Linux 6.1, `siw_qp_rx.c`), and then ends the connection with a CRC error. Any FPDU longer
    /// than a TCP segment runs into that sooner or later. So both sides agree on none, as siw does
    /// with itself.
    #[default]
    Auto,
    /// From no peer: an administrator's choice (RFC 5044 §4.4).
    Never,
}

/// Configuration of this side for the negotiation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Condition under which this side asks for CRCs; the peer may still insist (RFC 5044 §4.4).
    pub crc: Crc,
    /// Revision and enhanced data an initiator sends; 1 is for peers that reset on 2 (RFC 6581
    /// §10).
    pub revision: Revision,
    /// The indications an initiator offers; `None` is the client-server model, which irdma refuses.
    pub rtr: Option<RtrSet>,
    /// Most inbound Reads this side serves at a time; its table has this many places. Rounded down
    /// to a power of two, because siw rounds what it is granted up to one.
    pub ird: u16,
    /// Outbound Reads this side wants outstanding at most.
    pub ord: u16,
}

impl Default for Config {
    /// Settings that siw, cxgb4 and irdma all take: revision 2, CRC, Write or Read as indication.
    fn default() -> Self {
        // RFC 6581 §9.2 [6581-17]: flags B, C and D name the indications we can send
        let rtr = RtrSet { send: false, write: true, read: true };
        Self { crc: Crc::Auto, revision: Revision::Two, rtr: Some(rtr), ird: 16, ord: 16 }
    }
}

/// End of the connection: initiator or responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Connected, and sends first.
    Initiator,
    /// Listened.
    Responder,
}

/// Length limit of FPDUs to this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduSize {
    /// One TCP segment: adapters may not take more.
    Segment,
    /// As large as the length field allows: software reassembles anyway.
    Full,
}

/// Parameters that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Role of this end: initiator or responder.
    pub side: Side,
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
    /// Implementation of the peer.
    pub peer: Peer,
    /// The peer's own words, for the ULP (RFC 6581 §9.1).
    pub offered: Option<Enhanced>,
}

impl Negotiated {
    /// Returns the length limit of FPDUs to this peer, unless the configuration says otherwise.
    pub const fn fpdu_size(&self) -> FpduSize {
        match self.peer {
            Peer::Hardware => FpduSize::Segment,
            Peer::Siw | Peer::Stag => FpduSize::Full,
        }
    }

    /// The largest ULPDU for `size` on a connection whose TCP segments carry `emss` octets. A
    /// segment-sized FPDU is a multiple of eight octets, so that segmentation offload cuts between
    /// FPDUs.
    pub const fn mulpdu(&self, size: FpduSize, emss: usize) -> u16 {
        match size {
            FpduSize::Segment => fpdu::mulpdu(emss & !7, self.send_markers),
            // RFC 5044 §4.5 [5044-27]: the largest ULPDU fits a TCP segment, but for software
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

/// Outcome of a Reply.
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
    /// Send this Terminate as the first and only FPDU, framed by the accompanying [`Negotiated`],
    /// then close.
    Terminate(Terminate, Negotiated),
}

impl Initiator {
    /// Prepares a connection.
    pub fn new(mut config: Config) -> Self {
        // An offered Read indication is a Read, so it needs an ORD of one.
        let least_ord =
            u16::from(config.rtr.is_some_and(|set| set.read) && config.revision == Revision::Two);
        config.ird = power_of_two(config.ird);
        config.ord = config.ord.clamp(least_ord, NOT_NEGOTIATED - 1);
        let words = Enhanced { rtr: config.rtr, ird: config.ird, ord: config.ord };
        // RFC 6581 §6 [6581-2]: the enhancements are used with revision 2
        Self { config, enhanced: (config.revision == Revision::Two).then_some(words) }
    }

    /// The Request to send; send nothing after it until the Reply arrives.
    pub fn request(&self, private_data: &[u8]) -> FrameOctets {
        Frame {
            kind: Kind::Request,
            markers: false,
            crc: self.config.crc != Crc::Never,
            reject: false,
            // RFC 6581 §10 [6581-27]: an initiator that wants no enhancements sends none
            software: self.enhanced.is_some(),
            stag: false,
            revision: self.config.revision,
            enhanced: self.enhanced,
            private_data,
        }
        .emit()
    }

    /// Checks the Reply, a frame that [`Frame::parse`] found.
    pub fn handle_reply<'a>(&self, reply: &Frame<'a>) -> Result<Outcome<'a>, Failure> {
        if reply.enhanced.is_some() != self.enhanced.is_some() {
            return Err(Failure::Close(FrameError::EnhancementMismatch));
        }
        if reply.reject {
            return Ok(Outcome::Rejected(reply.enhanced, reply.private_data));
        }
        let mut negotiated = Negotiated {
            side: Side::Initiator,
            revision: reply.revision,
            // RFC 5044 §4.4 [5044-19]: a CRC is used unless both ends decline it
            crc: self.config.crc != Crc::Never || reply.crc,
            // RFC 5044 §4.3, §7.1.1 [5044-15]: markers are sent if the peer asks for them
            send_markers: reply.markers,
            ird: self.config.ird,
            ord: self.config.ord,
            rtr: None,
            peer: match (self.enhanced.is_some() && reply.software, reply.stag) {
                (false, _) => Peer::Hardware,
                (true, true) => Peer::Stag,
                (true, false) => Peer::Siw,
            },
            // RFC 6581 §9.1 [6581-7]: the IRD and ORD of the peer are handed up
            offered: reply.enhanced,
        };
        if let Some(words) = reply.enhanced {
            self.adopt(&words, &mut negotiated)
                .map_err(|cause| Failure::Terminate(cause, negotiated))?;
        }
        Ok(Outcome::Accepted(negotiated, reply.private_data))
    }

    /// Applies the responder's control words (RFC 6581 §9.1, §9.2).
    fn adopt(&self, words: &Enhanced, negotiated: &mut Negotiated) -> Result<(), Terminate> {
        // RFC 6581 §9.1 [6581-9]: the IRD of an initiator is at least the peer's ORD
        // RFC 6581 §9.1 [6581-15]: an ORD of 0x3FFF leaves our IRD as it is
        if words.ord != NOT_NEGOTIATED && words.ord > self.config.ird {
            // RFC 6581 §9.1 [6581-11]: an IRD that cannot be met ends in a Terminate, code 6
            return Err(Terminate::MPA_INSUFFICIENT_IRD);
        }
        // RFC 6581 §9.1 [6581-13]: an IRD of 0x3FFF leaves our ORD as it is
        if words.ird != NOT_NEGOTIATED {
            // RFC 6581 §9.1 [6581-10]: the ORD of an initiator is at most the peer's IRD
            negotiated.ord = negotiated.ord.min(words.ird);
        }
        if let Some(ours) = self.config.rtr {
            // RFC 6581 §9.2 [6581-22]: no common indication ends in a Terminate, code 7
            let mut common = ours.and(words.rtr.ok_or(Terminate::MPA_NO_RTR)?);
            common.read &= negotiated.ord > 0;
            // RFC 6581 §9.2 [6581-21]: a Reply with flag A is answered by an agreed indication
            negotiated.rtr = Some(common.best().ok_or(Terminate::MPA_NO_RTR)?);
        }
        Ok(())
    }
}

/// The listening side, holding a Request it has not answered.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The Request frame that the peer sent.
    pub frame: Frame<'a>,
}

impl<'a> Request<'a> {
    /// The request in a frame that [`Frame::parse`] found. Octets after it are a violation
    /// ([`FrameError::Surplus`]): no initiator sends before it has read the Reply.
    pub fn parse(octets: &'a [u8]) -> Result<Option<Self>, FrameError> {
        match Frame::parse(octets, Kind::Request)? {
            Parsed::NeedMore(_) => Ok(None),
            // RFC 5044 §7.1.1, §7.1.2 [5044-43]: a PD_Length above 512 or unlike the data is an
            // error
            Parsed::Frame(_, len) if len < octets.len() => Err(FrameError::Surplus),
            Parsed::Frame(frame, _) => Ok(Some(Self { frame })),
        }
    }

    /// Accepts: returns the Reply to send, and the agreed terms. Nothing follows the Reply until
    /// the first FPDU of the initiator arrives (RFC 5044 §7.1.2); [`crate::iwarp::stream::Stream`]
    /// ensures that.
    pub fn accept(&self, config: &Config, private_data: &[u8]) -> (FrameOctets, Negotiated) {
        // RFC 6581 §10 [6581-26]: a Reply has the enhancements exactly if its Request has
        let (words, rtr) = match self.frame.enhanced {
            Some(asked) => {
                let rtr = asked.answered();
                (Some(answer(&asked, rtr, config)), rtr)
            }
            None => (None, None),
        };
        let crc = self.crc(config);
        let negotiated = Negotiated {
            side: Side::Responder,
            revision: self.frame.revision,
            crc,
            // RFC 5044 §4.3, §7.1.1 [5044-15]: markers are sent if the peer asks for them
            send_markers: self.frame.markers,
            ird: depth(words.map(|words| words.ird), power_of_two(config.ird)),
            ord: depth(words.map(|words| words.ord), config.ord),
            rtr,
            peer: self.peer(),
            // RFC 6581 §9.1 [6581-7]: the IRD and ORD of the peer are handed up
            offered: self.frame.enhanced,
        };
        (self.reply(crc, false, words, private_data), negotiated)
    }

    /// Refuses. `private_data` gives the peer's ULP the reason; Linux does not pass it on.
    pub fn reject(&self, config: &Config, private_data: &[u8]) -> FrameOctets {
        // RFC 6581 §10 [6581-26]: a Reply has the enhancements exactly if its Request has
        let words = self.frame.enhanced.map(|asked| answer(&asked, asked.answered(), config));
        self.reply(self.crc(config), true, words, private_data)
    }

    fn reply(
        &self,
        crc: bool,
        reject: bool,
        enhanced: Option<Enhanced>,
        private_data: &[u8],
    ) -> FrameOctets {
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
            // RFC 5044 §1.2, §4.4 [5044-2]: a CRC is used by default; siw is the exception
            Crc::Auto => self.peer() != Peer::Siw,
            Crc::Never => false,
        };
        // RFC 5044 §4.4 [5044-19]: a CRC is used unless both ends decline it
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

/// The responder's control words (RFC 6581 §9.1, §9.2). Exactly one indication: cxgb4 fails on two.
fn answer(asked: &Enhanced, rtr: Option<Rtr>, config: &Config) -> Enhanced {
    // An indication by Read needs a place for it, and irdma refuses one when the IRD is zero.
    let by_read = u16::from(rtr == Some(Rtr::Read));
    let ird = match asked.ord {
        // RFC 6581 §9.1 [6581-12]: an ORD of 0x3FFF is answered by an IRD of 0x3FFF
        NOT_NEGOTIATED => NOT_NEGOTIATED,
        ord => ceiling(ord.max(by_read)).min(power_of_two(config.ird).max(by_read)),
    };
    let ord = match asked.ird {
        // RFC 6581 §9.1 [6581-14]: an IRD of 0x3FFF is answered by an ORD of 0x3FFF
        NOT_NEGOTIATED => NOT_NEGOTIATED,
        // RFC 6581 §9.1 [6581-8]: the ORD of a responder is at most the peer's IRD
        ird => ird.min(config.ord.min(NOT_NEGOTIATED - 1)),
    };
    Enhanced { rtr: rtr.map(RtrSet::only), ird, ord }
}

/// The depth in force: the peer's value, or our own when it is not negotiated.
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
