//! Sends and receives, the doorbell, and sleep.

use crate::{
    A, B, Fixture, World,
    world::{Causes, Joined, LIMITS, RECEIVES, assert_unwritten, pattern, span},
};
use stag_pools::{Access, RemoteKey};
use stag_verbs::{Cause, Layer, Provider, Qp, Refusal, RemoteSpan, Status, Tag, Terminate};

/// Messages of 0, 1, a few and the most octets arrive whole.
pub fn messages_of_every_length_arrive<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    for (salt, len) in
        [0, 1, 3, 1023, 4095, 4096, LIMITS.receive_len - 1, LIMITS.receive_len].iter().enumerate()
    {
        let octets = pattern(*len, salt);
        w.send(A, a, &octets, None);
        let message = w.message(B, b);
        assert!(message.buf[..] == octets[..], "{len} octets");
        assert!(message.invalidated.is_none());
        w.repost(B, message.buf);
        assert_eq!(w.completion(A, a).status, Status::Success);
    }
}

/// A message longer than the receiver's `receive_len` kills its connection, takes no receive, and
/// leaves other connections alone.
pub fn a_message_too_long_ends_its_connection_only<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let (bystander, pair) = (w.join(&at), w.join(&at));
    let receives = w.end(B).receives_posted();
    w.send(A, pair.a, &pattern(LIMITS.receive_len + 1, 1), None);
    let causes = w.end_of(pair);
    w.assert_fault(causes, Terminate { layer: Layer::Ddp, etype: 2, code: 5 });
    assert_eq!(w.end(B).receives_posted(), receives);
    w.assert_works(bystander);
}

/// Many messages, more than either queue holds, arrive in the order they were posted, in both
/// directions at once.
pub fn messages_keep_their_order<F: Fixture>(w: &mut World<F>) {
    exchange(w, 500, |w, end, qp, sent, _| {
        while *sent < 500 && w.end(end).send_room(qp) > 0 {
            w.post_send(end, qp, &sent.to_be_bytes(), None);
            *sent += 1;
        }
    });
}

/// Both ends say their numbers up to `count` and hear those of the other end in order. `say` gets
/// the count its end has sent, and the count the other end has received; the doorbell is rung
/// after it.
fn exchange<F: Fixture>(
    w: &mut World<F>,
    count: u32,
    mut say: impl FnMut(&mut World<F>, usize, Qp, &mut u32, u32),
) {
    let Joined { a, b } = w.pair();
    let ends = [(A, a), (B, b)];
    let (mut sent, mut seen) = ([0_u32; 2], [0_u32; 2]);
    while seen != [count; 2] {
        w.seats.iter_mut().for_each(|seat| seat.done.clear());
        for (end, qp) in ends {
            say(w, end, qp, &mut sent[end], seen[1 - end]);
            w.end(end).ring();
        }
        w.until("a message arrives, or there is room for one", |w| {
            w.seats.iter().any(|seat| !seat.received.is_empty() || !seat.done.is_empty())
        });
        for (end, qp) in ends {
            while let Some(message) = w.seats[end].received.pop_front() {
                assert_eq!((message.qp, &message.buf[..]), (qp, &seen[end].to_be_bytes()[..]));
                seen[end] += 1;
                w.repost(end, message.buf);
            }
        }
    }
}

/// Shows that posted work stays here until the doorbell is rung, and that one ring is enough for
/// all connections.
pub fn nothing_leaves_before_the_doorbell<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let (first, second) = (w.join(&at), w.join(&at));
    w.post_send(A, first.a, b"one", None);
    w.post_send(A, second.a, b"two", None);
    w.quiet();
    assert!(w.seats[B].received.is_empty() && w.seats[A].done.is_empty(), "nothing was rung out");
    w.end(A).ring();
    assert_eq!(&w.message(B, second.b).buf[..], b"two");
    assert_eq!(&w.message(B, first.b).buf[..], b"one");
}

/// Sends a copy, or posts the message where no copy can be sent.
fn say<F: Fixture>(w: &mut World<F>, octets: &[u8], a: Qp, key: Option<RemoteKey>) -> bool {
    let is_sent = w.end(A).send_inline(a, octets, key);
    if !is_sent {
        w.post_send(A, a, octets, key);
    }
    is_sent
}

