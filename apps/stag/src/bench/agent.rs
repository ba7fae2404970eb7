//! `stag bench --agent`, and the coordinator of `--nodes`: the parts of both that follow from the
//! command line. The rest is in `stag_load::agents`.

use super::{
    SIZE, check,
    options::{BenchOptions, List, RunOptions},
    run::{self, Point},
    sizes,
};
use crate::{
    Error,
    call::Url,
    caller::{self, aside, say},
    stop::Stop,
};
use stag_load::{
    RunOutcome,
    agents::{AgentError, AgentServer, AgentWork, Nodes, NodesPlan, SharedToken, check_names},
    report::model::RunSetup,
    run::RunHooks,
};
use stag_operate::{plain, quote};
use std::{
    ffi::OsString,
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Usage(sentence) => Self::Usage(sentence),
            AgentError::Failure(sentence) => Self::Failure(sentence),
        }
    }
}

/// Serves coordinators until a signal comes; one of them with `--once`.
pub fn serve(arguments: &RunOptions, at: SocketAddr) -> Result<(), Error> {
    let stop = Stop::by_signals()?;
    let token = SharedToken::read(token_file(arguments)?)?;
    let failed = |error: io::Error| {
        Error::usage(format!("cannot listen on {at}: {}; --agent=IP:PORT", plain(&error)))
    };
    let listener = TcpListener::bind(at).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    say(format!("AGENT {at}\nEND\n"));
    hear_all(&listener, &token, &stop, arguments.once)
}

/// Serves coordinators, one after the other, until a signal comes; a single one if `once`.
pub fn hear_all(
    listener: &TcpListener,
    token: &SharedToken,
    stop: &Stop,
    once: bool,
) -> Result<(), Error> {
    let flag = stop.flag();
    let note = |text: &str| aside(quote::line(text) + "\n");
    let agent = AgentServer { listener, token, stop: &flag, once, work: BenchRuns, note };
    Ok(agent.serve()?)
}

/// Meets the nodes `names`, whose agents make the runs.
pub fn meet(arguments: &RunOptions, names: &[String], stop: &Stop) -> Result<Nodes, Error> {
    check_names(names)?;
    if arguments.stages {
        return Err(Error::usage("--stages is of one node: leave it out, or --nodes"));
    }
    let token = SharedToken::read(token_file(arguments)?)?;
    let start = arguments.start.as_deref();
    let plan = NodesPlan { names, token: &token, start, quote: quote::line };
    Ok(Nodes::meet(&plan, &stop.flag())?)
}

/// The file with the token.
fn token_file(arguments: &RunOptions) -> Result<&Path, Error> {
    arguments.token_file.as_deref().ok_or_else(|| {
        Error::usage(
            "agents and their coordinator need --token-file FILE, the same content on every node: \
             (umask 077; openssl rand -hex 32 > FILE)",
        )
    })
}

/// Runs of `stag bench`, as an agent makes them.
struct BenchRuns;

/// A run that a coordinator asked for.
struct AskedRun {
    arguments: RunOptions,
    url: Url,
    setup: RunSetup,
}

impl BenchRuns {
    fn read(words: &[String]) -> Result<AskedRun, Error> {
        let arguments = parse(words)?;
        let url = arguments.url.as_deref().ok_or_else(|| Error::usage("a URL is missing"))?;
        let url = Url::parse(url)?.with_sec(arguments.sec)?;
        check(&arguments, &url)?;
        let first = |rates: &List<f64>| rates.0.first().copied();
        let point = Point {
            size: sizes(&arguments).first().copied().unwrap_or(SIZE),
            rate: arguments.rate.as_ref().and_then(first),
            seed: match arguments.seed {
                Some(seed) => seed,
                None => u64::from_ne_bytes(caller::random()?),
            },
        };
        let setup = run::setup(&arguments, &url, point);
        Ok(AskedRun { arguments, url, setup })
    }
}

impl AgentWork for BenchRuns {
    type Run = AskedRun;

    fn prepare(&self, words: &[String]) -> Result<AskedRun, String> {
        Self::read(words).map_err(|error| error.to_string())
    }

    fn make(
        &self,
        run: AskedRun,
        stop: &Arc<AtomicBool>,
        hooks: &mut RunHooks<'_>,
    ) -> Result<RunOutcome, String> {
        let AskedRun { arguments, url, setup } = run;
        let outcome = run::run(&arguments, &url, &Stop::of(stop), setup, hooks);
        outcome.map_err(|error| error.to_string())
    }
}

/// The arguments of a run, from a coordinator. None of them may write a file here.
fn parse(words: &[String]) -> Result<RunOptions, Error> {
    match BenchOptions::read(words.iter().map(OsString::from)).map_err(Error::usage)? {
        BenchOptions { what: None, run } if is_harmless(&run) => Ok(run),
        _ => Err(Error::usage("an agent makes runs, and nothing else")),
    }
}

const fn is_harmless(run: &RunOptions) -> bool {
    run.json.is_none()
        && run.job.is_none()
        && run.agent.is_none()
        && run.token_file.is_none()
        && run.nodes.is_none()
        && run.start.is_none()
        && run.slurm.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_coordinator_can_have_runs_made_and_no_files_written() {
        let run = parse(&words("tcp://127.0.0.1:1/x --workload nfs3:read --rate 5K")).unwrap();
        assert_eq!(run.rate.unwrap().0, [5_000.0]);
        for refused in [
            "tcp://127.0.0.1:1/x --json /etc/passwd",
            "tcp://127.0.0.1:1/x --job /etc/shadow",
            "--agent",
            "tcp://127.0.0.1:1/x --nodes other",
            "report /etc/shadow --html /x",
            "tcp://127.0.0.1:1/x --workload nonsense",
        ] {
            assert!(parse(&words(refused)).is_err(), "{refused}");
        }
    }
}
