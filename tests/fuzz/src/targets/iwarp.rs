//! Software iWARP: set-up frames, FPDUs, DDP and RDMAP headers.

use std::mem::discriminant;

use stag_protocol::iwarp::{
    ddp::{self, Header},
    fpdu::{self, CRC_LEN, Framer, LENGTH_LEN, Part},
    mpa::{
        Config, Crc, FRAME_MAX, Failure, Frame, FrameError, Initiator, Kind, NOT_NEGOTIATED,
        Negotiated, Outcome, PRIVATE_DATA_LIMIT, PRIVATE_DATA_MAX, Parsed, Request, Revision,
        RtrSet,
    },
    rdmap::{Opcode, Peer, ReadHeader, Terminate, TerminateForm, Terminated, Violation},
    stream,
};

use super::InputVerdict;
use crate::crc::Table;

/// Reads that may be outstanding in either direction: as many as siw asks for.
pub(super) const DEPTH: usize = 128;
pub(super) type FuzzStream = stream::Stream<DEPTH, DEPTH>;

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*octets[at..].first_chunk().unwrap())
}

/// Makes a configuration from an octet.
pub(super) fn config(octet: u8) -> Config {
    let bit = |bit: u8| octet & 1 << bit != 0;
    Config {
        crc: if bit(0) {
            Crc::Never
        } else if bit(1) {
            Crc::Always
        } else {
            Crc::Auto
        },
        revision: if bit(2) { Revision::One } else { Revision::Two },
        rtr: bit(3).then_some(RtrSet {
            send: bit(4),
            write: bit(5),
            read: bit(6) || !bit(4) && !bit(5),
        }),
        ird: if bit(7) { 2 } else { DEPTH as u16 },
        ord: if bit(7) { 1 } else { DEPTH as u16 },
    }
}

/// The first four octets say which frame is expected and how the end is configured; then a frame,
/// whole or not, and what follows.
pub fn mpa(input: &[u8]) -> InputVerdict {
    let Some(([kind, own, ..], octets)) = input.split_first_chunk::<4>() else {
        return InputVerdict::Refused(0);
    };
    let kind = if kind & 1 == 0 { Kind::Request } else { Kind::Reply };
    let (frame, len) = match Frame::parse(octets, kind) {
        Ok(Parsed::Frame(frame, len)) => (frame, len),
        Ok(Parsed::NeedMore(len)) => {
            assert!(len > octets.len() && len <= FRAME_MAX);
            return InputVerdict::Refused(1);
        }
        Err(error) => {
            // More octets never make it right.
            let mut longer = octets.to_vec();
            longer.extend([0; 32]);
            assert!(Frame::parse(&longer, kind).is_err());
            return InputVerdict::refused(&error);
        }
    };
    assert!(
        len <= octets.len() && len <= FRAME_MAX && frame.private_data.len() <= PRIVATE_DATA_LIMIT
    );
    for cut in [len - 1, len / 2] {
        assert!(matches!(Frame::parse(&octets[..cut], kind), Ok(Parsed::NeedMore(_))));
    }
    if frame.private_data.len() <= PRIVATE_DATA_MAX {
        let again = frame.emit();
        assert_eq!(Frame::parse(&again, kind), Ok(Parsed::Frame(frame, again.len())));
    }
    let config = config(*own);
    match kind {
        Kind::Request => accept(octets, len, &config),
        Kind::Reply => match adopt(&frame, &config) {
            Some(negotiated) => InputVerdict::accepted((
                negotiated.rtr.map(|rtr| discriminant(&rtr)),
                negotiated.crc,
            )),
            None => InputVerdict::Refused(2),
        },
    }
}

