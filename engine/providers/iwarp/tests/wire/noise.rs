//! Peers that send random octets: the end survives, sends a Terminate, and loses no memory.

use crate::{
    peer::*,
    support::{End, config, pattern},
};
use fastrand::Rng;
use stag_pools::Access;
use stag_verbs::{Event, Provider, Qp, RemoteSpan, Tag};
use std::io::Write;

fn open_windows(end: &mut End, qp: Qp) -> [stag_pools::Window; 2] {
    [Access::RemoteRead, Access::RemoteWrite].map(|access| {
        let buf = end.buf(&pattern(300, 1));
        end.iwarp.bind(qp, buf, 0..300, access).unwrap()
    })
}

/// One random ULPDU, roughly of a kind that the state of the connection allows.
fn any_ulpdu(noise: &mut Rng, msn: &mut [u32; 2], windows: [stag_pools::Window; 2]) -> Vec<u8> {
    let [read, write_to] = windows;
    let len = noise.usize(..300);
    let payload = pattern(len, 2);
    match noise.usize(..6) {
        0 => write(write_to.key.0, write_to.offset + noise.u64(..20), &payload[..len.min(280)]),
        1 => {
            msn[0] += 1;
            send(msn[0], &payload)
        }
        2 => {
            msn[1] += 1;
            let ask = Ask {
                sink: noise.u32(..),
                sink_to: noise.u64(..),
                len: len as u32,
                source: read.key.0,
                source_to: read.offset,
            };
            read_request(msn[1], ask)
        }
        3 => read_response(1 << 31, noise.u64(..9), &payload),
        4 => {
            msn[0] += 1;
            send_invalidate(
                msn[0],
                if noise.usize(..4) == 0 { write_to.key.0 } else { noise.u32(..) },
                &payload,
            )
        }
        _ => terminate(&payload[..len.min(60)]),
    }
}

#[test]
fn damaged_segments_with_the_right_crc_do_no_harm() {
    let mut noise = Rng::with_seed(0x5eed);
    for round in 0..400 {
        let (mut end, mut peer, qp) = accepted(config());
        let windows = open_windows(&mut end, qp);
        let span = RemoteSpan { key: stag_pools::RemoteKey(1), offset: 0, len: 64 };
        end.iwarp.post_read(qp, Tag(1), end.buf(&[0; 64]), 0, &[span]).unwrap();
        end.iwarp.ring();
        let mut msn = [0; 2];
        for _ in 0..noise.usize(..12) {
            let mut ulpdu = any_ulpdu(&mut noise, &mut msn, windows);
            for _ in 0..noise.usize(..3) {
                let at = noise.usize(..ulpdu.len().min(40));
                ulpdu[at] ^= 1 << noise.usize(..8);
            }
            if noise.usize(..8) == 0 {
                ulpdu.truncate(noise.usize(..ulpdu.len()));
            }
            // The end may have closed by this time.
            if peer.stream.write_all(&fpdu(&ulpdu)).is_err() {
                break;
            }
            end.pump();
        }
        drop(peer);
        expect_the_end(&mut end, qp, round);
    }
}

#[test]
fn octets_without_any_sense_do_no_harm() {
    let mut noise = Rng::with_seed(0xfeed);
    for round in 0..200 {
        let (mut end, mut peer, qp) = accepted(config());
        open_windows(&mut end, qp);
        let octets: Vec<u8> = (0..noise.usize(..3000)).map(|_| noise.u8(..)).collect();
        let _ = peer.stream.write_all(&octets);
        end.pump();
        drop(peer);
        expect_the_end(&mut end, qp, round);
    }
    for _ in 0..200 {
        let (mut end, at) = End::listening(config());
        let mut peer = Peer::connect(at);
        let mut request = frame(REQUEST, C | S, 2, &[&words(1, 1)[..], &pattern(40, 3)].concat());
        for _ in 0..1 + noise.usize(..3) {
            let at = noise.usize(..request.len());
            request[at] ^= 1 << noise.usize(..8);
        }
        let _ = peer.stream.write_all(&request);
        end.pump();
        drop(peer);
        end.pump();
    }
}

/// The connection ends, and all memory is returned except that of messages.
fn expect_the_end(end: &mut End, of: Qp, round: usize) {
    let mut messages = 0;
    loop {
        match end.next() {
            Event::Disconnected { qp, .. } if qp == of => break,
            Event::Received { .. } => messages += 1,
            Event::Completed { .. } | Event::Unbound { .. } => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert_eq!((end.iwarp.windows_bound(), end.iwarp.connections()), (0, 0), "round {round}");
    assert_eq!(end.iwarp.receives_posted() + messages, 16, "round {round}");
    assert_eq!(end.pool.taken(), 16 - messages, "round {round}");
}
