//! `stag completions`: shell completion of words and options.

pub mod options;

use crate::caller::say;
use clap::CommandFactory;
use options::CompletionsOptions;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Prints the completions for a shell.
pub fn run(options: &CompletionsOptions) {
    let (mut command, mut text) = (crate::cli::Cli::command(), Vec::new());
    clap_complete::generate(options.shell, &mut command, "stag", &mut text);
    say(text);
}
