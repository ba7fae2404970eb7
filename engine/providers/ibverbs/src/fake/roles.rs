//! Shards on every adapter of the table: as server and as caller of one that has everything.

use super::{ADAPTERS, Adapter, DeviceWindowing, address, cm::LINK, install, missed_receives};
use crate::{Ibverbs, IbverbsConfig, RdmaAddress, Through};
use stag_echo::{
    Caller, Echo,
    forms::{self, FORMS, FormCall, FormCaller, FormFault},
};
use stag_engine::{Config, Shard, Token};
use stag_pools::{Class, Pool, RemoteKey};
use stag_protocol::rpcrdma::{Version2, Versions};
use stag_verbs::{Cause, Event, FabricFault, LinkSettings, Provider, RemoteSpan, Tag, Time};
use std::net::SocketAddr;

pub(super) fn small() -> Config {
    Config { grant: 8, calls_max: 8, ..Config::small() }
}

pub(super) fn end(config: &Config, through: Through) -> std::io::Result<Ibverbs> {
    end_of(config, through, false)
}

/// The same, whose thread may change its credentials.
pub(super) fn end_of(
    config: &Config,
    through: Through,
    is_apart: bool,
) -> std::io::Result<Ibverbs> {
    let limits = config.limits(64);
    Ibverbs::new(IbverbsConfig { is_apart, ..IbverbsConfig::new(limits, through, Time(0)) })
}

/// An end that calls: where the device has no windows it opens regions.
pub(super) fn calling_end(through: Through, is_apart: bool) -> Ibverbs {
    let new = IbverbsConfig::new(small().limits(64), through, Time(0));
    Ibverbs::new(IbverbsConfig { is_apart, opens_regions: true, ..new }).unwrap()
}

/// A server on the first adapter and a caller on the second one. Returns the end of a call in each
/// form, and how many keys the server invalidated.
fn calls(server: Adapter, caller: Adapter, way: Way) -> (Vec<Result<(), FormFault>>, u64) {
    install(&[server, caller]);
    let admit = || Box::new(|_| true) as Box<_>;
    let (config, to) = (small(), SocketAddr::new(address(0), 0));
    let device = end_of(&config, Through::Local(address(0)), way.is_apart).unwrap();
    let mut server = Shard::new(device, Echo::default(), config, admit()).unwrap();
    let at = server.listen(&RdmaAddress(to)).unwrap();
    let device = calling_end(Through::Toward(at.0), way.is_apart);
    let config = Config { call_versions: way.versions, ..small() };
    let mut client = Shard::new(device, FormCaller::default(), config, admit()).unwrap();
    client.connect(&at).unwrap();
    let mut now = Time(1);
    let mut turn = |client: &mut Shard<_, FormCaller>| {
        now = Time(now.0 + 100_000);
        server.pass(now);
        client.pass(now);
    };
    (0..2_000).for_each(|_| turn(&mut client));
    let peer = client.app().peers()[0];
    let ends = forms::call_all(&mut client, peer, &mut turn);
    (0..2_000).for_each(|_| turn(&mut client));
    // The echo program keeps its stream once it has pushed something.
    assert!(server.buffers_in_use() <= 1 && client.buffers_in_use() == 0);
    let invalidated = server.snapshot().engine.responder.remote_invalidations;
    (ends.into_iter().map(|end| end.end).collect(), invalidated)
}

/// The end of each form, by a rule.
fn expected(end: impl Fn(&FormCall) -> Result<(), FormFault>) -> Vec<Result<(), FormFault>> {
    FORMS.iter().map(end).collect()
}

/// Calls that lend memory to their server.
fn with_chunks() -> u64 {
    FORMS.iter().filter(|form| !form.is_short()).count() as u64
}

/// The version that a caller wants, and whether its thread may change its credentials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) versions: Versions,
    pub(super) is_apart: bool,
}

/// Every adapter with connections, called in every way. A thread that may change its credentials
/// makes no system call to a device, which the made-up host looks after.
pub(super) fn every_way() -> impl Iterator<Item = (Adapter, Way)> {
    let all = ADAPTERS.into_iter().filter(|it| it.has_connections);
    let ways = [Versions::One, Versions::Both(Version2::Directed)]
        .map(|versions| [false, true].map(|is_apart| Way { versions, is_apart }));
    all.flat_map(move |it| ways.into_iter().flatten().map(move |way| (it, way)))
}

/// One with all capabilities that speaks the same transport.
pub(super) fn full(adapter: &Adapter) -> Adapter {
    Adapter { is_iwarp: adapter.is_iwarp, ..ADAPTERS[0] }
}

