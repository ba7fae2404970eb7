use super::*;
use crate::NameIn;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

fn unchecked(set: NewAttributes) -> CreateMode {
    CreateMode::Unchecked(set)
}

#[test]
fn a_created_file_has_the_mode_asked_for_and_can_be_written() {
    for mode in [0o644, 0o666, 0o777, 0o4755, 0o444, 0o000] {
        let mut lab = Lab::with(|config| config.sync_directories = true);
        let root = lab.root();
        let made = lab.files.create(&root, b"f", &guarded(mode)).unwrap();
        assert_eq!((made.attributes.mode, made.attributes.kind), (mode, FileKind::Regular));
        assert_eq!(fs::metadata(lab.path("f")).unwrap().mode() & 0o7777, mode);
        assert!(made.directory.after.is_some());
        assert_eq!(lab.find("f"), made.handle);
        assert_eq!(lab.write(&made.handle, 0, b"hello"), Ok(5), "whatever its mode");
        assert_eq!(lab.content(&made.handle).unwrap(), b"hello");
    }
}

#[test]
fn creating_a_name_that_exists_depends_on_how() {
    let mut lab = Lab::new();
    let (root, old) = (lab.root(), lab.file("f", b"0123456789"));
    let failed = lab.files.create(&root, b"f", &guarded(0o600)).unwrap_err();
    assert_eq!((failed.status, failed.about.after.is_some()), (Status::Exist, true));
    assert_eq!(
        lab.files.create(&root, b"f", &CreateMode::exclusive([1; 8])).unwrap_err().status,
        Status::Exist
    );
    let mode_only = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
    let made = lab.files.create(&root, b"f", &unchecked(mode_only)).unwrap();
    assert_eq!((made.handle, made.attributes.size), (old, 10));
    assert_ne!(made.attributes.mode, 0o777, "only the size of an existing file is set");
    let cut = NewAttributes { size: Some(3), ..NewAttributes::default() };
    assert_eq!(lab.files.create(&root, b"f", &unchecked(cut)).unwrap().attributes.size, 3);
    fs::create_dir(lab.path("d")).unwrap();
    std::os::unix::fs::symlink("nowhere", lab.path("l")).unwrap();
    for name in ["d", "l", ".", ".."] {
        for how in [unchecked(cut), guarded(0o600), CreateMode::exclusive([1; 8])] {
            assert_eq!(
                lab.files.create(&root, name.as_bytes(), &how).unwrap_err().status,
                Status::Exist
            );
        }
    }
    assert!(!lab.path("nowhere").exists());
}

#[test]
fn an_exclusive_create_that_comes_again_succeeds_until_its_client_sets_the_times() {
    let mut lab = Lab::new();
    let root = lab.root();
    for verifier in [[0; 8], [0xff; 8], *b"verifier"] {
        let how = CreateMode::exclusive(verifier);
        let made = lab.files.create(&root, b"f", &how).unwrap();
        assert_eq!(lab.files.create(&root, b"f", &how).unwrap().handle, made.handle);
        lab = lab.restart();
        assert_eq!(lab.files.create(&root, b"f", &how).unwrap().handle, made.handle);
        let mut other = verifier;
        other[7] ^= 1;
        let again = lab.files.create(&root, b"f", &CreateMode::exclusive(other));
        assert_eq!(again.unwrap_err().status, Status::Exist);
        let set = NewAttributes {
            atime: NewTime::Server,
            mtime: NewTime::Server,
            ..NewAttributes::default()
        };
        lab.files.set_attributes(&made.handle, &set, None).unwrap();
        assert_eq!(lab.files.create(&root, b"f", &how).unwrap_err().status, Status::Exist);
        lab.files.remove(&root, b"f").unwrap();
    }
}

#[test]
fn attributes_asked_for_at_creation_are_set() {
    let mut lab = Lab::new();
    let root = lab.root();
    let time = FileTime { seconds: 1234, nanos: 5678 };
    let set = NewAttributes {
        umask: 0,
        mode: Some(0o640),
        uid: Some(rustix::process::geteuid().as_raw()),
        gid: None,
        size: Some(10),
        atime: NewTime::Keep,
        mtime: NewTime::Client(time),
    };
    let made = lab.files.create(&root, b"f", &CreateMode::Guarded(set)).unwrap().attributes;
    assert_eq!((made.size, made.mtime, made.mode), (10, time, 0o640));
    let made = lab.files.mkdir(&root, b"d", &set).unwrap().attributes;
    assert_eq!((made.mtime, made.mode), (time, 0o640));
    if !is_root() {
        let set = NewAttributes { uid: Some(0), gid: Some(0), ..NewAttributes::default() };
        let made = lab.files.create(&root, b"g", &CreateMode::Guarded(set)).unwrap().attributes;
        assert_eq!(
            made.uid,
            rustix::process::geteuid().as_raw(),
            "an owner that cannot be given is left out"
        );
    }
}

