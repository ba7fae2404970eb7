//! Messages that a look reports: no receive, no event, in order with everything else.

use crate::{
    peer::*,
    support::{End, LIMITS, PATIENCE, config, now},
};
use rustix::net::sockopt::set_socket_linger;
use stag_iwarp::IwarpAddress;
use stag_pools::RemoteKey;
use stag_verbs::{Cause, Event, Look, Provider, Qp, RemoteSpan, Status, Tag};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Lets `peer` send `octets` without the end reading them.
fn say_unheard(peer: &mut Peer, octets: &[u8]) {
    peer.stream.write_all(octets).unwrap();
}

fn sends<const N: usize>(messages: [&[u8]; N]) -> Vec<u8> {
    let numbered = messages.into_iter().zip(1..);
    numbered.flat_map(|(message, msn)| fpdu(&send(msn, message))).collect()
}

/// Looks until there is a result.
fn look(end: &mut End) -> (Look, Vec<u8>) {
    let deadline = Instant::now() + PATIENCE;
    let mut room = vec![0; LIMITS.receive_len];
    loop {
        let found = end.iwarp.look(now(), &mut room).look();
        if let Look::Message { len, .. } = found {
            room.truncate(len);
            return (found, room);
        }
        if found == Look::Other
            && let Some(event) = end.iwarp.poll(now())
        {
            panic!("{event:?} instead of a message");
        }
        assert!(Instant::now() < deadline, "nothing happens");
    }
}

fn expect_looked_at(end: &mut End, from: Qp, message: &[u8]) {
    let (found, room) = look(end);
    assert_eq!((found, &room[..]), (Look::Message { qp: from, len: message.len() }, message));
}

/// Two established connections.
fn joined(end: &mut End, at: IwarpAddress) -> [(Peer, Qp); 2] {
    [(); 2].map(|()| {
        let mut peer = Peer::connect(at);
        peer.say(end, &frame(REQUEST, C | S, 2, &words(128, 128)));
        let qp = end.next_request();
        end.iwarp.accept(qp, b"").unwrap();
        peer.hear_frame(end, REPLY);
        peer.say(end, &fpdu(&write(1, 0, b"")));
        end.expect_established(qp);
        (peer, qp)
    })
}

#[test]
fn messages_of_one_read_are_told_one_by_one_and_take_no_receive() {
    let (mut end, mut peer, qp) = accepted(config());
    let recv = end.iwarp.stats().recv;
    say_unheard(&mut peer, &sends([b"one", b"", b"three"]));
    expect_looked_at(&mut end, qp, b"one");
    let asked = end.iwarp.stats().recv;
    assert!(asked > recv);
    let mut room = vec![0; LIMITS.receive_len];
    let second = end.iwarp.look(now(), &mut room);
    assert_eq!(second, Look::Message { qp, len: 0 });
    assert!(!second.is_last(), "the third one is here already");
    let third = end.iwarp.look(now(), &mut room);
    assert_eq!(third, Look::Message { qp, len: 5 });
    assert_eq!(room.get(..5), Some(&b"three"[..]));
    assert!(third.is_last(), "a ring comes before the next read");
    assert_eq!(end.iwarp.stats().recv, asked, "one read brought them all");
    assert_eq!(end.iwarp.receives_posted(), 16);
    assert!(end.iwarp.poll(now()).is_none(), "each is told once");
}

#[test]
fn behind_a_sleep_the_connection_that_spoke_last_is_asked_before_epoll() {
    let (mut end, at) = End::listening(config());
    end.post_receives(16);
    let [(mut one, first), (mut two, second)] = joined(&mut end, at);
    let sleep = |end: &mut End| while !end.iwarp.arm() {};
    say_unheard(&mut one, &fpdu(&send(1, b"one")));
    expect_looked_at(&mut end, first, b"one");
    // Both sent while they were joined: no connection is read directly after the first sleep.
    sleep(&mut end);
    say_unheard(&mut one, &fpdu(&send(2, b"two")));
    expect_looked_at(&mut end, first, b"two");
    sleep(&mut end);
    let looks = end.iwarp.stats().epoll_wait;
    say_unheard(&mut one, &fpdu(&send(3, b"three")));
    std::thread::sleep(Duration::from_millis(20));
    expect_looked_at(&mut end, first, b"three");
    assert_eq!(end.iwarp.stats().epoll_wait, looks, "it is asked itself");
    // Another one is found by epoll.
    sleep(&mut end);
    say_unheard(&mut two, &fpdu(&send(1, b"four")));
    expect_looked_at(&mut end, second, b"four");
    sleep(&mut end);
    say_unheard(&mut one, &fpdu(&send(4, b"five")));
    expect_looked_at(&mut end, first, b"five");
}

#[test]
fn a_kept_message_takes_the_receive_that_is_there_for_it() {
    let (mut end, mut peer, qp) = accepted(config());
    say_unheard(&mut peer, &sends([b"one"]));
    expect_looked_at(&mut end, qp, b"one");
    assert!(end.iwarp.take_receive().unwrap().is_empty());
    assert_eq!(end.iwarp.receives_posted(), 15);
}

