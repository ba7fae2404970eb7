//! Addresses at which a server listens.

use stag_fabrics::FabricAddress;
use stag_nfs::serve::Started;
use stag_operate::observe::Watched;
use std::net::SocketAddr;

/// Addresses at which the started shards listen.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Over RDMA and shared memory.
    pub listen: Vec<FabricAddress>,
    pub tcp: Option<SocketAddr>,
    pub watched: Watched,
}

impl Addresses {
    /// Adds the addresses of one shard, each once.
    pub fn add(&mut self, started: &Started) {
        for at in started.fabric.addresses() {
            // A port to be chosen is another shard's to choose.
            let is_chosen = at.ip().is_none_or(|ip| ip.port() != 0);
            if is_chosen && !self.listen.contains(at) {
                self.listen.push(at.clone());
            }
        }
        self.tcp = self.tcp.or(started.tcp);
    }
}
