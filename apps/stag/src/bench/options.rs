//! Options of `stag bench`.

use crate::{
    args::{
        sentence,
        size::{self, octets as size},
        versions, written,
    },
    ticket::CallSecOptions,
    tls::CallTlsOptions,
};
use clap::{Args, Command, CommandFactory, Parser, Subcommand};
use stag_load::{Arrivals, Workload, ladder::Promise, latency::PERCENTILES};
use stag_protocol::rpcrdma::Versions;
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr};

/// Maximum of `--names`: files are made and removed one after the other.
const NAMES_MAX: i64 = 100_000;

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchOptions {
    /// Task other than a run; without it, a run
    #[command(subcommand)]
    pub what: Option<BenchWhat>,
    /// A run.
    #[command(flatten)]
    pub run: RunOptions,
}

/// A whole command line of `bench`, which a job file or a coordinator wrote.
#[derive(Debug, Parser)]
#[command(name = "stag")]
enum BenchLine {
    /// Its one subcommand.
    Bench(Box<BenchOptions>),
}

impl BenchOptions {
    /// The definition of `stag bench`.
    pub fn definition() -> Command {
        Self::augment_args(Command::new("bench"))
    }

    /// Reads the words of a command line after `stag bench`.
    ///
    /// # Errors
    /// The complaint about them, in one sentence.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let words: Vec<_> =
            ["stag", "bench"].map(OsString::from).into_iter().chain(words).collect();
        match BenchLine::try_parse_from(&words) {
            Ok(BenchLine::Bench(bench)) => Ok(*bench),
            Err(error) => Err(sentence(&error, &BenchLine::command(), &words)),
        }
    }
}

/// Tasks of `bench` other than a run.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchWhat {
    /// Compare two runs: exit code 1 if the second is slower than the first, 0 if not, 3 if they
    /// cannot be compared
    Compare(CompareOptions),
    /// Measure two servers in turns, and compare the second with the first; exit codes as for
    /// compare
    Versus(Box<VersusOptions>),
    /// Write results in other forms: a page, HdrHistogram files, fio's JSON
    Report(ReportOptions),
}

/// Arguments of `bench report`.
#[derive(Clone, Debug, Args)]
#[command(group(clap::ArgGroup::new("form").required(true).multiple(true)))]
pub struct ReportOptions {
    /// Results (--json)
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// A self-contained page with charts
    #[arg(long, value_name = "FILE", group = "form")]
    pub html: Option<PathBuf>,
    /// The response times by percentile (.hgrm), in microseconds; for one result
    #[arg(long, value_name = "FILE", group = "form")]
    pub hgrm: Option<PathBuf>,
    /// A log of each second's histograms (HdrHistogram V2); for one result
    #[arg(long, value_name = "FILE", group = "form")]
    pub hdr_log: Option<PathBuf>,
    /// Print in the format of another tool
    #[arg(long, value_name = "fio|perftest", group = "form")]
    pub format: Option<ReportFormat>,
}

/// Tool whose output format is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// `fio --output-format=json`.
    Fio,
    /// The line of `ib_send_lat` and similar tools, which counts half round trips.
    Perftest,
}

/// Arguments of `bench versus`.
#[derive(Clone, Debug, Args)]
pub struct VersusOptions {
    /// Parameters of the runs against both servers.
    #[command(flatten)]
    pub run: RunOptions,
    /// URL of the server to compare with the server of the first URL
    pub other: Option<String>,
    /// Rounds, each with a run of both
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(2..=1_000))]
    pub rounds: u16,
    /// Percent by which a quantity may change without being worse or better
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = seconds)]
    pub noise: f64,
    /// Significance level: a change that chance explains with a higher probability is ignored
    #[arg(long, value_name = "P", default_value = "0.01", value_parser = probability)]
    pub alpha: f64,
}

/// Arguments of `bench compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// The result to compare with (--json); or the file of versus, with both
    pub before: PathBuf,
    /// The result to judge
    pub after: Option<PathBuf>,
    /// Percent by which a quantity may change without being worse or better
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = seconds)]
    pub noise: f64,
    /// Significance level: a change that chance explains with a higher probability is ignored
    #[arg(long, value_name = "P", default_value = "0.01", value_parser = probability)]
    pub alpha: f64,
    /// State that the runs took turns, so both had the same states of the host
    #[arg(long)]
    pub interleaved: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Numbers with commas between them.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T>(pub Vec<T>);

