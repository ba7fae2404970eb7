//! Framing: lengths, pads, CRCs, markers, and streams cut anywhere [24-34].

use crate::{
    peer::*,
    support::{End, LIMITS, PATIENCE, config, now, pattern},
};
use stag_iwarp::{Crc, FpduMax, IwarpConfig};
use stag_pools::Access;
use stag_verbs::{Event, Limits, Memory, Provider, RemoteSpan, Status, Tag};

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|octet| *octet != b' ').collect();
    let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(value).collect()
}

#[test]
fn known_fpdus_are_understood() {
    // [25]
    let zeros =
        "002a4143 00000000 00000000 00000001 00000000".to_string() + &"00".repeat(24) + "b7243ec3";
    let (mut end, mut peer, qp) = accepted(config());
    peer.say(&mut end, &octets(&zeros));
    assert_eq!(&end.next_message(qp)[..], [0; 24]);
    peer.say(&mut end, &octets("000ec140 00000001 0000000000000000 ebd34c5f"));
    peer.hear_nothing(&mut end);
    let (mut end, mut peer, qp) = accepted(config());
    peer.say(&mut end, &octets("00124143 00000000 00000000 00000001 00000000 587be8c4"));
    assert_eq!(&end.next_message(qp)[..], b"");
    peer.say(
        &mut end,
        &octets(concat!(
            "00264147000000000000000200000001000000001100c0000013c140",
            "11223344000000000000200037188626"
        )),
    );
    assert!(matches!(
        end.next_end(qp),
        stag_verbs::Cause::Terminated(said) if said.to_string() == "1/1/00"
    ));
}

#[test]
fn our_fpdus_are_the_known_ones() {
    // [25]
    let (mut end, mut peer, qp) = accepted(config());
    let write_to = RemoteSpan {
        key: stag_pools::RemoteKey(0x1122_3344),
        offset: 0x0102_0304_0506_0708,
        len: 5,
    };
    end.iwarp.post_send(qp, Tag(1), end.buf(&[0; 24]), None).unwrap();
    end.iwarp
        .post_send(qp, Tag(2), end.buf(b"ping"), Some(stag_pools::RemoteKey(0xdead_be01)))
        .unwrap();
    end.iwarp.post_write(qp, Tag(3), end.buf(b"hello").freeze(), write_to).unwrap();
    end.iwarp.ring();
    let zeros =
        "002a4143 00000000 00000000 00000001 00000000".to_string() + &"00".repeat(24) + "b7243ec3";
    let expected = [
        octets(&zeros),
        octets("00164144deadbe0100000000000000020000000070696e67f8935d04"),
        octets("0013c14011223344010203040506070868656c6c6f0000001fb1004d"),
    ]
    .concat();
    assert_eq!(peer.hear(&mut end, expected.len()), expected);
}

#[test]
fn messages_that_are_copied_are_the_same_fpdus_as_those_that_are_gathered() {
    for (crc, invalidate) in
        [(Crc::Always, None), (Crc::Never, None), (Crc::Always, Some(0xdead_be01))]
    {
        let config = IwarpConfig { crc, ..config() };
        let request = frame(REQUEST, S, 2, &words(128, 128));
        let mut sides = [(); 2].map(|()| {
            let (mut end, mut peer, qp) = answered(config.clone(), &request);
            peer.hear_frame(&mut end, REPLY);
            peer.say(&mut end, &fpdu(&write(0, 0, b"")));
            end.expect_established(qp);
            (end, peer, qp)
        });
        let key = invalidate.map(stag_pools::RemoteKey);
        for len in (0..70).chain([511, 512, 4093, 4096]) {
            let payload = pattern(len, len);
            let [copied, gathered] = &mut sides;
            let (end, peer, qp) = copied;
            assert!(end.iwarp.send_inline(*qp, &payload, key), "{len} octets");
            if len == 3 {
                peer.hear_nothing(end);
            }
            end.iwarp.ring();
            let heard = peer.hear_fpdu(end);
            let (end, peer, qp) = gathered;
            end.iwarp.post_send(*qp, Tag(0), end.buf(&payload), key).unwrap();
            end.iwarp.ring();
            assert_eq!(heard, peer.hear_fpdu(end), "{len} octets");
        }
        let stats = sides[0].0.iwarp.stats();
        assert_eq!(stats.octets_copied, (0..70).sum::<u64>() + 511 + 512 + 4093 + 4096);
        assert_eq!(sides[1].0.iwarp.stats().octets_copied, 0);
    }
}

