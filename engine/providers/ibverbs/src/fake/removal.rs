//! Adapters that are removed while programs have them open, and added again.

use super::{
    ADAPTERS, Adapter, Told, address, install,
    roles::{Way, calling_end, end_of, every_way, full, small},
    with,
};
use crate::{RdmaAddress, Through, sys::ibv_event_type as event};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard, Token};
use stag_verbs::{Cause, FabricFault, Outages, Time};
use std::net::SocketAddr;

/// State of a queue pair whose device was taken away: it does nothing, and reports nothing.
const SILENT: u32 = 99;

/// Removes an adapter. The connection manager reports that to all identifiers. Where the kernel
/// takes the device from programs, their open objects stop working, and an event says so.
pub(super) fn remove(device: usize) {
    with(|host| {
        host.removed.insert(device);
        if host.adapters[device].disassociates {
            let objects = &mut host.objects;
            let devices = &objects.device_of;
            for (context, told) in &mut objects.contexts {
                if devices[context] == device {
                    objects.dead.insert(*context);
                    told.push((event::IBV_EVENT_DEVICE_FATAL, 0));
                }
            }
            for pair in objects.pairs.values_mut() {
                if objects.dead.contains(&pair.context) {
                    pair.state = SILENT;
                    pair.sends.clear();
                    pair.own.waiting.clear();
                }
            }
        }
        host.cm.remove(device);
    });
}

/// Adds an adapter that was removed.
pub(super) fn restore(device: usize) {
    with(|host| assert!(host.removed.remove(&device)));
}

/// Returns true if the kernel need not wait for programs that have the adapter open: it took it
/// from them, or they closed it. That librdmacm has it open counts as long as its descriptor is
/// there.
fn is_released(device: usize) -> bool {
    with(|host| {
        let devices = &host.objects.device_of;
        let mut own = host.objects.contexts.iter().filter(|(it, _)| devices[*it] == device);
        own.all(|(context, told)| {
            let of_cm = host.cm.has_open(*context);
            let path = format!("/proc/self/fd/{}", told.raw_fd());
            of_cm && (host.adapters[device].disassociates || !is_event_descriptor(&path))
        })
    })
}

fn is_event_descriptor(path: &str) -> bool {
    std::fs::read_link(path).unwrap().to_string_lossy().contains("eventfd")
}

/// Reports an event of a port to all contexts of the adapter.
fn report(device: usize, kind: i32) {
    with(|host| {
        let devices = &host.objects.device_of;
        let own = host.objects.contexts.iter_mut().filter(|(it, _)| devices[*it] == device);
        own.for_each(|(_, told): (_, &mut Told<_>)| told.push((kind, 1)));
    });
}

/// Numbers of objects that are there: contexts, domains, regions, windows, queues, queue pairs,
/// channels, identifiers.
pub(super) fn objects() -> [usize; 8] {
    with(|host| {
        let it = &host.objects;
        [
            it.contexts.len(),
            it.domains.len(),
            it.regions.len(),
            it.windows.len(),
            it.queues.len() + it.receives.len(),
            it.pairs.len(),
            it.channels.len() + host.cm.channels.len(),
            host.cm.ids.len(),
        ]
    })
}

/// A server on the first adapter, and a caller on the second one that is kept connected.
struct Pair {
    server: Shard<crate::Ibverbs, Echo>,
    client: Shard<crate::Ibverbs, Caller>,
    outages: Outages,
    now: Time,
}

impl Pair {
    fn new(adapters: [Adapter; 2], way: Way) -> Self {
        install(&adapters);
        let outages = Outages::default();
        let device = |through, shard| {
            let mut device = match through {
                Through::Toward(_) => calling_end(through, way.is_apart),
                Through::Local(_) => end_of(&small(), through, way.is_apart).unwrap(),
            };
            device.shared.config.outage = outages.of_shard(shard);
            device
        };
        let admit = || Box::new(|_| true) as Box<_>;
        let end = device(Through::Local(address(0)), 0);
        let mut server = Shard::new(end, Echo::default(), small(), admit()).unwrap();
        let at = server.listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
        let end = device(Through::Toward(at.0), 1);
        let config = Config { call_versions: way.versions, ..small() };
        let mut client = Shard::new(end, Caller::with_capacity(8), config, admit()).unwrap();
        client.keep_connected(&at).unwrap();
        let mut pair = Self { server, client, outages, now: Time(1) };
        pair.settle(2_000);
        pair
    }

    fn settle(&mut self, passes: usize) {
        for _ in 0..passes {
            self.now = Time(self.now.0 + 100_000);
            self.server.pass(self.now);
            self.client.pass(self.now);
        }
    }

    /// Calls once in each form. All memory comes back.
    fn call(&mut self) {
        for len in [100, 70_000, 1 << 20] {
            let octets: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
            let peer = self.client.app().peers()[0];
            assert!(self.client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(&octets))));
            self.settle(2_000);
            let done = self.client.with_app(|app, _| app.take()).unwrap();
            assert!(done.echo.unwrap().unwrap()[..] == octets[..], "{len} octets");
        }
        assert_eq!((self.server.buffers_in_use(), self.client.buffers_in_use()), (0, 0));
    }

    fn outages(&self) -> Vec<(usize, String)> {
        self.outages.now().by_shard.into_iter().collect()
    }
}

