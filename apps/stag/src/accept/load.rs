//! Runs of the load generator against the other end: connects and disconnects, latency and
//! bandwidth by size.

use super::{
    line::Line,
    program::{HeldCounts, Question, Reply},
    report::StepGroup,
    steps::{Figures, StepFault, judge},
};
use crate::{caller::random, progress::Progress, stop::Stop};
use stag_engine::{Sampling, clock::Clock};
use stag_fabrics::{Endpoint, FabricAddress};
use stag_load::{LoadPlan, RunOutcome, Times, Workload, report::model::RunSetup, run::RunPlan};
use stag_protocol::rpcrdma::Versions;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Warm-up before each run, as a fraction of the time that counts.
const WARM_UP: f64 = 0.2;
/// Factors by which the run is repeated for longer if no call was answered.
const LONGER: [f64; 3] = [1.0, 4.0, 16.0];
/// Time after which connections that ended have to be gone at the other end.
const GONE_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at the other end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// One call at a time: the time of a call.
const LATENCIES: [(Workload, usize); 8] = [
    (Workload::Null, 0),
    (Workload::Echo, 64),
    (Workload::Pull, 4_096),
    (Workload::Pull, 65_536),
    (Workload::Pull, 1 << 20),
    (Workload::Push, 4_096),
    (Workload::Push, 65_536),
    (Workload::Push, 1 << 20),
];
/// Many calls at a time: octets in a second.
const BANDWIDTHS: [(Workload, usize); 6] = [
    (Workload::Pull, 4_096),
    (Workload::Pull, 65_536),
    (Workload::Pull, 1 << 20),
    (Workload::Push, 4_096),
    (Workload::Push, 65_536),
    (Workload::Push, 1 << 20),
];

/// A run of the generator.
#[derive(Clone, Copy, Debug)]
struct LoadRun {
    workload: Workload,
    size: usize,
    depth: usize,
    calls: Option<u64>,
    seconds: f64,
}

/// The end that is called, and the flag that ends the work early.
#[derive(Debug)]
pub struct LoadTarget<'a> {
    /// The address.
    pub at: &'a FabricAddress,
    /// Asked for by a signal.
    pub stop: &'a Stop,
}

