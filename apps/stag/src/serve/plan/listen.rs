//! Step of a plan: the addresses to listen at, and the networks that may connect there.

use super::{checks::check_once, options::ServeOptions, passed, proofs, shards::FabricShards};
use crate::{
    Error,
    args::{
        address,
        cidr::{self, check_open},
    },
    settings::{ExportEntry, Merged},
};
use ipnet::IpNet;
use stag_engine::tls::ServerTls;
use stag_fabrics::FabricAddress;
use stag_operate::trace;
use stag_verbs::PassedListeners;
use std::{net::SocketAddr, sync::Arc};

/// The port of NFS and MOUNT over TCP, unless another is given.
const TCP_PORT: u16 = 2_049;

/// Addresses of a server, and who may connect.
#[derive(Debug)]
pub struct ListenPlan {
    /// Addresses by fabric.
    pub fabrics: Vec<FabricShards>,
    /// The address over TCP.
    pub tcp: Option<SocketAddr>,
    /// TLS there.
    pub tls: Option<Arc<ServerTls>>,
    /// Sockets of a service manager, each at one of the addresses.
    pub passed: PassedListeners,
    /// All addresses of IP networks.
    pub addresses: Vec<SocketAddr>,
    /// Networks that may connect; empty if none is named.
    pub networks: Vec<IpNet>,
}

impl ListenPlan {
    /// Checks the settings of addresses and clients.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(settings: &Merged<ServeOptions>) -> Result<Self, Error> {
        let (arguments, origins) = (&settings.options, &settings.origins);
        let listen = arguments.listen.iter().map(|url| address::listen(url));
        let listen = listen.collect::<Result<Vec<_>, _>>()?;
        let ips: Vec<_> = listen.iter().filter_map(FabricAddress::ip).collect();
        let tcp = match &arguments.tcp {
            Some(text) => address::tcp(text)?,
            None => ips.first().copied().map(tcp_beside),
        };
        let tls = arguments.tls.open(tcp.is_some())?;
        proofs::check_protected(&listen, tls.as_deref(), &arguments.tls.unprotected)?;
        trace::check(arguments.observe.log.as_deref()).map_err(Error::usage)?;
        let networks = connecting(cidr::clients(&arguments.clients)?, &settings.exports);
        let addresses: Vec<_> = ips.iter().copied().chain(tcp).collect();
        let cores = usize::from(arguments.cores);
        let fabrics = FabricShards::all(listen, &settings.listen, cores, origins)?;
        check_once(&addresses)?;
        let passed = passed::at(&fabrics, tcp, arguments.steer)?;
        check_open("--tcp", tcp.filter(|_| arguments.tcp.is_some()).as_slice(), &networks)?;
        check_open("--listen", &ips, &networks)?;
        Ok(Self { fabrics, tcp, tls, passed, addresses, networks })
    }

    /// Shards of all fabrics.
    pub fn shards(&self) -> usize {
        self.fabrics.iter().map(|fabric| fabric.cores).sum()
    }

    /// True if there is a fabric of this scheme.
    pub fn has_scheme(&self, scheme: &str) -> bool {
        self.fabrics.iter().any(|fabric| fabric.group.info().scheme == scheme)
    }

    /// True if all addresses are loopback ones.
    pub fn is_of_this_host(&self) -> bool {
        self.addresses.iter().all(|at| at.ip().to_canonical().is_loopback())
    }
}

/// The networks that may connect: the configured ones, else those of the exports, if each export
/// has some.
fn connecting(given: Vec<IpNet>, exports: &[ExportEntry]) -> Vec<IpNet> {
    if !given.is_empty() || exports.iter().any(|export| export.rules.clients.is_empty()) {
        return given;
    }
    let mut networks: Vec<_> = exports
        .iter()
        .flat_map(|export| export.rules.clients.iter().map(|rule| rule.network))
        .collect();
    networks.sort();
    networks.dedup();
    networks
}

/// The TCP address for the first RDMA one, unless one is given: where a free port is taken for
/// RDMA, one is taken for TCP, too, so that servers on the same host do not collide. A link-local
/// address keeps its interface.
pub fn tcp_beside(first: SocketAddr) -> SocketAddr {
    let mut at = first;
    at.set_port(if first.port() == 0 { 0 } else { TCP_PORT });
    at
}
