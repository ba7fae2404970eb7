//! `stag bench`: measures a server. `stag echo`: something to measure.

pub mod echo;
mod files;
mod host;
pub mod options;
mod run;
mod show;

use crate::{
    Error,
    call::{Server, Url},
    caller::{self, say},
    progress::Progress,
};
use options::{Bench, Compare, Run, What};
use serde_json::json;
use stag_load::bench::{
    Outcome,
    compare::{self, Rules},
    outcome::Second,
};
use std::{fs, path::Path};

/// Runs, and says what came of it.
pub fn run(arguments: &Bench) -> Result<(), Error> {
    if let Some(What::Compare(arguments)) = &arguments.what {
        return compare(arguments);
    }
    let outcomes = measure(&arguments.run)?;
    if arguments.run.json.as_deref() != Some(Path::new("-")) {
        say(show::table(&outcomes));
    }
    if let Some(to) = &arguments.run.json {
        write(to, &json(&outcomes)?)?;
    }
    match outcomes.iter().find_map(|outcome| Some((outcome.failed, outcome.failure.as_ref()?))) {
        Some((failed, first)) => Err(Error::failure(format!("{failed} calls failed; the first: {first}"))),
        None => Ok(()),
    }
}

/// One run for each size and rate.
fn measure(arguments: &Run) -> Result<Vec<Outcome>, Error> {
    let url = arguments.url.as_deref().ok_or_else(|| {
        Error::usage("say what to measure: 'stag bench URL --workload NAME', for example against 'stag echo'")
    })?;
    let url = Url::parse(url)?;
    check(arguments, &url)?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => u64::from_ne_bytes(caller::random()?),
    };
    let one = vec![arguments.size.0.first().copied().unwrap_or(0)];
    let sizes = if arguments.workload.has_payload() { arguments.size.0.clone() } else { one };
    let rates: Vec<_> = match &arguments.rate {
        Some(rates) => rates.0.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let mut outcomes = Vec::new();
    for size in sizes {
        for rate in &rates {
            let mut progress = Progress::new(false);
            let mut live = |second: &Second| progress.begin(&show::live(second), None);
            let setup = run::setup(arguments, &url, (size, *rate, seed));
            let outcome = run::run(arguments, &url, setup, &mut live)?;
            let is_broken = outcome.failure.is_some();
            outcomes.push(outcome);
            if is_broken {
                return Ok(outcomes);
            }
        }
    }
    Ok(outcomes)
}

/// What cannot be had together.
fn check(arguments: &Run, url: &Url) -> Result<(), Error> {
    if arguments.workload.is_nfs() && url.path == b"/" {
        return Err(Error::usage(format!(
            "{} needs an export: write {url}/NAME as 'stag call {url} mount' shows it",
            arguments.workload
        )));
    }
    let cores = stag_engine::launch::cores().len().max(1);
    if usize::from(arguments.cores) > cores {
        return Err(Error::usage(format!(
            "--cores {} is more than the {cores} that this process may use: give a lower number",
            arguments.cores
        )));
    }
    if arguments.connections < arguments.cores {
        return Err(Error::usage(format!(
            "--connections {} is less than --cores {}: each core has at least one",
            arguments.connections, arguments.cores
        )));
    }
    if matches!(url.server, Server::Tcp(_)) && url.mount.is_some() && !arguments.workload.is_nfs() {
        return Err(Error::usage("mountport= is for nfs3 workloads"));
    }
    Ok(())
}

/// Compares two results.
fn compare(arguments: &Compare) -> Result<(), Error> {
    let read = |path: &Path| {
        let wrong = |why: String| Error::usage(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Outcome::parse(&text).map_err(wrong)
    };
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let Compare { alpha, interleaved, .. } = *arguments;
    let rules = Rules { noise: arguments.noise / 100.0, alpha, interleaved };
    let changes = compare::compare(&before, &after, rules).map_err(Error::Refused)?;
    let is_worse = compare::is_worse(&changes);
    if arguments.json {
        let value = json!({ "rules": rules, "changes": changes, "worse": is_worse });
        say(format!("{value:#}\n"));
    } else {
        say(show::changes(&changes));
    }
    match is_worse {
        true => Err(Error::failure(format!("{} is slower", arguments.after.display()))),
        false => Ok(()),
    }
}

/// One object for a run, a list for several.
fn json(outcomes: &[Outcome]) -> Result<String, Error> {
    let text = match outcomes {
        [one] => serde_json::to_string_pretty(one),
        several => serde_json::to_string_pretty(several),
    };
    text.map(|text| text + "\n")
        .map_err(|error| Error::failure(format!("the result cannot be written: {error}")))
}

fn write(to: &Path, text: &str) -> Result<(), Error> {
    if to == Path::new("-") {
        say(text);
        return Ok(());
    }
    fs::write(to, text).map_err(|error| Error::failure(format!("{}: {error}", to.display())))
}
