//! Announcements of an end while it connects (RFC 8797, draft 001 §2.1).

use crate::support::{LIMITS, config};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard};
use stag_protocol::rpcrdma::PrivateData;
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Event, Limits, Provider, Time};

/// The offer of a client that connects by a fabric with these limits.
fn said(limits: Limits, config: Config) -> PrivateData {
    let fabric = Fabric::new(8, Faults::NONE);
    let mut server = fabric.end("server", LIMITS);
    let port = server.listen(&Port(0)).unwrap();
    let end = fabric.end("client", limits);
    let mut client = Shard::new(end, Caller::default(), config, Box::new(|_| true)).unwrap();
    client.connect(&port).unwrap();
    for nanos in 0..1_000_000 {
        client.pass(Time(nanos));
        if let Some(Event::ConnectRequest { qp }) = server.poll(Time(nanos)) {
            return PrivateData::find(server.private_data(qp));
        }
    }
    panic!("nobody connects")
}

#[test]
fn an_end_says_that_its_keys_may_be_invalidated_exactly_when_they_may() {
    assert!(said(LIMITS, config()).remote_invalidation);
    let without = Limits { remote_invalidation: false, ..LIMITS };
    assert!(!said(without, config()).remote_invalidation);
    assert!(
        !said(LIMITS, Config { private_data: false, ..config() }).remote_invalidation,
        "it says nothing"
    );
}

#[test]
fn a_server_says_it_too() {
    for (remote_invalidation, port) in [(true, 1), (false, 2)] {
        let fabric = Fabric::new(8, Faults::NONE);
        let end = fabric.end("server", Limits { remote_invalidation, ..LIMITS });
        let mut server = Shard::new(end, Echo::default(), config(), Box::new(|_| true)).unwrap();
        let at = server.listen(&Port(port)).unwrap();
        let mut client = fabric.end("client", LIMITS);
        let qp = client.connect(&at, &[]).unwrap();
        let is_up = (0..1_000_000).any(|nanos| {
            server.pass(Time(nanos));
            matches!(client.poll(Time(nanos)), Some(Event::Established { .. }))
        });
        assert!(is_up);
        assert_eq!(
            PrivateData::find(client.private_data(qp)).remote_invalidation,
            remote_invalidation
        );
    }
}
