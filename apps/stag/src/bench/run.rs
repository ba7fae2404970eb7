//! One run of `stag bench`: its setup from the options, and the sentences about it.

use super::{files::Ground, options::RunOptions, server_cpu::ServerCpu};
use crate::{
    Error,
    args::written,
    call::{Url, cannot_connect},
    stop::Stop,
    tls::explained,
};
use stag_engine::{Sampling, clock::Clock};
use stag_load::{
    LoadPlan, RunOutcome, Workload,
    report::model::RunSetup,
    run::{Measured, RunError, RunHooks, RunPlan},
};
use stag_protocol::rpc::Accepted;
use stag_tuning::{HostDigest, HostPlan};
use std::{sync::OnceLock, time::Duration};

/// Default number of calls outstanding on a connection of an open loop.
const OPEN_DEPTH: u16 = 64;
/// Default warm-up and duration, in seconds.
const WARM_UP: f64 = 2.0;
pub const DURATION: f64 = 10.0;
/// Default number of names in a directory that is listed.
const NAMES: u32 = 10_000;
/// Contexts of all cores: 'stag serve' keeps 64 of a principal.
pub const CONTEXTS_MAX: usize = 48;
/// Time from when all are connected to the first call, of a run on this node alone.
pub const LEAD: Duration = stag_load::run::LEAD;

/// A point of a ladder of runs.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Octets of payload.
    pub size: usize,
    /// Calls per second of an open loop.
    pub rate: Option<f64>,
    /// The run's seed.
    pub seed: u64,
}

/// Returns the parameters of a run.
pub fn setup(arguments: &RunOptions, url: &Url, point: Point) -> RunSetup {
    let Point { size, rate, seed } = point;
    let is_open = rate.is_some() && arguments.workload != Workload::ConnStorm;
    let depth = arguments.depth.unwrap_or(if is_open { OPEN_DEPTH } else { 1 });
    RunSetup {
        url: format!("{url}{}", String::from_utf8_lossy(&url.path).trim_end_matches('/')),
        workload: arguments.workload,
        size: if arguments.workload.has_size() { size } else { 0 },
        connections: arguments.connections.into(),
        depth: depth.into(),
        cores: arguments.cores.into(),
        rate,
        arrivals: rate.map(|_| arguments.arrivals),
        warm_up_s: arguments.warm_up.unwrap_or(WARM_UP),
        duration_s: arguments.calls.is_none().then_some(arguments.duration.unwrap_or(DURATION)),
        calls: arguments.calls,
        verified: arguments.workload.has_payload() && !arguments.no_verify,
        seed,
        names: names(arguments),
        rdma_version: url
            .server
            .fabric()
            .is_some()
            .then(|| written(arguments.rdma_version).to_owned()),
        sec: url.credential().service().map(|_| url.credential().name().to_owned()),
    }
}

/// Names in the directory of a core; `None` if no directory is listed.
pub fn names(arguments: &RunOptions) -> Option<u32> {
    let is_listed = arguments.workload == Workload::ReadDirPlus;
    is_listed.then(|| arguments.names.unwrap_or(NAMES))
}

/// Runs until the end or until it is stopped, and reports each second.
pub fn run(
    arguments: &RunOptions,
    url: &Url,
    stop: &Stop,
    setup: RunSetup,
    hooks: &mut RunHooks<'_>,
) -> Result<RunOutcome, Error> {
    // Before anything is busy.
    let check = host_check().clone();
    let mut ground = match arguments.workload.is_nfs() {
        true => Some(Ground::make(arguments, url, setup.size.max(1), stop)?),
        false => None,
    };
    let server = arguments.server_pid.map(ServerCpu::watch).transpose()?;
    let measured = gather(arguments, url, stop, setup, ground.as_ref(), hooks);
    let server_cores = server.and_then(|server| server.cores());
    let compared = match (&measured, &mut ground) {
        (Ok(Measured { outcome, written, .. }), Some(ground))
            if outcome.setup.verified && outcome.failure.is_none() =>
        {
            written
                .iter()
                .enumerate()
                .try_for_each(|(part, written)| ground.compare(part, written).map(drop))
        }
        _ => Ok(()),
    };
    let is_alive = measured.as_ref().is_ok_and(|measured| measured.outcome.failure.is_none());
    let removed = ground.map_or(Ok(()), |ground| ground.remove(is_alive));
    let mut outcome = measured?.outcome;
    outcome.check = Some(check);
    outcome.server_cores = server_cores;
    // The measurement is reported in any case.
    if let Err(error) = compared {
        outcome.failure.get_or_insert(error.to_string());
    }
    outcome.left_behind = removed.err().map(|error| error.to_string());
    Ok(outcome)
}

