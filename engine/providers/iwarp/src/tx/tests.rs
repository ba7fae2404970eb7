//! Tests of the FPDUs that the kernel gets, for every point at which it may stop.

use super::*;
use crate::{crc::Crc, stats::IwarpStats, transmit::Stream};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey, Windows, table::Key};
use stag_protocol::iwarp::{
    ddp::Header,
    fpdu,
    mpa::{Negotiated, Revision},
    rdmap::{Peer, ReadHeader},
    stream::Side,
};
use stag_verbs::{
    Qp, RemoteSpan, Status, Tag,
    soft::{Op, SendQueue},
};
use std::io::IoSlice;

const QP: Qp = Qp(Key::from_bits(1));

fn negotiated() -> Negotiated {
    Negotiated {
        side: Side::Initiator,
        revision: Revision::Two,
        crc: true,
        send_markers: false,
        ird: 8,
        ord: 8,
        rtr: None,
        peer: Peer::Hardware,
        offered: None,
    }
}

fn link(mulpdu: u16) -> IwarpLink {
    IwarpLink {
        stream: Stream::new(&negotiated()),
        crc: true,
        peer: Peer::Hardware,
        may_read: true,
        queue: SendQueue::new(32),
        transmit: Transmit::new(&negotiated(), mulpdu, false),
        landing: None,
        is_amid_tagged: false,
        arrival: None,
        headers_first: 0,
        blamed: None,
    }
}

fn buf(pool: &Pool, octets: &[u8]) -> Buf {
    let mut buf = pool.take(octets.len().max(1)).unwrap();
    buf.append(octets).unwrap();
    buf
}

/// All waiting octets, as the kernel would get them.
fn waiting(link: &IwarpLink, windows: &mut Windows) -> Vec<u8> {
    let (window, whole) = link.transmit.window_run(QP.scope(), windows);
    let mut pieces = [IoSlice::new(&[]); gather::PIECES];
    let (used, offered) = link.gather(&window, whole, &mut pieces);
    let octets: Vec<u8> = pieces[..used].iter().flat_map(|piece| piece.iter().copied()).collect();
    assert_eq!(octets.len(), offered);
    octets
}

/// A Send, a Write and a Read Request of the peer, each in several FPDUs.
fn loaded(windows: &mut Windows) -> IwarpLink {
    let pool = Pool::new(&[Class { slot_len: 4096, count: 4 }]).unwrap();
    let octets: Vec<u8> = (0..700_u32).map(|i| (i * 7) as u8).collect();
    let window =
        windows.bind(QP.scope(), buf(&pool, &octets).expose(0..700, Access::RemoteRead)).unwrap();
    let mut link = link(200);
    let to = RemoteSpan { key: RemoteKey(7), offset: 9, len: 700 };
    link.queue.post(
        Tag(1),
        Op::Send { message: buf(&pool, &octets[..301]), invalidate: None },
        &[],
    );
    link.queue.post(Tag(2), Op::Write { source: buf(&pool, &octets).freeze(), to }, &[]);
    link.queue.ring();
    let header = ReadHeader {
        sink_stag: 1,
        sink_to: 2,
        len: 700,
        source_stag: window.key.0,
        source_to: window.offset,
    };
    let request = stag_protocol::iwarp::ddp::Untagged {
        last: true,
        control: 0x41,
        invalidate: 0,
        queue: 1,
        msn: 1,
        mo: 0,
    };
    let ulpdu = [&request.emit()[..], &header.emit()].concat();
    link.stream.handle_ulpdu(&ulpdu).unwrap();
    link.fill(QP.scope(), windows).unwrap();
    link
}