/// The Reply answers in the Request's own terms, and the initiator that would have sent the Request
/// takes it.
fn accept(octets: &[u8], len: usize, config: &Config) -> InputVerdict {
    if len < octets.len() {
        assert!(matches!(Request::parse(octets), Err(FrameError::Surplus)));
    }
    let request = Request::parse(&octets[..len]).unwrap().expect("a whole frame");
    let asked = request.frame;
    let (reply, negotiated) = request.accept(config, b"hello");
    let Ok(Parsed::Frame(reply, _)) = Frame::parse(&reply, Kind::Reply) else {
        panic!("our own Reply")
    };
    assert_eq!(
        (reply.revision, reply.crc, reply.private_data),
        (asked.revision, negotiated.crc, &b"hello"[..])
    );
    assert_eq!((reply.enhanced.is_some(), reply.reject), (asked.enhanced.is_some(), false));
    assert!(negotiated.crc || !asked.crc && config.crc != Crc::Always);
    assert_eq!(
        (negotiated.send_markers, negotiated.side),
        (asked.markers, stream::Side::Responder)
    );
    check_depths(&negotiated, config);
    if let (Some(asked), Some(said)) = (asked.enhanced, reply.enhanced) {
        assert_eq!(asked.rtr.is_some(), negotiated.rtr.is_some());
        assert!(asked.ird == NOT_NEGOTIATED || negotiated.ord <= asked.ird);
        assert!(said.ird == NOT_NEGOTIATED || said.ird == negotiated.ird);
    }
    let refusal = request.reject(config, b"");
    let Ok(Parsed::Frame(refusal, _)) = Frame::parse(&refusal, Kind::Reply) else {
        panic!("our own Reply")
    };
    assert!(refusal.reject);
    let _ = FuzzStream::new(&negotiated);
    InputVerdict::accepted((
        negotiated.rtr.map(|rtr| discriminant(&rtr)),
        negotiated.crc,
        discriminant(&negotiated.peer),
    ))
}

pub(super) fn adopt(reply: &Frame<'_>, config: &Config) -> Option<Negotiated> {
    let initiator = Initiator::new(*config);
    let request = initiator.request(b"hello");
    let Ok(Parsed::Frame(asked, _)) = Frame::parse(&request, Kind::Request) else {
        panic!("our own Request")
    };
    match initiator.handle_reply(reply) {
        Ok(Outcome::Accepted(negotiated, private_data)) => {
            assert_eq!((reply.reject, private_data), (false, reply.private_data));
            assert_eq!(reply.enhanced.is_some(), asked.enhanced.is_some());
            assert!(negotiated.crc || !reply.crc && config.crc == Crc::Never);
            check_depths(&negotiated, config);
            if let (Some(said), Some(asked)) = (reply.enhanced, asked.enhanced) {
                assert!(said.ird == NOT_NEGOTIATED || negotiated.ord <= said.ird);
                assert!(negotiated.rtr.is_some() == asked.rtr.is_some());
            }
            let _ = FuzzStream::new(&negotiated);
            Some(negotiated)
        }
        Ok(Outcome::Rejected(..)) => {
            assert!(reply.reject);
            None
        }
        Err(Failure::Close(error)) => {
            assert_eq!(error, FrameError::EnhancementMismatch);
            None
        }
        Err(Failure::Terminate(cause, _)) => {
            assert!([Terminate::MPA_INSUFFICIENT_IRD, Terminate::MPA_NO_RTR].contains(&cause));
            None
        }
    }
}

/// An indication by Read takes one place more than was wished for.
fn check_depths(negotiated: &Negotiated, config: &Config) {
    assert!(negotiated.ird <= config.ird.max(1) && negotiated.ord <= config.ord.max(1));
    assert!(usize::from(negotiated.ird) <= DEPTH && usize::from(negotiated.ord) <= DEPTH);
}

