//! DDP: headers, queues, message numbers and tagged buffers [35-55, 90].

use crate::{
    peer::*,
    support::{End, LIMITS, config, join},
};
use stag_iwarp::IwarpConfig;
use stag_pools::Access;
use stag_verbs::{Event, Limits, Provider, Qp, Tag};

/// An accepted connection with a window of 8 octets for each right.
struct Windows {
    end: End,
    peer: Peer,
    qp: Qp,
    write: stag_pools::Window,
    read: stag_pools::Window,
}

fn windows() -> Windows {
    let (mut end, peer, qp) = accepted(config());
    let write =
        end.iwarp.bind(qp, end.buf(b"....12345678...."), 4..12, Access::RemoteWrite).unwrap();
    let read = end.iwarp.bind(qp, end.buf(b"....abcdefgh...."), 4..12, Access::RemoteRead).unwrap();
    Windows { end, peer, qp, write, read }
}

impl Windows {
    /// The peer sends `ulpdu` and gets a Terminate with `cause` and the DDP header. No octet of a
    /// window has changed.
    fn expect(mut self, ulpdu: &[u8], cause: &str) {
        self.peer.say(&mut self.end, &fpdu(ulpdu));
        let payload = self.peer.hear_terminate(&mut self.end, cause);
        let header = if ulpdu[0] & 0x80 == 0 { 18 } else { 14 };
        let len = (ulpdu.len() as u16).to_be_bytes();
        assert_eq!(payload[2] & 0xC0, 0xC0, "segment length and DDP header are there");
        assert_eq!(payload[4..6], len);
        let sent_back = &payload[6..6 + header];
        assert!(
            sent_back.iter().zip(ulpdu).skip(2).all(|(back, sent)| back == sent),
            "{sent_back:02x?}"
        );
        for content in [&b"....12345678...."[..], b"....abcdefgh...."] {
            let Event::Unbound { fenced, .. } = self.end.next() else { panic!("the window ends") };
            assert_eq!(&fenced.into_buf()[..], content);
        }
        expect_fault(&mut self.end, self.qp, cause);
    }
}

#[test]
fn another_version_is_refused() {
    for version in [0, 2, 3] {
        let w = windows();
        let mut segment = write(w.write.key.0, w.write.offset, b"x");
        segment[0] = segment[0] & !3 | version;
        w.expect(&segment, "1/1/04"); // [35]
        let mut segment = send(1, b"x");
        segment[0] = segment[0] & !3 | version;
        windows().expect(&segment, "1/2/06"); // [36]
    }
}

#[test]
fn reserved_bits_are_not_looked_at() {
    // [37]
    let mut w = windows();
    let mut tagged = write(w.write.key.0, w.write.offset, b"x");
    tagged[0] |= 0x3C;
    tagged[1] |= 0x30;
    let mut untagged = Untagged { word: 0xFFFF_FFFF, ..send_header(1) }.with(b"message");
    untagged[0] |= 0x3C;
    untagged[1] |= 0x30;
    w.peer.say(&mut w.end, &fpdu(&tagged));
    w.peer.say(&mut w.end, &fpdu(&untagged));
    assert_eq!(&w.end.next_message(w.qp)[..], b"message");
}

#[test]
fn a_queue_takes_its_own_opcodes_only() {
    // [38]
    for queue in [1, 2, 3, 7, u32::MAX] {
        windows().expect(&Untagged { queue, ..send_header(1) }.with(b"x"), "1/2/01");
    }
    windows().expect(&Untagged { queue: 0, ..read_header(1) }.with(&[0; 28]), "1/2/01");
}

#[test]
fn message_numbers_follow_each_other() {
    // [39]
    for msn in [0, 2, u32::MAX] {
        windows().expect(&send(msn, b"x"), "1/2/03");
        windows().expect(&read_header(msn).with(&[0; 28]), "1/2/03");
    }
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&send(1, b"once")));
    assert_eq!(&w.end.next_message(w.qp)[..], b"once");
    w.expect(&send(1, b"once"), "1/2/03");
}

#[test]
fn message_offsets_follow_each_other() {
    // [41]
    windows().expect(&Untagged { mo: 1, ..send_header(1) }.with(b"x"), "1/2/04");
    for mo in [0, 3, 5, u32::MAX] {
        let mut w = windows();
        w.peer.say(&mut w.end, &fpdu(&Untagged { last: false, ..send_header(1) }.with(b"1234")));
        w.expect(&Untagged { mo, ..send_header(1) }.with(b"5"), "1/2/04");
    }
}

