//! Tests of the end of connections [79], and of a kernel without descriptors.

use crate::{
    peer::*,
    support::{LIMITS, config, until},
};
use stag_iwarp::IwarpConfig;
use stag_pools::RemoteKey;
use stag_verbs::{Cause, Event, FabricFault, Limits, Provider, Refusal, RemoteSpan, Status, Tag};
use std::time::{Duration, Instant};

#[test]
fn a_fin_between_messages_is_an_end_in_order() {
    let (mut end, mut peer, qp) = accepted(config());
    peer.say(&mut end, &fpdu(&send(1, b"last words")));
    drop(peer);
    assert_eq!(&end.next_message(qp)[..], b"last words");
    assert_eq!(end.next_end(qp), Cause::Peer);
}

#[test]
fn a_peer_that_closes_its_half_sees_the_other_half_closed_in_order() {
    let (mut end, mut peer, qp) = accepted(config());
    peer.say(&mut end, &fpdu(&send(1, b"last words")));
    peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(&end.next_message(qp)[..], b"last words");
    assert_eq!(end.next_end(qp), Cause::Peer);
    let mut rest = [0; 1];
    peer.stream.set_nonblocking(false).unwrap();
    assert_eq!(std::io::Read::read(&mut peer.stream, &mut rest).unwrap(), 0, "a FIN and no reset");
}

#[test]
fn a_fin_inside_a_message_is_a_loss() {
    let whole = fpdu(&send(1, b"message"));
    for cut in 1..whole.len() {
        let (mut end, mut peer, qp) = accepted(config());
        peer.say(&mut end, &whole[..cut]);
        drop(peer);
        assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost), "cut {cut}");
        assert_eq!(end.iwarp.receives_posted(), 16);
    }
    for part in
        [Untagged { last: false, ..send_header(1) }.with(b"begun"), tagged(0, false, 0, 0, b"")]
    {
        let (mut end, mut peer, qp) = accepted(config());
        peer.say(&mut end, &fpdu(&part));
        drop(peer);
        assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost));
        assert_eq!(end.iwarp.receives_posted(), 16);
    }
}

#[test]
fn a_reset_blames_the_oldest_work() {
    let (mut end, mut peer, qp) = accepted(config());
    let span = RemoteSpan { key: RemoteKey(1), offset: 0, len: 4 };
    end.iwarp.post_read(qp, Tag(1), end.buf(b"...."), 0, &[span]).unwrap();
    end.iwarp.post_send(qp, Tag(2), end.buf(b"behind"), None).unwrap();
    end.iwarp.ring();
    peer.gulp = 10;
    peer.hear(&mut end, 10);
    drop(peer); // with octets unread: its kernel resets
    for (expected, status) in [(1, Status::Lost), (2, Status::Flushed)] {
        let event = end.next();
        let Event::Completed { tag, status: said, .. } = &event else { panic!("{event:?}") };
        assert_eq!((*tag, *said), (Tag(expected), status));
    }
    assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost));
}

#[test]
fn a_disconnect_is_a_fin_behind_what_was_posted() {
    let (mut end, mut peer, qp) = accepted(config());
    end.iwarp.post_send(qp, Tag(1), end.buf(b"last words"), None).unwrap();
    end.iwarp.disconnect(qp);
    assert!(matches!(end.next(), Event::Completed { status: Status::Success, .. }));
    assert_eq!(end.next_end(qp), Cause::Local);
    let late = end.iwarp.post_send(qp, Tag(2), end.buf(b"too late"), None).unwrap_err();
    assert_eq!(late.why, Refusal::Gone);
    // Octets of the peer in flight do not make our kernel reset.
    peer.say(&mut end, &fpdu(&send(1, b"too late")));
    assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"last words"));
    assert_eq!(peer.hear_all(&mut end), b"");
    assert!(end.events.is_empty());
}

#[test]
fn a_disconnect_is_a_fin_behind_what_was_copied() {
    let (mut end, mut peer, qp) = accepted(config());
    assert!(end.iwarp.send_inline(qp, b"last words", None));
    end.iwarp.disconnect(qp);
    assert_eq!(end.next_end(qp), Cause::Local);
    assert!(!end.iwarp.send_inline(qp, b"too late", None));
    assert_eq!(peer.hear_ulpdu(&mut end), send(1, b"last words"));
    assert_eq!(peer.hear_all(&mut end), b"");
    end.iwarp.ring(); // it is over: nothing to be rung
    assert!(end.events.is_empty());
}

