//! Plan of a server, checked: every mistake in the command line is found here, before anything
//! starts.

pub mod checks;
pub mod client_rules;
pub mod defaults;
pub mod exports;
pub mod host_checks;
mod kerberos;
pub mod limits;
mod listen;
pub mod meaningless;
pub mod memory_need;
pub mod nfs4;
pub mod observe_options;
pub mod options;
pub mod owners;
mod parts;
pub mod passed;
pub mod proofs;
pub mod ready_file;
pub mod security;
pub mod shards;
pub mod state_dir;
pub mod stores;

pub use kerberos::KerberosPlan;

use crate::{Error, admission::Clients, descriptors::Share, settings::Merged};
use exports::Exported;
use nfs4::NfsPlan;
use options::{ServeOptions, SteerOption};
use owners::OwnersPlan;
use parts::PlanParts;
use shards::FabricShards;
use stag_engine::tls::ServerTls;
use stag_nfs::serve::ShardSizes;
use stag_nfs_store::{
    exports::{
        client_rules::{ExportRules, Squash},
        config::ExportConfig,
    },
    files::{ExportSet, RuledExport},
};
use stag_protocol::rpcrdma::Versions;
use stag_verbs::{LinkSettings, PassedListeners};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use stores::PlannedStore;

/// Plan of what to serve and where.
#[derive(Debug)]
pub struct Plan {
    /// Exports: directories, and with a memory store their copies.
    pub exports: Vec<Exported>,
    pub store: Box<dyn PlannedStore>,
    /// Addresses to listen at, by fabric: each fabric has shards of its own.
    pub fabrics: Vec<FabricShards>,
    pub tcp: Option<SocketAddr>,
    /// TLS of calls over TCP.
    pub tls: Option<Arc<ServerTls>>,
    /// Kerberos of its clients.
    pub kerberos: Option<KerberosPlan>,
    /// Names of owners in version 4.
    pub owners: OwnersPlan,
    pub clients: Clients,
    /// Sockets of a service manager, each at one of the addresses.
    pub passed: PassedListeners,
    /// Choice of the core that serves a connection.
    pub steer: SteerOption,
    /// Callers may come from any port, regardless of whom they can act as.
    pub insecure: bool,
    /// Callers can act as more than they are, so their connections have to prove something.
    is_distrustful: bool,
    /// The first setting, if any, that only a server of privileged mode follows.
    pub setting_of_users: Option<String>,
    /// Users whose processes may connect by shared memory, in addition to our own and root.
    pub shm_allow: Vec<u32>,
    /// Connections on RDMA devices.
    pub link: LinkSettings,
    /// Sizes of each shard.
    pub sizes: ShardSizes,
    /// Send CM private data: clients learn while they connect what they may send.
    pub private_data: bool,
    /// Versions of RPC-over-RDMA.
    pub versions: Versions,
    /// Versions of NFS.
    pub nfs: NfsPlan,
    /// Samples one call in this number from stage to stage.
    pub sample: u32,
    /// Clients that ask receive the times of their calls' stages.
    pub tells_stages: bool,
    pub stats: Option<PathBuf>,
    /// Register with rpcbind.
    pub rpcbind: bool,
    /// A file that holds the READY block while the server serves.
    pub ready_file: Option<PathBuf>,
    /// Each shard's part of the process' descriptors.
    pub share: Share,
    /// A sentence about the memory that it needs.
    pub memory: String,
    /// Sentences about whatever is less than it could be.
    pub notices: Vec<String>,
}

/// Purpose of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanPurpose {
    /// A start: the state directory is made, and an old READY block removed.
    Start,
    /// A look: nothing is changed.
    Check,
    /// Settings of a running server: nothing is changed, and what the start opened stays.
    Reload,
}

impl Plan {
    /// Checks the settings.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong, with its place in the file if it has one.
    pub fn new(settings: &Merged<ServeOptions>, purpose: PlanPurpose) -> Result<Self, Error> {
        let parts = PlanParts::checked(settings, purpose);
        let checked = parts.map(|parts| parts.plan(&settings.options)).and_then(|mut plan| {
            if purpose != PlanPurpose::Reload {
                host_checks::check(&settings.options, &mut plan, purpose)?;
            }
            Ok(plan)
        });
        checked.map_err(|error| settings.origins.placed(error))
    }

    /// The directory for persistent state and the control socket; a store in memory has one for the
    /// socket alone, if it was named.
    pub fn state_dir(&self) -> Option<&Path> {
        self.store.state_dir()
    }

    /// True if any caller acts as a user of its own choice.
    pub fn takes_words(&self) -> bool {
        let Some(callers) = self.store.host_callers() else { return true };
        let is_named = |squash: Squash| squash != Squash::All;
        let of_rules = |rules: &ExportRules| {
            let clients = rules.clients.iter().map(|rule| rule.options);
            clients.chain([rules.options]).any(|it| it.squash.is_some_and(is_named))
        };
        is_named(callers.squash)
            || callers.networks.iter().any(|rule| is_named(rule.squash))
            || self.exports.iter().any(|export| of_rules(&export.rules))
    }

    /// The exports with their rules, in the form for the store of directories.
    pub fn export_set(&self) -> ExportSet {
        let exports = self.exports.iter().filter_map(|export| {
            let config = directory(export)?;
            Some(RuledExport { config, rules: export.rules.clone() })
        });
        let is_insecure = self.insecure || !self.is_distrustful;
        ExportSet { exports: exports.collect(), slow: self.store.slow_exports(), is_insecure }
    }

    /// Shards of all fabrics.
    pub fn shards(&self) -> usize {
        self.fabrics.iter().map(|fabric| fabric.cores).sum()
    }

    /// The exports as the store of directories takes them.
    pub fn directories(&self) -> Vec<ExportConfig> {
        self.exports.iter().filter_map(directory).collect()
    }
}

/// An export in the form for the store of directories; none of one in memory.
fn directory(export: &Exported) -> Option<ExportConfig> {
    let Exported { name, path, read_only, is_mountpoint, .. } = export;
    let (name, path) = (name.clone(), path.clone()?);
    Some(ExportConfig { name, path, read_only: *read_only, is_mountpoint: *is_mountpoint })
}
