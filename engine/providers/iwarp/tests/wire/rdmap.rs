//! RDMAP: opcodes, invalidation, Reads and Terminates [56-74].

use crate::{
    peer::*,
    support::{End, PATIENCE, config, pattern},
};
use stag_iwarp::{FpduMax, IwarpConfig};
use stag_pools::{Access, RemoteKey, Window};
use stag_verbs::{Cause, Event, Memory, Provider, Qp, RemoteSpan, Status, Tag};

/// The peer sends `ulpdu` and gets a Terminate with `cause`. Returns the Terminate's payload.
fn expect(ulpdu: &[u8], cause: &str) -> Vec<u8> {
    let (mut end, mut peer, qp) = accepted(config());
    peer.say(&mut end, &fpdu(ulpdu));
    expect_terminate(&mut end, &mut peer, qp, cause)
}

fn bind(end: &mut End, qp: Qp, content: &[u8], access: Access) -> Window {
    end.iwarp.bind(qp, end.buf(content), 0..content.len(), access).unwrap()
}

fn ask(window: Window) -> Ask {
    Ask {
        sink: 0x5111,
        sink_to: 100,
        len: window.len,
        source: window.key.0,
        source_to: window.offset,
    }
}

fn span(key: u32, len: u32) -> RemoteSpan {
    RemoteSpan { key: RemoteKey(key), offset: 1 << 33, len }
}

#[test]
fn another_version_is_refused() {
    // [56]
    for version in [0x00, 0x80, 0xC0] {
        let mut segment = send(1, b"x");
        segment[1] = segment[1] & 0x3F | version;
        assert_eq!(expect(&segment, "0/2/05")[2], 0xC0);
    }
}

#[test]
fn opcodes_that_do_not_exist_for_us_are_refused() {
    // [57]
    for opcode in 8..16 {
        expect(&Untagged { opcode, ..send_header(1) }.with(b"12345678"), "0/2/06");
        expect(&tagged(opcode, true, 1, 1, b"x"), "0/2/06");
    }
}

#[test]
fn all_four_sends_are_delivered() {
    // [58, 59]
    let (mut end, mut peer, qp) = accepted(config());
    for (msn, opcode) in [(1, 3), (2, 5), (3, 4), (4, 6)] {
        let window = bind(&mut end, qp, b"opened", Access::RemoteWrite);
        let word = if opcode % 2 == 0 { window.key.0 } else { 0 };
        peer.say(&mut end, &fpdu(&Untagged { opcode, word, ..send_header(msn) }.with(b"message")));
        let Event::Received { buf, invalidated, .. } = end.next() else { panic!("a message") };
        assert_eq!(&buf[..], b"message");
        assert_eq!(invalidated.map(|fenced| fenced.key()), (word != 0).then_some(window.key));
        assert_eq!(
            end.iwarp.windows_bound(),
            msn.min(2) as usize,
            "none of the invalidated is left"
        );
    }
}

#[test]
fn an_invalidated_window_is_dead_for_the_next_segment() {
    // [59]
    let (mut end, mut peer, qp) = accepted(config());
    let window = bind(&mut end, qp, b"opened", Access::RemoteWrite);
    let both = [
        fpdu(&send_invalidate(1, window.key.0, b"bye")),
        fpdu(&write(window.key.0, window.offset, b"x")),
    ];
    peer.say(&mut end, &both.concat());
    let Event::Received { invalidated: Some(fenced), .. } = end.next() else { panic!("a message") };
    assert_eq!(&fenced.into_buf()[..], b"opened");
    expect_terminate(&mut end, &mut peer, qp, "1/1/00");
}

#[test]
fn what_is_no_window_of_this_connection_cannot_be_invalidated() {
    // [60]
    expect(&send_invalidate(1, 0x1234_5678, b"x"), "0/2/09");
    let (mut end, mut peer, qp) = accepted(config());
    let mut other = Peer::connect(end.iwarp.listen(&crate::support::localhost()).unwrap());
    other.say(&mut end, &frame(REQUEST, C | S, 2, &words(1, 1)));
    let theirs = end.next_request();
    end.iwarp.accept(theirs, b"").unwrap();
    other.say(&mut end, &fpdu(&write(1, 0, b"")));
    end.expect_established(theirs);
    let window = bind(&mut end, theirs, b"theirs", Access::RemoteRead);
    peer.say(&mut end, &fpdu(&send_invalidate(1, window.key.0, b"x")));
    expect_terminate(&mut end, &mut peer, qp, "0/1/09");
    assert_eq!(end.iwarp.windows_bound(), 1, "the window lives");
}

