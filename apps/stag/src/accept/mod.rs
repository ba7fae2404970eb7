//! `stag accept`: acceptance test of an adapter from both ends, with a report.
//!
//! One end waits (`stag accept serve`). The other one connects, asks it for its facts, and runs
//! every step in turn. A failure does not end the rest: each step has its verdict, and each rule of
//! the specifications has the verdict of the steps that show it.

mod facts;
mod forms;
mod line;
mod load;
pub mod options;
mod page;
mod perftest;
mod place;
mod port;
mod program;
mod report;
mod rows;
mod steps;
mod suite;

use crate::{
    Error,
    caller::{aside, say},
    one_shard::OneShard,
    progress::Progress,
    stop::Stop,
};
use facts::EndFacts;
use line::Line;
use load::LoadTarget;
use options::{AcceptOptions, AcceptRunOptions, AcceptServeOptions, AcceptWhat};
use place::{DEVICES, DevicePlace};
use port::PortPlan;
use program::{AcceptHost, Question, Reply};
use report::{AcceptReport, AcceptStep, ReportFiles, SCHEMA, StepGroup, StepVerdict};
use stag_fabrics::{FabricAddress, Notation};
use stag_protocol::rpcrdma::Versions;
use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};
use steps::{Figures, judge};
use suite::SuiteRun;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// The port, unless the URL has one.
const PORT: u16 = 20_051;
/// Time between two looks at a suite that runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The time after which a suite without a new case is aborted.
const SUITE_MAX: Duration = Duration::from_secs(120);

/// Default numbers of connects and disconnects: over a device, and over software.
const DEVICE_CONNECTS: u64 = 10_000;
const CONNECTS: u64 = 1_000;

/// Waits, or tries everything.
pub fn run(arguments: &AcceptOptions) -> Result<(), Error> {
    match &arguments.what {
        Some(AcceptWhat::Serve(arguments)) => serve(arguments),
        None => try_all(&arguments.run),
    }
}

/// Reads a URL; an IP address may come without its port.
fn address(url: &str) -> Result<FabricAddress, Error> {
    let known = url.split_once("://").map(|(scheme, _)| crate::args::address::fabric(scheme));
    let with_port = match known {
        Some(Ok(info)) if info.notation == Notation::Ip => {
            FabricAddress::parse(url).or_else(|_| FabricAddress::parse(&format!("{url}:{PORT}")))
        }
        Some(Err(error)) => Err(error),
        _ => FabricAddress::parse(url),
    };
    with_port.map_err(|error| {
        Error::usage(format!(
            "{url:?}: {error}; write rdma://IP, iwarp://IP or shm:///PATH, of the host where \
             'stag accept serve' waits"
        ))
    })
}

/// Waits until a signal comes.
fn serve(arguments: &AcceptServeOptions) -> Result<(), Error> {
    let at = address(&arguments.url)?;
    DevicePlace::of_own(&at).map_err(Error::usage)?;
    let facts = EndFacts::of_host();
    let server = OneShard {
        at,
        flag: "URL",
        tcp: None,
        clients: &arguments.clients,
        sample: 0,
        app: Box::new(|at| AcceptHost::new(at.clone(), facts)),
        open: AcceptHost::open,
        ready: |at| {
            aside(format!("on the other host: stag accept {at} --report accept.json\n"));
        },
    };
    server.serve().map(drop)
}

/// Tries everything, and writes the report.
fn try_all(arguments: &AcceptRunOptions) -> Result<(), Error> {
    let (began, now) = (Instant::now(), SystemTime::now());
    let url = arguments.url.as_deref().unwrap_or_default();
    let at = address(url)?;
    let files = arguments.report.as_deref().map(|file| ReportFiles::check(file, arguments.force));
    let files = files.transpose()?;
    let place = DevicePlace::toward(&at).map_err(|why| Error::failure(format!("{url}: {why}")))?;
    let stop = Stop::by_signals()?;
    let mut progress = Progress::new(true);
    let mut groups = Vec::new();
    let (caller, server) = meet(&at, &place, &mut groups, &mut progress)?;
    groups.extend(forms::groups(&at, &mut progress));
    groups.extend(suites(&at, place, &stop, &mut progress));
    let load = LoadTarget { at: &at, stop: &stop };
    let usual = if at.info().scheme == DEVICES { DEVICE_CONNECTS } else { CONNECTS };
    groups.push(load.connects(arguments.connects.unwrap_or(usual), &mut progress));
    groups.extend(load.speed(arguments.seconds, &mut progress));
    groups.push(perftest::group(&at, &mut progress));
    let plan = PortPlan { how: arguments.port_test, interface: arguments.interface.as_deref() };
    groups.push(port::group(&at, plan, &stop, &mut progress));
    progress.finish();
    let cases = groups.iter().filter(|group| group.name.starts_with("conformance"));
    let cases: Vec<_> = cases.flat_map(|group| &group.steps).collect();
    let report = AcceptReport {
        schema: SCHEMA.to_owned(),
        passed: groups.iter().all(|group| group.count(StepVerdict::Failed) == 0),
        began_unix_s: now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        took_s: began.elapsed().as_secs_f64(),
        fabric: at.info().scheme.to_owned(),
        caller,
        server,
        rows: rows::rows(at.info().scheme, &cases)?,
        groups,
    };
    hand_over(&report, files.as_ref(), arguments.json)?;
    match stop.is_asked() {
        true => Err(Error::Stopped("stopped by a signal; the rest was skipped".to_owned())),
        false => Ok(()),
    }
}

