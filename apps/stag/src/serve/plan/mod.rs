//! Plan of a server, checked: every mistake in the command line is found here, before anything
//! starts.

pub mod ceph_url;
pub mod checks;
pub mod client_rules;
pub mod defaults;
pub mod exports;
pub mod host_checks;
pub mod limits;
pub mod meaningless;
pub mod memory_need;
pub mod nfs4;
pub mod options;
pub mod passed;
pub mod proofs;
pub mod ready_file;
pub mod shards;
pub mod state_dir;

use crate::{
    Error,
    admission::{self, Clients},
    args::{
        address,
        cidr::{self, check_open},
        size,
    },
    descriptors::{self, Share, Wanted},
    replace,
    settings::{ExportEntry, Merged},
    tls, trace,
};
use ceph_url::CephPlan;
use checks::{check_cores, check_memory, check_once, check_sharing, cluster_of, unreachable};
use client_rules::{Reach, callers};
use exports::Exported;
use ipnet::IpNet;
use meaningless::Served;
use memory_need::Need;
use nfs4::NfsPlan;
use options::{ServeOptions, SteerOption};
use shards::FabricShards;
use stag_engine::tls::ServerTls;
use stag_fabrics::FabricAddress;
use stag_nfs::serve::ShardSizes;
use stag_nfs_store::{
    ceph::CephExportConfig,
    exports::{
        client_rules::{ClientOptions, ExportRules, Squash},
        cluster::Cluster,
        config::ExportConfig,
    },
    files::{self, Callers, ExportSet, RuledExport, SlowExports, WaitingConfig},
    memory::{self, MemoryExport},
};
use stag_protocol::rpcrdma::Versions;
use stag_verbs::{LinkSettings, PassedListeners};
use state_dir::state_dir;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The port of NFS and MOUNT over TCP, unless another is given.
const TCP_PORT: u16 = 2_049;

/// Plan of what to serve and where.
#[derive(Debug)]
pub struct Plan {
    /// Exports: directories, and with a memory store their copies.
    pub exports: Vec<Exported>,
    pub store: StorePlan,
    /// Addresses to listen at, by fabric: each fabric has shards of its own.
    pub fabrics: Vec<FabricShards>,
    pub tcp: Option<SocketAddr>,
    /// TLS of calls over TCP.
    pub tls: Option<Arc<ServerTls>>,
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

/// Kind of store that serves the files.
#[derive(Clone, Debug)]
pub enum StorePlan {
    /// Directories, alone or as a gateway of a cluster.
    Files {
        state_dir: PathBuf,
        callers: Callers,
        cluster: Option<Cluster>,
        /// Helpers, and the exports whose calls they make.
        waiting: WaitingConfig,
    },
    /// Directories of a Ceph file system, alone or as a gateway of a cluster.
    Ceph {
        ceph: CephPlan,
        state_dir: PathBuf,
        callers: Callers,
        cluster: Option<Cluster>,
        helpers: usize,
    },
    /// Memory of `capacity` octets; the directory of the control socket, if one was named.
    Memory { capacity: usize, state_dir: Option<PathBuf> },
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
        let checked = Self::checked(settings, purpose).and_then(|mut plan| {
            if purpose != PlanPurpose::Reload {
                host_checks::check(&settings.options, &mut plan, purpose)?;
            }
            Ok(plan)
        });
        checked.map_err(|error| settings.origins.placed(error))
    }