#[test]
fn a_read_of_nothing_needs_no_source() {
    // [61]
    let (mut end, mut peer, _) = accepted(config());
    let nothing = Ask { sink: 7, sink_to: 8, len: 0, source: 0xBAD, source_to: u64::MAX };
    peer.say(&mut end, &fpdu(&read_request(1, nothing)));
    assert_eq!(peer.hear_ulpdu(&mut end), read_response(7, 8, b""));
}

#[test]
fn reads_are_answered_in_order() {
    let config = IwarpConfig { fpdu_max: FpduMax::Ulpdu(128), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    let octets = pattern(1000, 1);
    let window = bind(&mut end, qp, &octets, Access::RemoteRead);
    for msn in 1..=20 {
        let part = Ask {
            sink: msn,
            sink_to: u64::MAX - 5, // the requester's own business
            len: 300,
            source: window.key.0,
            source_to: window.offset + u64::from(msn),
        };
        peer.say(&mut end, &fpdu(&read_request(msn, part)));
    }
    for msn in 1..=20_u32 {
        let mut answer = Vec::new();
        while answer.len() < 300 {
            let ulpdu = peer.hear_ulpdu(&mut end);
            let to = (u64::MAX - 5).wrapping_add(answer.len() as u64);
            let payload = ulpdu[14..].to_vec();
            assert_eq!(ulpdu, tagged(2, answer.len() + payload.len() == 300, msn, to, &payload));
            answer.extend(payload);
        }
        assert_eq!(answer, octets[msn as usize..][..300]);
    }
    assert!(end.events.is_empty(), "the engine hears nothing of it: {:?}", end.events);
}

#[test]
fn a_read_of_what_may_not_be_read_is_refused() {
    // [62]: the Terminate has segment length, DDP header and Read header.
    type Change = fn(&mut Ask);
    let changes: [(Change, &str); 7] = [
        (|ask| ask.source ^= 1, "0/1/00"),
        (|ask| ask.source ^= 0x100, "0/1/00"),
        (|ask| ask.source ^= 1 << 31, "0/1/00"),
        (|ask| ask.source_to -= 1, "0/1/01"),
        (|ask| ask.len += 1, "0/1/01"),
        (|ask| ask.source_to = u64::MAX, "0/1/04"),
        (|ask| ask.source_to = 0, "0/1/01"),
    ];
    for (change, cause) in changes {
        let (mut end, mut peer, qp) = accepted(config());
        let mut asked = ask(bind(&mut end, qp, b"readable", Access::RemoteRead));
        change(&mut asked);
        peer.say(&mut end, &fpdu(&read_request(1, asked)));
        let payload = expect_terminate(&mut end, &mut peer, qp, cause);
        assert_eq!(payload[2..6], [0xE0, 0, 0, 46]);
        assert_eq!(payload[6..24], read_header(1).with(b""));
        assert_eq!(payload[24..], asked.header());
    }
    let (mut end, mut peer, qp) = accepted(config());
    let asked = ask(bind(&mut end, qp, b"writable", Access::RemoteWrite));
    peer.say(&mut end, &fpdu(&read_request(1, asked)));
    expect_terminate(&mut end, &mut peer, qp, "0/1/02");
}

#[test]
fn a_read_that_ends_outside_its_window_is_refused_before_its_first_octet() {
    // It would take several segments, and the first of them are inside.
    type Change = fn(&mut Ask);
    let changes: [(Change, &str); 3] = [
        (|ask| ask.len += 1, "0/1/01"),
        (|ask| ask.source_to += 1, "0/1/01"),
        (|ask| ask.len = u32::MAX, "0/1/01"),
    ];
    for (change, cause) in changes {
        let config = IwarpConfig { fpdu_max: FpduMax::Ulpdu(1000), ..config() };
        let (mut end, mut peer, qp) = accepted(config);
        let mut asked = ask(bind(&mut end, qp, &pattern(4000, 4), Access::RemoteRead));
        change(&mut asked);
        peer.say(&mut end, &fpdu(&read_request(1, asked)));
        let payload = expect_terminate(&mut end, &mut peer, qp, cause);
        assert_eq!(payload[24..], asked.header(), "nothing of it is done");
    }
}

#[test]
fn a_read_behind_an_invalidation_finds_nothing() {
    // It is not checked before everything in front of it is delivered.
    let (mut end, mut peer, qp) = accepted(config());
    let window = bind(&mut end, qp, b"readable", Access::RemoteRead);
    let both =
        [fpdu(&send_invalidate(1, window.key.0, b"bye")), fpdu(&read_request(1, ask(window)))];
    peer.say(&mut end, &both.concat());
    let Event::Received { invalidated: Some(fenced), .. } = end.next() else { panic!("a message") };
    assert_eq!(fenced.key(), window.key);
    expect_terminate(&mut end, &mut peer, qp, "0/1/00");
}

#[test]
fn a_read_request_has_exactly_its_header() {
    // [63]
    expect(&read_header(1).with(&[0; 27]), "0/2/ff");
    expect(&read_header(1).with(&[0; 29]), "0/2/ff");
    expect(&Untagged { last: false, ..read_header(1) }.with(&[0; 28]), "0/2/ff");
}

#[test]
fn more_reads_than_the_ird_are_refused() {
    // [8, 64]: asked for 20, granted 32; the peer does not read, so that no answer leaves.
    let config = IwarpConfig { send_buffer: Some(1), ..config() };
    let (mut end, mut peer, qp) = accepted_by(config, &frame(REQUEST, C | S, 2, &words(128, 20)));
    let octets = pattern(1 << 20, 2);
    let window = bind(&mut end, qp, &octets, Access::RemoteRead);
    let mut storm = Vec::new();
    for msn in 1..=32 {
        storm.extend(fpdu(&read_request(msn, ask(window))));
    }
    peer.say(&mut end, &storm);
    end.pump();
    assert!(end.events.is_empty(), "32 Reads are served: {:?}", end.events);
    peer.say(&mut end, &fpdu(&read_request(33, ask(window))));
    // Answers that are framed already come first.
    let said = loop {
        let ulpdu = peer.hear_ulpdu(&mut end);
        if ulpdu[1] & 0xF != 2 {
            break ulpdu;
        }
    };
    assert_eq!((said[1], crate::peer::said(&said[18..])), (0x47, "0/2/07".to_string()));
    expect_fault(&mut end, qp, "0/2/07");
}

#[test]
fn reads_beyond_the_ord_wait_and_everything_behind_them_does() {
    // [65]
    let (mut end, mut peer, qp) = accepted_by(config(), &frame(REQUEST, C | S, 2, &words(2, 128)));
    for tag in 0..5 {
        end.iwarp.post_read(qp, Tag(tag), end.buf(b"...."), 0, &[span(1, 4)]).unwrap();
    }
    end.iwarp.post_send(qp, Tag(5), end.buf(b"behind"), None).unwrap();
    end.iwarp.ring();
    let mut sinks = std::collections::VecDeque::new();
    for answered in 0..5 {
        while sinks.len() < 2 && answered + sinks.len() < 5 {
            let request = peer.hear_ulpdu(&mut end);
            assert_eq!(request[1], 0x41);
            sinks.push_back((
                u32::from_be_bytes(request[18..22].try_into().unwrap()),
                u64::from_be_bytes(request[22..30].try_into().unwrap()),
            ));
        }
        if answered < 3 {
            peer.hear_nothing(&mut end);
        }
        let (sink, to) = sinks.pop_front().unwrap();
        peer.say(&mut end, &fpdu(&read_response(sink, to, &[b'0' + answered as u8; 4])));
    }
    assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"behind"));
    for expected in 0..5 {
        let Event::Completed { tag, status: Status::Success, memory: Memory::Buf(sink), .. } =
            end.next()
        else {
            panic!("a Read completes")
        };
        assert_eq!((tag, &sink[..]), (Tag(expected), &[b'0' + expected as u8; 4][..]));
    }
    assert!(matches!(end.next(), Event::Completed { tag: Tag(5), status: Status::Success, .. }));
}

