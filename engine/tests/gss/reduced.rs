//! Reduced items of calls under integrity and privacy, in version 2 of RPC-over-RDMA.

use super::{
    ENCTYPE,
    client::{Client, init},
    config, contexts, opaque,
};
use crate::{support::AtServer, version2};
use stag_echo::{ECHO, Echo, NULL, PUSH};
use stag_engine::{Config, gss::ContextLimits};
use stag_pools::Access;
use stag_protocol::{
    rpc::{Accepted, gss::GssService},
    rpcrdma::{Body, ChunkLists, ErrorBody, Position, Version2, Versions},
};

/// Sends a call, and waits for the answer, which another thread may have to prepare.
fn ask(at: &mut AtServer, xid: u32, lists: &ChunkLists, payload: &[u8]) -> (Body, Vec<u8>) {
    at.raw.send(&version2::call(xid, 0, lists, payload), None);
    for _ in 0..1_000_000 {
        at.settle();
        if let Some((answer, _)) = at.raw.received.pop_front() {
            let (header, _, payload) = version2::parse(&answer);
            return (header.body, payload);
        }
        std::thread::yield_now();
    }
    panic!("call {xid} has no answer");
}

#[test]
fn nothing_is_reduced_under_protection_in_version_2_either() {
    let gss = Some(contexts(ENCTYPE, ContextLimits::default()));
    let serve_versions = Versions::Both(Version2::Directed);
    let config = Config { gss, serve_versions, ..config() };
    let mut at = AtServer::serving(Echo::default(), config);
    let none = ChunkLists::new();
    let client = Client::of(ENCTYPE, &ask(&mut at, 1, &none, &init(1, b"alice@REALM")).1);
    let mut sequence = 0;
    for service in [GssService::Integrity, GssService::Privacy] {
        let room = at.raw.window(&[0; 9_000], Access::RemoteWrite);
        let mut lists = ChunkLists::new();
        lists.set_only_write(room);
        let arguments = [3_u32.to_be_bytes(), 9_000_u32.to_be_bytes()].concat();
        let call = client.call((5, sequence + 1), service, PUSH, &arguments);
        assert_eq!(ask(&mut at, 5, &lists, &call).0, Body::Error(ErrorBody::Chunk));
        let item = at.raw.window(&[7; 600], Access::RemoteRead);
        let mut lists = ChunkLists::new();
        let head = client.call((6, sequence + 2), service, ECHO, &opaque(&[]));
        lists.push_read(Position::new(head.len() as u32).unwrap(), item).unwrap();
        assert_eq!(ask(&mut at, 6, &lists, &head).0, Body::Error(ErrorBody::Chunk));
        assert_eq!(at.shard.snapshot().engine.responder.pulled, 0, "before any transfer");
        // The same numbers are good afterwards: neither call was looked at.
        for number in [sequence + 1, sequence + 2] {
            let call = client.call((7, number), service, NULL, &[]);
            let (body, payload) = ask(&mut at, 7, &none, &call);
            assert_eq!(body, Body::Msg);
            assert_eq!(client.open(number, service, &payload), (Accepted::Success, vec![]));
        }
        sequence += 2;
    }
}
