//! Fifteen clients that keep a server busy over iWARP, next to an attacker that plays defects of
//! `stag-hostile`, one after the other: instructions of the server for each call of a client,
//! counted under callgrind, with the attacker and without. One defect in eight is played, and with
//! STAG_DEFECTS=all in the environment every one that waits for no deadline: minutes.

use crate::support::{
    LIMITS, Raw,
    attacks::{CLIENTS, Make, Sender},
    message,
};
use stag_bench::{callgrind, counted::measured};
use stag_engine::clock::Clock;
use stag_hostile::{
    HostileWorld, ServerUnderTest, defects,
    ours::{self, EXPORT},
    wire::{NFS, call},
};
use stag_iwarp::{Iwarp, IwarpAddress, IwarpConfig};
use stag_protocol::rpcrdma::ChunkLists;
use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Calls that each client keeps outstanding: as many as it is granted, once it has called.
const DEPTH: usize = 16;
/// The grant of a connection that has not called yet.
const FIRST: usize = 8;
/// Calls of the clients that are counted at least, and before anything is.
const CALLS: u64 = 3_000;
const WARM_UP: u64 = 300;
/// One defect in this many is played, unless all are requested.
const SAMPLE: usize = 8;
const ALL: &str = "STAG_DEFECTS";
/// Environment of the counted process: presence of an attacker, and the file for its figures.
const ATTACKED: &str = "STAG_COUNTED_HOSTILE";
const TOLD: &str = "STAG_COUNTED_CALLS";

fn null(xid: u32) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &call(xid, NFS, 3, 0).0)
}

/// Plays defects that wait for no deadline, as fast as answers or their absence permit; counts
/// them.
fn attack(target: ServerUnderTest, played: &AtomicUsize) {
    let world = HostileWorld::build(target).unwrap();
    let step = if std::env::var(ALL).is_ok_and(|which| which == "all") { 1 } else { SAMPLE };
    for defect in defects::all().iter().filter(|defect| !defect.is_slow).step_by(step) {
        // What is answered is looked at elsewhere.
        let _ = defect.play(&world);
        played.fetch_add(1, Ordering::Relaxed);
    }
}

/// The part that is counted, in a process of its own. Anywhere else it does nothing.
#[test]
fn one_run_as_it_is_counted() {
    let Ok(attacked) = std::env::var(ATTACKED) else { return };
    let clock = Clock::start();
    let (mut server, rdma, tcp) = ours::shard(clock).unwrap();
    let clients = (0..CLIENTS).map(|_| {
        let end = Iwarp::new(IwarpConfig::new(LIMITS, [7; 32], clock.now())).unwrap();
        let sends = (null as Make, FIRST, u64::MAX);
        Sender::new(Raw::on(end, [160, 8]), IwarpAddress(rdma), sends)
    });
    let mut clients: Vec<_> = clients.collect();
    let answered = |clients: &[Sender<Iwarp>]| clients.iter().map(|it| it.answered).sum::<u64>();
    let mut turn = |clients: &mut [Sender<Iwarp>], is_counted: bool| {
        let mut pass = || _ = server.pass(clock.now());
        if is_counted {
            measured(&mut pass)
        } else {
            pass()
        }
        let now = clock.now();
        // A poll that reports completed sends does not look for messages that have arrived.
        clients.iter_mut().for_each(|client| (0..2).for_each(|_| _ = client.turn(now)));
    };
    while answered(&clients) < WARM_UP {
        turn(&mut clients, false);
    }
    clients.iter_mut().for_each(|client| client.depth = DEPTH);
    let (before, played) = (answered(&clients), AtomicUsize::new(0));
    thread::scope(|scope| {
        let target = ServerUnderTest {
            rdma,
            tcp,
            mount: tcp,
            export: EXPORT.to_owned(),
            crc: true,
            is_siw: false,
            patience: Duration::from_secs(5),
            pause: Duration::from_millis(5),
            grace: Duration::from_millis(5),
        };
        let played = &played;
        let attacker = (attacked == "yes").then(|| scope.spawn(move || attack(target, played)));
        let is_over = || attacker.as_ref().is_none_or(thread::ScopedJoinHandle::is_finished);
        while !is_over() || answered(&clients) - before < CALLS {
            turn(&mut clients, true);
        }
    });
    let told = format!("{} {}", answered(&clients) - before, played.into_inner());
    fs::write(std::env::var(TOLD).unwrap(), told).unwrap();
    for client in &clients {
        assert_eq!(client.connections, 1, "no client loses its connection");
    }
}

/// Instructions of the server per client call, the number of calls, and that of defects played.
fn count(attacked: &str) -> (f64, f64, usize) {
    let (own, told) = (std::env::current_exe().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let options = ["--exact", "hostile::one_run_as_it_is_counted"];
    let environment = [(ATTACKED, attacked), (TOLD, told.path().to_str().unwrap())];
    let all = callgrind::total(&own, &options, &environment).unwrap();
    let told = fs::read_to_string(told.path()).unwrap();
    let (calls, played) = told.split_once(' ').unwrap();
    let calls: f64 = calls.parse().unwrap();
    (all / calls, calls, played.parse().unwrap())
}

#[test]
fn defects_of_a_hostile_client_cost_fifteen_others_at_most_a_tenth_of_their_calls() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed (apt-get install valgrind)");
        return;
    }
    let (alone, ..) = count("no");
    let (beside, calls, played) = count("yes");
    let each = (beside - alone) * calls / played as f64;
    println!(
        "{alone:.0} instructions for a call alone, {beside:.0} beside {played} defects: clients \
         keep {:.3} of their calls; a defect costs the server {each:.0}",
        alone / beside
    );
    assert!(played > 70, "{played}");
    assert!(alone / beside >= 0.9, "{alone} {beside}");
}
