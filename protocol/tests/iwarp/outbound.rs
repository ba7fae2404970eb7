//! Tests of the messages that this side sends, and of their timing (checklist 20, 25, 33, 65, 74).

use stag_protocol::iwarp::fpdu::{Framer, MULPDU_MAX};
use stag_protocol::iwarp::mpa::{Negotiated, Rtr};
use stag_protocol::iwarp::rdmap::{Opcode, Peer, ReadHeader, Terminate, Violation};
use stag_protocol::iwarp::stream::*;

use super::fpdu::{KNOWN, written};
use super::inbound::{TestStream, negotiated, open, read_request, tagged, write};
use super::{Bitwise, hex};

fn initiator(rtr: Option<Rtr>) -> TestStream {
    TestStream::new(&Negotiated { side: Side::Initiator, rtr, ..negotiated() })
}

/// The whole message as one FPDU.
fn fpdu(stream: &mut TestStream, mut message: Message, payload: &[u8]) -> Vec<u8> {
    let segment = stream.poll_segment(&mut message, 1442).unwrap();
    assert!(segment.last && stream.poll_segment(&mut message, 1442).is_none());
    let framed = Framer::with(true, false).frame::<Bitwise, _>(&segment.header, [payload]);
    written(&framed, &segment.header, payload)
}

const READ: ReadHeader = ReadHeader {
    sink_stag: 0xAABB_CC01,
    sink_to: 0x1000,
    len: 8192,
    source_stag: 0x1122_3344,
    source_to: 0x2000,
};

/// The short way of a Send or Write of one segment and the general one agree on every octet.
#[test]
fn a_segment_made_at_once_is_the_one_that_a_message_is_cut_into() {
    for (len, word) in [(0, None), (24, None), (4, Some(0xDEAD_BE01)), (0x1234, Some(7))] {
        let (mut short, mut general) = (initiator(None), initiator(None));
        for _ in 0..2 {
            let mut message = general.begin_send(len, word, false).unwrap();
            let segment = general.poll_segment(&mut message, 0x2000).unwrap();
            assert_eq!(
                short.send_at_once(len as u16, word).unwrap()[..],
                segment.header[..],
                "{len} {word:?}"
            );
        }
        let mut message = general.begin_write(len, 0x1122_3344, 0x0102_0304_0506_0708).unwrap();
        let segment = general.poll_segment(&mut message, 0x2000).unwrap();
        let header = short.write_at_once(len as u16, 0x1122_3344, 0x0102_0304_0506_0708).unwrap();
        assert_eq!(header[..], segment.header[..], "{len}");
    }
}

// 25
#[test]
fn operations_come_out_as_the_known_fpdus() {
    let mut stream = initiator(None);
    let message = stream.begin_send(24, None, false).unwrap();
    assert_eq!(fpdu(&mut stream, message, &[0; 24]), hex(KNOWN[0]));
    let message = stream.begin_write(5, 0x1122_3344, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(fpdu(&mut stream, message, b"hello"), hex(KNOWN[3]));
    let message = stream.begin_send(4, Some(0xDEAD_BE01), false).unwrap();
    assert_eq!(fpdu(&mut stream, message, b"ping"), hex(KNOWN[4]));
    let message = stream.begin_read(READ, 0).unwrap();
    assert_eq!(fpdu(&mut stream, message, b""), hex(KNOWN[5]));
    stream.handle_ulpdu(&read_request(1, &ReadHeader { len: 8, ..READ })).unwrap();
    let message = stream.begin_read_response().unwrap();
    assert_eq!(fpdu(&mut stream, message, &[0, 1, 2, 3, 4, 5, 6, 7]), hex(KNOWN[6]));
    let octets = write(true, 0x1122_3344, 0x2000, b"hello");
    let Ok(Inbound::Write(segment)) = stream.handle_ulpdu(&octets) else { panic!() };
    let violation = stream.refuse_write(&segment, TaggedFault::InvalidStag);
    let message = stream.begin_terminate(&violation).unwrap();
    assert_eq!(fpdu(&mut stream, message, b""), hex(KNOWN[7]));
    let mut stream = initiator(None);
    let message = stream.begin_terminate(&Violation::new(Terminate::MPA_CRC)).unwrap();
    assert_eq!(fpdu(&mut stream, message, b""), hex(KNOWN[8]));
}

// 25: RFC 5040 Figure 4.
#[test]
fn every_opcode_has_its_number_in_both_directions() {
    let opcodes = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::SendInvalidate,
        Opcode::SendSolicited,
        Opcode::SendSolicitedInvalidate,
        Opcode::Terminate,
    ];
    for (number, opcode) in (0x40..).zip(opcodes) {
        assert_eq!((opcode.control(), Opcode::parse(number)), (number, Ok(opcode)));
    }
}

