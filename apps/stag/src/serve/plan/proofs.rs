//! Proofs that each listener requires of its callers, and the listeners through which callers would
//! get past TLS where it is required.

use super::Plan;
use crate::{Error, args::address};
use stag_engine::tls::ServerTls;
use stag_fabrics::FabricAddress;
use std::net::SocketAddr;

/// Returns true if other hosts can reach the address.
pub fn is_open(at: SocketAddr) -> bool {
    !at.ip().to_canonical().is_loopback()
}

/// Refuses listeners that other hosts can call without TLS where it is required, unless they are
/// named in `unprotected`.
///
/// # Errors
/// A sentence about the first one, or about a name in `unprotected` that means nothing.
pub fn check_protected(
    listen: &[FabricAddress],
    tls: Option<&ServerTls>,
    unprotected: &[String],
) -> Result<(), Error> {
    let is_required = tls.is_some_and(ServerTls::is_required);
    let mut named = Vec::new();
    for url in unprotected {
        if !is_required {
            return Err(Error::usage(format!(
                "--unprotected {url} means nothing without --tls required: leave it out"
            )));
        }
        let at = address::listen(url).ok().filter(|at| listen.contains(at));
        named.push(at.ok_or_else(|| {
            Error::usage(format!(
                "--unprotected {url} is none of the addresses of --listen: write it as there"
            ))
        })?);
    }
    let is_bypass = |at: &&FabricAddress| at.ip().is_some_and(is_open) && !named.contains(*at);
    match listen.iter().find(is_bypass).filter(|_| is_required) {
        Some(at) => Err(Error::usage(format!(
            "--listen {at}: RDMA has no TLS, so that hosts in --clients could read and write there \
             without a certificate in spite of --tls required; leave it out, listen at a loopback \
             address, or let them with --unprotected {at}"
        ))),
        None => Ok(()),
    }
}

/// A line for each listener: what a call there proves about the caller.
pub fn proofs(plan: &Plan) -> Vec<String> {
    let addresses = plan.fabrics.iter().flat_map(|fabric| fabric.group.addresses());
    let fabrics = addresses.map(|at| {
        let proof = match at.ip() {
            None => "in the clear, inside this host; proves the user of the process".to_owned(),
            Some(ip) => clear(plan, ip, is_open(ip)),
        };
        format!("listener {at}: {proof}")
    });
    let tcp = plan.tcp.map(|at| format!("listener tcp://{at}: {}", over_tcp(plan, at)));
    fabrics.chain(tcp).collect()
}

fn over_tcp(plan: &Plan, at: SocketAddr) -> String {
    let Some(tls) = plan.tls.as_deref() else { return clear(plan, at, false) };
    let inside = match tls.asks_for_certificates() {
        true => "proves the host, by a certificate",
        false => "proves the address, for clients show no certificate",
    };
    match tls.is_required() {
        true => format!("TLS alone; {inside}"),
        false => format!("TLS for those who ask, which {inside}; else {}", clear(plan, at, false)),
    }
}

/// The proof of a call without TLS, which may come from `any_port` of another host.
fn clear(plan: &Plan, at: SocketAddr, any_port: bool) -> String {
    let host = if is_open(at) { "the address" } else { "that the caller is on this host" };
    let port = match plan.clients.must_be_privileged && !any_port {
        true => ", and that root took its port there",
        false => "",
    };
    format!("in the clear; proves {host}{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_unprotected_listeners_have_to_mean_something() {
        let at = |url: &str| address::listen(url).unwrap();
        let refused = |listen: &[FabricAddress], named: &str| {
            check_protected(listen, None, &[named.to_owned()]).unwrap_err().to_string()
        };
        assert!(refused(&[at("iwarp://10.0.0.1:1")], "iwarp://10.0.0.1:1").contains("--tls"));
        assert_eq!(check_protected(&[at("iwarp://10.0.0.1:1")], None, &[]), Ok(()));
    }
}
