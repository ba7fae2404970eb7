//! Writes the pages of `docs/requirements`, prints the totals and the errors in rules, code or
//! tests. With `break`, breaks the lines that rules cite and runs their tests.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use stag_requirements::{
    RustSources, Specification,
    breaks::{command, plan, table::BreakTable},
    page,
};
use std::{fs, io, process::ExitCode};

#[derive(Parser)]
#[command(
    name = "stag-requirements",
    about = "Write the pages of docs/requirements; print the totals and whatever does not hold \
        together",
    disable_help_subcommand = true
)]
struct RequirementsCli {
    #[command(subcommand)]
    command: Option<RequirementsTask>,
}

#[derive(Subcommand)]
enum RequirementsTask {
    /// Break the lines that rules cite and run their tests
    #[command(long_about = command::ABOUT, after_long_help = command::FOOTER)]
    Break(command::BreakCommand),
}

fn main() -> ExitCode {
    let done = match RequirementsCli::parse().command {
        None => pages(),
        Some(RequirementsTask::Break(asked)) => command::run(&asked),
    };
    done.unwrap_or_else(|error| {
        eprintln!("stag-requirements: {error}");
        ExitCode::from(2)
    })
}

fn pages() -> io::Result<ExitCode> {
    let folder = stag_requirements::requirements();
    let specifications = Specification::read_all(&folder)?;
    for (name, text) in page::all(&specifications) {
        fs::write(folder.join(name), text)?;
    }
    let sources = RustSources::read(&stag_requirements::root())?;
    let mut table = BreakTable::read(&folder)?;
    // Lines changed since they were broken lose their rows; a mistake in a rule is reported below.
    if let Ok(jobs) = plan::jobs(&specifications, &sources) {
        table.follow(&specifications, &jobs);
    }
    table.write(&folder, &specifications)?;
    print!("{}", page::totals(&specifications));
    let problems = stag_requirements::problems(&specifications, &sources);
    for problem in &problems {
        eprintln!("{problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
