//! Messages that a peer may send, and the answer to each broken rule (checklist 35 to 63, 66, 67).

use fastrand::Rng;
use stag_protocol::iwarp::ddp::{self, Tagged, Untagged};
use stag_protocol::iwarp::mpa::{Config, Initiator, Negotiated, Request, Rtr};
use stag_protocol::iwarp::rdmap::{Opcode, ReadHeader, Terminate, Violation};
use stag_protocol::iwarp::stream::*;

use super::{fpdu::KNOWN, hex, octets};

pub type TestStream = Stream<4, 4>;

/// Parameters that a client-server pair agrees on, as the responder sees them.
pub fn negotiated() -> Negotiated {
    let config = Config { rtr: None, ird: 4, ord: 4, ..Config::default() };
    let request = Initiator::new(config).request(b"");
    Request::parse(&request).unwrap().unwrap().accept(&config, b"").1
}

pub fn stream() -> TestStream {
    Stream::new(&negotiated())
}

/// A stream of ours that may send: the peer has been heard.
pub fn open() -> TestStream {
    let mut stream = stream();
    stream.handle_ulpdu(&write(true, 1, 0, b"")).unwrap();
    stream
}

pub fn write(last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::Write, last, stag, to, payload)
}

pub fn tagged(opcode: Opcode, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    [&Tagged { last, control: opcode.control(), stag, to }.emit()[..], payload].concat()
}

fn untagged(opcode: Opcode, last: bool, queue: u32, place: (u32, u32), payload: &[u8]) -> Vec<u8> {
    let (msn, mo) = place;
    let header = Untagged { last, control: opcode.control(), invalidate: 0, queue, msn, mo };
    [&header.emit()[..], payload].concat()
}

pub fn send(last: bool, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, last, 0, (msn, mo), payload)
}

pub fn read_request(msn: u32, header: &ReadHeader) -> Vec<u8> {
    untagged(Opcode::ReadRequest, true, 1, (msn, 0), &header.emit())
}

pub const READ: ReadHeader = ReadHeader {
    sink_stag: 0xAABB_CC01,
    sink_to: 0x1000,
    len: 8192,
    source_stag: 0x1122_3344,
    source_to: 0x2000,
};

/// The violation, its headers checked: a DDP header goes back as it came, an MPA one has none (RFC
/// 5040 Figure 10).
fn violation(stream: &mut TestStream, ulpdu: &[u8]) -> Terminate {
    let violation = stream.handle_ulpdu(ulpdu).expect_err("a violation");
    let Terminate { layer, error_type, code } = violation.terminate;
    let payload = violation.payload();
    let (control, headers) = payload.split_at(4);
    if layer == 2 {
        assert_eq!(payload, [layer << 4 | error_type, code, 0, 0]);
    } else {
        assert_eq!(control, [layer << 4 | error_type, code, 0xC0, 0]);
        let header_len = if ulpdu[0] & 0x80 != 0 { 14 } else { 18 };
        assert_eq!(headers[..2], (ulpdu.len() as u16).to_be_bytes());
        assert_eq!(headers[2..], ulpdu[..header_len]);
    }
    assert!(stream.is_ended());
    assert_eq!(stream.handle_ulpdu(&send(true, 1, 0, b"late")), Ok(Inbound::Dropped));
    violation.terminate
}

fn first_violation(ulpdu: &[u8]) -> Terminate {
    violation(&mut stream(), ulpdu)
}

// 35, 36
#[test]
fn only_ddp_version_one_is_spoken() {
    for version in [0, 2, 3] {
        let mut octets = write(true, 1, 0, b"x");
        octets[0] = octets[0] & 0xFC | version;
        assert_eq!(first_violation(&octets), Terminate::DDP_TAGGED_VERSION);
        let mut octets = send(true, 1, 0, b"x");
        octets[0] = octets[0] & 0xFC | version;
        assert_eq!(first_violation(&octets), Terminate::DDP_UNTAGGED_VERSION);
    }
}