    fn checked(settings: &Merged<ServeOptions>, purpose: PlanPurpose) -> Result<Self, Error> {
        let (arguments, origins) = (&settings.options, &settings.origins);
        let listen = arguments
            .listen
            .iter()
            .map(|url| address::listen(url))
            .collect::<Result<Vec<_>, _>>()?;
        let ips: Vec<_> = listen.iter().filter_map(FabricAddress::ip).collect();
        let tcp = match &arguments.tcp {
            Some(text) => address::tcp(text)?,
            None => ips.first().copied().map(tcp_beside),
        };
        let tls = arguments.tls.open(tcp.is_some())?;
        proofs::check_protected(&listen, tls.as_deref(), &arguments.tls.unprotected)?;
        trace::check(arguments.observe.log.as_deref())?;
        let clients = connecting(cidr::clients(&arguments.clients)?, &settings.exports);
        let addresses: Vec<_> = ips.iter().copied().chain(tcp).collect();
        let fabrics =
            FabricShards::all(listen, &settings.listen, usize::from(arguments.cores), origins)?;
        let is_of_this_host = addresses.iter().all(|at| at.ip().to_canonical().is_loopback());
        check_once(&addresses)?;
        let passed = passed::at(&fabrics, tcp, arguments.steer)?;
        check_open("--tcp", tcp.filter(|_| arguments.tcp.is_some()).as_slice(), &clients)?;
        check_open("--listen", &ips, &clients)?;
        let ceph = ceph_url::of(arguments, &settings.exports, origins)?;
        let exports = match &ceph {
            Some(ceph) => ceph.exports.iter().map(exported).collect(),
            None => exports::all(arguments, &settings.exports, origins)?,
        };
        let capacity = arguments.memory.as_deref().map(capacity).transpose()?;
        exports::check_names(&exports, capacity.is_none() && ceph.is_none(), origins)?;
        let served = Served {
            has_shm: fabrics.iter().any(|fabric| fabric.group.info().scheme == "shm"),
            has_rdma: fabrics.iter().any(|fabric| fabric.group.info().scheme == "rdma"),
            has_ip: !addresses.is_empty(),
            has_tcp: tcp.is_some(),
            is_memory: capacity.is_some(),
        };
        meaningless::check_parts(arguments, origins, served)?;
        check_cores(&fabrics)?;
        check_sharing(&fabrics)?;
        let sizes = limits::sizes(&arguments.limits)?;
        if capacity.is_some() {
            check_memory(arguments, &exports)?;
        }
        if let Some(file) = &arguments.stats {
            replace::check(file, "statistics").map_err(|error| error.of_flag("stats"))?;
        }
        if let Some(file) = &arguments.ready_file {
            ready_file::check(file).map_err(|error| error.of_flag("ready-file"))?;
            if purpose == PlanPurpose::Start {
                ready_file::clear(file)?;
            }
        }
        let shards = fabrics.iter().map(|fabric| fabric.cores).sum();
        let state_dir = || state_dir(arguments.state_dir.as_deref(), &exports, purpose);
        let setting_of_users = meaningless::of_users(arguments, &settings.exports, origins);
        if capacity.is_none() && ceph.is_none() {
            meaningless::check_asked(arguments, setting_of_users.as_ref())?;
        }
        let reach = Reach {
            is_of_this_host,
            has_addresses: !addresses.is_empty(),
            is_unasked: clients.is_empty() && exports.iter().all(|it| it.rules.are_usual()),
        };
        let store = match (capacity, ceph) {
            (Some(capacity), _) => {
                let state_dir = arguments.state_dir.is_some().then(state_dir).transpose()?;
                StorePlan::Memory { capacity, state_dir }
            }
            (None, Some(ceph)) => StorePlan::Ceph {
                ceph,
                state_dir: state_dir()?,
                callers: callers(arguments, reach)?,
                cluster: cluster_of(arguments.cluster.as_deref(), &exports)?,
                helpers: usize::from(arguments.helpers),
            },
            (None, None) => {
                let state_dir = state_dir()?;
                let cluster = cluster_of(arguments.cluster.as_deref(), &exports)?;
                let callers = callers(arguments, reach)?;
                let waiting = waiting(arguments, &exports)?;
                StorePlan::Files { state_dir, callers, cluster, waiting }
            }
        };
        let need = Need { shards, buffers: sizes.octets() * shards, files: capacity.unwrap_or(0) };
        let memory = memory_need::check(need, limits::memory_max(&arguments.limits)?)?;
        limits::check_locked(&fabrics, &sizes)?;
        let has_files = matches!(store, StorePlan::Files { .. });
        let (limit, wanted) =
            (descriptors::raise(), wanted(shards, tcp.is_some(), &sizes, has_files));
        let share = Share::of(limit, wanted)?;
        limits::check_descriptors(&arguments.limits, &share, limit)?;
        let mut notices: Vec<_> = share.notice(limit, wanted).into_iter().collect();
        notices.extend(tls.as_deref().map(tls::sentence));
        notices.extend(exports::overlaps(&exports));
        notices.extend(client_rules::notice(arguments, reach, &store));
        notices.extend(unreachable(&addresses, &clients));
        let nfs = NfsPlan::new(arguments, &exports, origins, &store)?;
        notices.extend(nfs.notice(&store));
        let stats = arguments.stats.clone();
        let (private_data, versions) = (arguments.private_data, arguments.rdma_version);
        let (sample, tells_stages) = (arguments.sample, arguments.stages);
        let per_address =
            limits::connections_per_address(&arguments.limits, arguments.steer, &share, shards);
        let clients = Clients::new(clients, per_address);
        let shm_allow = arguments.shm_allow.clone();
        Ok(Self {
            exports,
            store,
            fabrics,
            shm_allow,
            link: arguments.link.settings(),
            tcp,
            passed,
            tls,
            clients,
            steer: arguments.steer,
            insecure: arguments.insecure,
            is_distrustful: false,
            setting_of_users,
            sizes,
            private_data,
            versions,
            nfs,
            sample,
            tells_stages,
            stats,
            rpcbind: arguments.rpcbind,
            ready_file: arguments.ready_file.clone(),
            share,
            memory,
            notices,
        })
    }

