//! The short ways of messages, and the way of all others: the rules hold on both, to the same
//! effect, and a message takes the short way wherever it may, or never where that is off.

use crate::support::{
    AtServer, WAYS, config, echo_head,
    keeper::{Keeper, Wanted, ask},
    message, pattern, rpc,
};
use stag_echo::{Caller, ECHO, Echo, NULL};
use stag_engine::{Config, Shard, Token, stats::Stats};
use stag_pools::Access;
use stag_protocol::rpcrdma::{ChunkLists, Version2, Versions};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::Time;
use std::process::Command;

/// The suites that rules name as their tests.
const SUITES: [&str; 12] = [
    "draft000::",
    "grants::",
    "items::",
    "peers::",
    "private_data::",
    "programs::",
    "replies::",
    "reverse::",
    "rules::",
    "several::",
    "tls::",
    "version2::",
];

#[test]
fn the_suites_of_rules_hold_without_the_short_ways() {
    if std::env::var_os(WAYS).is_some() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    // A message that takes a short way although it is off fails an assertion.
    let run = Command::new(own).args(SUITES).env(WAYS, "off").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let passed = SUITES.map(|suite| {
        let ok = |line: &&str| line.starts_with(&format!("test {suite}")) && line.ends_with(" ok");
        said.lines().filter(ok).count()
    });
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(passed.iter().all(|count| *count > 0), "every suite was run: {passed:?}");
}

/// The counters of a server and of a client after echoes of these lengths between two NULLs, and
/// how many messages took a short way at each.
fn exchange(short_ways: bool, versions: Versions, lens: &[usize]) -> [(Stats, u64); 2] {
    let fabric = Fabric::new(3, Faults::NONE);
    let admit = || Box::new(|_| true) as Box<_>;
    let config = || Config {
        serve_versions: versions,
        call_versions: versions,
        short_ways,
        ..Config::small()
    };
    let end = |name| fabric.end(name, crate::support::LIMITS);
    let mut server = Shard::new(end("server"), Echo::default(), config(), admit()).unwrap();
    let caller = Caller::with_capacity(8);
    let mut client = Shard::new(end("client"), caller, config(), admit()).unwrap();
    let port = server.listen(&Port(0)).unwrap();
    client.connect(&port).unwrap();
    let mut now = Time(0);
    let mut settle = |client: &mut Shard<_, Caller>| {
        crate::support::settle(&fabric, &mut now, &mut server, client);
        (server.snapshot().engine, server.short_ways_taken())
    };
    let mut served = settle(&mut client);
    let peer = client.app().peers()[0];
    let echoes = lens.iter().map(|len| Some(pattern(*len)));
    for octets in std::iter::once(None).chain(echoes).chain([None]) {
        assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(1), octets.as_deref())));
        served = settle(&mut client);
        let done = client.with_app(|app, _| app.take()).unwrap();
        let echo = done.echo.unwrap();
        assert_eq!(echo.as_deref(), octets.as_deref());
    }
    [served, (client.snapshot().engine, client.short_ways_taken())]
}

#[test]
fn messages_without_chunks_take_the_short_way_or_never_to_the_same_effect() {
    for versions in [Versions::One, Versions::Both(Version2::Directed)] {
        let lens = [0, 100, 1_000, 70_000, 1 << 20];
        let (short, long) = (exchange(true, versions, &lens), exchange(false, versions, &lens));
        assert_eq!([long[0].1, long[1].1], [0, 0], "off is never");
        // Both NULLs and three echoes with their replies, but for the messages of the longest one
        // that the fabric does not take as copies. What settles the version goes the other way.
        let settling = if versions == Versions::One { 0 } else { 2 };
        assert_eq!([short[0].1, short[1].1], [9 - settling, 9 - settling], "{versions:?}");
        for (short, long) in short.iter().zip(&long) {
            assert_eq!(short.0.responder, long.0.responder);
            assert_eq!(short.0.requester, long.0.requester);
        }
    }
}

#[test]
fn a_call_with_one_chunk_and_its_reply_take_the_short_way_or_never() {
    for short_ways in [true, false] {
        let config = || Config { short_ways, ..config() };
        let each = |taken: u64| if short_ways { taken } else { 0 };
        // A responder: the call and its reply.
        let mut at = AtServer::serving(Echo::default(), config());
        let mut lists = ChunkLists::new();
        lists.begin_write().unwrap();
        lists.push_write(at.raw.window(&[0; 5_000], Access::RemoteWrite)).unwrap();
        at.ask(&message(1, &lists, &rpc(1, ECHO, &[echo_head(500), pattern(500)].concat())))
            .unwrap();
        assert_eq!(at.shard.short_ways_taken(), each(2), "a Write chunk");
        at.ask(&message(2, &ChunkLists::new(), &rpc(2, NULL, &[]))).unwrap();
        assert_eq!(at.shard.short_ways_taken(), each(4), "no chunk");

        // A requester: its call.
        let item = pattern(5_000);
        for (wanted, what) in [
            (Wanted { head: 44, item: Some(&item), reply_max: 100, result_max: 0 }, "Read"),
            (Wanted { head: 44, item: None, reply_max: 100, result_max: 5_000 }, "Write"),
        ] {
            let mut at = crate::support::AtClient::new(Keeper::default(), config());
            let (_, lists, _) = ask(&mut at, wanted);
            assert_eq!(lists.segments().len(), 1, "a {what} chunk");
            assert_eq!(at.shard.short_ways_taken(), each(1), "a {what} chunk");
        }
    }
}