#[test]
fn the_reads_of_one_peer_take_no_places_of_another() {
    let config = IwarpConfig { send_buffer: Some(1), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    let window = bind(&mut end, qp, &pattern(1 << 20, 2), Access::RemoteRead);
    for msn in 1..=32 {
        peer.say(&mut end, &fpdu(&read_request(msn, ask(window)))); // and takes no answer
    }
    let mut other = Peer::connect(end.iwarp.listen(&crate::support::localhost()).unwrap());
    other.say(&mut end, &frame(REQUEST, C | S, 2, &words(1, 32)));
    let theirs = end.next_request();
    end.iwarp.accept(theirs, b"").unwrap();
    other.hear_frame(&mut end, REPLY);
    other.say(&mut end, &fpdu(&write(1, 0, b"")));
    end.expect_established(theirs);
    let readable = bind(&mut end, theirs, b"readable", Access::RemoteRead);
    for msn in 1..=32 {
        other.say(&mut end, &fpdu(&read_request(msn, ask(readable))));
    }
    for _ in 1..=32 {
        assert_eq!(other.hear_ulpdu(&mut end), read_response(0x5111, 100, b"readable"));
    }
    assert!(end.events.is_empty(), "{:?}", end.events);
}

#[test]
fn work_completes_in_the_order_it_was_posted() {
    let (mut end, mut peer, qp) = accepted(config());
    end.iwarp.post_read(qp, Tag(1), end.buf(b"...."), 0, &[span(1, 4)]).unwrap();
    end.iwarp.post_send(qp, Tag(2), end.buf(b"behind"), None).unwrap();
    end.iwarp.ring();
    let request = peer.hear_ulpdu(&mut end);
    assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"behind"), "it does not wait for the answer");
    peer.hear_nothing(&mut end);
    assert!(end.events.is_empty(), "but its completion does: {:?}", end.events);
    let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
    let to = u64::from_be_bytes(request[22..30].try_into().unwrap());
    peer.say(&mut end, &fpdu(&read_response(sink, to, b"data")));
    for expected in 1..=2 {
        let event = end.next();
        assert!(
            matches!(
                event,
                Event::Completed { tag: Tag(tag), status: Status::Success, .. } if tag == expected
            ),
            "{event:?}"
        );
    }
}