// 3, 25
#[test]
fn the_indication_is_the_first_thing_an_initiator_sends() {
    for (rtr, known) in [
        (Rtr::Write, hex(KNOWN[1])),
        (Rtr::Send, hex(KNOWN[2])),
        (
            Rtr::Read,
            super::fpdu::closed(&hex(
                "4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000 \
                 00000001 0000000000000000",
            )),
        ),
    ] {
        let mut stream = initiator(Some(rtr));
        assert!(!stream.may_send());
        assert_eq!(stream.begin_send(1, None, false).unwrap_err(), Refused::Gate);
        assert_eq!(stream.begin_write(1, 1, 0).unwrap_err(), Refused::Gate);
        assert_eq!(stream.begin_read(READ, 0).unwrap_err(), Refused::Gate);
        // What the peer sends meanwhile opens nothing.
        stream.handle_ulpdu(&read_request(1, &READ)).unwrap();
        assert!(stream.begin_read_response().is_none() && !stream.may_send());
        let message = stream.begin_rtr(u64::MAX).unwrap();
        assert_eq!(fpdu(&mut stream, message, b""), known);
        assert!(stream.begin_rtr(0).is_none(), "once");
        assert!(stream.may_send());
        // An indication by Send or Read has taken the first number of its queue.
        let mut message = stream.begin_send(0, None, false).unwrap();
        let msn = stream.poll_segment(&mut message, 1442).unwrap().header[15];
        assert_eq!(msn, if rtr == Rtr::Send { 2 } else { 1 });
        let reads: Vec<u64> = stream.outstanding_reads().map(|read| read.token).collect();
        assert_eq!(reads, if rtr == Rtr::Read { vec![u64::MAX] } else { vec![] });
    }
}

// 20
#[test]
fn a_responder_sends_nothing_before_the_first_fpdu() {
    let mut stream = TestStream::new(&negotiated());
    for _ in 0..2 {
        assert!(!stream.may_send());
        assert_eq!(stream.begin_send(1, None, false).unwrap_err(), Refused::Gate);
        assert_eq!(stream.begin_write(1, 1, 0).unwrap_err(), Refused::Gate);
        assert_eq!(stream.begin_read(READ, 0).unwrap_err(), Refused::Gate);
        assert!(stream.begin_rtr(0).is_none() && stream.begin_read_response().is_none());
    }
    for first in
        [write(true, 1, 0, b""), super::inbound::send(true, 1, 0, b""), read_request(1, &READ)]
    {
        let mut stream = stream.clone();
        stream.handle_ulpdu(&first).unwrap();
        assert!(stream.may_send());
        let mut message = stream.begin_send(0, None, false).unwrap();
        assert_eq!(stream.poll_segment(&mut message, 1442).unwrap().header[13..16], [0, 0, 1]);
    }
}

/// Polls a message to its end under changing sizes and checks that the segments tile it.
fn tiled(stream: &mut TestStream, mut message: Message, len: u32, mulpdus: &[u16]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut next = 0;
    for mulpdu in mulpdus.iter().cycle() {
        let Some(segment) = stream.poll_segment(&mut message, *mulpdu) else { break };
        let length = u16::from_be_bytes([segment.header[0], segment.header[1]]);
        assert_eq!(usize::from(length), segment.header.len() - 2 + segment.len as usize);
        assert!(length <= (*mulpdu).clamp(128, MULPDU_MAX));
        assert_eq!(segment.offset, next);
        next += segment.len;
        assert_eq!(segment.last, next == len);
        assert_eq!(segment.header[2] & 0x40 != 0, segment.last);
        segments.push(segment);
    }
    assert_eq!((next, message.remaining()), (len, 0));
    segments
}

// 33
#[test]
fn segments_tile_every_message_at_any_size() {
    for len in (0..400).chain([1424, 1425, 1428, 1429, 65_536, 1 << 20]) {
        for mulpdus in [&[128][..], &[1442], &[64_768], &[0], &[u16::MAX], &[1442, 128, 9000]] {
            let mut stream = initiator(None);
            let message = stream.begin_write(len, 7, 0x1_0000_0000).unwrap();
            for segment in tiled(&mut stream, message, len, mulpdus) {
                let expected = tagged(
                    Opcode::Write,
                    segment.last,
                    7,
                    0x1_0000_0000 + u64::from(segment.offset),
                    b"",
                );
                assert_eq!(segment.header[2..], expected);
            }
            let message = stream.begin_send(len, Some(9), true).unwrap();
            for segment in tiled(&mut stream, message, len, mulpdus) {
                assert_eq!(segment.header[3..16], hex("46 00000009 00000000 00000001"));
                assert_eq!(segment.header[16..], segment.offset.to_be_bytes());
            }
            stream.handle_ulpdu(&read_request(1, &ReadHeader { len, ..READ })).unwrap();
            let message = stream.begin_read_response().unwrap();
            assert!(stream.next_read().is_none());
            tiled(&mut stream, message, len, mulpdus);
        }
    }
}

