//! Fifteen clients that keep a server busy over iWARP, next to one attacker: instructions of the
//! server for each call of a client, counted under callgrind, with the attacker and without.
//! `engine/tests/attackers.rs` has the same attackers in virtual time.
//!
//! All take turns in one thread: the server makes a pass, then each of the others does all it can.
//! So none of them waits for a processor, and the attacker has sent as much as its connection takes
//! before every pass.

use crate::support::{
    LIMITS, Raw,
    attacks::{
        ATTACKS, CLIENTS, GRANT, Make, PATIENCE, SERVED, Sender, null, server_config, server_limits,
    },
};
use stag_bench::{callgrind, counted::measured};
use stag_echo::Echo;
use stag_engine::{Shard, clock::Clock};
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_verbs::Limits;
use std::{fs, process::Command};

/// Calls of the clients that are counted, and before anything is.
const CALLS: u64 = 1_200;
const WARM_UP: u64 = 300;
/// Names the attack in the process that is counted, and the file for the number of its calls.
const ATTACK: &str = "STAG_COUNTED_ATTACK";
const TOLD: &str = "STAG_COUNTED_CALLS";

fn iwarp(limits: Limits, clock: Clock) -> Iwarp {
    Iwarp::new(IwarpConfig::new(limits, [7; 32], clock.now())).unwrap()
}

/// A server, its clients, and the attacker as the last sender if there is one.
struct World {
    clock: Clock,
    server: Shard<Iwarp, Echo>,
    senders: Vec<Sender<Iwarp>>,
}

impl World {
    fn new(attack: Option<(Make, usize, u64)>) -> Self {
        let clock = Clock::start();
        let end = iwarp(server_limits(), clock);
        let (echo, config) = (Echo::default(), server_config());
        let mut server = Shard::new(end, echo, config, Box::new(|_| true)).unwrap();
        let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
        let clients = [(null as Make, GRANT, u64::MAX); CLIENTS];
        let senders = clients
            .into_iter()
            .chain(attack)
            .map(|sends| Sender::new(Raw::on(iwarp(LIMITS, clock), [160, 8]), at, sends));
        Self { clock, senders: senders.collect(), server }
    }

    /// Calls of the clients that were answered.
    fn answered(&self) -> u64 {
        self.senders[..CLIENTS].iter().map(|sender| sender.answered).sum()
    }

    /// Takes turns until `calls` more calls are answered.
    fn run_until(&mut self, calls: u64, pass: fn(&mut Self)) {
        let until = self.answered() + calls;
        let mut turns = 0;
        while self.answered() < until {
            pass(self);
            let now = self.clock.now();
            for sender in &mut self.senders {
                // A poll that reports completed sends does not look for messages that have arrived.
                (0..2).for_each(|_| _ = sender.turn(now));
            }
            turns += 1;
            assert!(turns < 1_000_000, "the clients are not answered");
        }
    }

    fn pass(&mut self) {
        let now = self.clock.now();
        self.server.pass(now);
    }
}

/// The part that is counted, in a process of its own. Anywhere else it does nothing.
#[test]
fn one_attack_as_it_is_counted() {
    let Ok(asked) = std::env::var(ATTACK) else { return };
    let attack = ATTACKS.iter().find(|(name, ..)| *name == asked);
    let patience = if asked == SERVED { u64::MAX } else { PATIENCE };
    let mut world = World::new(attack.map(|(_, make, depth)| (*make, *depth, patience)));
    world.run_until(WARM_UP, World::pass);
    let before = world.answered();
    world.run_until(CALLS, |world| measured(&mut || world.pass()));
    // Whole windows are answered, and with the last one more than were asked for.
    let calls = world.answered() - before;
    fs::write(std::env::var(TOLD).unwrap(), calls.to_string()).unwrap();
    for client in &world.senders[..CLIENTS] {
        assert_eq!(client.connections, 1, "no client loses its connection");
    }
    if let Some(attacker) = world.senders.get(CLIENTS) {
        assert!(attacker.sent > 40 || attacker.connections > 5, "{asked}: it is an attack");
    }
}

/// Instructions of the server for one call of a client.
fn count(attack: &str) -> f64 {
    let (own, told) = (std::env::current_exe().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let options = ["--exact", "attackers::one_attack_as_it_is_counted"];
    let environment = [(ATTACK, attack), (TOLD, told.path().to_str().unwrap())];
    let all = callgrind::total(&own, &options, &environment).unwrap();
    let calls: f64 = fs::read_to_string(told.path()).unwrap().parse().unwrap();
    assert!(calls >= CALLS as f64, "{calls}");
    all / calls
}

#[test]
fn an_attacker_over_iwarp_costs_fifteen_busy_clients_at_most_a_tenth_of_their_calls() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed (apt-get install valgrind)");
        return;
    }
    let alone = count("nobody");
    println!("{alone:.0} instructions for a call of a client without an attacker");
    let mut costly = Vec::new();
    for (name, ..) in ATTACKS {
        let beside = count(name);
        let share = alone / beside;
        println!("{name}: {beside:.0}, clients keep {share:.3} of their calls");
        // Under other load octets come late, and passes find less: such a pair is counted again.
        if share < 0.9 && count("nobody") / count(name) < 0.9 {
            costly.push(name);
        }
    }
    assert_eq!(costly, [""; 0], "attacks that cost clients more than a tenth of their calls");
}
