//! The command line of `stag-peers`.

use crate::{
    cores::Cores,
    floor::{libcephfs::CephCalls, ring},
    goal::{GoalRound, GoalRow},
    goals::GOALS,
    host::{self, HostDescription},
    minimal,
    ours::{callers::Callers, ends::EndSettings, shards::WorkingCores, sink},
    results::{GoalVerdict, ResultLine, Results, amount, figure},
    rivals::named::{self, NamedRival},
    site::{self, MeasuringSite},
    strangers::PART_MAX,
};
use clap::{Args, Parser, Subcommand};
use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Octets of a call of `pull`.
const PULLED: usize = 1 << 20;

const ABOUT: &str = "\
Measures Stag and what others would use instead, side by side, and prints the
table of goals.

Each line of the table compares two sides: ours, and a floor of this host, a
rival, or a server made for nothing but speed. Both sides get a core each, and
take turns. A round is the floor (a ring between two threads), one side, the
other side, and the floor again; when the floor moved by more than 1.5 times in
it, the host was in another state and the round does not count; nor does it
when other programs had more than a fifth of a core meanwhile. What is said is
the median of the ratios of the rounds, with its quartiles: a ratio outlives
the host's moods, a figure in nanoseconds does not.

Cores are near (a ring of 60 to 140 ns) or far (300 ns and more), and some
hosts change between both: they are different machines. A comparison has a
line for each state that its rounds met, and each is judged by itself.

What is not installed is skipped by name, with the package that has it.";

const FOOTER: &str = "\
EXAMPLES
  cargo run --release -p stag-peers
      all goals, seven rounds each: about ten minutes. Nothing else should run.
  cargo run --release -p stag-peers -- --quick --goals G1,G3
      two goals, three short rounds: a look, not a result.
  cargo run --release -p stag-peers -- --goals G4 --json bench/results/x.json
      measures G4 again; the other lines of the file stay as they are.
  stag-peers --goals G4t,G7 --rival Chimera=tcp://127.0.0.1:2049/share
      READs of 4 KiB beside an NFS server that you started.

A RIVAL OF YOUR OWN
  Start the server where ours runs, on the first core that this program may
  use, or on another host; --rival NAME=URL then gives it lines of its own.
  The URL is that of 'stag bench': tcp://HOST:PORT/EXPORT, with ?mountport=N
  where MOUNT has a port of its own; iwarp://, rdma:// and shm:// as well. It
  speaks NFS version 3, and whoever measures may make files of 2 MiB there.
  It runs while ours is measured, too: one that spins when it is idle takes
  its core from ours. What it does on this host counts as nobody's work, so
  rounds beside it count however busy others are: look for a quiet machine.

SIGNALS
  SIGINT, SIGTERM and SIGHUP end it at once, with what it started and its
  directory. What was measured before is kept.

RESULTS
  They are kept in --json FILE, with every round and both sides' commands, and
  as a table beside it (.md). By default that is bench/results/DAY.json; with
  --quick nothing is kept. A run replaces the lines that it measured again.
  Each line has the commit and the day that it was measured at.

EXIT CODES
  0  Measured or skipped, whatever came out: the table says it.
  1  What is measured cannot be built, or results cannot be kept.
  2  Cannot start as given. One sentence on standard error says why.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "stag-peers",
    version,
    about = "Measure Stag and its peers side by side",
    long_about = ABOUT,
    after_long_help = FOOTER,
    max_term_width = 80,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true
)]
pub struct PeersCli {
    #[command(subcommand)]
    part: Option<ProcessPart>,
    #[command(flatten)]
    run: PeersRun,
}

#[derive(Debug, Args)]
struct PeersRun {
    /// Goals to measure, as in G1,G4 [default: all]
    #[arg(long, value_name = "G,…", value_delimiter = ',')]
    goals: Vec<String>,
    /// Rounds that have to count, in each state of the cores that occurs. Up to twice as many are
    /// made
    #[arg(
        long,
        value_name = "N",
        default_value_t = 7,
        value_parser = clap::value_parser!(u16).range(1..=1_000)
    )]
    rounds: u16,
    /// Seconds that one measurement lasts
    #[arg(long, value_name = "S", default_value_t = 0.6, value_parser = seconds)]
    seconds: f64,
    /// Measure a server of NFS that runs already beside ours, in lines of its own under G4t and G7:
    /// its name in the table, and the URL of an export that 'stag bench' may write to. May be given
    /// again
    #[arg(long, value_name = "NAME=URL")]
    rival: Vec<NamedRival>,
    /// Three short rounds, and nothing is kept: whether it works here
    #[arg(long)]
    quick: bool,
    /// The file of results to add to, or none [default: bench/results/DAY.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// List the goals and what each compares
    #[arg(long)]
    list: bool,
    /// Use the stag and stag-counts next to this program, instead of building them first
    #[arg(long)]
    no_build: bool,
}

