//! `stag bench`: measures a server.

mod agent;
mod checks;
mod files;
mod job;
pub mod options;
mod result_file;
mod run;
mod server_cpu;
mod shared_run;
mod show;
mod slurm;
mod top;
mod versus;

use crate::{
    Error,
    call::Url,
    caller::{self, aside, say},
    stop::Stop,
};
use checks::check;
use job::Job;
use options::{BenchOptions, BenchWhat, CompareOptions, ReportFormat, ReportOptions, RunOptions};
use result_file::ResultFile;
use run::Point;
use shared_run::SharedRun;
use top::LiveScreen;

use serde::Serialize;
use serde_json::json;
use stag_load::{
    NodesRun, RunOutcome, Workload,
    agents::NodeSecond,
    compare::{self, Rules},
    ladder::{LadderStep, Promise, Search},
    latency::{BEYOND, PERCENTILES},
    report::{
        export, html,
        model::{RunSetup, SecondFigures},
    },
    run::RunHooks,
};
use std::{ffi::OsString, fs, path::Path};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Default payload of a call, in octets.
const SIZE: usize = 4_096;
/// Of a call in the reverse direction, which has to fit inline on version 1.
const REVERSE_SIZE: usize = 1_024;
/// Of a page of READDIRPLUS.
const PAGE_SIZE: usize = 32 << 10;
/// Between the seeds of runs that follow each other.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Relative precision at which the search for the highest rate ends.
const WITHIN: f64 = 0.05;

/// Runs, and says what came of it.
pub fn run(arguments: &BenchOptions) -> Result<(), Error> {
    let with_job;
    let job = match &arguments.what {
        Some(BenchWhat::Versus(versus)) => &versus.run.job,
        _ => &arguments.run.job,
    };
    let arguments = match job {
        Some(file) => {
            with_job = with_file(arguments, file)?;
            &with_job
        }
        None => arguments,
    };
    match &arguments.what {
        Some(BenchWhat::Compare(arguments)) => return compare(arguments),
        Some(BenchWhat::Versus(arguments)) => return versus::in_turns(arguments),
        Some(BenchWhat::Report(arguments)) => return report(arguments),
        None => {}
    }
    if let Some(file) = &arguments.run.slurm {
        return slurm::run(file);
    }
    if let Some(at) = arguments.run.agent {
        return agent::serve(&arguments.run, at);
    }
    let stop = Stop::by_signals()?;
    let file = arguments.run.json.as_deref().map(ResultFile::open).transpose()?;
    let _settings = caller::settle();
    let Series { outcomes, shared } = measure(&arguments.run, &stop)?;
    if arguments.run.json.as_deref() != Some(Path::new("-")) {
        // Where nothing was answered there are no figures.
        if outcomes.iter().any(|outcome| outcome.calls > 0) {
            say(show::table(&outcomes));
        }
        shared.iter().for_each(|run| say(shared_run::table(run)));
        if arguments.run.perftest_compat {
            say(format!(
                "\nAs perftest: HALF of the full round trips, service times\n{}",
                export::perftest(&outcomes)
            ));
        }
        if let Some(promise) = &arguments.run.slo {
            say(show::promised(promise, highest(&outcomes, promise)));
        }
    }
    // A failure at the server is reported even if the file cannot be written.
    let written = file.map_or(Ok(()), |file| match shared.is_empty() {
        true => file.write(json(&outcomes)?),
        false => file.write(json_or_failure(&shared_run::document(&shared, &outcomes))?),
    });
    let failures = failure(&outcomes)
        .into_iter()
        .chain(shared_run::missing(&shared))
        .chain(written.err().map(|error| error.to_string()));
    match failures.reduce(|one, other| format!("{one}; {other}")) {
        Some(sentence) => Err(Error::failure(sentence)),
        None if stop.is_asked() => Err(Error::Stopped(
            "stopped by a signal; what was measured until then is above".to_owned(),
        )),
        None => Ok(()),
    }
}

/// The first reason for which runs failed.
fn failure(outcomes: &[RunOutcome]) -> Option<String> {
    let failed =
        outcomes.iter().find_map(|outcome| match (outcome.failed, outcome.failure.as_ref()?) {
            (0 | 1, first) => Some(first.clone()),
            (failed, first) => Some(format!("{failed} calls failed; the first: {first}")),
        });
    failed.or_else(|| outcomes.iter().find_map(|outcome| outcome.left_behind.clone()))
}

