//! A shard describes its peers and the latest watched calls, and reports peers that a limit
//! refused.

use stag_echo::{Caller, Echo};
use stag_engine::{
    App, Config, ConnectLimit, Cx, Over, RefusedPeer, Sampling, Shard, Stage, Token, WatchedProgram,
};
use stag_protocol::rpcrdma::{Invalidation, Side, Version};
use stag_sim::{Fabric, Faults, Port, Sim};

const PROGRAMS: [WatchedProgram; 1] = [WatchedProgram {
    program: stag_echo::PROGRAM,
    version: stag_echo::VERSION,
    procedures: 8,
    operations: 0,
}];

/// Makes passes of both until neither has anything to do.
fn settle<A: App>(fabric: &Fabric, server: &mut Shard<Sim, A>, client: &mut Shard<Sim, Caller>) {
    let mut now = fabric.now();
    for _ in 0..1_000 {
        if !(server.pass(now) | client.pass(now)) {
            match fabric.next_due() {
                Some(due) => now = due,
                None => return,
            }
        }
    }
}

#[test]
fn a_peer_is_described_with_its_credits_and_the_calls_that_were_watched() {
    let fabric = Fabric::new(1, Faults::NONE);
    let sampling = Sampling { every: 1, programs: &PROGRAMS, ..Sampling::default() };
    let config = Config { sampling, ..Config::small() };
    let end = |name| fabric.end(name, config.limits(64));
    let mut server =
        Shard::new(end("server"), Echo::default(), config.clone(), Box::new(|_| true)).unwrap();
    let at = server.listen(&Port(0)).unwrap();
    let mut client =
        Shard::new(end("client"), Caller::default(), Config::small(), Box::new(|_| true)).unwrap();
    let peer = client.connect(&at).unwrap();
    for token in 1..=3 {
        client.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(b"hello")));
        settle(&fabric, &mut server, &mut client);
        assert!(client.with_app(|caller, _| caller.take()).unwrap().echo.is_ok());
    }
    let detail = server.detail();
    let [state] = detail.peers[..] else { panic!("{detail:?}") };
    let rdma = state.rdma.unwrap();
    assert_eq!((state.over, state.side, state.calls), (Over::Fabric, Side::Server, 0));
    assert_eq!((rdma.version, rdma.used), (Some(Version::One), 0));
    assert!(rdma.granted >= 1 && rdma.requested >= rdma.granted, "{rdma:?}");
    assert_eq!((rdma.send_threshold, rdma.invalidation), (4_096, Invalidation::Chosen));
    assert_eq!(detail.calls.len(), 3);
    for call in &detail.calls {
        let name = call.name.unwrap();
        assert_eq!((name.program, name.version), (stag_echo::PROGRAM, stag_echo::VERSION));
        assert!(call.spent(Stage::App).is_some() && call.spent(Stage::Push).is_none());
    }
    let times: Vec<_> = server.snapshot().procedures.iter().cloned().collect();
    assert_eq!(times.len(), 1, "{times:?}");
    assert_eq!((times[0].total.len(), times[0].name.unwrap().0), (3, stag_echo::PROGRAM));
}

/// Remembers who was turned away.
#[derive(Default)]
struct Door(Vec<RefusedPeer>);

impl App for Door {
    type Report = ();

    fn report(&self) {}

    fn on_refused(&mut self, _: &mut Cx<'_>, refused: RefusedPeer) {
        self.0.push(refused);
    }
}

#[test]
fn an_app_hears_whom_a_limit_turned_away_and_not_who_is_no_client() {
    for (peers, is_admitted, expected) in
        [(1, true, vec![ConnectLimit::Peers]), (16, false, vec![]), (16, true, vec![])]
    {
        let fabric = Fabric::new(1, Faults::NONE);
        let config = Config { peers, streams: 0, ..Config::small() };
        let end = |name| fabric.end(name, Config::small().limits(64));
        let admit = Box::new(move |_| is_admitted);
        let mut server = Shard::new(end("server"), Door::default(), config, admit).unwrap();
        let at = server.listen(&Port(0)).unwrap();
        let mut clients = Vec::new();
        for name in ["one", "two"] {
            let mut client =
                Shard::new(end(name), Caller::default(), Config::small(), Box::new(|_| true))
                    .unwrap();
            client.connect(&at).unwrap();
            settle(&fabric, &mut server, &mut client);
            clients.push(client);
        }
        let limits: Vec<_> = server.app().0.iter().map(|refused| refused.limit).collect();
        assert_eq!(limits, expected, "{peers} {is_admitted}");
    }
}
