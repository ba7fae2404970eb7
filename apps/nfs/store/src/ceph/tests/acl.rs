//! Callers and their rights.

use super::*;
use crate::{
    CreateMode, Failed, FileTime, NameIn, NewAttributes, NewTime, ceph::acl::tests::example,
    contract::acl::ACCESS_LIST,
};
use stag_protocol::nfs::v3::{Access, FileHandle, FileKind, StableHow, Status};

fn guarded(mode: u32) -> CreateMode {
    CreateMode::Guarded(NewAttributes { mode: Some(mode), ..NewAttributes::default() })
}

fn read(session: &mut CephSession, file: &FileHandle) -> Result<usize, Status> {
    let mut room = [0; 16];
    let done = crate::FillRoom::fill_read(session, file, 0, &mut room);
    done.map(|done| done.count as usize).map_err(|failed| failed.status)
}

fn write(session: &mut CephSession, file: &FileHandle) -> Result<u32, Status> {
    let done = session.write(file, 0, b"octets"[..].into(), StableHow::Unstable);
    done.map(|done| done.count).map_err(|failed| failed.status)
}

fn status<T: std::fmt::Debug, A: std::fmt::Debug>(outcome: Result<T, Failed<A>>) -> Status {
    outcome.unwrap_err().status
}

/// A store whose exported directory is writable for all.
fn open_bench(place: CephPlace, home: &TempDir) -> (CephBench, FileHandle) {
    let bench = CephBench::new(place, home, false);
    let mut session = bench.session();
    let root = session.mount(b"data").unwrap();
    let set = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
    session.setattr(&root, &set, None).unwrap();
    (bench, root)
}

/// Runs a case on the fake library, and on a cluster if possible.
fn on_both(case: fn(&CephBench, FileHandle)) {
    let home = tempfile::tempdir().unwrap();
    for place in [Some(CephPlace::fake(&home)), CephPlace::cluster()].into_iter().flatten() {
        let home = tempfile::tempdir().unwrap();
        let (bench, root) = open_bench(place, &home);
        case(&bench, root);
    }
}

#[test]
fn content_is_for_those_whom_the_mode_lets() {
    on_both(|bench, root| {
        let [mut owner, mut friend, mut other] = [
            bench.session_of(1_000, 2_000, &[]),
            bench.session_of(1_001, 1_001, &[5, 2_000]),
            bench.session_of(1_002, 1_002, &[]),
        ];
        let file = owner.create(&root, b"f", &guarded(0o640)).unwrap();
        assert_eq!((file.attributes.uid, file.attributes.gid), (1_000, 2_000));
        let file = file.handle;
        assert_eq!(write(&mut owner, &file), Ok(6));
        assert_eq!(read(&mut friend, &file), Ok(6));
        assert_eq!(write(&mut friend, &file), Err(Status::Acces));
        assert_eq!(read(&mut other, &file), Err(Status::Acces));
        assert_eq!(friend.access(&file, Access::ALL).unwrap().0, Access::READ);
        assert_eq!(other.access(&file, Access::ALL).unwrap().0, Access::NONE);

        let mode = |mode| NewAttributes { mode: Some(mode), ..NewAttributes::default() };
        assert_eq!(status(friend.setattr(&file, &mode(0o777), None)), Status::Perm);
        owner.setattr(&file, &mode(0o011), None).unwrap();
        assert_eq!(write(&mut owner, &file), Ok(6), "the owner, whatever the mode");
        assert_eq!(read(&mut other, &file), Ok(6), "who may execute may read");
        assert_eq!(write(&mut other, &file), Err(Status::Acces));
        owner.setattr(&file, &mode(0o600), None).unwrap();
        assert_eq!(read(&mut other, &file), Err(Status::Acces), "at once");
        let size = NewAttributes { size: Some(1), ..NewAttributes::default() };
        assert_eq!(status(other.setattr(&file, &size, None)), Status::Acces);
    });
}

#[test]
fn names_are_for_those_whom_the_directory_lets() {
    on_both(|bench, root| {
        let (mut owner, mut other) =
            (bench.session_of(1_000, 1_000, &[]), bench.session_of(1_001, 1_001, &[]));
        let set = NewAttributes { mode: Some(0o700), ..NewAttributes::default() };
        let closed = owner.mkdir(&root, b"d", &set).unwrap().handle;
        let file = owner.create(&closed, b"f", &guarded(0o666)).unwrap().handle;
        assert_eq!(status(other.lookup(&closed, b"f")), Status::Acces);
        assert_eq!(status(other.create(&closed, b"g", &guarded(0o666))), Status::Acces);
        assert_eq!(status(other.remove(&closed, b"f")), Status::Acces);
        let moved = other.rename(NameIn::new(&closed, b"f"), NameIn::new(&root, b"g"));
        assert_eq!(status(moved), Status::Acces);
        assert_eq!(read(&mut other, &file), Ok(0), "a handle is enough, as everywhere in NFS");
        let device = other.mknod(&root, b"c", FileKind::Character.into(), &set);
        assert_eq!(status(device), Status::Perm);
    });
}

