//! Tests with two ends on the loopback device.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use fastrand::Rng;
use stag_iwarp::{Crc, FpduMax, IwarpConfig};
use stag_pools::{Access, Window};
use stag_verbs::{Event, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag};
use std::collections::HashMap;
use support::{End, LIMITS, config, join, pattern, until};

fn span(window: Window) -> RemoteSpan {
    RemoteSpan { key: window.key, offset: window.offset, len: window.len }
}

#[test]
fn messages_writes_and_reads_of_many_lengths_arrive() {
    let (mut b, at) = End::listening(config());
    let mut a = End::new(config());
    b.post_receives(8);
    let (qa, qb) = join(&mut a, &mut b, at);
    for len in [0, 1, 2, 3, 4, 1000, 4096, 65_535, 65_536, 1 << 20] {
        let octets = pattern(len, len);
        let target = b.iwarp.bind(qb, b.buf(&vec![0; len]), 0..len, Access::RemoteWrite).unwrap();
        let source = b.iwarp.bind(qb, b.buf(&octets), 0..len, Access::RemoteRead).unwrap();
        a.iwarp.post_write(qa, Tag(1), a.buf(&octets).freeze(), span(target)).unwrap();
        a.iwarp.post_read(qa, Tag(2), a.buf(&vec![0; len]), 0, &[span(source)]).unwrap();
        let short = &octets[..len.min(4096)];
        a.iwarp.post_send(qa, Tag(3), a.buf(short), Some(target.key)).unwrap();
        a.iwarp.ring();
        until([&mut a, &mut b], |[a, b]| a.events.len() == 3 && b.events.len() == 1);
        for expected in 1..=3 {
            let Some(Event::Completed { tag, status: Status::Success, memory, .. }) =
                a.events.pop_front()
            else {
                panic!("work completes");
            };
            assert_eq!(tag, Tag(expected));
            if let (2, Memory::Buf(sink)) = (expected, memory) {
                assert_eq!(sink[..], octets, "read of {len}");
            }
        }
        let Some(Event::Received { buf, invalidated, .. }) = b.events.pop_front() else {
            panic!("a message")
        };
        assert_eq!(buf[..], *short);
        assert_eq!(invalidated.unwrap().into_buf()[..], octets, "write of {len}");
        b.iwarp.post_receive(buf).unwrap();
        b.iwarp.post_local_invalidate(qb, Tag(4), source.key).unwrap();
        b.iwarp.ring();
        let Event::Completed { memory: Memory::Fenced(_), .. } = b.next() else { panic!("fenced") };
    }
    assert_eq!((a.iwarp.windows_bound(), b.iwarp.windows_bound()), (0, 0));
}

#[test]
fn a_mebibyte_in_extents_of_64_kib_is_seventeen_fpdus() {
    const EXTENT: usize = 64 << 10;
    let (mut b, at) = End::listening(config());
    let mut a = End::new(config());
    b.post_receives(8);
    let (qa, qb) = join(&mut a, &mut b, at);
    let octets = pattern(1 << 20, 3);
    for round in 0..20 {
        let blank = b.buf(&vec![0; 1 << 20]);
        let window = b.iwarp.bind(qb, blank, 0..1 << 20, Access::RemoteWrite).unwrap();
        let (before, heard) = (*a.iwarp.stats(), *b.iwarp.stats());
        let stored = a.buf(&octets).freeze();
        for place in 0..16 {
            let source = stored.slice(place * EXTENT..(place + 1) * EXTENT);
            let offset = window.offset + (place * EXTENT) as u64;
            let to = RemoteSpan { key: window.key, offset, len: EXTENT as u32 };
            a.iwarp.post_write(qa, Tag(place as u64), source, to).unwrap();
        }
        a.iwarp.post_send(qa, Tag(16), a.buf(b"reply"), Some(window.key)).unwrap();
        a.iwarp.ring();
        until([&mut a, &mut b], |[a, b]| a.events.len() == 17 && b.events.len() == 1);
        for (event, place) in a.events.drain(..).zip(0..) {
            let Event::Completed { tag, status, .. } = event else { panic!("work completes") };
            assert_eq!((tag, status), (Tag(place), Status::Success), "each by itself, in order");
        }
        let Some(Event::Received { buf, invalidated: Some(fenced), .. }) = b.events.pop_front()
        else {
            panic!("the reply")
        };
        assert!(fenced.into_buf()[..] == octets);
        b.iwarp.post_receive(buf).unwrap();
        let (a, b) = (*a.iwarp.stats(), *b.iwarp.stats());
        println!(
            "{} sends, {} of them short, {} receives",
            a.sendmsg - before.sendmsg,
            a.sendmsg_short - before.sendmsg_short,
            b.recv - heard.recv
        );
        // 1 MiB in ULPDUs of 64,768 octets, and the reply; 33 if each Write were alone.
        assert_eq!(a.fpdus_out - before.fpdus_out, 18, "round {round}");
        assert_eq!(b.fpdus_in - heard.fpdus_in, 18, "round {round}");
        // A call sends five FPDUs, unless the kernel takes less.
        let (calls, short) = (a.sendmsg - before.sendmsg, a.sendmsg_short - before.sendmsg_short);
        assert!(calls <= 4 + short, "{calls} calls, of which {short} are short");
    }
}

