//! Prints the figures of a checkout's source.
#![forbid(unsafe_code)]

use clap::Parser;
use stag_tidy::{Figure, SourceTree};
use std::{io, path::PathBuf, process::ExitCode};

#[derive(Parser)]
#[command(
    name = "stag-tidy",
    about = "Print figures of the source: lengths, names with two meanings, circles of imports",
    after_long_help = "Exit codes: 0 all figures are within their limits, 1 some are not, 2 the \
                       source cannot be read or a figure has no such name."
)]
struct TidyCli {
    /// Checkout to read instead of this one, to compare with
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print the places behind one figure instead, as FILE:LINE: TEXT
    #[arg(long, value_name = "FIGURE")]
    list: Option<String>,
    /// Print JSON, with all places
    #[arg(long, conflicts_with = "list")]
    json: bool,
}

fn main() -> ExitCode {
    run(&TidyCli::parse()).unwrap_or_else(|error| {
        eprintln!("stag-tidy: {error}");
        ExitCode::from(2)
    })
}

fn run(asked: &TidyCli) -> io::Result<ExitCode> {
    let root = asked.root.clone().unwrap_or_else(stag_tidy::root);
    let figures = stag_tidy::all(&SourceTree::read(&root)?);
    if let Some(name) = &asked.list {
        let Some(figure) = figures.iter().find(|figure| figure.name == name) else {
            let known: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
            let message = format!("no figure '{name}'; known: {}", known.join(", "));
            return Err(io::Error::other(message));
        };
        for found in &figure.found {
            println!("{}:{}: {}", found.file, found.line, found.text);
        }
    } else if asked.json {
        println!("{}", serde_json::to_string_pretty(&figures).map_err(io::Error::other)?);
    } else {
        figures.iter().for_each(row);
    }
    let is_met = figures.iter().all(Figure::is_met);
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(figure: &Figure) {
    let mark = if figure.is_met() { ' ' } else { '!' };
    let decimals = if figure.unit == "%" { 2 } else { 0 };
    println!(
        "{mark} {:<16} {:>8.decimals$} {:<5}  limit {:>5}  {}",
        figure.name, figure.value, figure.unit, figure.limit, figure.about
    );
}
