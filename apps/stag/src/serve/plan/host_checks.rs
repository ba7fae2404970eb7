//! Checks of a plan against this host for failures that a start would meet later: addresses,
//! sockets, other processes, and privileges. They bind, connect and open, and undo that; a running
//! server of the same settings is not affected.

use super::{Plan, PlanPurpose, options::ServeOptions};
use crate::{
    Error,
    args::address::{self, cannot_listen},
    plain, rpcbind,
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use stag_fabrics::FabricAddress;
use stag_verbs::FabricFault;
use std::{fs, path::Path};

/// Checks `plan`. A check without a start also reports whom it would distrust, as a start does when
/// it has opened the files.
///
/// # Errors
/// A sentence about the first thing that is wrong, which names its flag.
pub fn check(arguments: &ServeOptions, plan: &mut Plan, purpose: PlanPurpose) -> Result<(), Error> {
    check_addresses(arguments, plan)?;
    check_monitors(arguments, plan)?;
    if plan.rpcbind {
        rpcbind::check()?;
    }
    if let Some(pid) = arguments.exit_with {
        open_process(pid)?;
    }
    // A start checks this after it has dropped its privileges, and once in a thread.
    if purpose != PlanPurpose::Check {
        return Ok(());
    }
    if let Some(kerberos) = &plan.kerberos {
        kerberos.acceptor()?;
    }
    let is_privileged = match plan.store.host_callers() {
        Some(callers) => {
            callers.act_as_themselves().map_err(|error| Error::usage(error.to_string()))?
        }
        None => false,
    };
    plan.distrust_claims(is_privileged)
}

/// Checks that this host has the addresses to listen at.
fn check_addresses(arguments: &ServeOptions, plan: &Plan) -> Result<(), Error> {
    for at in plan.fabrics.iter().flat_map(|fabric| fabric.group.addresses()) {
        if let Some(socket) = address::socket_path(at) {
            check_socket(at, &socket)?;
        } else if let Some(ip) = at.ip().filter(|ip| !plan.passed.has(*ip)) {
            address::probe(ip)
                .map_err(|error| cannot_listen(at, FabricFault::from(&error), "--listen"))?;
        }
    }
    let flag = if arguments.tcp.is_some() { "--tcp" } else { "--listen" };
    // An address of the service manager may need a privilege that this process does not have.
    plan.tcp.filter(|at| !plan.passed.has(*at)).map_or(Ok(()), |at| {
        address::probe(at).map_err(|error| cannot_listen(&at, FabricFault::from(&error), flag))
    })
}

/// Checks the sockets for monitoring, without effect on those of a running server.
fn check_monitors(arguments: &ServeOptions, plan: &Plan) -> Result<(), Error> {
    let monitors = arguments.observe.monitors(plan.state_dir());
    if let Some(at) = monitors.metrics_address().map_err(Error::usage)? {
        address::probe(at)
            .map_err(|error| cannot_listen(&at, FabricFault::from(&error), "--metrics"))?;
    }
    monitors.check_control().map_err(Error::usage)
}

/// Checks that there is a directory for a socket of shared memory.
fn check_socket(at: &FabricAddress, socket: &Path) -> Result<(), Error> {
    let Some(folder) = socket.parent() else { return Ok(()) };
    let bad = |why: &str| {
        Err(Error::usage(format!(
            "cannot listen at {at}: {}: {why}; choose another with --listen",
            folder.display()
        )))
    };
    match fs::metadata(folder) {
        Err(error) => bad(&plain(&error)),
        Ok(found) if !found.is_dir() => bad("it is no directory"),
        Ok(_) => Ok(()),
    }
}

/// Opens the process `pid`, to wait for its end.
///
/// # Errors
/// A sentence when there is no such process, or it cannot be watched.
pub fn open_process(pid: i32) -> Result<OwnedFd, Error> {
    let bad = |why: &str| Error::usage(format!("--exit-with {pid}: {why}"));
    let process = Pid::from_raw(pid).ok_or_else(|| bad("give the number of a process"))?;
    pidfd_open(process, PidfdFlags::empty()).map_err(|error| match error {
        Errno::SRCH => bad("there is no such process; give the number of one that runs"),
        Errno::INVAL => bad("this is a thread; give the number of its process"),
        error => bad(&format!("cannot watch that process: {}", plain(&error.into()))),
    })
}