// 37
#[test]
fn reserved_bits_are_not_looked_at() {
    for bits in 0..16 {
        for rdmap in [0, 0x10, 0x20, 0x30] {
            let mut octets = write(true, 7, 9, b"x");
            octets[0] |= bits << 2;
            octets[1] |= rdmap;
            let expected = WriteSegment { stag: 7, to: 9, last: true, payload: b"x" };
            assert_eq!(stream().handle_ulpdu(&octets), Ok(Inbound::Write(expected)));
            let mut octets = send(true, 1, 0, b"x");
            octets[0] |= bits << 2;
            octets[1] |= rdmap;
            octets[2..6].copy_from_slice(&[0xFF; 4]); // reserved unless the Send invalidates
            let Ok(Inbound::Send(segment)) = stream().handle_ulpdu(&octets) else { panic!() };
            assert_eq!((segment.invalidate, segment.payload), (None, &b"x"[..]));
            for (opcode, queue, payload) in [
                (Opcode::SendSolicited, 0, &b"x"[..]),
                (Opcode::ReadRequest, 1, &READ.emit()),
                (Opcode::Terminate, 2, &[0x11, 0, 0, 0]),
            ] {
                let mut octets = untagged(opcode, true, queue, (1, 0), payload);
                octets[0] |= bits << 2;
                octets[1] |= rdmap;
                octets[2..6].copy_from_slice(&[0xFF; 4]);
                stream().handle_ulpdu(&octets).unwrap();
            }
        }
    }
}

// 38
#[test]
fn an_opcode_on_another_queue_is_an_invalid_queue() {
    for opcode in [Opcode::Send, Opcode::SendSolicited, Opcode::ReadRequest, Opcode::Terminate] {
        for queue in [0, 1, 2, 3, 7, 0x100, u32::MAX] {
            if opcode.queue() == Some(queue) {
                continue;
            }
            let octets = untagged(opcode, true, queue, (1, 0), &READ.emit());
            assert_eq!(
                first_violation(&octets),
                Terminate::DDP_INVALID_QUEUE,
                "{opcode:?} {queue}"
            );
        }
    }
    // A queue that no stream has is DDP's matter, before RDMAP looks at its own octet.
    for (queue, cause) in [(3, Terminate::DDP_INVALID_QUEUE), (0, Terminate::UNEXPECTED_OPCODE)] {
        let mut octets = untagged(Opcode::Send, true, queue, (1, 0), &READ.emit());
        octets[1] |= 0x0F;
        assert_eq!(first_violation(&octets), cause, "queue {queue}");
    }
}

// 39
#[test]
fn message_numbers_start_at_one_and_neither_skip_nor_repeat() {
    for msn in [0, 2, 3, u32::MAX] {
        assert_eq!(first_violation(&send(true, msn, 0, b"x")), Terminate::DDP_INVALID_MSN);
        assert_eq!(first_violation(&read_request(msn, &READ)), Terminate::DDP_INVALID_MSN);
    }
    for msn in [0, 1, 3, u32::MAX] {
        let mut stream = stream();
        stream.handle_ulpdu(&send(true, 1, 0, b"x")).unwrap();
        stream.handle_ulpdu(&read_request(1, &READ)).unwrap();
        assert_eq!(
            violation(&mut stream.clone(), &send(true, msn, 0, b"x")),
            Terminate::DDP_INVALID_MSN
        );
        assert_eq!(violation(&mut stream, &read_request(msn, &READ)), Terminate::DDP_INVALID_MSN);
    }
}

// 41
#[test]
fn offsets_of_a_send_have_neither_gap_nor_overlap() {
    assert_eq!(first_violation(&send(true, 1, 1, b"x")), Terminate::DDP_INVALID_MO);
    for mo in [0, 3, 5, u32::MAX] {
        let mut stream = stream();
        stream.handle_ulpdu(&send(false, 1, 0, b"1234")).unwrap();
        assert_eq!(violation(&mut stream, &send(true, 1, mo, b"x")), Terminate::DDP_INVALID_MO);
    }
    let mut octets = read_request(1, &READ);
    octets[17] = 1;
    assert_eq!(first_violation(&octets), Terminate::DDP_INVALID_MO);
}

