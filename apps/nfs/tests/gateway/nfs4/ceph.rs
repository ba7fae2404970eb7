//! Version 4 on CephFS, by the fake library: helpers carry out every call to the library.

use super::client::{CONFIG, Client4, ServedExport, read_args, write_args};
use crate::gateway::wire::OverTcp;
use stag_ceph::{CephMount, Library, MountSettings, PreparedMount, SetStat, UserPerm};
// Only so that Cargo builds it beside this program.
use stag_ceph_fake as _;
use stag_engine::Config;
use stag_nfs::Gateway;
use stag_nfs_store::{
    Backend, RemoteStore,
    ceph::{CephBackend, CephConfig, CephExportConfig, INODES},
    exports::security::SecurityFlavors,
    files::Callers,
    helpers::{HelperConfig, Helpers},
};
use stag_protocol::nfs::{Bulk, v4::*};
use std::{
    env,
    ffi::CString,
    path::Path,
    process,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<&'static Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let here = env::current_exe().unwrap();
        Library::open(&here.with_file_name("libstag_ceph_fake.so")).unwrap()
    })
}

fn mount(configuration: &Path) -> CephMount {
    let settings = MountSettings { configuration: Some(configuration), ..MountSettings::default() };
    PreparedMount::new(library(), &settings).unwrap().mount("/", None).unwrap()
}

/// A client of a gateway to a directory of the fake file system, which is the caller's.
pub fn client(minor: u32) -> Client4 {
    let (store, kept) = store(None);
    let gateway = Gateway::new(store).with_nfs4(CONFIG);
    let tcp = Box::new(OverTcp::new(gateway, Config::small()));
    Client4::on(tcp, ServedExport::new(b"data", kept), minor)
}

/// The store, with everything that it needs to stay. Its `/data` accepts these flavors.
pub fn store(security: Option<SecurityFlavors>) -> (RemoteStore, (TempDir, CephMount)) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let home = tempfile::tempdir().unwrap();
    let configuration = home.path().join("ceph.conf");
    std::fs::write(&configuration, "").unwrap();
    let node = format!("nfs4-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let control = mount(&configuration);
    let root = UserPerm::root(library());
    let name = CString::new(node.as_str()).unwrap();
    let (directory, _) = control.root().unwrap().make_directory(&name, 0o755, &root).unwrap();
    let owner = SetStat { uid: Some(1000), gid: Some(1000), ..SetStat::default() };
    directory.set_attributes(&owner, &root).unwrap();
    directory.set_extended(c"ceph.quota.max_bytes", b"8589934592", &root).unwrap();
    let export = |name: &str, read_only| CephExportConfig {
        name: name.to_owned(),
        path: format!("/{node}"),
        read_only,
        security: security.filter(|_| name == "data"),
    };
    let config = CephConfig {
        library: library(),
        user: None,
        configuration: Some(configuration),
        file_system: None,
        node: node.clone(),
        exports: vec![export("data", false), export("fixed", true)],
        state_dir: home.path().join("state"),
        cluster: None,
        callers: Callers {
            squash: stag_nfs_store::exports::client_rules::Squash::None,
            ..Callers::default()
        },
        inodes: INODES,
        snapshots: false,
    };
    let backend = CephBackend::open(&config).unwrap();
    assert!(backend.wait(Duration::from_secs(60)), "it is mounted");
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let ways =
        HelperConfig { backend: Some(Arc::clone(&backend)), threads: 4, ..HelperConfig::new(1) };
    let helpers = Helpers::start_for(ways).unwrap().pop().unwrap();
    (RemoteStore::new(backend, helpers), (home, control))
}

#[test]
fn a_compound_of_many_operations_waits_for_each() {
    let mut client = client(2);
    let (stateid, handle) = client.open(b"file");
    let put = Request::PutFh(Text(&handle));
    let content = crate::gateway::client::pattern(40_000, 5);
    for (number, part) in content.chunks(20_000).enumerate() {
        let offset = number as u64 * 20_000;
        let commit = Request::Commit(Commit4Args { offset: 0, count: 0 });
        let written = client.run(&[put.clone(), write_args(stateid, offset, part), commit]);
        assert_eq!(written.status(), Status4::Ok);
    }
    let before = client.wire.report().nfs4.suspensions;
    let size = Request::GetAttr(Bitmap::of([4]));
    let reads = [read_args(stateid, 0, 9_000), size.clone(), read_args(stateid, 9_000, 4_000)];
    let reply = client.run(&[vec![put], reads.to_vec(), vec![size]].concat());
    let answers = reply.answers();
    let [_, _, Answer::Read(Ok(first)), Answer::GetAttr(Ok(_)), Answer::Read(Ok(second)), _] =
        &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert_eq!(first.data, Bulk::Inline(&content[..9_000]));
    assert_eq!(second.data, Bulk::Inline(&content[9_000..13_000]));
    let report = client.wire.report();
    assert_eq!(report.nfs4.suspensions - before, 4, "each of the four questions");
    assert_eq!((report.nfs4.suspended, report.nfs4.busy_slots), (0, 0));
}

#[test]
fn the_root_of_all_exports_is_listed_with_what_helpers_tell() {
    let mut client = client(1);
    let args = ReadDir4Args {
        cookie: 0,
        verifier: [0; 8],
        dir_count: 4_000,
        max_count: 4_000,
        attributes: Bitmap::of([1, 8, 20, 33]),
    };
    let reply = client.run(&[Request::PutRootFh(()), Request::ReadDir(args)]);
    assert_eq!(reply.status(), Status4::Ok);
    let above = [
        Request::PutRootFh(()),
        Request::Lookup(Text(b"data")),
        Request::LookupP(()),
        Request::GetFh(()),
    ];
    let reply = client.run(&above);
    let Answer::GetFh(Ok(root)) = reply.last() else { panic!("{reply:?}") };
    let reply = client.run(&[Request::PutRootFh(()), Request::GetFh(())]);
    assert_eq!(reply.last(), Answer::GetFh(Ok(root)));
}