/// A message from `a` to `b`, and one back.
fn round_trip(a: &mut End, b: &mut End, qa: Qp, qb: Qp) {
    assert!(a.iwarp.send_inline(qa, b"there", None));
    a.iwarp.ring();
    until([a, b], |[_, b]| !b.events.is_empty());
    let call = b.next_message(qb);
    b.iwarp.post_receive(call).unwrap();
    assert!(b.iwarp.send_inline(qb, b"and back", None));
    b.iwarp.ring();
    until([a, b], |[a, _]| !a.events.is_empty());
    let reply = a.next_message(qa);
    a.iwarp.post_receive(reply).unwrap();
}

#[test]
fn one_that_is_busy_alone_is_asked_and_everybody_else_is_heard() {
    let (mut b, at) = End::listening(config());
    let (mut a, mut c) = (End::new(config()), End::new(config()));
    [&mut a, &mut b, &mut c].into_iter().for_each(|end| end.post_receives(8));
    let busy = join(&mut a, &mut b, at);
    let quiet = join(&mut c, &mut b, at);
    for _ in 0..3 {
        (0..40).for_each(|_| round_trip(&mut a, &mut b, busy.0, busy.1));
        // Four in five polls read the hot connection directly.
        let before = *b.iwarp.stats();
        (0..100).for_each(|_| round_trip(&mut a, &mut b, busy.0, busy.1));
        let (asks, looks) =
            (b.iwarp.stats().recv - before.recv, b.iwarp.stats().epoll_wait - before.epoll_wait);
        assert!(asks >= 100 && looks <= asks / 2, "{looks} looks and {asks} asks");
        assert_eq!(b.iwarp.stats().epoll_ctl, before.epoll_ctl);
        // Another one gets its turn, and both at once.
        round_trip(&mut c, &mut b, quiet.0, quiet.1);
        for _ in 0..40 {
            round_trip(&mut a, &mut b, busy.0, busy.1);
            round_trip(&mut c, &mut b, quiet.0, quiet.1);
        }
    }
}

#[test]
fn one_that_is_busy_alone_wakes_a_sleeper_and_may_end() {
    let (mut b, at) = End::listening(config());
    let mut a = End::new(config());
    [&mut a, &mut b].into_iter().for_each(|end| end.post_receives(8));
    let (qa, qb) = join(&mut a, &mut b, at);
    (0..40).for_each(|_| round_trip(&mut a, &mut b, qa, qb));
    assert!(b.iwarp.arm());
    assert!(a.iwarp.send_inline(qa, b"wake up", None));
    a.iwarp.ring();
    let fd = b.iwarp.wait_fd().unwrap();
    let mut poll = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut poll, Some(&patience)), Ok(1));
    assert_eq!(&b.next_message(qb)[..], b"wake up");
    b.post_receives(1);
    (0..40).for_each(|_| round_trip(&mut a, &mut b, qa, qb));
    a.iwarp.disconnect(qa);
    assert_eq!(a.next_end(qa), stag_verbs::Cause::Local);
    assert_eq!(b.next_end(qb), stag_verbs::Cause::Peer);
    // The next client is served.
    let next = join(&mut a, &mut b, at);
    (0..40).for_each(|_| round_trip(&mut a, &mut b, next.0, next.1));
}

#[test]
fn one_that_always_has_something_keeps_no_newcomer_out() {
    let (mut b, at) = End::listening(config());
    let (mut a, mut c) = (End::new(config()), End::new(config()));
    [&mut a, &mut b].into_iter().for_each(|end| end.post_receives(8));
    let (qa, qb) = join(&mut a, &mut b, at);
    (0..40).for_each(|_| round_trip(&mut a, &mut b, qa, qb));
    let newcomer = c.iwarp.connect(&at, b"").unwrap();
    let (mut polls, mut accepted) = (0, false);
    while !c.events.iter().any(|event| matches!(event, Event::Established { .. })) {
        assert!(a.iwarp.send_inline(qa, b"once more", None));
        a.iwarp.ring();
        // One poll at a time: there is always more.
        match b.iwarp.poll(support::now()) {
            Some(Event::Received { buf, .. }) => b.iwarp.post_receive(buf).unwrap(),
            Some(Event::ConnectRequest { qp }) => {
                b.iwarp.accept(qp, b"").unwrap();
                accepted = true;
            }
            _ => {}
        }
        c.pump();
        polls += 1;
        assert!(polls < 10_000, "accepted: {accepted}");
    }
    c.expect_established(newcomer);
}