impl LoadTarget<'_> {
    /// Runs, and repeats for longer while no call was answered: a busy host may not give its cores
    /// to both ends at once.
    fn run(&self, run: LoadRun) -> Result<RunOutcome, StepFault> {
        let longer = LONGER.map(|times| LoadRun { seconds: run.seconds * times, ..run });
        for run in longer {
            let outcome = self.run_once(run)?;
            if outcome.calls > 0 {
                return Ok(outcome);
            }
        }
        let seconds = longer.map(|run| run.seconds).into_iter().fold(0.0, f64::max);
        Err(format!("no call was answered within {seconds} s").into())
    }

    fn run_once(&self, run: LoadRun) -> Result<RunOutcome, StepFault> {
        let LoadRun { workload, size, depth, calls, seconds } = run;
        let clock = Clock::start();
        let seed = random().map_err(|error| StepFault::Failed(error.to_string()))?;
        let seed = u64::from_ne_bytes(seed);
        let setup = RunSetup {
            url: self.at.to_string(),
            workload,
            size,
            connections: 1,
            depth,
            cores: 1,
            rate: None,
            arrivals: None,
            warm_up_s: if calls.is_some() { 0.0 } else { seconds * WARM_UP },
            duration_s: calls.is_none().then_some(seconds),
            calls,
            verified: workload.has_payload(),
            seed,
            names: None,
            rdma_version: Some("1".to_owned()),
            sec: None,
        };
        let plan = LoadPlan {
            seed,
            versions: Versions::One,
            sampling: Sampling { every: 0, clock: Some(clock), ..Sampling::default() },
            ..LoadPlan::new(workload, size, depth)
        };
        let server = Endpoint::Fabric(self.at.clone());
        let run = RunPlan { server, setup, plans: vec![plan], clock, stop: self.stop.flag() };
        let measured = run.measure(&mut |_| {}).map_err(|error| error.to_string())?;
        match measured.failure {
            Some((call, error)) => Err(format!("{call}: {error}").into()),
            None if measured.outcome.stopped => {
                Err(StepFault::Skipped("stopped by a signal".to_owned()))
            }
            None => Ok(measured.outcome),
        }
    }

    /// Connects, calls once and disconnects, `count` times; then checks that all resources are
    /// free.
    pub fn connects(&self, count: u64, progress: &mut Progress) -> StepGroup {
        let mut group = StepGroup::new("connects");
        progress.begin(&format!("{count} connects"), None);
        let counts = self.held();
        group.steps.push(judge(format!("{count} connects"), || {
            let (workload, calls) = (Workload::ConnStorm, Some(count));
            let run = LoadRun { workload, size: 0, depth: 1, calls, seconds: 0.0 };
            let outcome = self.run(run)?;
            let connected = outcome.connected.clone().unwrap_or_default();
            let mut figures = times("connected_", &connected);
            figures.extend(times("answered_", &outcome.service));
            figures.insert("connects_per_s".to_owned(), outcome.calls_per_s);
            Ok(figures)
        }));
        group.steps.push(judge("all is given back", || {
            let [here, there] = counts?;
            let [here_after, there_after] = self.held()?;
            for (end, before, after) in
                [("here", here, here_after), ("at the server", there, there_after)]
            {
                let (before, after) = (before.descriptors, after.descriptors);
                if after > before {
                    return Err(format!("{end} {before} descriptors became {after}").into());
                }
            }
            Ok([("descriptors_here", here_after), ("descriptors_there", there_after)]
                .map(|(name, held)| (name.to_owned(), held.descriptors as f64))
                .into())
        }));
        progress.end(&format!("{}: {}", group.name, group.counts()));
        group
    }

    /// Resources of both ends, once no connection but the one that asks is left.
    fn held(&self) -> Result<[HeldCounts; 2], StepFault> {
        let here = HeldCounts::here();
        let mut line = Line::connect(self.at, Versions::One).map_err(|error| error.to_string())?;
        let began = Instant::now();
        loop {
            match line.ask(&Question::Counts)? {
                Reply::Counts(there) if there.connections <= 1 => return Ok([here, there]),
                Reply::Counts(there) if began.elapsed() > GONE_MAX => {
                    let left = there.connections - 1;
                    return Err(format!(
                        "the server has {left} connections {} s after they ended",
                        GONE_MAX.as_secs()
                    )
                    .into());
                }
                Reply::Counts(_) => thread::sleep(LOOK_INTERVAL),
                other => return Err(format!("the server says {other:?}").into()),
            }
        }
    }

    /// Latency and bandwidth by size, `seconds` for each.
    pub fn speed(&self, seconds: f64, progress: &mut Progress) -> [StepGroup; 2] {
        let one = |(workload, size): &(Workload, usize), depth: usize| {
            let run = LoadRun { workload: *workload, size: *size, depth, calls: None, seconds };
            let name = if *size == 0 {
                format!("{workload}, {depth} at a time")
            } else {
                format!("{workload} {size}, {depth} at a time")
            };
            judge(name, || self.run(run).map(|outcome| speed_figures(&outcome)))
        };
        let mut group = |name: &str, points: &[(Workload, usize)], depth: fn(usize) -> usize| {
            progress.begin(name, None);
            let steps = points.iter().map(|point| one(point, depth(point.1))).collect();
            let group = StepGroup { name: name.to_owned(), steps };
            progress.end(&format!("{}: {}", group.name, group.counts()));
            group
        };
        [
            group("latency", &LATENCIES, |_| 1),
            group("bandwidth", &BANDWIDTHS, |size| if size > 65_536 { 8 } else { 32 }),
        ]
    }
}

fn speed_figures(outcome: &RunOutcome) -> Figures {
    let mut figures = times("", &outcome.service);
    figures.insert("calls_per_s".to_owned(), outcome.calls_per_s);
    if outcome.setup.size > 0 {
        figures.insert("MiB_per_s".to_owned(), outcome.octets_per_s / f64::from(1 << 20));
    }
    figures
}

/// Percentiles that enough samples support, and the longest time.
fn times(name: &str, times: &Times) -> Figures {
    let percentile = |percentile: &str| {
        let name = format!("{name}{percentile}_us");
        times.percentile(percentile).map(|time| (name, time))
    };
    let percentiles = ["p50", "p99"].into_iter().filter_map(percentile);
    percentiles.chain([(format!("{name}max_us"), times.max_us)]).collect()
}