/// The arguments again, placed after those of the job file: the last value counts.
fn with_file(given: &BenchOptions, file: &Path) -> Result<BenchOptions, Error> {
    let wrong = |why: String| Error::usage(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let job = Job::parse(&text, &BenchOptions::definition()).map_err(wrong)?;
    let own = std::env::args_os().skip(2);
    let mut words: Vec<OsString> = Vec::new();
    if given.what.is_some() {
        words.push("versus".into());
        words.extend(job.flags);
        words.extend(own.skip(1));
    } else {
        words.extend(job.flags);
        words.extend(own);
        if given.run.url.is_none() {
            words.extend(job.url.map(OsString::from));
        }
    }
    BenchOptions::read(words).map_err(wrong)
}

/// Outcomes of one run after the other; of runs of several nodes, also each node's.
#[derive(Default)]
struct Series {
    outcomes: Vec<RunOutcome>,
    shared: Vec<NodesRun>,
}

/// One run for each size and rate.
fn measure(arguments: &RunOptions, stop: &Stop) -> Result<Series, Error> {
    let url = arguments.url.as_deref().ok_or_else(|| {
        Error::usage(
            "say what to measure: 'stag bench URL --workload NAME', for example against \
                      'stag echo'",
        )
    })?;
    let url = Url::parse(url)?.with_sec(arguments.sec)?;
    let mut nodes = match &arguments.nodes {
        Some(names) => Some(agent::meet(arguments, &names.0, stop)?),
        None => {
            check(arguments, &url)?;
            None
        }
    };
    let mut shared = Vec::new();
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => u64::from_ne_bytes(caller::random()?),
    };
    let sizes = sizes(arguments);
    let rates: Vec<_> = match &arguments.rate {
        Some(rates) => rates.0.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let top = arguments.top.then(|| LiveScreen::open(stop)).flatten();
    let mut one = |size, rate| {
        let point = Point { size, rate, seed };
        let setup = run::setup(arguments, &url, point);
        if let Some(top) = &top {
            top.begin(&setup);
        }
        let mut live = |second: &SecondFigures, nodes: &[NodeSecond<'_>]| match &top {
            Some(top) => top.show(second, nodes),
            None => aside(show::live(second) + "\n"),
        };
        if let Some(nodes) = &mut nodes {
            let run = SharedRun { arguments, url: &url, point, nodes: nodes.count() };
            let run = nodes.run(&|number| run.share(number), &stop.flag(), &mut live)?;
            let outcome = run.result.clone();
            shared.push(run);
            return Ok(outcome);
        }
        let mut live = |second: &SecondFigures| live(second, &[]);
        let mut hooks = RunHooks { begin: &mut || Some(run::LEAD), live: &mut live };
        run::run(arguments, &url, stop, setup, &mut hooks)
    };
    let mut outcomes = Vec::new();
    if let Some(promise) = &arguments.slo {
        let size = sizes.first().copied().unwrap_or(0);
        outcomes = search(arguments, promise, |rate| one(size, Some(rate)))?;
        return Ok(Series { outcomes, shared });
    }
    'ladder: for size in sizes {
        for rate in &rates {
            let outcome: RunOutcome = one(size, *rate)?;
            let is_last = outcome.failure.is_some() || outcome.stopped;
            outcomes.push(outcome);
            if is_last {
                break 'ladder;
            }
        }
    }
    Ok(Series { outcomes, shared })
}

/// Octets of payload to be tried.
fn sizes(arguments: &RunOptions) -> Vec<usize> {
    match &arguments.size {
        Some(sizes) if arguments.workload.has_size() => sizes.0.clone(),
        _ => vec![match arguments.workload {
            Workload::Reverse => REVERSE_SIZE,
            Workload::ReadDirPlus => PAGE_SIZE,
            _ => SIZE,
        }],
    }
}

/// Returns the parameters of the first run of a ladder.
fn first_setup(arguments: &RunOptions, url: &Url, seed: u64) -> RunSetup {
    let rate = arguments.rate.as_ref().and_then(|rates| rates.0.first().copied());
    let size = sizes(arguments).first().copied().unwrap_or(SIZE);
    run::setup(arguments, url, Point { size, rate, seed })
}

/// Runs at one rate after the other, to find the highest that keeps the promise.
fn search(
    arguments: &RunOptions,
    promise: &Promise,
    mut one: impl FnMut(f64) -> Result<RunOutcome, Error>,
) -> Result<Vec<RunOutcome>, Error> {
    let quantile = PERCENTILES
        .iter()
        .find(|(name, _)| *name == promise.percentile)
        .map_or(0.5, |(_, quantile)| *quantile);
    // A lower rate has too few samples for the percentile; Poisson times may give somewhat fewer
    // than the rate says.
    let lowest = BEYOND / (1.0 - quantile) * 1.2 / arguments.duration.unwrap_or(run::DURATION);
    let first =
        arguments.rate.as_ref().and_then(|rates| rates.0.first().copied()).unwrap_or(1_000.0);
    let (mut search, mut outcomes) = (Search::new(first, lowest..=1e8, WITHIN), Vec::new());
    while let LadderStep::Try(rate) = search.step() {
        let outcome = one(rate)?;
        let is_last = outcome.failure.is_some() || outcome.stopped;
        search.note(is_kept(&outcome, promise));
        outcomes.push(outcome);
        if is_last {
            break;
        }
    }
    Ok(outcomes)
}