#[test]
fn ipv6_works_as_well() {
    let (mut a, mut b) = (End::new(config()), End::new(config()));
    let Ok(at) = b.iwarp.listen(&"iwarp://[::1]:0".parse().unwrap()) else {
        println!("skipped: this host has no IPv6");
        return;
    };
    let (qa, qb) = join(&mut a, &mut b, at);
    b.post_receives(1);
    a.iwarp.post_send(qa, Tag(1), a.buf(b"hello"), None).unwrap();
    a.iwarp.ring();
    assert_eq!(&b.next_message(qb)[..], b"hello");
    assert!(b.iwarp.peer_address(qb).unwrap().to_string().starts_with("[::1]"));
}

#[test]
fn several_shards_may_listen_at_one_port() {
    let shared = IwarpConfig { reuse_port: true, ..config() };
    let (first, at) = End::listening(shared.clone());
    let mut ends = [first, End::new(shared)];
    ends[1].iwarp.listen(&at).unwrap();
    let mut peers: Vec<_> = (0..8).map(|_| End::new(config())).collect();
    for peer in &mut peers {
        peer.iwarp.connect(&at, b"").unwrap();
    }
    let [one, other] = &mut ends;
    until([one, other], |ends| {
        peers.iter_mut().for_each(End::pump);
        ends.iter().map(|end| end.events.len()).sum::<usize>() == 8
    });
}

/// One side of the mixed traffic: the work that it waits for, by tag.
struct Mixed {
    end: End,
    qp: Qp,
    reads: HashMap<u64, (usize, usize)>,
    completed: u64,
    received: u64,
}

impl Mixed {
    fn new(end: End, qp: Qp) -> Self {
        Self { end, qp, reads: HashMap::new(), completed: 0, received: 0 }
    }

