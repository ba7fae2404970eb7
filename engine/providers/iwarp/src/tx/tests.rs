//! FPDUs as the kernel would get them, wherever it stops.

use super::*;
use crate::stats::IwarpStats;
use stag_pools::{Access, Buf, Class, Pool, Windows, table::Key};
use stag_protocol::iwarp::{
    fpdu,
    mpa::Revision,
    rdmap::{Peer, ReadHeader},
    stream::Side,
};
use stag_verbs::{
    RemoteSpan, Status, Tag,
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

/// All octets that wait, as the kernel would get them.
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
        // Work is complete with the last octet that the kernel takes of it, not before.
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
