//! Options of `stag probe`.

use clap::Args;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeOptions {
    /// Fabrics that have to work: iwarp, shm, rdma [default: iwarp]
    #[arg(value_name = "SCHEME")]
    pub schemes: Vec<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}