// 42, 43
#[test]
fn a_send_that_its_receive_refuses() {
    for (fault, cause) in [
        (SendFault::TooLong, "1205"),
        (SendFault::NoBuffer, "1202"),
        (SendFault::InvalidateUnknown, "0209"), // 60
        (SendFault::CannotInvalidate, "0109"),
    ] {
        for opcode in [
            Opcode::Send,
            Opcode::SendInvalidate,
            Opcode::SendSolicited,
            Opcode::SendSolicitedInvalidate,
        ] {
            let mut stream = stream();
            let invalidate = if opcode.invalidates() { 0xDEAD_BE01 } else { 0 };
            let header = Untagged {
                last: true,
                control: opcode.control(),
                invalidate,
                queue: 0,
                msn: 1,
                mo: 0,
            };
            let octets = [&header.emit()[..], b"hello"].concat();
            let Ok(Inbound::Send(segment)) = stream.handle_ulpdu(&octets) else { panic!() };
            let violation = stream.refuse_send(&segment, fault);
            assert_eq!(
                violation.payload(),
                [&hex(cause), &hex("c000 0017"), &octets[..18]].concat()
            );
            assert!(stream.is_ended());
        }
    }
}

// 44
#[test]
fn an_opcode_in_the_other_kind_of_header_is_unexpected() {
    for opcode in [0, 2] {
        let mut octets = send(true, 1, 0, b"x");
        octets[1] = 0x40 | opcode;
        assert_eq!(first_violation(&octets), Terminate::UNEXPECTED_OPCODE);
    }
    for opcode in [1, 3, 4, 5, 6, 7] {
        let mut octets = write(true, 1, 0, b"x");
        octets[1] = 0x40 | opcode;
        assert_eq!(first_violation(&octets), Terminate::UNEXPECTED_OPCODE);
    }
}

// 45 to 50: the codes; which STag is which is the caller's table.
#[test]
fn a_write_that_memory_refuses() {
    for (fault, cause) in [
        (TaggedFault::InvalidStag, "1100"),
        (TaggedFault::Access, "1100"),
        (TaggedFault::Bounds, "1101"),
        (TaggedFault::NotAssociated, "1102"),
        (TaggedFault::Wrap, "1103"),
    ] {
        for last in [false, true] {
            let mut stream = stream();
            let octets = write(last, 0x1122_3344, 0x2000, b"hello");
            let Ok(Inbound::Write(segment)) = stream.handle_ulpdu(&octets) else { panic!() };
            let violation = stream.refuse_write(&segment, fault);
            assert_eq!(
                violation.payload(),
                [&hex(cause), &hex("c000 0013"), &octets[..14]].concat()
            );
            assert_eq!(stream.handle_ulpdu(&octets), Ok(Inbound::Dropped));
        }
    }
}

// 51
#[test]
fn offset_and_length_of_a_write_do_not_wrap() {
    let mut stream = stream();
    let octets = write(true, 1, u64::MAX - 4, b"1234");
    assert!(matches!(stream.handle_ulpdu(&octets), Ok(Inbound::Write(_))));
    for to in u64::MAX - 3..=u64::MAX {
        assert_eq!(
            violation(&mut stream.clone(), &write(true, 1, to, b"1234")),
            Terminate::DDP_WRAP
        );
    }
}

// 52: the caller sees an empty payload and checks nothing.
#[test]
fn an_empty_write_passes_whatever_it_names() {
    let octets = write(true, u32::MAX, u64::MAX, b"");
    let segment = WriteSegment { stag: u32::MAX, to: u64::MAX, last: true, payload: b"" };
    assert_eq!(stream().handle_ulpdu(&octets), Ok(Inbound::Write(segment)));
}

// 53
#[test]
fn segments_of_a_write_may_jump() {
    let mut stream = stream();
    for (stag, to, last) in [(1, 0, false), (1, 4096, false), (2, 8, true)] {
        let octets = write(last, stag, to, b"x");
        let segment = WriteSegment { stag, to, last, payload: b"x" };
        assert_eq!(stream.handle_ulpdu(&octets), Ok(Inbound::Write(segment)));
    }
}

// 54
#[test]
fn messages_of_one_class_do_not_interleave() {
    // Another Send in a Send.
    let mut stream = open();
    stream.handle_ulpdu(&send(false, 1, 0, b"1234")).unwrap();
    let open_send = stream.clone();
    assert_eq!(violation(&mut stream, &send(true, 2, 0, b"x")), Terminate::UNEXPECTED_OPCODE);
    // A Send of another kind under the same number.
    let octets = untagged(Opcode::SendSolicited, true, 0, (1, 4), b"x");
    assert_eq!(violation(&mut open_send.clone(), &octets), Terminate::UNEXPECTED_OPCODE);
    // A Read Request in a Send.
    assert_eq!(
        violation(&mut open_send.clone(), &read_request(1, &READ)),
        Terminate::UNEXPECTED_OPCODE
    );
    // A Read Response in a Write, and the reverse.
    let mut stream = open();
    stream.begin_read(ReadHeader { len: 8, ..READ }, 1).unwrap();
    let mut reading = stream.clone();
    stream.handle_ulpdu(&write(false, 1, 0, b"x")).unwrap();
    let response = tagged(Opcode::ReadResponse, false, READ.sink_stag, READ.sink_to, b"1234");
    assert_eq!(violation(&mut stream, &response), Terminate::UNEXPECTED_OPCODE);
    reading.handle_ulpdu(&response).unwrap();
    assert_eq!(violation(&mut reading, &write(true, 1, 0, b"x")), Terminate::UNEXPECTED_OPCODE);
}

