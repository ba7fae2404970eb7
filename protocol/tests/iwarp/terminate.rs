//! The Terminate in both encodings, after which nothing is sent (checklist 72, 74).

use stag_protocol::iwarp::ddp::{self, Header};
use stag_protocol::iwarp::fpdu::Framer;
use stag_protocol::iwarp::mpa::{Config, Failure, Frame, Initiator, Kind, Negotiated, Parsed};
use stag_protocol::iwarp::rdmap::*;
use stag_protocol::iwarp::stream::*;

use super::fpdu::{unmarked, written};
use super::inbound::{TestStream, negotiated, open, read_request, send, write};
use super::{Bitwise, hex};

fn ulpdu(queue: u8, msn: u8, mo: u8, payload: &[u8]) -> Vec<u8> {
    let header = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, msn, 0, 0, 0, mo];
    [&header[..], payload].concat()
}

fn parsed(payload: &str, peer: Peer) -> Terminated {
    Terminated::parse(&hex(payload), peer).unwrap()
}

// 72
#[test]
fn every_cause_reads_back_in_the_form_of_the_rfc() {
    for cause in Terminate::ALL {
        let plain = Violation::new(*cause);
        let terminated = Terminated::parse(plain.payload(), Peer::Hardware).unwrap();
        let expected = Terminated {
            cause: *cause,
            form: TerminateForm::Rfc,
            segment_len: None,
            header: None,
            read: None,
        };
        assert_eq!(terminated, expected);
        let segment = write(true, 0x1122_3344, 0x2000, b"hello");
        let (header, payload) = Header::parse(&segment).unwrap();
        let with_header = Violation::of_segment(*cause, &header, payload.len());
        for peer in [Peer::Hardware, Peer::Siw, Peer::Stag] {
            let terminated = Terminated::parse(with_header.payload(), peer).unwrap();
            assert_eq!(
                terminated,
                Terminated { segment_len: Some(19), header: Some(header), ..expected }
            );
        }
        let read = ReadHeader { sink_stag: 1, sink_to: 2, len: 3, source_stag: 4, source_to: 5 };
        let of_read = Violation::of_read(*cause, 9, &read);
        let terminated = Terminated::parse(of_read.payload(), Peer::Hardware).unwrap();
        let Some(Header::Untagged(header)) = terminated.header else { panic!() };
        assert_eq!(
            (terminated.read, header.msn, terminated.segment_len),
            (Some(read), 9, Some(46))
        );
    }
}

// 72
#[test]
fn the_form_of_siw_is_understood() {
    let siw = TerminateForm::Siw;
    let untagged = "4143 00000000 00000000 00000005 00000000";
    // DDP, untagged, wrong MSN, with the header; the length is that of the payload alone.
    let terminated = parsed(&format!("21030300 0005 {untagged}"), Peer::Hardware);
    assert_eq!((terminated.cause, terminated.form), (Terminate::DDP_INVALID_MSN, siw));
    assert_eq!(terminated.segment_len, Some(5));
    assert_eq!(terminated.header, Some(Header::parse(&hex(untagged)).unwrap().0));
    // LLP, CRC: no header, no flag. Only the peer, or the one valid reading, decides the encoding.
    assert_eq!(parsed("02020000", Peer::Siw).cause, Terminate::MPA_CRC);
    assert_eq!(parsed("02020000", Peer::Hardware).cause, Terminate::MPA_CRC);
    assert_eq!(parsed("20020000", Peer::Hardware).cause, Terminate::MPA_CRC);
    assert_eq!(parsed("20020000", Peer::Stag).cause, Terminate::MPA_CRC);
    // Both readings make sense: the peer decides.
    assert_eq!(parsed("20060000", Peer::Hardware).cause, Terminate::MPA_INSUFFICIENT_IRD);
    assert_eq!(parsed("20060000", Peer::Stag).cause, Terminate::MPA_INSUFFICIENT_IRD);
    assert_eq!(parsed("20060000", Peer::Siw).cause, Terminate::UNEXPECTED_OPCODE);
    assert_eq!(parsed("02060000", Peer::Siw).cause, Terminate::MPA_INSUFFICIENT_IRD);
    assert_eq!(parsed("02060000", Peer::Hardware).cause, Terminate::UNEXPECTED_OPCODE);
    // Or its flags do.
    assert_eq!(parsed("20060300", Peer::Hardware).cause, Terminate::UNEXPECTED_OPCODE);
    assert_eq!(parsed("2006c000", Peer::Siw).cause, Terminate::MPA_INSUFFICIENT_IRD);
    // A remote protection error of a Read, with both headers.
    let request = read_request(2, &ReadHeader { len: 7, ..ReadHeader::default() });
    let payload = [&hex("10000700 001c"), &request[..]].concat();
    let terminated = Terminated::parse(&payload, Peer::Siw).unwrap();
    assert_eq!(terminated.cause, Terminate::RDMAP_INVALID_STAG);
    assert_eq!(terminated.read.unwrap().len, 7);
    // The R flag of a Send with Invalidate, with nothing after it.
    let terminated = parsed("20090700 0005 4144 deadbe01 00000000 00000001 00000000", Peer::Siw);
    assert_eq!((terminated.cause, terminated.read), (Terminate::RDMAP_INVALIDATE_UNKNOWN, None));
    assert!(terminated.header.is_some());
    let mut payload = hex("20090700 0005 4144 deadbe01 00000000 00000001 00000000");
    payload.resize(payload.len() + 28, 0); // nor does what happens to stand there
    assert_eq!(Terminated::parse(&payload, Peer::Siw).unwrap().read, None);
}

