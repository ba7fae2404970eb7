//! Tests of lost sessions, blocked calls, and recalled inodes.

use super::*;
use crate::{CreateMode, Failed, FillRoom, NewAttributes};
use stag_protocol::nfs::v3::{FileHandle, StableHow, Status};
use std::{thread, time::Instant};

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn create(session: &mut CephSession, root: &FileHandle, name: &[u8]) -> FileHandle {
    let how = CreateMode::Guarded(NewAttributes { mode: Some(0o644), ..NewAttributes::default() });
    session.create(root, name, &how).unwrap().handle
}

fn write(session: &mut CephSession, file: &FileHandle, data: &[u8]) -> Result<u32, Status> {
    let done = session.write(file, 0, data.into(), StableHow::Unstable);
    done.map(|done| done.count).map_err(|failed| failed.status)
}

fn content(session: &mut CephSession, file: &FileHandle) -> Result<Vec<u8>, Status> {
    let mut room = vec![0; 4_096];
    let done = session.fill_read(file, 0, &mut room).map_err(|failed: Failed<_>| failed.status)?;
    room.truncate(done.count as usize);
    Ok(room)
}

fn on_both(case: fn(&CephBench, &mut CephSession, FileHandle)) {
    let home = tempfile::tempdir().unwrap();
    for place in [Some(CephPlace::fake(&home)), CephPlace::cluster()].into_iter().flatten() {
        let home = tempfile::tempdir().unwrap();
        let bench = CephBench::new(place, &home, false);
        let mut session = bench.session();
        let root = session.mount(b"data").unwrap();
        case(&bench, &mut session, root);
    }
}

impl CephBench {
    /// Ends the store's session, like an operator or another gateway.
    fn evict(&self) {
        let settings = MountSettings {
            configuration: Some(&self.place.configuration),
            ..MountSettings::default()
        };
        let prepared = PreparedMount::new(self.place.library, &settings).unwrap();
        let name = session_name(&self.config.node).unwrap();
        assert_eq!(prepared.reclaim(&name), Ok(stag_ceph::Reclaimed::Ended));
    }
}

#[test]
fn after_an_eviction_the_store_mounts_again_and_nothing_acknowledged_is_lost() {
    on_both(|bench, session, root| {
        let file = create(session, &root, b"f");
        let before = session.verifier();
        assert_eq!(write(session, &file, b"acknowledged"), Ok(12));
        bench.evict();
        // The first caller finds that the session is gone.
        until("the loss is noticed", || write(session, &file, b"!") == Err(Status::Jukebox));
        until("it is mounted again", || session.getattr(&file).is_ok());
        assert_ne!(session.verifier(), before, "clients write again what they hold");
        let found = content(session, &file).unwrap();
        assert!([&b"acknowledged"[..], b"!cknowledged"].contains(&&*found), "{found:?}");
        assert_eq!(write(session, &file, b"again"), Ok(5));
        assert_eq!(session.mount(b"data"), Ok(root), "handles stay");
        let second = create(session, &root, b"g");
        assert_ne!(second, file);
    });
}

#[test]
fn a_commit_after_an_eviction_never_says_that_all_is_well() {
    on_both(|bench, session, root| {
        let file = create(session, &root, b"f");
        assert_eq!(write(session, &file, b"octets"), Ok(6));
        let before = session.verifier();
        bench.evict();
        match session.commit(&file) {
            // Mounted again already: the verifier shows it.
            Ok(done) => assert_ne!(done.verifier, before),
            Err(failed) => assert_eq!(failed.status, Status::Jukebox),
        }
        until("it is mounted again", || session.commit(&file).is_ok());
        assert_ne!(session.commit(&file).unwrap().verifier, before);
    });
}