#[test]
fn an_answer_to_nothing_is_refused() {
    // [66]
    expect(&read_response(1, 0, b"x"), "1/0/00");
    type Change = fn(u32, u64) -> Vec<u8>;
    let changes: [(Change, &str); 5] = [
        (|sink, to| read_response(sink ^ 1, to, b"1234"), "1/1/00"),
        (|sink, to| read_response(sink, to + 1, b"1234"), "1/1/01"),
        (|sink, to| read_response(sink, to, b"12345"), "1/1/01"),
        (|sink, to| read_response(sink, to, b"123"), "1/1/01"),
        (|sink, to| tagged(2, false, sink, to, b"1234"), "1/1/01"),
    ];
    for (change, cause) in changes {
        let (mut end, mut peer, qp) = accepted(config());
        end.iwarp.post_read(qp, Tag(1), end.buf(b"...."), 0, &[span(1, 4)]).unwrap();
        end.iwarp.ring();
        let request = peer.hear_ulpdu(&mut end);
        let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
        let to = u64::from_be_bytes(request[22..30].try_into().unwrap());
        peer.say(&mut end, &fpdu(&change(sink, to)));
        peer.hear_terminate(&mut end, cause);
        let Event::Completed { status: Status::Flushed, memory: Memory::Buf(sink), .. } =
            end.next()
        else {
            panic!("the Read is flushed")
        };
        assert_eq!(&sink[..], b"....");
        expect_fault(&mut end, qp, cause);
    }
}