// 54: what may cross.
#[test]
fn tagged_messages_and_the_terminate_may_cut_into_a_send() {
    let mut stream = stream();
    stream.handle_ulpdu(&send(false, 1, 0, b"1234")).unwrap();
    assert!(matches!(stream.handle_ulpdu(&write(false, 1, 0, b"x")), Ok(Inbound::Write(_))));
    assert!(matches!(stream.handle_ulpdu(&send(true, 1, 4, b"5")), Ok(Inbound::Send(_))));
    assert!(matches!(stream.handle_ulpdu(&write(true, 1, 1, b"x")), Ok(Inbound::Write(_))));
    stream.handle_ulpdu(&send(false, 2, 0, b"1234")).unwrap();
    assert!(matches!(stream.handle_ulpdu(&hex(KNOWN[7])[2..40]), Ok(Inbound::Terminated(_))));
}

// 56
#[test]
fn only_rdmap_version_one_is_spoken() {
    for version in [0x00, 0x80, 0xC0] {
        for mut octets in [write(true, 1, 0, b"x"), send(true, 1, 0, b"x"), read_request(1, &READ)]
        {
            octets[1] = octets[1] & 0x3F | version;
            assert_eq!(first_violation(&octets), Terminate::RDMAP_VERSION);
        }
    }
}

// 57
#[test]
fn immediate_data_and_atomics_are_unexpected() {
    for opcode in 8..16 {
        for mut octets in [write(true, 1, 0, b"x"), send(true, 1, 0, b"x"), read_request(1, &READ)]
        {
            octets[1] = 0x40 | opcode;
            assert_eq!(first_violation(&octets), Terminate::UNEXPECTED_OPCODE);
        }
    }
}

// 58
#[test]
fn every_kind_of_send_is_delivered() {
    let kinds = [
        (Opcode::Send, false, false),
        (Opcode::SendInvalidate, true, false),
        (Opcode::SendSolicited, false, true),
        (Opcode::SendSolicitedInvalidate, true, true),
    ];
    let mut stream = stream();
    for (msn, (opcode, invalidates, solicited)) in (1..).zip(kinds) {
        for (offset, last, payload) in [(0, false, &b"hel"[..]), (3, false, b""), (3, true, b"lo")]
        {
            let invalidate = if invalidates { 0xDEAD_BE01 } else { 0 };
            let header =
                Untagged { last, control: opcode.control(), invalidate, queue: 0, msn, mo: offset };
            let octets = [&header.emit()[..], payload].concat();
            let invalidate = invalidates.then_some(0xDEAD_BE01);
            let segment = SendSegment { msn, offset, last, solicited, invalidate, payload };
            assert_eq!(stream.handle_ulpdu(&octets), Ok(Inbound::Send(segment)));
        }
    }
}

// 58
#[test]
fn the_stag_to_invalidate_does_not_change_within_a_send() {
    let mut stream = stream();
    let control = Opcode::SendInvalidate.control();
    let mut header = Untagged { last: false, control, invalidate: 8, queue: 0, msn: 1, mo: 0 };
    stream.handle_ulpdu(&header.emit()).unwrap();
    header.invalidate = 9;
    assert_eq!(violation(&mut stream, &header.emit()), Terminate::RDMAP_UNSPECIFIED);
    // Without invalidation the word is reserved and may do as it likes.
    let mut stream = self::stream();
    header.control = Opcode::Send.control();
    stream.handle_ulpdu(&header.emit()).unwrap();
    header.invalidate = 8;
    let ulpdu = header.emit();
    let Ok(Inbound::Send(segment)) = stream.handle_ulpdu(&ulpdu) else { panic!("a Send") };
    assert_eq!(segment.invalidate, None);
}

