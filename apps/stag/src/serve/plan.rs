//! Plan of what to serve and where, checked: every mistake in the command line is found here,
//! before anything starts.

use super::{
    ceph_url::{self, CephPlan},
    checks::{check_cores, check_memory, check_once, check_open, check_sharing, cluster_of},
    need,
    nfs4::NfsPlan,
    options::{ModeOption, ServeOptions, SquashOption, SquashRule},
    ready_file,
};
use crate::{
    Error, address,
    admission::{self, Clients},
    cidr,
    descriptors::{self, Share, Wanted},
    plain, replace, size,
    system::default_state_dir,
    tls,
};
use stag_engine::tls::ServerTls;
use stag_fabrics::{FabricAddress, FabricGroup};
use stag_nfs::{
    cluster::Cluster,
    export::ExportConfig,
    serve,
    store::{
        ceph::CephExportConfig,
        files::{self, CallerMode, Callers, NetworkSquash, SlowExports, Squash, WaitingConfig},
        memory::{self, MemoryExport},
    },
};
use stag_protocol::rpcrdma::Versions;
use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    io::ErrorKind,
    net::SocketAddr,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The port of NFS and MOUNT over TCP, unless another is given.
const TCP_PORT: u16 = 2_049;
/// The name of an export in memory, unless another is given.
const MEMORY_NAME: &str = "memory";

/// Plan of what to serve and where.
#[derive(Debug)]
pub struct Plan {
    /// Exports: directories, and with a memory store their copies.
    pub exports: Vec<Exported>,
    pub store: StorePlan,
    /// Addresses to listen at, by fabric: each fabric has shards of its own.
    pub fabrics: Vec<FabricGroup>,
    pub tcp: Option<SocketAddr>,
    /// TLS of calls over TCP.
    pub tls: Option<Arc<ServerTls>>,
    pub clients: Clients,
    /// Callers may come from any port, whoever they can act as.
    pub insecure: bool,
    /// Users whose processes may connect by shared memory, beside our own and root.
    pub shm_allow: Vec<u32>,
    /// Shards of each fabric, each on a core of its own.
    pub cores: usize,
    /// Tell clients while they connect what they may send.
    pub private_data: bool,
    /// Versions of RPC-over-RDMA.
    pub versions: Versions,
    /// Versions of NFS.
    pub nfs: NfsPlan,
    /// One call in so many is watched from stage to stage.
    pub sample: u32,
    /// Whoever asks is told how long calls take.
    pub tells_stages: bool,
    pub stats: Option<PathBuf>,
    /// A file that holds the READY block while the server serves.
    pub ready_file: Option<PathBuf>,
    /// Each shard's part of the process' descriptors.
    pub share: Share,
    /// A sentence about the memory that it needs.
    pub memory: String,
    /// Sentences about whatever is less than it could be.
    pub notices: Vec<String>,
}

/// Export to serve.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Without the slash.
    pub name: String,
    /// The directory; none for an empty export in memory.
    pub path: Option<PathBuf>,
    pub read_only: bool,
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
    /// Memory, so many octets.
    Memory { capacity: usize },
}

impl Plan {
    /// Checks the arguments. Makes the state directory.
    pub fn new(arguments: &ServeOptions) -> Result<Self, Error> {
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
        let clients = cidr::clients(&arguments.clients)?;
        let addresses: Vec<_> = ips.into_iter().chain(tcp).collect();
        let fabrics = FabricGroup::all(listen);
        let is_of_this_host = addresses.iter().all(|at| at.ip().to_canonical().is_loopback());
        check_once(&addresses)?;
        check_open(&addresses, &clients)?;
        let ceph = ceph_url::of(arguments)?;
        let exports = match &ceph {
            Some(ceph) => ceph.exports.iter().map(exported).collect(),
            None => exports(arguments)?,
        };
        let cores = usize::from(arguments.cores);
        check_cores(cores, fabrics.len())?;
        check_sharing(cores, &fabrics)?;
        let capacity = arguments.memory.as_deref().map(capacity).transpose()?;
        if capacity.is_some() {
            check_memory(arguments, &fabrics)?;
        }
        if let Some(file) = &arguments.stats {
            replace::check(file, "statistics")?;
        }
        if let Some(file) = &arguments.ready_file {
            ready_file::clear(file)?;
        }
        let store = match (capacity, ceph) {
            (Some(capacity), _) => StorePlan::Memory { capacity },
            (None, Some(ceph)) => StorePlan::Ceph {
                ceph,
                state_dir: state_dir(arguments.state_dir.as_deref(), &exports)?,
                callers: callers(arguments, is_of_this_host)?,
                cluster: cluster_of(arguments.cluster.as_deref(), &exports)?,
                helpers: usize::from(arguments.helpers),
            },
            (None, None) => {
                let state_dir = state_dir(arguments.state_dir.as_deref(), &exports)?;
                let cluster = cluster_of(arguments.cluster.as_deref(), &exports)?;
                let callers = callers(arguments, is_of_this_host)?;
                let waiting = waiting(arguments, &exports)?;
                StorePlan::Files { state_dir, callers, cluster, waiting }
            }
        };
        let memory = need::check(cores * fabrics.len(), capacity.unwrap_or(0))?;
        let (limit, wanted) =
            (descriptors::raise(), wanted(cores * fabrics.len(), tcp.is_some(), &store));
        let share = Share::of(limit, wanted)?;
        let tls_notice = tls.as_deref().map(tls::sentence);
        let notices: Vec<_> = share.notice(limit, wanted).into_iter().chain(tls_notice).collect();
        let nfs = NfsPlan::new(arguments, cores * fabrics.len(), &store)?;
        let stats = arguments.stats.clone();
        let (private_data, versions) = (arguments.private_data, arguments.rdma_version);
        let (sample, tells_stages) = (arguments.sample, arguments.stages);
        let (clients, shm_allow) = (Clients::new(clients), arguments.shm_allow.clone());
        Ok(Self {
            exports,
            store,
            fabrics,
            shm_allow,
            tcp,
            tls,
            clients,
            insecure: arguments.insecure,
            cores,
            private_data,
            versions,
            nfs,
            sample,
            tells_stages,
            stats,
            ready_file: arguments.ready_file.clone(),
            share,
            memory,
            notices,
        })
    }

