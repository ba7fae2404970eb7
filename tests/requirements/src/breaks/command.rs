//! The command `break`: its arguments and its output.

use super::{
    mutate,
    plan::{self, BreakJob},
    progress::BreakProgress,
    run::{BreakLimits, Runner},
    table::{BreakRow, BreakTable, BreakVerdict},
    workspace::Workspace,
};
use crate::{RustSources, Specification};
use clap::Args;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, SystemTime},
};

/// The head of the manual.
pub const ABOUT: &str = "\
Break the lines that rules cite and run their tests: a test that still passes shows nothing.

A rule of docs/requirements/*.toml names files, in which its id stands in a comment at the line \
that would have to change to break the \
rule, and tests. Each such line is changed in a copy of the workspace (a condition that never \
holds, a statement that is gone, another \
operator, a constant moved by one), one change at a time until one compiles, and the rule's tests \
are run there. Your files stay as \
they are; only --all and --rule write, and only the table docs/requirements/broken.toml and its \
page broken.md.";

/// The foot of the manual.
pub const FOOTER: &str = "\
VERDICTS
  caught            a test failed
  hung              a test that ends soon otherwise did not end, and was stopped
  refused           an assertion that the compiler checks does not hold
  survived          the tests pass though the line is changed: the id stands at the wrong line \
  (move the
                    comment), the change alters nothing (write one that does into the rule), or the
                    test is weak (strengthen it)
  nothing compiled  no change of the line is a program: write one into the rule
  fails whole       the test fails while all lines are whole
  not run here      the test needs a guest, a device or a tool that is not here; or its program is
                    not built of the line's file, which needs a feature, or stands in a crate that
                    the test does not use (name a test of that crate)

A CHANGE OF YOUR OWN
  In the rule's table; 'from' stands in the file once. It takes the place of the automatic ones \
  there:
    breaks = [{ file = \"a/src/x.rs\", from = \"if len > MAX {\", to = \"if false {\" }]

EXAMPLES
  cargo run -p stag-requirements -- break --rule 8166-12
  cargo run -p stag-requirements -- break --rule 8166-12 --list    the changes that would be tried
  nice cargo run -p stag-requirements -- break --all --resume      the rest; may be stopped at any \
  time
  cargo run -p stag-requirements -- break --sample 20              what the gate does

EXIT CODES
  0  every line that was broken was noticed    1  one was not    2  the command could not be \
  carried out";

/// The least time a test gets, however soon it ends otherwise: other programs may keep the cores
/// busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// The arguments of `break`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("which").required(true).args(["rule", "all", "sample", "table"])
)]
pub struct BreakCommand {
    /// A rule to break; may be given several times
    #[arg(long, value_name = "ID")]
    rule: Vec<String>,
    /// Break all rules
    #[arg(long)]
    all: bool,
    /// Break N rules, drawn at random from those that the table shows as noticed
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Print the table's sums and whatever was not noticed; break nothing
    #[arg(long)]
    table: bool,
    /// Draw by this number, as an earlier run printed it [default: the time]
    #[arg(long, value_name = "S", conflicts_with_all = ["rule", "all", "table"])]
    seed: Option<u64>,
    /// Leave out lines that the table shows as noticed and that did not change since
    #[arg(long, conflicts_with_all = ["sample", "table"])]
    resume: bool,
    /// Print the changes that would be tried; build nothing
    #[arg(long, conflicts_with = "table")]
    list: bool,
    /// Changes of one line that have to compile and go unseen before it counts as survived
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(1..)
    )]
    tries: u8,
    /// Print one line of JSON for each rule and line
    #[arg(long)]
    json: bool,
    /// Keep the copy and its build results from run to run [default: target/break]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Carries out the command.
///
/// # Errors
///
/// Files that cannot be read or written, a rule that is unknown, code that does not compile as it
/// stands.
pub fn run(asked: &BreakCommand) -> io::Result<ExitCode> {
    let root = crate::root();
    let folder = crate::requirements();
    let specifications = Specification::read_all(&folder)?;
    let sources = RustSources::read(&root)?;
    let all = plan::jobs(&specifications, &sources).map_err(io::Error::other)?;
    let mut table = BreakTable::read(&folder)?;
    table.follow(&specifications, &all);
    if asked.table {
        return Ok(summary(&table, &specifications));
    }
    let jobs = chosen(asked, &all, &table)?;
    if asked.list {
        return list(&jobs, &sources, asked.json);
    }
    let copy = asked.dir.clone().unwrap_or_else(|| root.join("target/break"));
    let limits = BreakLimits { tries: usize::from(asked.tries), patience: PATIENCE };
    let mut runner = Runner::new(Workspace::open(&root, &copy)?, &jobs, limits, &commit())?;
    let progress = BreakProgress::new(jobs.len() as u64);
    let mut sums: BTreeMap<BreakVerdict, usize> = BTreeMap::new();
    for job in &jobs {
        progress.begin(&format!(
            "{} {}:{}",
            job.site.rules.join(" "),
            job.site.file,
            job.site.line
        ));
        let rows = runner.run(job)?;
        let lines: Vec<String> = rows.iter().map(|row| line(row, asked.json)).collect();
        progress.end(&lines);
        for row in rows {
            *sums.entry(row.verdict).or_default() += 1;
            table.put(row);
        }
        if asked.sample.is_none() {
            table.follow(&specifications, &all);
            table.write(&folder, &specifications)?;
        }
    }
    drop(progress);
    let sums_told: Vec<String> =
        sums.iter().rev().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    eprintln!("{} lines broken: {}", jobs.len(), sums_told.join(", "));
    for test in runner.left_out() {
        eprintln!("{test} was left out: it fails with all lines whole");
    }
    Ok(ExitCode::from(u8::from(sums.keys().any(|verdict| verdict.is_finding()))))
}

/// The jobs that are asked for.
fn chosen(asked: &BreakCommand, all: &[BreakJob], table: &BreakTable) -> io::Result<Vec<BreakJob>> {
    let ids: BTreeSet<String> = all.iter().flat_map(|job| job.tests.keys().cloned()).collect();
    if let Some(unknown) = asked.rule.iter().find(|id| !ids.contains(*id)) {
        return Err(io::Error::other(format!("no rule {unknown} has lines and tests")));
    }
    let wanted = if let Some(count) = asked.sample {
        let seed = asked.seed.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            since.map_or(0, |since| u64::from(since.subsec_nanos()) ^ since.as_secs())
        });
        let known: BTreeSet<String> = ids
            .iter()
            .filter(|id| table.verdict(id).is_some_and(BreakVerdict::is_noticed))
            .cloned()
            .collect();
        eprintln!(
            "seed {seed}: {} of {} rules, without {} that the table does not show as noticed",
            count.min(known.len()),
            ids.len(),
            ids.len() - known.len()
        );
        plan::sample(&known, count, seed)
    } else if asked.all {
        ids
    } else {
        asked.rule.iter().cloned().collect()
    };
    let keep = |job: &BreakJob, id: &str| {
        let is_settled = || table.find(id, &job.site).is_some_and(|row| row.verdict.is_noticed());
        wanted.contains(id) && !(asked.resume && is_settled())
    };
    Ok(all.iter().filter_map(|job| job.clone().only(keep)).collect())
}

/// Prints what would be tried.
fn list(jobs: &[BreakJob], sources: &RustSources, as_json: bool) -> io::Result<ExitCode> {
    for job in jobs {
        let text = sources.text(&job.site.file).unwrap_or_default();
        let found = mutate::mutations(text, job.site.line).map_err(io::Error::other)?;
        let changes = if job.given.is_empty() { &found } else { &job.given };
        let rules: Vec<&String> = job.tests.keys().collect();
        let told: Vec<String> = changes.iter().map(|change| change.describe(text)).collect();
        if as_json {
            let row = serde_json::json!({
                "rules": rules,
                "file": job.site.file,
                "line": job.site.line,
                "changes": told,
            });
            println!("{row}");
            continue;
        }
        let rules = job.tests.keys().cloned().collect::<Vec<_>>().join(" ");
        println!("{rules} {}:{}  {}", job.site.file, job.site.line, job.site.text);
        changes
            .iter()
            .zip(&told)
            .for_each(|(change, told)| println!("    {told} ({})", change.why));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the table's sums and its findings.
fn summary(table: &BreakTable, specifications: &[Specification]) -> ExitCode {
    let rules = specifications.iter().flat_map(|specification| &specification.rule);
    let mut sums: BTreeMap<Option<BreakVerdict>, usize> = BTreeMap::new();
    for rule in rules.filter(|rule| !rule.tests.is_empty()) {
        *sums.entry(table.verdict(&rule.id)).or_default() += 1;
    }
    for (verdict, count) in sums.iter().rev() {
        println!(
            "{count:5} {}",
            verdict.map_or_else(|| "not run".to_owned(), |verdict| verdict.to_string())
        );
    }
    table
        .row
        .iter()
        .filter(|row| row.verdict.is_finding())
        .for_each(|row| println!("{}", line(row, false)));
    ExitCode::from(u8::from(sums.keys().flatten().any(|verdict| verdict.is_finding())))
}

fn line(row: &BreakRow, as_json: bool) -> String {
    if as_json {
        return serde_json::to_string(row).expect("a row has only texts and numbers");
    }
    let BreakRow { rule, file, text, verdict, mutation, seconds, .. } = row;
    let unseen = if row.unseen.is_empty() {
        String::new()
    } else {
        format!(", not seen: {}", row.unseen.join("; "))
    };
    format!("{verdict:16} {rule:8} {file}: {text}  {mutation}{unseen} ({seconds:.1} s)")
}

/// The commit that is broken, with a `+` when the files are not quite it; nothing without git.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).current_dir(crate::root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=10", "HEAD"]).unwrap_or_default();
    let own = ":!docs/requirements/broken.*";
    let is_changed =
        git(&["status", "--porcelain", "--", ".", own]).is_some_and(|changes| !changes.is_empty());
    format!("{head}{}", if is_changed { "+" } else { "" })
}