/// A run, or a ladder of them.
#[derive(Clone, Debug, Args)]
#[command(args_override_self = true)]
pub struct RunOptions {
    /// URL to call: SCHEME://… as for 'stag call'; with an export for nfs3 and nfs4
    /// workloads
    pub url: Option<String>,
    /// Workload to call it with: null, echo, pull, push, mixed, reverse, connstorm, nfs3:getattr,
    /// nfs3:lookup, nfs3:read, nfs3:write, nfs3:mixed, nfs3:meta, or the same of nfs4; nfs3:commit,
    /// nfs3:readdirplus
    #[arg(long, value_name = "NAME", default_value = "null")]
    pub workload: Workload,
    /// Bytes of payload of a call (with suffix K or M); several, separated by commas, are measured
    /// one after the other; of nfs3:readdirplus those of the longest reply [default: 4K, of reverse
    /// 1K, of nfs3:readdirplus 32K]
    #[arg(long, value_name = "SIZE,…", value_parser = sizes)]
    pub size: Option<List<usize>>,
    /// Connections of all cores together; for connstorm, the number at a time
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub connections: u16,
    /// Calls outstanding on each connection, at most [default: 1, with --rate 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub depth: Option<u16>,
    /// Threads, each on its own core with its share of the connections
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub cores: u16,
    /// Run an open loop with this number of calls per second (with suffix K or M); several,
    /// separated by commas, are measured one after the other
    #[arg(long, value_name = "R,…", value_parser = rates)]
    pub rate: Option<List<f64>>,
    /// Search for the highest rate at which a percentile of the response times stays below a number
    /// of microseconds, as in p99=200, beginning with --rate [default: 1000]
    #[arg(long, value_name = "P=US", value_parser = promise)]
    pub slo: Option<Promise>,
    /// Distribution of the times between calls of an open loop
    #[arg(long, value_name = "uniform|poisson|burst:N", default_value = "poisson")]
    pub arrivals: Arrivals,
    /// Seconds of warm-up, which do not count [default: 2, of each run of versus 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub warm_up: Option<f64>,
    /// Seconds that count [default: 10, of each run of versus 2]
    #[arg(long, value_name = "S", value_parser = positive)]
    pub duration: Option<f64>,
    /// Calls that count, instead of seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub calls: Option<u64>,
    /// Do not compare the payload, and send arbitrary bytes; the result says so
    #[arg(long)]
    pub no_verify: bool,
    /// Seed of places, mixtures and Poisson times [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Bytes of the file that each core reads or writes
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size)]
    pub file_size: usize,
    /// Names in the directory of each core that nfs3:readdirplus lists [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=NAMES_MAX))]
    pub names: Option<u32>,
    /// Seconds that a call may take
    #[arg(long, value_name = "S", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub timeout: u16,
    /// Versions of RPC-over-RDMA to use: 1, 2, or 1-2 for the later one that the server supports;
    /// 2-directed or 1-2-directed for draft 001's words with a server that does not announce them.
    /// The result records the version
    #[arg(long, value_name = "1|2|1-2|…", default_value = "1", value_parser = versions)]
    pub rdma_version: Versions,
    /// Show the run on the whole terminal, instead of a line for each second: rates, latencies,
    /// nodes, the last minutes
    #[arg(long)]
    pub top: bool,
    /// Process of the server on this host; the result has the number of cores that it keeps busy
    #[arg(long, value_name = "PID", conflicts_with = "nodes")]
    pub server_pid: Option<u32>,
    /// Continue when a connection over a fabric is lost: reconnect, and report the time without
    /// replies
    #[arg(long)]
    pub reconnect: bool,
    /// Nodes that make the run together, each with its --connections and --cores and its share of
    /// --rate and --calls; each runs 'stag bench --agent'
    #[arg(long, value_name = "HOST[:PORT],…", value_parser = names)]
    pub nodes: Option<List<String>>,
    /// Command that starts the agents of --nodes: ssh, or one with {} for the host; it gets the
    /// token on its standard input
    #[arg(long, value_name = "COMMAND", requires = "nodes")]
    pub start: Option<String>,
    /// Act as an agent: make runs for a coordinator that connects here [default: 0.0.0.0:20051]
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, require_equals = true,
        default_missing_value = "0.0.0.0:20051", value_parser = stag_verbs::socket_address,
        conflicts_with_all = ["url", "nodes", "json"])]
    pub agent: Option<SocketAddr>,
    /// Exit after the first coordinator
    #[arg(long, requires = "agent")]
    pub once: bool,
    /// Take a role by the rank of this task in a Slurm step: server, agent, or coordinator of the
    /// agents
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "nodes", "json", "job", "agent"])]
    pub slurm: Option<PathBuf>,
    /// File with the secret that agents and coordinator share, mode 0600; - is standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub sec: CallSecOptions,
    #[command(flatten)]
    pub tls: CallTlsOptions,
    /// Read options from a TOML file, by their long names; options of the command line override
    /// them
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Report the time in each stage, sampled from 1 call in 64: on this side and, if the server
    /// reports its own, on the server
    #[arg(long)]
    pub stages: bool,
    /// Print a line like perftest's ib_send_lat after the table: HALF round trips
    #[arg(long)]
    pub perftest_compat: bool,
    /// Write the result to FILE as JSON, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl RunOptions {
    /// The arguments of one run at another node, but for its payload, rate, calls and seed.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.url.iter().cloned().collect();
        words.extend([
            format!("--workload={}", self.workload),
            format!("--connections={}", self.connections),
            format!("--cores={}", self.cores),
            format!("--arrivals={}", self.arrivals),
            format!("--file-size={}", self.file_size),
            format!("--timeout={}", self.timeout),
            format!("--rdma-version={}", written(self.rdma_version)),
        ]);
        words.extend(self.sec.sec.map(|sec| format!("--sec={}", sec.name())));
        words.extend(self.depth.map(|depth| format!("--depth={depth}")));
        words.extend(self.names.map(|names| format!("--names={names}")));
        words.extend(self.warm_up.map(|seconds| format!("--warm-up={seconds}")));
        words.extend(self.duration.map(|seconds| format!("--duration={seconds}")));
        words.extend(self.no_verify.then(|| "--no-verify".to_owned()));
        words.extend(self.reconnect.then(|| "--reconnect".to_owned()));
        words
    }
}

