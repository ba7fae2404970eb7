use super::*;
use crate::exports::handle::{Birth, FileId, Identity};
use stag_protocol::nfs::v3::Access;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn attributes_are_what_the_system_says() {
    let mut lab = Lab::new();
    let handle = lab.file("f", &[7; 5000]);
    let found = lab.files.getattr(&handle).unwrap();
    let meta = fs::metadata(lab.path("f")).unwrap();
    assert_eq!(found.kind, FileKind::Regular);
    assert_eq!((found.mode, found.nlink), (meta.mode() & 0o7777, 1));
    assert_eq!((found.uid, found.gid, found.size), (meta.uid(), meta.gid(), 5000));
    assert_eq!((found.used, found.fileid), (meta.blocks() * 512, meta.ino()));
    assert_eq!(
        (found.mtime.seconds, i64::from(found.mtime.nanos)),
        (meta.mtime(), meta.mtime_nsec())
    );
    assert_eq!(
        (found.ctime.seconds, i64::from(found.ctime.nanos)),
        (meta.ctime(), meta.ctime_nsec())
    );
    let root = lab.root();
    assert_eq!(lab.files.getattr(&root).unwrap().kind, FileKind::Directory);
}

#[test]
fn each_export_has_an_fsid_of_its_own_that_survives_a_restart() {
    let mut lab = Lab::with(|config| {
        let other = ExportConfig { name: "other".to_owned(), ..config.exports[0].clone() };
        config.exports.push(other);
    });
    let fsids = |lab: &mut Lab| {
        let shared = lab.files.shared();
        let roots = shared.exports().iter().map(|export| shared.root(export)).collect::<Vec<_>>();
        roots.iter().map(|root| lab.files.getattr(root).unwrap().fsid).collect::<Vec<_>>()
    };
    let first = fsids(&mut lab);
    assert_ne!(first[0], first[1]);
    let handle = lab.file("f", b"x");
    assert_eq!(lab.files.getattr(&handle).unwrap().fsid, first[0]);
    let root = lab.root();
    assert_eq!(lab.files.lookup(&root, b"f").unwrap().attributes.fsid, first[0]);
    lab = lab.restart();
    assert_eq!(fsids(&mut lab), first);
}

#[test]
fn size_mode_and_times_are_set_and_the_rest_stays() {
    let mut lab = Lab::new();
    let handle = lab.file("f", b"0123456789");
    let time = |seconds| FileTime { seconds, nanos: 123_456_789 };
    let set = NewAttributes {
        mode: Some(0o4751),
        size: Some(4),
        atime: NewTime::Client(time(1000)),
        mtime: NewTime::Client(time(2000)),
        ..NewAttributes::default()
    };
    let wcc = lab.files.set_attributes(&handle, &set, None).unwrap();
    let after = wcc.after.unwrap();
    assert_eq!((after.size, after.mode), (4, 0o4751));
    assert_eq!((after.atime, after.mtime), (time(1000), time(2000)));
    let server = NewAttributes { mtime: NewTime::Server, ..NewAttributes::default() };
    let after = lab.files.set_attributes(&handle, &server, None).unwrap().after.unwrap();
    assert!(after.mtime.seconds > 1_000_000_000);
    assert_eq!(after.atime, time(1000));
    assert_eq!(fs::read(lab.path("f")).unwrap(), b"0123");
    let grown = NewAttributes { size: Some(8), ..NewAttributes::default() };
    lab.files.set_attributes(&handle, &grown, None).unwrap();
    assert_eq!(lab.content(&handle).unwrap(), b"0123\0\0\0\0");
}

#[test]
fn a_guard_lets_through_only_the_ctime_it_names() {
    let mut lab = Lab::new();
    let handle = lab.file("f", b"x");
    let ctime = lab.files.getattr(&handle).unwrap().ctime;
    let set = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    let other = FileTime { nanos: ctime.nanos ^ 1, ..ctime };
    let failed = lab.files.set_attributes(&handle, &set, Some(other)).unwrap_err();
    assert_eq!(failed.status, Status::NotSync);
    assert_eq!(failed.about.after.unwrap().ctime, ctime, "nothing was touched");
    lab.files.set_attributes(&handle, &set, Some(ctime)).unwrap();
}

#[test]
fn attributes_that_cannot_be_set_are_refused() {
    let mut lab = Lab::new();
    let (file, root) = (lab.file("f", b"x"), lab.root());
    let set = |size| NewAttributes { size: Some(size), ..NewAttributes::default() };
    let mut status =
        |handle: &FileHandle, set| lab.files.set_attributes(handle, &set, None).unwrap_err().status;
    assert_eq!(status(&root, set(0)), Status::IsDir);
    assert_eq!(status(&file, set(u64::MAX)), Status::FBig);
    assert_eq!(status(&file, set(i64::MAX as u64)), Status::FBig);
    let wrong_time = NewTime::Client(FileTime { seconds: 1, nanos: 1_000_000_000 });
    assert_eq!(
        status(&file, NewAttributes { mtime: wrong_time, ..NewAttributes::default() }),
        Status::Inval
    );
    assert_eq!(
        status(&file, NewAttributes { uid: Some(u32::MAX), ..NewAttributes::default() }),
        Status::Inval
    );
    if !is_root() {
        assert_eq!(
            status(&file, NewAttributes { uid: Some(0), ..NewAttributes::default() }),
            Status::Perm
        );
    }
}