#[test]
fn a_directory_hands_down_its_group_bit() {
    let mut lab = Lab::new();
    let root = lab.root();
    fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o2755)).unwrap();
    let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
    assert_eq!(lab.files.mkdir(&root, b"d", &set).unwrap().attributes.mode, 0o2755);
}

#[test]
fn directories_links_fifos_and_sockets_are_made() {
    let mut lab = Lab::with(|config| config.sync_directories = true);
    let root = lab.root();
    let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
    let made = lab.files.mkdir(&root, b"d", &set).unwrap();
    assert_eq!((made.attributes.kind, made.attributes.mode), (FileKind::Directory, 0o755));
    assert_eq!(lab.find("d"), made.handle);
    let made = lab.files.symlink(&root, b"l", b"../../target", &set).unwrap();
    assert_eq!(made.attributes.kind, FileKind::Symlink);
    assert_eq!(fs::read_link(lab.path("l")).unwrap().to_str(), Some("../../target"));
    let made = lab.files.mknod(&root, b"p", FileKind::Fifo.into(), &set).unwrap();
    assert_eq!((made.attributes.kind, made.attributes.mode), (FileKind::Fifo, 0o755));
    lab.files.mknod(&root, b"s", FileKind::Socket.into(), &set).unwrap();
    assert!(fs::metadata(lab.path("s")).unwrap().file_type().is_socket());
}

#[test]
fn what_cannot_be_made_is_refused_and_shows_the_directory() {
    let mut lab = Lab::new();
    let (root, file) = (lab.root(), lab.file("f", b""));
    let set = NewAttributes::default();
    for (kind, expected) in [
        (FileKind::Block, Status::Perm),
        (FileKind::Character, Status::Perm),
        (FileKind::Regular, Status::BadType),
        (FileKind::Directory, Status::BadType),
        (FileKind::Symlink, Status::BadType),
    ] {
        let failed = lab.files.mknod(&root, b"n", kind.into(), &set).unwrap_err();
        assert_eq!((failed.status, failed.about.after.is_some()), (expected, true));
    }
    for target in [&b""[..], b"a\0b"] {
        assert_eq!(lab.files.symlink(&root, b"l", target, &set).unwrap_err().status, Status::Inval);
    }
    let too_long = vec![b't'; 4096];
    assert_eq!(
        lab.files.symlink(&root, b"l", &too_long, &set).unwrap_err().status,
        Status::NameTooLong
    );
    for (name, expected) in [
        (&b"f"[..], Status::Exist),
        (b".", Status::Exist),
        (b"..", Status::Exist),
        (b"", Status::Acces),
        (b"a/b", Status::Acces),
        (&[b'x'; 256], Status::NameTooLong),
    ] {
        assert_eq!(lab.files.mkdir(&root, name, &set).unwrap_err().status, expected);
        assert_eq!(lab.files.symlink(&root, name, b"t", &set).unwrap_err().status, expected);
        assert_eq!(
            lab.files.mknod(&root, name, FileKind::Fifo.into(), &set).unwrap_err().status,
            expected
        );
        assert_eq!(lab.files.create(&root, name, &guarded(0o600)).unwrap_err().status, expected);
    }
    assert_eq!(lab.files.create(&file, b"x", &guarded(0o600)).unwrap_err().status, Status::NotDir);
    assert_eq!(lab.files.create(&root, &[b'x'; 255], &guarded(0o600)).unwrap().attributes.size, 0);
}

