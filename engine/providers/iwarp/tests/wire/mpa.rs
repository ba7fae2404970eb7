//! Set-up: MPA Request and Reply [1-23].

use crate::{
    peer::*,
    support::{End, PATIENCE, config, now, pattern},
};
use stag_iwarp::{Crc, IwarpAddress, IwarpConfig};
use stag_verbs::{Cause, Event, FabricFault, Provider, Refusal, Tag};
use std::time::Duration;

/// The end closes at once and silently, and its engine gets no event.
fn expect_silent_close(config: IwarpConfig, request: &[u8]) -> End {
    let never = 2 * PATIENCE;
    let (mut end, at) =
        End::listening(IwarpConfig { request_timeout: never, linger: never, ..config });
    let mut peer = Peer::connect(at);
    peer.say(&mut end, request);
    assert_eq!(peer.hear_all(&mut end), b"", "after {request:02x?}");
    end.pump();
    assert!(end.events.is_empty(), "{:?}", end.events);
    end
}

#[test]
fn revision_1_is_answered_with_revision_1_and_either_side_can_turn_crcs_on() {
    // [1]
    for (asks, wants) in [(false, false), (false, true), (true, false), (true, true)] {
        let flags = if asks { C } else { 0 };
        let request = frame(REQUEST, flags, 1, b"hello");
        let (mut end, mut peer, qp) = answered(
            IwarpConfig { crc: if wants { Crc::Always } else { Crc::Never }, ..config() },
            &request,
        );
        assert_eq!(end.iwarp.private_data(qp), b"hello");
        let (flags, revision, data) = peer.hear_frame(&mut end, REPLY);
        assert_eq!((flags & (M | R | S), revision, &data[..]), (0, 1, &b""[..]));
        assert_eq!(flags & C != 0, asks || wants);
        let mut first = fpdu(&send(1, b"first"));
        let last = first.len() - 1;
        first[last] ^= 1;
        peer.say(&mut end, &first);
        if asks || wants {
            // No FPDU of ours, not even a Terminate, before the first valid one (RFC 5044 §7.1.2).
            assert_eq!(peer.hear_all(&mut end), b"");
            expect_fault(&mut end, qp, "2/0/02");
            assert_eq!(
                (end.iwarp.stats().crc_errors, end.iwarp.stats().terminates_sent.total()),
                (1, 0)
            );
        } else {
            end.expect_established(qp);
            assert_eq!(&end.next_message(qp)[..], b"first");
        }
    }
}

#[test]
fn depths_are_negotiated_to_what_both_sides_can_do() {
    // [2, 7, 8]: asked IRD and ORD, answered IRD and ORD.
    for ((ird, ord), (our_ird, our_ord)) in [
        ((32, 0), (0, 32)),
        ((0, 32), (32, 0)),
        ((4, 7), (8, 4)),
        ((20, 20), (32, 20)),
        ((128, 128), (32, 32)),
        ((16_000, 16_000), (32, 32)),
        ((0x3FFF, 0x3FFF), (0x3FFF, 0x3FFF)),
    ] {
        let (mut end, mut peer, _) =
            answered(config(), &frame(REQUEST, C | S, 2, &words(ird, ord)));
        let (flags, revision, data) = peer.hear_frame(&mut end, REPLY);
        assert_eq!((flags & S, revision), (S, 2));
        assert_eq!(data, words(our_ird, our_ord), "for {ird} and {ord}");
    }
}

#[test]
fn exactly_one_offered_indication_is_chosen() {
    // [3]: A and B are in the first word, C and D in the second.
    for (offered, chosen) in [
        ((0x8000, 0x8000), (0x8000, 0x8000)),
        ((0x8000, 0x4000), (0x8000, 0x4000)),
        ((0x8000, 0xC000), (0x8000, 0x8000)),
        ((0xC000, 0x0000), (0xC000, 0x0000)),
        ((0xC000, 0xC000), (0x8000, 0x8000)),
        ((0x4000, 0xC000), (0x0000, 0x0000)),
    ] {
        let request = frame(REQUEST, C | S, 2, &words(offered.0 | 1, offered.1 | 1));
        let (mut end, mut peer, _) = answered(config(), &request);
        let (_, _, data) = peer.hear_frame(&mut end, REPLY);
        let bits = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]) & 0xC000;
        assert_eq!((bits(0), bits(2)), chosen, "offered {offered:x?}");
    }
}