#[test]
fn every_adapter_serves_calls_of_every_form_and_invalidates_where_it_can() {
    for (adapter, way) in every_way() {
        let (ends, invalidated) = calls(adapter, full(&adapter), way);
        assert_eq!(ends, expected(|_| Ok(())), "{} {way:?}", adapter.name);
        let expected = match (adapter.name, adapter.sends_invalidation) {
            // Its defect is known by its name.
            ("siw", _) => 0,
            // The first one is refused, and there is no second one.
            (_, false) => 1,
            (_, true) => with_chunks(),
        };
        assert_eq!(invalidated, expected, "{} {way:?}", adapter.name);
    }
}

#[test]
fn every_adapter_calls_with_chunks_by_windows_or_by_regions_for_one_use() {
    for (adapter, way) in every_way() {
        let (ends, _) = calls(full(&adapter), adapter, way);
        assert_eq!(ends, expected(|_| Ok(())), "{} {way:?}", adapter.name);
    }
}

#[test]
fn settings_of_links_reach_the_device_and_are_refused_where_they_mean_nothing() {
    let link = LinkSettings { traffic_class: Some(104), ack_timeout: Some(14), retries: Some(3) };
    for (link, expected) in [(link, (104, 14, 3)), (LinkSettings::default(), LINK)] {
        install(&[ADAPTERS[0]; 2]);
        let ends = [Through::Local(address(0)), Through::Toward(SocketAddr::new(address(0), 9))];
        let mut ends = ends.map(|through| {
            let new = IbverbsConfig::new(small().limits(64), through, Time(0));
            Ibverbs::new(IbverbsConfig { link, ..new }).unwrap()
        });
        let at = ends[0].listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
        ends[1].connect(&at, &[]).unwrap();
        for now in 1..50 {
            for end in &mut ends {
                if let Some(Event::ConnectRequest { qp }) = end.poll(Time(now * 1_000_000)) {
                    end.accept(qp, &[]).unwrap();
                }
            }
        }
        assert_eq!(super::links(), [expected; 2]);
    }
    let siw = ADAPTERS[ADAPTERS.len() - 1];
    install(&[siw]);
    let new = IbverbsConfig::new(small().limits(64), Through::Local(address(0)), Time(0));
    let refused = Ibverbs::new(IbverbsConfig { link, ..new }).unwrap_err().to_string();
    assert!(refused.starts_with("siw_0 speaks iWARP"), "{refused}");
}

#[test]
fn each_adapter_says_what_it_lacks() {
    for adapter in ADAPTERS {
        install(&[adapter]);
        let server = end(&small(), Through::Local(address(0))).unwrap().notices();
        let caller = calling_end(Through::Local(address(0)), false).notices();
        let count = |told: &[String], what| told.iter().filter(|it| it.contains(what)).count();
        let windows = matches!(adapter.windowing, DeviceWindowing::Works | DeviceWindowing::Unsaid);
        let says_invalidation = adapter.says_invalidation && adapter.name != "siw";
        let expected = [adapter.shared_receives > 0, says_invalidation, true];
        let lacks = ["no shared receive queue", "no invalidations", "no memory windows"];
        let told = lacks.map(|what| count(&server, what) == 0);
        assert_eq!(told, expected, "{} {server:?}", adapter.name);
        assert_eq!(count(&caller, lacks[2]) == 0, windows, "{} {caller:?}", adapter.name);
        let name = format!("{}_0 ", adapter.name);
        assert!(server.iter().chain(&caller).all(|it| it.starts_with(&name)), "{server:?}");
    }
}

#[test]
fn a_caller_without_windows_calls_one_host_at_a_time() {
    let qedr = *ADAPTERS.iter().find(|it| it.name == "qedr").unwrap();
    for adapter in [qedr, ADAPTERS[0]] {
        install(&[ADAPTERS[0], ADAPTERS[0], adapter]);
        let to = [0, 1].map(|server| RdmaAddress(SocketAddr::new(address(server), 9)));
        let mut end = calling_end(Through::Toward(to[0].0), false);
        end.connect(&to[0], &[]).unwrap();
        end.connect(&to[0], &[]).unwrap();
        let other = end.connect(&to[1], &[]).map(drop);
        let expected = match adapter.name {
            "qedr" => Err(FabricFault::NotIsolated),
            _ => Ok(()),
        };
        assert_eq!(other, expected, "{}", adapter.name);
        // With the last connection to a host the rule is over.
        (1..100).for_each(|now| drop(end.poll(Time(now * 1_000_000))));
        assert_eq!(end.connect(&to[1], &[]).map(drop), Ok(()), "{}", adapter.name);
    }
}

