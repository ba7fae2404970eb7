//! A peer with the habits of Linux' siw: it echoes unknown flags, its CRCs are off, its server
//! sends directly after the Reply, its Terminates have their bit fields swapped, and it closes with
//! octets unread.

use crate::{
    peer::*,
    support::{End, config, now, pattern},
};
use stag_iwarp::{Crc, IwarpAddress, IwarpConfig};
use stag_pools::{Access, RemoteKey};
use stag_verbs::{Cause, Event, Memory, Provider, Qp, RemoteSpan, Status, Tag};
use std::{net::TcpListener, time::Duration};

/// siw's NFS client: revision 2, S, no CRC, no indication, IRD 128, ORD 0, and private data.
const CLIENT: [u8; 12] = [0, 0x80, 0, 0, 0xF6, 0xAB, 0x0E, 0x18, 1, 0, 3, 3];

fn client(config: IwarpConfig) -> (End, Peer, Qp) {
    let (mut end, mut peer, qp) = answered(config, &frame(REQUEST, S, 2, &CLIENT));
    assert_eq!(end.iwarp.private_data(qp), &CLIENT[4..]);
    let (flags, revision, data) = peer.hear_frame(&mut end, REPLY);
    assert_eq!((flags & (M | R | S), revision), (S, 2));
    assert_eq!(data, words(0, 32), "it gets no indication it did not ask for");
    (end, peer, qp)
}

#[test]
fn a_client_that_asks_for_no_crc_gets_none_because_it_cannot_check_a_crc_in_two_parts() {
    let (mut end, mut peer, qp) =
        answered(IwarpConfig { crc: Crc::Auto, ..config() }, &frame(REQUEST, S, 2, &CLIENT));
    let (flags, ..) = peer.hear_frame(&mut end, REPLY);
    assert_eq!(flags & C, 0);
    let mut first = fpdu(&send(1, b"call"));
    let last = first.len() - 1;
    first[last] ^= 0xff;
    peer.say(&mut end, &first);
    end.expect_established(qp);
    assert_eq!(&end.next_message(qp)[..], b"call");
    end.iwarp.post_send(qp, Tag(1), end.buf(b"reply"), None).unwrap();
    end.iwarp.ring();
    let (ulpdu, _, crc) = peer.hear_fpdu(&mut end);
    assert_eq!((ulpdu, crc), (send(1, b"reply"), vec![0; 4]));
}

#[test]
fn a_client_that_asks_for_no_crc_is_given_crcs_where_we_insist() {
    let (mut end, mut peer, qp) = client(config());
    peer.say(&mut end, &fpdu(&send(1, b"call")));
    end.expect_established(qp);
    assert_eq!(&end.next_message(qp)[..], b"call");
    // Its memory is read and written: the answer comes in FPDUs longer than a segment, because it
    // accepts them.
    let octets = pattern(60_000, 1);
    let to = RemoteSpan { key: RemoteKey(0x700), offset: 3 << 32, len: 60_000 };
    end.iwarp.post_write(qp, Tag(1), end.buf(&octets).freeze(), to).unwrap();
    end.iwarp.post_send(qp, Tag(2), end.buf(b"reply"), Some(RemoteKey(0x700))).unwrap();
    end.iwarp.ring();
    assert_eq!(peer.hear_ulpdu(&mut end), write(0x700, 3 << 32, &octets));
    assert_eq!((end.iwarp.stats().long_fpdus, end.iwarp.stats().without_crc), (1, 0));
    assert_eq!(peer.hear_ulpdu(&mut end), send_invalidate(1, 0x700, b"reply"));
}

#[test]
fn a_server_echoes_our_flags_and_sends_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(config());
    end.post_receives(4);
    let qp = end.iwarp.connect(&IwarpAddress(listener.local_addr().unwrap()), b"offer").unwrap();
    let mut peer = Peer::over(listener.accept().unwrap().0);
    let (flags, revision, data) = peer.hear_frame(&mut end, REQUEST);
    // It answers only Write if it is offered Write and Read, and Linux' server grants no Reads.
    let reply =
        frame(REPLY, flags, revision, &[&words(0x8000, 0x8000 | 32)[..], &data[4..]].concat());
    peer.say(&mut end, &[reply, fpdu(&send(1, b"eager"))].concat());
    end.expect_established(qp);
    assert_eq!(end.iwarp.private_data(qp), b"offer");
    assert_eq!(&end.next_message(qp)[..], b"eager");
    assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""));
    // A Read could never begin.
    let span = RemoteSpan { key: RemoteKey(1), offset: 0, len: 4 };
    let refused = end.iwarp.post_read(qp, Tag(1), end.buf(b"...."), 0, &[span]).unwrap_err();
    assert_eq!(refused.why, stag_verbs::Refusal::Malformed);
    // It reads our window, in segments of its own size.
    let octets = pattern(5000, 2);
    let window = end.iwarp.bind(qp, end.buf(&octets), 0..5000, Access::RemoteRead).unwrap();
    let ask =
        Ask { sink: 0x100, sink_to: 0, len: 5000, source: window.key.0, source_to: window.offset };
    peer.say(&mut end, &fpdu(&read_request(1, ask)));
    assert_eq!(peer.hear_ulpdu(&mut end), read_response(0x100, 0, &octets));
}

