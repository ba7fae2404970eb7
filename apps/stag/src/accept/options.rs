//! Options of `stag accept`.

use super::port::PortTest;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `accept`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AcceptOptions {
    /// The waiting end; without it, the end that runs all tests
    #[command(subcommand)]
    pub what: Option<AcceptWhat>,
    /// The end that runs all tests.
    #[command(flatten)]
    pub run: AcceptRunOptions,
}

/// Ends of `accept` other than the one that runs all tests.
#[derive(Debug, Subcommand)]
pub enum AcceptWhat {
    /// Wait on the other host for 'stag accept'
    Serve(AcceptServeOptions),
}

/// Arguments of `accept serve`.
#[derive(Debug, Args)]
pub struct AcceptServeOptions {
    /// The address to listen at: rdma://IP:PORT, iwarp://IP:PORT (the port may be left out), or
    /// shm://PATH
    pub url: String,
    /// The only networks that may connect; needed unless the address is a loopback address
    /// [default: this host by loopback]
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    pub clients: Vec<String>,
}

/// Arguments of the end that runs all tests.
#[derive(Clone, Debug, Args)]
pub struct AcceptRunOptions {
    /// The address at which 'stag accept serve' waits
    #[arg(required = true)]
    pub url: Option<String>,
    /// Write the result to this file as JSON, and the page to NAME.txt in the same directory
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Replace the files of an earlier report
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON instead of the page
    #[arg(long)]
    pub json: bool,
    /// Connects and disconnects [default: 10000 over rdma://, 1000 else]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub connects: Option<u64>,
    /// Seconds for each size of latency and bandwidth
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub seconds: f64,
    /// Test the port going down and up: a person pulls the cable (ask), or ip does it (link)
    #[arg(long, value_name = "ask|link")]
    pub port_test: Option<PortTest>,
    /// The network interface of the device, for --port-test link
    #[arg(long, value_name = "NAME", required_if_eq("port_test", "link"))]
    pub interface: Option<String>,
}

/// Reads a time above zero.
fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=3_600.0).contains(seconds));
    seconds.ok_or("write seconds from 0.01 to 3600")
}