/// Writes the report; an error if something failed.
fn hand_over(
    report: &AcceptReport,
    files: Option<&ReportFiles>,
    is_json: bool,
) -> Result<(), Error> {
    let page = page::page(report);
    if is_json {
        say(report.json()?);
    } else {
        say(&page);
    }
    let written = files.map(|files| files.write(report, &page)).transpose()?;
    if let Some(written) = &written {
        aside(format!("{written}: please send both\n"));
    }
    match report.steps(StepVerdict::Failed).count() {
        0 => Ok(()),
        1 => Err(Error::failure("1 step failed; the page names it")),
        failed => Err(Error::failure(format!("{failed} steps failed; the page names them"))),
    }
}

/// Exchanges facts with the other end. Without this nothing else can be tried.
fn meet(
    at: &FabricAddress,
    place: &DevicePlace,
    groups: &mut Vec<StepGroup>,
    progress: &mut Progress,
) -> Result<(EndFacts, EndFacts), Error> {
    let mut group = StepGroup::new("capabilities");
    progress.begin(&group.name, None);
    let mut line = Line::connect(at, Versions::One)?;
    let (limits, device) = line.device();
    let own = EndFacts::of_host().with_device(place, &limits, device.as_deref());
    let met = line.ask(&Question::Meet(Box::new(own.clone())));
    let server = match met {
        Ok(Reply::Met(server)) => *server,
        Ok(other) => return Err(Error::failure(format!("{at} says {other:?}"))),
        Err(why) => return Err(Error::failure(format!("{at}: {why}"))),
    };
    group.steps.push(judge("both ends told their facts", || Ok(Figures::new())));
    group.steps.push(judge("both ends are the same build", || match own.stag == server.stag {
        true => Ok(Figures::new()),
        false => Err(format!("here {}, there {}", own.stag, server.stag).into()),
    }));
    progress.end(&format!("{}: {}", group.name, group.counts()));
    groups.push(group);
    Ok((own, server))
}

/// The conformance suite at this end, and then at the other one: they would disturb each other if
/// both ends are on one host.
fn suites(
    at: &FabricAddress,
    place: DevicePlace,
    stop: &Stop,
    progress: &mut Progress,
) -> [StepGroup; 2] {
    progress.begin("conformance, caller", None);
    let run = SuiteRun::start(place);
    while !run.with(|progress| progress.is_done) && !stop.is_asked() {
        thread::sleep(LOOK_INTERVAL);
    }
    let caller = suite::group("caller", run.with(|progress| std::mem::take(&mut progress.steps)));
    progress.end(&format!("{}: {}", caller.name, caller.counts()));
    progress.begin("conformance, server", None);
    let mut steps = Vec::new();
    if let Err(why) = suite_there(at, stop, &mut steps) {
        steps.push(judge("the suite of the server", || Err(why.into())));
    }
    let server = suite::group("server", steps);
    progress.end(&format!("{}: {}", server.name, server.counts()));
    [caller, server]
}

/// Makes the other end run the suite; `seen` gets its steps.
fn suite_there(at: &FabricAddress, stop: &Stop, seen: &mut Vec<AcceptStep>) -> Result<(), String> {
    let mut line = Line::connect(at, Versions::One).map_err(|error| error.to_string())?;
    let mut last = Instant::now();
    loop {
        let (steps, is_done) = match line.ask(&Question::Suite)? {
            Reply::Suite { steps, is_done } => (steps, is_done),
            other => return Err(format!("the server says {other:?}")),
        };
        if steps.len() > seen.len() {
            last = Instant::now();
        }
        *seen = steps;
        if is_done || stop.is_asked() {
            return Ok(());
        }
        if last.elapsed() > SUITE_MAX {
            return Err(format!("no case ended within {} s", SUITE_MAX.as_secs()));
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_come_without_its_port() {
        for (url, at) in [
            ("iwarp://127.0.0.1", "iwarp://127.0.0.1:20051"),
            ("iwarp://[::1]", "iwarp://[::1]:20051"),
            ("iwarp://127.0.0.1:7", "iwarp://127.0.0.1:7"),
            ("shm:///run/s?trust=uid", "shm:///run/s?trust=uid"),
        ] {
            assert_eq!(address(url).unwrap().to_string(), at);
        }
        for (url, part) in [("iwarp://host", "write rdma://IP"), ("127.0.0.1", "no scheme")] {
            let error = address(url).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
