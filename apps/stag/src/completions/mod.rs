//! `stag completions`: shell completion of words and options.

pub mod options;

use crate::caller::say;
use clap::Command;
use options::CompletionsOptions;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Prints the completions of `command` for a shell.
pub fn run(options: &CompletionsOptions, mut command: Command) {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut command, "stag", &mut text);
    say(text);
}