#[test]
fn a_read_only_export_refuses_every_change_before_it_touches_anything() {
    let mut lab = Lab::read_only();
    let (root, file) = (lab.root(), lab.file("f", b"x"));
    let before = lab.files.getattr(&root).unwrap();
    let set = NewAttributes { mode: Some(0), size: Some(0), ..NewAttributes::default() };
    let files = &mut lab.files;
    let mut data = [IoSlice::new(b"y")];
    for status in [
        files.set_attributes(&file, &set, None).unwrap_err().status,
        files.write_slices(&file, 0, &mut data, StableHow::FileSync).unwrap_err().status,
        files.commit(&file).unwrap_err().status,
        files.create(&root, b"n", &guarded(0o600)).unwrap_err().status,
        files.create(&root, b"f", &unchecked(set)).unwrap_err().status,
        files.mkdir(&root, b"n", &set).unwrap_err().status,
        files.symlink(&root, b"n", b"t", &set).unwrap_err().status,
        files.mknod(&root, b"n", FileKind::Fifo.into(), &set).unwrap_err().status,
        files.remove(&root, b"f").unwrap_err().status,
        files.rmdir(&root, b"f").unwrap_err().status,
        files.rename(NameIn::new(&root, b"f"), NameIn::new(&root, b"g")).unwrap_err().status,
        files.link(&file, &root, b"g").unwrap_err().status,
    ] {
        assert_eq!(status, Status::RoFs);
    }
    assert_eq!(lab.files.getattr(&root).unwrap().ctime, before.ctime);
    assert_eq!(lab.content(&file).unwrap(), b"x");
}

#[test]
fn what_looks_like_a_removed_object_is_made_again() {
    let mut lab = Lab::new();
    let (root, set) = (lab.root(), NewAttributes::default());
    let made = |lab: &mut Lab, name: &str| {
        let name = name.as_bytes();
        match name[0] {
            b'f' => lab.files.create(&root, name, &guarded(0o600)),
            b'd' => lab.files.mkdir(&root, name, &set),
            b'l' => lab.files.symlink(&root, name, b"t", &set),
            _ => lab.files.mknod(&root, name, FileKind::Fifo.into(), &set),
        }
    };
    for name in ["f", "d", "l", "p"] {
        lab.files.pretended_twins.set(5);
        let handle = made(&mut lab, name).unwrap().handle;
        assert_eq!(lab.files.pretended_twins.get(), 0);
        assert!(lab.files.twins.is_empty());
        assert_eq!(lab.find(name), handle);
        lab.files.pretended_twins.set(1000);
        let failed = made(&mut lab, &format!("{name}2")).unwrap_err();
        assert_eq!(failed.status, Status::Jukebox);
        assert_eq!(lab.try_find(&format!("{name}2")), Err(Status::NoEnt), "nothing stays behind");
        lab.files.pretended_twins.set(0);
    }
}

#[test]
fn a_file_system_that_says_itself_who_owns_an_object_makes_all_kinds_of_them() {
    let mut lab = Lab::new();
    let root = lab.root();
    lab.files.pretended_uid.set(Some(4_711));
    let time = NewTime::Client(FileTime { seconds: 1_000, nanos: 0 });
    let set = NewAttributes { mode: Some(0o700), mtime: time, ..NewAttributes::default() };
    let made = [
        ("directory", lab.files.mkdir(&root, b"directory", &set)),
        ("link", lab.files.symlink(&root, b"link", b"target", &set)),
        ("fifo", lab.files.mknod(&root, b"fifo", FileKind::Fifo.into(), &set)),
        ("socket", lab.files.mknod(&root, b"socket", FileKind::Socket.into(), &set)),
        ("guarded", lab.files.create(&root, b"guarded", &CreateMode::Guarded(set))),
        ("unchecked", lab.files.create(&root, b"unchecked", &CreateMode::Unchecked(set))),
    ];
    for (name, outcome) in made {
        let made = outcome.unwrap_or_else(|failed| panic!("{name}: {:?}", failed.status));
        assert_eq!(lab.find(name), made.handle, "{name}");
        assert_eq!(lab.files.getattr(&made.handle), Ok(made.attributes), "{name}");
    }
}

#[test]
fn a_file_system_that_keeps_no_verifier_makes_nothing_exclusively() {
    let mut lab = Lab::new();
    let root = lab.root();
    lab.files.pretended_uid.set(Some(4_711));
    let failed = lab.files.create(&root, b"f", &CreateMode::exclusive([7; 8])).unwrap_err();
    assert_eq!(failed.status, Status::NotSupp);
    assert!(!lab.path("f").exists(), "nothing is left behind");
    lab.files.create(&root, b"f", &guarded(0o644)).expect("the client then asks for this");
    lab.files.pretended_uid.set(None);
    let made = lab.files.create(&root, b"g", &CreateMode::exclusive([7; 8])).unwrap();
    let again = lab.files.create(&root, b"g", &CreateMode::exclusive([7; 8])).unwrap();
    assert_eq!(made.handle, again.handle);
}

