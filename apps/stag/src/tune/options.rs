//! Options of `stag tune`.

use crate::args::size;
use clap::{Args, Subcommand};
use stag_tuning::{CoreList, TuneProfile};
use std::{net::SocketAddr, path::PathBuf};

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub struct TuneOptions {
    /// Operation to carry out
    #[command(subcommand)]
    pub what: TuneWhat,
}

/// Operations on the settings of a host.
#[derive(Debug, Subcommand)]
pub enum TuneWhat {
    /// Report settings that hinder RDMA, and the commands that change them
    #[command(after_help = "'stag tune --help' has examples, states, profiles and exit codes.")]
    Check(TuneCheckOptions),
    /// Change the running kernel as the checks recommend; a journal keeps the old values
    Apply(TuneApplyOptions),
    /// Undo what 'apply' did, in reverse order
    Revert(TuneRevertOptions),
}

/// Arguments of `tune apply`.
#[derive(Debug, Args)]
pub struct TuneApplyOptions {
    /// Plan for the host
    #[command(flatten)]
    pub plan: TunePlanOptions,
    /// Show the changes and make none
    #[arg(id = "only-plan", long = "plan")]
    pub is_plan: bool,
    /// The file that keeps the old values
    #[arg(long, value_name = "FILE", default_value = JOURNAL)]
    pub journal: PathBuf,
}

/// Arguments of `tune revert`.
#[derive(Debug, Args)]
pub struct TuneRevertOptions {
    /// The file that keeps the old values
    #[arg(long, value_name = "FILE", default_value = JOURNAL)]
    pub journal: PathBuf,
    /// A recorded host instead of this one
    #[arg(long, value_name = "DIR", hide = true)]
    pub host: Option<PathBuf>,
}

/// The usual journal.
const JOURNAL: &str = "/var/lib/stag/tune.journal";

/// Arguments for the planned use of the host and the checks to run.
#[derive(Debug, Args)]
pub struct TunePlanOptions {
    /// Purpose of the host: latency, throughput, ci, container
    #[arg(long, value_name = "NAME", default_value = "latency")]
    pub profile: TuneProfile,
    /// Cores of the poll loops, as a list: 2-5,8
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,
    /// RDMA or network device to use: mlx5_0, eth1
    #[arg(long, value_name = "NAME")]
    pub dev: Option<String>,
    /// Bytes of buffers of all shards [default: as 'stag serve' with the same number of cores]
    #[arg(long, value_name = "SIZE", value_parser = size::octets)]
    pub pools: Option<usize>,
    /// Connections of all shards
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub connections: u32,
    /// TCP ports that have to be free
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_values_t = [2049, 20049])]
    pub ports: Vec<u16>,
    /// Directories to serve
    #[arg(long, value_name = "DIR")]
    pub export: Vec<String>,
    /// Server that has to be reachable, as IP:PORT
    #[arg(long, value_name = "IP:PORT")]
    pub server: Option<SocketAddr>,
    /// Only these checks, by id (MEM05) or family (MEM)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub only: Vec<String>,
    /// All but these checks
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// A recorded host instead of this one
    #[arg(long, value_name = "DIR", hide = true)]
    pub host: Option<PathBuf>,
}

/// Arguments of `tune check`.
#[derive(Debug, Args)]
pub struct TuneCheckOptions {
    /// Plan for the host
    #[command(flatten)]
    pub plan: TunePlanOptions,
    /// Explain instead why 'mount -o rdma' would fail on this host
    #[arg(long)]
    pub client: bool,
    /// Also list checks that pass or do not apply
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Explain why a check matters, without running any
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
}