// 61
#[test]
fn a_read_of_nothing_gets_an_empty_answer() {
    let mut stream = open();
    let header = ReadHeader { len: 0, source_stag: 0xFFFF_FFFF, ..READ };
    assert_eq!(stream.handle_ulpdu(&read_request(1, &header)), Ok(Inbound::ReadRequest));
    assert_eq!(stream.next_read(), Some(ReadRequest { msn: 1, header }));
    let mut message = stream.begin_read_response().unwrap();
    let segment = stream.poll_segment(&mut message, 1442).unwrap();
    assert_eq!(*segment.header, *hex("000e c142 aabbcc01 0000000000001000"));
    assert!(segment.last && segment.len == 0 && stream.next_read().is_none());
}

// 62
#[test]
fn a_read_that_its_source_refuses() {
    for (fault, cause) in [
        (TaggedFault::InvalidStag, "0100"),
        (TaggedFault::Bounds, "0101"),
        (TaggedFault::Access, "0102"),
        (TaggedFault::NotAssociated, "0103"),
        (TaggedFault::Wrap, "0104"),
    ] {
        let mut stream = open();
        let octets = read_request(1, &READ);
        stream.handle_ulpdu(&octets).unwrap();
        let request = stream.next_read().unwrap();
        let violation = stream.refuse_read(&request, 0, fault);
        assert_eq!(violation.payload(), [&hex(cause), &hex("e000 002e"), &octets[..]].concat());
        assert_eq!(stream.next_read(), None);
    }
}

// 63
#[test]
fn a_read_request_of_another_size_is_refused() {
    for len in (0..28).chain(29..60) {
        let octets = untagged(Opcode::ReadRequest, true, 1, (1, 0), &vec![0; len]);
        assert_eq!(first_violation(&octets), Terminate::RDMAP_UNSPECIFIED);
    }
    let octets = untagged(Opcode::ReadRequest, false, 1, (1, 0), &READ.emit());
    assert_eq!(first_violation(&octets), Terminate::RDMAP_UNSPECIFIED);
}

// 64
#[test]
fn one_read_more_than_the_ird_is_refused() {
    let mut stream = open();
    for msn in 1..=4 {
        stream.handle_ulpdu(&read_request(msn, &READ)).unwrap();
    }
    // A place is free once the last segment of an answer has been polled, not before.
    let mut message = stream.begin_read_response().unwrap();
    assert!(!stream.poll_segment(&mut message, 4096).unwrap().last);
    assert_eq!(
        violation(&mut stream.clone(), &read_request(5, &READ)),
        Terminate::RDMAP_CATASTROPHIC_STREAM
    );
    while stream.poll_segment(&mut message, 4096).is_some() {}
    assert_eq!(stream.handle_ulpdu(&read_request(5, &READ)), Ok(Inbound::ReadRequest));
    assert_eq!(
        violation(&mut stream, &read_request(6, &READ)),
        Terminate::RDMAP_CATASTROPHIC_STREAM
    );
}

// 64: the depth negotiated is the limit, not the room there is.
#[test]
fn without_ird_no_read_is_served() {
    let mut stream = TestStream::new(&Negotiated { ird: 0, ..negotiated() });
    assert_eq!(
        violation(&mut stream, &read_request(1, &READ)),
        Terminate::RDMAP_CATASTROPHIC_STREAM
    );
}