/// A copy keeps its turn: after work posted earlier, before work posted later. It has
/// no completion, leaves with the doorbell at the latest, and waits for a receive as every message
/// does.
pub fn copies_and_posted_messages_keep_their_order<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    w.seats[A].done.clear();
    let mut posted = 0;
    for round in 0..60_usize {
        let first = pattern(round * LIMITS.receive_len / 60, round);
        let is_copied = say(w, &first, a, None);
        posted += usize::from(!is_copied);
        if round.is_multiple_of(3) {
            w.post_send(A, a, &[round as u8], None);
            posted += 1;
            assert!(
                !w.end(A).send_inline(a, b"in front", None),
                "it would overtake what is posted"
            );
        }
        w.end(A).ring();
        let message = w.message(B, b);
        assert!(message.qp == b && message.buf[..] == first[..], "round {round}");
        if round.is_multiple_of(3) {
            let second = w.message(B, b);
            assert_eq!(second.buf[..], [round as u8]);
            w.repost(B, second.buf);
        }
        w.repost(B, message.buf);
    }
    w.until("what was posted completes", |w| w.seats[A].done.len() == posted);
    w.quiet();
    assert_eq!(w.seats[A].done.len(), posted, "a copy has no completion");
    starve(w, Joined { a, b });
    (0..3_u8).for_each(|number| {
        say(w, &[number; 100], a, None);
    });
    w.end(A).ring();
    w.quiet();
    assert!(w.seats[B].received.is_empty());
    w.post_receives(B, 4);
    (0..3_u8).for_each(|number| assert_eq!(w.message(B, b).buf[..], [number; 100]));
}

/// A copy ends a window of the peer, after the Write that was posted first; one that breaks a rule
/// ends the connection.
pub fn a_copy_invalidates_as_a_posted_message_does<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    for salt in 0..8 {
        let window = w.open(B, b, &[b'.'; 4096], Access::RemoteWrite);
        let octets = pattern(4096, salt);
        if salt.is_multiple_of(2) {
            w.post_write(A, a, &octets, span(window));
            w.end(A).ring();
        }
        say(w, b"written", a, Some(window.key));
        w.end(A).ring();
        let message = w.message(B, b);
        assert_eq!(&message.buf[..], b"written");
        let written = message.invalidated.unwrap();
        assert_eq!(written.key(), window.key);
        let written = written.into_buf();
        match salt.is_multiple_of(2) {
            true => assert!(written[..] == octets[..]),
            false => assert_unwritten(&written, &[b'.'; 4096]),
        }
        w.repost(B, message.buf);
    }
    w.until("what was posted completes", |w| w.seats[A].done.len() >= 4);
    if w.end(A).send_inline(a, b"stray", Some(RemoteKey(1 << 20))) {
        w.end(A).ring();
        w.end_of(Joined { a, b });
    }
}

/// One work request more than the `send_queue` of the limits is refused with its memory; room comes
/// back with completions.
pub fn a_full_send_queue_refuses<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let room = w.end(A).limits().send_queue;
    for posted in 0..room {
        assert_eq!(w.end(A).send_room(a), room - posted);
        w.post_send(A, a, b"fill", None);
    }
    assert_eq!(w.end(A).send_room(a), 0);
    let surplus = w.buf(b"surplus");
    let refused = w.end(A).post_send(a, Tag(0), surplus, None).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (Refusal::SendQueueFull, &b"surplus"[..]));
    // Work that contradicts itself is refused as malformed, room or not.
    let somewhere = RemoteSpan { key: RemoteKey(0), offset: 0, len: 8 };
    let refused = w.end(A).post_write(a, Tag(0), refused.token.freeze(), somewhere).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (Refusal::Malformed, &b"surplus"[..]));
    let sink = w.buf(b"surplus");
    let refused = w.end(A).post_read(a, Tag(0), sink, 0, &[somewhere]).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (Refusal::Malformed, &b"surplus"[..]));
    w.end(A).ring();
    for _ in 0..room {
        let message = w.message(B, b);
        w.repost(B, message.buf);
    }
    w.until("everything completes", |w| w.seats[A].done.len() == room);
    assert_eq!(w.end(A).send_room(a), room);
    w.assert_works(Joined { a, b });
}

/// Completions of full send queues on every connection, and of every receive, wait to be polled:
/// none is lost.
pub fn completions_that_nobody_polls_are_all_kept<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let pairs: Vec<_> = (0..LIMITS.connections).map(|_| w.join(&at)).collect();
    w.post_receives(A, LIMITS.receives - RECEIVES);
    for Joined { a, b } in pairs.iter().copied() {
        let to = span(w.open(B, b, b"....", Access::RemoteWrite));
        for _ in 0..LIMITS.send_queue {
            w.post_write(A, a, b"fill", to);
        }
    }
    w.end(A).ring();
    for number in 0..LIMITS.receives {
        w.send(B, pairs[number % pairs.len()].b, b"take one", None);
    }
    w.quiet_without(A);
    let works = LIMITS.connections * LIMITS.send_queue;
    w.until("all is reported", |w| {
        (w.seats[A].done.len(), w.seats[A].received.len()) == (works, LIMITS.receives)
    });
    assert!(w.seats[A].done.iter().all(|done| done.status == Status::Success));
}

