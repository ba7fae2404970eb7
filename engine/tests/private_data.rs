//! Announcements of an end while it connects (RFC 8797, draft 001 §2.1).

use crate::support::{LIMITS, config};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard};
use stag_protocol::rpcrdma::{Dialects, PrivateData, Version2, Versions};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Event, Limits, Provider, Time};

/// The private data of a client that connects by a fabric with these limits.
fn said(limits: Limits, config: Config) -> Vec<u8> {
    let fabric = Fabric::new(8, Faults::NONE);
    let mut server = fabric.end("server", LIMITS);
    let port = server.listen(&Port(0)).unwrap();
    let end = fabric.end("client", limits);
    let mut client = Shard::new(end, Caller::default(), config, Box::new(|_| true)).unwrap();
    client.connect(&port).unwrap();
    for nanos in 0..1_000_000 {
        client.pass(Time(nanos));
        if let Some(Event::ConnectRequest { qp }) = server.poll(Time(nanos)) {
            return server.private_data(qp).to_vec();
        }
    }
    panic!("nobody connects")
}

/// The private data of a server of these limits and versions, to a client that sent `offer`.
fn answered(limits: Limits, serve_versions: Versions, offer: &[u8]) -> Vec<u8> {
    let fabric = Fabric::new(8, Faults::NONE);
    let end = fabric.end("server", limits);
    let config = Config { serve_versions, ..config() };
    let mut server = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
    let at = server.listen(&Port(1)).unwrap();
    let mut client = fabric.end("client", LIMITS);
    let qp = client.connect(&at, offer).unwrap();
    let is_up = (0..1_000_000).any(|nanos| {
        server.pass(Time(nanos));
        matches!(client.poll(Time(nanos)), Some(Event::Established { .. }))
    });
    assert!(is_up);
    client.private_data(qp).to_vec()
}

#[test]
fn an_end_says_that_its_keys_may_be_invalidated_exactly_when_they_may() {
    let invalidates = |octets: Vec<u8>| PrivateData::find(&octets).remote_invalidation;
    assert!(invalidates(said(LIMITS, config())));
    let without = Limits { sends_invalidation: false, bears_invalidation: false, ..LIMITS };
    assert!(!invalidates(said(without, config())));
    let silent = Config { private_data: false, ..config() };
    assert_eq!(said(LIMITS, silent), [], "it says nothing");
    for (limits, expected) in [(LIMITS, true), (without, false)] {
        assert_eq!(invalidates(answered(limits, Versions::One, &[])), expected);
    }
}

#[test]
fn a_server_offers_to_invalidate_where_its_device_can_send_that() {
    let invalidates = |octets: Vec<u8>| PrivateData::find(&octets).remote_invalidation;
    // It has no windows, so there is no key of it to invalidate.
    let sends = Limits { windows: 0, bears_invalidation: false, ..LIMITS };
    assert!(invalidates(answered(sends, Versions::One, &[])));
    assert!(!invalidates(said(sends, config())), "a client has to bear it");
    let bears = Limits { sends_invalidation: false, ..LIMITS };
    assert!(!invalidates(answered(bears, Versions::One, &[])));
    assert!(invalidates(said(bears, config())));
}

#[test]
fn private_data_are_the_eight_octets_of_rfc_8797_unless_a_peer_asked_for_more() {
    let strict = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
    let both = Versions::Both(Version2::Directed);
    for serve in [Versions::One, both, Versions::TwoDirected, Versions::BothDirected] {
        for offer in [&[][..], &strict] {
            assert_eq!(answered(LIMITS, serve, offer).len(), PrivateData::LEN, "{serve:?}");
        }
    }
    for call in [Versions::One, Versions::TwoDirected, Versions::BothDirected] {
        let config = Config { call_versions: call, ..config() };
        assert_eq!(said(LIMITS, config).len(), PrivateData::LEN, "{call:?}");
    }
    // A client that is asked for version 2 announces the dialect, and is answered with the
    // server's.
    let config = Config { call_versions: both, ..config() };
    let offer = said(LIMITS, config);
    assert!(Dialects::find(&offer).directed);
    assert!(Dialects::find(&answered(LIMITS, both, &offer)).directed);
    assert_eq!(answered(LIMITS, Versions::One, &offer).len(), PrivateData::LEN);
}