/// Roles in which this program starts itself.
#[derive(Debug, Subcommand)]
enum ProcessPart {
    /// Run a program on a core, until it or this one's parent ends
    #[command(hide = true)]
    Seat {
        core: usize,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        program: Vec<OsString>,
    },
    /// Serve RPC over TCP, and nothing that takes time
    #[command(hide = true)]
    Minimal,
    /// Serve the echo program to many connections
    #[command(hide = true)]
    Answer(EndSettings),
    /// Call it as standard input says
    #[command(hide = true)]
    Call(EndSettings),
    /// Have 1 MiB pushed again and again, and print the octets per second
    #[command(hide = true)]
    Pull {
        #[command(flatten)]
        ends: EndSettings,
        #[command(flatten)]
        width: Width,
    },
    /// Call NULL by a client of the library, and print the calls per second
    #[command(hide = true)]
    Caller {
        #[command(flatten)]
        callers: Callers,
        #[command(flatten)]
        width: Width,
        /// Wait instead, and print the hundredths of a core
        #[arg(long)]
        idle: bool,
    },
    /// Make calls that nothing answers but a loop, and print the calls per second
    #[command(hide = true)]
    Sink(Width),
    /// Print the calls per second of shards that share their cores with their callers
    #[command(hide = true)]
    Shards(WorkingCores),
    /// Repeat calls of libcephfs, and print the microseconds of a core that each takes
    #[command(hide = true)]
    CephCalls(CephCalls),
    /// Print the ring's round trips for a second
    #[command(hide = true)]
    Ring,
    /// Write a file of results and its table again, in the form of this version
    #[command(hide = true)]
    Rewrite { file: PathBuf },
}

#[derive(Clone, Copy, Debug, Args)]
struct Width {
    /// Calls at a time
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Seconds that count
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.01..=100.0).contains(seconds));
    seconds.ok_or_else(|| format!("{text:?} is no number of seconds from 0.01 to 100"))
}

/// The reason why the program could not do its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeersError {
    /// It cannot be carried out as given.
    Usage(String),
    /// It failed.
    Failure(String),
}

/// Runs the command line.
///
/// # Errors
/// As [`PeersError`] says.
pub fn run(cli: PeersCli) -> Result<(), PeersError> {
    let Some(part) = cli.part else { return measure(&cli.run) };
    let print = |rate: io::Result<f64>| rate.map(|rate| println!("{rate:.0}"));
    let done = match part {
        ProcessPart::Seat { core, program } => {
            let error = site::become_seated(core, &program);
            let program = program.first().cloned().unwrap_or_default();
            return Err(PeersError::Failure(format!("{}: {error}", program.display())));
        }
        ProcessPart::Ring => return print_ring(),
        ProcessPart::Rewrite { file } => {
            return Results::rewrite(&file).map_err(PeersError::Failure);
        }
        ProcessPart::CephCalls(calls) => {
            let figure = calls.processor_us().map_err(PeersError::Failure)?;
            println!("{figure:.3}");
            return Ok(());
        }
        ProcessPart::Minimal => minimal::run(),
        ProcessPart::Answer(ends) => ends.answer(),
        ProcessPart::Call(ends) => ends.call(),
        ProcessPart::Pull { ends, width } => print(ends.pull(PULLED, width.depth, width.seconds)),
        ProcessPart::Caller { callers, idle: true, .. } => {
            return callers
                .idle()
                .map(|figure| println!("{figure:.3}"))
                .map_err(|error| PeersError::Failure(error.to_string()));
        }
        ProcessPart::Caller { callers, width, .. } => {
            print(callers.rate(width.depth, width.seconds))
        }
        ProcessPart::Shards(cores) => print(cores.rate()),
        ProcessPart::Sink(width) => print(sink::rate(width.depth, width.seconds)),
    };
    done.map_err(|error| PeersError::Failure(error.to_string()))
}

/// Prints the ring's round trips on this host.
fn print_ring() -> Result<(), PeersError> {
    let site = MeasuringSite::new(Duration::from_secs(1)).map_err(PeersError::Usage)?;
    for sample in [ring::Sample::Batches, ring::Sample::Each] {
        let mut trips =
            ring::trips(site.seats(), site.turn, sample).map_err(PeersError::Failure)?;
        let reading = crate::contender::Reading::of_trips(&mut trips);
        println!(
            "{sample:?}: p50 {:.0} ns, p99 {:.0} ns",
            reading.p50_ns.unwrap_or(0.0),
            reading.p99_ns.unwrap_or(0.0)
        );
    }
    Ok(())
}