/// Uses up the receives of B.
fn starve<F: Fixture>(w: &mut World<F>, pair: Joined) {
    let Joined { a, b } = pair;
    for _ in 0..RECEIVES {
        w.send(A, a, b"take one", None);
        drop(w.message(B, b));
    }
    assert_eq!(w.end(B).receives_posted(), 0);
}

/// A message that finds no receive waits; messages get the receives that come later in their order.
pub fn a_message_without_a_receive_waits<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    starve(w, pair);
    for number in 0..6_u8 {
        w.send(A, pair.a, &[number; 100], None);
    }
    w.quiet();
    assert!(w.seats[B].received.is_empty());
    for number in 0..6_u8 {
        w.post_receives(B, 1);
        let message = w.message(B, pair.b);
        assert_eq!(message.buf[..], [number; 100]);
        w.quiet();
        assert!(w.seats[B].received.is_empty(), "one receive takes one message");
    }
    w.post_receives(B, 2);
    w.assert_works(pair);
}

/// While a message waits for a receive, RDMA Writes and Reads of both sides of its connection go
/// on.
pub fn a_starved_connection_still_moves_memory<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    starve(w, Joined { a, b });
    w.seats[A].done.clear();
    let at_b = [
        w.open(B, b, &[b'.'; 64], Access::RemoteWrite),
        w.open(B, b, &[b'b'; 64], Access::RemoteRead),
    ];
    let at_a = w.open(A, a, &[b'a'; 64], Access::RemoteRead);
    w.send(A, a, b"waits", None);
    w.quiet();
    let theirs = w.post_read(B, b, 0, &[span(at_a)]);
    w.end(B).ring();
    w.post_write(A, a, &[b'w'; 64], span(at_b[0]));
    let ours = w.post_read(A, a, 0, &[span(at_b[1])]);
    w.end(A).ring();
    for (end, qp, tag, octet) in [(B, b, theirs, b'a'), (A, a, ours, b'b')] {
        let done = w.work(end, qp, tag);
        assert_eq!(done.status, Status::Success, "the Read goes on");
        assert_eq!(done.buf()[..64], [octet; 64]);
    }
    assert!(w.seats[B].received.is_empty());
    w.post_receives(B, 1);
    assert_eq!(&w.message(B, b).buf[..], b"waits");
    let tag = w.post_invalidate(B, b, at_b[0].key);
    w.end(B).ring();
    assert_eq!(w.work(B, b, tag).buf()[..], [b'w'; 64], "the Write went on");
}

/// Receives are the shard's: the end of a connection takes none, and another connection uses them.
pub fn receives_outlive_connections<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    for _ in 0..RECEIVES + 2 {
        let pair = w.join(&at);
        w.disconnect(A, pair.a);
        w.end_of(pair);
        assert_eq!((w.end(A).receives_posted(), w.end(B).receives_posted()), (RECEIVES, RECEIVES));
    }
}

/// A receive too many, and one that is too short, come back.
pub fn receives_have_limits<F: Fixture>(w: &mut World<F>) {
    w.add_end(LIMITS);
    let (most, len) = (w.end(A).limits().receives, w.end(A).limits().receive_len);
    let short = w.pool.take(len / 32).unwrap();
    assert!(short.capacity() < len);
    assert!(w.end(A).post_receive(short).is_err());
    w.post_receives(A, most);
    let surplus = w.pool.take(len).unwrap();
    assert!(w.end(A).post_receive(surplus).is_err());
    assert_eq!(w.end(A).receives_posted(), most);
}

/// Shows that the earlier content of a receive, its head room included, is no part of the message.
pub fn a_receive_holds_nothing_but_the_message<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    starve(w, pair);
    let mut used = w.pool.take(LIMITS.receive_len).unwrap();
    used.reset(1000);
    used.append(&[b'x'; 500]).unwrap();
    w.repost(B, used);
    let octets = pattern(LIMITS.receive_len, 4);
    w.send(A, pair.a, &octets, None);
    assert!(w.message(B, pair.b).buf[..] == octets[..]);
}