#[test]
fn a_send_goes_on_at_every_octet_where_the_kernel_stopped() {
    let whole = {
        let mut windows = Windows::new(4, [1; 32]);
        waiting(&loaded(&mut windows), &mut windows)
    };
    let mut windows = Windows::new(4, [1; 32]);
    let mut link = loaded(&mut windows);
    let mut stats = IwarpStats::default();
    let mut tags = Vec::new();
    for sent in 0..whole.len() {
        assert_eq!(waiting(&link, &mut windows), whole[sent..], "behind {sent} octets");
        let ends =
            link.transmit.fpdus.front().filter(|fpdu| link.transmit.sent + 1 == fpdu.wire_len);
        let ends = ends.is_some_and(|fpdu| !fpdu.ends.is_empty());
        link.consume(1, &mut stats);
        // Work completes with the last octet that the kernel accepts of it, not before.
        let before = tags.len();
        while let Some(stag_verbs::Event::Completed { tag, status, .. }) = link.queue.poll(QP) {
            assert_eq!(status, Status::Success);
            tags.push(tag);
        }
        assert_eq!(tags.len() > before, ends, "behind {} octets", sent + 1);
    }
    assert!(link.transmit.fpdus.is_empty());
    assert_eq!(tags, [Tag(1), Tag(2)]);
    let mut rest = &whole[..];
    while let Ok(fpdu::Parsed::Fpdu { consumed, .. }) = fpdu::parse::<Crc>(rest, true) {
        rest = &rest[consumed..];
    }
    assert!(rest.is_empty(), "what is sent is whole FPDUs with the right CRCs");
}

#[test]
fn answers_leave_room_for_work_and_work_for_answers() {
    let mut windows = Windows::new(4, [1; 32]);
    let pool = Pool::new(&[Class { slot_len: 64, count: 32 }]).unwrap();
    let mut link = link(200);
    for tag in 0..4 {
        link.queue.post(Tag(tag), Op::Send { message: buf(&pool, b"work"), invalidate: None }, &[]);
    }
    link.queue.ring();
    for msn in 1..=8 {
        let request = stag_protocol::iwarp::ddp::Untagged {
            last: true,
            control: 0x41,
            invalidate: 0,
            queue: 1,
            msn,
            mo: 0,
        };
        let ulpdu = [&request.emit()[..], &ReadHeader::default().emit()].concat();
        link.stream.handle_ulpdu(&ulpdu).unwrap();
    }
    link.fill(QP.scope(), &mut windows).unwrap();
    let order: String = link
        .transmit
        .fpdus
        .iter()
        .map(|fpdu| if fpdu.ends.is_empty() { 'a' } else { 'w' })
        .collect();
    assert_eq!(order, "aaaawaaaawww");
}

/// Writes to `targets` (key, offset, octets), all rung, with distinguishable octets.
fn link_with_writes(targets: &[(u32, u64, usize)], mulpdu: u16) -> IwarpLink {
    let pool = Pool::new(&[Class { slot_len: 4096, count: 32 }]).unwrap();
    let mut link = link(mulpdu);
    for (tag, (key, offset, len)) in targets.iter().enumerate() {
        let octets: Vec<u8> = (0..*len).map(|at| (at * 7 + tag * 31) as u8).collect();
        let to = RemoteSpan { key: RemoteKey(*key), offset: *offset, len: *len as u32 };
        link.queue.post(
            Tag(tag as u64),
            Op::Write { source: buf(&pool, &octets).freeze(), to },
            &[],
        );
    }
    link.queue.ring();
    link
}

/// Number and octets of the Writes that each message carries.
fn messages(targets: &[(u32, u64, usize)], most: u32) -> Vec<(u64, u32)> {
    let mut queue = link_with_writes(targets, 200).queue;
    let mut messages = Vec::new();
    while queue.next().is_some() {
        let message = queue.contiguous_writes(most);
        (0..message.0).for_each(|_| queue.begin());
        messages.push(message);
    }
    messages
}