// 72
#[test]
fn a_truncated_terminate_still_tells_its_cause() {
    let whole = hex("0100 e000 002e");
    let whole = [&whole[..], &read_request(1, &ReadHeader::default())].concat();
    for cut in 0..=whole.len() + 4 {
        let mut payload = whole.clone();
        payload.resize(cut, 0xFF); // longer than it should be, too
        let terminated = Terminated::parse(&payload, Peer::Hardware);
        assert_eq!(terminated.is_some(), cut >= 4);
        let Some(terminated) = terminated else { continue };
        assert_eq!(terminated.cause, Terminate::RDMAP_INVALID_STAG);
        assert_eq!(terminated.segment_len.is_some(), cut >= 6);
        assert_eq!(terminated.header.is_some(), cut >= 6 + 18);
        assert_eq!(terminated.read.is_some(), cut >= 6 + 18 + 28);
    }
}

// 72
#[test]
fn any_four_octets_are_a_cause() {
    for first in 0..=255 {
        for flags in 0..=255 {
            for code in [0, 1, 2, 6, 9, 0xFF] {
                for peer in [Peer::Hardware, Peer::Siw, Peer::Stag] {
                    let payload = [first, code, flags, 0, 0, 14, 0xC1, 0x40, 0, 0];
                    let terminated = Terminated::parse(&payload, peer).unwrap();
                    assert_eq!(terminated.cause.code, code);
                    let (high, low) = (first >> 4, first & 15);
                    let pair = (terminated.cause.layer, terminated.cause.error_type);
                    assert!(pair == (high, low) || pair == (low, high));
                }
            }
        }
    }
}

// 72
#[test]
fn a_terminate_in_the_wrong_place_is_a_violation_itself() {
    let cause = |octets: &[u8]| open().handle_ulpdu(octets).unwrap_err().terminate;
    let payload = hex("1100 0000");
    assert_eq!(cause(&ulpdu(0, 1, 0, &payload)), Terminate::DDP_INVALID_QUEUE);
    assert_eq!(cause(&ulpdu(3, 1, 0, &payload)), Terminate::DDP_INVALID_QUEUE);
    assert_eq!(cause(&ulpdu(2, 0, 0, &payload)), Terminate::DDP_INVALID_MSN);
    assert_eq!(cause(&ulpdu(2, 2, 0, &payload)), Terminate::DDP_INVALID_MSN);
    assert_eq!(cause(&ulpdu(2, 1, 4, &payload)), Terminate::DDP_INVALID_MO);
    for len in 0..4 {
        assert_eq!(cause(&ulpdu(2, 1, 0, &payload[..len])), Terminate::RDMAP_UNSPECIFIED);
    }
}

// 72, 74
#[test]
fn after_a_received_terminate_everything_is_dropped_and_nothing_is_sent() {
    let mut stream = open();
    let mut sending = stream.begin_send(5000, None, false).unwrap();
    stream.poll_segment(&mut sending, 1442).unwrap();
    stream.begin_read(ReadHeader { len: 8, ..ReadHeader::default() }, 4).unwrap();
    stream.handle_ulpdu(&read_request(1, &ReadHeader::default())).unwrap();
    let octets = ulpdu(2, 1, 0, &hex("1100 0000"));
    let Ok(Inbound::Terminated(terminated)) = stream.handle_ulpdu(&octets) else { panic!() };
    assert_eq!(terminated.cause, Terminate::DDP_INVALID_STAG);
    assert_eq!(stream.handle_ulpdu(&octets), Ok(Inbound::Dropped), "a second one");
    assert_eq!(stream.handle_ulpdu(&send(true, 1, 0, b"x")), Ok(Inbound::Dropped));
    assert_silent(&mut stream, &mut sending);
    assert!(stream.begin_terminate(&Violation::new(Terminate::MPA_CRC)).is_none());
    assert_eq!(stream.outstanding_reads().count(), 1, "to be flushed");
}

