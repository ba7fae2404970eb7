//! Options of `stag tune`.

use crate::size;
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
    /// Say what stands in the way, and what to type
    #[command(after_help = "'stag tune --help' has examples, states, profiles and exit codes.")]
    Check(TuneCheckOptions),
    /// Make the changes of the running kernel that the checks want; a journal keeps the old values
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

/// Arguments that say what is to run on the host, and which checks matter.
#[derive(Debug, Args)]
pub struct TunePlanOptions {
    /// Purpose of the host: latency, throughput, ci, container
    #[arg(long, value_name = "NAME", default_value = "latency")]
    pub profile: TuneProfile,
    /// Cores of the poll loops, as a list: 2-5,8
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,
    /// RDMA or network device that is to be used: mlx5_0, eth1
    #[arg(long, value_name = "NAME")]
    pub dev: Option<String>,
    /// Octets of buffers of all shards [default: those of 'stag serve' with as many cores]
    #[arg(long, value_name = "SIZE", value_parser = size::octets)]
    pub pools: Option<usize>,
    /// Connections of all shards
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub connections: u32,
    /// TCP ports that are to be free
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_values_t = [2049, 20049])]
    pub ports: Vec<u16>,
    /// Directories that are to be served
    #[arg(long, value_name = "DIR")]
    pub export: Vec<String>,
    /// Server that is to be reachable, as IP:PORT
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
    /// Say instead why 'mount -o rdma' would fail on this host
    #[arg(long)]
    pub client: bool,
    /// List what passes, and what does not apply, too
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Say why a check matters, and judge nothing
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
}