#[test]
fn a_lost_session_ends_whichever_call_hears_of_it() {
    let home = tempfile::tempdir().unwrap();
    for call in ["ceph_ll_write", "ceph_ll_getattr", "ceph_ll_lookup", "ceph_ll_fsync"] {
        let home = tempfile::tempdir_in(&home).unwrap();
        let bench = CephBench::new(CephPlace::fake(&home), &home, false);
        let mut session = bench.session();
        let root = session.mount(b"data").unwrap();
        let file = create(&mut session, &root, b"f");
        let before = session.verifier();
        bench.control.set_option("fake_fail", &format!("{call} 108 1")).unwrap();
        let status = match call {
            "ceph_ll_write" => write(&mut session, &file, b"x").unwrap_err(),
            "ceph_ll_getattr" => session.getattr(&file).unwrap_err(),
            "ceph_ll_lookup" => session.lookup(&root, b"f").unwrap_err().status,
            _ => session.commit(&file).unwrap_err().status,
        };
        assert_eq!(status, Status::Jukebox, "{call}");
        until("it is mounted again", || session.getattr(&file).is_ok());
        assert_ne!(session.verifier(), before, "{call}");
    }
}

#[test]
fn a_change_of_names_that_may_have_happened_is_an_error_and_one_that_did_not_is_tried_again() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    let set = NewAttributes::default();
    bench.control.set_option("fake_fail", "ceph_ll_mkdir 108 1").unwrap();
    assert_eq!(session.mkdir(&root, b"d", &set).unwrap_err().status, Status::Io);
    until("it is mounted again", || session.getattr(&root).is_ok());
    bench.control.set_option("fake_evict", &session_name(&bench.config.node).unwrap()).unwrap();
    assert_eq!(session.mkdir(&root, b"d", &set).unwrap_err().status, Status::Jukebox);
    until("it is mounted again", || session.mkdir(&root, b"d", &set).is_ok());
}

/// libcephfs 16.2 blocks lookups of the new name forever after such a rename.
#[test]
fn a_rename_that_another_client_outruns_does_not_block_its_names() {
    on_both(|bench, session, root| {
        let file = create(session, &root, b"f");
        assert!(session.lookup(&root, b"f").is_ok());
        let (_, vino) = session.shared.handles.open_inode(&root).unwrap();
        let beside = bench.control.inode(vino).unwrap();
        let user = UserPerm::root(bench.place.library);
        let names = [&b"f"[..], b"g"].map(|name| crate::NameIn::new(&root, name));
        // The fake cannot interleave another client: its rename fails as if one had intervened.
        let fault = bench.control.set_option("fake_fail", "ceph_ll_rename 2 1");
        if fault.is_err() {
            beside.unlink(c"f", &user).unwrap();
        }
        let failed = session.rename(names[0], names[1]).unwrap_err().status;
        assert!([Status::NoEnt, Status::Io, Status::Jukebox].contains(&failed), "{failed:?}");
        until("names are found", || {
            session.lookup(&root, b"g").is_err_and(|failed| failed.status == Status::NoEnt)
        });
        let _ = session.getattr(&file);
        assert!(session.lookup(&root, b"present").is_ok());
    });
}

#[test]
fn the_store_tries_until_it_can_mount() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    bench.control.set_option("fake_fail", "ceph_mount 110 2").unwrap();
    bench.control.set_option("fake_evict", "*").unwrap();
    assert_eq!(session.getattr(&root), Err(Status::Jukebox));
    assert_eq!(session.mount(b"data"), Err(Status::Jukebox));
    until("it is mounted again", || session.getattr(&root).is_ok());
}

#[test]
fn a_blocked_call_keeps_nobody_from_another_mount() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    let file = create(&mut session, &root, b"f");
    write(&mut session, &file, b"octets").unwrap();
    bench.control.set_option("fake_block", "ceph_ll_read").unwrap();
    let mut other = bench.session();
    let reader = thread::spawn(move || content(&mut other, &file));
    until("it waits", || bench.control.option("fake_waiting").as_deref() == Ok("1"));
    assert!(session.getattr(&file).is_ok(), "others go on");
    bench.control.set_option("fake_evict", "*").unwrap();
    until("another mount is there", || write(&mut session, &file, b"second").is_ok());
    bench.control.set_option("fake_unblock", "ceph_ll_read").unwrap();
    assert_eq!(reader.join().unwrap(), Err(Status::Jukebox), "of the session that is gone");
    assert_eq!(content(&mut session, &file).unwrap(), b"second");
}