#[test]
fn every_kind_of_indication_establishes_the_connection() {
    let read = Ask { sink: 1, sink_to: 0, len: 0, source: 1, source_to: 0 };
    for (offered, indication, answer) in [
        ((0x8000, 0x8000), write(1, 0, b""), None),
        ((0x8000, 0x4001), read_request(1, read), Some(read_response(1, 0, b""))),
        ((0xC000, 0x0000), send(1, b""), None),
    ] {
        let (mut end, mut peer, qp) =
            answered(config(), &frame(REQUEST, C | S, 2, &words(offered.0, offered.1)));
        peer.hear_frame(&mut end, REPLY);
        peer.say(&mut end, &fpdu(&indication));
        end.expect_established(qp);
        if let Some(answer) = answer {
            assert_eq!(peer.hear_ulpdu(&mut end), answer);
        }
        peer.hear_nothing(&mut end);
        assert_eq!(
            (end.events.len(), end.iwarp.receives_posted()),
            (0, 16),
            "no receive is used up"
        );
    }
}

#[test]
fn the_initiator_sends_the_indication_that_the_reply_names() {
    let bare_read = Ask { sink: 1, sink_to: 0, len: 0, source: 1, source_to: 0 };
    for (reply, indication) in [
        (words(0x8000 | 16, 0x8000 | 16), write(1, 0, b"")),
        (words(0x8000 | 16, 0x4000 | 16), read_request(1, bare_read)),
        (words(0x8000 | 16, 0xC000 | 16), write(1, 0, b"")),
        // Linux' server grants no Reads at all.
        (words(0x8000, 0x8000), write(1, 0, b"")),
    ] {
        let (mut end, mut peer, qp) = asked(config());
        peer.hear_nothing(&mut end);
        peer.say(&mut end, &frame(REPLY, C | S, 2, &reply));
        end.expect_established(qp);
        assert_eq!(peer.hear_ulpdu(&mut end), indication);
        peer.hear_nothing(&mut end);
    }
}

#[test]
fn a_reply_that_cannot_be_met_gets_its_terminate() {
    for (reply, cause) in [
        (words(16, 16), "2/0/07"),                   // [4]
        (words(0x8000 | 16, 16), "2/0/07"),          // [5] no indication at all
        (words(0xC000 | 16, 16), "2/0/07"),          // [5] a Send, which was not offered
        (words(0x8000, 0x4000), "2/0/07"),           // [5] a Read, and no place for one
        (words(0x8000 | 16, 0x8000 | 33), "2/0/06"), // [6]
    ] {
        let (mut end, mut peer, qp) = asked(config());
        peer.say(&mut end, &frame(REPLY, C | S, 2, &reply));
        let payload = peer.hear_terminate(&mut end, cause);
        assert_eq!(payload[2..], [0, 0], "no header belongs to it");
        expect_fault(&mut end, qp, cause);
        assert_eq!(end.iwarp.stats().handshakes.unsuitable, 1);
    }
}

#[test]
fn a_rejection_carries_its_private_data_both_ways() {
    // [9]
    for len in [0, 8, 248] {
        let why = pattern(len, 1);
        let (mut end, at) = End::listening(config());
        let mut peer = Peer::connect(at);
        peer.say(&mut end, &frame(REQUEST, C | S, 2, &words(1, 1)));
        let qp = end.next_request();
        end.iwarp.reject(qp, &why);
        let (flags, _, data) = peer.hear_frame(&mut end, REPLY);
        assert_eq!((flags & (R | S), &data[4..]), (R | S, &why[..]));
        assert_eq!(peer.hear_all(&mut end), b"");
        assert_eq!(end.next_end(qp), Cause::Local);

        let (mut end, mut peer, qp) = asked(config());
        let data = [&words(0x8000, 0x8000)[..], &why].concat();
        peer.say(&mut end, &frame(REPLY, C | S | R, 2, &data));
        assert_eq!(end.next_end(qp), Cause::Rejected);
        assert_eq!(end.iwarp.stats().handshakes.rejected, 1);
        assert_eq!(peer.hear_all(&mut end), b"");
    }
}