    /// Requires a proof from callers that they are privileged on their hosts, where they could act
    /// as other users by a mere claim: `acts_as` names those.
    ///
    /// # Errors
    /// When processes without a proof are allowed.
    pub fn distrust(&mut self, acts_as: &str) -> Result<(), Error> {
        let first = admission::first_open_port();
        let is_open = |at: &SocketAddr| !at.ip().to_canonical().is_loopback();
        if self.insecure {
            self.is_distrustful = self.mixes_ports();
            self.notices
                .push(format!("--insecure: every user of a client's host can act as {acts_as}"));
            return Ok(());
        }
        if let Some(uid) = self.shm_allow.iter().find(|uid| **uid != 0) {
            return Err(Error::usage(format!(
                "--shm-allow {uid}: processes of that user could act as {acts_as}; add --insecure \
                 if they may, or --mode unprivileged as another user than root"
            )));
        }
        self.is_distrustful = true;
        if self.mixes_ports() {
            self.notices.push(
                "callers of exports that are not insecure have to call from ports below 1024, \
                 which only root of their host can take"
                    .to_owned(),
            );
            return Ok(());
        }
        self.clients.must_be_privileged = true;
        self.notices.push(
            "callers have to connect from ports below 1024, which only root of their host can \
             take (see WHO MAY CONNECT in --help)"
                .to_owned(),
        );
        if self.fabrics.iter().flat_map(|fabric| fabric.group.ips()).any(|at| is_open(&at)) {
            self.notices.push(format!(
                "over RDMA other hosts may use any port, because Linux's NFS does: every user of \
                 a host in --clients can act as {acts_as}"
            ));
        }
        if first < 1_024 {
            self.notices.push(format!(
                "every user of this host can take ports from {first} on \
                 (net.ipv4.ip_unprivileged_port_start), and so act as {acts_as}"
            ));
        }
        Ok(())
    }

    /// The cluster that this server is a gateway of.
    pub const fn cluster(&self) -> Option<&Cluster> {
        match &self.store {
            StorePlan::Files { cluster, .. } | StorePlan::Ceph { cluster, .. } => cluster.as_ref(),
            StorePlan::Memory { .. } => None,
        }
    }

    /// The directory for persistent state and the control socket; a store in memory has one for the
    /// socket alone, if it was named.
    pub fn state_dir(&self) -> Option<&Path> {
        match &self.store {
            StorePlan::Files { state_dir, .. } | StorePlan::Ceph { state_dir, .. } => {
                Some(state_dir)
            }
            StorePlan::Memory { state_dir, .. } => state_dir.as_deref(),
        }
    }

    /// True if any caller acts as a user of its own choice.
    pub fn takes_words(&self) -> bool {
        let StorePlan::Files { callers, .. } = &self.store else { return true };
        let is_named = |squash: Squash| squash != Squash::All;
        let of_rules = |rules: &ExportRules| {
            let clients = rules.clients.iter().map(|rule| rule.options);
            clients.chain([rules.options]).any(|it| it.squash.is_some_and(is_named))
        };
        is_named(callers.squash)
            || callers.networks.iter().any(|rule| is_named(rule.squash))
            || self.exports.iter().any(|export| of_rules(&export.rules))
    }

    /// True if an export, or clients of one, are insecure where the server is not, or the other way
    /// round: then each export checks ports, and no listener does.
    fn mixes_ports(&self) -> bool {
        let differs = |options: &ClientOptions| {
            options.insecure.is_some_and(|insecure| insecure != self.insecure)
        };
        self.exports.iter().any(|export| {
            let clients = export.rules.clients.iter().map(|rule| rule.options);
            clients.chain([export.rules.options]).any(|options| differs(&options))
        })
    }