#[test]
fn a_symbolic_links_own_times_are_set_not_its_targets() {
    let mut lab = Lab::new();
    let target = lab.file("f", b"x");
    std::os::unix::fs::symlink("f", lab.path("l")).unwrap();
    let before = lab.files.getattr(&target).unwrap();
    let link = lab.find("l");
    let time = FileTime { seconds: 77, nanos: 0 };
    let set = NewAttributes { mtime: NewTime::Client(time), ..NewAttributes::default() };
    assert_eq!(lab.files.set_attributes(&link, &set, None).unwrap().after.unwrap().mtime, time);
    assert_eq!(lab.files.getattr(&target).unwrap(), before);
    let mode = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
    assert_eq!(lab.files.set_attributes(&link, &mode, None).unwrap_err().status, Status::NotSupp);
    assert_eq!(lab.files.getattr(&target).unwrap(), before);
    let size = NewAttributes { size: Some(0), ..NewAttributes::default() };
    assert_eq!(lab.files.set_attributes(&link, &size, None).unwrap_err().status, Status::Inval);
}

#[test]
fn a_name_leads_to_its_object_and_dot_to_the_directory() {
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    fs::write(lab.path("d/f"), b"x").unwrap();
    let (root, dir) = (lab.root(), lab.find("d"));
    let found = lab.files.lookup(&dir, b"f").unwrap();
    assert_eq!(found.attributes, lab.files.getattr(&found.handle).unwrap());
    assert_eq!(found.directory.unwrap(), lab.files.getattr(&dir).unwrap());
    assert_eq!(lab.files.lookup(&dir, b".").unwrap().handle, dir);
    assert_eq!(lab.files.lookup(&dir, b"..").unwrap().handle, root);
    assert_eq!(lab.files.lookup(&root, b"..").unwrap().handle, root, "nothing is above the root");
}

#[test]
fn a_lookup_that_fails_says_why_and_shows_the_directory() {
    let mut lab = Lab::new();
    let (root, file) = (lab.root(), lab.file("f", b"x"));
    for (name, expected) in [
        (b"none".to_vec(), Status::NoEnt),
        (b"".to_vec(), Status::Acces),
        (b"a/b".to_vec(), Status::Acces),
        (b"a\0b".to_vec(), Status::Acces),
        (vec![b'x'; 255], Status::NoEnt),
        (vec![b'x'; 256], Status::NameTooLong),
        (vec![b'x'; 70_000], Status::NameTooLong),
    ] {
        let failed = lab.files.lookup(&root, &name).unwrap_err();
        assert_eq!(failed.status, expected, "{} octets", name.len());
        assert_eq!(failed.about.unwrap().kind, FileKind::Directory);
    }
    assert_eq!(lab.files.lookup(&file, b"x").unwrap_err().status, Status::NotDir);
}