#[test]
fn what_is_copied_to_a_peer_that_resets_is_forgotten() {
    let (mut end, peer, qp) = accepted(config());
    rustix::net::sockopt::set_socket_linger(&peer.stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
    let mut copied = 0;
    while end.iwarp.send_inline(qp, &[7; 4000], None) && copied < 100 {
        copied += 1;
    }
    assert!((1..100).contains(&copied), "what waits has a limit");
    end.iwarp.ring();
    assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost));
    assert!(!end.iwarp.send_inline(qp, b"", None));
    end.iwarp.ring();
    assert!(end.events.is_empty());
    assert_eq!(end.pool.taken(), 16, "only the receives are out");
}

#[test]
fn a_peer_that_does_not_hang_up_is_left_after_a_while() {
    let linger = Duration::from_millis(20);
    let (mut end, mut peer, qp) = accepted(IwarpConfig { linger, ..config() });
    let begun = Instant::now();
    end.iwarp.disconnect(qp);
    assert_eq!(end.next_end(qp), Cause::Local);
    // A busy host may have let that while go by already.
    assert!(end.iwarp.wake_at().is_some() || begun.elapsed() >= linger);
    peer.hear_all(&mut end);
    until([&mut end], |[end]| end.iwarp.wake_at().is_none()); // the socket is closed
}

#[test]
fn a_peer_that_does_not_read_cannot_hold_a_terminate_for_ever() {
    let config =
        IwarpConfig { linger: Duration::from_millis(20), send_buffer: Some(1), ..config() };
    let (mut end, mut peer, qp) = accepted(config);
    peer.slow_down(1);
    let to = RemoteSpan { key: RemoteKey(1), offset: 0, len: 1 << 20 };
    for tag in 1..=8 {
        end.iwarp.post_write(qp, Tag(tag), end.buf(&vec![0; 1 << 20]).freeze(), to).unwrap();
    }
    end.iwarp.ring();
    peer.say(&mut end, &fpdu(&send(9, b"x")));
    for tag in 1..=8 {
        let event = end.next();
        assert!(matches!(event, Event::Completed { tag: Tag(of), .. } if of == tag), "{event:?}");
    }
    assert!(matches!(end.next_end(qp), Cause::PeerFault(_)));
    assert_eq!(end.pool.taken(), 16, "only the receives are out");
}

#[test]
fn writes_that_travel_as_one_end_once_each_wherever_the_connection_ends() {
    const EXTENT: usize = 64 << 10;
    for (breaks_a_rule, heard) in [(false, 0), (false, 40_000), (false, 200_000), (true, 40_000)] {
        let linger = Duration::from_millis(20);
        let (send_buffer, receive_buffer) = (Some(1), Some(1));
        let config = IwarpConfig { linger, send_buffer, receive_buffer, ..config() };
        let (mut end, mut peer, qp) = accepted(config);
        let stored = end.buf(&vec![b'w'; 16 * EXTENT]).freeze();
        for tag in 0..16 {
            let source = stored.slice(tag * EXTENT..(tag + 1) * EXTENT);
            let offset = (tag * EXTENT) as u64;
            let to = RemoteSpan { key: RemoteKey(1), offset, len: EXTENT as u32 };
            end.iwarp.post_write(qp, Tag(tag as u64), source, to).unwrap();
        }
        drop(stored);
        end.iwarp.ring();
        peer.hear(&mut end, heard);
        if breaks_a_rule {
            peer.say(&mut end, &fpdu(&send(9, b"x")));
        } else {
            drop(peer);
        }
        let mut has_failed = false;
        for expected in 0..16 {
            let Event::Completed { tag, status, .. } = end.next() else { panic!("work ends") };
            assert_eq!(tag, Tag(expected), "{heard} heard");
            has_failed |= status != Status::Success;
            assert_eq!(has_failed, status != Status::Success, "{heard} heard: {tag:?}");
        }
        assert!(has_failed, "the peer did not hear all of them");
        let cause = end.next_end(qp);
        assert_eq!(matches!(cause, Cause::PeerFault(_)), breaks_a_rule, "{cause:?}");
        assert_eq!(end.pool.taken(), 16, "only the receives are out");
    }
}