// 74
#[test]
fn our_terminate_is_the_last_segment() {
    let mut stream = open();
    let mut sending = stream.begin_send(5000, None, false).unwrap();
    stream.poll_segment(&mut sending, 1442).unwrap();
    let violation = stream.handle_ulpdu(&send(true, 7, 0, b"x")).unwrap_err();
    assert_silent(&mut stream, &mut sending);
    let mut message = stream.begin_terminate(&violation).unwrap();
    let segment = stream.poll_segment(&mut message, 128).unwrap();
    let expected = "002a 4147 00000000 00000002 00000001 00000000 \
                    1203 c000 0013 4143 00000000 00000000 00000007 00000000";
    assert_eq!(*segment.header, *hex(expected));
    assert!(segment.last && segment.len == 0);
    assert_eq!(stream.poll_segment(&mut message, 128), None);
    assert!(stream.begin_terminate(&violation).is_none(), "once");
    assert_silent(&mut stream, &mut sending);
    let late = stream.fail();
    assert!(stream.begin_terminate(&late).is_none(), "the first error wins");
}

fn assert_silent(stream: &mut TestStream, sending: &mut Message) {
    assert!(stream.is_ended() && !stream.may_send());
    assert_eq!(stream.poll_segment(sending, 1442), None);
    assert_eq!(stream.begin_send(1, None, false).unwrap_err(), Refused::Ended);
    assert_eq!(stream.begin_write(1, 1, 0).unwrap_err(), Refused::Ended);
    assert_eq!(stream.begin_read(ReadHeader::default(), 0).unwrap_err(), Refused::Ended);
    assert!(stream.next_read().is_none() && stream.begin_read_response().is_none());
    assert!(stream.begin_rtr(0).is_none());
}

#[test]
fn a_peer_that_blames_a_read_names_it() {
    let mut stream = open();
    for token in [10, 11, 12] {
        stream.begin_read(ReadHeader { len: 8, ..ReadHeader::default() }, token).unwrap();
    }
    let blamed = |stream: &TestStream, msn| {
        let violation = Violation::of_read(Terminate::RDMAP_ACCESS, msn, &ReadHeader::default());
        let terminated = Terminated::parse(violation.payload(), Peer::Stag).unwrap();
        stream.blamed_read(&terminated).map(|read| read.token)
    };
    assert_eq!([1, 2, 3, 4].map(|msn| blamed(&stream, msn)), [Some(10), Some(11), Some(12), None]);
    let violation = Violation::new(Terminate::RDMAP_ACCESS);
    let terminated = Terminated::parse(violation.payload(), Peer::Stag).unwrap();
    assert!(stream.blamed_read(&terminated).is_none());
}

#[test]
fn a_first_fpdu_that_breaks_a_rule_of_ddp_gets_its_terminate_and_one_that_is_no_fpdu_gets_none() {
    let mut stream = TestStream::new(&Negotiated { ..negotiated() });
    assert!(!stream.may_send());
    let violation = stream.clone().handle_ulpdu(&send(true, 7, 0, b"x")).unwrap_err();
    let mut broken = stream.clone();
    broken.handle_ulpdu(&send(true, 7, 0, b"x")).unwrap_err();
    let mut message = broken.begin_terminate(&violation).unwrap();
    assert!(broken.poll_segment(&mut message, 1442).unwrap().last);
    // RFC 5044 §7.1.2: a responder sends no FPDU, whichever, before it has a valid one.
    for cause in [Terminate::MPA_CRC, Terminate::MPA_LENGTH] {
        let mut stream = stream.clone();
        let violation = stream.refuse_fpdu(cause);
        assert_eq!(violation.terminate, cause, "for our own side");
        assert!(stream.is_ended() && stream.begin_terminate(&violation).is_none());
    }
    let violation = stream.fail();
    assert!(stream.begin_terminate(&violation).is_none());
}

