//! `stag serve`: one thread per shard, and the main one, which supervises them (DESIGN D11).
//!
//! [`plan`] checks what is asked for, [`start`] carries it out, [`reload`] changes it while the
//! server runs, and [`report`] announces it. Each imports those before it in the order `plan`,
//! `report`, `reload`, `start`.

mod plan;
mod reload;
mod report;
mod start;

pub use plan::{
    defaults::{ComputedDefault, computed},
    options,
};

use crate::{
    Error,
    caller::say,
    settings::{self, Merged},
};
use options::ServeOptions;
use plan::{Plan, PlanPurpose, passed};
use report::startup_text;
use std::env;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Serves until a signal comes, or checks what would be served.
pub fn run(arguments: &ServeOptions) -> Result<(), Error> {
    // Before anything is opened.
    passed::sockets()?;
    // The arguments after `stag serve`.
    let words: Vec<_> = env::args_os().skip(2).collect();
    let settings = settings::merge::<ServeOptions>(&words, arguments.config.as_deref())?;
    if arguments.check { check(&settings) } else { start::serve(&settings, words) }
}

/// Prints what would be served, or the first obstacle.
fn check(settings: &Merged<ServeOptions>) -> Result<(), Error> {
    let plan = Plan::new(settings, PlanPurpose::Check)?;
    say(startup_text::introduction(&plan, &[]));
    say(startup_text::checked());
    Ok(())
}