    /// Checks the events: completions in order, Reads with the right octets, messages in order.
    fn judge(&mut self, content: &[u8]) {
        self.end.pump();
        while let Some(event) = self.end.events.pop_front() {
            match event {
                Event::Completed { tag, status: Status::Success, memory, .. } => {
                    assert_eq!(tag, Tag(self.completed));
                    if let (Some((at, len)), Memory::Buf(sink)) =
                        (self.reads.remove(&tag.0), memory)
                    {
                        assert!(
                            sink[3..3 + len] == content[at..at + len],
                            "read of {len} from {at}"
                        );
                    }
                    self.completed += 1;
                }
                Event::Received { buf, .. } => {
                    assert_eq!(buf[..8], self.received.to_be_bytes());
                    assert!(buf[8..] == content[..buf.len() - 8]);
                    self.received += 1;
                    self.end.iwarp.post_receive(buf).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Both sides send, write and read at the same time, with work of all lengths.
fn mixed_traffic(config: &IwarpConfig, seed: u64, operations: u64) {
    let (mut b, at) = End::listening(config.clone());
    let mut a = End::new(config.clone());
    a.post_receives(4);
    b.post_receives(4);
    let (qa, qb) = join(&mut a, &mut b, at);
    let content = pattern(200_000, 9);
    let mut sides = [Mixed::new(a, qa), Mixed::new(b, qb)];
    let mut windows = Vec::new();
    for side in &mut sides {
        let [readable, writable] = [Access::RemoteRead, Access::RemoteWrite].map(|access| {
            let buf = side.end.buf(&content);
            side.end.iwarp.bind(side.qp, buf, 0..content.len(), access).unwrap()
        });
        windows.push((readable, writable));
    }
    let mut random = Rng::with_seed(seed);
    let (mut posted, mut sent) = ([0; 2], [0_u64; 2]);
    let mut written = [vec![false; content.len()], vec![false; content.len()]];
    while sides.iter().any(|side| side.completed < operations)
        || sides[0].received + sides[1].received < sent[0] + sent[1]
    {
        for index in [0, 1] {
            let (readable, writable) = windows[1 - index];
            let side = &mut sides[index];
            // Few at a time, because every sink and source is a long buffer of the small pool.
            while posted[index] < operations && posted[index] - side.completed < 4 {
                let tag = Tag(posted[index]);
                let limit = [40, 4000, 150_000][random.usize(..3)];
                let len = random.usize(..limit);
                let at = random.usize(..content.len() - len);
                let remote = |window: Window| RemoteSpan {
                    offset: window.offset + at as u64,
                    len: len as u32,
                    ..span(window)
                };
                match random.usize(..3) {
                    0 => {
                        let message =
                            [&sent[index].to_be_bytes()[..], &content[..len.min(4000)]].concat();
                        let message = side.end.buf(&message);
                        side.end.iwarp.post_send(side.qp, tag, message, None).unwrap();
                        sent[index] += 1;
                    }
                    1 => {
                        let source = side.end.buf(&content[at..at + len]).freeze();
                        side.end.iwarp.post_write(side.qp, tag, source, remote(writable)).unwrap();
                        written[1 - index][at..at + len].fill(true);
                    }
                    _ => {
                        let sink = side.end.buf(&vec![0; len + 3]);
                        side.end
                            .iwarp
                            .post_read(side.qp, tag, sink, 3, &[remote(readable)])
                            .unwrap();
                        side.reads.insert(tag.0, (at, len));
                    }
                }
                posted[index] += 1;
            }
            side.end.iwarp.ring();
            side.judge(&content);
        }
    }
    for (index, side) in sides.iter_mut().enumerate() {
        // Every Write wrote the octets that were there before.
        side.end
            .iwarp
            .post_local_invalidate(side.qp, Tag(side.completed), windows[index].1.key)
            .unwrap();
        side.end.iwarp.ring();
        let Event::Completed { memory: Memory::Fenced(fenced), .. } = side.end.next() else {
            panic!("fenced")
        };
        // Octets not covered by a Write are unchanged, or cleared because a later part was written.
        let octets = fenced.into_buf();
        let is_right =
            |at: usize| octets[at] == content[at] || !written[index][at] && octets[at] == 0;
        assert!((0..content.len()).all(is_right));
    }
}

#[test]
fn mixed_traffic_arrives_whole_with_every_length_of_fpdus_and_buffers() {
    for fpdu_max in [FpduMax::Auto, FpduMax::Segment, FpduMax::Ulpdu(128), FpduMax::Ulpdu(1443)] {
        for (send_buffer, receive_buffer, receives) in
            [(None, None, 64), (Some(4096), Some(4096), 64), (None, None, 8192)]
        {
            for (ird, crc) in [(1, Crc::Always), (128, Crc::Never)] {
                let limits = Limits { receives, ..LIMITS };
                let config = IwarpConfig {
                    limits,
                    fpdu_max,
                    send_buffer,
                    receive_buffer,
                    ird,
                    crc,
                    parking: receives / 2,
                    ..config()
                };
                mixed_traffic(&config, 0x5eed + receives as u64, 150);
            }
        }
    }
}

#[test]
fn reads_of_sixty_four_spans_fill_a_send_queue() {
    const SPANS: usize = 64;
    let limits = Limits { send_queue: 256, read_spans: SPANS, ..LIMITS };
    let config = IwarpConfig { limits, ..config() };
    let (mut b, at) = End::listening(config.clone());
    let mut a = End::new(config);
    let (qa, qb) = join(&mut a, &mut b, at);
    let octets = pattern(SPANS * 24, 5);
    let source = b.iwarp.bind(qb, b.buf(&octets), 0..octets.len(), Access::RemoteRead).unwrap();
    // Lengths from 8 to 23 octets, from the last span to the first.
    let spans: Vec<_> = (0..SPANS)
        .rev()
        .map(|place| RemoteSpan {
            key: source.key,
            offset: source.offset + 24 * place as u64,
            len: 8 + place as u32 % 16,
        })
        .collect();
    let wanted: Vec<_> = spans
        .iter()
        .flat_map(|span| {
            octets[(span.offset - source.offset) as usize..][..span.len as usize].to_vec()
        })
        .collect();
    let pool = stag_pools::Pool::new(&[stag_pools::Class { slot_len: 2048, count: 257 }]).unwrap();
    let sink = || {
        let mut sink = pool.take(2048).unwrap();
        sink.extend(3 + wanted.len());
        sink
    };
    for tag in 0..256 {
        a.iwarp.post_read(qa, Tag(tag), sink(), 3, &spans).unwrap();
    }
    let refused = a.iwarp.post_read(qa, Tag(256), sink(), 3, &spans).unwrap_err();
    assert_eq!(refused.why, stag_verbs::Refusal::SendQueueFull);
    a.iwarp.ring();
    until([&mut a, &mut b], |[a, _]| a.events.len() == 256);
    for expected in 0..256 {
        let Some(Event::Completed {
            tag, status: Status::Success, memory: Memory::Buf(sink), ..
        }) = a.events.pop_front()
        else {
            panic!("every Read completes");
        };
        assert_eq!(tag, Tag(expected));
        assert!(sink[3..] == wanted[..]);
    }
}
