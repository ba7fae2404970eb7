//! Long tagged FPDUs, which land while they arrive (docs/landing.md): the same effect as copied
//! ones, and every abuse of octets that landed too early.

use crate::{
    peer::*,
    support::{End, config, pattern},
};
use fastrand::Rng;
use stag_iwarp::{Crc, IwarpConfig};
use stag_pools::{Access, Fenced, RemoteKey, Window};
use stag_verbs::{Cause, Event, FabricFault, Memory, Provider, Qp, RemoteSpan, Status, Tag};
use std::time::Instant;

/// Octets of the window, and of its buffer before and after it.
const LEN: usize = 100_000;
const EDGE: usize = 8;
/// Octets of a payload that lands.
const LONG: usize = 40_000;

/// A connection with a window that the peer may write.
struct Opened {
    end: End,
    peer: Peer,
    qp: Qp,
    window: Window,
    /// The window was returned as doubtful.
    is_doubtful: bool,
}

fn opened() -> Opened {
    opened_by(config())
}

fn opened_by(config: IwarpConfig) -> Opened {
    let (mut end, peer, qp) = accepted_by(config, &frame(REQUEST, S, 2, &words(128, 128)));
    let window = bind(&mut end, qp, Access::RemoteWrite);
    Opened { end, peer, qp, window, is_doubtful: false }
}

fn bind(end: &mut End, qp: Qp, access: Access) -> Window {
    let buf = end.buf(&before());
    end.iwarp.bind(qp, buf, EDGE..EDGE + LEN, access).unwrap()
}

/// The buffer of a window before anything is written.
fn before() -> Vec<u8> {
    pattern(LEN + 2 * EDGE, 1)
}

/// The same with `payload` at `at` of the window.
fn with(at: usize, payload: &[u8]) -> Vec<u8> {
    let mut octets = before();
    octets[EDGE + at..][..payload.len()].copy_from_slice(payload);
    octets
}

impl Opened {
    fn write(&self, at: usize, payload: &[u8]) -> Vec<u8> {
        write(self.window.key.0, self.window.offset + at as u64, payload)
    }

    /// Sends `octets`, and waits until the end has read them.
    fn say(&mut self, octets: &[u8]) {
        let said = self.end.iwarp.stats().octets_in + octets.len() as u64;
        let deadline = Instant::now() + crate::support::PATIENCE;
        self.peer.say(&mut self.end, octets);
        while self.end.iwarp.stats().octets_in < said {
            self.end.pump();
            assert!(Instant::now() < deadline, "the end does not read");
        }
    }

    /// Ends the window, after the last write to it.
    fn fence(&mut self) -> Fenced {
        self.end.iwarp.post_local_invalidate(self.qp, Tag(7), self.window.key).unwrap();
        self.end.iwarp.ring();
        match self.end.next() {
            Event::Completed { status: Status::Success, memory: Memory::Fenced(it), .. } => it,
            other => panic!("{other:?} instead of the window"),
        }
    }

    /// The peer gets a Terminate with `cause`; the window is returned because the connection ends,
    /// and nothing else succeeds. Returns its buffer.
    fn expect(&mut self, cause: &str) -> Vec<u8> {
        self.peer.hear_terminate(&mut self.end, cause);
        let mut unbound = Vec::new();
        loop {
            match self.end.next() {
                Event::Unbound { fenced, .. } if fenced.key() == self.window.key => {
                    self.is_doubtful = fenced.is_doubtful();
                    unbound = fenced.into_buf().to_vec();
                }
                Event::Unbound { .. } => {}
                Event::Completed { status, .. } => assert_eq!(status, Status::Flushed),
                Event::Disconnected { cause: Cause::PeerFault(said), .. } => {
                    assert_eq!(named(said), cause);
                    assert_eq!(self.end.iwarp.windows_bound(), 0);
                    return unbound;
                }
                other => panic!("{other:?} instead of a fault of the peer"),
            }
        }
    }

    fn landed(&self) -> u64 {
        self.end.iwarp.stats().octets_landed
    }
}