    /// Asks callers for a proof that they are privileged on their hosts, where they could act as
    /// others by mere words: `acts_as` is whom that would be.
    ///
    /// # Errors
    /// When processes are let in that have none.
    pub fn distrust(&mut self, acts_as: &str) -> Result<(), Error> {
        let first = admission::first_open_port();
        let is_open = |at: &SocketAddr| !at.ip().to_canonical().is_loopback();
        if self.insecure {
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
        self.clients.must_be_privileged = true;
        self.notices.push(
            "callers have to connect from ports below 1024, which only root of their host can \
             take (see WHO MAY CONNECT in --help)"
                .to_owned(),
        );
        if self.fabrics.iter().flat_map(FabricGroup::ips).any(|at| is_open(&at)) {
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

    /// Shards of all fabrics.
    pub const fn shards(&self) -> usize {
        self.cores * self.fabrics.len()
    }

    /// The exports as the store of directories takes them.
    pub fn directories(&self) -> Vec<ExportConfig> {
        let directory = |Exported { name, path, read_only }: &Exported| {
            Some(ExportConfig { name: name.clone(), path: path.clone()?, read_only: *read_only })
        };
        self.exports.iter().filter_map(directory).collect()
    }

    /// The exports as the store in memory takes them.
    pub fn copies(&self) -> Vec<MemoryExport> {
        let copy = |Exported { name, path, read_only }: &Exported| MemoryExport {
            name: name.clone(),
            copy_of: path.clone(),
            read_only: *read_only,
        };
        self.exports.iter().map(copy).collect()
    }
}

fn exported(export: &CephExportConfig) -> Exported {
    Exported { name: export.name.clone(), path: None, read_only: export.read_only }
}

/// The address for TCP beside the first one for RDMA, unless one is given: where a free port is
/// taken for RDMA, one is taken for TCP, too, so that servers on the same host do not meet.
const fn tcp_beside(first: SocketAddr) -> SocketAddr {
    SocketAddr::new(first.ip(), if first.port() == 0 { 0 } else { TCP_PORT })
}

/// Counts what a server wants to promise: connections of each shard, and files that it keeps open.
fn wanted(shards: usize, has_tcp: bool, store: &StorePlan) -> Wanted {
    let files = if matches!(store, StorePlan::Files { .. }) { files::OPEN_FILES_MAX } else { 0 };
    let streams = if has_tcp { serve::STREAMS } else { 0 };
    let connections = serve::CONNECTIONS;
    Wanted { shards, connections, streams, files, per_file: files::DESCRIPTORS_PER_FILE }
}

/// Decides whom callers act as. Root of this host may do everything here anyway: it is not squashed
/// where nobody else can say that he is root.
fn callers(arguments: &ServeOptions, is_of_this_host: bool) -> Result<Callers, Error> {
    let is_squashing =
        !arguments.squash.is_empty() || arguments.anonuid.is_some() || arguments.anongid.is_some();
    let is_proven = is_of_this_host && !arguments.insecure && admission::first_open_port() >= 1_024;
    let usual = if is_proven && !is_squashing { SquashOption::None } else { SquashOption::Root };
    if arguments.mode == Some(ModeOption::Unprivileged) && is_squashing {
        return Err(Error::usage(
            "--squash, --anonuid and --anongid mean nothing with --mode unprivileged: leave them \
             out",
        ));
    }
    let mode = match arguments.mode.unwrap_or(ModeOption::Auto) {
        ModeOption::Auto => CallerMode::Auto,
        ModeOption::Privileged => CallerMode::Privileged,
        ModeOption::Unprivileged => CallerMode::Unprivileged,
    };
    let (squash, networks) = squashed(&arguments.squash, usual)?;
    let Callers { anon_uid, anon_gid, .. } = Callers::default();
    let (anon_uid, anon_gid) =
        (arguments.anonuid.unwrap_or(anon_uid), arguments.anongid.unwrap_or(anon_gid));
    Ok(Callers { mode, squash, networks, anon_uid, anon_gid })
}

/// The rule of all callers, `usual` if none is given, and those of networks.
fn squashed(
    rules: &[SquashRule],
    usual: SquashOption,
) -> Result<(Squash, Vec<NetworkSquash>), Error> {
    let store_word = |squash| match squash {
        SquashOption::Root => Squash::Root,
        SquashOption::None => Squash::None,
        SquashOption::All => Squash::All,
    };
    let mut of_all = None;
    let mut networks: Vec<NetworkSquash> = Vec::new();
    for SquashRule { network, squash } in rules {
        let squash = store_word(*squash);
        let is_new = match network {
            None => of_all.replace(squash).is_none(),
            Some(network) => {
                let is_new = networks.iter().all(|rule| rule.network != *network);
                networks.push(NetworkSquash { network: *network, squash });
                is_new
            }
        };
        if !is_new {
            let of = network.map_or_else(|| "all callers".to_owned(), |it| it.to_string());
            return Err(Error::usage(format!("--squash has two rules for {of}: leave one out")));
        }
    }
    Ok((of_all.unwrap_or_else(|| store_word(usual)), networks))
}

/// Helpers, and the exports whose calls they make.
fn waiting(arguments: &ServeOptions, exports: &[Exported]) -> Result<WaitingConfig, Error> {
    let helpers = usize::from(arguments.helpers);
    let names = arguments.slow.as_slice();
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

fn exports(arguments: &ServeOptions) -> Result<Vec<Exported>, Error> {
    if arguments.name.is_some() && arguments.directories.len() > 1 {
        return Err(Error::usage(
            "--name is for a single DIR: start a server for each, or rename the directories",
        ));
    }
    if arguments.directories.is_empty() {
        let name =
            arguments.name.as_deref().unwrap_or(MEMORY_NAME).trim_start_matches('/').to_owned();
        return Ok(vec![Exported { name, path: None, read_only: false }]);
    }
    let mut exports: Vec<Exported> = Vec::new();
    for directory in &arguments.directories {
        let export = export(directory, arguments.name.as_deref())?;
        if let Some(other) = exports.iter().find(|other| other.name == export.name) {
            return Err(Error::usage(format!(
                "{} and {} would both be exported as /{}: rename one of them, or serve one alone \
                 with --name",
                shown(other),
                shown(&export),
                export.name
            )));
        }
        exports.push(export);
    }
    Ok(exports)
}

/// Formats the location of an export's content.
fn shown(export: &Exported) -> String {
    export.path.as_ref().map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
}

fn export(directory: &OsStr, name: Option<&str>) -> Result<Exported, Error> {
    let (given, read_only) = match directory.as_bytes().strip_suffix(b":ro") {
        Some(path) => (Path::new(OsStr::from_bytes(path)), true),
        None => (Path::new(directory), false),
    };
    let shown = given.display();
    let found = fs::metadata(given).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::usage(format!(
            "the directory {shown} does not exist: make it, or give another one"
        )),
        _ => Error::usage(format!("cannot look at the directory {shown}: {}", plain(&error))),
    })?;
    if !found.is_dir() {
        return Err(Error::usage(format!(
            "{shown} is not a directory: give the directory that holds it"
        )));
    }
    let path = fs::canonicalize(given).and_then(|path| fs::read_dir(&path).map(|_| path)).map_err(
        |error| Error::usage(format!("cannot read the directory {shown}: {}", plain(&error))),
    )?;
    let name = match name {
        Some(name) => name.trim_start_matches('/').to_owned(),
        None => path.file_name().and_then(OsStr::to_str).map(str::to_owned).ok_or_else(|| {
            Error::usage(format!(
                "{shown} has no name that it could be exported by: give one with --name"
            ))
        })?,
    };
    Ok(Exported { name, path: Some(path), read_only })
}

/// Finds or makes the state directory. What would lie under an export is not made.
fn state_dir(given: Option<&Path>, exports: &[Exported]) -> Result<PathBuf, Error> {
    let directory = match given {
        Some(given) => given.to_owned(),
        None => default_state_dir()?,
    };
    let directory = std::path::absolute(&directory).map_err(|error| {
        Error::usage(format!("cannot use the state directory {directory:?}: {error}"))
    })?;
    let existing = directory.ancestors().find_map(|above| fs::canonicalize(above).ok());
    let is_under = |path: &&PathBuf| existing.as_ref().is_some_and(|above| above.starts_with(path));
    if let Some(path) = exports.iter().filter_map(|export| export.path.as_ref()).find(is_under) {
        return Err(Error::usage(format!(
            "the state directory {} lies under {}, so that clients could read the key of the file \
             handles: choose another with --state-dir",
            directory.display(),
            path.display()
        )));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        Error::usage(format!(
            "cannot make the state directory {}: {}; choose another with --state-dir",
            directory.display(),
            plain(&error)
        ))
    })?;
    Ok(directory)
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
