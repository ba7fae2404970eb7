//! Options of `stag echo`.

use clap::Args;
use stag_engine::Sampling;

/// Arguments of `echo`.
#[derive(Clone, Debug, Args)]
pub struct EchoOptions {
    /// An address to take RDMA connections at. Port 0 takes a free one
    #[arg(long, value_name = "URL", default_value = "iwarp://127.0.0.1:20050")]
    pub listen: String,
    /// An address to take RPC over TCP at
    #[arg(long, value_name = "IP:PORT")]
    pub tcp: Option<String>,
    /// Networks that may connect, and no other; needed unless all addresses are loopback ones
    /// [default: this host by loopback]
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Watch 1 call in N from stage to stage; 0: none
    #[arg(long, value_name = "N", default_value_t = Sampling::EVERY)]
    pub sample: u32,
}
