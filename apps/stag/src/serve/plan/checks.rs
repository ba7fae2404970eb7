//! Checks for combinations of settings that no server can serve.

use super::{exports::Exported, options::ServeOptions, security, shards::FabricShards};
use crate::{Error, args::address::cannot_listen, cluster, plain};
use ipnet::IpNet;
use stag_engine::launch;
use stag_fabrics::Sharing;
use stag_nfs_store::exports::cluster::Cluster;
use stag_verbs::FabricFault;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

/// Reads the cluster file. One that clients could read under an export is refused, because its key
/// would let them forge file handles.
pub fn cluster_of(given: Option<&Path>, exports: &[Exported]) -> Result<Option<Cluster>, Error> {
    let Some(file) = given else { return Ok(None) };
    let cluster = cluster::read(file)?;
    let real = fs::canonicalize(file).map_err(|error| {
        Error::usage(format!("cannot find {}: {}", file.display(), plain(&error)))
    })?;
    let is_under = |path: &&PathBuf| real.starts_with(path);
    match exports.iter().filter_map(|export| export.path.as_ref()).find(is_under) {
        None => Ok(Some(cluster)),
        Some(path) => Err(Error::usage(format!(
            "the cluster file {} lies under {}, so that clients could read its key: move it",
            file.display(),
            path.display()
        ))),
    }
}

/// Each shard needs a core of its own.
pub fn check_cores(fabrics: &[FabricShards]) -> Result<(), Error> {
    let usable = launch::cores().len();
    let needed: usize = fabrics.iter().map(|fabric| fabric.cores).sum();
    let wanted = fabrics.first().map_or(0, |fabric| fabric.cores);
    if fabrics.iter().any(|fabric| fabric.cores != wanted) && needed > usable {
        return Err(Error::usage(format!(
            "the listeners (--listen) ask for {needed} cores, more than the {usable} that this \
             process may use: give lower numbers"
        )));
    }
    let fabrics = fabrics.len();
    // One shard runs also where no core can be pinned.
    if needed > usable.max(1) {
        let each =
            if fabrics > 1 { format!(" for each of {fabrics} schemes") } else { String::new() };
        return Err(Error::usage(format!(
            "--cores {wanted}{each} is more than the {usable} that this process may use: give a \
             lower number"
        )));
    }
    Ok(())
}

/// Refuses several shards where only one can listen.
pub fn check_sharing(fabrics: &[FabricShards]) -> Result<(), Error> {
    let several = fabrics.iter().filter(|fabric| fabric.cores > 1);
    let mut alone =
        several.map(|fabric| fabric.group.info()).filter(|info| info.sharing == Sharing::Nobody);
    match alone.next() {
        Some(info) => Err(Error::usage(format!(
            "{}:// is served by one core: leave --cores out, or start a server for each port",
            info.scheme
        ))),
        None => Ok(()),
    }
}

/// Refuses arguments that have no meaning for a store in memory.
pub fn check_memory(arguments: &ServeOptions, exports: &[Exported]) -> Result<(), Error> {
    let is_usual =
        |it: &Exported| it.rules.without_security().are_usual() && !it.is_slow && !it.is_mountpoint;
    if !exports.iter().all(is_usual) {
        return Err(Error::usage(
            "--memory has one list of clients for all exports, and no options of theirs: leave \
             them out, or serve the directories themselves",
        ));
    }
    security::of_memory(exports)?;
    let callers = [
        ("--mode", arguments.mode.is_some()),
        ("--squash", !arguments.squash.is_empty()),
        ("--anonuid", arguments.anonuid.is_some()),
        ("--anongid", arguments.anongid.is_some()),
        ("--groups", arguments.groups.is_some()),
    ];
    match callers.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Error::usage(format!(
            "{flag} means nothing with --memory, where everybody may do everything: leave it out"
        ))),
        None => Ok(()),
    }
}

/// The sentence about `--insecure` with a store in memory, which has it already: no reason not to
/// start.
pub fn notice_of_memory(arguments: &ServeOptions) -> Option<String> {
    (arguments.memory.is_some() && arguments.insecure).then(|| {
        "--insecure changes nothing with --memory, where everybody may do everything".to_owned()
    })
}

/// Refuses an address that is given twice: shards share their ports, so the system would accept it.
pub fn check_once(addresses: &[SocketAddr]) -> Result<(), Error> {
    let twice = addresses.iter().enumerate().find(|(place, at)| {
        at.port() != 0 && addresses.iter().take(*place).any(|other| other == *at)
    });
    match twice {
        Some((_, at)) => Err(Error::usage(format!(
            "{at} is given twice: --listen and --tcp need ports of their own"
        ))),
        None => Ok(()),
    }
}

/// A notice if hosts are listed as clients that cannot reach any of the addresses.
pub fn unreachable(addresses: &[SocketAddr], clients: &[IpNet]) -> Option<String> {
    let is_of_this_host = addresses.iter().all(|at| at.ip().to_canonical().is_loopback());
    let has_others = clients.iter().any(|network| !network.addr().to_canonical().is_loopback());
    (is_of_this_host && !addresses.is_empty() && has_others).then(|| {
        "hosts are listed as clients that cannot come: only loopback addresses are listened at; \
         give others with --listen and --tcp (in a file: [[listen]] and tcp)"
            .to_owned()
    })
}

/// Checks that no other server has the addresses. Several shards share their ports, and would share
/// them with another server of the same user as well, so this listens exclusively for a moment.
pub fn check_free(addresses: impl Iterator<Item = SocketAddr>) -> Result<(), Error> {
    for at in addresses.filter(|at| at.port() != 0) {
        TcpListener::bind(at)
            .map_err(|error| cannot_listen(&at, FabricFault::from(&error), "--listen or --tcp"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::cidr;

    #[test]
    fn clients_that_reach_no_address_are_told_of() {
        let notice = |at: &str, clients: &str| {
            let networks = clients.split(',').map(|text| cidr::parse(text, "--clients").unwrap());
            unreachable(&[at.parse().unwrap()], &networks.collect::<Vec<_>>())
        };
        assert!(notice("127.0.0.1:1", "10.0.0.0/8").is_some());
        assert!(notice("[::1]:1", "127.0.0.0/8,fd00::/8").is_some());
        assert_eq!(notice("127.0.0.1:1", "127.0.0.0/8,::1/128"), None);
        assert_eq!(notice("0.0.0.0:1", "10.0.0.0/8"), None);
        let network = cidr::parse("10.0.0.0/8", "--clients").unwrap();
        assert_eq!(unreachable(&[], &[network]), None);
    }
}