#[test]
fn private_data_of_every_allowed_length_arrives() {
    // [10]: lengths on the wire, the words of revision 2 included.
    for len in [4, 5, 252, 256, 257, 512] {
        let data = [&words(1, 1)[..], &pattern(len - 4, 2)].concat();
        let (end, _, qp) = answered(config(), &frame(REQUEST, C | S, 2, &data));
        assert_eq!(end.iwarp.private_data(qp), &data[4..]);
    }
    for len in [0, 1, 248, 512] {
        let data = pattern(len, 3);
        let (end, _, qp) = answered(config(), &frame(REQUEST, C, 1, &data));
        assert_eq!(end.iwarp.private_data(qp), data);
    }
    let (mut end, mut peer, qp) = asked(config());
    let data = [&words(0x8001, 0x8001)[..], &pattern(508, 4)].concat();
    peer.say(&mut end, &frame(REPLY, C | S, 2, &data));
    end.expect_established(qp);
    assert_eq!(end.iwarp.private_data(qp), &data[4..]);
}

#[test]
fn requests_that_break_a_rule_are_met_with_silence() {
    let good = frame(REQUEST, C | S, 2, &words(1, 1));
    let mut wrong_key = good.clone();
    wrong_key[3] ^= 1;
    for request in [
        frame(REQUEST, C, 1, &[0; 513]),      // [10]
        frame(REQUEST, C | S, 2, b""),        // [11]
        frame(REQUEST, C | S, 2, &[0; 3]),    // [11]
        wrong_key,                            // [12]
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),   // [12]
        frame(REPLY, C | S, 2, &words(1, 1)), // [13]
        frame(REQUEST, C, 0, b""),            // [15]
        frame(REQUEST, C | S, 3, &words(1, 1)),
        frame(REQUEST, C | S, 129, &words(1, 1)),
    ] {
        let end = expect_silent_close(config(), &request);
        assert_eq!(end.iwarp.stats().handshakes.malformed, 1);
        assert_eq!(end.iwarp.connections(), 0);
    }
    // [19] an FPDU after the Request
    let end = expect_silent_close(config(), &[good, fpdu(&write(1, 0, b""))].concat());
    assert_eq!(end.iwarp.stats().handshakes.surplus, 1);
}

#[test]
fn replies_that_break_a_rule_end_the_connect() {
    // [14]
    for reply in [
        frame(REQUEST, C | S, 2, &words(0x8001, 0x8001)),
        b"MPA ID Rep frame....".to_vec(),
        frame(REPLY, C | S, 2, b""),
        frame(REPLY, C, 2, b""),
        frame(REPLY, C, 1, b""),
        frame(REPLY, C | S, 0, &words(0x8001, 0x8001)),
        frame(REPLY, C | S, 2, &[0; 513]),
    ] {
        let (mut end, mut peer, qp) = asked(config());
        peer.say(&mut end, &reply);
        assert_eq!(end.next_end(qp), Cause::Handshake, "{reply:02x?}");
        assert_eq!(peer.hear_all(&mut end), b"");
    }
}

#[test]
fn octets_between_the_request_and_our_answer_are_refused() {
    let (mut end, at) = End::listening(config());
    let mut peer = Peer::connect(at);
    peer.say(&mut end, &frame(REQUEST, C | S, 2, &words(1, 1)));
    let qp = end.next_request();
    peer.say(&mut end, b"?");
    assert_eq!(end.next_end(qp), Cause::Handshake);
    assert_eq!(end.iwarp.accept(qp, b""), Err(Refusal::Gone));
}

#[test]
fn frames_may_come_octet_by_octet() {
    // [17]
    let (mut end, at) = End::listening(config());
    let mut peer = Peer::connect(at);
    for octet in frame(REQUEST, C | S, 2, &[&words(1, 1)[..], b"data"].concat()) {
        peer.say(&mut end, &[octet]);
    }
    let qp = end.next_request();
    assert_eq!(end.iwarp.private_data(qp), b"data");

    let (mut end, mut peer, qp) = asked(config());
    for octet in frame(REPLY, C | S, 2, &words(0x8001, 0x8001)) {
        assert!(end.events.is_empty());
        peer.say(&mut end, &[octet]);
    }
    end.expect_established(qp);
}

#[test]
fn fpdus_behind_the_reply_are_kept() {
    // [18], as siw's server sends them
    let (mut end, mut peer, qp) = asked(config());
    let reply = frame(REPLY, C | S, 2, &words(0x8001, 0x8001));
    let second = fpdu(&send(2, b"second"));
    let (early, late) = second.split_at(7);
    peer.say(&mut end, &[reply, fpdu(&send(1, b"first")), early.to_vec()].concat());
    end.expect_established(qp);
    assert_eq!(&end.next_message(qp)[..], b"first");
    peer.say(&mut end, late);
    assert_eq!(&end.next_message(qp)[..], b"second");
}