#[test]
fn a_message_longer_than_a_receive_is_refused() {
    // [42]
    let mut w = windows();
    let longest = vec![b'm'; LIMITS.receive_len];
    w.peer.say(&mut w.end, &fpdu(&send(1, &longest)));
    assert!(w.end.next_message(w.qp)[..] == longest[..]);
    w.expect(&send(2, &vec![b'm'; LIMITS.receive_len + 1]), "1/2/05");
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&Untagged { last: false, ..send_header(1) }.with(&longest)));
    w.expect(&Untagged { mo: LIMITS.receive_len as u32, ..send_header(1) }.with(b"x"), "1/2/05");
    // The promised length counts, even if receives have more room.
    let limits = Limits { receive_len: 4000, ..LIMITS };
    let (mut end, mut peer, qp) = accepted(IwarpConfig { limits, ..config() });
    peer.say(&mut end, &fpdu(&send(1, &[b'm'; 4000])));
    assert_eq!(end.next_message(qp)[..], [b'm'; 4000]);
    peer.say(&mut end, &fpdu(&send(2, &[b'm'; 4001])));
    expect_terminate(&mut end, &mut peer, qp, "1/2/05");
}

#[test]
fn tagged_and_untagged_opcodes_keep_their_headers() {
    // [44]
    for opcode in [1, 3, 4, 5, 6, 7] {
        let w = windows();
        let segment = tagged(opcode, true, w.write.key.0, w.write.offset, b"x");
        w.expect(&segment, "0/2/06");
    }
    for opcode in [0, 2] {
        windows().expect(&Untagged { opcode, ..send_header(1) }.with(b"x"), "0/2/06");
    }
}

#[test]
fn a_key_that_is_not_exactly_right_is_invalid() {
    // [45, 46]
    for bit in 0..32 {
        let w = windows();
        let segment = write(w.write.key.0 ^ 1 << bit, w.write.offset, b"x");
        w.expect(&segment, "1/1/00");
    }
}

#[test]
fn a_window_without_the_right_to_write_looks_invalid() {
    // [49]
    let w = windows();
    let segment = write(w.read.key.0, w.read.offset, b"x");
    w.expect(&segment, "1/1/00");
}

#[test]
fn an_invalidated_window_is_invalid() {
    // [47]
    let mut w = windows();
    w.end.iwarp.post_local_invalidate(w.qp, Tag(1), w.write.key).unwrap();
    w.end.iwarp.ring();
    assert!(matches!(w.end.next(), Event::Completed { .. }));
    w.peer.say(&mut w.end, &fpdu(&write(w.write.key.0, w.write.offset, b"x")));
    expect_terminate(&mut w.end, &mut w.peer, w.qp, "1/1/00");
}

#[test]
fn a_window_of_another_connection_is_not_associated() {
    // [48]
    let (mut b, at) = End::listening(config());
    b.post_receives(16);
    let mut a = End::new(config());
    let (_, other) = join(&mut a, &mut b, at);
    let mut peer = Peer::connect(at);
    peer.say(&mut b, &frame(REQUEST, C | S, 2, &words(1, 1)));
    let qp = b.next_request();
    b.iwarp.accept(qp, b"").unwrap();
    peer.hear_frame(&mut b, REPLY);
    let window = b.iwarp.bind(other, b.buf(b"theirs"), 0..6, Access::RemoteWrite).unwrap();
    peer.say(&mut b, &fpdu(&write(window.key.0, window.offset, b"mine")));
    expect_terminate_established(&mut b, &mut peer, qp, "1/1/02");
    let fenced = {
        b.iwarp.post_local_invalidate(other, Tag(1), window.key).unwrap();
        b.iwarp.ring();
        let Event::Completed { memory: stag_verbs::Memory::Fenced(fenced), .. } = b.next() else {
            panic!("the other connection lives")
        };
        fenced
    };
    assert_eq!(&fenced.into_buf()[..], b"theirs");
}

/// The violation is in the first FPDU, which establishes the connection.
fn expect_terminate_established(end: &mut End, peer: &mut Peer, qp: Qp, cause: &str) {
    peer.hear_terminate(end, cause);
    end.expect_established(qp);
    expect_fault(end, qp, cause);
}

#[test]
fn the_bounds_of_a_window_are_exact() {
    // [50]
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&write(w.write.key.0, w.write.offset, b"WRITTEN!")));
    w.peer.say(&mut w.end, &fpdu(&write(w.write.key.0, w.write.offset + 7, b"?")));
    w.peer.say(&mut w.end, &fpdu(&send_invalidate(1, w.write.key.0, b"")));
    let Event::Received { invalidated: Some(fenced), .. } = w.end.next() else {
        panic!("a message")
    };
    assert_eq!(&fenced.into_buf()[..], b"....WRITTEN?....");
    for (before, payload) in
        [(1, &b"x"[..]), (-7, b"xx"), (-8, b"x"), (0, b"123456789"), (1 << 40, b"x")]
    {
        let w = windows();
        let segment = write(w.write.key.0, w.write.offset.wrapping_add_signed(-before), payload);
        w.expect(&segment, "1/1/01");
    }
}

