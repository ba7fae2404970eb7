//! Store on a Ceph file system, through libcephfs (`stag-ceph`): one mount per process for all
//! exports and shards. Every call may block, so helpers execute them.
//!
//! | part | content |
//! |---|---|
//! | `life.rs` | the mount: made, lost, made again |
//! | `held.rs` | inodes and open files that are held |
//! | `session.rs` | the store as a helper has it: callers, handles, errors |
//! | `content.rs`, `shared_sync.rs` | READ, WRITE, COMMIT |
//! | `names.rs`, `create.rs` | procedures on names |
//! | `attributes.rs`, `rights.rs`, `acl.rs` | attributes, and who may |
//! | `procedures.rs` | the procedures of NFS, each by one of the parts |
//! | `procedures4.rs` | the procedures that only version 4 has, and pinned files |
//!
//! **A handle** is an inode number and a snapshot with a tag (`crate::exports::handle`): Ceph never
//! reuses a number, and any gateway finds a file by it. Only the tag confines clients: libcephfs
//! opens any inode number, whatever directory is mounted.
//!
//! **Acknowledged data is stored.** Without libcephfs's object cache a WRITE that returns is on the
//! OSDs, so an unstable one is answered as DATA_SYNC. FILE_SYNC and COMMIT sync the file and then
//! read its attributes, because after an eviction the sync alone succeeds.
//!
//! **Attributes from before a change** are never reported: another client may intervene.
//!
//! **Eviction.** When a call reports that the session is gone, a thread mounts again, the write
//! verifier changes, and calls meanwhile get NFS3ERR_JUKEBOX. A namespace change in flight at that
//! moment may have happened, so it gets NFS3ERR_IO. Before such a change the directory's attributes
//! are read, so that on a dead session it fails there, with nothing done.

mod acl;
mod attributes;
mod content;
mod create;
mod held;
mod life;
mod names;
mod procedures;
mod procedures4;
mod rights;
mod session;
mod shared_sync;
#[cfg(test)]
pub(crate) mod tests;

use crate::{
    Backend, ExportRoot, HelperStore,
    exports::{
        cluster::Cluster,
        config::{ExportId, check_name, ids_by_name},
        faults::StoreFaults,
        handle::HandleKey,
        security::SecurityFlavors,
        state_dir::StateDirectory,
    },
    files::{Callers, Epoch, Policy},
    start_error::StartError,
};
use life::{MountLife, MountRecipe};
use procedures4::CephPins;
pub(crate) use session::CephSession;
use session::root_of;
use stag_ceph::{Library, SpaceUse};
use stag_protocol::nfs::v3::{FileHandle, Verifier};
use std::{
    collections::{BTreeMap, HashSet},
    ffi::CString,
    fmt,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Inodes held at a time: about 50 MiB here, and as much in the metadata servers.
pub const INODES: usize = 16_384;

/// A directory of the file system to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CephExportConfig {
    /// The name clients mount it by, without the slash before it.
    pub name: String,
    /// The directory, from the file system's root.
    pub path: String,
    /// True if every change is refused with NFS3ERR_ROFS.
    pub read_only: bool,
    /// Security flavors that it accepts; AUTH_SYS if none are given.
    pub security: Option<SecurityFlavors>,
}

/// Configuration of the store and of its Ceph client.
#[derive(Clone, Debug)]
pub struct CephConfig {
    /// The library.
    pub library: &'static Library,
    /// The Ceph user, without `client.`; `admin` if None.
    pub user: Option<String>,
    /// The configuration file; where Ceph looks if None.
    pub configuration: Option<PathBuf>,
    /// The file system; the default one if None.
    pub file_system: Option<String>,
    /// Name of this gateway, which no other client of the cluster has.
    pub node: String,
    /// Directories to export.
    pub exports: Vec<CephExportConfig>,
    /// Directory for the key and the exports' ids.
    pub state_dir: PathBuf,
    /// The cluster file's content.
    pub cluster: Option<Cluster>,
    /// Rules for mapping callers to users; the mode is ignored here.
    pub callers: Callers,
    /// Inodes to hold at a time.
    pub inodes: usize,
    /// True if clients may access snapshots, under Ceph's name for them (`.snap`).
    pub snapshots: bool,
}