#[test]
fn a_message_without_a_receive_is_left_to_the_poll_and_waits() {
    let (mut end, mut peer, qp) = accepted(config());
    while end.iwarp.take_receive().is_some() {}
    say_unheard(&mut peer, &sends([b"one", b"two"]));
    let mut room = vec![0; LIMITS.receive_len];
    let deadline = Instant::now() + PATIENCE;
    while end.iwarp.stats().parked < 2 {
        assert_eq!(end.iwarp.look(now(), &mut room), Look::Other);
        assert!(end.iwarp.poll(now()).is_none());
        assert!(Instant::now() < deadline, "the messages do not arrive");
    }
    end.post_receives(1);
    assert_eq!(end.next_message(qp)[..], *b"one");
    end.post_receives(2);
    say_unheard(&mut peer, &fpdu(&send(3, b"three")));
    assert_eq!(end.next_message(qp)[..], *b"two");
    expect_looked_at(&mut end, qp, b"three");
}

#[test]
fn the_poll_goes_on_where_the_look_stopped() {
    let (mut end, mut peer, qp) = accepted(config());
    let mut said = sends([b"one", b"two"]);
    said.extend(fpdu(&Untagged { last: false, ..send_header(3) }.with(b"thr")));
    said.extend(fpdu(&Untagged { mo: 3, ..send_header(3) }.with(b"ee")));
    let four = fpdu(&send(4, b"four"));
    let (half, rest) = four.split_at(9);
    said.extend(half);
    say_unheard(&mut peer, &said);
    expect_looked_at(&mut end, qp, b"one");
    for message in [&b"two"[..], b"three"] {
        assert_eq!(end.next_message(qp)[..], *message);
    }
    say_unheard(&mut peer, rest);
    end.looks = true;
    assert_eq!(end.next_message(qp)[..], *b"four");
}

#[test]
fn what_a_look_has_left_is_told_before_the_end() {
    let (mut end, mut peer, qp) = accepted(config());
    say_unheard(&mut peer, &sends([b"one", b"two"]));
    expect_looked_at(&mut end, qp, b"one");
    end.iwarp.disconnect(qp);
    assert_eq!(end.next_message(qp)[..], *b"two");
    assert_eq!(end.next_end(qp), Cause::Local);
}

#[test]
fn what_a_look_has_left_keeps_the_shard_awake() {
    let (mut end, mut peer, qp) = accepted(config());
    say_unheard(&mut peer, &sends([b"one", b"two"]));
    expect_looked_at(&mut end, qp, b"one");
    assert!(!end.iwarp.arm(), "the kernel knows nothing of what was read");
    assert_eq!(end.next_message(qp)[..], *b"two");
}

#[test]
fn an_event_that_waits_is_told_first() {
    let (mut end, mut peer, qp) = accepted(config());
    say_unheard(&mut peer, &sends([b"one", b"two"]));
    expect_looked_at(&mut end, qp, b"one");
    let to = RemoteSpan { key: RemoteKey(1), offset: 0, len: 1 };
    end.iwarp.post_write(qp, Tag(5), end.buf(b"x").freeze(), to).unwrap();
    let mut room = vec![0; LIMITS.receive_len];
    assert_eq!(end.iwarp.look(now(), &mut room), Look::Other);
    let event = end.iwarp.poll(now());
    assert!(
        matches!(event, Some(Event::Completed { tag: Tag(5), status: Status::Success, .. })),
        "{event:?}"
    );
    expect_looked_at(&mut end, qp, b"two");
}

#[test]
fn a_message_with_a_wrong_crc_is_no_message_to_a_look_either() {
    let (mut end, mut peer, qp) = accepted(config());
    let mut said = sends([b"one", b"two"]);
    let last = said.len() - 1;
    said[last] ^= 1;
    say_unheard(&mut peer, &said);
    expect_looked_at(&mut end, qp, b"one");
    let mut room = vec![0; LIMITS.receive_len];
    assert_eq!(end.iwarp.look(now(), &mut room), Look::Other);
    expect_terminate(&mut end, &mut peer, qp, "2/0/02");
}

#[test]
fn what_a_look_has_left_outlives_a_connection_that_breaks() {
    let (mut end, at) = End::listening(config());
    end.post_receives(16);
    let [(mut peer, qp), (mut broken, lost)] = joined(&mut end, at);
    say_unheard(&mut peer, &sends([b"one", b"two"]));
    expect_looked_at(&mut end, qp, b"one");
    // Its octets are read when a send finds that it has gone.
    say_unheard(&mut broken, &sends([b"last words, longer than those of the other"]));
    set_socket_linger(&broken.stream, Some(Duration::ZERO)).unwrap();
    drop(broken);
    let deadline = Instant::now() + PATIENCE;
    while end.iwarp.send_inline(lost, b"are you there?", None) {
        end.iwarp.ring();
        assert!(Instant::now() < deadline, "the other end has gone");
    }
    end.pump();
    let two = |event: &Event| matches!(event, Event::Received { buf, .. } if buf[..] == *b"two");
    assert!(end.events.iter().any(two), "{:?}", end.events);
    assert_eq!(end.iwarp.stats().crc_errors, 0);
    say_unheard(&mut peer, &fpdu(&send(3, b"three")));
    end.events.clear();
    expect_looked_at(&mut end, qp, b"three");
}

#[test]
fn connections_that_are_ready_together_are_looked_at_in_turn() {
    let (mut end, at) = End::listening(config());
    end.post_receives(16);
    let mut both = joined(&mut end, at);
    for msn in 1..200 {
        let message = [msn as u8; 30];
        both.iter_mut().for_each(|(peer, _)| say_unheard(peer, &fpdu(&send(msn, &message))));
        let mut waiting = both.each_ref().map(|(_, qp)| *qp).to_vec();
        while !waiting.is_empty() {
            let (found, room) = look(&mut end);
            let Look::Message { qp, .. } = found else { panic!("{found:?}") };
            waiting.retain(|other| *other != qp);
            assert_eq!(room, message);
        }
    }
}