#[test]
fn a_write_that_is_cut_anywhere_lands_whole() {
    for len in [LONG, LONG + 1, LONG + 2, LONG + 3] {
        let payload = pattern(len, 2);
        let end = fpdu(&[0; 14]).len() - 4 + len; // about the end of the payload
        for cut in (0..40).chain([1_000, 20_000]).chain(end - 4..end + 8) {
            let mut w = opened();
            let octets = fpdu(&w.write(3, &payload));
            let (front, rest) = octets.split_at(cut.min(octets.len()));
            w.say(front);
            w.say(rest);
            w.say(&fpdu(&send(1, b"behind it")));
            assert_eq!(&w.end.next_message(w.qp)[..], b"behind it");
            let landed = w.landed() as usize;
            if (16..10_000).contains(&cut) {
                assert_eq!(landed, len + 16 - cut, "cut at {cut}: what came later was not copied");
            }
            let fenced = w.fence();
            assert_eq!(fenced.filled(), 3 + len);
            let mut expected = with(3, &payload);
            expected[EDGE..EDGE + 3].fill(0); // the peer left them out
            assert!(fenced.into_buf()[..] == expected, "cut at {cut}");
        }
    }
}

#[test]
fn writes_and_sends_of_all_lengths_follow_each_other_whatever_lands() {
    let mut random = Rng::with_seed(0x1a4d);
    for crc in [Crc::Always, Crc::Never] {
        let mut w = opened_by(IwarpConfig { crc, ..config() });
        let mut expected = before();
        w.say(&fpdu(&w.write(0, &expected[EDGE..EDGE + 60_000])));
        w.say(&fpdu(&w.write(60_000, &expected[EDGE + 60_000..EDGE + LEN])));
        let (mut octets, mut msn) = (Vec::new(), 1);
        for round in 0..150 {
            let longest = [1, 300, 20_000, 65_000][random.usize(..4)];
            let payload = pattern(random.usize(..longest), round);
            let at = random.usize(..LEN - payload.len());
            expected[EDGE + at..][..payload.len()].copy_from_slice(&payload);
            octets.extend(fpdu(&w.write(at, &payload)));
            if random.bool() {
                octets.extend(fpdu(&send(msn, &pattern(random.usize(..300), round))));
                msn += 1;
            }
            while octets.len() > 200_000 || (round == 149 && !octets.is_empty()) {
                let part = [20, 5_000, 70_000][random.usize(..3)].min(octets.len());
                let part: Vec<u8> = octets.drain(..part).collect();
                w.say(&part);
                repost(&mut w);
            }
        }
        assert!(w.landed() > 500_000, "{} landed", w.landed());
        assert!(w.fence().into_buf()[..] == expected);
    }
}

#[test]
fn what_is_short_comes_with_the_fpdu_in_front_of_it() {
    let payload = pattern(LONG, 2);
    // All of a message's last FPDU, the message after it, and the header of the next FPDU, which
    // lands as well.
    let followed = |w: &Opened, msn| {
        let short = [fpdu(&w.write(LONG, &payload[..800])), fpdu(&send(msn, b"after it"))];
        [&short.concat()[..], &fpdu(&w.write(0, &payload))].concat()
    };
    let at_once = (0..20).find(|_| {
        let mut w = opened();
        w.say(&fpdu(&send(1, b"the first FPDU")));
        let first = fpdu(&w.write(0, &payload));
        w.say(&first[..1_000]);
        let moved = w.end.iwarp.stats().octets_moved;
        w.say(&[&first[1_000..], &followed(&w, 2)].concat());
        assert_eq!(&w.end.next_message(w.qp)[..], b"the first FPDU");
        assert_eq!(&w.end.next_message(w.qp)[..], b"after it");
        let expected = [&payload[..], &payload[..800]].concat();
        w.say(&fpdu(&send(3, b"the last")));
        assert_eq!(&w.end.next_message(w.qp)[..], b"the last");
        let stats = w.end.iwarp.stats();
        let (moved, landed) = (stats.octets_moved - moved, stats.octets_landed as usize);
        assert_eq!(w.fence().into_buf()[EDGE..EDGE + LONG + 800], expected);
        // Unless the kernel delivered a part of it later, which it may.
        moved == 0 && landed > 2 * (LONG - 3_000)
    });
    assert!(at_once.is_some(), "no part of a short FPDU is ever kept for the next read");
}

