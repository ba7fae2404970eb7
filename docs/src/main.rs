//! Writes the pages of `docs/requirements`, prints the totals and what is wrong with rules, code or tests.
#![forbid(unsafe_code)]

use stag_docs::{Sources, Specification, page};
use std::{fs, io, process::ExitCode};

fn main() -> io::Result<ExitCode> {
    let specifications = Specification::read_all(&stag_docs::requirements())?;
    for (name, text) in page::all(&specifications) {
        fs::write(stag_docs::requirements().join(name), text)?;
    }
    print!("{}", page::totals(&specifications));
    let problems = stag_docs::problems(&specifications, &Sources::read(&stag_docs::root())?);
    for problem in &problems {
        eprintln!("{problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