fn measure(arguments: &PeersRun) -> Result<(), PeersError> {
    if arguments.list {
        GOALS.iter().for_each(|(name, what, _)| println!("{name:4} {what}"));
        return Ok(());
    }
    let names: Vec<_> = GOALS.iter().map(|(name, _, _)| *name).collect();
    if let Some(odd) = arguments.goals.iter().find(|goal| !names.contains(&goal.as_str())) {
        return Err(PeersError::Usage(format!(
            "no goal is called {odd:?}, only {}",
            names.join(", ")
        )));
    }
    let (rounds, turn) = match arguments.quick {
        true => (3, 0.2),
        false => (arguments.rounds, arguments.seconds),
    };
    let site = MeasuringSite::new(Duration::from_secs_f64(turn)).map_err(PeersError::Usage)?;
    site.remove_on_signals()
        .map_err(|error| PeersError::Failure(format!("cannot wait for signals: {error}")))?;
    let host = HostDescription::describe();
    let file = file(arguments);
    let mut results = match &file {
        Some(file) => Results::open(file, host).map_err(PeersError::Usage)?,
        None => Results::new(host),
    };
    if !arguments.no_build {
        build()?;
    }
    let mut shown = Results::new(results.host.clone());
    for (place, (name, what, rows)) in GOALS.into_iter().enumerate() {
        if !arguments.goals.is_empty() && !arguments.goals.iter().any(|goal| goal == name) {
            continue;
        }
        eprintln!("{name}: {what}");
        // The lines of rivals from the command line come after all others of their goal.
        let is_last = GOALS.iter().skip(place + 1).all(|(later, _, _)| *later != name);
        let named = if is_last { named::rows(name, &arguments.rival) } else { Vec::new() };
        for row in rows().into_iter().chain(named) {
            let lines = compare(&site, row, rounds.into());
            shown.put(&lines, &names);
            results.put(&lines, &names);
            if let Some(file) = &file {
                results.save(file).map_err(PeersError::Failure)?;
            }
        }
    }
    println!("{}", shown.table());
    if let Some(file) = file {
        eprintln!("kept in {} and {}", file.display(), file.with_extension("md").display());
    }
    Ok(())
}

/// Returns the file in which results are kept, if they are kept.
fn file(arguments: &PeersRun) -> Option<PathBuf> {
    match &arguments.json {
        Some(file) if file == Path::new("none") => None,
        Some(file) => Some(file.clone()),
        None if arguments.quick => None,
        None => {
            let folder = Path::new("bench/results");
            folder.is_dir().then(|| folder.join(format!("{}.json", host::date(host::now()))))
        }
    }
}

/// Builds the measured programs from this source. Without cargo, the programs next to this one are
/// used.
fn build() -> Result<(), PeersError> {
    let Some(cargo) = env::var_os("CARGO") else { return Ok(()) };
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet", "-p", "stag", "-p", "stag-bench", "--bins"]);
    if let Some(target) =
        env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.to_owned()))
    {
        command.arg("--target-dir").arg(target);
    }
    eprintln!("building what is measured");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(PeersError::Failure("stag cannot be built: see above".to_owned())),
    }
}

/// All rounds of a row.
fn compare(site: &MeasuringSite, mut row: GoalRow, wanted: usize) -> Vec<ResultLine> {
    eprintln!("  {}, against {} ({})", row.what, row.against(), row.bound);
    if let Err(absence) = row.start(site) {
        eprintln!("    skipped: {absence}");
        return ResultLine::all(&row, Vec::new(), Some(absence.to_string()));
    }
    let wanted = if row.is_exact { 1 } else { wanted };
    let (mut rounds, mut failure) = (Vec::new(), None);
    for number in 0..wanted * 2 {
        match row.round(site, number) {
            Ok(round) => {
                eprintln!("    {}", told(&row, &round, number));
                rounds.push(round);
            }
            Err(why) => {
                eprintln!("    round {}: {why}", number + 1);
                failure = Some(why);
                // A row that fails twice will fail again.
                if rounds.is_empty() && number > 0 {
                    break;
                }
            }
        }
        if is_enough(&rounds, wanted) {
            break;
        }
    }
    let lines = ResultLine::all(&row, rounds, failure);
    for line in &lines {
        let median =
            line.figure.map_or_else(|| "nothing".to_owned(), |spread| figure(spread.median));
        let verdict = match &line.verdict {
            GoalVerdict::Met => "met",
            GoalVerdict::NotMet => "not met",
            GoalVerdict::Beside => "beside the goal",
            GoalVerdict::NotMeasured(_) => "not measured",
        };
        let cores = line.cores.map_or_else(String::new, |state| format!(" on {state} cores"));
        eprintln!("    {median}{cores}: {verdict}");
    }
    lines
}

