//! Heap allocations per call on adapters that are not there: none after start, but for those of the
//! made-up adapter itself.

use super::{
    ADAPTERS, Adapter, address, allocations_of_fake, install,
    roles::{calling_end, end_of, full},
};
use crate::{RdmaAddress, Through, counting::allocations};
use stag_echo::{
    Caller, Echo,
    forms::{FORMS, FormCall, FormCaller},
};
use stag_engine::{Config, Shard, Token};
use stag_protocol::rpcrdma::form::Form;
use stag_verbs::{Provider, Time};
use std::net::SocketAddr;

const CALLS: u64 = 500;

fn small() -> Config {
    Config { grant: 8, calls_max: 8, ..Config::small() }
}

/// Allocations of this thread that are not the adapter's.
fn own() -> u64 {
    allocations() - allocations_of_fake()
}

/// Allocations in calls of several sizes, on both sides.
fn count(server: Adapter, caller: Adapter) -> u64 {
    install(&[server, caller]);
    let admit = || Box::new(|_| true) as Box<_>;
    let device = end_of(&small(), Through::Local(address(0)), false).unwrap();
    let mut server = Shard::new(device, Echo::default(), small(), admit()).unwrap();
    let at = server.listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
    let device = calling_end(Through::Toward(at.0), false);
    let mut client = Shard::new(device, Caller::with_capacity(64), small(), admit()).unwrap();
    client.connect(&at).unwrap();
    let mut now = Time(1);
    let mut turn = |client: &mut Shard<_, Caller>| {
        now = Time(now.0 + 100_000);
        server.pass(now);
        client.pass(now);
    };
    (0..2_000).for_each(|_| turn(&mut client));
    let peer = client.app().peers()[0];
    let payload = [0x5a_u8; 9_000];
    let sizes = [None, Some(0), Some(100), Some(900), Some(3_000), Some(5_000), Some(9_000)];
    let mut before = 0;
    for call in 0..2 * CALLS {
        if call == CALLS {
            before = own();
        }
        let octets = sizes[call as usize % sizes.len()].map(|len| &payload[..len]);
        assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(call), octets)));
        let done = loop {
            turn(&mut client);
            if let Some(done) = client.with_app(|app, _| app.take()) {
                break done;
            }
        };
        assert_eq!(done.echo.unwrap().map(|echo| echo.len()), octets.map(<[u8]>::len));
    }
    own() - before
}

#[test]
fn a_call_allocates_nothing_on_any_adapter_in_either_role() {
    for adapter in ADAPTERS.into_iter().filter(|it| it.has_connections) {
        assert_eq!(count(adapter, full(&adapter)), 0, "{} serves", adapter.name);
        assert_eq!(count(full(&adapter), adapter), 0, "{} calls", adapter.name);
    }
}

/// Octets that are cleared in each of six calls with a long reply in this form, which the caller
/// makes at `servers` servers in turn.
fn cleared(caller: Adapter, servers: usize, reply: Form) -> Vec<u64> {
    let all = [vec![full(&caller); servers], vec![caller]].concat();
    install(&all);
    let admit = || Box::new(|_| true) as Box<_>;
    let config = || Config { slots: [64, 8, 2], ..small() };
    let mut ends: Vec<_> = (0..servers)
        .map(|server| {
            let device = end_of(&config(), Through::Local(address(server)), false).unwrap();
            Shard::new(device, Echo::default(), config(), admit()).unwrap()
        })
        .collect();
    let at: Vec<_> = (0..servers)
        .map(|it| ends[it].listen(&RdmaAddress(SocketAddr::new(address(it), 0))).unwrap())
        .collect();
    let device = calling_end(Through::Toward(at[0].0), false);
    let mut client = Shard::new(device, FormCaller::default(), config(), admit()).unwrap();
    let mut now = Time(1);
    let mut turn = |client: &mut Shard<_, FormCaller>| {
        now = Time(now.0 + 100_000);
        ends.iter_mut().for_each(|server| _ = server.pass(now));
        client.pass(now);
    };
    for at in &at {
        client.connect(at).unwrap();
        (0..500).for_each(|_| turn(&mut client));
    }
    let peers = client.app().peers().to_vec();
    assert_eq!(peers.len(), servers);
    let is_asked = |form: &&FormCall| form.call == Form::Short && form.reply == reply;
    let form = FORMS.iter().filter(is_asked).max_by_key(|form| form.len).unwrap();
    (0..6)
        .map(|call| {
            let before = client.provider().stats().cleared;
            let peer = peers[call % servers];
            client.with_app(|app, cx| app.call(cx, peer, *form));
            let end = loop {
                turn(&mut client);
                if let Some(end) = client.with_app(|app, _| app.take()) {
                    break end;
                }
            };
            assert_eq!(end, Ok(()));
            client.provider().stats().cleared - before
        })
        .collect()
}

#[test]
fn a_room_is_cleared_once_for_each_server_that_writes_there() {
    for reply in [Form::Chunked, Form::Long] {
        for adapter in ADAPTERS.into_iter().filter(|it| it.has_connections) {
            let own = cleared(adapter, 1, reply);
            assert!(own[0] > 900_000 && own[1..] == [0; 5], "{} {own:?}", adapter.name);
        }
        // What one server wrote is not shown to the reader of another.
        let turns = cleared(ADAPTERS[0], 2, reply);
        assert!(turns.iter().all(|octets| *octets == turns[0]), "{turns:?}");
    }
}

#[test]
fn receives_are_handed_over_in_one_chain() {
    install(&[ADAPTERS[0]]);
    let device = end_of(&small(), Through::Local(address(0)), false).unwrap();
    let admit = Box::new(|_| true) as Box<_>;
    let mut server = Shard::new(device, Echo::default(), small(), admit).unwrap();
    for now in 1..10 {
        server.pass(Time(now));
    }
    let device = server.provider();
    assert!(device.receives_posted() > 100);
    assert_eq!(device.stats().receive_chains, 1);
}
