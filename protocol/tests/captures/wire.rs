//! One connection over software iWARP: both ends judge what they receive and send again what they
//! sent.

use stag_protocol::iwarp::ddp;
use stag_protocol::iwarp::fpdu::{self, Framer, MULPDU_MAX};
use stag_protocol::iwarp::mpa::{
    Config, Frame, Initiator, Kind, Negotiated, Outcome, Parsed, Request, Revision,
};
use stag_protocol::iwarp::rdmap::ReadHeader;
use stag_protocol::iwarp::stream::{self, Inbound, Message};
use stag_protocol::rpcrdma::{PrivateData, Side};

use super::crc::Table;
use super::pcap::Conversation;

/// siw serves and makes this many Reads at a time.
pub const DEPTH: usize = 128;
pub type Stream = stream::Stream<DEPTH, DEPTH>;

/// Private data of two ends: client, server.
pub type Offers = [PrivateData; 2];

/// Receives everything that a conversation holds, in order.
pub trait Visitor {
    /// An FPDU comes to `receiver`, which has not judged it yet.
    fn visit_fpdu(&mut self, _from: Side, _receiver: &Stream, _fpdu: &[u8]) {}
    /// Visits the meaning of an FPDU. A Read Request is shown as its header, a Read Response with
    /// the request that it answers.
    fn visit_inbound(&mut self, _from: Side, _inbound: &Inbound<'_>, _read: Option<ReadHeader>) {}
}

/// One end.
struct End {
    stream: Stream,
    /// Octets that arrived and are no whole FPDU yet.
    arrived: Vec<u8>,
    /// Reads of this end that are not answered yet, by the token given to the stream.
    reads: Vec<ReadHeader>,
    /// Segments that this end sent of the untagged, and of the tagged, message that is not
    /// complete.
    sent: [Vec<Vec<u8>>; 2],
}

impl End {
    fn new(negotiated: &Negotiated) -> Self {
        Self {
            stream: Stream::new(negotiated),
            arrived: Vec::new(),
            reads: Vec::new(),
            sent: Default::default(),
        }
    }
}

const fn index(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

pub const fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

/// Counts of the traffic of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// FPDUs from the client, and from the server.
    pub fpdus: [usize; 2],
    /// RDMAP messages that our stream sent again octet for octet.
    pub sent_again: usize,
    /// RDMAP messages in segments that ours are not: larger, or of several lengths.
    pub larger: usize,
}

/// Follows a conversation from its MPA Request to its end.
pub fn walk(conversation: &Conversation, visitor: &mut impl Visitor) -> (Offers, WireCounts) {
    let mut conversation = conversation.iter();
    let (from, request) = conversation.next().unwrap();
    assert_eq!(*from, Side::Client);
    let (from, reply) = conversation.next().unwrap();
    assert_eq!(*from, Side::Server);
    let (negotiated, offers) = set_up(request, reply);
    let mut ends = negotiated.map(|negotiated| End::new(&negotiated));
    let mut counts = WireCounts::default();
    for (from, octets) in conversation {
        let receiver = index(other(*from));
        ends[receiver].arrived.extend_from_slice(octets);
        let arrived = std::mem::take(&mut ends[receiver].arrived);
        let mut at = 0;
        loop {
            match fpdu::parse::<Table>(&arrived[at..], false).unwrap() {
                fpdu::Parsed::NeedMore(_) => break,
                fpdu::Parsed::Fpdu { ulpdu, consumed } => {
                    let fpdu = &arrived[at..at + consumed];
                    visitor.visit_fpdu(*from, &ends[receiver].stream, fpdu);
                    receive(&mut ends, *from, &fpdu[ulpdu.clone()], visitor);
                    check_framing(fpdu, &fpdu[ulpdu]);
                    counts.fpdus[index(*from)] += 1;
                    match send_again(&mut ends[index(*from)], fpdu) {
                        None => {}
                        Some(true) => counts.sent_again += 1,
                        Some(false) => counts.larger += 1,
                    }
                    at += consumed;
                }
            }
        }
        ends[receiver].arrived = arrived[at..].to_vec();
    }
    for end in &ends {
        assert!(end.arrived.is_empty(), "an FPDU is cut");
        assert_eq!(end.stream.outstanding_reads().count(), 0, "a Read is not answered");
        assert!(end.sent.iter().all(Vec::is_empty), "a message is cut");
    }
    (offers, counts)
}

/// Both frames parse, come out of [`Frame::emit`] as they were, and each end agrees with the
/// other's words.
fn set_up(request: &[u8], reply: &[u8]) -> ([Negotiated; 2], Offers) {
    let parse = |octets, kind| {
        let Parsed::Frame(frame, len) = Frame::parse(octets, kind).unwrap() else {
            panic!("a cut frame")
        };
        assert_eq!(len, octets.len());
        assert_eq!(*frame.emit(), *octets);
        frame
    };
    let (asked, answered) = (parse(request, Kind::Request), parse(reply, Kind::Reply));
    let words = asked.enhanced.unwrap();
    assert_eq!(
        (asked.revision, words.rtr, words.ird, words.ord),
        (Revision::Two, None, DEPTH as u16, 0)
    );
    let config = Config {
        crc: stag_protocol::iwarp::mpa::Crc::Never,
        revision: asked.revision,
        rtr: None,
        ird: words.ird,
        ord: words.ord,
    };

    let Outcome::Accepted(client, private_data) =
        Initiator::new(config).handle_reply(&answered).unwrap()
    else {
        panic!("refused")
    };
    assert_eq!(private_data, answered.private_data);
    let server_config = Config { ird: DEPTH as u16, ord: DEPTH as u16, ..config };
    let (own_reply, server) =
        Request::parse(request).unwrap().unwrap().accept(&server_config, answered.private_data);
    assert_eq!(*own_reply, *reply, "we answer as Linux does");
    for negotiated in [client, server] {
        assert!(!negotiated.crc && !negotiated.send_markers && negotiated.rtr.is_none());
    }
    assert_eq!(
        (client.ird, client.ord, server.ird, server.ord),
        (DEPTH as u16, 0, 0, DEPTH as u16)
    );

    let offers = [asked, answered].map(|frame| {
        let offer = PrivateData::find(frame.private_data);
        let mut octets = [0; PrivateData::LEN];
        offer.emit(&mut octets);
        assert_eq!(octets, frame.private_data);
        offer
    });
    ([client, server], offers)
}

fn receive(ends: &mut [End; 2], from: Side, ulpdu: &[u8], visitor: &mut impl Visitor) {
    let end = &mut ends[index(other(from))];
    let inbound = end.stream.handle_ulpdu(ulpdu).unwrap();
    let read = match &inbound {
        Inbound::ReadRequest => {
            Some(ReadHeader::parse(ulpdu[ddp::UNTAGGED_LEN..].try_into().unwrap()))
        }
        Inbound::ReadResponse(segment) => Some(end.reads[segment.token as usize]),
        Inbound::Send(_) | Inbound::Write(_) => None,
        other => panic!("{other:?}"),
    };
    visitor.visit_inbound(from, &inbound, read);
}

/// The header comes out of its codec as it was, and so do pad and CRC field.
fn check_framing(fpdu: &[u8], ulpdu: &[u8]) {
    let (header, payload) = ddp::Header::parse(ulpdu).unwrap();
    let header = header.emit();
    assert_eq!(header[..], ulpdu[..header.len()]);
    let length_and_header = [&fpdu[..fpdu::LENGTH_LEN], &header].concat();
    // siw fills larger segments than we send.
    if ulpdu.len() <= usize::from(MULPDU_MAX) {
        let framed = Framer::with(false, false).frame::<Table, _>(&length_and_header, [payload]);
        assert_eq!([&length_and_header, payload, &framed.trailer].concat(), fpdu);
    }
}

/// Sends a message of this end again once its last segment is seen: whether the segments were those
/// of the capture, or were larger there than ours may be, or of several lengths.
fn send_again(end: &mut End, fpdu: &[u8]) -> Option<bool> {
    let (header, _) = ddp::Header::parse(&fpdu[fpdu::LENGTH_LEN..]).unwrap();
    let (class, last) = match header {
        ddp::Header::Untagged(header) => (0, header.last),
        ddp::Header::Tagged(header) => (1, header.last),
    };
    end.sent[class].push(fpdu.to_vec());
    if !last {
        return None;
    }
    let segments = std::mem::take(&mut end.sent[class]);
    let mut message = begin(end, &segments);
    let mulpdu =
        segments.iter().map(|segment| u16::from_be_bytes([segment[0], segment[1]])).max().unwrap();
    let is_even = segments.iter().rev().skip(1).all(|segment| segment[..2] == mulpdu.to_be_bytes());
    let fits = mulpdu <= MULPDU_MAX && is_even;
    let mut expected = segments.iter();
    while let Some(segment) = end.stream.poll_segment(&mut message, mulpdu) {
        if fits {
            let sent = expected.next().unwrap();
            assert_eq!(segment.header[..], sent[..segment.header.len()]);
            assert_eq!(segment.last, expected.len() == 0);
        }
    }
    Some(fits)
}

fn begin(end: &mut End, segments: &[Vec<u8>]) -> Message {
    let ulpdu =
        |fpdu: &Vec<u8>| fpdu[2..2 + usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]))].to_vec();
    let ulpdus: Vec<_> = segments.iter().map(ulpdu).collect();
    let payload_len = |header_len: usize| {
        ulpdus.iter().map(|ulpdu| ulpdu.len() - header_len).sum::<usize>() as u32
    };
    let (header, payload) = ddp::Header::parse(&ulpdus[0]).unwrap();
    match header {
        ddp::Header::Untagged(header) if header.queue == ddp::QUEUE_READ => {
            let read = ReadHeader::parse(payload.try_into().unwrap());
            end.reads.push(read);
            end.stream.begin_read(read, end.reads.len() as u64 - 1).unwrap()
        }
        ddp::Header::Untagged(header) => {
            let opcode = header.control & 0x0F;
            let invalidate = matches!(opcode, 4 | 6).then_some(header.invalidate);
            end.stream
                .begin_send(payload_len(ddp::UNTAGGED_LEN), invalidate, matches!(opcode, 5 | 6))
                .unwrap()
        }
        ddp::Header::Tagged(header) if header.control & 0x0F == 0 => {
            end.stream.begin_write(payload_len(ddp::TAGGED_LEN), header.stag, header.to).unwrap()
        }
        ddp::Header::Tagged(_) => end.stream.begin_read_response().unwrap(),
    }
}
