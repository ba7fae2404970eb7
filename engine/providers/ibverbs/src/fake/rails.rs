//! Several adapters in one process: shards take turns at them, and each has its peers.

use super::{
    ADAPTERS, Adapter, address, install,
    removal::{remove, restore},
    roles::{end, small},
};
use crate::{Ibverbs, RdmaAddress, Through};
use stag_echo::{Caller, Echo};
use stag_engine::{Shard, Token};
use stag_verbs::{Open, Settings, Time};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU16, Ordering},
};

/// Tests on other threads have other hosts, and listen at other ports: shards of a process find
/// each other by their addresses.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_049);
    thread_local!(static OWN: u16 = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

fn at(ip: IpAddr) -> RdmaAddress {
    RdmaAddress(SocketAddr::new(ip, port()))
}

/// Three servers of one process on three adapters, and the time.
struct Server {
    shards: [Shard<Ibverbs, Echo>; 3],
    now: Time,
}

fn settings(place: usize, places: usize) -> Settings {
    let limits = small().limits(64);
    let new = Settings::new(limits, [7; 32], Time(0));
    Settings { shared_port: places > 1, place, places, ..new }
}

impl Server {
    /// Callers use the third adapter.
    fn new(listen: &[RdmaAddress]) -> Self {
        let other = Adapter { name: "mlx4", ..ADAPTERS[0] };
        install(&[ADAPTERS[0], other, ADAPTERS[0]]);
        let shards = [0, 1, 2].map(|place| {
            let device = Ibverbs::for_listening(settings(place, 3), listen).unwrap();
            let admit = Box::new(|_| true) as Box<_>;
            let mut shard = Shard::new(device, Echo::default(), small(), admit).unwrap();
            for at in listen {
                shard.listen(at).unwrap();
            }
            shard
        });
        Self { shards, now: Time(1) }
    }

    fn pass(&mut self) {
        self.now = Time(self.now.0 + 100_000);
        for shard in &mut self.shards {
            shard.pass(self.now);
        }
    }

    fn settle(&mut self, client: &mut Shard<Ibverbs, Caller>, passes: usize) {
        for _ in 0..passes {
            self.pass();
            client.pass(self.now);
        }
    }

    /// Calls at the address of an adapter. Returns the connections of the shards meanwhile.
    fn call(&mut self, device: usize) -> [u64; 3] {
        let to = at(address(device));
        let end = end(&small(), Through::Toward(to.0)).unwrap();
        let admit = Box::new(|_| true) as Box<_>;
        let mut client = Shard::new(end, Caller::with_capacity(8), small(), admit).unwrap();
        // Times count from the first turn.
        client.pass(self.now);
        client.connect(&to).unwrap();
        self.settle(&mut client, 2_000);
        let ends = client.snapshot().engine.disconnects;
        let peer = *client.app().peers().first().unwrap_or_else(|| panic!("{ends:?}"));
        let octets = vec![9; 70_000];
        assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(&octets))));
        self.settle(&mut client, 2_000);
        let done = client.with_app(|app, _| app.take()).unwrap();
        assert!(done.echo.unwrap().unwrap()[..] == octets[..]);
        let live = self.live();
        drop(client);
        for _ in 0..3_000 {
            self.pass();
        }
        live
    }

    /// The same at each of them.
    fn calls(&mut self) -> [[u64; 3]; 3] {
        [0, 1, 2].map(|device| self.call(device))
    }

    fn live(&self) -> [u64; 3] {
        self.shards.each_ref().map(|shard| shard.snapshot().engine.connections.live)
    }
}

#[test]
fn each_address_and_each_device_of_a_wildcard_has_a_shard() {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let each = [0, 1, 2].map(|device| at(address(device)));
    for listen in [&each[..], &[at(any)]] {
        let mut server = Server::new(listen);
        let names = server.shards.each_ref().map(|it| it.provider().about().name.clone());
        assert_eq!(names, ["mlx5_0", "mlx4_1", "mlx5_2"]);
        assert_eq!(server.calls(), [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "{listen:?}");
    }
}

#[test]
fn a_device_that_is_lost_leaves_the_others_alone() {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let each = [0, 1, 2].map(|device| at(address(device)));
    for listen in [&each[..], &[at(any)]] {
        let mut server = Server::new(listen);
        for lost in [0, 1, 0] {
            remove(lost);
            let other = 1 - lost;
            let expected = [u64::from(other == 0), u64::from(other == 1), 0];
            assert_eq!(server.call(other), expected, "{listen:?}");
            restore(lost);
            for _ in 0..20_000 {
                server.pass();
            }
            assert_eq!(server.calls(), [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "{listen:?}");
        }
    }
}

#[test]
fn more_devices_than_shards_are_refused_with_the_number_that_helps() {
    install(&[ADAPTERS[0]; 4]);
    let each: Vec<_> = (0..3).map(|device| at(address(device))).collect();
    let refused = Ibverbs::for_listening(settings(0, 2), &each).unwrap_err().to_string();
    assert_eq!(
        refused,
        "each of these devices needs a core of its own: mlx5_0, mlx5_1, mlx5_2; fix: --cores 3, or \
         listen at the addresses of fewer"
    );
    // Two addresses of one device need no more than one.
    assert!(Ibverbs::for_listening(settings(0, 1), &each[..1]).is_ok());
    let nowhere = at(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)));
    let refused = Ibverbs::for_listening(settings(0, 1), &[nowhere]).unwrap_err().to_string();
    assert!(refused.contains("198.51.100.1"), "{refused}");
}