#[test]
fn a_header_across_the_end_of_a_read_is_completed_alone() {
    let payload = pattern(LONG, 2);
    let mut alone = 0;
    // The read that lands an FPDU ends within the next header, or close to it.
    for short in 2_030..2_050 {
        let mut w = opened();
        w.say(&fpdu(&send(1, b"the first FPDU")));
        let first = fpdu(&w.write(0, &payload));
        w.say(&first[..1_000]);
        let filler = fpdu(&w.write(LONG, &pattern(short - 20, 3)));
        let next = fpdu(&w.write(LONG / 2, &payload));
        w.say(&[&first[1_000..], &filler, &next].concat());
        w.say(&fpdu(&send(2, b"the last")));
        assert_eq!(&w.end.next_message(w.qp)[..], b"the first FPDU");
        assert_eq!(&w.end.next_message(w.qp)[..], b"the last");
        let moved = w.end.iwarp.stats().octets_moved;
        let (front, end) = (&payload[..LONG / 2], LONG / 2 + LONG);
        let buf = w.fence().into_buf();
        assert_eq!(&buf[EDGE..EDGE + LONG / 2], front);
        assert_eq!(&buf[EDGE + LONG / 2..EDGE + end], &payload[..], "{short}");
        alone += u32::from(moved < 64);
    }
    // Unless the kernel delivered something later, which it may.
    assert!(alone >= 10, "{alone} of 20: payload was kept for the next read");
}

/// Posts the receives of messages again.
fn repost(w: &mut Opened) {
    while let Some(event) = w.end.events.pop_front() {
        let Event::Received { buf, .. } = event else { panic!("{event:?}") };
        w.end.iwarp.post_receive(buf).unwrap();
    }
}

#[test]
fn one_wrong_bit_anywhere_ends_the_connection_and_the_window_with_it() {
    let payload = pattern(LONG, 2);
    // The length field's own bits change the FPDU's length: those are tested in fpdus.rs.
    let header = 16..8 * 16;
    let mut random = Rng::with_seed(0xb17);
    let elsewhere = (0..60).map(|_| random.usize(8 * 16..8 * (16 + LONG)));
    let trailer = 8 * (16 + LONG)..8 * (16 + LONG + 4);
    for bit in header.chain(elsewhere).chain(trailer) {
        let mut w = opened();
        let mut octets = fpdu(&w.write(30_000, &payload));
        octets[bit / 8] ^= 1 << (bit % 8);
        w.say(&octets[..1_000]);
        // Nothing after it is used, although it is right and came with it.
        let rest = [fpdu(&w.write(0, b"short")), fpdu(&send(1, b"after it"))].concat();
        w.peer.say(&mut w.end, &[&octets[1_000..], &rest].concat());
        let buf = w.expect("2/0/02");
        let beside = [0..EDGE, EDGE + LEN..LEN + 2 * EDGE];
        assert!(beside.into_iter().all(|edge| buf[edge.clone()] == before()[edge]), "bit {bit}");
        assert_eq!(w.end.iwarp.stats().crc_errors, 1);
    }
}

#[test]
fn what_memory_or_the_stream_refuses_lands_nowhere() {
    let payload = pattern(LONG, 2);
    let at = |w: &Opened, offset: u64| write(w.window.key.0, w.window.offset + offset, &payload);
    type Abuse<'a> = (&'a str, &'a dyn Fn(&mut Opened) -> Vec<u8>);
    let abuses: [Abuse<'_>; 8] = [
        ("1/1/01", &|w| at(w, (LEN - LONG + 1) as u64)),
        ("1/1/01", &|w| write(w.window.key.0, w.window.offset - 1, &payload)),
        ("1/1/01", &|w| at(w, 1 << 40)),
        ("1/1/03", &|w| write(w.window.key.0, u64::MAX - 1_000, &payload)),
        ("1/1/00", &|w| write(w.window.key.0 ^ 1, w.window.offset, &payload)),
        ("1/1/00", &|w| {
            let window = bind(&mut w.end, w.qp, Access::RemoteRead);
            write(window.key.0, window.offset, &payload)
        }),
        // An unsolicited answer, and an operation in the wrong kind of header.
        ("1/0/00", &|w| tagged(2, true, w.window.key.0, w.window.offset, &payload)),
        ("0/2/06", &|w| tagged(3, true, w.window.key.0, w.window.offset, &payload)),
    ];
    for (place, (cause, abuse)) in abuses.iter().enumerate() {
        let mut w = opened();
        let octets = fpdu(&abuse(&mut w));
        w.say(&octets[..30_000]);
        assert_eq!(w.landed(), 0, "abuse {place}");
        w.peer.say(&mut w.end, &octets[30_000..]);
        assert!(w.expect(cause) == before(), "abuse {place}");
    }
}