#[test]
fn a_responder_sends_nothing_before_the_first_fpdu() {
    // [20]
    let (mut end, mut peer, qp) = answered(config(), &frame(REQUEST, C | S, 2, &words(1, 1)));
    peer.hear_frame(&mut end, REPLY);
    let early = end.buf(b"early");
    assert_eq!(
        end.iwarp.post_send(qp, Tag(1), early, None).unwrap_err().why,
        Refusal::NotEstablished
    );
    end.iwarp.ring();
    peer.hear_nothing(&mut end);
    peer.say(&mut end, &fpdu(&send(1, b"first")));
    end.expect_established(qp);
    assert_eq!(&end.next_message(qp)[..], b"first");
    end.iwarp.post_send(qp, Tag(1), end.buf(b"answer"), None).unwrap();
    end.iwarp.ring();
    assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"answer"));
}

#[test]
fn a_first_fpdu_that_breaks_a_rule_gets_its_terminate() {
    let (mut end, mut peer, qp) = answered(config(), &frame(REQUEST, C | S, 2, &words(1, 1)));
    peer.hear_frame(&mut end, REPLY);
    peer.say(&mut end, &fpdu(&send(7, b"first")));
    expect_terminate(&mut end, &mut peer, qp, "1/2/03");
}

#[test]
fn a_peer_that_takes_too_long_is_given_up() {
    // [21]
    let defaults = config();
    assert_eq!(
        (defaults.request_timeout, defaults.reply_timeout),
        (Duration::from_secs(5), Duration::from_secs(10))
    );
    let short = Duration::from_millis(20);
    let (mut end, at) = End::listening(IwarpConfig { request_timeout: short, ..config() });
    let mut peer = Peer::connect(at);
    peer.say(&mut end, &REQUEST[..9]);
    assert_eq!(peer.hear_all(&mut end), b"");
    assert_eq!((end.iwarp.stats().handshakes.timed_out, end.events.len()), (1, 0));

    let begun = now();
    let (mut end, mut peer, qp) = asked(config());
    let deadline = end.iwarp.wake_at().unwrap();
    let deadlines = begun + defaults.reply_timeout..=now() + defaults.reply_timeout;
    assert!(deadlines.contains(&deadline));
    end.stopped_at = Some(deadline);
    assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::TimedOut));
    assert_eq!(peer.hear_all(&mut end), b"");
    assert_eq!(end.iwarp.wake_at(), None);
}

#[test]
fn a_peer_that_leaves_during_set_up_is_forgotten() {
    let (mut end, at) = End::listening(config());
    drop(Peer::connect(at));
    let mut waiting = Peer::connect(at);
    waiting.say(&mut end, &frame(REQUEST, C | S, 2, &words(1, 1)));
    let qp = end.next_request();
    drop(waiting);
    assert_eq!(end.next_end(qp), Cause::Peer);
    assert_eq!(end.iwarp.connections(), 0);
    let (mut end, peer, qp) = asked(config());
    drop(peer);
    assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost));
}

#[test]
fn a_reply_can_turn_crcs_on() {
    // [23]
    let (mut end, mut peer, qp) = asked(IwarpConfig { crc: Crc::Never, ..config() });
    peer.say(&mut end, &frame(REPLY, C | S, 2, &words(0x8001, 0x8001)));
    end.expect_established(qp);
    assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""));
    let mut broken = fpdu(&send(1, b"first"));
    broken[20] ^= 0x10;
    peer.say(&mut end, &broken);
    expect_terminate(&mut end, &mut peer, qp, "2/0/02");
}

#[test]
fn the_request_of_an_initiator_suits_every_known_peer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(config());
    end.iwarp.connect(&IwarpAddress(listener.local_addr().unwrap()), b"offer").unwrap();
    let mut peer = Peer::over(listener.accept().unwrap().0);
    let (flags, revision, data) = peer.hear_frame(&mut end, REQUEST);
    assert_eq!((flags, revision), (C | S | SIW, 2));
    assert_eq!(end.iwarp.stats().marked_frames, 1);
    assert_eq!(data, [&words(0x8000 | 32, 0xC000 | 32)[..], b"offer"].concat());
    peer.hear_nothing(&mut end);
    assert!(!end.events.iter().any(|event| matches!(event, Event::Established { .. })));
}
