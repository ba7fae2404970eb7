//! A peer with the habits of Linux' siw: it echoes flags it does not know, its CRCs are off, its server sends behind the Reply,
//! its Terminates have their bit fields swapped, and it closes with octets unread.

use crate::{
    peer::*,
    support::{End, config, pattern},
};
use stag_iwarp::{Address, Config, Crc};
use stag_pools::{Access, RemoteKey};
use stag_verbs::{Cause, Event, Memory, Provider, Qp, RemoteSpan, Status, Tag};
use std::net::TcpListener;

/// siw's NFS client: revision 2, S, no CRC, no indication, IRD 128, ORD 0, and private data.
const CLIENT: [u8; 12] = [0, 0x80, 0, 0, 0xF6, 0xAB, 0x0E, 0x18, 1, 0, 3, 3];

fn client(config: Config) -> (End, Peer, Qp) {
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
        answered(Config { crc: Crc::Auto, ..config() }, &frame(REQUEST, S, 2, &CLIENT));
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
    // Its memory is read and written: the answer comes in FPDUs longer than a segment, because it takes them.
    let octets = pattern(60_000, 1);
    let to = RemoteSpan { key: RemoteKey(0x700), offset: 3 << 32, len: 60_000 };
    end.iwarp.post_write(qp, Tag(1), end.buf(&octets).freeze(), to).unwrap();
    end.iwarp.post_send(qp, Tag(2), end.buf(b"reply"), Some(RemoteKey(0x700))).unwrap();
    end.iwarp.ring();
    assert_eq!(peer.hear_ulpdu(&mut end), write(0x700, 3 << 32, &octets));
    assert_eq!(peer.hear_ulpdu(&mut end), send_invalidate(1, 0x700, b"reply"));
}

#[test]
fn a_server_echoes_our_flags_and_sends_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(config());
    end.post_receives(4);
    let qp = end.iwarp.connect(&Address(listener.local_addr().unwrap()), b"offer").unwrap();
    let mut peer = Peer::over(listener.accept().unwrap().0);
    let (flags, revision, data) = peer.hear_frame(&mut end, REQUEST);
    // It answers Write alone when it is offered Write and Read, and Linux' server grants no Reads.
    let reply = frame(REPLY, flags, revision, &[&words(0x8000, 0x8000 | 32)[..], &data[4..]].concat());
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
    let ask = Ask { sink: 0x100, sink_to: 0, len: 5000, source: window.key.0, source_to: window.offset };
    peer.say(&mut end, &fpdu(&read_request(1, ask)));
    assert_eq!(peer.hear_ulpdu(&mut end), read_response(0x100, 0, &octets));
}

#[test]
fn its_terminates_are_read_with_their_fields_swapped() {
    // Without flags only the peer's habits tell the forms apart.
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
        assert!(matches!(end.next_end(qp), Cause::Terminated(said) if said.to_string() == cause), "{cause}");
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
    let Event::Completed { status: Status::Success, memory: Memory::Buf(sink), .. } = end.next() else {
        panic!("the Read completes")
    };
    assert!(sink[..4000] == octets[..] && sink[4000..] == octets[..]);
}
