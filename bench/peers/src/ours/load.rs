//! The generator of `stag bench`, in this process.

use stag_engine::clock::Clock;
use stag_load::{CallRecord, Load, LoadPlan, Pace, RunSpan, To, Workload};
use stag_verbs::Provider;
use std::{io, time::Duration};

/// Closed loops over one connection, without a look at the octets.
pub(super) fn plan(workload: Workload, len: usize, depth: usize) -> LoadPlan {
    LoadPlan { verify: false, ..LoadPlan::new(workload, len, depth) }
}

/// Totals of the calls that were made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunTotals {
    pub(super) calls: u64,
    pub(super) octets: u64,
    pub(super) seconds: f64,
}

/// The end of a run.
#[derive(Clone, Copy)]
pub(super) struct Until {
    /// Seconds that it lasts at most, warming up not counted.
    pub(super) seconds: f64,
    /// Calls after which it ends earlier; all of them count then.
    pub(super) calls: Option<u64>,
}

impl Until {
    pub(super) const fn seconds(seconds: f64) -> Self {
        Self { seconds, calls: None }
    }
}

/// Calls `to` for a number of seconds, after a warm-up of a fifth of them that does not count, or
/// for a number of calls, which all count.
pub(super) fn run<P: Provider>(
    mut load: Load<P>,
    to: P::Address,
    clock: Clock,
    until: Until,
) -> io::Result<RunTotals> {
    let failed = |error: stag_client::Error| io::Error::other(error.to_string());
    load.meet(&To::Fabric(to), || clock.now(), || false).map_err(failed)?;
    let Until { seconds, calls } = until;
    let now = clock.now();
    let warm_up = if calls.is_some() { 0.0 } else { seconds * 0.2 };
    let from = now + Duration::from_secs_f64(warm_up);
    load.begin(
        now,
        Pace::Closed,
        RunSpan { from, until: from + Duration::from_secs_f64(seconds), calls },
    );
    let mut done = RunTotals { calls: 0, octets: 0, seconds: 0.0 };
    let keep = |_, record: CallRecord| {
        done.calls += record.calls;
        done.octets += record.octets;
        None
    };
    load.run(|| clock.now(), || false, keep);
    if let Some((call, error)) = load.generator().failure() {
        return Err(io::Error::other(format!("{call}: {error}")));
    }
    let (began, ended) = load.generator().measured();
    Ok(RunTotals { seconds: ended.since(began).as_secs_f64(), ..done })
}
