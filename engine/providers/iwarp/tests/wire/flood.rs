//! Silent or incomplete peers cannot keep others out [22, 92].

use crate::{
    peer::*,
    support::{End, LIMITS, PATIENCE, config, until},
};
use stag_iwarp::{IwarpAddress, IwarpConfig};
use stag_verbs::{Cause, Event, FabricFault, Limits, Provider, Qp, Refusal};
use std::{
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

fn request() -> Vec<u8> {
    frame(REQUEST, C | S, 2, &words(1, 1))
}

/// A peer whose Request `end` accepts, and that is silent afterwards.
fn silent_behind_its_request(end: &mut End, at: IwarpAddress) -> (Peer, Qp) {
    let mut peer = Peer::connect(at);
    peer.say(end, &request());
    let qp = end.next_request();
    end.iwarp.accept(qp, b"").unwrap();
    peer.hear_frame(end, REPLY);
    (peer, qp)
}

/// A connection over `host`, one of the loopback network's addresses.
fn connect_from(end: &mut End, host: u8, at: IwarpAddress) -> Peer {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &std::net::SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0))).unwrap();
    connect(&socket, &at.0).unwrap();
    end.pump();
    Peer::over(TcpStream::from(socket))
}

/// Returns true if `peer` is still connected after all pending input is handled.
fn is_connected(end: &mut End, peer: &mut Peer) -> bool {
    end.pump();
    match std::io::Read::read(&mut peer.stream, &mut [0]) {
        Ok(0) => false,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        Ok(_) => panic!("the end speaks first"),
    }
}

fn is_rejected(end: &mut End, peer: &mut Peer) -> bool {
    let (flags, ..) = peer.hear_frame(end, REPLY);
    flags & R != 0
}

#[test]
fn peers_that_send_a_request_and_nothing_else_lose_their_places() {
    let timeout = Duration::from_millis(200);
    assert_eq!(config().first_message_timeout, Duration::from_secs(10));
    let limits = Limits { connections: 64, ..LIMITS };
    let (mut end, at) = End::listening(IwarpConfig {
        limits,
        spare: 0,
        first_message_timeout: timeout,
        ..config()
    });
    let silent: Vec<_> = (0..64).map(|_| silent_behind_its_request(&mut end, at)).collect();
    assert_eq!(end.iwarp.connections(), 64);
    let mut late = Peer::connect(at);
    late.say(&mut end, &request());
    assert!(is_rejected(&mut end, &mut late));
    assert_eq!((late.hear_all(&mut end), end.events.len()), (vec![], 0));
    assert_eq!(end.iwarp.stats().handshakes.shed, 1);

    assert!(end.iwarp.wake_at().is_some(), "the shard's sleep ends in time");
    for (mut peer, qp) in silent {
        assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::TimedOut));
        assert_eq!(peer.hear_all(&mut end), b"");
    }
    assert_eq!((end.iwarp.stats().handshakes.timed_out, end.iwarp.wake_at()), (64, None));
    let (mut peer, qp) = silent_behind_its_request(&mut end, at);
    peer.say(&mut end, &fpdu(&write(1, 0, b"")));
    end.expect_established(qp);
    let until = Instant::now() + timeout * 3 / 2;
    while Instant::now() < until {
        end.pump();
    }
    assert_eq!((end.iwarp.connections(), end.events.len()), (1, 0), "it may be idle for ever");
    assert_eq!(end.iwarp.wake_at(), None);
}

#[test]
fn half_an_fpdu_is_no_first_message() {
    let timeout = Duration::from_millis(50);
    let (mut end, at) = End::listening(IwarpConfig { first_message_timeout: timeout, ..config() });
    let (mut peer, qp) = silent_behind_its_request(&mut end, at);
    peer.say(&mut end, &fpdu(&write(1, 0, b""))[..10]);
    assert_eq!(end.next_end(qp), Cause::Fabric(FabricFault::TimedOut));
}

#[test]
fn a_first_message_that_has_to_wait_for_a_receive_is_in_time() {
    let timeout = Duration::from_millis(30);
    let (mut end, at) =
        End::listening(IwarpConfig { first_message_timeout: timeout, parking: 1, ..config() });
    let (mut first, _) = silent_behind_its_request(&mut end, at);
    first.say(&mut end, &fpdu(&send(1, b"parked")));
    let Event::Established { .. } = end.next() else { panic!("established") };
    let (mut second, qp) = silent_behind_its_request(&mut end, at);
    second.say(&mut end, &fpdu(&send(1, b"stalled")));
    assert_eq!(end.iwarp.stats().stalled, 1);
    second.hear_nothing_or_end(&mut end);
    end.post_receives(2);
    until([&mut end], |[end]| end.events.len() == 3);
    assert!(
        end.events.iter().any(|event| matches!(event, Event::Established { qp: of } if *of == qp))
    );
}