#[test]
fn an_empty_message_is_exactly_one_segment() {
    let mut stream = open();
    stream.handle_ulpdu(&read_request(1, &ReadHeader { len: 0, ..READ })).unwrap();
    let messages = [
        stream.begin_send(0, None, false).unwrap(),
        stream.begin_write(0, 0, 0).unwrap(),
        stream.begin_read_response().unwrap(),
    ];
    for message in messages {
        assert_eq!(tiled(&mut stream, message, 0, &[1442]).len(), 1);
    }
}

// A message of 2^32 - 1 octets stays inside its counters.
#[test]
fn the_longest_message_ends() {
    let mut stream = open();
    let message = stream.begin_send(u32::MAX, None, false).unwrap();
    assert_eq!(tiled(&mut stream, message, u32::MAX, &[MULPDU_MAX]).len(), 66_332);
    // A sink at the end of its space is the peer's business.
    stream
        .handle_ulpdu(&read_request(1, &ReadHeader { sink_to: u64::MAX, len: 300, ..READ }))
        .unwrap();
    let message = stream.begin_read_response().unwrap();
    let segments = tiled(&mut stream, message, 300, &[128]);
    assert_eq!(segments[1].header[8..16], 113u64.to_be_bytes());
}

// 65
#[test]
fn reads_beyond_the_ord_wait_for_an_answer() {
    let mut stream = TestStream::new(&Negotiated { side: Side::Initiator, ord: 2, ..negotiated() });
    let mut expected = 1u64;
    for token in 1..=50 {
        while let Err(refused) = stream.begin_read(ReadHeader { len: 4, ..READ }, token) {
            assert_eq!(refused, Refused::OrdFull);
            assert!(stream.begin_send(0, None, false).is_ok(), "only Reads wait here");
            let octets = tagged(Opcode::ReadResponse, true, READ.sink_stag, READ.sink_to, b"1234");
            let Ok(Inbound::ReadResponse(segment)) = stream.handle_ulpdu(&octets) else { panic!() };
            assert_eq!(segment.token, expected);
            expected += 1;
        }
    }
    assert_eq!(expected, 49);
    let msns: Vec<u32> = stream.outstanding_reads().map(|read| read.msn).collect();
    assert_eq!(msns, [49, 50]);
}

// 65: the room there is and the depth negotiated both limit.
#[test]
fn the_ord_is_the_lesser_of_room_and_agreement() {
    for ord in 0..8u16 {
        let mut stream =
            TestStream::new(&Negotiated { side: Side::Initiator, ord, ..negotiated() });
        let begun = (0..10).filter(|token| stream.begin_read(READ, *token).is_ok()).count();
        assert_eq!(begun, usize::from(ord).min(4));
    }
}

// 61, 62: order.
#[test]
fn inbound_reads_are_answered_in_order() {
    let mut stream = open();
    for round in 0..10u32 {
        for i in 0..4 {
            let header = ReadHeader { len: 300, sink_stag: round * 4 + i, ..READ };
            stream.handle_ulpdu(&read_request(round * 4 + i + 1, &header)).unwrap();
        }
        for i in 0..4 {
            let request = stream.next_read().unwrap();
            assert_eq!((request.header.sink_stag, request.msn), (round * 4 + i, round * 4 + i + 1));
            let mut message = stream.begin_read_response().unwrap();
            assert!(stream.begin_read_response().is_none(), "one at a time");
            while let Some(segment) = stream.poll_segment(&mut message, 128) {
                assert_eq!(segment.header[4..8], (round * 4 + i).to_be_bytes());
            }
        }
        assert!(stream.next_read().is_none());
    }
}

#[test]
fn a_peer_of_any_kind_gets_the_same_octets() {
    for peer in [Peer::Hardware, Peer::Siw, Peer::Stag] {
        let mut stream =
            TestStream::new(&Negotiated { side: Side::Initiator, peer, ..negotiated() });
        let violation = stream.refuse_fpdu(Terminate::MPA_CRC);
        let message = stream.begin_terminate(&violation).unwrap();
        assert_eq!(fpdu(&mut stream, message, b""), hex(KNOWN[8]));
    }
}
