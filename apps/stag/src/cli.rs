//! Command line of `stag`: its subcommands and their help.

use crate::{
    accept::{self, options::AcceptOptions},
    args::VERSION,
    bench::{self, options::BenchOptions},
    call::{self, options::CallOptions},
    check::{self, options::CheckOptions},
    cluster::{self, options::ClusterOptions},
    completions::{self, options::CompletionsOptions},
    config::{self, options::ConfigOptions},
    ctl::{self, options::CtlOptions},
    demo::{self, options::DemoOptions},
    echo::{self, options::EchoOptions},
    guide::{self, options::HelpOptions},
    man::{self, options::ManOptions},
    probe::{self, options::ProbeOptions},
    serve::{self, options::ServeOptions},
    tune::{self, options::TuneOptions},
};
use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "stag",
    version = VERSION,
    about = "Serve and call NFS over RDMA from user space",
    long_about = about(HELP),
    after_long_help = more(HELP),
    max_term_width = 80,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Command to carry out.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `stag`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFS versions 3, 4.1 and 4.2
    #[command(long_about = about(serve::HELP), after_long_help = more(serve::HELP))]
    Serve(Box<ServeOptions>),
    /// Print an example configuration file, or the settings that a server would use
    #[command(long_about = about(config::HELP), after_long_help = more(config::HELP))]
    Config(Box<ConfigOptions>),
    /// Demonstrate everything on this host: no root, no device, no configuration
    #[command(long_about = about(demo::HELP), after_long_help = more(demo::HELP))]
    Demo(DemoOptions),
    /// Call any NFS server: look, get, put, remove
    #[command(long_about = about(call::HELP), after_long_help = more(call::HELP),
        arg_required_else_help = false)]
    Call(CallOptions),
    /// Run the functional test against a server
    #[command(long_about = about(check::HELP), after_long_help = more(check::HELP))]
    Check(CheckOptions),
    /// Test which fabrics work on this host, and show its resources for them
    #[command(long_about = about(probe::HELP), after_long_help = more(probe::HELP))]
    Probe(ProbeOptions),
    /// Measure a server: rates and round trips in closed and open loops
    #[command(long_about = about(bench::HELP), after_long_help = more(bench::HELP))]
    Bench(Box<BenchOptions>),
    /// Make the file shared by several gateways that serve the same files
    #[command(long_about = about(cluster::HELP), after_long_help = more(cluster::HELP))]
    Cluster(ClusterOptions),
    /// Monitor and control a running server
    #[command(long_about = about(ctl::HELP), after_long_help = more(ctl::HELP))]
    Ctl(CtlOptions),
    /// Test an adapter from both ends, and write a report
    #[command(long_about = about(accept::HELP), after_long_help = more(accept::HELP))]
    Accept(AcceptOptions),
    /// Serve the echo program as a target for 'stag bench'
    #[command(long_about = about(echo::HELP), after_long_help = more(echo::HELP))]
    Echo(EchoOptions),
    /// Find settings of this host that hinder RDMA, and how to change them
    #[command(long_about = about(tune::HELP), after_long_help = more(tune::HELP))]
    Tune(Box<TuneOptions>),
    /// Show the operator's guide in the terminal
    #[command(long_about = about(guide::HELP), after_long_help = more(guide::HELP))]
    Help(HelpOptions),
    /// Print a shell script that completes commands and options
    #[command(long_about = about(completions::HELP), after_long_help = more(completions::HELP))]
    Completions(CompletionsOptions),
    /// Write the manual pages
    #[command(long_about = about(man::HELP), after_long_help = more(man::HELP))]
    Man(ManOptions),
    /// The earlier name of check
    #[command(hide = true, disable_help_flag = true)]
    Load {
        /// All arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
}

/// The help of the command itself.
const HELP: &str = include_str!("help.txt");

/// Returns the part of a help text in front of the options: all above its line `---`.
fn about(help: &'static str) -> &'static str {
    help.split_once("\n---\n").map_or(help, |(about, _)| about)
}

/// Returns the part of a help text after the options.
fn more(help: &'static str) -> &'static str {
    help.split_once("\n---\n").map_or("", |(_, more)| more.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::sentence;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_line_of_help_is_broken_by_a_terminal_of_80_columns() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        for command in std::iter::once(&command).chain(shown) {
            for text in [command.get_long_about(), command.get_after_long_help()] {
                let text = text.expect("every command has both texts").to_string();
                assert!(!text.is_empty() && !text.contains("---"), "{}", command.get_name());
                let long = text.lines().find(|line| line.chars().count() > 78);
                assert_eq!(long, None, "{}", command.get_name());
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_sentence() {
        let wrong = |arguments: &[&str]| {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            let words: Vec<_> = arguments.iter().map(OsString::from).collect();
            sentence(&error, &Cli::command(), &words)
        };
        assert_eq!(
            wrong(&["stag", "serve"]),
            "the following required arguments were not provided: <[NAME=]DIR[:ro]>...; see \
             'stag serve --help'"
        );
        for (arguments, help) in [
            (&["stag"][..], "stag"),
            (&["stag", "serve", "/", "--cores", "0"], "stag serve"),
            (&["stag", "server"], "stag"),
            (&["stag", "bench", "compare"], "stag bench compare"),
            (&["stag", "call", "tcp://h:1/x", "put"], "stag call put"),
        ] {
            let sentence = wrong(arguments);
            let end = format!("; see '{help} --help'");
            assert!(!sentence.contains('\n') && sentence.ends_with(&end), "{sentence}");
        }
    }
}