/// An exported directory.
#[derive(Debug)]
struct CephExport {
    /// Its index among the exports.
    place: usize,
    id: ExportId,
    name: String,
    read_only: bool,
    fsid: u64,
    /// Flavors that it accepts; none where no export has any.
    security: Option<SecurityFlavors>,
}

/// The parts of the store that all helpers and shards share.
struct CephShared {
    life: Arc<MountLife>,
    exports: Vec<Arc<CephExport>>,
    handles: HandleKey,
    policy: Policy,
    snapshots: bool,
    pins: CephPins,
    faults: StoreFaults,
    /// Space, and the time of the monitor's report.
    space: Mutex<Option<(Instant, SpaceUse)>>,
    state: StateDirectory,
    /// Keeps other processes of this host from the gateway's name.
    _name: UnixListener,
}

/// A file system of Ceph that is served.
#[derive(Clone)]
pub struct CephBackend(Arc<CephShared>);

impl CephBackend {
    /// Starts mounting the file system and returns at once: calls get NFS3ERR_JUKEBOX until it is
    /// ready. Threads of the library keep to the caller's cores.
    ///
    /// # Errors
    /// A sentence when a name is invalid or in use, or the configuration cannot be read.
    pub fn open(config: &CephConfig) -> Result<Self, StartError> {
        let mut names = HashSet::new();
        for export in &config.exports {
            check_name(&export.name)?;
            if !names.insert(export.name.as_str()) {
                return Err(StartError(format!("two exports have the name {}", export.name)));
            }
        }
        let policy = Policy::of(&config.callers)?;
        let state = StateDirectory::open(&config.state_dir)?;
        let exports = exports(config, &state)?;
        let handles = config.cluster.as_ref().map_or_else(|| state.handles(), Cluster::handles);
        let name = session_name(&config.node)?;
        let lock = take_name(&name)?;
        let recipe = recipe(config, name)?;
        let prepared = recipe.prepare()?;
        let life = MountLife::begin(recipe, prepared, Epoch::of_now()?)?;
        Ok(Self(Arc::new(CephShared {
            life,
            exports,
            handles,
            policy,
            snapshots: config.snapshots,
            pins: CephPins::default(),
            faults: StoreFaults::default(),
            space: Mutex::new(None),
            state,
            _name: lock,
        })))
    }

    /// Sixteen bytes that identify this gateway among all others, including its cluster's; stable
    /// across restarts.
    pub fn identity(&self) -> [u8; 16] {
        self.0.state.identity()
    }

    /// Waits until the file system is mounted; false on timeout.
    pub fn wait(&self, limit: Duration) -> bool {
        self.0.life.wait(limit)
    }

    /// Ends the session with the cluster, so that no other client waits for its capabilities. False
    /// if that takes longer than `limit` because calls are blocked.
    pub fn close(&self, limit: Duration) -> bool {
        self.0.life.close(limit)
    }
}

impl fmt::Debug for CephBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CephBackend({:?})", self.0.exports)
    }
}

impl Backend for CephBackend {
    fn open_helper(&self, _helper: usize) -> Result<Box<dyn HelperStore>, StartError> {
        Ok(Box::new(CephSession::new(Arc::clone(&self.0))))
    }

    fn exports(&self) -> Vec<String> {
        self.0.exports.iter().map(|export| export.name.clone()).collect()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.0.export_roots()
    }

    fn has_security(&self) -> bool {
        self.0.exports.iter().any(|export| export.security.is_some())
    }

    fn flavors(&self, export: &str) -> Option<SecurityFlavors> {
        self.0.exports.iter().find(|it| it.name == export)?.security
    }

    fn flavors_of(&self, object: &FileHandle) -> Option<SecurityFlavors> {
        let id = HandleKey::claimed_export(object)?;
        self.0.exports.iter().find(|export| export.id == id)?.security
    }

    fn is_root(&self, object: &FileHandle) -> bool {
        self.0.is_root(object)
    }

    fn unpin(&self, file: &FileHandle) {
        self.0.unpin(file);
    }