#[test]
fn rights_follow_the_mode_and_a_read_only_export_gives_none_to_change() {
    let mut lab = Lab::new();
    let (root, file) = (lab.root(), lab.file("f", b"x"));
    let all = Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE;
    assert_eq!(lab.files.access(&root, Access::ALL).unwrap().0, all);
    assert_eq!(lab.files.access(&root, Access::LOOKUP).unwrap().0, Access::LOOKUP);
    let rw = Access::READ | Access::MODIFY | Access::EXTEND;
    assert_eq!(lab.files.access(&file, Access::ALL).unwrap().0, rw);
    fs::set_permissions(lab.path("f"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(lab.files.access(&file, Access::ALL).unwrap().0, rw | Access::EXECUTE);
    if !is_root() {
        fs::set_permissions(lab.path("f"), fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(lab.files.access(&file, Access::ALL).unwrap().0, Access::READ);
        fs::set_permissions(lab.path("f"), fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(lab.files.access(&file, Access::ALL).unwrap().0, Access::NONE);
    }
    let mut lab = Lab::read_only();
    let (root, file) = (lab.root(), lab.file("f", b"x"));
    assert_eq!(lab.files.access(&root, Access::ALL).unwrap().0, Access::READ | Access::LOOKUP);
    assert_eq!(lab.files.access(&file, Access::ALL).unwrap().0, Access::READ);
}

#[test]
fn a_link_reads_as_its_target_and_nothing_else_does() {
    let mut lab = Lab::new();
    let target = "t".repeat(1000);
    std::os::unix::fs::symlink(&target, lab.path("l")).unwrap();
    let (link, file, root) = (lab.find("l"), lab.file("f", b"x"), lab.root());
    let mut room = [0; 4096];
    let done = lab.files.readlink(&link, &mut room).unwrap();
    assert_eq!(&room[..done.count as usize], target.as_bytes());
    assert_eq!(done.attributes.kind, FileKind::Symlink);
    assert_eq!(lab.files.readlink(&link, &mut room[..10]).unwrap().count, 10);
    assert_eq!(lab.files.readlink(&link, &mut []).unwrap().count, 0);
    for handle in [file, root] {
        let failed = lab.files.readlink(&handle, &mut room).unwrap_err();
        assert_eq!((failed.status, failed.about.is_some()), (Status::Inval, true));
    }
}

#[test]
fn a_mount_path_leads_to_a_directory_only() {
    let mut lab = Lab::new();
    fs::create_dir_all(lab.path("a/b")).unwrap();
    fs::write(lab.path("f"), b"x").unwrap();
    let root = lab.root();
    assert_eq!(lab.files.mount(b"/data").unwrap(), root);
    assert_eq!(lab.files.mount(b"data/").unwrap(), root);
    let below = lab.find("a/b");
    assert_eq!(lab.files.mount(b"/data/a//b").unwrap(), below);
    assert_eq!(lab.files.mount(b"/data/../..").unwrap(), root);
    for (path, expected) in [
        (&b""[..], Status::NoEnt),
        (b"/", Status::NoEnt),
        (b"/dat", Status::NoEnt),
        (b"/data/c", Status::NoEnt),
        (b"/data/f", Status::NotDir),
        (b"/data/f/g", Status::NotDir),
    ] {
        assert_eq!(lab.files.mount(path), Err(expected), "{path:?}");
    }
}

#[test]
fn the_file_system_is_described() {
    let mut lab = Lab::new();
    let root = lab.root();
    let (fsstat, attributes) = lab.files.fsstat(&root).unwrap();
    assert!(
        fsstat.total_octets >= fsstat.free_octets && fsstat.free_octets >= fsstat.available_octets
    );
    assert!(fsstat.total_octets > 0);
    assert_eq!(attributes, lab.files.getattr(&root).unwrap());
    let (fsinfo, _) = lab.files.fsinfo(&root).unwrap();
    assert_eq!((fsinfo.read_max, fsinfo.write_max), (1 << 20, 1 << 20));
    let file = lab.file("largest", b"");
    let set = |size| NewAttributes { size: Some(size), ..NewAttributes::default() };
    lab.files.set_attributes(&file, &set(fsinfo.file_size_max), None).unwrap();
    let more = lab.files.set_attributes(&file, &set(fsinfo.file_size_max + 1), None);
    assert_eq!(more.unwrap_err().status, Status::FBig);
    let (pathconf, _) = lab.files.pathconf(&root).unwrap();
    let export = lab.files.shared().exports();
    assert_eq!(pathconf.link_max, export.iter().next().unwrap().limits().link_max);
    assert_eq!((pathconf.name_max, pathconf.no_trunc), (255, true));
}

#[test]
fn a_start_that_cannot_work_says_why() {
    let lab = Lab::new();
    let error = SharedFiles::open(&lab.config).unwrap_err();
    assert!(error.to_string().contains("in use by another server"), "{error}");
    let mut config = lab.config.clone();
    drop(lab.files);
    config.open_files = Some(OPEN_FILES_MIN - 1);
    assert!(SharedFiles::open(&config).unwrap_err().to_string().contains("16 are needed"));
    config.open_files = None;
    let shared = SharedFiles::open(&config).unwrap();
    assert!((OPEN_FILES_MIN..=OPEN_FILES_MAX).contains(&shared.open_files()));
}

#[test]
fn a_name_that_another_shard_told_is_tried_though_the_search_for_a_directory_had_read_it() {
    let Lab { home, mut config, files, .. } = Lab::new();
    drop(files);
    config.shards = 2;
    let shared = SharedFiles::open(&config).unwrap();
    let [mut one, mut other] = [0, 1].map(|shard| Files::open(&shared, shard).unwrap());
    let root = one.mount(b"/data").unwrap();
    let path = home.path().join("export/file");
    fs::write(&path, b"").unwrap();
    let Named::Birth(directory) = one.shared.handles.open(&root).unwrap() else {
        panic!("handles are made of births")
    };
    // The shard remembers a file that had this inode before, in a directory that is gone.
    let id = FileId { inode: fs::metadata(path).unwrap().ino(), ..directory.file };
    let gone = Identity { file: id, birth: Birth { seconds: 1, nanos: 0 } };
    other.index.record(gone, u64::MAX - 1, b"name").unwrap();
    let file = one.lookup(&root, b"file").unwrap().handle;
    one.flush().unwrap();
    assert_eq!(other.getattr(&file).err(), None);
}
