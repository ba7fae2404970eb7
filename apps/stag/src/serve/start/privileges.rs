//! Capabilities of a server's process (capabilities(7)): it keeps the ones its mode needs. The
//! others are dropped before there is a second thread, so that no thread has them, and
//! `no_new_privs` keeps them away.

use crate::serve::plan::Plan;
use rustix::{
    io,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use stag_nfs_store::files::CallerMode;

/// The first unprivileged port, Linux' default.
const PORT_OF_ANYBODY: u16 = 1_024;

/// Capabilities that override the permissions of files and quotas: with them, a server of root
/// serves what root can read, and root callers act as root.
const FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::MAC_OVERRIDE);

/// Capabilities to act as other users.
const USERS: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Drops all capabilities but the ones that `plan` needs. To be called while the process has one
/// thread.
///
/// # Errors
/// The kernel's.
pub fn give_up(plan: &Plan) -> io::Result<()> {
    let kept = needed(plan);
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let sets = CapabilitySets {
        effective: effective & kept,
        permitted: permitted & kept,
        inheritable: inheritable & kept,
    };
    set_capabilities(None, sets)
}

fn needed(plan: &Plan) -> CapabilitySet {
    // Memory that a device reaches is locked.
    let mut needed = FILES | CapabilitySet::IPC_LOCK;
    let callers = plan.store.host_callers();
    if callers.is_some_and(|callers| callers.mode != CallerMode::Unprivileged) {
        needed |= USERS;
    }
    // Files of others are watched, too.
    if !plan.nfs.delegations.watched.is_empty() {
        needed |= CapabilitySet::LEASE;
    }
    let fabrics = plan.fabrics.iter().flat_map(|fabric| fabric.group.ips());
    let is_low = |port: u16| port != 0 && port < PORT_OF_ANYBODY;
    // rpcbind takes registrations from low ports only.
    if plan.rpcbind || fabrics.chain(plan.tcp).any(|at| is_low(at.port())) {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    needed
}