#[test]
fn the_oldest_half_open_connection_makes_place_for_a_newcomer() {
    let (mut end, at) = End::listening(IwarpConfig { half_open: 2, ..config() });
    let mut peers: Vec<_> = (0..3).map(|_| Peer::connect(at)).collect();
    end.pump();
    assert_eq!((end.iwarp.half_open(), end.iwarp.connections()), (2, 0));
    let open: Vec<_> = peers.iter_mut().map(|peer| is_connected(&mut end, peer)).collect();
    assert_eq!(open, [false, true, true]);
    assert_eq!(end.iwarp.stats().handshakes.displaced, 1);
    for peer in &mut peers[1..] {
        peer.say(&mut end, &request());
        end.next_request();
    }
    assert_eq!((end.iwarp.half_open(), end.iwarp.connections()), (0, 2));
}

#[test]
fn a_host_with_more_than_its_share_of_half_open_connections_loses_its_own() {
    let (mut end, at) = End::listening(IwarpConfig { half_open: 8, ..config() });
    let mut honest: Vec<_> = (2..5).map(|host| connect_from(&mut end, host, at)).collect();
    let mut flood: Vec<_> = (0..40).map(|_| connect_from(&mut end, 1, at)).collect();
    assert_eq!((end.iwarp.half_open(), end.iwarp.stats().handshakes.displaced), (8, 35));
    assert!(honest.iter_mut().all(|peer| is_connected(&mut end, peer)), "they came first and stay");
    let open = flood.iter_mut().map(|peer| is_connected(&mut end, peer)).collect::<Vec<_>>();
    assert_eq!(open.iter().filter(|open| **open).count(), 5);
    assert!(open[35..].iter().all(|open| *open), "its oldest went");
    // If no host has more than its share, the oldest of all is closed.
    let mut others: Vec<_> = (10..20).map(|host| connect_from(&mut end, host, at)).collect();
    assert_eq!(
        honest.iter_mut().filter_map(|peer| is_connected(&mut end, peer).then_some(())).count(),
        0
    );
    assert_eq!(
        others.iter_mut().filter_map(|peer| is_connected(&mut end, peer).then_some(())).count(),
        8
    );
}

#[test]
fn a_newcomer_gets_in_while_silent_peers_pour_in() {
    let limits = Limits { connections: 64, ..LIMITS };
    let (mut end, at) = End::listening(IwarpConfig { limits, ..config() });
    let mut flood = std::collections::VecDeque::new();
    for newcomer in 0..32 {
        for _ in 0..40 {
            flood.push_back(TcpStream::connect(at.0).unwrap());
            end.pump();
        }
        flood.drain(..flood.len().saturating_sub(200));
        let (mut peer, qp) = silent_behind_its_request(&mut end, at);
        peer.say(&mut end, &fpdu(&write(1, 0, b"")));
        end.expect_established(qp);
        end.iwarp.disconnect(qp);
        assert_eq!(end.next_end(qp), Cause::Local, "newcomer {newcomer}");
    }
    assert!(end.iwarp.half_open() <= 64);
}

#[test]
fn the_engine_hears_of_newcomers_that_do_not_fit() {
    let limits = Limits { connections: 2, ..LIMITS };
    let (mut end, at) = End::listening(IwarpConfig { limits, spare: 2, ..config() });
    let mut guests: Vec<_> = (0..2).map(|_| silent_behind_its_request(&mut end, at)).collect();
    let ask = |end: &mut End| {
        let mut peer = Peer::connect(at);
        peer.say(end, &request());
        peer
    };
    let mut late: Vec<_> = (0..3).map(|_| ask(&mut end)).collect();
    let (first, second) = (end.next_request(), end.next_request());
    assert!(is_rejected(&mut end, &mut late[2]), "one more than the spare places");
    assert!(end.events.is_empty());
    // One gets the place that a guest leaves; the other cannot be accepted.
    end.iwarp.disconnect(guests[0].1);
    assert_eq!(end.next_end(guests[0].1), Cause::Local);
    assert_eq!(end.iwarp.accept(first, b""), Ok(()));
    assert_eq!(end.iwarp.accept(second, b""), Err(Refusal::Gone));
    assert_eq!(end.next_end(second), Cause::Local);
    assert!(!is_rejected(&mut end, &mut late[0]));
    assert!(is_rejected(&mut end, &mut late[1]));
    assert_eq!((end.iwarp.connections(), end.iwarp.stats().handshakes.shed), (2, 2));
    guests.clear();
}

#[test]
fn connections_that_linger_behind_their_end_give_their_places_to_newcomers() {
    let limits = Limits { connections: 1, ..LIMITS };
    let config = IwarpConfig { limits, half_open: 1, spare: 0, linger: PATIENCE, ..config() };
    let (mut end, at) = End::listening(config);
    let started = Instant::now();
    let mut kept = Vec::new();
    for round in 0..10 {
        let (peer, qp) = silent_behind_its_request(&mut end, at);
        end.iwarp.disconnect(qp);
        assert_eq!(end.next_end(qp), Cause::Local, "round {round}");
        kept.push(peer);
    }
    assert!(started.elapsed() < PATIENCE, "nobody waited for the end of a linger");
    let open = kept.iter_mut().filter_map(|peer| (!peer.has_ended).then_some(())).count();
    assert_eq!(open, 10, "the peers did not make place");
}