#[test]
fn only_writes_to_targets_that_follow_each_other_are_one_message() {
    let end = u64::MAX;
    for (what, targets, expected) in [
        ("one behind the other", &[(7, 9, 10), (7, 19, 1), (7, 20, 30)][..], &[(3, 41)][..]),
        ("another key", &[(7, 9, 10), (8, 19, 1)], &[(1, 10), (1, 1)]),
        ("a gap", &[(7, 9, 10), (7, 20, 1)], &[(1, 10), (1, 1)]),
        ("an overlap", &[(7, 9, 10), (7, 18, 5)], &[(1, 10), (1, 5)]),
        ("the one before", &[(7, 19, 10), (7, 9, 10)], &[(1, 10), (1, 10)]),
        ("nothing between", &[(7, 9, 10), (7, 19, 0), (7, 19, 1)], &[(1, 10), (1, 0), (1, 1)]),
        ("nothing first", &[(7, 9, 0), (7, 9, 1)], &[(1, 0), (1, 1)]),
        ("too much", &[(7, 0, 60), (7, 60, 40), (7, 100, 1)], &[(2, 100), (1, 1)]),
        ("too much alone", &[(7, 0, 101), (7, 101, 1)], &[(1, 101), (1, 1)]),
        ("the last octet", &[(7, end - 9, 5), (7, end - 4, 4)], &[(2, 9)]),
        ("beyond the end", &[(7, end - 9, 10), (7, 0, 4)], &[(1, 10), (1, 4)]),
        ("wrapping", &[(7, end - 9, 5), (7, end - 4, 30)], &[(1, 5), (1, 30)]),
        ("wrapped", &[(7, end - 9, 30), (7, 20, 4)], &[(1, 30), (1, 4)]),
    ] {
        assert_eq!(messages(targets, 100), expected, "{what}");
    }
    let mut link = link_with_writes(&[(7, 0, 5)], 200);
    let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
    let to = RemoteSpan { key: RemoteKey(7), offset: 5, len: 4 };
    link.queue.post(Tag(1), Op::Write { source: buf(&pool, b"late").freeze(), to }, &[]);
    assert_eq!(link.queue.contiguous_writes(100), (1, 5), "its doorbell has not been rung");
}

#[test]
fn writes_of_one_message_complete_with_their_own_last_octets() {
    // An FPDU has 186 octets of payload: it ends within a Write, with one, and after several.
    let lens = [300, 1, 71, 186, 2, 500];
    let mut at = 1000;
    let targets = lens.map(|len| {
        at += len as u64;
        (7, at - len as u64, len)
    });
    let mut windows = Windows::new(4, [1; 32]);
    let mut link = link_with_writes(&targets, 200);
    let sources: Vec<u8> = (0..6).flat_map(|seq| link.queue.payload(seq).to_vec()).collect();
    link.fill(QP.scope(), &mut windows).unwrap();
    let whole = waiting(&link, &mut windows);
    let (mut written, mut rest) = (Vec::new(), &whole[..]);
    while let Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) = fpdu::parse::<Crc>(rest, true) {
        let (header, payload) = Header::parse(&rest[ulpdu]).unwrap();
        let Header::Tagged(header) = header else { panic!("a Write") };
        assert_eq!((header.stag, header.to), (7, 1000 + written.len() as u64));
        written.extend_from_slice(payload);
        assert_eq!(header.last, written.len() == sources.len(), "one message");
        rest = &rest[consumed..];
    }
    assert!(rest.is_empty());
    assert_eq!(written, sources);

    let mut stats = IwarpStats::default();
    let mut tags = Vec::new();
    for sent in 0..whole.len() {
        assert_eq!(waiting(&link, &mut windows), whole[sent..], "behind {sent} octets");
        link.consume(1, &mut stats);
        while let Some(stag_verbs::Event::Completed { tag, status, .. }) = link.queue.poll(QP) {
            assert_eq!(status, Status::Success);
            tags.push((tag.0, stats.fpdus_out));
        }
    }
    assert_eq!(tags, [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4), (5, 6)]);
}

#[test]
fn a_message_of_more_pieces_than_one_call_gathers_goes_on_in_the_next() {
    // One FPDU of 32 Writes, five pieces a call.
    let targets: Vec<_> = (0..32).map(|at| (7, at, 1)).collect();
    let mut windows = Windows::new(4, [1; 32]);
    let mut link = link_with_writes(&targets, 200);
    link.fill(QP.scope(), &mut windows).unwrap();
    let whole = waiting(&link, &mut windows);
    let mut stats = IwarpStats::default();
    let mut heard = Vec::new();
    while !link.transmit.fpdus.is_empty() {
        let (window, fpdus) = link.transmit.window_run(QP.scope(), &mut windows);
        let mut pieces = [IoSlice::new(&[]); 5];
        let (used, offered) = link.gather(&window, fpdus, &mut pieces);
        heard.extend(pieces[..used].iter().flat_map(|piece| piece.iter().copied()));
        link.consume(offered, &mut stats);
    }
    assert_eq!(heard, whole);
    let done = std::iter::from_fn(|| link.queue.poll(QP)).count();
    assert_eq!((done, stats.fpdus_out), (32, 1));
}
