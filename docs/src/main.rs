//! Writes the pages of `docs/requirements`, prints the totals and what is wrong with rules, code or
//! tests. With `break`, breaks the lines that rules cite and runs their tests.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use stag_docs::{
    Sources, Specification,
    breaks::{command, plan, table::Table},
    page,
};
use std::{fs, io, process::ExitCode};

#[derive(Parser)]
#[command(
    name = "stag-docs",
    about = "Write the pages of docs/requirements; print the totals and whatever does not hold together",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    /// Break the lines that rules cite and run their tests
    #[command(long_about = command::ABOUT, after_long_help = command::FOOTER)]
    Break(command::Break),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        None => pages(),
        Some(Task::Break(asked)) => command::run(&asked),
    };
    done.unwrap_or_else(|error| {
        eprintln!("stag-docs: {error}");
        ExitCode::from(2)
    })
}

fn pages() -> io::Result<ExitCode> {
    let folder = stag_docs::requirements();
    let specifications = Specification::read_all(&folder)?;
    for (name, text) in page::all(&specifications) {
        fs::write(folder.join(name), text)?;
    }
    let sources = Sources::read(&stag_docs::root())?;
    let mut table = Table::read(&folder)?;
    // Lines that changed since they were broken lose their rows; a mistake in a rule is told below.
    if let Ok(jobs) = plan::jobs(&specifications, &sources) {
        table.follow(&specifications, &jobs);
    }
    table.write(&folder, &specifications)?;
    print!("{}", page::totals(&specifications));
    let problems = stag_docs::problems(&specifications, &sources);
    for problem in &problems {
        eprintln!("{problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
