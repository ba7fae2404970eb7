//! Tests of exports whose path comes to lead to another directory, or a file system.

use super::{faults::KeptLog, *};
use rustix::mount::{UnmountFlags, unmount};

fn names(lab: &Lab) -> Vec<String> {
    crate::Store::exports(&lab.files).map(str::to_owned).collect()
}

/// Runs a test of this module again where it may mount; false in that process itself.
fn with_mounts(test: &str) -> bool {
    if std::env::var("STAG_TEST_MARKER").is_ok_and(|marker| marker == "paths") {
        return false;
    }
    let test = format!("files::tests::paths::{test}");
    if !run_under(&["unshare", "-rm"], &test, "paths") {
        eprintln!("skipped: this process may not mount");
    }
    true
}

#[test]
fn a_directory_that_takes_the_place_of_an_exported_one_is_served_from_the_next_mount_on() {
    let log = KeptLog::default();
    tracing::subscriber::with_default(log.clone(), || {
        let mut lab = Lab::new();
        let old = lab.files.mount(b"/data").unwrap();
        let file = lab.file("f", b"old");
        let (path, aside) = (lab.home.path().join("export"), lab.home.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        assert_eq!(lab.files.mount(b"/data"), Ok(old), "a directory may move");
        assert_eq!(log.lines(), [""; 0]);
        fs::create_dir(&path).unwrap();
        let new = lab.files.mount(b"/data").unwrap();
        assert_ne!(new, old);
        let lines = log.lines();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains("another directory is at the path"), "{line}");
        lab.files.mkdir(&new, b"made", &NewAttributes::default()).unwrap();
        assert!(path.join("made").is_dir() && !aside.join("made").exists());
        for handle in [old, file] {
            assert_eq!(lab.files.getattr(&handle), Err(Status::Stale));
        }
        assert_eq!(lab.files.mount(b"/data"), Ok(new));
        assert_eq!(log.lines(), [""; 0], "it is logged once");
        assert_eq!(names(&lab), ["data"]);
    });
}

#[test]
fn every_shard_serves_the_directory_that_one_has_found() {
    let mut lab = Lab::with(|config| config.shards = 2);
    let mut other = Files::open(lab.files.shared(), 1).unwrap();
    let (path, aside) = (lab.home.path().join("export"), lab.home.path().join("aside"));
    let old = other.mount(b"/data").unwrap();
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    let new = lab.files.mount(b"/data").unwrap();
    assert!(other.wants_idle_passes(), "an idle shard lets go of the old one");
    other.tidy(stag_engine::Time(2_000_000_000));
    assert_eq!(other.getattr(&old), Err(Status::Stale));
    assert!(other.getattr(&new).is_ok());
    // No descriptor holds the directory that was moved.
    let held = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| {
        let path = fs::read_link(fd.unwrap().path()).ok()?;
        (path == aside).then_some(path)
    });
    assert_eq!(held.count(), 0);
}

#[test]
fn a_mount_point_without_a_file_system_is_listed_and_refused() {
    let mut lab = Lab::with(|config| config.exports[0].is_mountpoint = true);
    assert_eq!(lab.files.mount(b"/data"), Err(Status::NoEnt));
    assert_eq!(lab.files.mount(b"/data/below"), Err(Status::NoEnt));
    assert_eq!(names(&lab), ["data"]);
    let notices = lab.files.shared().notices().join("\n");
    assert!(notices.contains("nothing is mounted at"), "{notices}");
}

#[test]
fn a_file_system_that_is_mounted_over_an_export_is_served_from_the_next_mount_on() {
    let test = "a_file_system_that_is_mounted_over_an_export_is_served_from_the_next_mount_on";
    if with_mounts(test) {
        return;
    }
    for mode in space::modes() {
        let mut lab = Lab::with(|config| config.callers = Callers { mode, ..Callers::default() });
        let path = lab.home.path().join("export");
        let old = lab.files.mount(b"/data").unwrap();
        data::mount_tmpfs(&path, "size=1m,mode=777");
        let new = lab.files.mount(b"/data").unwrap();
        lab.files.act_as(&User::Anyone);
        lab.files.mkdir(&new, b"made", &NewAttributes::default()).unwrap();
        assert!(path.join("made").is_dir(), "it is made on what is mounted");
        assert_eq!(lab.files.getattr(&old), Err(Status::Stale));
        unmount(&path, UnmountFlags::DETACH).unwrap();
        let again = lab.files.mount(b"/data").unwrap();
        assert_eq!(again, old, "the directory beneath has its handles as before");
        assert_eq!(lab.files.getattr(&new), Err(Status::Stale));
    }
}

#[test]
fn a_mount_point_is_served_while_a_file_system_is_mounted_there_and_no_longer() {
    let test = "a_mount_point_is_served_while_a_file_system_is_mounted_there_and_no_longer";
    if with_mounts(test) {
        return;
    }
    for mode in space::modes() {
        let log = KeptLog::default();
        let mut lab = Lab::with(|config| {
            config.callers = Callers { mode, ..Callers::default() };
            config.exports[0].is_mountpoint = true;
        });
        let path = lab.home.path().join("export");
        tracing::subscriber::with_default(log.clone(), || {
            assert_eq!(lab.files.mount(b"/data"), Err(Status::NoEnt));
            data::mount_tmpfs(&path, "size=1m,mode=777");
            let root = lab.files.mount(b"/data").unwrap();
            lab.files.act_as(&User::Anyone);
            lab.files.mkdir(&root, b"made", &NewAttributes::default()).unwrap();
            unmount(&path, UnmountFlags::DETACH).unwrap();
            assert_eq!(lab.files.mount(b"/data"), Err(Status::NoEnt));
            assert_eq!(lab.files.getattr(&root), Err(Status::Stale));
            assert!(fs::read_dir(&path).unwrap().next().is_none(), "nothing landed beneath");
            let lines = log.lines();
            let [served, ended] = &lines[..] else { panic!("{lines:?}") };
            assert!(served.contains("something is mounted there"), "{served}");
            assert!(ended.contains("an export ends until its mount point"), "{ended}");
            data::mount_tmpfs(&path, "size=1m,mode=777");
            assert!(lab.files.mount(b"/data").is_ok());
            unmount(&path, UnmountFlags::DETACH).unwrap();
        });
    }
}
