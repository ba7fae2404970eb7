//! Tests of the store on the fake library, and on a cluster of this host if possible: fixtures for
//! the common store tests, and tests of this store alone.

mod acl;
mod eviction;
mod snapshots;

use super::*;
use crate::{Caller, Procedures as _, Store, User};
use stag_ceph::{CephMount, MountSettings, PreparedMount, SetStat, UserPerm};
use stag_engine::PeerAddress;
use stag_protocol::rpc::Gids;
use std::{
    env, io, process,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};
use tempfile::TempDir;

/// Time that mounting may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A library and the cluster that it reaches.
#[derive(Clone, Debug)]
pub(crate) struct CephPlace {
    library: &'static Library,
    configuration: PathBuf,
}

/// A store with one export, `/data`, which has a file `present`.
pub(crate) struct CephBench {
    pub(crate) place: CephPlace,
    pub(crate) config: CephConfig,
    pub(crate) backend: CephBackend,
    /// Another client of the same file system.
    pub(crate) control: CephMount,
}

impl CephPlace {
    /// A cluster of the fake library for this test alone.
    pub(crate) fn fake(home: &TempDir) -> Self {
        static LIBRARY: OnceLock<&'static Library> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let here = env::current_exe().unwrap();
            Library::open(&here.with_file_name("libstag_ceph_fake.so")).unwrap()
        });
        let configuration = home.path().join("ceph.conf");
        std::fs::write(&configuration, "").unwrap();
        Self { library, configuration }
    }

    /// The cluster of this host, if there is one.
    pub(crate) fn cluster() -> Option<Self> {
        let library = match Library::installed() {
            Ok(library) => library,
            Err(error) => {
                // The fake library has been tried, or is tried by another test.
                println!("no cluster: {error}");
                return None;
            }
        };
        let configuration = stag_ceph_fake::cluster::configuration()?.to_owned();
        Some(Self { library, configuration })
    }

    fn mount(&self) -> CephMount {
        let settings =
            MountSettings { configuration: Some(&self.configuration), ..MountSettings::default() };
        PreparedMount::new(self.library, &settings).unwrap().mount("/", None).unwrap()
    }
}

impl CephBench {
    pub(crate) fn new(place: CephPlace, home: &TempDir, read_only: bool) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let node = format!("test-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let control = place.mount();
        let root = UserPerm::root(place.library);
        let name = CString::new(node.as_str()).unwrap();
        let top = control.root().unwrap();
        let (directory, _) = top.make_directory(&name, 0o755, &root).unwrap();
        let (_, file, _) = directory.create(c"present", 0o644, true, &root).unwrap();
        file.write_at(0, b"here").unwrap();
        let [uid, gid] = ids();
        let owner = SetStat { uid: Some(uid), gid: Some(gid), ..SetStat::default() };
        directory.set_attributes(&owner, &root).unwrap();
        // Without a manager no other source reports the available space.
        directory.set_extended(c"ceph.quota.max_bytes", b"8589934592", &root).unwrap();
        let path = format!("/{node}");
        let export = CephExportConfig { name: "data".to_owned(), path, read_only, security: None };
        let config = CephConfig {
            library: place.library,
            user: None,
            configuration: Some(place.configuration.clone()),
            file_system: None,
            node,
            exports: vec![export],
            state_dir: home.path().join("state"),
            cluster: None,
            callers: Callers {
                squash: crate::exports::client_rules::Squash::None,
                ..Callers::default()
            },
            inodes: INODES,
            snapshots: false,
        };
        let backend = CephBackend::open(&config).unwrap();
        assert!(backend.wait(LONG), "it is mounted");
        Self { place, config, backend, control }
    }

    /// A session whose caller is the user of this process.
    pub(crate) fn session(&self) -> CephSession {
        let [uid, gid] = ids();
        self.session_of(uid, gid, &[])
    }

    /// A session of a caller.
    pub(crate) fn session_of(&self, uid: u32, gid: u32, gids: &[u32]) -> CephSession {
        let mut session = CephSession::new(Arc::clone(&self.backend.0));
        let user = User::Unix { uid, gid, gids: Gids::new(gids).unwrap() };
        session.act_as(&Caller::trusted(user, PeerAddress::Simulated));
        session
    }
}

fn ids() -> [u32; 2] {
    [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()]
}

/// Runs calls in the calling thread, as a shard, for the common store tests.
impl Store for CephSession {
    type Now = Self;

    fn now(&mut self) -> &mut Self {
        self
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.shared.exports.iter().map(|export| export.name.as_str())
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.shared.export_roots()
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.shared.unpin(file);
    }

    fn verifier(&self) -> Verifier {
        self.shared.life.epoch.verifier()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