#[test]
fn a_window_of_another_connection_is_out_of_scope() {
    let (mut end, at) = End::listening(config());
    end.post_receives(16);
    let [mut owner, mut thief] = [(); 2].map(|()| {
        let mut peer = Peer::connect(at);
        peer.say(&mut end, &frame(REQUEST, S, 2, &words(128, 128)));
        let qp = end.next_request();
        end.iwarp.accept(qp, b"").unwrap();
        peer.hear_frame(&mut end, REPLY);
        peer.say(&mut end, &fpdu(&write(1, 0, b"")));
        end.expect_established(qp);
        (peer, qp)
    });
    let window = bind(&mut end, owner.1, Access::RemoteWrite);
    let octets = fpdu(&write(window.key.0, window.offset, &pattern(LONG, 2)));
    thief.0.say(&mut end, &octets[..30_000]);
    thief.0.say(&mut end, &octets[30_000..]);
    expect_terminate(&mut end, &mut thief.0, thief.1, "1/1/02");
    assert_eq!((end.iwarp.stats().octets_landed, end.iwarp.windows_bound()), (0, 1));
    owner.0.hear_nothing(&mut end);
    end.iwarp.post_local_invalidate(owner.1, Tag(1), window.key).unwrap();
    end.iwarp.ring();
    let Event::Completed { memory: Memory::Fenced(fenced), .. } = end.next() else { panic!() };
    assert!(fenced.into_buf()[..] == before());
}

#[test]
fn a_window_that_we_end_while_something_lands_there_ends_the_connection() {
    let payload = pattern(LONG, 2);
    for cut in [16, 17, 20_000, 16 + LONG, 16 + LONG + 3] {
        let mut w = opened();
        let other = bind(&mut w.end, w.qp, Access::RemoteWrite);
        let octets = fpdu(&w.write(0, &payload));
        w.say(&octets[..cut.min(20_000)]);
        w.say(&octets[cut.min(20_000)..cut]);
        // If nothing lands, the invalidation does not wait.
        w.end.iwarp.post_local_invalidate(w.qp, Tag(1), other.key).unwrap();
        w.end.iwarp.post_local_invalidate(w.qp, Tag(2), w.window.key).unwrap();
        w.end.iwarp.ring();
        let Event::Completed { tag: Tag(1), status: Status::Success, .. } = w.end.next() else {
            panic!("the other window ends")
        };
        w.expect("1/1/00");
        assert!(w.is_doubtful, "what lies there is not what the peer wrote");
    }
}

#[test]
fn a_window_is_the_peers_to_end_once_its_fpdu_was_right() {
    let payload = pattern(LONG, 2);
    let mut w = opened();
    let octets = fpdu(&w.write(0, &payload));
    w.say(&octets[..5_000]);
    w.say(&octets[5_000..]);
    w.say(&fpdu(&send_invalidate(1, w.window.key.0, b"done")));
    let Event::Received { buf, invalidated: Some(fenced), .. } = w.end.next() else { panic!() };
    assert_eq!(&buf[..], b"done");
    assert!(fenced.into_buf()[..] == with(0, &payload));
    // From here on nothing lands there, neither at once nor in parts.
    w.say(&octets[..20_000]);
    assert_eq!(w.landed() as usize, LONG + 16 - 5_000);
    w.peer.say(&mut w.end, &octets[20_000..]);
    w.expect("1/1/00");
}

#[test]
fn a_peer_that_leaves_amid_a_payload_leaves_nothing_that_counts() {
    for sent in [16, 17, 5_000, 16 + LONG, 16 + LONG + 3] {
        let mut w = opened();
        let octets = fpdu(&w.write(0, &pattern(LONG, 2)));
        w.say(&octets[..sent.min(5_000)]);
        w.say(&octets[sent.min(5_000)..sent]);
        assert_eq!(w.end.iwarp.stats().fpdus_in, 1, "the first FPDU of the connection only");
        let Opened { mut end, peer, qp, .. } = w;
        drop(peer);
        let Event::Unbound { fenced, .. } = end.next() else { panic!("the window ends") };
        // Octets that did not arrive are still an earlier owner's, and are not counted.
        assert_eq!(fenced.filled(), (sent - 16).min(LONG));
        assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost), "{sent} octets");
    }
}