// 4, 5, 6: how an initiator says that set-up failed.
#[test]
fn a_failed_negotiation_ends_with_its_terminate_as_the_only_fpdu() {
    let initiator = Initiator::new(Config { ird: 4, ord: 4, ..Config::default() });
    // The responder asks for markers and names no indication.
    let reply = hex("4d504120494420526570204672616d65 d0020004 00040004");
    let Ok(Parsed::Frame(frame, _)) = Frame::parse(&reply, Kind::Reply) else { panic!() };
    let Err(Failure::Terminate(cause, negotiated)) = initiator.handle_reply(&frame) else {
        panic!()
    };
    let (mut stream, mut framer) = (TestStream::new(&negotiated), Framer::new(&negotiated));
    let violation = stream.refuse_fpdu(cause);
    let mut message = stream.begin_terminate(&violation).unwrap();
    let segment = stream.poll_segment(&mut message, 1442).unwrap();
    let framed = framer.frame::<Bitwise, _>(&segment.header, []);
    let stream = written(&framed, &segment.header, &[]);
    assert_eq!(unmarked(&stream), [hex("4147 00000000 00000002 00000001 00000000 20070000")]);
}

/// RFC 5040 Figure 9, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8.
#[test]
fn every_cause_has_the_numbers_of_its_specification() {
    let numbers = [
        (Terminate::RDMAP_LOCAL_CATASTROPHIC, 0x0000),
        (Terminate::RDMAP_INVALID_STAG, 0x0100),
        (Terminate::RDMAP_BOUNDS, 0x0101),
        (Terminate::RDMAP_ACCESS, 0x0102),
        (Terminate::RDMAP_NOT_ASSOCIATED, 0x0103),
        (Terminate::RDMAP_WRAP, 0x0104),
        (Terminate::RDMAP_CANNOT_INVALIDATE, 0x0109),
        (Terminate::RDMAP_PROTECTION_UNSPECIFIED, 0x01FF),
        (Terminate::RDMAP_VERSION, 0x0205),
        (Terminate::UNEXPECTED_OPCODE, 0x0206),
        (Terminate::RDMAP_CATASTROPHIC_STREAM, 0x0207),
        (Terminate::RDMAP_CATASTROPHIC_GLOBAL, 0x0208),
        (Terminate::RDMAP_INVALIDATE_UNKNOWN, 0x0209),
        (Terminate::RDMAP_UNSPECIFIED, 0x02FF),
        (Terminate::DDP_LOCAL_CATASTROPHIC, 0x1000),
        (Terminate::DDP_INVALID_STAG, 0x1100),
        (Terminate::DDP_BOUNDS, 0x1101),
        (Terminate::DDP_NOT_ASSOCIATED, 0x1102),
        (Terminate::DDP_WRAP, 0x1103),
        (Terminate::DDP_TAGGED_VERSION, 0x1104),
        (Terminate::DDP_INVALID_QUEUE, 0x1201),
        (Terminate::DDP_NO_BUFFER, 0x1202),
        (Terminate::DDP_INVALID_MSN, 0x1203),
        (Terminate::DDP_INVALID_MO, 0x1204),
        (Terminate::DDP_TOO_LONG, 0x1205),
        (Terminate::DDP_UNTAGGED_VERSION, 0x1206),
        (Terminate::MPA_TCP_LOST, 0x2001),
        (Terminate::MPA_CRC, 0x2002),
        (Terminate::MPA_LENGTH, 0x2003),
        (Terminate::MPA_BAD_FRAME, 0x2004),
        (Terminate::MPA_LOCAL_CATASTROPHIC, 0x2005),
        (Terminate::MPA_INSUFFICIENT_IRD, 0x2006),
        (Terminate::MPA_NO_RTR, 0x2007),
    ];
    assert_eq!(numbers.map(|(cause, _)| cause), Terminate::ALL);
    for (cause, number) in numbers {
        let said =
            u16::from(cause.layer) << 12 | u16::from(cause.error_type) << 8 | u16::from(cause.code);
        assert_eq!(said, number, "{cause}");
    }
}

#[test]
fn every_cause_has_its_own_name() {
    for (i, cause) in Terminate::ALL.iter().enumerate() {
        assert!(
            Terminate::ALL[..i].iter().all(|other| other != cause && other.name() != cause.name())
        );
        assert!(cause.layer <= 2 && cause.error_type <= 2);
    }
    let shown = Terminate::DDP_INVALID_MSN.to_string();
    assert_eq!(shown, "1/2/03 DDP message sequence number out of range");
    assert_eq!(
        Terminate { layer: 0, error_type: 0, code: 9 }.name(),
        "RDMAP local catastrophic error"
    );
    assert_eq!(Terminate { layer: 3, error_type: 0, code: 0 }.name(), "unknown cause");
    assert_eq!(ddp::header_len(0x80) + 4, ddp::header_len(0));
}