#[test]
fn what_is_copied_overtakes_nothing_and_is_overtaken_by_nothing() {
    let (mut end, mut peer, qp) = accepted(config());
    let long = pattern(20_000, 3);
    let to = |len| RemoteSpan { key: stag_pools::RemoteKey(9), offset: 7, len };
    assert!(end.iwarp.send_inline(qp, b"one", None));
    end.iwarp.post_write(qp, Tag(1), end.buf(b"short").freeze(), to(5)).unwrap();
    assert!(end.iwarp.send_inline(qp, b"two", None), "a short Write is copied, too");
    end.iwarp.post_write(qp, Tag(2), end.buf(&long).freeze(), to(20_000)).unwrap();
    assert!(!end.iwarp.send_inline(qp, b"three", None), "a long Write waits in front");
    end.iwarp.post_write(qp, Tag(3), end.buf(b"again").freeze(), to(5)).unwrap();
    end.iwarp.post_send(qp, Tag(4), end.buf(b"three"), None).unwrap();
    end.iwarp.ring();
    for expected in [send(1, b"one"), write(9, 7, b"short"), send(2, b"two")] {
        assert_eq!(peer.hear_ulpdu(&mut end), expected);
    }
    let mut written = Vec::new();
    while written.len() < long.len() {
        written.extend_from_slice(&peer.hear_ulpdu(&mut end)[14..]);
    }
    assert_eq!(written, long);
    for expected in [write(9, 7, b"again"), send(3, b"three")] {
        assert_eq!(peer.hear_ulpdu(&mut end), expected);
    }
    for tag in 1..=4 {
        let event = end.next();
        assert!(matches!(
            event,
            Event::Completed { tag: Tag(of), status: Status::Success, .. } if of == tag
        ));
    }
    // A Read that waits for its answer does not delay a message sent after it, but a Write
    // completes after it.
    end.iwarp.post_read(qp, Tag(5), end.buf(&[0; 4]), 0, &[to(4)]).unwrap();
    assert!(!end.iwarp.send_inline(qp, b"four", None), "the Read's request waits in front");
    end.iwarp.ring();
    let asked = peer.hear_ulpdu(&mut end);
    assert!(end.iwarp.send_inline(qp, b"four", None));
    end.iwarp.post_write(qp, Tag(6), end.buf(b"later").freeze(), to(5)).unwrap();
    assert!(!end.iwarp.send_inline(qp, b"five", None));
    end.iwarp.ring();
    for expected in [send(4, b"four"), write(9, 7, b"later")] {
        assert_eq!(peer.hear_ulpdu(&mut end), expected);
    }
    let sink = u32::from_be_bytes(asked[18..22].try_into().unwrap());
    let sink_to = u64::from_be_bytes(asked[22..30].try_into().unwrap());
    peer.say(&mut end, &fpdu(&read_response(sink, sink_to, b"read")));
    for tag in [5, 6] {
        let event = end.next();
        assert!(matches!(
            event,
            Event::Completed { tag: Tag(of), status: Status::Success, .. } if of == tag
        ));
    }
}