// 66
#[test]
fn a_read_response_answers_the_oldest_read_exactly() {
    let response =
        |last, stag, to, len: usize| tagged(Opcode::ReadResponse, last, stag, to, &vec![7; len]);
    let (stag, to) = (READ.sink_stag, READ.sink_to);
    assert_eq!(first_violation(&response(true, stag, to, 8)), Terminate::DDP_LOCAL_CATASTROPHIC);
    let mut stream = open();
    stream.begin_read(ReadHeader { len: 8, ..READ }, 77).unwrap();
    stream.begin_read(ReadHeader { len: 8, sink_stag: 5, ..READ }, 78).unwrap();
    for (octets, cause) in [
        (response(true, stag + 1, to, 8), Terminate::DDP_INVALID_STAG),
        (response(true, 5, to, 8), Terminate::DDP_INVALID_STAG),
        (response(true, stag, to + 1, 8), Terminate::DDP_BOUNDS),
        (response(true, stag, to - 1, 8), Terminate::DDP_BOUNDS),
        (response(true, stag, to, 7), Terminate::DDP_BOUNDS),
        (response(true, stag, to, 9), Terminate::DDP_BOUNDS),
        (response(false, stag, to, 8), Terminate::DDP_BOUNDS),
        (response(false, stag, to, 9), Terminate::DDP_BOUNDS),
        (response(true, stag, to, 0), Terminate::DDP_BOUNDS),
    ] {
        assert_eq!(violation(&mut stream.clone(), &octets), cause);
    }
    let first = response(false, stag, to, 5);
    let segment = ReadResponseSegment { token: 77, offset: 0, last: false, payload: &[7; 5] };
    assert_eq!(stream.handle_ulpdu(&first), Ok(Inbound::ReadResponse(segment)));
    assert_eq!(violation(&mut stream.clone(), &response(true, stag, to, 3)), Terminate::DDP_BOUNDS);
    let second = response(true, stag, to + 5, 3);
    let segment = ReadResponseSegment { token: 77, offset: 5, last: true, payload: &[7; 3] };
    assert_eq!(stream.handle_ulpdu(&second), Ok(Inbound::ReadResponse(segment)));
    let third = response(true, 5, to, 8);
    let segment = ReadResponseSegment { token: 78, offset: 0, last: true, payload: &[7; 8] };
    assert_eq!(stream.handle_ulpdu(&third), Ok(Inbound::ReadResponse(segment)));
    assert_eq!(violation(&mut stream, &third), Terminate::DDP_LOCAL_CATASTROPHIC);
}

// 66: RFC 5041 §5.2.
#[test]
fn an_empty_read_response_may_name_anything() {
    let mut stream = open();
    stream.begin_read(ReadHeader { len: 0, ..READ }, 3).unwrap();
    let octets = tagged(Opcode::ReadResponse, true, 99, 99, b"");
    let segment = ReadResponseSegment { token: 3, offset: 0, last: true, payload: b"" };
    assert_eq!(stream.handle_ulpdu(&octets), Ok(Inbound::ReadResponse(segment)));
}

// 67
#[test]
fn a_read_refused_halfway_reports_what_remains() {
    let mut stream = open();
    stream.handle_ulpdu(&read_request(1, &READ)).unwrap();
    let request = stream.next_read().unwrap();
    let mut message = stream.begin_read_response().unwrap();
    let done = stream.poll_segment(&mut message, 2048 + 14).unwrap().len;
    assert_eq!((done, message.remaining()), (2048, 6144));
    let violation = stream.refuse_read(&request, done, TaggedFault::InvalidStag);
    let remains =
        read_request(1, &ReadHeader { sink_to: 0x1800, len: 6144, source_to: 0x2800, ..READ });
    assert_eq!(violation.payload(), [&hex("0100 e000 002e"), &remains[..]].concat());
    assert_eq!(stream.poll_segment(&mut message, 2048), None, "the answer stops");
}

#[test]
fn an_unreadable_fpdu_and_our_own_failure_end_the_stream() {
    let (mut unreadable, mut failed) = (open(), open());
    let violations = [unreadable.refuse_fpdu(Terminate::MPA_CRC), failed.fail()];
    let told = ["2002 0000", "0000 0000"];
    for ((mut stream, violation), told) in
        [unreadable, failed].into_iter().zip(violations).zip(told)
    {
        assert!(stream.is_ended() && !stream.may_send());
        assert_eq!(violation.payload(), hex(told), "the cause, and no header");
        assert_eq!(stream.handle_ulpdu(&send(true, 1, 0, b"late")), Ok(Inbound::Dropped));
        let mut message = stream.begin_terminate(&violation).unwrap();
        assert!(stream.poll_segment(&mut message, 1442).unwrap().last);
    }
}

