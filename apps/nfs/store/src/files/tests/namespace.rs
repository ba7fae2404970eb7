use super::*;
use crate::{NameIn, Renamed};

#[test]
fn a_removed_file_is_gone_whether_it_is_open_or_not() {
    let mut lab = Lab::with(|config| config.sync_directories = true);
    let (root, open, closed) = (lab.root(), lab.file("open", b"x"), lab.file("closed", b"x"));
    assert_eq!(lab.content(&open).unwrap(), b"x");
    for name in [b"open".as_slice(), b"closed"] {
        let wcc = lab.files.remove(&root, name).unwrap();
        assert_eq!(wcc.after, lab.files.getattr(&root).ok());
    }
    assert_eq!(lab.content(&open), Err(Status::Stale));
    assert_eq!(lab.write(&open, 0, b"y"), Err(Status::Stale));
    assert_eq!(lab.files.commit(&open).unwrap_err().status, Status::Stale);
    assert_eq!(lab.files.getattr(&open), Err(Status::Stale));
    assert_eq!(
        lab.files.link(&open, &root, b"again").map(drop).map_err(|failed| failed.status),
        Err(Status::Stale)
    );
    assert_eq!(lab.files.getattr(&closed), Err(Status::Stale));
    assert_eq!(lab.restart().files.getattr(&open), Err(Status::Stale));
}

#[test]
fn names_that_cannot_be_removed_are_refused() {
    let mut lab = Lab::new();
    fs::create_dir_all(lab.path("d/e")).unwrap();
    let (root, file) = (lab.root(), lab.file("f", b"x"));
    for (name, remove, rmdir) in [
        (&b"none"[..], Status::NoEnt, Status::NoEnt),
        (b"", Status::Acces, Status::Acces),
        (b"a/b", Status::Acces, Status::Acces),
        (b".", Status::Acces, Status::Inval),
        (b"..", Status::Acces, Status::Exist),
        (b"d", Status::IsDir, Status::NotEmpty),
        (&[b'x'; 256], Status::NameTooLong, Status::NameTooLong),
    ] {
        let failed = lab.files.remove(&root, name).unwrap_err();
        assert_eq!(
            (failed.status, failed.about.after.is_some()),
            (remove, true),
            "remove {name:?}"
        );
        assert_eq!(lab.files.rmdir(&root, name).unwrap_err().status, rmdir, "rmdir {name:?}");
    }
    assert_eq!(lab.files.rmdir(&root, b"f").unwrap_err().status, Status::NotDir);
    assert_eq!(lab.files.remove(&file, b"f").unwrap_err().status, Status::NotDir);
}

#[test]
fn a_rename_between_two_names_of_one_file_changes_no_directory() {
    let mut lab = Lab::new();
    let root = lab.root();
    lab.file("f", b"x");
    fs::hard_link(lab.path("f"), lab.path("g")).unwrap();
    let mut rename = |from: &[u8], to: &[u8]| {
        lab.files.rename(NameIn::new(&root, from), NameIn::new(&root, to)).unwrap()
    };
    for name in [&b"f"[..], b"g"] {
        let Renamed { from, to } = rename(b"f", name);
        let [before, after] = from.change_numbers();
        assert!(before == after && from.is_atomic() && from == to);
    }
    assert!(!rename(b"f", b"moved").from.is_atomic(), "others change it as well");
    assert!(lab.path("g").exists() && !lab.path("f").exists());
}

#[test]
fn a_removed_directory_is_stale_at_once() {
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    fs::create_dir(lab.path("e")).unwrap();
    let (root, ours, theirs) = (lab.root(), lab.find("d"), lab.find("e"));
    for handle in [ours, theirs] {
        lab.files.getattr(&handle).unwrap();
    }
    lab.files.rmdir(&root, b"d").unwrap();
    fs::remove_dir(lab.path("e")).unwrap();
    for handle in [ours, theirs] {
        assert_eq!(lab.files.getattr(&handle), Err(Status::Stale));
        assert_eq!(
            lab.files.create(&handle, b"f", &guarded(0o600)).unwrap_err().status,
            Status::Stale
        );
        assert_eq!(lab.files.lookup(&handle, b"f").unwrap_err().status, Status::Stale);
    }
}