#[test]
fn copies_wait_for_the_kernel_and_then_go_on_where_it_stopped() {
    let config = IwarpConfig { send_buffer: Some(1), receive_buffer: Some(1), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    let mut said = 0;
    while end.iwarp.send_inline(qp, &pattern(1000, said), None) {
        said += 1;
        end.iwarp.ring();
    }
    assert!((30..2000).contains(&said), "what waits has a limit: {said} messages");
    // A message that does not fit is posted, and comes afterwards.
    end.iwarp.post_send(qp, Tag(1), end.buf(b"behind"), None).unwrap();
    end.iwarp.ring();
    for msn in 0..said {
        assert_eq!(peer.hear_ulpdu(&mut end), send(msn as u32 + 1, &pattern(1000, msn)));
    }
    assert_eq!(peer.hear_ulpdu(&mut end), send(said as u32 + 1, b"behind"));
    assert!(end.iwarp.stats().sendmsg_short >= 1, "{:?}", end.iwarp.stats());
}

#[test]
fn octets_are_counted_by_connection_when_they_are_moved() {
    let config = IwarpConfig { send_buffer: Some(1), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    let told = |end: &mut End| {
        let mut sum = 0;
        end.iwarp.take_moved(&mut |of, octets| {
            assert_eq!(of, qp);
            sum += octets;
        });
        sum
    };
    told(&mut end);
    let octets = pattern(1 << 18, 5);
    let to = RemoteSpan { key: stag_pools::RemoteKey(9), offset: 7, len: 1 << 18 };
    end.iwarp.post_write(qp, Tag(1), end.buf(&octets).freeze(), to).unwrap();
    end.iwarp.ring();
    let by_doorbell = told(&mut end);
    assert!((1..1 << 18).contains(&by_doorbell), "{by_doorbell} of a peer that takes nothing");
    let mut heard = 0;
    while heard < octets.len() {
        heard += peer.hear_ulpdu(&mut end).len() - write(9, 7, b"").len();
    }
    let later = told(&mut end);
    assert!(by_doorbell + later > 1 << 18, "{by_doorbell} and {later}, headers included");
    // What arrives is moved, too.
    let window = end.iwarp.bind(qp, end.buf(&octets), 0..1 << 18, Access::RemoteWrite).unwrap();
    peer.say(&mut end, &fpdu(&write(window.key.0, window.offset, &pattern(5000, 1))));
    let mut placed = 0;
    let deadline = now() + PATIENCE;
    while placed < 5000 {
        end.pump();
        placed += told(&mut end);
        assert!(now() < deadline, "{placed}");
    }
    assert!(placed < 6000, "{placed}");
}

#[test]
fn copies_that_wait_stay_whole_beside_answers_and_terminates() {
    let config = IwarpConfig { send_buffer: Some(1), receive_buffer: Some(1), ..config() };
    for is_terminated in [false, true] {
        let (mut end, mut peer, qp) = accepted(config.clone());
        let octets = pattern(5000, 5);
        let window = end.iwarp.bind(qp, end.buf(&octets), 0..5000, Access::RemoteRead).unwrap();
        let mut said = 0;
        while end.iwarp.send_inline(qp, &pattern(1000, said), None) {
            said += 1;
            end.iwarp.ring();
        }
        let ask =
            Ask { sink: 3, sink_to: 0, len: 5000, source: window.key.0, source_to: window.offset };
        peer.say(&mut end, &fpdu(&read_request(1, ask)));
        assert!(!end.iwarp.send_inline(qp, b"no room", None));
        if is_terminated {
            peer.say(&mut end, &fpdu(&send(9, b"")));
        } else {
            end.iwarp.post_send(qp, Tag(1), end.buf(b"behind"), None).unwrap();
            end.iwarp.ring();
        }
        for msn in 0..said {
            assert_eq!(peer.hear_ulpdu(&mut end), send(msn as u32 + 1, &pattern(1000, msn)));
        }
        let mut answer = Vec::new();
        while answer.len() < octets.len() {
            let ulpdu = peer.hear_ulpdu(&mut end);
            assert_eq!(ulpdu[2..6], [0, 0, 0, 3], "a part of the answer");
            answer.extend_from_slice(&ulpdu[14..]);
        }
        assert_eq!(answer, octets);
        if is_terminated {
            peer.hear_terminate(&mut end, "1/2/03");
        } else {
            assert_eq!(peer.hear_ulpdu(&mut end), send(said as u32 + 1, b"behind"));
            assert!(end.iwarp.send_inline(qp, b"room", None));
        }
    }
}

#[test]
fn nothing_is_copied_where_the_path_wants_another_form() {
    // Longer than a segment, before the first FPDU, with markers, and without a connection.
    let (mut end, _peer, qp) = accepted(IwarpConfig { fpdu_max: FpduMax::Ulpdu(500), ..config() });
    assert!(end.iwarp.send_inline(qp, &[0; 500 - 18], None));
    assert!(!end.iwarp.send_inline(qp, &[0; 500 - 17], None));
    end.iwarp.disconnect(qp);
    assert!(!end.iwarp.send_inline(qp, b"", None));
    let (mut end, mut peer, qp) = answered(config(), &frame(REQUEST, S | C, 2, &words(128, 128)));
    peer.hear_frame(&mut end, REPLY);
    assert!(!end.iwarp.send_inline(qp, b"early", None));
    let (mut end, mut peer, qp) =
        answered(config(), &frame(REQUEST, S | C | M, 2, &words(128, 128)));
    peer.hear_frame(&mut end, REPLY);
    peer.say(&mut end, &fpdu(&write(0, 0, b"")));
    end.expect_established(qp);
    assert!(!end.iwarp.send_inline(qp, b"marked", None));
}

#[test]
fn every_pad_is_right_in_both_directions() {
    // [26, 27]
    let (mut end, mut peer, qp) = accepted(config());
    end.post_receives(32);
    for len in 0..40_usize {
        let payload = pattern(len, len);
        let mut padded = open_fpdu(&send(len as u32 + 1, &payload));
        let filled = 2 + 18 + len;
        padded[filled..].fill(0xEE);
        padded.extend_from_slice(&crc32c(&padded).to_le_bytes());
        peer.say(&mut end, &padded);
        let message = end.next_message(qp);
        assert_eq!(message[..], payload);
        end.iwarp.post_send(qp, Tag(0), message, None).unwrap();
        end.iwarp.ring();
        assert_eq!(peer.hear_ulpdu(&mut end), send(len as u32 + 1, &payload));
        assert!(matches!(end.next(), Event::Completed { status: Status::Success, .. }));
    }
}

#[test]
fn crcs_that_are_off_are_sent_as_zero_and_not_looked_at() {
    // [28]
    let config = IwarpConfig { crc: Crc::Never, ..config() };
    let (mut end, mut peer, qp) = answered(config, &frame(REQUEST, S, 2, &words(128, 128)));
    let (flags, _, _) = peer.hear_frame(&mut end, REPLY);
    assert_eq!((flags & C, end.iwarp.stats().without_crc), (0, 1));
    for msn in 1..=3 {
        let mut garbage = open_fpdu(&send(msn, b"message"));
        garbage.extend_from_slice(&[msn as u8, 2, 3, 4]);
        peer.say(&mut end, &garbage);
    }
    end.expect_established(qp);
    for _ in 1..=3 {
        assert_eq!(&end.next_message(qp)[..], b"message");
    }
    end.iwarp.post_send(qp, Tag(1), end.buf(b"answer"), None).unwrap();
    end.iwarp.ring();
    let (ulpdu, _, crc) = peer.hear_fpdu(&mut end);
    assert_eq!((ulpdu, crc), (send(1, b"answer"), vec![0; 4]));
}

#[test]
fn one_flipped_bit_anywhere_is_noticed_and_nothing_is_placed() {
    // [29]; the two octets of the length are the next test's
    let len = fpdu(&write(0, 0, b"hello")).len();
    for at in 2..len {
        let (mut end, mut peer, qp) = accepted(config());
        let window = end.iwarp.bind(qp, end.buf(b"....."), 0..5, Access::RemoteWrite).unwrap();
        let mut flipped = fpdu(&write(window.key.0, window.offset, b"hello"));
        flipped[at] ^= 1 << (at % 8);
        peer.say(&mut end, &flipped);
        assert_eq!(peer.hear_terminate(&mut end, "2/0/02")[2..], [0, 0], "octet {at}");
        let Event::Unbound { fenced, .. } = end.next() else { panic!("the window ends") };
        assert_eq!(&fenced.into_buf()[..], b".....");
        expect_fault(&mut end, qp, "2/0/02");
        assert_eq!(end.iwarp.stats().crc_errors, 1);
    }
}

#[test]
fn a_length_that_holds_no_header_is_refused() {
    // [30]
    for len in 0..14_u16 {
        let (mut end, mut peer, qp) = accepted(config());
        peer.say(&mut end, &fpdu(&vec![0xC1; usize::from(len)]));
        expect_terminate(&mut end, &mut peer, qp, "2/0/03");
    }
    for len in 14..18 {
        let (mut end, mut peer, qp) = accepted(config());
        peer.say(&mut end, &fpdu(&send(1, b"")[..len]));
        expect_terminate(&mut end, &mut peer, qp, "2/0/03");
    }
}

#[test]
fn fpdus_of_the_greatest_lengths_are_taken() {
    // [31]
    let (mut end, mut peer, qp) = accepted(config());
    for ulpdu_len in [64_768, 65_535] {
        let octets = pattern(ulpdu_len - 14, 5);
        let blank = end.buf(&vec![0; octets.len()]);
        let window = end.iwarp.bind(qp, blank, 0..octets.len(), Access::RemoteWrite).unwrap();
        peer.say(&mut end, &fpdu(&write(window.key.0, window.offset, &octets)));
        end.iwarp.post_local_invalidate(qp, Tag(1), window.key).unwrap();
        // The FPDU is longer than one read may bring.
        peer.say(&mut end, &fpdu(&send(if ulpdu_len == 65_535 { 2 } else { 1 }, b"done")));
        end.next_message(qp);
        end.iwarp.ring();
        let Event::Completed { memory: Memory::Fenced(fenced), .. } = end.next() else {
            panic!("fenced")
        };
        assert!(fenced.into_buf()[..] == octets[..]);
    }
}

#[test]
fn a_stream_means_the_same_however_it_is_cut() {
    // [32]: the same traffic in pieces of 1 to n octets, through the own and through the shared
    // buffer.
    for (receives, steps) in [(16, &[1, 2, 3, 5, 17, 1000][..]), (4096, &[3, 7, 4099, 70_000][..])]
    {
        for step in steps {
            let limits = Limits { receives: 8192, ..LIMITS };
            let (mut end, mut peer, qp) = accepted(IwarpConfig { limits, ..config() });
            let blank = end.buf(&[0; 4000]);
            let window = end.iwarp.bind(qp, blank, 0..4000, Access::RemoteWrite).unwrap();
            let more =
                stag_pools::Pool::new(&[stag_pools::Class { slot_len: 4096, count: receives }])
                    .unwrap();
            while let Some(buf) = more.take(4096) {
                end.iwarp.post_receive(buf).unwrap();
            }
            let octets = pattern(4000, 6);
            let mut stream = Vec::new();
            for (part, piece) in octets.chunks(1000).enumerate() {
                let to = window.offset + 1000 * part as u64;
                stream.extend(fpdu(&tagged(0, part == 3, window.key.0, to, piece)));
                stream.extend(fpdu(&send(part as u32 + 1, piece)));
            }
            stream.extend(fpdu(&send_invalidate(5, window.key.0, b"last")));
            for piece in stream.chunks(*step) {
                peer.say(&mut end, piece);
            }
            for piece in octets.chunks(1000) {
                assert_eq!(end.next_message(qp)[..], *piece);
            }
            let Event::Received { buf, invalidated: Some(fenced), .. } = end.next() else {
                panic!("the last")
            };
            assert_eq!(&buf[..], b"last");
            assert!(fenced.into_buf()[..] == octets[..], "in steps of {step}");
            end.iwarp.post_send(qp, Tag(1), end.buf(b"alive"), None).unwrap();
            end.iwarp.ring();
            assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"alive"), "nothing was taken twice");
            assert!(matches!(end.next(), Event::Completed { status: Status::Success, .. }));
        }
    }
}

