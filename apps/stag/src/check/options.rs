//! Options of `stag check`.

use crate::{args::versions, ticket::CallSecOptions, tls::CallTlsOptions};
use clap::Args;
use stag_protocol::rpcrdma::Versions;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckOptions {
    /// The server and its export: iwarp://HOST:PORT/NAME or tcp://HOST:PORT/NAME, then ?mountport=N
    /// if MOUNT has its own; tcp://HOST/NAME to ask its port mapper; or shm://SOCKET:/NAME
    pub url: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Seed of contents and places; the same seed repeats a run [default: another one each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Versions of RPC-over-RDMA to use: 1, 2, or 1-2 for the later one that the server supports;
    /// 2-directed or 1-2-directed for draft 001's words with a server that does not announce them
    #[arg(long, value_name = "1|2|1-2|…", default_value = "1", value_parser = versions)]
    pub rdma_version: Versions,
    /// Version of NFS to use [default: 3, or 4 if the server does not support 3]
    #[arg(long, value_name = "3|4", value_parser = clap::value_parser!(u8).range(3..=4))]
    pub nfs: Option<u8>,
    #[command(flatten)]
    pub sec: CallSecOptions,
    #[command(flatten)]
    pub tls: CallTlsOptions,
    /// Number of entries in the large directory
    #[arg(long, value_name = "N", default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=99_999))]
    pub entries: u32,
}