#[test]
fn renaming_moves_replaces_or_refuses() {
    let mut lab = Lab::with(|config| config.sync_directories = true);
    fs::create_dir_all(lab.path("d/full")).unwrap();
    fs::write(lab.path("d/full/f"), b"").unwrap();
    fs::create_dir(lab.path("empty")).unwrap();
    let (root, dir) = (lab.root(), lab.find("d"));
    let (a, b) = (lab.file("a", b"a"), lab.file("b", b"b"));
    let done = lab.files.rename(NameIn::new(&root, b"a"), NameIn::new(&dir, b"moved")).unwrap();
    assert!(done.from.after.is_some() && done.to.after.is_some());
    assert_eq!(lab.find("d/moved"), a);
    lab.files.rename(NameIn::new(&dir, b"moved"), NameIn::new(&root, b"b")).unwrap();
    assert_eq!(lab.find("b"), a);
    assert_eq!(lab.files.getattr(&b), Err(Status::Stale), "replaced");
    for (from, to, expected) in [
        (&b"none"[..], &b"x"[..], Status::NoEnt),
        (b".", b"x", Status::Inval),
        (b"b", b"..", Status::Inval),
        (b"b", b"", Status::Acces),
        (b"b", b"x/y", Status::Acces),
        (b"b", b"d", Status::IsDir),
        (b"d", b"b", Status::NotDir),
        (b"b", &[b'x'; 256], Status::NameTooLong),
    ] {
        let failed =
            lab.files.rename(NameIn::new(&root, from), NameIn::new(&root, to)).unwrap_err();
        assert_eq!(failed.status, expected, "{from:?} to {to:?}");
        assert!(failed.about.from.after.is_some() && failed.about.to.after.is_some());
    }
    assert_eq!(
        lab.files
            .rename(NameIn::new(&root, b"empty"), NameIn::new(&dir, b"full"))
            .unwrap_err()
            .status,
        Status::NotEmpty
    );
    assert_eq!(
        lab.files.rename(NameIn::new(&root, b"d"), NameIn::new(&dir, b"x")).unwrap_err().status,
        Status::Inval,
        "into itself"
    );
    assert_eq!(
        lab.files.rename(NameIn::new(&root, b"d"), NameIn::new(&a, b"x")).unwrap_err().status,
        Status::NotDir
    );
}

#[test]
fn renaming_one_name_of_a_file_onto_another_leaves_both() {
    let mut lab = Lab::new();
    let (root, file) = (lab.root(), lab.file("a", b"x"));
    lab.files.link(&file, &root, b"b").unwrap();
    lab.files.rename(NameIn::new(&root, b"a"), NameIn::new(&root, b"b")).unwrap();
    let mut lab = lab.restart();
    assert_eq!((lab.find("a"), lab.find("b")), (file, file));
    assert_eq!(lab.content(&file).unwrap(), b"x");
}

#[test]
fn a_link_is_one_more_name() {
    let mut lab = Lab::with(|config| config.sync_directories = true);
    fs::create_dir(lab.path("d")).unwrap();
    std::os::unix::fs::symlink("nowhere", lab.path("l")).unwrap();
    let (root, dir, file, symlink) =
        (lab.root(), lab.find("d"), lab.file("f", b"x"), lab.find("l"));
    let done = lab.files.link(&file, &dir, b"g").unwrap();
    assert_eq!(done.file.unwrap().nlink, 2);
    assert_eq!(lab.find("d/g"), file);
    lab.files.link(&symlink, &root, b"l2").unwrap();
    assert_eq!(
        fs::read_link(lab.path("l2")).unwrap().to_str(),
        Some("nowhere"),
        "the link, not its target"
    );
    for (handle, name, expected) in [
        (&file, &b"f"[..], Status::Exist),
        (&file, b".", Status::Exist),
        (&file, b"", Status::Acces),
        (&file, &[b'x'; 256], Status::NameTooLong),
        (&dir, b"x", Status::Inval),
    ] {
        let failed = lab.files.link(handle, &root, name).unwrap_err();
        assert_eq!(failed.status, expected, "{name:?}");
        assert!(failed.about.file.is_some() && failed.about.directory.after.is_some());
    }
    assert_eq!(lab.files.link(&file, &file, b"x").unwrap_err().status, Status::NotDir);
}

#[test]
fn nothing_moves_or_links_between_exports() {
    let mut lab = Lab::with(|config| {
        let path = config.exports[0].path.with_file_name("outside");
        config.exports.push(ExportConfig {
            name: "other".to_owned(),
            path,
            read_only: false,
            is_mountpoint: false,
        });
    });
    let (root, file) = (lab.root(), lab.file("f", b"x"));
    let other = lab.files.mount(b"/other").unwrap();
    assert_ne!(root, other);
    assert_eq!(
        lab.files.rename(NameIn::new(&root, b"f"), NameIn::new(&other, b"f")).unwrap_err().status,
        Status::XDev
    );
    assert_eq!(lab.files.link(&file, &other, b"f").unwrap_err().status, Status::XDev);
}