/// The first two octets say whether CRCs are checked, and whether markers are sent; then octets
/// that may be FPDUs.
pub fn fpdu(input: &[u8]) -> InputVerdict {
    let Some(([crc, markers], mut octets)) = input.split_first_chunk::<2>() else {
        return InputVerdict::Refused(0);
    };
    let crc = crc & 1 == 1;
    let mut framer = Framer::with(crc, false);
    let mut marking = Framer::with(crc, markers & 1 == 1);
    let (mut whole, mut marked) = (Vec::new(), Vec::new());
    let mut count = 0_usize;
    let end = loop {
        match fpdu::parse::<Table>(octets, crc) {
            Ok(fpdu::Parsed::NeedMore(len)) => {
                assert!(len > octets.len() && len <= fpdu::FPDU_MAX);
                break 0;
            }
            Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) => {
                check_fpdu(&octets[..consumed], &octets[ulpdu.clone()], crc, &mut framer);
                append(&mut marking, &octets[ulpdu.clone()], &mut marked);
                append(&mut Framer::with(crc, false), &octets[ulpdu], &mut whole);
                octets = &octets[consumed..];
                count += 1;
            }
            Err(cause) => {
                assert!([Terminate::MPA_CRC, Terminate::MPA_LENGTH].contains(&cause));
                assert!(cause != Terminate::MPA_CRC || crc);
                break 1;
            }
        }
    };
    if markers & 1 == 1 {
        assert_eq!(
            without_markers(&marked, crc),
            without_crcs(&whole, crc),
            "markers are all that differs"
        );
    } else {
        assert_eq!(marked, whole);
    }
    if count == 0 {
        InputVerdict::Refused(1 + end)
    } else {
        InputVerdict::accepted((count.min(8), end))
    }
}

fn check_fpdu(fpdu: &[u8], ulpdu: &[u8], crc: bool, framer: &mut Framer) {
    assert_eq!(usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]])), ulpdu.len());
    assert_eq!(fpdu.len(), fpdu::fpdu_len(ulpdu.len() as u16));
    assert!(fpdu.len().is_multiple_of(4) && ulpdu.len() >= ddp::header_len(ulpdu[0]));
    if ulpdu.len() <= usize::from(fpdu::MULPDU_MAX) {
        let mut again = Vec::new();
        append(framer, ulpdu, &mut again);
        let expected = fpdu::Parsed::Fpdu {
            ulpdu: LENGTH_LEN..LENGTH_LEN + ulpdu.len(),
            consumed: again.len(),
        };
        assert_eq!(fpdu::parse::<Table>(&again, crc), Ok(expected));
        assert_eq!(again[..LENGTH_LEN + ulpdu.len()], fpdu[..LENGTH_LEN + ulpdu.len()]);
    }
    for cut in [1, fpdu.len() / 2, fpdu.len() - 1] {
        assert!(!matches!(fpdu::parse::<Table>(&fpdu[..cut], crc), Ok(fpdu::Parsed::Fpdu { .. })));
    }
}

/// One more FPDU with this ULPDU.
pub fn append(framer: &mut Framer, ulpdu: &[u8], out: &mut Vec<u8>) {
    let len = ddp::header_len(ulpdu[0]).min(ulpdu.len());
    let mut header = (ulpdu.len() as u16).to_be_bytes().to_vec();
    header.extend_from_slice(&ulpdu[..len]);
    let payload = &ulpdu[len..];
    let framed = framer
        .frame::<Table, _>(&header, [&payload[..payload.len() / 3], &payload[payload.len() / 3..]]);
    let start = out.len();
    for part in framed.parts() {
        assert!(!part.is_empty());
        match part {
            Part::Marker(marker) => out.extend_from_slice(&marker),
            Part::Header(range) => out.extend_from_slice(&header[range]),
            Part::Payload(range) => out.extend_from_slice(&payload[range]),
            Part::Trailer(range) => out.extend_from_slice(&framed.trailer[range]),
        }
    }
    assert_eq!(out.len() - start, framed.wire_len());
}

/// The stream without its markers, each of which says where its FPDU began; CRC fields are zero.
fn without_markers(marked: &[u8], crc: bool) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut positions = Vec::new();
    for (index, block) in marked.chunks(fpdu::MARKER_INTERVAL).enumerate() {
        let (marker, rest) = block.split_at(fpdu::MARKER_LEN.min(block.len()));
        positions.push((plain.len(), index * fpdu::MARKER_INTERVAL, be32(marker, 0) as usize));
        plain.extend_from_slice(rest);
    }
    let plain = without_crcs(&plain, crc);
    // Where each FPDU begins in the stream without markers.
    let mut starts = vec![0];
    while let Some(length) = plain.get(*starts.last().unwrap()..).and_then(<[u8]>::first_chunk) {
        starts.push(starts.last().unwrap() + fpdu::fpdu_len(u16::from_be_bytes(*length)));
    }
    for (in_plain, in_marked, pointer) in positions {
        let start = starts.iter().rev().find(|start| **start <= in_plain).unwrap();
        // The markers between the FPDU's start and this one count, too.
        let start_in_marked =
            start + fpdu::MARKER_LEN * (1 + start / (fpdu::MARKER_INTERVAL - fpdu::MARKER_LEN));
        let expected = if *start == in_plain { 0 } else { in_marked - start_in_marked };
        assert_eq!(pointer, expected, "RFC 5044 §4.3");
    }
    plain
}