#[test]
fn where_connections_share_no_receives_each_has_those_that_it_was_promised() {
    let t5 = *ADAPTERS.iter().find(|it| it.name == "cxgb4-t5").unwrap();
    install(&[t5, full(&t5)]);
    let admit = || Box::new(|_| true) as Box<_>;
    let device = end(&small(), Through::Local(address(0))).unwrap();
    // 256 receives in parts of 32.
    assert_eq!((device.limits().receives_each, device.limits().connections), (Some(32), 8));
    let server_config = Config { grant: 64, grant_first: 64, ..Config::small() };
    let mut server = Shard::new(device, Echo::default(), server_config, admit()).unwrap();
    let at = server.listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
    let mut now = Time(1);
    for _ in 0..3 {
        let config = Config { calls_max: 24, ..Config::small() };
        let device = end(&config, Through::Toward(at.0)).unwrap();
        let mut client = Shard::new(device, Caller::with_capacity(256), config, admit()).unwrap();
        let mut settle = |server: &mut Shard<_, Echo>, client: &mut Shard<_, Caller>| {
            for _ in 0..3_000 {
                now = Time(now.0 + 100_000);
                server.pass(now);
                client.pass(now);
            }
        };
        (0..8).for_each(|_| _ = client.connect(&at).unwrap());
        settle(&mut server, &mut client);
        let peers = client.app().peers().to_vec();
        assert_eq!(peers.len(), 8);
        for round in 0..3 {
            let mut asked = 0;
            for peer in &peers {
                for call in 0..12_usize {
                    let octets = vec![7; [10, 900, 3_000, 9_000][(round + call) % 4]];
                    let token = Token(asked);
                    asked += u64::from(
                        client.with_app(|_, cx| Caller::call(cx, *peer, token, Some(&octets))),
                    );
                }
            }
            settle(&mut server, &mut client);
            let ends = std::iter::from_fn(|| client.with_app(|app, _| app.take()));
            assert_eq!(ends.filter(|done| done.echo.is_ok()).count() as u64, asked);
            assert!(asked >= 80, "{asked} calls were taken");
        }
        assert_eq!(missed_receives(), 0, "every message found a receive");
        let grant = server.snapshot().engine.responder.grant;
        assert!((9..=21).contains(&grant), "a grant of {grant}");
        drop(client);
        for _ in 0..3_000 {
            now = Time(now.0 + 100_000);
            server.pass(now);
        }
        // All receives are with the provider again, for later clients.
        assert_eq!(server.buffers_in_use(), 0);
        assert_eq!(server.snapshot().engine.connections.live, 0);
    }
}

#[test]
fn a_connection_that_its_device_has_stopped_gets_no_more_receives_and_ends() {
    let t5 = *ADAPTERS.iter().find(|it| it.name == "cxgb4-t5").unwrap();
    install(&[t5]);
    let pool = Pool::new(&[Class { slot_len: 4_096, count: 600 }]).unwrap();
    let mut ends = [(); 2].map(|()| {
        let mut end = end(&small(), Through::Local(address(0))).unwrap();
        end.register(&pool).unwrap();
        (0..256).for_each(|_| end.post_receive(pool.take(4_096).unwrap()).unwrap());
        end
    });
    let at = ends[1].listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
    let client = ends[0].connect(&at, &[]).unwrap();
    let (mut now, mut seen) = (Time(1), Vec::new());
    let mut poll = |ends: &mut [Ibverbs; 2], seen: &mut Vec<Event>| {
        for _ in 0..500 {
            now = Time(now.0 + 1_000_000);
            for end in ends.iter_mut() {
                // One poll a round: the number of polls is bounded even if the awaited event never
                // comes.
                match end.poll(now) {
                    Some(Event::ConnectRequest { qp }) => end.accept(qp, &[]).unwrap(),
                    event => seen.extend(event),
                }
            }
        }
    };
    poll(&mut ends, &mut seen);
    assert!(matches!(seen[..], [Event::Established { .. }, Event::Established { .. }]), "{seen:?}");
    seen.clear();
    // No memory has that key: the device of the other end stops that connection.
    let nowhere = RemoteSpan { key: RemoteKey(0x7777), offset: 0, len: 4 };
    let mut octets = pool.take(64).unwrap();
    octets.append(b"lost").unwrap();
    ends[0].post_write(client, Tag(1), octets.freeze(), nowhere).unwrap();
    ends[0].ring();
    poll(&mut ends, &mut seen);
    let ended = seen.iter().filter(|event| matches!(event, Event::Disconnected { .. }));
    assert_eq!(ended.count(), 2, "{seen:?}");
    drop(seen);
    assert_eq!(ends.each_ref().map(Provider::receives_posted), [256, 256], "all came back");
    assert_eq!(pool.taken(), 512);
}

