//! CPU time that a server uses for a thousand idle connections.

use crate::caller::{Caller, NFS};
use crate::support::{Home, Server};
use rustix::{
    param::clock_ticks_per_second,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{fs, thread, time::Duration};

const CONNECTIONS: usize = 1_000;
/// Other descriptors of this process.
const OTHERS: u64 = 100;
/// Time without any call.
const SILENCE: Duration = Duration::from_secs(10);
/// Thousandths of a core, at most. It takes less than one; that the host is busy elsewhere may
/// double that, and a loop that never sleeps has a thousand.
const SHARE_MAX: f64 = 20.0;

/// Seconds that the server's threads have run, also in the kernel.
fn cpu(server: &Server) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    // The name, in parentheses, may have blanks.
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / clock_ticks_per_second() as f64
}

#[test]
fn a_thousand_idle_connections_take_next_to_no_time_of_a_core() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|most| most < CONNECTIONS as u64 + OTHERS) {
        return eprintln!("skipped: {maximum:?} descriptors are too few (ulimit -Hn)");
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let home = Home::new();
    let server = home.serve(&["data", "--connections-per-address", "0"]);
    let mut callers: Vec<_> = (0..CONNECTIONS).map(|_| Caller::new(&server)).collect();
    for caller in &mut callers {
        assert!(caller.call(NFS, 0, &[]).is_empty(), "NULL has no results");
    }
    // Work that follows the last call has ended.
    thread::sleep(Duration::from_secs(1));
    let before = cpu(&server);
    thread::sleep(SILENCE);
    let took = cpu(&server) - before;
    let share = 1_000.0 * took / SILENCE.as_secs_f64();
    println!(
        "{CONNECTIONS} idle connections: {took:.2} s of a core in {} s, {:.2} %",
        SILENCE.as_secs(),
        share / 10.0
    );
    assert!(share < SHARE_MAX, "{share:.1} thousandths of a core");
    drop(callers);
}