    /// The exports with their rules, in the form for the store of directories.
    pub fn export_set(&self) -> ExportSet {
        let slow = match &self.store {
            StorePlan::Files { waiting, .. } => waiting.slow.clone(),
            _ => SlowExports::None,
        };
        let exports = self.exports.iter().filter_map(|export| {
            let config = directory(export)?;
            Some(RuledExport { config, rules: export.rules.clone() })
        });
        let is_insecure = self.insecure || !self.is_distrustful;
        ExportSet { exports: exports.collect(), slow, is_insecure }
    }

    /// Shards of all fabrics.
    pub fn shards(&self) -> usize {
        self.fabrics.iter().map(|fabric| fabric.cores).sum()
    }

    /// The exports as the store of directories takes them.
    pub fn directories(&self) -> Vec<ExportConfig> {
        self.exports.iter().filter_map(directory).collect()
    }

    /// The exports as the store in memory takes them.
    pub fn copies(&self) -> Vec<MemoryExport> {
        let copy = |Exported { name, path, read_only, .. }: &Exported| MemoryExport {
            name: name.clone(),
            copy_of: path.clone(),
            read_only: *read_only,
        };
        self.exports.iter().map(copy).collect()
    }
}

/// An export in the form for the store of directories; none of one in memory.
fn directory(export: &Exported) -> Option<ExportConfig> {
    let Exported { name, path, read_only, is_mountpoint, .. } = export;
    let (name, path) = (name.clone(), path.clone()?);
    Some(ExportConfig { name, path, read_only: *read_only, is_mountpoint: *is_mountpoint })
}

fn exported(export: &CephExportConfig) -> Exported {
    Exported::new(export.name.clone(), None, export.read_only)
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

/// Counts the planned descriptors: connections of each shard, and files that it keeps open.
pub fn wanted(shards: usize, has_tcp: bool, sizes: &ShardSizes, has_files: bool) -> Wanted {
    let files = if has_files { files::OPEN_FILES_MAX } else { 0 };
    let streams = if has_tcp { sizes.streams } else { 0 };
    let connections = sizes.connections;
    Wanted { shards, connections, streams, files, per_file: files::DESCRIPTORS_PER_FILE }
}

/// Helpers, and the exports whose calls they make.
fn waiting(arguments: &ServeOptions, exports: &[Exported]) -> Result<WaitingConfig, Error> {
    let helpers = usize::from(arguments.helpers);
    let slow_in_file = exports.iter().filter(|it| it.is_slow).map(|it| it.name.clone());
    let mut names = arguments.slow.clone();
    names.extend(slow_in_file);
    let names = names.as_slice();
    let unknown = |name: &&String| exports.iter().all(|export| export.name != **name);
    let slow = match names {
        [] => SlowExports::ByFileSystem,
        [all] if all == "all" => SlowExports::All,
        names => match names.iter().find(unknown) {
            None => SlowExports::Named(names.to_vec()),
            Some(name) => {
                return Err(Error::usage(format!(
                    "--slow {name}: no export has that name; give the name of one, or all"
                )));
            }
        },
    };
    Ok(WaitingConfig { helpers, slow })
}

/// Octets for a store in memory.
fn capacity(text: &str) -> Result<usize, Error> {
    if text == "auto" {
        return Ok(memory::MemoryConfig::default_capacity());
    }
    let octets = size::octets(text);
    match octets {
        Ok(octets) if octets >= memory::CAPACITY_MIN => {
            let host = memory::MemoryConfig::host_memory();
            if octets > host {
                return Err(Error::usage(format!(
                    "--memory {text} is {} MiB, and this process can have {} MiB: give less, or \
                     auto",
                    octets >> 20,
                    host >> 20
                )));
            }
            Ok(octets)
        }
        Ok(_) => {
            Err(Error::usage(format!("--memory {text} is less than 1M, the least there can be")))
        }
        Err(why) => Err(Error::usage(format!("--memory: {why}; or auto"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_host_has_at_most() {
        let host = memory::MemoryConfig::host_memory();
        assert_eq!((capacity("8M"), capacity("1.5m")), (Ok(8 << 20), Ok(3 << 19)));
        assert!(capacity("auto").unwrap() >= memory::CAPACITY_MIN);
        assert!(matches!(capacity("1023K"), Err(Error::Usage(_))));
        let much = format!("{}M", (host >> 20) + 1);
        let sentence = capacity(&much).unwrap_err().to_string();
        assert!(
            sentence.contains(&much) && sentence.contains(&format!("can have {} MiB", host >> 20)),
            "{sentence}"
        );
    }
}