#[test]
fn a_device_that_refuses_an_invalidation_sends_without_it_and_the_call_is_answered() {
    let refuses = Adapter { sends_invalidation: false, ..ADAPTERS[0] };
    let (ends, told) =
        calls(refuses, ADAPTERS[0], Way { versions: Versions::One, is_apart: false });
    assert_eq!(ends, expected(|_| Ok(())));
    // Of the replies that had a key to invalidate only the first one tried.
    assert_eq!(told, 1);
}

/// The sentence with which a shard does not start on an adapter.
fn refusal(adapter: Adapter) -> String {
    install(&[adapter]);
    end(&small(), Through::Local(address(0))).unwrap_err().to_string()
}

#[test]
fn a_device_that_cannot_be_used_is_named_with_what_it_lacks() {
    let shallow = Adapter { shared_receives: 16, ..ADAPTERS[0] };
    assert!(refusal(shallow).contains("mlx5_0 has 16 receives"), "{}", refusal(shallow));
    let full = Adapter { fails: Some("ibv_create_cq"), ..ADAPTERS[0] };
    let sentence = refusal(full);
    assert!(sentence.starts_with("ibv_create_cq on mlx5_0: Cannot allocate memory"), "{sentence}");
}

#[test]
fn messages_travel_in_their_work_requests_as_far_as_the_device_takes_them() {
    for adapter in ADAPTERS.iter().filter(|it| it.has_connections) {
        install(&[*adapter]);
        let mut end = end(&small(), Through::Local(address(0))).unwrap();
        end.connect(&RdmaAddress(SocketAddr::new(address(0), 9)), &[]).unwrap();
        (1..100).for_each(|now| drop(end.poll(Time(now * 1_000_000))));
        let taken = end.inline_max();
        assert!(taken <= adapter.inline_max, "{}: {taken}", adapter.name);
        // The next longer one that is tried is refused, or was not asked for.
        let longer = if taken == 0 { 32 } else { taken * 2 };
        assert!(longer > adapter.inline_max || taken == 256, "{}: {taken}", adapter.name);
    }
}

/// The end of a connection that an adapter cannot make.
fn end_of_connect(adapter: Adapter) -> Cause {
    install(&[adapter]);
    let mut end = end(&small(), Through::Local(address(0))).unwrap();
    let to = SocketAddr::new(address(0), 9);
    let qp = end.connect(&RdmaAddress(to), &[]).unwrap();
    let event = (1..100).find_map(|now| end.poll(Time(now * 1_000_000)));
    let Some(Event::Disconnected { qp: of, cause }) = event else { panic!("{event:?}") };
    assert_eq!(of, qp);
    cause
}

#[test]
fn a_connection_that_cannot_be_made_ends_with_the_name_of_the_verb() {
    let efa = *ADAPTERS.iter().find(|it| it.name == "efa").unwrap();
    let refused = end_of_connect(efa);
    assert_eq!(refused, Cause::Fabric(FabricFault::Verb("ibv_create_qp", libc::EOPNOTSUPP)));
    assert_eq!(refused.to_string(), "ibv_create_qp: Operation not supported (os error 95)");
    let denied = Adapter { fails: Some("rdma_connect"), ..ADAPTERS[0] };
    let denied = end_of_connect(denied).to_string();
    assert_eq!(denied, "rdma_connect: Permission denied (os error 13)");
}

#[test]
fn the_guide_says_of_each_adapter_what_it_can() {
    let page = include_str!("../../../../../docs/guide/adapters.md");
    let rows = page.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows: Vec<_> = rows.take_while(|line| line.starts_with('|')).collect();
    let expected: Vec<_> = ADAPTERS
        .iter()
        .map(|it| {
            let windows = matches!(it.windowing, DeviceWindowing::Works | DeviceWindowing::Unsaid);
            let invalidates = it.sends_invalidation && it.name != "siw";
            let facts = [it.shared_receives > 0, windows, invalidates, it.has_connections];
            let cells = facts.map(|fact| if fact { "yes" } else { "no" }).join(" | ");
            format!("| {} | {cells} |", it.name)
        })
        .collect();
    assert_eq!(rows, expected);
}