    fn faults(&self) -> BTreeMap<String, u64> {
        self.0.faults.counts()
    }

    fn verifier(&self) -> Verifier {
        self.0.life.epoch.verifier()
    }
}

impl CephShared {
    fn export_roots(&self) -> Vec<ExportRoot> {
        let roots = self.exports.iter().map(|export| ExportRoot {
            name: export.name.clone(),
            id: export.id.0,
            fsid: export.fsid,
            is_read_only: export.read_only,
            root: None,
        });
        roots.collect()
    }

    fn is_root(&self, object: &FileHandle) -> bool {
        let (Ok((id, vino)), Ok(live)) = (self.handles.open_inode(object), self.life.current())
        else {
            return false;
        };
        let export = self.exports.iter().find(|export| export.id == id);
        export.is_some_and(|export| root_of(&live, export) == Ok(vino))
    }
}

fn exports(
    config: &CephConfig,
    state: &StateDirectory,
) -> Result<Vec<Arc<CephExport>>, StartError> {
    let cluster = config.cluster.as_ref();
    let named: Vec<_> = config
        .exports
        .iter()
        .map(|export| (export.name.as_str(), format!("ceph:{}", export.path)))
        .collect();
    let ids = ids_by_name(&named, state, cluster)?;
    let handles = cluster.map_or_else(|| state.handles(), Cluster::handles);
    let has_security = config.exports.iter().any(|export| export.security.is_some());
    let mut exports = Vec::with_capacity(ids.len());
    for (place, (export, id)) in config.exports.iter().zip(ids).enumerate() {
        let (name, read_only, fsid) = (export.name.clone(), export.read_only, handles.fsid(id));
        let security = has_security.then(|| export.security.unwrap_or_default());
        exports.push(Arc::new(CephExport { place, id, name, read_only, fsid, security }));
    }
    Ok(exports)
}

/// The name of the session, by which a metadata server knows it.
///
/// # Errors
/// A sentence when the node's name is invalid.
pub fn session_name(node: &str) -> Result<String, StartError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if node.is_empty() || node.len() > 64 || !node.chars().all(is_plain) {
        return Err(StartError(format!(
            "{node:?} cannot name a gateway: 1 to 64 letters, digits, dots, hyphens and underscores"
        )));
    }
    Ok(format!("stag-{node}"))
}

/// Reserves the name on this host; the kernel frees it when the process ends in any way.
fn take_name(name: &str) -> Result<UnixListener, StartError> {
    let address = SocketAddr::from_abstract_name(format!("ceph-session-{name}"));
    address.and_then(|address| UnixListener::bind_addr(&address)).map_err(|error| {
        StartError(match error.kind() {
            std::io::ErrorKind::AddrInUse => format!(
                "another process of this host serves Ceph under the name {name}, and each would \
                 end the other's session: give this one a name of its own, node=NAME"
            ),
            _ => format!("cannot take the name {name} on this host: {error}"),
        })
    })
}

/// A single export is mounted itself, so that its quota shows; several share the root's mount.
fn recipe(config: &CephConfig, name: String) -> Result<MountRecipe, StartError> {
    let components = |export: &CephExportConfig| -> Result<Vec<CString>, StartError> {
        let names = export.path.split('/').filter(|name| !name.is_empty());
        names
            .map(|name| match name {
                "." | ".." => Err(StartError(format!("{} is no plain path", export.path))),
                _ => {
                    CString::new(name).map_err(|_| StartError("a path has a zero octet".to_owned()))
                }
            })
            .collect()
    };
    let paths = config.exports.iter().map(components).collect::<Result<Vec<_>, _>>()?;
    let (path, exports) = match (config.exports.as_slice(), paths.as_slice()) {
        ([only], [names]) if !names.is_empty() => (only.path.clone(), vec![Vec::new()]),
        _ => ("/".to_owned(), paths),
    };
    Ok(MountRecipe {
        library: config.library,
        user: config.user.clone(),
        configuration: config.configuration.clone(),
        file_system: config.file_system.clone(),
        path,
        name,
        exports,
        inodes: config.inodes,
    })
}
