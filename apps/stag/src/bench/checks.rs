//! Arguments of `stag bench` that cannot be combined.

use super::{options::RunOptions, run::CONTEXTS_MAX};
use crate::{Error, call::Url, descriptors, ticket::CallerSec};
use stag_echo::driver::DEPTH_MAX;
use stag_load::Workload;
use stag_protocol::rpcrdma::Versions;

/// Refuses arguments that cannot be combined.
pub fn check(arguments: &RunOptions, url: &Url) -> Result<(), Error> {
    check_sec(arguments, url)?;
    if arguments.workload.is_nfs() && url.path == b"/" {
        return Err(Error::usage(format!(
            "{} needs an export: write {url}/NAME as 'stag call {url} mount' shows it",
            arguments.workload
        )));
    }
    let cores = stag_engine::launch::cores().len().max(1);
    if usize::from(arguments.cores) > cores {
        return Err(Error::usage(format!(
            "--cores {} is more than the {cores} that this process may use: give a lower number",
            arguments.cores
        )));
    }
    if arguments.names.is_some() && arguments.workload != Workload::ReadDirPlus {
        return Err(Error::usage(format!(
            "--names has no effect with {}: only nfs3:readdirplus lists a directory",
            arguments.workload
        )));
    }
    if arguments.no_verify && arguments.workload == Workload::ReadDirPlus {
        return Err(Error::usage(
            "--no-verify has no effect with nfs3:readdirplus: the names of each listing are \
             counted",
        ));
    }
    if arguments.reconnect && arguments.workload == Workload::Commit {
        return Err(Error::usage(
            "--reconnect is for a server that restarts, and nfs3:commit stops there: a restart \
             changes the write verifier",
        ));
    }
    if arguments.connections < arguments.cores {
        return Err(Error::usage(format!(
            "--connections {} is less than --cores {}: each core has at least one",
            arguments.connections, arguments.cores
        )));
    }
    if url.server.is_over_tcp() {
        descriptors::check_calling(arguments.connections.into(), arguments.cores.into())?;
    }
    if url.server.fabric().is_none() && arguments.rdma_version != Versions::One {
        return Err(Error::usage(
            "--rdma-version is of RPC over RDMA, and tcp:// has none: leave it out",
        ));
    }
    let is_kept = !matches!(arguments.workload, Workload::Reverse | Workload::ConnStorm);
    if arguments.reconnect && (url.server.fabric().is_none() || !is_kept) {
        return Err(Error::usage(
            "--reconnect is of calls over a fabric (iwarp://, shm://, rdma://) whose connections \
             last: leave it out",
        ));
    }
    if arguments.stages && matches!(arguments.workload, Workload::Reverse | Workload::ConnStorm) {
        let why = "--stages follows calls of ours over connections that last";
        return Err(Error::usage(format!("{why}: leave it out with {}", arguments.workload)));
    }
    match arguments.workload {
        Workload::Reverse => check_reverse(arguments, url)?,
        Workload::ConnStorm if arguments.depth.is_some_and(|depth| depth > 1) => {
            return Err(Error::usage(
                "connstorm makes one call on each connection: leave --depth out, and say by \
                 --connections how many there are at a time",
            ));
        }
        _ => {}
    }
    if arguments.stages && matches!(arguments.workload, Workload::Reverse | Workload::ConnStorm) {
        return Err(Error::usage(format!(
            "--stages watches calls of this side on connections that stay: there are none in {}",
            arguments.workload
        )));
    }
    Ok(())
}

/// Refuses calls by a ticket where none can be made.
fn check_sec(arguments: &RunOptions, url: &Url) -> Result<(), Error> {
    let (workload, sec) = (arguments.workload, url.credential().name());
    if url.credential() == CallerSec::Sys {
        return Ok(());
    }
    let nodes = arguments.nodes.as_ref().map_or(1, |nodes| nodes.0.len());
    let most = CONTEXTS_MAX / nodes.max(1);
    if nodes > 1 && usize::from(arguments.connections) > most {
        return Err(Error::usage(format!(
            "--connections {} with sec={sec} is too many for {nodes} nodes: each connection has a \
             context, and servers keep a few of a user; give {most} at most",
            arguments.connections
        )));
    }
    if usize::from(arguments.cores) > CONTEXTS_MAX {
        return Err(Error::usage(format!(
            "--cores {} with sec={sec}: each core has a context at least, and servers keep a few \
             of a user; give {CONTEXTS_MAX} at most",
            arguments.cores
        )));
    }
    match workload {
        Workload::ConnStorm => Err(Error::usage(format!(
            "connstorm measures connections, and a context of Kerberos outlasts them: leave \
             sec={sec} out"
        ))),
        Workload::Null if url.path != b"/" => Ok(()),
        workload if workload.is_nfs() => Ok(()),
        Workload::Null => Err(Error::usage(format!(
            "sec={sec} is of calls to NFS: name an export, as {url}/NAME"
        ))),
        _ => Err(Error::usage(format!(
            "{workload} calls the echo program, which takes no Kerberos: leave sec={sec} out, or \
             choose null with an export, or a workload of NFS"
        ))),
    }
}

/// Refuses arguments that cannot be combined with reverse calls.
fn check_reverse(arguments: &RunOptions, url: &Url) -> Result<(), Error> {
    if url.server.fabric().is_none() {
        return Err(Error::usage(
            "reverse measures calls of the server over RPC over RDMA (RFC 8167): there are none \
             over tcp://",
        ));
    }
    if arguments.rate.is_some() || arguments.slo.is_some() {
        return Err(Error::usage(
            "reverse is a closed loop, because the server decides when it calls: leave --rate and \
             --slo out",
        ));
    }
    if arguments.depth.is_some_and(|depth| u32::from(depth) > DEPTH_MAX) {
        return Err(Error::usage(format!(
            "--depth is {DEPTH_MAX} at most for reverse: 'stag echo' makes as many calls on one \
             connection"
        )));
    }
    Ok(())
}