#[test]
fn fpdus_leave_whole_however_little_the_kernel_takes() {
    // [34]: a peer that reads a few octets at a time, and buffers so small that sends stop in the
    // middle.
    let config = IwarpConfig {
        send_buffer: Some(1),
        receive_buffer: Some(1),
        fpdu_max: FpduMax::Ulpdu(500),
        ..config()
    };
    let (mut end, mut peer, qp) = accepted(config);
    peer.slow_down(97);
    let octets = pattern(30_000, 7);
    let to = RemoteSpan { key: stag_pools::RemoteKey(77), offset: 1 << 40, len: 30_000 };
    let source = end.iwarp.bind(qp, end.buf(&octets), 0..octets.len(), Access::RemoteRead).unwrap();
    let ask =
        Ask { sink: 5, sink_to: 9, len: 30_000, source: source.key.0, source_to: source.offset };
    end.iwarp.post_write(qp, Tag(1), end.buf(&octets).freeze(), to).unwrap();
    end.iwarp.post_send(qp, Tag(2), end.buf(&octets[..3000]), None).unwrap();
    end.iwarp.ring();
    peer.say(&mut end, &fpdu(&read_request(1, ask)));
    let (mut written, mut sent, mut read) = (Vec::new(), Vec::new(), Vec::new());
    while written.len() + sent.len() + read.len() < 63_000 {
        let ulpdu = peer.hear_ulpdu(&mut end);
        assert!(ulpdu.len() <= 500);
        let to = u64::from_be_bytes(ulpdu[6..14].try_into().unwrap());
        match ulpdu[1] & 0xF {
            0 => {
                assert_eq!(to, (1 << 40) + written.len() as u64);
                written.extend_from_slice(&ulpdu[14..]);
            }
            2 => {
                assert_eq!(to, 9 + read.len() as u64);
                read.extend_from_slice(&ulpdu[14..]);
            }
            3 => sent.extend_from_slice(&ulpdu[18..]),
            other => panic!("opcode {other}"),
        }
    }
    assert!(written == octets && sent == octets[..3000] && read == octets);
    // The exact point at which a send stops is the kernel's choice; a unit test of the sending half
    // stops at every octet.
    assert!(end.iwarp.stats().sendmsg_short >= 2, "{:?}", end.iwarp.stats());
    for tag in 1..=2 {
        let event = end.next();
        assert!(matches!(
            event,
            Event::Completed { tag: Tag(of), status: Status::Success, .. } if of == tag
        ));
    }
}