#[test]
fn a_window_that_ends_while_it_is_read_ends_the_read() {
    // [67]: the peer reads nothing, so the answer stops in the middle; then the window is
    // invalidated.
    let config = IwarpConfig { send_buffer: Some(1), fpdu_max: FpduMax::Ulpdu(1000), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    peer.slow_down(4096);
    let octets = pattern(1 << 20, 3);
    let window = bind(&mut end, qp, &octets, Access::RemoteRead);
    let asked = ask(window);
    peer.say(&mut end, &fpdu(&read_request(1, asked)));
    end.iwarp.post_local_invalidate(qp, Tag(1), window.key).unwrap();
    end.iwarp.ring();
    end.pump();
    let mut read = Vec::new();
    let payload = loop {
        let ulpdu = peer.hear_ulpdu(&mut end);
        match ulpdu[1] & 0xF {
            2 => read.extend_from_slice(&ulpdu[14..]),
            _ => break ulpdu[18..].to_vec(),
        }
    };
    assert!(!read.is_empty() && read.len() < octets.len());
    assert!(octets.starts_with(&read), "what was sent is what was there");
    assert_eq!(said(&payload), "0/1/00");
    let done = read.len();
    let rest = Ask {
        sink_to: asked.sink_to + done as u64,
        len: asked.len - done as u32,
        source_to: asked.source_to + done as u64,
        ..asked
    };
    assert_eq!(payload[24..], rest.header());
    assert!(matches!(end.next(), Event::Completed { memory: Memory::Fenced(_), .. }));
    expect_fault(&mut end, qp, "0/1/00");
}

#[test]
fn a_peer_that_invalidates_what_it_is_reading_breaks_a_rule() {
    // Its answer is framed and half sent: the window stays until the FPDUs are sent, and the
    // invalidation is refused.
    let config = IwarpConfig { send_buffer: Some(1), fpdu_max: FpduMax::Ulpdu(1000), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    peer.slow_down(4096);
    let octets = pattern(1 << 20, 3);
    let window = bind(&mut end, qp, &octets, Access::RemoteRead);
    peer.say(&mut end, &fpdu(&read_request(1, ask(window))));
    peer.say(&mut end, &fpdu(&send_invalidate(1, window.key.0, b"too early")));
    let mut read = Vec::new();
    let payload = loop {
        let ulpdu = peer.hear_ulpdu(&mut end);
        match ulpdu[1] & 0xF {
            2 => read.extend_from_slice(&ulpdu[14..]),
            _ => break ulpdu[18..].to_vec(),
        }
    };
    assert!(!read.is_empty() && octets.starts_with(&read));
    assert_eq!(said(&payload), "0/1/09");
    let Event::Unbound { fenced, .. } = end.next() else {
        panic!("the window ends with its connection")
    };
    assert!(fenced.into_buf()[..] == octets[..]);
    expect_fault(&mut end, qp, "0/1/09");
}

#[test]
fn a_read_sees_what_was_written_before_it() {
    // [68, 69]: a window has one right, so the two meet in a Send that comes after the Write.
    let (mut end, mut peer, qp) = accepted(config());
    let window = bind(&mut end, qp, b"........", Access::RemoteWrite);
    let stream = [
        fpdu(&write(window.key.0, window.offset, b"WRITTEN!")),
        fpdu(&send_invalidate(1, window.key.0, b"look")),
    ];
    peer.say(&mut end, &stream.concat());
    let Event::Received { invalidated: Some(fenced), .. } = end.next() else { panic!("a message") };
    assert_eq!(&fenced.into_buf()[..], b"WRITTEN!");
}

#[test]
fn the_peers_terminate_is_understood_in_both_forms() {
    // [72]
    let header = write(0x1122_3344, 0x2000, b"");
    for (payload, cause) in [
        ([&[0x11, 0, 0xC0, 0, 0, 19][..], &header].concat(), "1/1/00"),
        ([&[0x11, 1, 0x03, 0, 0, 5][..], &header].concat(), "1/1/01"), // siw
        (vec![0x21, 3, 0x03, 0], "1/2/03"),                            // siw, cut off
        (vec![0x20, 2, 0, 0], "2/0/02"),
        (vec![0x02, 2, 0, 0], "2/0/02"), // siw, told by what makes sense
        (vec![0x12, 5, 0xE0, 0], "1/2/05"),
        (vec![0x11, 0, 0xC0, 0, 0, 19, 1, 2, 3], "1/1/00"),
    ] {
        let (mut end, mut peer, qp) = accepted(config());
        let window = bind(&mut end, qp, b"opened", Access::RemoteRead);
        end.iwarp.post_read(qp, Tag(1), end.buf(b"...."), 0, &[span(1, 4)]).unwrap();
        end.iwarp.ring();
        peer.hear_ulpdu(&mut end);
        peer.say(&mut end, &fpdu(&terminate(&payload)));
        assert!(matches!(end.next(), Event::Completed { status: Status::Flushed, .. }));
        let Event::Unbound { fenced, .. } = end.next() else { panic!("the window ends") };
        assert_eq!(fenced.key(), window.key);
        match end.next_end(qp) {
            Cause::Terminated(said) => assert_eq!(named(said), cause, "{payload:02x?}"),
            other => panic!("{other:?}"),
        }
        // [74]
        assert_eq!(peer.hear_all(&mut end), b"");
        assert_eq!(end.iwarp.stats().terminates_received.total(), 1);
    }
}

#[test]
fn a_terminate_that_is_none_is_a_violation() {
    // [72]
    let header = Untagged { opcode: 7, last: true, word: 0, queue: 2, msn: 1, mo: 0 };
    expect(&header.with(&[0x11, 0, 0]), "0/2/ff");
    expect(&Untagged { msn: 2, ..header }.with(&[0x11, 0, 0, 0]), "1/2/03");
    expect(&Untagged { mo: 4, ..header }.with(&[0x11, 0, 0, 0]), "1/2/04");
    expect(&Untagged { queue: 1, ..header }.with(&[0x11, 0, 0, 0]), "1/2/01");
}

#[test]
fn a_terminate_blames_the_read_it_names() {
    for (layer_type, code, status) in
        [(0x01, 1, Status::RemoteAccess), (0x02, 7, Status::RemoteOperation)]
    {
        let (mut end, mut peer, qp) = accepted(config());
        for tag in 1..=3 {
            end.iwarp.post_read(qp, Tag(tag), end.buf(b"...."), 0, &[span(1, 4)]).unwrap();
        }
        end.iwarp.post_send(qp, Tag(4), end.buf(b"behind"), None).unwrap();
        end.iwarp.ring();
        let request = (0..3).map(|_| peer.hear_ulpdu(&mut end)).nth(1).unwrap();
        let payload = [&[layer_type, code, 0xE0, 0, 0, 46][..], &request].concat();
        peer.say(&mut end, &fpdu(&terminate(&payload)));
        let statuses: Vec<_> = (1..=4)
            .map(|expected| match end.next() {
                Event::Completed { tag: Tag(tag), status, .. } if tag == expected => status,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(statuses, [Status::Flushed, status, Status::Flushed, Status::Flushed]);
        assert!(matches!(end.next_end(qp), Cause::Terminated(_)));
    }
}

#[test]
fn a_terminate_is_heard_although_the_peer_resets_behind_it() {
    // [73]: the peer closes with our octets unread, which makes its kernel reset.
    let (mut end, mut peer, qp) = accepted(config());
    end.iwarp.post_send(qp, Tag(1), end.buf(b"unread"), None).unwrap();
    end.iwarp.ring();
    std::io::Write::write_all(&mut peer.stream, &fpdu(&terminate(&[0x11, 1, 0, 0]))).unwrap();
    drop(peer);
    std::thread::sleep(std::time::Duration::from_millis(5));
    // Work that the peer does not read makes us send into the reset connection.
    end.iwarp.post_send(qp, Tag(2), end.buf(b"into the void"), None).unwrap();
    end.iwarp.ring();
    let cause = loop {
        match end.next() {
            Event::Disconnected { cause, .. } => break cause,
            Event::Completed { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(cause, Cause::Terminated(said) if said.to_string() == "1/1/01"), "{cause:?}");
}

#[test]
fn nothing_follows_our_terminate() {
    // [74]: with work that waits and with Reads to answer. The FIN comes at once.
    let (mut end, mut peer, qp) = accepted(IwarpConfig { linger: 2 * PATIENCE, ..config() });
    let window = bind(&mut end, qp, b"readable", Access::RemoteRead);
    end.iwarp.post_send(qp, Tag(1), end.buf(b"not rung"), None).unwrap();
    let both = [fpdu(&write(0xBAD, 0, b"x")), fpdu(&read_request(1, ask(window)))];
    peer.say(&mut end, &both.concat());
    peer.hear_terminate(&mut end, "1/1/00");
    end.iwarp.ring();
    assert_eq!(peer.hear_all(&mut end), b"");
    expect_fault(&mut end, qp, "1/1/00");
}