#[test]
fn what_is_wanted_back_and_what_is_too_much_is_let_go() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = CephBench::new(CephPlace::fake(&home), &home, false);
    assert!(bench.backend.0.life.current().unwrap().table.len() <= 1);
    bench.config.inodes = 10;
    bench.config.node.push_str("-small");
    bench.config.state_dir = home.path().join("small");
    bench.backend = CephBackend::open(&bench.config).unwrap();
    assert!(bench.backend.wait(LONG));
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    let files: Vec<_> =
        (0..50).map(|at| create(&mut session, &root, format!("f{at}").as_bytes())).collect();
    let live = bench.backend.0.life.current().unwrap();
    assert_eq!(live.table.len(), 10);
    for file in &files {
        assert_eq!(write(&mut session, file, b"x"), Ok(1));
    }
    let (_, vino) = session.shared.handles.open_inode(files.last().unwrap()).unwrap();
    bench.control.set_option("fake_release", &vino.inode.to_string()).unwrap();
    live.table.give_back(live.mount.take_released());
    assert_eq!(live.table.len(), 9);
    assert!(session.getattr(files.last().unwrap()).is_ok(), "it is found again");
}

#[test]
fn a_removed_file_is_gone_at_once_and_its_memory_with_it() {
    on_both(|_, session, root| {
        let file = create(session, &root, b"f");
        write(session, &file, b"octets").unwrap();
        session.remove(&root, b"f").unwrap();
        assert_eq!(session.getattr(&file), Err(Status::Stale));
        assert_eq!(content(session, &file), Err(Status::Stale));
        let [old, new] = [b"a", b"b"].map(|name| create(session, &root, name));
        let places = [&b"a"[..], b"b"].map(|name| crate::NameIn::new(&root, name));
        session.rename(places[0], places[1]).unwrap();
        assert_eq!(session.getattr(&new), Err(Status::Stale));
        assert!(session.getattr(&old).is_ok());
    });
}

#[test]
fn a_gateway_that_stops_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    create(&mut session, &root, b"f");
    let sessions = || bench.control.option("fake_sessions").unwrap();
    assert_eq!(sessions(), "2");
    // Other tests of this process have mounts of their own, so the limit passes.
    bench.backend.close(Duration::from_millis(1));
    until("its session ends", || sessions() == "1");
    assert_eq!(bench.control.option("fake_held").unwrap(), "0");
    assert_eq!(session.getattr(&root), Err(Status::Jukebox));
}

#[test]
fn a_gateway_started_again_ends_its_last_run_and_finds_its_handles() {
    on_both(|bench, session, root| {
        let file = create(session, &root, b"f");
        write(session, &file, b"octets").unwrap();
        let second = CephBackend::open(&bench.config).map(drop).unwrap_err().to_string();
        assert!(second.contains("in use") || second.contains("another process"), "{second}");
        // The same name and key, as after a crash: another process would get the lock.
        let shared = &bench.backend.0;
        let recipe = recipe(&bench.config, session_name(&bench.config.node).unwrap()).unwrap();
        let prepared = recipe.prepare().unwrap();
        let life = MountLife::begin(recipe, prepared, Epoch::of_now().unwrap()).unwrap();
        assert!(life.wait(LONG));
        assert!(
            life.current()
                .unwrap()
                .mount
                .inode(shared.handles.open_inode(&file).unwrap().1)
                .is_ok()
        );
        assert!(life.close(Duration::ZERO) || !life.wait(Duration::ZERO));
    });
}

#[test]
fn starts_that_cannot_be_are_sentences() {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, false);
    let fails = |change: &dyn Fn(&mut CephConfig)| {
        let home = tempfile::tempdir().unwrap();
        let mut config =
            CephConfig { state_dir: home.path().join("state"), ..bench.config.clone() };
        change(&mut config);
        CephBackend::open(&config).map(drop).unwrap_err().to_string()
    };
    let same = fails(&|_| ());
    assert!(same.contains("another process of this host") && same.contains("node=NAME"), "{same}");
    let name = fails(&|config| config.node = "a b".to_owned());
    assert!(name.contains("cannot name a gateway"), "{name}");
    let nowhere = fails(&|config| {
        config.node.push('x');
        config.configuration = Some("/none/ceph.conf".into());
    });
    assert!(nowhere.contains("cannot read the configuration of Ceph"), "{nowhere}");
    let path = fails(&|config| {
        config.node.push('y');
        config.exports[0].path = "/a/../b".to_owned();
    });
    assert!(path.contains("no plain path"), "{path}");
}