#[test]
fn a_peer_that_asks_for_markers_gets_them() {
    // [16]: 4 octets every 512 of the stream, the first before the first FPDU; in the CRC (RFC 5044
    // §4.3).
    for fpdu_max in [FpduMax::Auto, FpduMax::Ulpdu(200), FpduMax::Ulpdu(5000)] {
        let config = IwarpConfig { fpdu_max, ..config() };
        let request = frame(REQUEST, C | S | M, 2, &words(128, 128));
        let (mut end, mut peer, qp) = answered(config, &request);
        let (flags, _, _) = peer.hear_frame(&mut end, REPLY);
        assert_eq!(flags & (M | R), 0, "we ask for none");
        peer.say(&mut end, &fpdu(&write(1, 0, b"")));
        end.expect_established(qp);
        let octets = pattern(20_000, 8);
        let to = RemoteSpan { key: stag_pools::RemoteKey(77), offset: 0, len: 20_000 };
        for tag in 0..3 {
            end.iwarp.post_write(qp, Tag(tag), end.buf(&octets).freeze(), to).unwrap();
        }
        end.iwarp.ring();
        let mut reader = Unmarked { at: 0, fpdu_at: 0 };
        let mut seen = Vec::new();
        while seen.len() < 60_000 {
            seen.extend_from_slice(&reader.ulpdu(&mut peer, &mut end)[14..]);
        }
        assert!(seen.chunks(20_000).all(|part| part == octets));
    }
}

