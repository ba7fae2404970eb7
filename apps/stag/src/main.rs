//! The command `stag`: serves directories over NFS on RDMA and TCP, and calls such servers.
//!
//! Exit codes: 0 done, 1 something failed while running, 2 the command cannot be carried out as
//! given, 3 the inputs of `bench compare` or `versus` cannot be compared, 130 `bench` was stopped
//! by a signal and finished in order. `tune` has its own: 1 warnings, 2 the host is not ready, 3
//! anything else. Every error is one sentence on standard error.
#![forbid(unsafe_code)]

mod accept;
mod admission;
mod args;
mod bench;
mod call;
mod caller;
mod check;
mod cli;
mod cluster;
mod completions;
mod config;
mod ctl;
mod demo;
mod descriptors;
mod echo;
mod guide;
mod kerberos;
mod man;
mod one_shard;
mod probe;
mod progress;
mod replace;
mod rpcbind;
mod screen;
mod serve;
mod settings;
mod signals;
mod stage_table;
mod stop;
mod system;
mod ticket;
mod tls;
mod tune;

use clap::{CommandFactory, Parser, error::ErrorKind};
use stag_operate::{plain, quote, trace};
use std::{fmt, process::ExitCode, time::Duration};

/// Reason for which the command did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Error {
    /// The command cannot be carried out as given: exit code 2.
    Usage(String),
    /// It failed while running: exit code 1.
    Failure(String),
    /// A check of `tune` says that something will not work: exit code 2.
    NotReady(String),
    /// The command cannot judge its input: exit code 3.
    Refused(String),
    /// A signal stopped it: exit code 130.
    Stopped(String),
}

impl Error {
    fn usage(sentence: impl Into<String>) -> Self {
        Self::Usage(sentence.into())
    }

    /// Names the flag that an error is about, by its long name, where the sentence does not.
    fn of_flag(self, flag: &str) -> Self {
        let flag = format!("--{flag}");
        match self {
            Self::Usage(sentence) if !sentence.contains(&flag) => {
                Self::Usage(format!("{flag}: {sentence}"))
            }
            other => other,
        }
    }

    fn failure(sentence: impl Into<String>) -> Self {
        Self::Failure(sentence.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence)
            | Self::Failure(sentence)
            | Self::NotReady(sentence)
            | Self::Refused(sentence)
            | Self::Stopped(sentence) => f.write_str(sentence),
        }
    }
}

/// Time for mounts of CephFS to end after everything else.
const UNMOUNT_MAX: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let code = run();
    if !stag_ceph::await_unmounts(UNMOUNT_MAX) {
        stag_ceph::exit_at_once(code);
    }
    ExitCode::from(code)
}

/// Carries out the command; returns its exit code.
fn run() -> u8 {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            // If standard output is a closed pipe, its reader needs no more of the help.
            let _ = error.print();
            return 0;
        }
        Err(error) => {
            let words: Vec<_> = std::env::args_os().collect();
            let sentence = args::sentence(&error, &cli::Cli::command(), &words);
            // With `tune`, 2 says that the host is not ready.
            let is_tune = words.get(1).is_some_and(|word| word == "tune");
            return end(&if is_tune { Error::Refused(sentence) } else { Error::Usage(sentence) });
        }
    };
    // A server starts its log by its own options.
    if !matches!(cli.command, cli::Command::Serve(_))
        && let Err(error) = trace::start().map_err(Error::Usage)
    {
        return end(&error);
    }
    let result = match cli.command {
        cli::Command::Serve(arguments) => serve::run(&arguments),
        cli::Command::Config(arguments) => config::run(&arguments),
        cli::Command::Ctl(arguments) => ctl::run(&arguments),
        cli::Command::Demo(arguments) => demo::run(&arguments),
        cli::Command::Call(arguments) => call::run(&arguments),
        cli::Command::Check(arguments) => check::run(&arguments),
        cli::Command::Probe(arguments) => probe::run(&arguments),
        cli::Command::Bench(arguments) => bench::run(&arguments),
        cli::Command::Cluster(arguments) => cluster::run(&arguments),
        cli::Command::Accept(arguments) => accept::run(&arguments),
        cli::Command::Echo(arguments) => echo::run(&arguments),
        cli::Command::Tune(arguments) => tune::run(&arguments),
        cli::Command::Help(arguments) => guide::run(&arguments, cli::Cli::command()),
        cli::Command::Completions(arguments) => {
            completions::run(&arguments, cli::Cli::command());
            Ok(())
        }
        cli::Command::Man(arguments) => man::run(&arguments, cli::Cli::command()),
        cli::Command::Load { .. } => Err(check::renamed()),
    };
    result.map_or_else(|error| end(&error), |()| 0)
}

fn end(error: &Error) -> u8 {
    // Words of a peer may be in it.
    caller::aside(format!("stag: {}\n", quote::lines(&error.to_string())));
    match error {
        Error::Usage(_) | Error::NotReady(_) => 2,
        Error::Failure(_) => 1,
        Error::Refused(_) => 3,
        Error::Stopped(_) => 130,
    }
}