#[test]
fn its_terminates_are_read_with_their_fields_swapped() {
    // Without flags only the peer's habits distinguish the forms.
    for (payload, cause) in [
        (vec![0x02, 2, 0, 0], "2/0/02"),
        (vec![0x20, 6, 0, 0], "0/2/06"),
        (vec![0x11, 0, 3, 0, 0, 5], "1/1/00"),
        (vec![0x10, 3, 7, 0], "0/1/03"),
    ] {
        let (mut end, mut peer, qp) = client(config());
        peer.say(&mut end, &fpdu(&send(1, b"call")));
        end.expect_established(qp);
        end.next_message(qp);
        peer.say(&mut end, &fpdu(&terminate(&payload)));
        assert!(
            matches!(end.next_end(qp), Cause::Terminated(said) if said.to_string() == cause),
            "{cause}"
        );
    }
}

#[test]
fn its_segments_are_put_together() {
    // 1428 octets in each segment of a Write or an answer, 1424 of a Send.
    let (mut end, mut peer, qp) = client(config());
    let octets = pattern(4000, 3);
    let mut call = Vec::new();
    for (number, part) in octets.chunks(1424).enumerate() {
        let mo = 1424 * number as u32;
        call.extend(fpdu(&Untagged { last: number == 2, mo, ..send_header(1) }.with(part)));
    }
    peer.say(&mut end, &call);
    end.expect_established(qp);
    assert!(end.next_message(qp)[..] == octets[..]);
    let span = |at: u64| RemoteSpan { key: RemoteKey(0x900), offset: at, len: 4000 };
    let sink = end.buf(&vec![0; 8000]);
    end.iwarp.post_read(qp, Tag(1), sink, 0, &[span(0), span(9000)]).unwrap();
    end.iwarp.ring();
    for _ in 0..2 {
        let request = peer.hear_ulpdu(&mut end);
        let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
        let to = u64::from_be_bytes(request[22..30].try_into().unwrap());
        for (number, part) in octets.chunks(1428).enumerate() {
            let to = to + 1428 * number as u64;
            peer.say(&mut end, &fpdu(&tagged(2, number == 2, sink, to, part)));
        }
    }
    let Event::Completed { status: Status::Success, memory: Memory::Buf(sink), .. } = end.next()
    else {
        panic!("the Read completes")
    };
    assert!(sink[..4000] == octets[..] && sink[4000..] == octets[..]);
}

/// A connection of `end` to a siw that has sent its Reply, and the flags that it echoed.
fn connected(end: &mut End, listener: &TcpListener) -> (Peer, Qp, u8) {
    let qp = end.iwarp.connect(&IwarpAddress(listener.local_addr().unwrap()), b"").unwrap();
    let mut peer = Peer::over(listener.accept().unwrap().0);
    let (flags, revision, _) = peer.hear_frame(end, REQUEST);
    peer.say(end, &frame(REPLY, flags, revision, &words(0x8000, 0x8000 | 32)));
    end.expect_established(qp);
    (peer, qp, flags)
}

/// Returns a time after all deadlines.
fn in_a_minute() -> stag_verbs::Time {
    now() + Duration::from_secs(60)
}

