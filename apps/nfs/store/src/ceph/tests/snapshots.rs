//! Snapshots, several exports, and directories that leave one.

use super::*;
use crate::NewAttributes;
use stag_ceph::Vino;
use stag_protocol::nfs::v3::Status;

/// A second store over the same cluster.
fn another(bench: &CephBench, change: impl FnOnce(&mut CephConfig)) -> (CephSession, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let mut config = CephConfig { state_dir: home.path().join("state"), ..bench.config.clone() };
    config.node.push_str("-b");
    change(&mut config);
    let backend = CephBackend::open(&config).unwrap();
    assert!(backend.wait(LONG));
    let mut session = CephSession::new(Arc::clone(&backend.0));
    let [uid, gid] = ids();
    let user = User::Unix { uid, gid, gids: Gids::default() };
    session.act_as(&Caller::trusted(user, PeerAddress::Simulated));
    (session, home)
}

#[test]
fn the_name_of_snapshots_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    let set = NewAttributes::default();
    assert_eq!(session.lookup(&root, b".snap").unwrap_err().status, Status::NoEnt);
    assert_eq!(session.mount(b"data/.snap"), Err(Status::NoEnt));
    assert_eq!(session.mkdir(&root, b".snap", &set).unwrap_err().status, Status::Acces);
    assert_eq!(session.rmdir(&root, b".snap").unwrap_err().status, Status::Acces);
    let id = session.shared.exports[0].id;
    let (_, vino) = session.shared.handles.open_inode(&root).unwrap();
    let of_snapshot = session.shared.handles.seal_inode(id, Vino { snapshot: 7, ..vino });
    assert_eq!(session.getattr(&of_snapshot), Err(Status::Stale));
}

#[test]
fn snapshots_are_shown_where_that_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let Some(place) = CephPlace::cluster() else { return };
    let bench = CephBench::new(place, &home, false);
    let directory = CString::new(bench.config.node.as_str()).unwrap();
    let root = UserPerm::root(bench.place.library);
    let directory = bench.control.root().unwrap().lookup(&directory, &root).unwrap().0;
    let snapshots = directory.lookup(c".snap", &root).unwrap().0;
    snapshots.make_directory(c"monday", 0o755, &root).unwrap();
    let mut plain = bench.session();
    let top = plain.mount(b"data").unwrap();
    plain.remove(&top, b"present").unwrap();
    assert_eq!(plain.lookup(&top, b".snap").unwrap_err().status, Status::NoEnt);

    let (mut session, _home) = another(&bench, |config| config.snapshots = true);
    let top = session.mount(b"data").unwrap();
    let snapshots = session.lookup(&top, b".snap").unwrap().handle;
    let monday = session.lookup(&snapshots, b"monday").unwrap().handle;
    let file = session.lookup(&monday, b"present").unwrap().handle;
    let mut room = [0; 16];
    let done = crate::FillRoom::fill_read(&mut session, &file, 0, &mut room).unwrap();
    assert_eq!(&room[..done.count as usize], b"here");
    let removed = session.remove(&monday, b"present").unwrap_err().status;
    assert_eq!(removed, Status::RoFs);
}

#[test]
fn several_exports_share_a_mount_and_stay_apart() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
    for name in [b"a", b"b"] {
        session.mkdir(&root, name, &set).unwrap();
    }
    let path = bench.config.exports[0].path.clone();
    let (mut both, _home) = another(&bench, |config| {
        config.exports = ["a", "b"]
            .map(|name| CephExportConfig {
                name: name.to_owned(),
                path: format!("{path}/{name}"),
                read_only: name == "b",
                security: None,
            })
            .into();
    });
    let [a, b] = ["a", "b"].map(|name| both.mount(name.as_bytes()).unwrap());
    assert_eq!(both.mount(b"data"), Err(Status::NoEnt));
    assert_ne!(both.getattr(&a).unwrap().fsid, both.getattr(&b).unwrap().fsid);
    assert_eq!(both.lookup(&a, b"..").unwrap().handle, a);
    let inner = both.mkdir(&a, b"inner", &set).unwrap().handle;
    assert_eq!(both.mkdir(&b, b"x", &set).unwrap_err().status, Status::RoFs);
    let places = [(&a, &b"inner"[..]), (&b, b"inner")];
    let [from, to] = places.map(|(at, name)| crate::NameIn::new(at, name));
    assert_eq!(both.rename(from, to).unwrap_err().status, Status::RoFs);

    // Another client moves it out of the export.
    let [lower, upper] = [b"a", b"b"].map(|name| session.lookup(&root, name).unwrap().handle);
    let places = [(&lower, &b"inner"[..]), (&upper, b"inner")];
    let [from, to] = places.map(|(at, name)| crate::NameIn::new(at, name));
    session.rename(from, to).unwrap();
    assert!(both.getattr(&inner).is_ok(), "a handle names the file, wherever it lies");
    assert_eq!(both.lookup(&inner, b"..").unwrap_err().status, Status::Stale);
}

#[test]
fn gateways_of_a_cluster_have_the_same_handles() {
    let home = tempfile::tempdir().unwrap();
    for place in [Some(CephPlace::fake(&home)), CephPlace::cluster()].into_iter().flatten() {
        let home = tempfile::tempdir().unwrap();
        let bench = CephBench::new(place, &home, false);
        let cluster = Cluster::new("blue", &["data".to_owned()]).unwrap();
        let (mut one, _one) = another(&bench, |config| config.cluster = Some(cluster.clone()));
        let (mut two, _two) = another(&bench, |config| {
            config.node.push('2');
            config.cluster = Some(cluster.clone());
        });
        let root = one.mount(b"data").unwrap();
        assert_eq!(two.mount(b"data"), Ok(root));
        let set = NewAttributes::default();
        let mut expected = Vec::new();
        for at in 0..40 {
            let name = format!("d{at}").into_bytes();
            let made = one.mkdir(&root, &name, &set).unwrap();
            assert_eq!(two.getattr(&made.handle).unwrap(), made.attributes);
            expected.push(name);
        }
        // A listing changes gateways every seven entries.
        let (mut names, mut cookie, mut is_over) = (Vec::new(), 0, false);
        for turn in 0.. {
            let session = if turn % 2 == 0 { &mut one } else { &mut two };
            let start = crate::ListingStart { cookie, ..Default::default() };
            let mut left = 7;
            let listed = session.readdir(&root, start, &mut |entry| {
                left -= 1;
                if left >= 0 {
                    names.push(entry.name.to_vec());
                    cookie = entry.cookie;
                }
                left >= 0
            });
            is_over |= listed.unwrap().eof;
            if is_over {
                break;
            }
        }
        names.retain(|name| name.starts_with(b"d"));
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
    }
}
