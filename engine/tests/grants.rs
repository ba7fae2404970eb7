//! Receives shared by many peers: grants grow with use, shrink when others come, and no peer waits
//! for ever.

use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Shard, Token};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Time};

const LIMITS: Limits = Limits {
    connections: 128,
    send_queue: 128,
    read_spans: 64,
    windows: 512,
    receives: 1024,
    ..stag_sim::LIMITS
};

struct World {
    fabric: Fabric,
    server: Shard<Sim, Echo>,
    clients: Vec<(Shard<Sim, Caller>, PeerId)>,
    port: Port,
    now: Time,
}

impl World {
    fn new(receives: usize) -> Self {
        Self::with(receives, Faults::DELAYS)
    }

    fn with(receives: usize, faults: Faults) -> Self {
        let fabric = Fabric::new(11, faults);
        let config =
            Config { receives, peers: 128, slots: [512, 16, 80], ..crate::support::small() };
        let config = Config { inbound: config.receives.max(256), ..config };
        let end = fabric.end("server", LIMITS);
        let mut server = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        Self { fabric, server, clients: Vec::new(), port, now: Time(0) }
    }

    fn join(&mut self, calls_max: u32) {
        let config = Config { calls_max, ..crate::support::small() };
        let end = self.fabric.end("client", LIMITS);
        let mut shard = Shard::new(end, Caller::default(), config, Box::new(|_| true)).unwrap();
        let peer = shard.keep_connected(&self.port).unwrap();
        self.clients.push((shard, peer));
    }

    fn step(&mut self) {
        let mut worked = self.server.pass(self.now);
        for (client, _) in &mut self.clients {
            worked |= client.pass(self.now);
        }
        if !worked {
            let timers = self.clients.iter().filter_map(|(client, _)| client.wake_at());
            let due = self.fabric.next_due().into_iter().chain(timers).min();
            self.now = due.unwrap_or(self.now).max(Time(self.now.0 + 1));
        }
    }

    /// Calls of client `index`, `depth` at a time, until `calls` came back.
    fn run(&mut self, index: usize, calls: u64, depth: u64, octets: Option<&[u8]>) {
        let (mut called, mut done) = (0, 0);
        for _ in 0..2_000_000 {
            let (client, peer) = &mut self.clients[index];
            let peer = *peer;
            while called < calls && called - done < depth {
                assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(called), octets)));
                called += 1;
            }
            while let Some(outcome) = client.with_app(|app, _| app.take()) {
                outcome.echo.unwrap();
                done += 1;
            }
            if done == calls {
                return;
            }
            self.step();
        }
        panic!("{done} of {calls} calls came back");
    }

    fn up(&self) -> usize {
        self.clients.iter().filter(|(client, _)| !client.app().peers().is_empty()).count()
    }
}

#[test]
fn a_grant_follows_use_up_to_what_the_peer_asked_for() {
    for (calls_max, grant) in [(4, 8), (32, 32), (64, 64), (128, 64)] {
        let mut world = World::new(1024);
        world.join(calls_max);
        world.run(0, 2_000, u64::from(calls_max), None);
        assert_eq!(world.server.snapshot().engine.responder.grant, grant, "{calls_max} wanted");
        assert_eq!(world.server.receives_promised(), grant as usize);
    }
}

#[test]
fn the_reply_that_uses_up_a_grant_takes_the_short_way_like_all_others() {
    let mut world = World::with(1_024, Faults::NONE);
    world.join(64);
    world.run(0, 1, 1, None);
    let before = world.server.short_ways_taken();
    world.run(0, 200, 1, None);
    let taken = world.server.short_ways_taken() - before;
    // Each call, and its reply.
    assert_eq!(taken, if crate::support::small().short_ways { 400 } else { 0 });
    assert_eq!(world.server.snapshot().engine.responder.grant, 64);
}

#[test]
fn nobody_is_granted_more_than_a_quarter_and_unused_grants_shrink_for_newcomers() {
    let mut world = World::new(128);
    world.join(128);
    world.run(0, 2_000, 128, None);
    assert_eq!(world.server.receives_promised(), 32);
    for _ in 1..12 {
        world.join(128);
        let last = world.clients.len() - 1;
        world.run(last, 1_000, 128, None);
    }
    // The first one uses a call at a time from here on; its grant gets small while others want
    // more.
    world.run(0, 2_000, 1, None);
    assert_eq!(world.up(), 12);
    assert!(world.server.receives_promised() <= 128);
    let stats = world.server.snapshot().engine;
    assert_eq!(stats.disconnects.len(), 0, "{:?}", stats.disconnects);
}

#[test]
fn sixty_four_peers_with_sixty_four_receives_all_pull_and_nobody_waits_for_ever() {
    let mut world = World::new(64 + 8);
    let octets = vec![7; 40_000];
    for _ in 0..64 {
        world.join(16);
    }
    while world.up() < 64 {
        world.step();
    }
    for (client, peer) in &mut world.clients {
        let peer = *peer;
        for token in 0..2 {
            assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(&octets))));
        }
    }
    let mut done = 0;
    for _ in 0..1_000_000 {
        for (client, _) in &mut world.clients {
            while let Some(outcome) = client.with_app(|app, _| app.take()) {
                assert_eq!(outcome.echo.unwrap().unwrap().len(), octets.len());
                done += 1;
            }
        }
        if done == 128 {
            return assert!(world.server.provider().receives_posted() <= 72);
        }
        world.step();
    }
    panic!("{done} of 128 calls came back");
}

#[test]
fn a_newcomer_takes_the_place_of_the_peer_that_is_idle_for_longest() {
    let mut world = World::new(8 + 8);
    for _ in 0..8 {
        world.join(1);
        let last = world.clients.len() - 1;
        world.run(last, 3, 1, None);
    }
    assert_eq!(world.up(), 8);
    // All but the first call again; then a ninth comes. The first does nothing meanwhile: it would
    // come back at once, and perhaps before the ninth tries again.
    let _silent = world.clients.remove(0);
    world.now = Time(world.now.0 + 20_000_000_000);
    for index in 0..7 {
        world.run(index, 1, 1, None);
    }
    world.join(1);
    world.run(7, 1, 1, None);
    let stats = world.server.snapshot().engine;
    assert!(stats.limits.receives > 0 && stats.limits.idle_disconnected > 0, "{:?}", stats.limits);
    world.run(0, 1, 1, None);
}