/// Traffic of several connections mixes as it likes, and each keeps its own order and content; the
/// end of one is no event of another.
pub fn connections_do_not_disturb_each_other<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let pairs = [w.join(&at), w.join(&at), w.join(&at)];
    let mut seen = [0_u8; 3];
    for number in 0..30_u8 {
        for (index, Joined { a, .. }) in pairs.iter().enumerate() {
            if number < 10 || index > 0 {
                w.send(A, *a, &[index as u8, number], None);
            }
        }
        for (index, Joined { b, .. }) in
            pairs.iter().enumerate().filter(|(index, _)| number < 10 || *index > 0)
        {
            let message = w.message(B, *b);
            assert_eq!(message.buf[..], [index as u8, seen[index]]);
            seen[index] += 1;
            w.repost(B, message.buf);
        }
        if number == 9 {
            w.disconnect(B, pairs[0].b);
        }
    }
    assert_eq!(w.end_of(pairs[0]), Causes { a: Cause::Peer, b: Cause::Local });
    w.assert_works(pairs[1]);
    w.assert_works(pairs[2]);
}

/// Shows that a message sent as a copy arrives whole, whatever its length, leaves with the next
/// ring, and completes nothing. A provider that takes no copies refuses each one, and then nothing
/// arrives.
pub fn a_copy_arrives_without_a_completion<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let room = w.end(A).send_room(a);
    let mut taken = Vec::new();
    for (salt, len) in [0, 1, 68, 200, 1024, 4096, LIMITS.receive_len].into_iter().enumerate() {
        let octets = pattern(len, salt);
        if w.end(A).send_inline(a, &octets, None) {
            taken.push(octets);
        }
    }
    assert_eq!(w.end(A).send_room(a), room, "a copy takes no place in the send queue");
    w.end(A).ring();
    for octets in taken {
        let message = w.message(B, b);
        assert!(message.buf[..] == octets[..], "{} octets", octets.len());
        assert!(message.invalidated.is_none());
        w.repost(B, message.buf);
    }
    w.quiet();
    assert!(w.seats[A].done.is_empty() && w.seats[B].received.is_empty(), "there is nothing else");
}

/// Copies and posted Sends arrive in the order in which they were asked for, whether the doorbell
/// was rung between them or not, in both directions, and with receives that come late.
pub fn copies_keep_their_place_among_what_is_posted<F: Fixture>(w: &mut World<F>) {
    exchange(w, 300, |w, end, qp, sent, heard| {
        let burst = *sent % 7 + 1;
        for _ in 0..burst {
            if *sent == 300 || *sent - heard >= 40 {
                break;
            }
            let octets = sent.to_be_bytes();
            let copied = *sent % 5 > 0 && w.end(end).send_inline(qp, &octets, None);
            if !copied {
                if w.end(end).send_room(qp) == 0 {
                    break;
                }
                w.post_send(end, qp, &octets, None);
            }
            if sent.is_multiple_of(3) {
                w.end(end).ring();
            }
            *sent += 1;
        }
    });
}

/// Before a connection is established, and when it has ended, no copy is taken.
pub fn a_copy_goes_nowhere_without_a_connection<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let Joined { a, b } = w.meet(A, &at);
    if !w.is_established(A, a) {
        assert!(!w.end(A).send_inline(a, b"too early", None));
    }
    assert!(!w.end(B).send_inline(b, b"too early", None));
    w.end(B).accept(b, b"").unwrap();
    w.until("the connector is established", |w| w.is_established(A, a));
    w.assert_works(Joined { a, b });
    w.disconnect(A, a);
    assert!(!w.end(A).send_inline(a, b"too late", None));
    w.end_of(Joined { a, b });
    for (end, qp) in [(A, a), (B, b)] {
        assert!(!w.end(end).send_inline(qp, b"too late", None));
    }
    w.quiet();
    assert!(w.seats[A].received.is_empty() && w.seats[B].received.is_empty());
}

/// The lost wake-up: what arrived before `arm` either makes it false or makes the descriptor
/// readable.
pub fn an_event_that_is_there_prevents_sleep<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    w.quiet();
    for _ in 0..20 {
        w.send(A, a, b"wake up", None);
        w.quiet_without(B);
        let sleeps = w.end(B).arm();
        assert!(!sleeps || w.is_readable(B), "a message arrived, and B would sleep");
        let message = w.message(B, b);
        w.repost(B, message.buf);
    }
}

/// After `arm` said that nothing is there, an arrival makes the descriptor readable, each time.
pub fn an_arrival_ends_sleep<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    // A provider that cannot be slept on keeps this promise.
    if w.end(B).wait_fd().is_none() {
        return;
    }
    for round in 0..20 {
        w.quiet();
        if !w.end(B).arm() {
            continue;
        }
        assert!(!w.is_readable_now(B), "nothing is there");
        if round % 2 == 0 || !w.end(A).send_inline(a, b"wake up", None) {
            w.post_send(A, a, b"wake up", None);
        }
        w.end(A).ring();
        assert!(w.is_readable(B), "the message ends the sleep");
        let message = w.message(B, b);
        w.repost(B, message.buf);
    }
}
