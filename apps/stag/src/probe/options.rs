//! Options of `stag probe`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeOptions {
    /// Fabrics that have to work: iwarp, shm, rdma [default: iwarp]
    #[arg(value_name = "SCHEME")]
    pub schemes: Vec<String>,
    /// Write one file about this host and this build, to attach to a bug report: it has no
    /// environment, no configuration and no host name
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}