/// True when each state of the cores that occurred has as many rounds that count as are wanted.
fn is_enough(rounds: &[GoalRound], wanted: usize) -> bool {
    let counting = || rounds.iter().filter(|round| round.counts);
    let of = |state| counting().filter(|round| round.cores() == state).count();
    counting().next().is_some() && counting().all(|round| of(round.cores()) >= wanted)
}

/// A round in a line.
fn told(row: &GoalRow, round: &GoalRound, number: usize) -> String {
    let side = |reading| {
        row.quantity
            .of(reading)
            .map_or_else(String::new, |number| amount(number, row.quantity.unit()))
    };
    let floors = round.floors_ns.map_or_else(String::new, |[before, after]| {
        format!("{}, floor {before:.0}, {after:.0} ns; ", Cores::of([before, after]))
    });
    let theirs = round
        .theirs
        .as_ref()
        .map_or_else(String::new, |theirs| format!(", theirs {}", side(theirs)));
    let moved = match round.strangers {
        _ if round.counts => String::new(),
        Some(part) if part > PART_MAX => {
            format!(" (others had {:.0} % of a core: it does not count)", part * 100.0)
        }
        _ => " (the floor moved: it does not count)".to_owned(),
    };
    format!(
        "round {}: {floors}ours {}{theirs}: {}{moved}",
        number + 1,
        side(&round.ours),
        figure(round.figure)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_fits_a_terminal() {
        PeersCli::command().debug_assert();
        for line in ABOUT.lines().chain(FOOTER.lines()) {
            assert!(line.chars().count() <= 79, "{line}");
        }
    }

    #[test]
    fn results_are_kept_but_for_a_quick_look() {
        let kept = |words: &[&str]| {
            let cli = PeersCli::try_parse_from([&["stag-peers"], words].concat()).unwrap();
            file(&cli.run)
        };
        assert_eq!(kept(&["--json", "x.json"]), Some(PathBuf::from("x.json")));
        assert_eq!(kept(&["--json", "x.json", "--quick"]), Some(PathBuf::from("x.json")));
        assert_eq!((kept(&["--json", "none"]), kept(&["--quick"])), (None, None));
    }

    #[test]
    fn rivals_are_named_as_often_as_wanted_and_help_teaches_how() {
        let parse = |words: &[&str]| PeersCli::try_parse_from([&["stag-peers"], words].concat());
        let rivals = parse(&["--rival", "A=tcp://h:1/x", "--rival=B=iwarp://h:2/y"]).unwrap();
        let names: Vec<_> = rivals.run.rival.iter().map(|rival| rival.name.as_str()).collect();
        assert_eq!(names, ["A", "B"]);
        let refused = parse(&["--rival", "tcp://h:1/x"]).unwrap_err().to_string();
        assert!(refused.contains("--rival") && refused.contains("NAME=URL"), "{refused}");
        let help = PeersCli::command().render_long_help().to_string();
        for part in ["--rival <NAME=URL>", "A RIVAL OF YOUR OWN", "?mountport=N"] {
            assert!(help.contains(part), "{part}");
        }
    }

    #[test]
    fn rounds_go_on_until_each_state_that_occurred_has_enough() {
        let round = |floor: f64, counts| GoalRound {
            floors_ns: Some([floor; 2]),
            strangers: None,
            ours: crate::contender::Reading::default(),
            theirs: None,
            figure: 1.0,
            counts,
        };
        let of = |floors: &[f64]| {
            is_enough(&floors.iter().map(|floor| round(*floor, true)).collect::<Vec<_>>(), 2)
        };
        assert!(!of(&[]) && !of(&[90.0]) && of(&[90.0, 91.0]));
        assert!(!of(&[90.0, 91.0, 310.0]) && of(&[90.0, 91.0, 310.0, 320.0]));
        assert!(!is_enough(&[round(90.0, false), round(90.0, false)], 2));
    }

    #[test]
    fn times_are_seconds_of_a_sensible_length() {
        assert_eq!((seconds("0.5"), seconds("100")), (Ok(0.5), Ok(100.0)));
        for odd in ["", "0", "-1", "nan", "101", "5s"] {
            assert!(seconds(odd).is_err(), "{odd}");
        }
    }
}