/// Removes markers from a stream and checks them.
struct Unmarked {
    /// Octets of the stream so far.
    at: usize,
    /// Position in the stream at which the FPDU began.
    fpdu_at: usize,
}

impl Unmarked {
    /// The next `len` octets without markers; `covered` gets the markers too.
    fn octets(
        &mut self,
        peer: &mut Peer,
        end: &mut crate::support::End,
        len: usize,
        covered: &mut Vec<u8>,
    ) -> Vec<u8> {
        let mut octets = Vec::new();
        while octets.len() < len {
            if self.at.is_multiple_of(512) {
                let marker = peer.hear(end, 4);
                let back = if covered.is_empty() { 0 } else { (self.at - self.fpdu_at) as u16 };
                let [high, low] = back.to_be_bytes();
                assert_eq!(marker, [0, 0, high, low], "at {}", self.at);
                covered.extend_from_slice(&marker);
                self.at += 4;
                if back == 0 {
                    self.fpdu_at = self.at;
                }
            }
            let piece = peer.hear(end, (len - octets.len()).min(512 - self.at % 512));
            self.at += piece.len();
            covered.extend_from_slice(&piece);
            octets.extend(piece);
        }
        octets
    }

    fn ulpdu(&mut self, peer: &mut Peer, end: &mut crate::support::End) -> Vec<u8> {
        self.fpdu_at = self.at;
        let mut covered = Vec::new();
        let length = self.octets(peer, end, 2, &mut covered);
        let len = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let mut ulpdu = self.octets(peer, end, (2 + len).next_multiple_of(4) - 2, &mut covered);
        ulpdu.truncate(len);
        let crc = crc32c(&covered);
        // A marker before the CRC field is covered, too.
        let expected = if self.at.is_multiple_of(512) {
            let mut covered = covered.clone();
            let [high, low] = ((self.at - self.fpdu_at) as u16).to_be_bytes();
            covered.extend_from_slice(&[0, 0, high, low]);
            crc32c(&covered)
        } else {
            crc
        };
        assert_eq!(self.octets(peer, end, 4, &mut covered), expected.to_le_bytes());
        ulpdu
    }
}