#[test]
fn a_device_that_is_removed_is_given_back_at_once_and_serves_again_when_it_is_added() {
    for (adapter, way) in every_way() {
        for disassociates in [false, true] {
            let adapter = Adapter { disassociates, ..adapter };
            let mut pair = Pair::new([adapter, full(&adapter)], way);
            pair.call();
            let before = objects();
            for round in 1..=3 {
                remove(0);
                // Twenty passes take two milliseconds.
                pair.settle(20);
                assert!(is_released(0), "{} {way:?}", adapter.name);
                let name = &pair.server.provider().about().name;
                let gone = format!("{name} is gone: it was removed, or its driver resets it");
                assert_eq!(pair.outages(), [(0, gone)]);
                let snapshot = pair.server.snapshot();
                let cause = Cause::Fabric(FabricFault::DeviceLost).to_string();
                assert_eq!(snapshot.engine.disconnects[&cause], round, "{} {way:?}", adapter.name);
                assert_eq!(snapshot.engine.connections.live, 0);
                restore(0);
                pair.settle(20_000);
                assert_eq!(pair.outages(), [], "{} {way:?}", adapter.name);
                pair.call();
            }
            assert_eq!(objects(), before, "{} {way:?}", adapter.name);
        }
    }
}

#[test]
fn a_caller_whose_device_is_removed_connects_again_when_it_is_added() {
    for (adapter, way) in every_way() {
        let mut pair = Pair::new([full(&adapter), adapter], way);
        pair.call();
        let before = objects();
        remove(1);
        pair.settle(20);
        assert!(is_released(1), "{} {way:?}", adapter.name);
        // It tries to connect meanwhile.
        pair.settle(20_000);
        assert_eq!(pair.client.snapshot().engine.connections.live, 0);
        restore(1);
        pair.settle(20_000);
        pair.call();
        assert_eq!(objects(), before, "{} {way:?}", adapter.name);
    }
}

#[test]
fn a_removal_with_calls_under_way_loses_no_memory() {
    for adapter in ADAPTERS.into_iter().filter(|it| it.has_connections) {
        let way = every_way().next().unwrap().1;
        let mut pair = Pair::new([adapter, full(&adapter)], way);
        for passes in 0..12 {
            let peer = pair.client.app().peers()[0];
            for token in 0..4 {
                let octets = vec![7; 1 << (8 + 3 * token)];
                pair.client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(&octets)));
            }
            pair.settle(passes);
            remove(0);
            pair.settle(100);
            assert!(is_released(0), "{} after {passes} passes", adapter.name);
            restore(0);
            pair.settle(20_000);
            while pair.client.with_app(|app, _| app.take()).is_some() {}
            let in_use = (pair.server.buffers_in_use(), pair.client.buffers_in_use());
            let calls = (pair.server.calls_in_progress(), pair.client.calls_in_progress());
            assert_eq!((in_use, calls), ((0, 0), ((0, 0), (0, 0))), "{} {passes}", adapter.name);
        }
        pair.call();
    }
}

#[test]
fn a_device_of_less_use_at_the_same_address_is_not_taken_and_does_not_wait_for_the_shard() {
    let way = every_way().next().unwrap().1;
    for disassociates in [false, true] {
        let full = Adapter { disassociates, ..ADAPTERS[0] };
        let mut pair = Pair::new([full, full], way);
        remove(0);
        pair.settle(20);
        let siw = Adapter { disassociates, ..*ADAPTERS.last().unwrap() };
        with(|host| host.adapters[0] = siw);
        restore(0);
        pair.settle(2_000);
        let [(0, why)] = &pair.outages()[..] else { panic!("{:?}", pair.outages()) };
        assert!(why.ends_with("can do less than the device before"), "{why}");
        remove(0);
        pair.settle(20);
        assert!(is_released(0));
        with(|host| host.adapters[0] = full);
        restore(0);
        pair.settle(20_000);
        pair.call();
    }
}

#[test]
fn a_port_that_is_down_is_reported_until_it_is_up() {
    let way = every_way().next().unwrap().1;
    let mut pair = Pair::new([ADAPTERS[0], ADAPTERS[0]], way);
    report(0, event::IBV_EVENT_PORT_ERR);
    pair.settle(20);
    assert_eq!(pair.outages(), [(0, "the port of mlx5_0 is down".to_owned())]);
    // Connections stay.
    pair.call();
    report(0, event::IBV_EVENT_PORT_ACTIVE);
    pair.settle(20);
    assert_eq!(pair.outages(), []);
}

#[test]
fn a_bond_that_fails_over_ends_its_connections_and_is_listened_at_anew() {
    for (adapter, way) in every_way() {
        let mut pair = Pair::new([adapter, full(&adapter)], way);
        pair.call();
        let before = objects();
        for _ in 0..3 {
            let came = pair.server.snapshot().engine.connections.fabric;
            with(|host| host.cm.fail_over(0));
            pair.settle(20_000);
            assert!(pair.server.snapshot().engine.connections.fabric > came, "{way:?}");
            pair.call();
            assert_eq!(pair.outages(), [], "{} {way:?}", adapter.name);
            assert_eq!(objects(), before, "{} {way:?}", adapter.name);
        }
    }
}

#[test]
fn an_address_that_has_moved_is_reported_until_it_is_back() {
    let way = every_way().next().unwrap().1;
    let mut pair = Pair::new([ADAPTERS[0], ADAPTERS[0]], way);
    with(|host| host.without_address.insert(0));
    report(0, event::IBV_EVENT_GID_CHANGE);
    pair.settle(20);
    let moved = "192.0.2.1 is no address of mlx5_0 at the moment";
    assert_eq!(pair.outages(), [(0, moved.to_owned())]);
    // Connections over the device stay.
    pair.call();
    with(|host| host.without_address.remove(&0));
    pair.settle(2_000);
    assert_eq!(pair.outages(), []);
    // The caller's device fails over, and it connects again to what listened all the time.
    with(|host| host.cm.fail_over(1));
    pair.settle(20_000);
    pair.call();
}