#[test]
fn a_full_parking_lot_stops_one_connection_and_no_other() {
    let limits = Limits { receives: 4, ..LIMITS };
    let (mut end, mut peer, qp) = accepted_starved(IwarpConfig { limits, parking: 2, ..config() });
    let at = end.iwarp.listen(&crate::support::localhost()).unwrap();
    let window =
        end.iwarp.bind(qp, end.buf(b"...."), 0..4, stag_pools::Access::RemoteWrite).unwrap();
    for msn in 1..=5 {
        peer.say(&mut end, &fpdu(&send(msn, &[msn as u8; 10])));
    }
    peer.say(&mut end, &fpdu(&write(window.key.0, window.offset, b"late")));
    end.pump();
    assert!(end.events.is_empty());
    assert_eq!((end.iwarp.stats().parked, end.iwarp.stats().stalled), (2, 1));

    // Another connection moves memory meanwhile.
    let mut other = Peer::connect(at);
    other.say(&mut end, &frame(REQUEST, C | S, 2, &words(1, 1)));
    let theirs = end.next_request();
    end.iwarp.accept(theirs, b"").unwrap();
    other.hear_frame(&mut end, REPLY);
    other.say(&mut end, &fpdu(&write(1, 0, b"")));
    end.expect_established(theirs);
    let readable =
        end.iwarp.bind(theirs, end.buf(b"readable"), 0..8, stag_pools::Access::RemoteRead).unwrap();
    let ask =
        Ask { sink: 1, sink_to: 0, len: 8, source: readable.key.0, source_to: readable.offset };
    other.say(&mut end, &fpdu(&read_request(1, ask)));
    assert_eq!(other.hear_ulpdu(&mut end), read_response(1, 0, b"readable"));

    // Nothing makes the shard busy while it waits.
    let looks = end.iwarp.stats().epoll_wait;
    assert!(end.iwarp.arm());
    assert_eq!(end.iwarp.stats().epoll_wait, looks + 1);

    for msn in 1..=5 {
        end.post_receives(1);
        assert_eq!(end.next_message(qp)[..], [msn as u8; 10]);
    }
    end.post_receives(1);
    peer.say(&mut end, &fpdu(&send_invalidate(6, window.key.0, b"")));
    let Event::Received { invalidated: Some(fenced), .. } = end.next() else { panic!("a message") };
    assert_eq!(&fenced.into_buf()[..], b"late");
}

#[test]
fn a_terminate_needs_no_receive() {
    let (mut end, mut peer, qp) = accepted_starved(IwarpConfig { parking: 1, ..config() });
    peer.say(&mut end, &fpdu(&send(1, b"parked")));
    peer.say(&mut end, &fpdu(&terminate(&[0x11, 1, 0, 0])));
    assert_eq!(end.iwarp.stats().parked, 1);
    let cause = end.next_end(qp);
    assert!(matches!(cause, Cause::Terminated(said) if said.to_string() == "1/1/01"), "{cause:?}");
}

#[test]
fn events_that_nobody_has_asked_for_are_all_kept() {
    // Far more than can be pending at one time: each doorbell sends the posted work, and its room
    // is free again.
    let (mut end, mut peer, qp) = accepted(config());
    let source = end.buf(b"x").freeze();
    let to = RemoteSpan { key: RemoteKey(1), offset: 0, len: 1 };
    let rounds = 40;
    for round in 0..rounds {
        for tag in 0..32 {
            end.iwarp.post_write(qp, Tag(round * 32 + tag), source.clone(), to).unwrap();
        }
        end.iwarp.ring();
    }
    for msn in 1..=16 {
        std::io::Write::write_all(&mut peer.stream, &fpdu(&send(msn, b"message"))).unwrap();
    }
    for expected in 0..rounds * 32 {
        let event = end.next();
        assert!(
            matches!(
                event,
                Event::Completed { tag: Tag(tag), status: Status::Success, .. } if tag == expected
            ),
            "{event:?}"
        );
    }
    for _ in 1..=16 {
        assert_eq!(&end.next_message(qp)[..], b"message");
    }
}

#[test]
fn the_windows_of_parked_messages_come_back_when_their_connection_ends() {
    let (mut end, mut peer, qp) = accepted_starved(IwarpConfig { parking: 4, ..config() });
    let window =
        end.iwarp.bind(qp, end.buf(b"opened"), 0..6, stag_pools::Access::RemoteWrite).unwrap();
    peer.say(&mut end, &fpdu(&send_invalidate(1, window.key.0, b"parked")));
    peer.say(
        &mut end,
        &fpdu(&Untagged { last: false, ..send_header(2) }.with(b"half of a message")),
    );
    drop(peer);
    let Event::Unbound { fenced, .. } = end.next() else { panic!("the window ends") };
    assert_eq!(&fenced.into_buf()[..], b"opened");
    assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::Lost));
    assert_eq!(end.pool.taken(), 0);
}

