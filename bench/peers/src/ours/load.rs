//! The generator of `stag bench`, in this process.

use stag_engine::clock::Clock;
use stag_load::bench::{Load, Pace, Plan, Record, Span, To, Workload};
use stag_verbs::Provider;
use std::{io, time::Duration};

/// Closed loops over one connection, without a look at the octets.
pub(super) fn plan(workload: Workload, len: usize, depth: usize) -> Plan {
    Plan { verify: false, ..Plan::new(workload, len, depth) }
}

/// What came of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Done {
    pub(super) calls: u64,
    pub(super) octets: u64,
    pub(super) seconds: f64,
}

/// Calls `to` for so many seconds behind a fifth of them that do not count, or so many times, of which all count.
pub(super) fn run<P: Provider>(
    mut load: Load<P>,
    to: P::Address,
    clock: Clock,
    (seconds, calls): (f64, Option<u64>),
) -> io::Result<Done> {
    let failed = |error: stag_load::Error| io::Error::other(error.to_string());
    load.meet(&To::Fabric(to), || clock.now(), || false).map_err(failed)?;
    let now = clock.now();
    let warm_up = if calls.is_some() { 0.0 } else { seconds * 0.2 };
    let from = now + Duration::from_secs_f64(warm_up);
    load.begin(now, Pace::Closed, Span { from, until: from + Duration::from_secs_f64(seconds), calls });
    let mut done = Done { calls: 0, octets: 0, seconds: 0.0 };
    let keep = |_, record: Record| {
        done.calls += record.calls;
        done.octets += record.octets;
        None
    };
    load.run(|| clock.now(), || false, keep);
    if let Some((call, error)) = load.generator().failure() {
        return Err(io::Error::other(format!("{call}: {error}")));
    }
    let (began, ended) = load.generator().measured();
    Ok(Done { seconds: ended.since(began).as_secs_f64(), ..done })
}
