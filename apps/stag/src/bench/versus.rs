//! `stag bench versus`: two servers measured in turns.

use super::{
    SEED_STEP, check, first_setup, json_or_failure,
    options::{RunOptions, VersusOptions},
    result_file::ResultFile,
    run, show,
};
use crate::{
    Error,
    call::Url,
    caller::{self, say},
    progress::Progress,
    stop::Stop,
};
use serde_json::json;
use stag_load::{
    RunOutcome,
    compare::Rules,
    report::model::{SecondFigures, VERSUS_SCHEMA},
    run::RunHooks,
    versus::{self, Round},
};
use std::path::Path;

/// Default seconds of each run: measured time, and warm-up.
const DURATION: f64 = 2.0;
const WARM_UP: f64 = 0.5;

/// Measures both in turns, and says whether the second is slower than the first.
pub fn in_turns(arguments: &VersusOptions) -> Result<(), Error> {
    let (one, other) = match (&arguments.run.url, &arguments.other) {
        (Some(one), Some(other)) => {
            let sec = arguments.run.sec;
            (Url::parse(one)?.with_sec(sec)?, Url::parse(other)?.with_sec(sec)?)
        }
        _ => return Err(Error::usage("say what to compare: 'stag bench versus URL_A URL_B'")),
    };
    let run = RunOptions {
        duration: arguments.run.duration.or(Some(DURATION)),
        warm_up: arguments.run.warm_up.or(Some(WARM_UP)),
        ..arguments.run.clone()
    };
    check_both(arguments, &run, [&one, &other])?;
    let stop = Stop::by_signals()?;
    let file = run.json.as_deref().map(ResultFile::open).transpose()?;
    let rounds = rounds(arguments, &run, [&one, &other], &stop)?;
    let rules = Rules { noise: arguments.noise / 100.0, alpha: arguments.alpha, interleaved: true };
    let ratios = versus::ratios(&rounds, rules);
    let urls = [one.to_string(), other.to_string()];
    if run.json.as_deref() != Some(Path::new("-")) {
        let [one, other] = &urls;
        say(show::versus([one, other], &rounds, ratios.as_deref().unwrap_or_default()));
    }
    if let Some(file) = file {
        let turns = format!("{:016x}", u64::from_ne_bytes(caller::random()?));
        let merged = |of: fn(&Round) -> &RunOutcome| {
            versus::merged(rounds.iter().map(of), &turns).map_err(Error::failure)
        };
        let results = [merged(|round| &round.before)?, merged(|round| &round.after)?];
        let value = json!({
            "schema": VERSUS_SCHEMA,
            "rules": rules,
            "refused": ratios.as_ref().err(),
            "ratios": ratios.as_ref().ok(),
            "worse": ratios.as_deref().map(versus::is_worse).ok(),
            "rounds": rounds.iter().map(|round| json!({
                "counts": round.counts(),
                "floors_ns": round.floors().map(|(low, high)| [low, high]),
                "before": round.before,
                "after": round.after,
            })).collect::<Vec<_>>(),
            "results": results.iter().flatten().collect::<Vec<_>>(),
        });
        file.write(json_or_failure(&value)?)?;
    }
    if stop.is_asked() {
        return Err(Error::Stopped(format!("stopped by a signal after {} rounds", rounds.len())));
    }
    match ratios.map_err(Error::Refused)? {
        ratios if versus::is_worse(&ratios) => {
            let [one, other] = urls;
            Err(Error::failure(format!("B, {other}, is slower than A, {one}")))
        }
        _ => Ok(()),
    }
}

/// Refuses arguments that cannot be combined.
fn check_both(arguments: &VersusOptions, run: &RunOptions, urls: [&Url; 2]) -> Result<(), Error> {
    urls.iter().try_for_each(|url| check(run, url))?;
    if run.nodes.is_some() {
        return Err(Error::usage("versus measures from this host: leave --nodes out"));
    }
    let is_ladder = run.size.as_ref().is_some_and(|sizes| sizes.0.len() > 1)
        || run.rate.as_ref().is_some_and(|rates| rates.0.len() > 1);
    if is_ladder || run.slo.is_some() {
        return Err(Error::usage(
            "versus compares by one kind of run: give one --size, one --rate, and no --slo",
        ));
    }
    let needed = versus::rounds_min(arguments.alpha);
    if usize::from(arguments.rounds) < needed {
        return Err(Error::usage(format!(
            "--rounds {} is too few to say anything with --alpha {}: give at least {needed}",
            arguments.rounds, arguments.alpha
        )));
    }
    Ok(())
}

/// Measures in turns until the last round, the first failure, or until it is stopped; a round that
/// was stopped is left out.
fn rounds(
    arguments: &VersusOptions,
    run: &RunOptions,
    urls: [&Url; 2],
    stop: &Stop,
) -> Result<Vec<Round>, Error> {
    let seed = run.seed.map_or_else(|| caller::random().map(u64::from_ne_bytes), Ok)?;
    let mut rounds = Vec::new();
    for number in 0..u64::from(arguments.rounds) {
        // Both of a round draw alike.
        let seed = seed.wrapping_add(number.wrapping_mul(SEED_STEP));
        let measure = |which: usize| {
            let url = urls.get(which).copied().expect("there are two");
            let mut progress = Progress::new(false);
            let name = if which == 0 { "A" } else { "B" };
            let mut live = |second: &SecondFigures| {
                let line = format!(
                    "round {} of {}, {name}: {}",
                    number + 1,
                    arguments.rounds,
                    show::live(second)
                );
                progress.begin(&line, None);
            };
            let begin = &mut || Some(run::LEAD);
            let mut hooks = RunHooks { begin, live: &mut live };
            run::run(run, url, stop, first_setup(run, url, seed), &mut hooks)
        };
        // Who is first is so in every second round.
        let (before, after) = match number % 2 {
            0 => {
                let before = measure(0)?;
                (before, measure(1)?)
            }
            _ => {
                let after = measure(1)?;
                (measure(0)?, after)
            }
        };
        if stop.is_asked() {
            break;
        }
        let is_broken = before.failure.is_some() || after.failure.is_some();
        rounds.push(Round { before, after });
        if is_broken {
            break;
        }
    }
    Ok(rounds)
}
