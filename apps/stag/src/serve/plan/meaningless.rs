//! Settings that have no effect together with the others: each is refused.

use super::{
    Plan,
    options::{ModeOption, ServeOptions},
};
use crate::{
    Error,
    settings::{ExportEntry, Origins, ValueOrigin},
};

/// Keys of an export, and of its clients, that only a server of privileged mode follows.
const KEYS: [&str; 3] = ["squash", "anonuid", "anongid"];

/// The parts of a server that settings may be about.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Shared memory is listened at.
    pub has_shm: bool,
    /// An RDMA device is listened at.
    pub has_rdma: bool,
    /// True if the server listens at an address of an IP network, by RDMA or TCP.
    pub has_ip: bool,
    /// TCP is listened at.
    pub has_tcp: bool,
    /// The store is in memory.
    pub is_memory: bool,
}

/// Refuses settings of parts that the server does not have.
///
/// # Errors
/// The first such setting, and what to do about it.
pub fn check_parts(
    arguments: &ServeOptions,
    origins: &Origins,
    served: Served,
) -> Result<(), Error> {
    const MEMORY: &str = "with --memory, which waits for no file system: leave it out";
    const NO_SHM: &str = "without a listener of shared memory: add --listen shm:///SOCKET, or \
                          leave it out";
    const NO_RDMA: &str = "without a listener of an RDMA device: add --listen rdma://IP:PORT, or \
                           leave it out";
    const NO_IP: &str = "without a listener of an IP network: leave it out";
    const NO_TCP: &str = "without a listener of TCP: give one with --tcp IP:PORT, or leave it out";
    const SILENT: &str = "with --private-data no, which tells no client: leave one of them out";
    const NO_KEYS: &str = "without the keys of Kerberos: give --keytab FILE, or leave it out";
    const NO_FOUR: &str = "without version 4: leave --nfs 3 out, or this";
    let has_no_keys = arguments.kerberos.keytab.is_none();
    let has_four = arguments.nfs.contains(&4);
    let parts = [
        ("helpers", served.is_memory, MEMORY),
        ("shm-allow", !served.has_shm, NO_SHM),
        ("rdma-tos", !served.has_rdma, NO_RDMA),
        ("rdma-ack-timeout", !served.has_rdma, NO_RDMA),
        ("rdma-retry", !served.has_rdma, NO_RDMA),
        ("steer", !served.has_ip, NO_IP),
        ("clients", !served.has_ip, NO_IP),
        ("tcp-connections", !served.has_tcp, NO_TCP),
        ("rpcbind", !served.has_ip, NO_IP),
        ("lease", !has_four, NO_FOUR),
        ("id-domain", !has_four, NO_FOUR),
        ("id-names", !has_four, NO_FOUR),
        ("inline", !arguments.private_data, SILENT),
        ("kerberos-principal", has_no_keys, NO_KEYS),
        ("kerberos-map", has_no_keys, NO_KEYS),
        ("replay-cache", has_no_keys, NO_KEYS),
    ];
    let is_given = |flag: &str| origins.of_flag(flag) != ValueOrigin::Default;
    match parts.into_iter().find(|(flag, is_missing, _)| *is_missing && is_given(flag)) {
        Some((flag, _, why)) => Err(Error::usage(format!("--{flag} means nothing {why}"))),
        None => Ok(()),
    }
}

/// The first setting without effect in unprivileged mode, in the form that begins a sentence.
pub fn of_users(
    arguments: &ServeOptions,
    entries: &[ExportEntry],
    origins: &Origins,
) -> Option<String> {
    let flags = [
        ("--squash", !arguments.squash.is_empty()),
        ("--anonuid", arguments.anonuid.is_some()),
        ("--anongid", arguments.anongid.is_some()),
    ];
    if let Some((flag, _)) = flags.into_iter().find(|(_, is_given)| *is_given) {
        return Some(flag.to_owned());
    }
    let keys = entries.iter().flat_map(|entry| {
        let of_clients = entry.client_places.iter().flat_map(|place| &place.keys);
        entry.keys.iter().chain(of_clients)
    });
    let mut found = keys.filter(|(key, _)| KEYS.contains(&key.as_str()));
    found.next().map(|(key, line)| format!("{}: {key} of an export", origins.at(*line)))
}

/// Refuses such a setting if unprivileged mode is requested.
///
/// # Errors
/// The setting, and what to do about it.
pub fn check_asked(arguments: &ServeOptions, setting: Option<&String>) -> Result<(), Error> {
    match setting.filter(|_| arguments.mode == Some(ModeOption::Unprivileged)) {
        Some(setting) => Err(Error::usage(format!(
            "{setting} means nothing with --mode unprivileged, where every caller acts as the \
             server's user: leave it out"
        ))),
        None => Ok(()),
    }
}

/// Refuses such a setting if the mode is unprivileged for want of privileges.
///
/// # Errors
/// The setting, and what to do about it.
pub fn check_found(plan: &Plan, is_privileged: bool) -> Result<(), Error> {
    match plan.setting_of_users.as_ref().filter(|_| !is_privileged) {
        Some(setting) => Err(Error::usage(format!(
            "{setting} means nothing where every caller acts as the server's user, because this \
             process cannot act as others: leave it out, or run the server as root (--mode \
             privileged says what it lacks)"
        ))),
        None => Ok(()),
    }
}