/// The FPDUs with zero for their CRCs: the CRC covers the markers.
fn without_crcs(plain: &[u8], crc: bool) -> Vec<u8> {
    let mut plain = plain.to_vec();
    let mut at = 0;
    while let Some(length) = plain.get(at..).and_then(<[u8]>::first_chunk) {
        at += fpdu::fpdu_len(u16::from_be_bytes(*length));
        if crc && let Some(sum) = plain.get_mut(at - CRC_LEN..at) {
            sum.fill(0);
        }
    }
    plain
}

/// A DDP segment.
pub fn ddp(input: &[u8]) -> InputVerdict {
    let (header, payload) = match Header::parse(input) {
        Ok(parsed) => parsed,
        Err(error) => return InputVerdict::refused(&error),
    };
    let out = header.emit();
    assert_eq!(out.len() + payload.len(), input.len());
    assert_eq!(out.len(), ddp::header_len(input[0]));
    assert!(
        out[0] ^ input[0] & 0xC3 == 0 && out[1..] == input[1..out.len()],
        "all but reserved bits"
    );
    assert_eq!(Header::parse(&out), Ok((header, &[][..])));
    for cut in 0..out.len() {
        assert_eq!(Header::parse(&out[..cut]), Err(ddp::Error::Short));
    }
    let control = input[1];
    let opcode = Opcode::parse(control);
    match opcode {
        Ok(opcode) => assert_eq!(opcode.control(), control & 0xCF),
        Err(cause) => {
            assert!([Terminate::RDMAP_VERSION, Terminate::UNEXPECTED_OPCODE].contains(&cause))
        }
    }
    InputVerdict::accepted((
        discriminant(&header),
        opcode.map(|opcode| opcode as u8).map_err(|cause| cause.code),
    ))
}

/// The first octet selects the kind of peer; then the payload of a Terminate, which is a Read
/// Request's header, too.
pub fn rdmap(input: &[u8]) -> InputVerdict {
    let Some((peer, payload)) = input.split_first() else { return InputVerdict::Refused(0) };
    let peer = [Peer::Hardware, Peer::Siw, Peer::Stag][usize::from(peer % 3)];
    if let Some(octets) = payload.first_chunk() {
        let header = ReadHeader::parse(octets);
        assert_eq!(*header.emit(), octets[..]);
        let rest = header.after(header.len / 2);
        assert_eq!(rest.len + header.len / 2, header.len);
        check_violation(&Violation::of_read(Terminate::RDMAP_BOUNDS, be32(octets, 0), &header));
    }
    check_violation(&Violation::of_ulpdu(Terminate::DDP_INVALID_MO, payload));
    let Some(told) = Terminated::parse(payload, peer) else {
        assert!(payload.len() < 4);
        return InputVerdict::Refused(1);
    };
    assert_eq!(told.cause.code, payload[1]);
    assert!(told.cause.layer < 16 && told.cause.error_type < 16 && !told.cause.name().is_empty());
    assert!(told.read.is_none() || told.header.is_some());
    assert!(told.header.is_none() || payload.len() >= 6 + ddp::TAGGED_LEN);
    let class = (
        discriminant(&told.form),
        told.segment_len.is_some(),
        told.header.is_some(),
        told.read.is_some(),
    );
    InputVerdict::accepted((class, told.cause.name()))
}

/// Checks that our report of a violation can be parsed.
pub(super) fn check_violation(violation: &Violation) {
    let told = Terminated::parse(violation.payload(), Peer::Stag).unwrap();
    assert_eq!((told.cause, told.form), (violation.terminate, TerminateForm::Rfc));
}