// 3: the indication uses up no receive, and only the very first message can be it.
#[test]
fn a_send_indication_is_not_delivered() {
    let awaiting = Negotiated { rtr: Some(Rtr::Send), ..negotiated() };
    let mut stream = TestStream::new(&awaiting);
    assert_eq!(stream.handle_ulpdu(&send(true, 1, 0, b"")), Ok(Inbound::Ready));
    assert!(stream.may_send());
    assert!(matches!(stream.handle_ulpdu(&send(true, 2, 0, b"")), Ok(Inbound::Send(_))));
    for (first, msn) in [(write(true, 1, 0, b""), 1), (send(true, 1, 0, b"x"), 2)] {
        let mut stream = TestStream::new(&awaiting);
        assert!(matches!(stream.handle_ulpdu(&first), Ok(Inbound::Write(_) | Inbound::Send(_))));
        assert!(matches!(stream.handle_ulpdu(&send(true, msn, 0, b"")), Ok(Inbound::Send(_))));
    }
    let mut stream = TestStream::new(&awaiting);
    assert!(matches!(stream.handle_ulpdu(&send(false, 1, 0, b"")), Ok(Inbound::Send(_))));
    let mut stream = TestStream::new(&negotiated());
    assert!(matches!(stream.handle_ulpdu(&send(true, 1, 0, b"")), Ok(Inbound::Send(_))));
}

#[test]
fn every_cut_of_every_segment_is_an_error_or_a_shorter_payload() {
    for known in KNOWN {
        let whole = hex(known);
        let len = usize::from(u16::from_be_bytes([whole[0], whole[1]]));
        let ulpdu = &whole[2..2 + len];
        for cut in 0..=len {
            let mut stream = stream_for(ulpdu);
            let header_len = ddp::header_len(ulpdu[0]);
            match stream.handle_ulpdu(&ulpdu[..cut]) {
                Ok(_) => assert!(cut >= header_len),
                Err(violation) if cut < header_len => {
                    assert_eq!(violation.terminate, Terminate::MPA_LENGTH)
                }
                Err(_) => assert!(cut < len),
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_every_segment_has_a_defined_result() {
    for known in KNOWN {
        let whole = hex(known);
        let len = usize::from(u16::from_be_bytes([whole[0], whole[1]]));
        for bit in 0..len * 8 {
            let mut ulpdu = whole[2..2 + len].to_vec();
            let mut stream = stream_for(&ulpdu);
            ulpdu[bit / 8] ^= 0x80 >> (bit % 8);
            if let Err(violation) = stream.handle_ulpdu(&ulpdu) {
                assert!(Terminate::ALL.contains(&violation.terminate));
                assert!(stream.is_ended() && violation.payload().len() <= 52);
            }
        }
    }
}

/// A stream on which this known segment is right.
fn stream_for(ulpdu: &[u8]) -> TestStream {
    let mut stream = open();
    stream.begin_read(ReadHeader { len: 8, ..READ }, 1).unwrap();
    if ulpdu[0] & 0x80 == 0 && ulpdu[9] == 0 && ulpdu[13] == 2 {
        stream.handle_ulpdu(&send(true, 1, 0, b"")).unwrap();
    }
    stream
}

#[test]
fn every_known_segment_is_right_where_it_belongs() {
    for known in KNOWN {
        let whole = hex(known);
        let len = usize::from(u16::from_be_bytes([whole[0], whole[1]]));
        let ulpdu = &whole[2..2 + len];
        assert!(stream_for(ulpdu).handle_ulpdu(ulpdu).is_ok(), "{known}");
    }
}

#[test]
fn random_segments_never_break_the_stream() {
    let mut random = Rng::with_seed(5040);
    for _ in 0..200_000 {
        let mut stream = open();
        stream.begin_read(ReadHeader { len: 8, ..READ }, 1).unwrap();
        for _ in 0..4 {
            let len = random.usize(..64);
            let mut ulpdu = octets(&mut random, len);
            // Mostly right headers reach deeper.
            if random.usize(..4) > 0 && ulpdu.len() >= 18 {
                let opcode = random.u8(..8);
                ulpdu[1] = 0x40 | opcode;
                ulpdu[0] = if opcode == 0 || opcode == 2 { 0x81 } else { 0x01 } | ulpdu[0] & 0x40;
                if ulpdu[0] & 0x80 == 0 {
                    let queue = [0, 1, 0, 0, 0, 0, 0, 2][usize::from(opcode)];
                    ulpdu[6..10].copy_from_slice(&[0, 0, 0, queue]);
                    ulpdu[10..18].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
                }
            }
            let ended = stream.is_ended();
            match stream.handle_ulpdu(&ulpdu) {
                Ok(Inbound::Dropped) => assert!(ended),
                Ok(_) => assert!(!ended),
                Err(Violation { .. }) => assert!(stream.is_ended() && !ended),
            }
        }
    }
}