#[test]
fn an_access_control_list_decides_where_there_is_one() {
    on_both(|bench, root| {
        let mut owner = bench.session_of(1_000, 2_000, &[]);
        let file = owner.create(&root, b"f", &guarded(0o640)).unwrap().handle;
        assert_eq!(write(&mut owner, &file), Ok(6));
        let (_, vino) = bench.backend.0.handles.open_inode(&file).unwrap();
        let inode = bench.control.inode(vino).unwrap();
        inode.set_extended(ACCESS_LIST, &example(6), &UserPerm::root(bench.place.library)).unwrap();
        let mut named = bench.session_of(7, 7, &[]);
        assert_eq!((read(&mut named, &file), write(&mut named, &file)), (Ok(6), Ok(6)));
        let mut reader = bench.session_of(8, 8, &[50]);
        assert_eq!(
            (read(&mut reader, &file), write(&mut reader, &file)),
            (Ok(6), Err(Status::Acces))
        );
        let mut writer = bench.session_of(8, 60, &[]);
        assert_eq!(
            (read(&mut writer, &file), write(&mut writer, &file)),
            (Err(Status::Acces), Ok(6))
        );
        let granted = named.access(&file, Access::ALL).unwrap().0;
        assert_eq!(granted, Access::READ | Access::MODIFY | Access::EXTEND);
    });
}

#[test]
fn a_change_by_whoever_is_not_root_takes_set_user_id_away() {
    on_both(|bench, root| {
        let mut owner = bench.session_of(1_000, 1_000, &[]);
        let file = owner.create(&root, b"f", &guarded(0o6777)).unwrap().handle;
        let mut other = bench.session_of(1_001, 1_001, &[]);
        write(&mut other, &file).unwrap();
        assert_eq!(owner.getattr(&file).unwrap().mode, 0o777);
        let set = NewAttributes { mode: Some(0o4777), ..NewAttributes::default() };
        owner.setattr(&file, &set, None).unwrap();
        let cut = NewAttributes { size: Some(2), ..NewAttributes::default() };
        other.setattr(&file, &cut, None).unwrap();
        let after = owner.getattr(&file).unwrap();
        assert_eq!((after.mode, after.size), (0o777, 2));
    });
}

#[test]
fn a_size_and_times_that_are_not_his_to_set_change_nothing() {
    on_both(|bench, root| {
        let mut owner = bench.session_of(1_000, 1_000, &[]);
        let file = owner.create(&root, b"f", &guarded(0o666)).unwrap().handle;
        write(&mut owner, &file).unwrap();
        let mut other = bench.session_of(1_001, 1_001, &[]);
        let time = NewTime::Client(FileTime { seconds: 1, nanos: 2 });
        let set = NewAttributes { size: Some(0), mtime: time, ..NewAttributes::default() };
        assert_eq!(status(other.setattr(&file, &set, None)), Status::Perm);
        assert_eq!(owner.getattr(&file).unwrap().size, 6);
    });
}

#[test]
fn root_is_squashed_as_told() {
    let home = tempfile::tempdir().unwrap();
    let (bench, root) = open_bench(CephPlace::fake(&home), &home);
    let CephBench { backend, config, .. } = bench;
    let node = format!("{}-squash", config.node);
    drop(backend);
    let state_dir = home.path().join("other");
    let squashing = CephConfig { node, state_dir, callers: Callers::default(), ..config };
    let backend = CephBackend::open(&squashing).unwrap();
    assert!(backend.wait(LONG));
    let mut session = CephSession::new(Arc::clone(&backend.0));
    let user = User::Unix { uid: 0, gid: 0, gids: Gids::new(&[0]).unwrap() };
    session.act_as(&Caller::trusted(user, PeerAddress::Simulated));
    assert_eq!(status(session.lookup(&root, b"x")), Status::BadHandle, "another key");
    let root = session.mount(b"data").unwrap();
    let made = session.create(&root, b"f", &guarded(0o600)).unwrap();
    assert_eq!((made.attributes.uid, made.attributes.gid), (65_534, 65_534));
}

#[test]
fn a_gateway_that_may_only_read_reads() {
    let home = tempfile::tempdir().unwrap();
    let (bench, root) = open_bench(CephPlace::fake(&home), &home);
    let mut session = bench.session();
    let file = session.lookup(&root, b"present").unwrap().handle;
    for errno in [30, 13, 1] {
        let live = bench.backend.0.life.current().unwrap();
        live.table.give_back(stag_ceph::Released::All);
        bench.control.set_option("fake_fail", &format!("ceph_ll_open {errno} 1")).unwrap();
        assert_eq!(read(&mut session, &file), Ok(4), "{errno}");
        assert!(write(&mut session, &file).is_err(), "{errno}");
    }
}