/// Returns true if a run keeps a promise: every call was made in time, and the percentile is known
/// and within the limit.
fn is_kept(outcome: &RunOutcome, promise: &Promise) -> bool {
    let time = outcome.response.percentile(&promise.percentile);
    !outcome.stopped
        && outcome.unsent == 0
        && outcome.failed == 0
        && time.is_some_and(|micros| micros <= promise.at_most_us)
}

/// The highest rate among the outcomes that keep the promise.
fn highest(outcomes: &[RunOutcome], promise: &Promise) -> Option<f64> {
    let kept = outcomes.iter().filter(|outcome| is_kept(outcome, promise));
    kept.filter_map(|outcome| outcome.setup.rate).max_by(f64::total_cmp)
}

/// Writes results in other forms.
fn report(arguments: &ReportOptions) -> Result<(), Error> {
    let mut outcomes = Vec::new();
    for path in &arguments.results {
        outcomes.extend(read(path)?);
    }
    let wrong = |why: String| Error::usage(format!("a result cannot be used: {why}"));
    let single = || match outcomes.as_slice() {
        [one] => Ok(one),
        _ => Err(Error::usage("--hgrm and --hdr-log are for one result: give one, of one run")),
    };
    if let Some(to) = &arguments.html {
        ResultFile::open(to)?.write(html::page(&outcomes).map_err(wrong)?)?;
    }
    if let Some(to) = &arguments.hgrm {
        ResultFile::open(to)?.write(export::hgrm(&single()?.response).map_err(wrong)?)?;
    }
    if let Some(to) = &arguments.hdr_log {
        ResultFile::open(to)?.write(export::log(single()?).map_err(wrong)?)?;
    }
    match arguments.format {
        Some(ReportFormat::Fio) => say(format!("{:#}\n", export::fio(&outcomes))),
        Some(ReportFormat::Perftest) => say(export::perftest(&outcomes)),
        None => {}
    }
    Ok(())
}

/// The results in a file.
fn read(path: &Path) -> Result<Vec<RunOutcome>, Error> {
    let wrong = |why: String| Error::usage(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    RunOutcome::parse_all(&text).map_err(wrong)
}

/// Compares two results.
fn compare(arguments: &CompareOptions) -> Result<(), Error> {
    let wrong = |path: &Path, what: &str| Error::usage(format!("{}: {what}", path.display()));
    let one = |path: &Path| match <[RunOutcome; 1]>::try_from(read(path)?) {
        Ok([one]) => Ok(one),
        Err(_) => Err(wrong(path, "it holds several runs, and one is compared")),
    };
    let (before, after) = match &arguments.after {
        Some(after) => (one(&arguments.before)?, one(after)?),
        None => match <[RunOutcome; 2]>::try_from(read(&arguments.before)?) {
            Ok([before, after]) => (before, after),
            Err(_) => {
                return Err(wrong(
                    &arguments.before,
                    "it does not hold the two runs of 'stag bench versus': name two results",
                ));
            }
        },
    };
    let CompareOptions { alpha, interleaved, .. } = *arguments;
    let rules = Rules { noise: arguments.noise / 100.0, alpha, interleaved };
    let after_url = after.setup.url.clone();
    let changes = compare::compare(&before, &after, rules).map_err(Error::Refused)?;
    let settings = compare::settings(&before, &after);
    let is_worse = compare::is_worse(&changes);
    if arguments.json {
        let value = json!({
            "rules": rules, "changes": changes, "settings": settings, "worse": is_worse,
        });
        say(format!("{value:#}\n"));
    } else {
        say(show::changes(&changes));
        if !settings.is_empty() {
            say(format!(
                "note: the host had other settings: {} ('stag tune check --explain ID')\n",
                settings.join(", ")
            ));
        }
    }
    match is_worse {
        true => Err(Error::failure(match &arguments.after {
            Some(after) => format!("{} is slower", after.display()),
            None => format!("B, {}, is slower", after_url),
        })),
        false => Ok(()),
    }
}

/// One object for a run, a list for several.
fn json(outcomes: &[RunOutcome]) -> Result<String, Error> {
    match outcomes {
        [one] => json_or_failure(one),
        several => json_or_failure(several),
    }
}

fn json_or_failure(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Error::failure(format!("the result cannot be written: {error}")))
}