fn names(text: &str) -> Result<List<String>, String> {
    list(text, |part| match part.is_empty() {
        true => Err("a name of a node is empty".to_owned()),
        false => Ok(part.to_owned()),
    })
}

fn rate(text: &str) -> Result<f64, String> {
    match size::rate(text) {
        Some(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err(format!(
            "{text:?} is no rate: write calls per second, with a suffix K or M if needed"
        )),
    }
}

fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<List<T>, String> {
    text.split(',').map(|part| one(part.trim())).collect::<Result<Vec<_>, _>>().map(List)
}

fn sizes(text: &str) -> Result<List<usize>, String> {
    list(text, |part| match size(part) {
        Ok(octets) if (1..=stag_echo::ECHO_MAX).contains(&octets) => Ok(octets),
        Ok(_) => Err(format!("{part:?} is not between 1 and 1M")),
        Err(error) => Err(error),
    })
}

fn rates(text: &str) -> Result<List<f64>, String> {
    list(text, rate)
}

fn promise(text: &str) -> Result<Promise, String> {
    let wrong = || format!("{text:?} is no promise: write for example p99=200, in microseconds");
    let (percentile, at_most) = text.split_once('=').ok_or_else(wrong)?;
    let at_most_us =
        at_most.parse().ok().filter(|micros: &f64| micros.is_finite() && *micros > 0.0);
    let is_known = PERCENTILES.iter().any(|(name, _)| *name == percentile);
    let at_most_us = at_most_us.filter(|_| is_known).ok_or_else(wrong)?;
    Ok(Promise { percentile: percentile.to_owned(), at_most_us })
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = f64::from_str(text).ok().filter(|seconds| (0.0..=1e6).contains(seconds));
    seconds.ok_or_else(|| format!("{text:?} is no number of seconds"))
}

fn probability(text: &str) -> Result<f64, String> {
    let part = f64::from_str(text).ok().filter(|part| *part > 0.0 && *part < 1.0);
    part.ok_or_else(|| format!("{text:?} is no probability: write a number between 0 and 1"))
}

fn positive(text: &str) -> Result<f64, String> {
    seconds(text).and_then(|seconds| {
        if seconds > 0.0 { Ok(seconds) } else { Err("it has to be above 0".to_owned()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_rates_of_ten() {
        assert_eq!(sizes("1,4K,1M"), Ok(List(vec![1, 4_096, 1 << 20])));
        assert_eq!(rates("2k, 1.5M,7"), Ok(List(vec![2_000.0, 1_500_000.0, 7.0])));
        assert_eq!(size("16M"), Ok(16 << 20));
        for wrong in ["", "0", "2M", "4KB", "-1", "4K,,8K", "nan", "inf"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "-5", "5/s", "2G"] {
            assert!(rates(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_promise_names_a_percentile_and_microseconds() {
        let promised = Promise { percentile: "p99.9".to_owned(), at_most_us: 200.5 };
        assert_eq!(promise("p99.9=200.5"), Ok(promised));
        for wrong in ["", "p99", "p98=5", "p99=0", "p99=-1", "p99=nan", "p99=5us", "99=5"] {
            assert!(promise(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!((seconds("0"), seconds("0.5"), positive("3")), (Ok(0.0), Ok(0.5), Ok(3.0)));
        for wrong in ["", "-1", "nan", "inf", "5s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(positive("0").is_err());
        assert_eq!(probability("0.05"), Ok(0.05));
        for wrong in ["", "0", "1", "-0.1", "nan", "5%"] {
            assert!(probability(wrong).is_err(), "{wrong}");
        }
    }
}