#[test]
fn a_read_never_brings_more_messages_than_can_wait() {
    // Receives and places are just enough for the shared buffer to be used; half an FPDU is held
    // when the flood comes.
    const RECEIVES: usize = 2720;
    let limits = Limits { receives: 8000, receive_len: 64, ..LIMITS };
    let (mut end, mut peer, qp) = accepted_starved(IwarpConfig { limits, parking: 16, ..config() });
    let pool = stag_pools::Pool::new(&[stag_pools::Class { slot_len: 64, count: 8000 }]).unwrap();
    let post = |end: &mut crate::support::End, count| {
        (0..count).for_each(|_| end.iwarp.post_receive(pool.take(64).unwrap()).unwrap());
    };
    post(&mut end, RECEIVES);
    let blank = end.buf(&vec![0; 60_000]);
    let window = end.iwarp.bind(qp, blank, 0..60_000, stag_pools::Access::RemoteWrite).unwrap();
    let mut flood = fpdu(&write(window.key.0, window.offset, &vec![7; 60_000]));
    let half = flood.split_off(30_000);
    peer.say(&mut end, &flood);
    let mut rest = half;
    for msn in 1..=6000 {
        rest.extend(fpdu(&send(msn, b"")));
    }
    // All of it is in the kernel before the end looks.
    let mut writer = peer.stream.try_clone().unwrap();
    writer.set_nonblocking(false).unwrap();
    std::io::Write::write_all(&mut writer, &rest).unwrap();
    let mut arrived = 0;
    while arrived < 6000 {
        end.pump();
        arrived +=
            end.events.drain(..).filter(|event| matches!(event, Event::Received { .. })).count();
        if end.iwarp.receives_posted() == 0 {
            post(&mut end, 1000.min(6000 - arrived));
        }
    }
    assert!(end.iwarp.stats().stalled > 0 && end.iwarp.stats().parked > 0);
    assert_eq!((end.iwarp.windows_bound(), end.iwarp.connections()), (1, 1));
}

#[test]
fn what_follows_the_longest_fpdu_that_has_to_wait_is_not_read() {
    let (mut end, mut peer, qp) = accepted_starved(IwarpConfig { parking: 1, ..config() });
    // Waits until the end has read all of it.
    let say = |end: &mut crate::support::End, peer: &mut Peer, octets: &[u8]| {
        let said = end.iwarp.stats().octets_in + octets.len() as u64;
        std::io::Write::write_all(&mut peer.stream, octets).unwrap();
        let deadline = std::time::Instant::now() + crate::support::PATIENCE;
        while end.iwarp.stats().octets_in < said {
            end.pump();
            assert!(std::time::Instant::now() < deadline, "the end does not read");
        }
    };
    say(&mut end, &mut peer, &fpdu(&send(1, b"parked")));
    let blank = end.buf(&vec![0; 60_000]);
    let window = end.iwarp.bind(qp, blank, 0..60_000, stag_pools::Access::RemoteWrite).unwrap();
    let landing = fpdu(&write(window.key.0, window.offset, &vec![7; 60_000]));
    let longest = fpdu(&send(2, &vec![1; 65_535 - 18]));
    let (begun, rest) = landing.split_at(30_000);
    say(&mut end, &mut peer, begun);
    let (front, back) = longest.split_at(40_000);
    say(&mut end, &mut peer, &[rest, front].concat());
    assert_eq!(end.iwarp.stats().stalled, 0);
    // Reads after one that landed end soon after the next header: one exceeds the longest FPDU.
    let behind = fpdu(&send(3, b"behind it"));
    std::io::Write::write_all(&mut peer.stream, &[back, &behind[..16]].concat()).unwrap();
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while end.iwarp.stats().stalled == 0 {
        end.pump();
        assert!(std::time::Instant::now() < deadline, "the message does not wait");
    }
    assert!(end.events.is_empty());
    end.post_receives(2);
    assert_eq!(end.next_message(qp)[..], *b"parked");
    expect_terminate(&mut end, &mut peer, qp, "1/2/05");
}

/// An accepted connection without receives.
fn accepted_starved(config: IwarpConfig) -> (crate::support::End, Peer, stag_verbs::Qp) {
    let (mut end, at) = crate::support::End::listening(config);
    let mut peer = Peer::connect(at);
    peer.say(&mut end, &frame(REQUEST, C | S, 2, &words(128, 128)));
    let qp = end.next_request();
    end.iwarp.accept(qp, b"").unwrap();
    peer.hear_frame(&mut end, REPLY);
    peer.say(&mut end, &fpdu(&write(1, 0, b"")));
    end.expect_established(qp);
    (end, peer, qp)
}