#[test]
fn a_server_that_missed_our_first_octets_is_told_again_until_it_speaks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(config());
    end.post_receives(4);
    let (mut peer, qp, _) = connected(&mut end, &listener);
    end.iwarp.post_send(qp, Tag(1), end.buf(b"call"), None).unwrap();
    end.iwarp.ring();
    // siw watches the socket from the third of these on, and then answers everything from the
    // start.
    assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""));
    assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"call"));
    assert!(matches!(end.next(), Event::Completed { tag: Tag(1), status: Status::Success, .. }));
    for _ in 0..2 {
        assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""), "a nudge");
    }
    // Another nudge is not due before the reply, however busy the machine is.
    end.stopped_at = Some(now());
    let nudges = end.iwarp.stats().nudges;
    peer.say(&mut end, &fpdu(&send(1, b"reply")));
    assert_eq!(&end.next_message(qp)[..], b"reply");
    assert!(end.iwarp.poll(in_a_minute()).is_none());
    assert_eq!((end.iwarp.stats().nudges, end.iwarp.wake_at()), (nudges, None), "that was enough");
}

#[test]
fn nudges_come_less_and_less_often_and_come_to_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(config());
    end.stopped_at = Some(now());
    let (mut peer, qp, _) = connected(&mut end, &listener);
    assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""));
    let mut pauses = Vec::new();
    while let Some(at) = end.iwarp.wake_at() {
        // Its time comes at once, and no later one comes while the peer waits.
        end.stopped_at = Some(at);
        assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""));
        assert!(end.events.is_empty());
        pauses.extend(end.iwarp.wake_at().map(|next| next.0 - at.0));
    }
    assert_eq!(pauses.len(), 9);
    assert!(pauses.iter().zip(&pauses[1..]).all(|(one, next)| *next == 2 * *one), "{pauses:?}");
    assert_eq!(end.iwarp.stats().nudges, 10);
    // The connection was not dropped for it.
    peer.say(&mut end, &fpdu(&send(1, b"")));
    assert!(end.events.is_empty(), "{:?}", end.events);
    end.post_receives(1);
    end.next_message(qp);
}

#[test]
fn peers_that_are_not_siw_get_no_nudge() {
    // An adapter leaves the reserved bits zero; this implementation sets one more.
    for extra in [0, SIW | 0x04] {
        let (mut end, mut peer, qp) = asked(config());
        peer.say(&mut end, &frame(REPLY, C | S | extra, 2, &words(0x8000 | 32, 0x8000 | 32)));
        end.expect_established(qp);
        assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""));
        assert!(end.iwarp.poll(in_a_minute()).is_none());
        assert_eq!((end.iwarp.stats().nudges, end.iwarp.wake_at()), (0, None));
    }
}

#[test]
fn a_server_that_lost_a_connection_by_a_crc_is_asked_for_none_the_next_time() {
    // The Terminate, in siw's form, and the expectation whether the next Request asks for CRCs.
    for (crc, payload, asks) in [
        (Crc::Auto, vec![0x02, 2, 0, 0], false),
        (Crc::Always, vec![0x02, 2, 0, 0], true),
        (Crc::Auto, vec![0x20, 6, 0, 0], true),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut end = End::new(IwarpConfig { crc, ..config() });
        let (mut peer, qp, flags) = connected(&mut end, &listener);
        assert_eq!(flags & C, C, "CRCs are the default");
        peer.hear_ulpdu(&mut end);
        peer.say(&mut end, &fpdu(&terminate(&payload)));
        assert!(matches!(end.next_end(qp), Cause::Terminated(_)));
        let (mut peer, _, flags) = connected(&mut end, &listener);
        assert_eq!(flags & C != 0, asks);
        let (indication, _, crc) = peer.hear_fpdu(&mut end);
        assert_eq!((indication, crc == [0; 4]), (write(1, 0, b""), !asks));
        // Another server is not affected.
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(connected(&mut end, &other).2 & C, C);
    }
}

#[test]
fn a_server_that_is_asked_for_no_crc_may_insist_on_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(IwarpConfig { crc: Crc::Auto, ..config() });
    let (mut peer, qp, _) = connected(&mut end, &listener);
    peer.hear_ulpdu(&mut end);
    peer.say(&mut end, &fpdu(&terminate(&[0x02, 2, 0, 0])));
    end.next_end(qp);
    end.iwarp.connect(&IwarpAddress(listener.local_addr().unwrap()), b"").unwrap();
    let mut peer = Peer::over(listener.accept().unwrap().0);
    let (flags, revision, _) = peer.hear_frame(&mut end, REQUEST);
    assert_eq!(flags & C, 0);
    peer.say(&mut end, &frame(REPLY, flags | C, revision, &words(0x8000, 0x8000 | 32)));
    assert_eq!(peer.hear_ulpdu(&mut end), write(1, 0, b""), "with a CRC");
}