#[test]
fn a_trickle_lands_octet_by_octet_and_keeps_nobody_else_out() {
    let payload = pattern(LONG, 2);
    let mut w = opened();
    let octets = fpdu(&w.write(5, &payload));
    let (slow, rest) = octets.split_at(400);
    for octet in slow {
        w.say(&[*octet]);
    }
    let other = bind(&mut w.end, w.qp, Access::RemoteWrite);
    w.end.iwarp.post_local_invalidate(w.qp, Tag(1), other.key).unwrap();
    w.end.iwarp.ring();
    assert!(matches!(w.end.next(), Event::Completed { status: Status::Success, .. }));
    for part in rest.chunks(997) {
        w.say(part);
    }
    w.say(&fpdu(&send(1, b"there")));
    assert_eq!(&w.end.next_message(w.qp)[..], b"there");
    assert_eq!(w.landed() as usize, LONG);
    assert!(w.fence().into_buf()[EDGE + 5..][..LONG] == payload);
}

#[test]
fn an_empty_write_between_two_that_land_is_not_checked() {
    let payload = pattern(LONG, 2);
    let mut w = opened();
    let long = fpdu(&w.write(0, &payload));
    let empty = fpdu(&write(0xdead_beef, u64::MAX, b""));
    for part in [&long[..100], &[&long[100..], &empty, &empty, &long[..3]].concat(), &long[3..]] {
        w.say(part);
    }
    w.say(&fpdu(&send(1, b"there")));
    assert_eq!(&w.end.next_message(w.qp)[..], b"there");
    assert!(w.fence().into_buf()[..] == with(0, &payload));
    assert_eq!(w.end.iwarp.stats().fpdus_in, 1 + 5);
}

/// The end reads `LONG` and a bit from the peer, which has received the request.
fn reading() -> (Opened, u32, u64) {
    let mut w = opened();
    let span = RemoteSpan { key: RemoteKey(9), offset: 0, len: LONG as u32 + 100 };
    let sink = w.end.buf(&vec![0xEE; LONG + 200]);
    w.end.iwarp.post_read(w.qp, Tag(5), sink, 50, &[span]).unwrap();
    w.end.iwarp.ring();
    let request = w.peer.hear_ulpdu(&mut w.end);
    let sink = u32::from_be_bytes(*request[18..].first_chunk().unwrap());
    let to = u64::from_be_bytes(*request[22..].first_chunk().unwrap());
    (w, sink, to)
}

#[test]
fn an_answer_lands_in_its_sink() {
    let payload = pattern(LONG + 100, 2);
    for cut in [3, 16, 17, 10_000, 16 + LONG + 2] {
        let (mut w, sink, to) = reading();
        let long = fpdu(&tagged(2, false, sink, to, &payload[..LONG]));
        let last = fpdu(&tagged(2, true, sink, to + LONG as u64, &payload[LONG..]));
        w.say(&long[..cut]);
        w.say(&long[cut..]);
        w.say(&last);
        let Event::Completed { tag: Tag(5), status, memory: Memory::Buf(sink), .. } = w.end.next()
        else {
            panic!("the Read completes")
        };
        assert_eq!(status, Status::Success);
        assert!(sink[50..][..payload.len()] == payload, "cut at {cut}");
        assert!(sink[..50].iter().chain(&sink[150 + LONG..]).all(|octet| *octet == 0xEE));
    }
}

#[test]
fn a_wrong_answer_completes_no_read() {
    let payload = pattern(LONG, 2);
    let wrong_crc = |sink, to| {
        let mut octets = fpdu(&tagged(2, false, sink, to, &payload));
        octets[9_999] ^= 4;
        octets
    };
    let wrong_place = |sink, to: u64| fpdu(&tagged(2, false, sink, to + 1, &payload));
    let wrong_sink = |sink, to| fpdu(&tagged(2, false, sink ^ 1, to, &payload));
    let too_early = |sink, to| fpdu(&tagged(2, true, sink, to, &payload));
    type Answer<'a> = (&'a str, bool, &'a dyn Fn(u32, u64) -> Vec<u8>);
    let answers: [Answer<'_>; 4] = [
        ("2/0/02", true, &wrong_crc),
        ("1/1/01", false, &wrong_place),
        ("1/1/00", false, &wrong_sink),
        ("1/1/01", false, &too_early),
    ];
    for (cause, lands, answer) in answers {
        let (mut w, sink, to) = reading();
        let octets = answer(sink, to);
        w.say(&octets[..1_000]);
        w.say(&octets[1_000..2_000]);
        assert_eq!(w.landed() > 0, lands, "{cause}");
        w.peer.say(&mut w.end, &octets[2_000..]);
        w.expect(cause);
    }
}
