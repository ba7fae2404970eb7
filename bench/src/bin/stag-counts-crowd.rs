//! Program whose process is counted: NULL calls, one at a time, each over another one of many
//! connections. A program of its own, as `stag-counts-typed` is.
//!
//! Usage: `stag-counts-crowd shm-crowd|iwarp-crowd[/CONNECTIONS] CALLS`: CALLS calls over
//! CONNECTIONS connections (4,000 when it is not said). With `valgrind --tool=callgrind
//! --cache-sim=yes --LL=262144,8,64` what misses the last cache is what belongs to one connection:
//! lines of memory that a call waits for in a crowd.

use stag_bench::{counted::measured, crowd::Crowd};
use stag_engine::clock::Clock;
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::Provider;
use std::{io, process::ExitCode};

/// Key from which both fabrics make theirs.
const KEY: [u8; 32] = [7; 32];
/// Connections by default.
const CONNECTIONS: usize = 4_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (subject, calls) = (arguments.first(), arguments.get(1).and_then(|text| text.parse().ok()));
    let (Some(subject), Some(calls)) = (subject, calls) else {
        eprintln!("stag-counts-crowd: say shm-crowd or iwarp-crowd, and how often");
        return ExitCode::from(2);
    };
    let (fabric, connections) = subject.split_once('/').unwrap_or((subject, ""));
    let connections = connections.parse().unwrap_or(CONNECTIONS).max(1);
    match count(fabric, connections, calls) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stag-counts-crowd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count(fabric: &str, connections: usize, calls: u64) -> io::Result<()> {
    let clock = Clock::start();
    match fabric {
        "iwarp-crowd" => {
            let provider = |limits| Iwarp::new(IwarpConfig::new(limits, KEY, clock.now()));
            let at = "iwarp://127.0.0.1:0".parse().expect("an address");
            run(Crowd::connect(provider, &at, connections, clock)?, calls)
        }
        "shm-crowd" => {
            let home = tempfile::tempdir()?;
            let at = ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
            let provider = |limits| Shm::new(ShmConfig::new(limits, KEY, clock.now()));
            run(Crowd::connect(provider, &at, connections, clock)?, calls)
        }
        _ => return Err(io::Error::other(format!("{fabric:?} is no fabric"))),
    }
    Ok(())
}

fn run<P: Provider>(mut crowd: Crowd<P>, calls: u64) {
    measured(&mut || crowd.calls(calls));
}