#[test]
fn an_offset_that_wraps_is_refused() {
    // [51]
    let w = windows();
    let segment = write(w.write.key.0, u64::MAX, b"xx");
    w.expect(&segment, "1/1/03");
}

#[test]
fn a_write_of_nothing_is_not_checked() {
    // [52]
    let mut w = windows();
    for (stag, to) in [(0, 0), (w.read.key.0, u64::MAX), (w.write.key.0 ^ 1, 5)] {
        w.peer.say(&mut w.end, &fpdu(&write(stag, to, b"")));
    }
    w.peer.say(&mut w.end, &fpdu(&send(1, b"still here")));
    assert_eq!(&w.end.next_message(w.qp)[..], b"still here");
}

#[test]
fn each_segment_of_a_write_is_judged_by_itself() {
    // [53]: another STag or a jump inside the message is the sender's business when both are in
    // bounds.
    let mut w = windows();
    let second = w.end.iwarp.bind(w.qp, w.end.buf(b"second"), 0..6, Access::RemoteWrite).unwrap();
    w.peer.say(&mut w.end, &fpdu(&tagged(0, false, w.write.key.0, w.write.offset + 4, b"WW")));
    w.peer.say(&mut w.end, &fpdu(&tagged(0, true, second.key.0, second.offset, b"WW")));
    w.peer.say(&mut w.end, &fpdu(&send_invalidate(1, w.write.key.0, b"")));
    w.peer.say(&mut w.end, &fpdu(&send_invalidate(2, second.key.0, b"")));
    // Earlier octets in front of a Write that no Write covered are cleared: they may be an earlier
    // owner's.
    for expected in [&b"....\0\0\0\0WW78...."[..], b"WWcond"] {
        let Event::Received { invalidated: Some(fenced), .. } = w.end.next() else {
            panic!("a message")
        };
        assert_eq!(&fenced.into_buf()[..], expected);
    }
}

#[test]
fn messages_of_one_kind_may_not_interleave() {
    // [54]
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&Untagged { last: false, ..send_header(1) }.with(b"1234")));
    w.expect(&send(2, b"x"), "0/2/06");
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&Untagged { last: false, ..send_header(1) }.with(b"1234")));
    w.expect(&read_header(1).with(&[0; 28]), "0/2/06");
}

#[test]
fn tagged_segments_may_cut_into_a_send() {
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&Untagged { last: false, ..send_header(1) }.with(b"one ")));
    w.peer.say(&mut w.end, &fpdu(&write(w.write.key.0, w.write.offset, b"WRITTEN!")));
    w.peer.say(&mut w.end, &fpdu(&Untagged { mo: 4, ..send_header(1) }.with(b"message")));
    assert_eq!(&w.end.next_message(w.qp)[..], b"one message");
}

#[test]
fn the_sink_of_a_read_cannot_be_written() {
    // [55]
    let (mut end, mut peer, qp) = accepted(config());
    let span = stag_verbs::RemoteSpan { key: stag_pools::RemoteKey(9), offset: 0, len: 8 };
    end.iwarp.post_read(qp, Tag(1), end.buf(b"........"), 0, &[span]).unwrap();
    end.iwarp.ring();
    let request = peer.hear_ulpdu(&mut end);
    let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
    peer.say(&mut end, &fpdu(&write(sink, 0, b"forged!!")));
    peer.hear_terminate(&mut end, "1/1/00");
    let Event::Completed { memory: stag_verbs::Memory::Buf(sink), .. } = end.next() else {
        panic!("flushed")
    };
    assert_eq!(&sink[..], b"........");
    expect_fault(&mut end, qp, "1/1/00");
}

#[test]
fn no_segment_lands_behind_an_invalidation() {
    // [90]: the first half of a Write, our invalidation, the second half.
    let mut w = windows();
    w.peer.say(&mut w.end, &fpdu(&tagged(0, false, w.write.key.0, w.write.offset, b"WRIT")));
    w.end.iwarp.post_local_invalidate(w.qp, Tag(1), w.write.key).unwrap();
    w.end.iwarp.ring();
    let Event::Completed { memory: stag_verbs::Memory::Fenced(fenced), .. } = w.end.next() else {
        panic!("fenced")
    };
    let buf = fenced.into_buf();
    w.peer.say(&mut w.end, &fpdu(&write(w.write.key.0, w.write.offset + 4, b"TEN!")));
    expect_terminate(&mut w.end, &mut w.peer, w.qp, "1/1/00");
    assert_eq!(&buf[..], b"....WRIT5678....");
}
