//! Contexts of the load generator that a server refuses to create over RDMA, and creates over TCP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // Of what it can do, some is for tests of the library.
#[path = "../../../engine/rpc/tests/gss_server/mod.rs"]
mod gss_server;

use gss_server::{
    Tickets as Granted,
    over_both::{OverBoth, Refusal},
};
use stag_engine::clock::Clock;
use stag_fabrics::{AnyProvider, FabricAddress, Settings};
use stag_load::{Load, LoadPlan, Pace, RunSpan, To, Workload};
use stag_protocol::rpc::gss::GssService;
use stag_rpc::gss::{ContextFault, TcpCreation, Tickets};
use stag_verbs::Time;
use std::time::Duration;

struct Tried {
    load: Load<AnyProvider>,
    clock: Clock,
    server: OverBoth,
}

/// A generator of two connections, and the outcome of its contexts' creation.
fn tried(
    refusals: [Refusal; 2],
    reconnects: bool,
    is_there: bool,
) -> (Tried, Result<(), ContextFault>) {
    let server = OverBoth::start(refusals);
    let clock = Clock::start();
    let to = FabricAddress::parse(&server.url).unwrap();
    let port = if is_there { server.tcp_port } else { 1 };
    let plan = LoadPlan {
        connections: 2,
        is_nfs: true,
        reconnects,
        tickets: Some(Tickets::new(GssService::Integrity, || Ok(Box::new(Granted(1))))),
        contexts_max: 2,
        creation: Some(TcpCreation {
            at: ([127, 0, 0, 1], port).into(),
            tls: None,
            after_losses: true,
        }),
        timeout: Duration::from_secs(20),
        ..LoadPlan::new(Workload::Null, 0, 4)
    };
    let settings = Settings::new(plan.limits(), [9; 32], clock.now());
    let provider = AnyProvider::for_connecting(settings, Some(&to)).unwrap();
    let mut load = Load::new(provider, &plan).unwrap();
    load.meet(&To::Fabric(to), || clock.now(), || false).unwrap();
    let ready = load.begin_contexts(|| clock.now(), || false);
    (Tried { load, clock, server }, ready)
}

impl Tried {
    /// Makes calls until this number in all; returns the numbers of made and of failed ones.
    fn calls(&mut self, until: u64) -> (u64, u64) {
        let clock = self.clock;
        let (from, end) = (clock.now(), Time(u64::MAX));
        self.load.begin(from, Pace::Closed, RunSpan { from, until: end, calls: Some(until) });
        let (mut made, mut failed) = (0, 0);
        let keep = |_, record: stag_load::CallRecord| {
            made += record.calls;
            failed += record.failed;
            None
        };
        self.load.run(|| clock.now(), || false, keep);
        (made, failed)
    }
}

#[test]
fn contexts_that_rdma_refuses_are_created_and_renewed_over_tcp() {
    for (refusal, reconnects) in
        [(Refusal::Denied, false), (Refusal::Garbage, true), (Refusal::Ends, true)]
    {
        let (mut tried, ready) = tried([refusal, Refusal::None], reconnects, true);
        ready.unwrap();
        assert_eq!(tried.calls(100), (100, 0), "{refusal:?}");
        tried.server.forget();
        assert_eq!(tried.calls(200), (100, 0), "{refusal:?}");
        let counts = tried.load.generator().context_counts().unwrap();
        assert_eq!((counts.created, counts.renewed, counts.over_tcp), (4, 2, 4), "{refusal:?}");
        let [fabric, tcp] = tried.server.asked();
        assert!((1..=2).contains(&fabric) && tcp == 4, "{fabric} {tcp}");
    }
}

#[test]
fn a_server_that_refuses_both_ways_has_both_answers_in_the_error() {
    for (refusals, is_there, parts) in [
        ([Refusal::Garbage, Refusal::Denied], true, ["GARBAGE_ARGS", "auth_stat 5"]),
        ([Refusal::Denied, Refusal::None], false, ["auth_stat 5", "let the server listen there"]),
    ] {
        let (_tried, ready) = tried(refusals, false, is_there);
        let fault = ready.unwrap_err().to_string();
        assert!(parts.iter().all(|part| fault.contains(part)), "{fault}");
    }
    let (_tried, ready) = tried([Refusal::Ends, Refusal::None], false, true);
    let fault = ready.unwrap_err().to_string();
    assert!(fault.contains("--reconnect"), "{fault}");
}