/// The state of this host, checked once: a ladder has many runs.
fn host_check() -> &'static HostDigest {
    static CHECK: OnceLock<HostDigest> = OnceLock::new();
    CHECK.get_or_init(|| HostDigest::of_this_host(HostPlan::default()))
}

/// Runs the generators.
fn gather(
    arguments: &RunOptions,
    url: &Url,
    stop: &Stop,
    setup: RunSetup,
    ground: Option<&Ground>,
    hooks: &mut RunHooks<'_>,
) -> Result<Measured, Error> {
    let clock = Clock::start();
    let tls = arguments.tls.open(&url.server, url.host.as_deref())?;
    let files = ground.map(Ground::files).unwrap_or_default();
    let plan = |part: usize| LoadPlan {
        files: files.get(part).copied(),
        tls: tls.clone(),
        ..plan(arguments, url, &setup, part, clock)
    };
    let plans = (0..setup.cores).map(plan).collect();
    let workload = setup.workload;
    let run = RunPlan { server: url.server.clone(), setup, plans, clock, stop: stop.flag() };
    let measured = run.measure_from(hooks.begin, hooks.live);
    let measured = measured.map_err(|error| cannot(url, error, stop));
    let mut measured = explained(tls.as_ref(), measured)?;
    let why = measured.context_fault.take();
    measured.outcome.failure = measured.failure.map(|(call, error)| {
        let text = told(workload, call, error);
        match &why {
            Some(why) if error == stag_client::Error::NoContext => format!("{text}: {why}"),
            _ => text,
        }
    });
    Ok(measured)
}

/// A sentence for a run that measured nothing. A failed connection names the server.
fn cannot(url: &Url, error: RunError, stop: &Stop) -> Error {
    if !error.is_of_connecting() {
        return Error::failure(error.to_string());
    }
    if stop.is_asked() {
        return Error::Stopped(format!("stopped while connecting to {url}: nothing was measured"));
    }
    let error = match error {
        RunError::Connect(error) => cannot_connect("it", error),
        other => Error::failure(other.to_string()),
    };
    match error {
        Error::Failure(text) => Error::failure(format!("{url}: {text}")),
        other => other,
    }
}

fn plan(
    arguments: &RunOptions,
    url: &Url,
    setup: &RunSetup,
    part: usize,
    clock: Clock,
) -> LoadPlan {
    let (all, cores) = (setup.connections, setup.cores);
    let every = if arguments.stages { Sampling::EVERY } else { 0 };
    LoadPlan {
        connections: all / cores + usize::from(part < all % cores),
        verify: setup.verified,
        timeout: Duration::from_secs(arguments.timeout.into()),
        seed: setup.seed.wrapping_add((part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        user: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        is_nfs: url.path != b"/",
        versions: arguments.rdma_version,
        tickets: url.tickets(),
        creation: url.creation(),
        contexts_max: CONTEXTS_MAX.checked_div(cores).unwrap_or(1).max(1),
        reconnects: arguments.reconnect,
        sampling: Sampling { every, clock: Some(clock), ..Sampling::default() },
        ..LoadPlan::new(setup.workload, setup.size, setup.depth)
    }
}

/// Why a run failed.
fn told(workload: Workload, call: &str, error: stag_client::Error) -> String {
    let text = format!("{call}: {error}");
    let absent = matches!(
        error,
        stag_client::Error::Rejected(
            Accepted::ProgUnavail | Accepted::ProcUnavail | Accepted::ProgMismatch { .. }
        )
    );
    match workload {
        Workload::Null | Workload::ConnStorm if absent => {
            format!(
                "{text}; a server of NFS is called by the name of an export: put /NAME behind the \
                 URL"
            )
        }
        Workload::Reverse if absent => format!("{text}; reverse needs one that calls: 'stag echo'"),
        Workload::Echo | Workload::Pull | Workload::Push | Workload::Mixed if absent => {
            format!("{text}; {workload} needs one that has it: 'stag echo'")
        }
        _ => text,
    }
}