#[test]
fn what_somebody_put_in_the_place_of_a_file_just_made_is_not_taken_away() {
    let mut lab = Lab::new();
    let root = lab.root();
    let made = lab.files.create(&root, b"f", &guarded(0o600)).unwrap().handle;
    let [directory, slot] =
        [&root, &made].map(|handle| lab.files.resolve(handle, Intent::Change).unwrap());
    let name = name::Name::of(b"f", Status::Acces, Status::Acces).unwrap();
    fs::write(lab.path("new"), b"somebody's").unwrap();
    fs::rename(lab.path("new"), lab.path("f")).unwrap();
    assert_eq!(lab.files.must_carry([7; 8], directory, name, slot), Err(Status::Stale));
    lab.files.pretended_twins.set(1);
    let identity = lab.files.cache.get(slot).identity;
    let path = fs::File::open(lab.path("f")).unwrap().into();
    let open = cache::OpenFile::by_path(identity, FileKind::Regular, path);
    assert_eq!(lab.files.must_be_no_twin(directory, name, &open), Err(Status::Jukebox));
    assert_eq!(fs::read(lab.path("f")).unwrap(), b"somebody's");

    let linked = lab.files.create(&root, b"g", &guarded(0o600)).unwrap().handle;
    let slot = lab.files.resolve(&linked, Intent::Change).unwrap();
    let name = name::Name::of(b"g", Status::Acces, Status::Acces).unwrap();
    fs::rename(lab.path("g"), lab.path("moved")).unwrap();
    fs::write(lab.path("g"), b"somebody's").unwrap();
    assert_eq!(lab.files.must_carry([7; 8], directory, name, slot), Err(Status::NotSupp));
    assert_eq!(fs::read(lab.path("g")).unwrap(), b"somebody's");
}

/// A default access control list of the entries `user::`, `group::` and `other::` (acl(5)).
fn default_list(path: &Path, [user, group, other]: [u16; 3]) -> bool {
    let entries = [(0x01_u16, user), (0x04, group), (0x20, other)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights) in entries {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].as_flattened());
        list.extend(u32::MAX.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(path, c"system.posix_acl_default", &list, flags);
    if set.is_err() {
        eprintln!("skipped: no access control lists here ({set:?})");
    }
    set.is_ok()
}

#[test]
fn a_default_list_wins_over_the_umask_and_over_a_mode_that_gives_more() {
    let mut lab = Lab::new();
    let root = lab.root();
    let under = |mode, umask| NewAttributes { mode: Some(mode), umask, ..NewAttributes::default() };
    let make = |lab: &mut Lab, set: NewAttributes| {
        let name = format!("{:?}", (set.mode, set.umask));
        let (directory, file) = (format!("d{name}"), format!("f{name}"));
        let verifier = [7; 8];
        let made = [
            lab.files.mkdir(&root, directory.as_bytes(), &set).unwrap(),
            lab.files.create(&root, file.as_bytes(), &CreateMode::Guarded(set)).unwrap(),
            lab.files
                .create(
                    &root,
                    format!("e{name}").as_bytes(),
                    &CreateMode::Exclusive { verifier, set },
                )
                .unwrap(),
            lab.files
                .mknod(&root, format!("p{name}").as_bytes(), FileKind::Fifo.into(), &set)
                .unwrap(),
        ];
        made.map(|made| made.attributes.mode & 0o777)
    };
    assert_eq!(make(&mut lab, under(0o777, 0o022)), [0o755; 4]);
    assert_eq!(make(&mut lab, under(0o666, 0o027)), [0o640; 4]);
    if !default_list(&lab.path(""), [7, 7, 5]) {
        return;
    }
    assert_eq!(make(&mut lab, under(0o777, 0o077)), [0o775; 4], "as on the host");
    assert_eq!(make(&mut lab, under(0o666, 0o077)), [0o664; 4]);
    assert_eq!(make(&mut lab, under(0o776, 0)), [0o774; 4], "by a mode alone");
    assert_eq!(make(&mut lab, under(0o750, 0)), [0o750; 4], "a mode that gives less");
}
