//! Calls in one thread, both ends: what counts per call is measured on this process (`strace -c -f`, `valgrind
//! --tool=callgrind`, `objdump -d`).
//!
//! Usage: `stag-counts iwarp|shm|shm-trusted CALLS [OCTETS]`: CALLS NULL calls, or echoes of OCTETS octets, one at a time.

use stag_bench::ends::{self, Ends};
use stag_verbs::Provider;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse::<u64>().ok());
    let (Some(fabric), Some(calls)) = (arguments.first(), number(1)) else {
        eprintln!(
            "stag-counts: say which fabric (iwarp, shm, shm-trusted) and how many calls, then octets of an echo"
        );
        return ExitCode::from(2);
    };
    let octets = number(2).and_then(|octets| usize::try_from(octets).ok());
    let done = match fabric.as_str() {
        "iwarp" => ends::iwarp().map(|ends| run(ends, calls, octets)),
        "shm" => ends::shm(false).map(|ends| run(ends, calls, octets)),
        "shm-trusted" => ends::shm(true).map(|ends| run(ends, calls, octets)),
        other => {
            eprintln!("stag-counts: {other:?} is no fabric: iwarp, shm, shm-trusted");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(elapsed) => {
            println!("{calls} calls in {:.3} s", elapsed.as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stag-counts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run<P: Provider>(mut ends: Ends<P>, calls: u64, octets: Option<usize>) -> std::time::Duration {
    ends.meet();
    let began = std::time::Instant::now();
    ends.calls(calls, octets);
    began.elapsed()
}
