//! Gives inputs to the targets for as long as the user likes, and prints their number.
//!
//! `README.md` of this crate has the commands.
#![forbid(unsafe_code)]

use std::{
    fs,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use stag_fuzz::{
    FuzzTarget, InputFailure, Session, TARGETS, corpus, find,
    run::{attempt, shrink},
};

const USAGE: &str = "usage: stag-fuzz [TARGET ...] [--seconds N] [--seed N] [--input FILE]

  TARGET       a name that --list shows; all of them without one
  --seconds N  seconds for each target (10)
  --seed N     the session's seed (the time)
  --input FILE gives this one input to TARGET instead
  --list       shows the targets";

struct Options {
    targets: Vec<&'static FuzzTarget>,
    seconds: u64,
    seed: u64,
    input: Option<String>,
}

fn options() -> Result<Option<Options>, String> {
    let mut arguments = std::env::args().skip(1);
    let since_1970 =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut options =
        Options { targets: Vec::new(), seconds: 10, seed: since_1970.as_secs(), input: None };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match argument.as_str() {
            "--seconds" => options.seconds = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--input" => options.input = Some(value()?),
            "--list" => {
                TARGETS.iter().for_each(|target| println!("{}", target.name));
                return Ok(None);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(None);
            }
            name => options
                .targets
                .push(find(name).ok_or(format!("no target {name}; --list shows them"))?),
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.iter().collect();
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    match options().and_then(|options| options.map_or(Ok(true), |options| run(&options))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("stag-fuzz: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs the targets, or the one input given; returns true if no property failed.
fn run(options: &Options) -> Result<bool, String> {
    if let Some(file) = &options.input {
        let [target] = options.targets[..] else {
            return Err("--input is for one target".to_owned());
        };
        let octets = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        return Ok(match attempt(target, &octets) {
            Ok(verdict) => {
                println!("{}: {verdict:?}", target.name);
                true
            }
            Err(failure) => report(target, failure),
        });
    }
    println!("seed {}", options.seed);
    println!(
        "{:20} {:>12} {:>10} {:>9} {:>9}",
        "target", "executions", "per second", "accepted", "outcomes"
    );
    let mut good = true;
    let mut total = 0;
    for target in &options.targets {
        let mut session = Session::new(target, options.seed);
        let (start, limit) = (Instant::now(), Duration::from_secs(options.seconds));
        let batch = if target.is_slow { 16 } else { 4096 };
        let mut outcome = Ok(());
        while start.elapsed() < limit && outcome.is_ok() {
            outcome = session.run(batch);
        }
        let per_second = session.executions as f64 / start.elapsed().as_secs_f64();
        let share = 100.0 * session.accepted as f64 / session.executions.max(1) as f64;
        let (executions, outcomes) = (session.executions, session.outcomes());
        println!(
            "{:20} {executions:>12} {per_second:>10.0} {share:>8.1}% {outcomes:>9}",
            target.name
        );
        // Readers of a log have to see each line when it is written.
        let _ = std::io::stdout().flush();
        total += executions;
        if let Err(failure) = outcome {
            good = report(target, failure);
        }
    }
    println!("{:20} {total:>12}", "all");
    Ok(good)
}

/// Saves a short input that fails; `false`.
fn report(target: &FuzzTarget, failure: InputFailure) -> bool {
    println!("{failure}");
    let failure = shrink(target, failure);
    let hash = failure.input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    });
    let folder = corpus::home().join("regressions").join(target.name);
    let file = folder.join(format!("{hash:016x}"));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &failure.input)) {
        Ok(()) => println!("shortest: {failure}\nsaved as {}", file.display()),
        Err(error) => println!("shortest: {failure}\nnot saved: {error}"),
    }
    false
}
