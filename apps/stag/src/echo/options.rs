//! Options of `stag echo`.

use clap::Args;
use stag_engine::Sampling;

/// Arguments of `echo`.
#[derive(Clone, Debug, Args)]
pub struct EchoOptions {
    /// An address to accept RDMA connections at. Port 0 uses a free port
    #[arg(long, value_name = "URL", default_value = "iwarp://127.0.0.1:20050")]
    pub listen: String,
    /// An address to accept RPC over TCP at
    #[arg(long, value_name = "IP:PORT")]
    pub tcp: Option<String>,
    /// The only networks that may connect; needed unless all addresses are loopback addresses
    /// [default: this host by loopback]
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Sample the stages of 1 call in N; 0: none
    #[arg(long, value_name = "N", default_value_t = Sampling::EVERY)]
    pub sample: u32,
}
