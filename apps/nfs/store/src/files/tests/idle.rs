//! Tests of closing files: unused ones, removed ones, and any when a resource is short.

use super::*;
use crate::NameIn;
use core::time::Duration;
use stag_engine::Time;
use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Longer than a tick of the clock of birth times.
pub(super) const YOUTH: Duration = Duration::from_millis(60);

impl Lab {
    /// Makes passes over this number of simulated seconds; calls `between` in each.
    pub(super) fn rest(&mut self, seconds: u64, mut between: impl FnMut(&mut Self)) {
        for _ in 0..seconds * 4 {
            self.clock += 250_000_000;
            self.files.tidy(Time(self.clock));
            between(self);
        }
    }

    /// Files of the export that this process has open, except the root.
    pub(super) fn open_files(&self) -> Vec<String> {
        open_below(&self.path(""))
    }
}

/// Files below a directory that this process has open.
pub(super) fn open_below(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let paths = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let paths = paths.map(|path| path.to_string_lossy().into_owned());
    let mut names: Vec<_> = paths
        .filter_map(|path| path.strip_prefix(directory.to_str().unwrap()).map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names
}

/// All modes available to this process: all callers as one, callers as themselves by kernel
/// handles, and these without such handles. The caller is root.
pub(super) fn labs(change: impl Fn(&mut FilesConfig)) -> impl Iterator<Item = Lab> {
    let privileged = || {
        privileged::lab(|config| {
            config.callers.squash = Squash::None;
            change(config);
        })
    };
    let without_handles = privileged().map(|mut lab| {
        lab.files.serving.mounts = Default::default();
        lab
    });
    let labs = [Some(Lab::with(&change)), privileged(), without_handles].into_iter().flatten();
    labs.map(|mut lab| {
        act_as_root(&mut lab);
        lab
    })
}

pub(super) fn act_as_root(lab: &mut Lab) {
    lab.files.act_as(&User::Unix { uid: 0, gid: 0, gids: Default::default() });
}

#[test]
fn what_nobody_uses_is_closed_after_seconds_and_opened_again() {
    for mut lab in labs(|_| {}) {
        fs::create_dir(lab.path("d")).unwrap();
        let (dir, file, used) = (lab.find("d"), lab.file("d/f", b"x"), lab.file("used", b"y"));
        lab.files.readdir(&dir, crate::ListingStart::default(), &mut |_| true).unwrap();
        assert_eq!(lab.content(&file).unwrap(), b"x");
        assert!(lab.open_files().contains(&"d/f".to_owned()));
        lab.rest(3, |_| {});
        assert!(lab.open_files().contains(&"d/f".to_owned()), "seconds, not moments");
        lab.rest(3, |lab| assert_eq!(lab.content(&used).unwrap(), b"y"));
        assert_eq!(lab.open_files(), ["used", "used"], "by path, and for its content");
        lab.rest(6, |_| {});
        assert!(lab.open_files().is_empty() && lab.files.cache.is_empty());
        assert_eq!(lab.content(&file).unwrap(), b"x");
        assert_eq!(lab.files.getattr(&dir).unwrap().kind, FileKind::Directory);
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn what_is_removed_or_replaced_through_us_is_closed_at_once_and_stale() {
    for mut lab in labs(|_| {}) {
        let (root, set) = (lab.root(), NewAttributes::default());
        for name in [b"removed".as_slice(), b"replaced", b"new"] {
            let made = lab.files.create(&root, name, &guarded(0o600)).unwrap().handle;
            assert_eq!(lab.write(&made, 0, b"content"), Ok(7));
        }
        let dir = lab.files.mkdir(&root, b"dir", &set).unwrap().handle;
        let handles = [lab.find("removed"), lab.find("replaced"), dir];
        for handle in &handles {
            lab.files.getattr(handle).unwrap();
        }
        std::thread::sleep(YOUTH);
        lab.files.remove(&root, b"removed").unwrap();
        lab.files.rename(NameIn::new(&root, b"new"), NameIn::new(&root, b"replaced")).unwrap();
        lab.files.rmdir(&root, b"dir").unwrap();
        assert!(lab.open_files().iter().all(|name| name == "replaced"), "{:?}", lab.open_files());
        for handle in &handles {
            assert_eq!(lab.files.getattr(handle), Err(Status::Stale));
        }
        let replaced = lab.find("replaced");
        assert_eq!(lab.content(&replaced).unwrap(), b"content");
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_file_with_another_name_is_not_let_go() {
    for mut lab in labs(|_| {}) {
        let (root, file) = (lab.root(), lab.file("f", b"x"));
        lab.files.link(&file, &root, b"g").unwrap();
        lab.content(&file).unwrap();
        std::thread::sleep(YOUTH);
        lab.files.remove(&root, b"f").unwrap();
        assert_eq!(lab.open_files().len(), 2, "by path, and for its content");
        assert_eq!(lab.content(&file).unwrap(), b"x");
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_file_that_is_removed_young_is_stale_at_once_and_closed_a_moment_later() {
    let mut lab = Lab::new();
    let root = lab.root();
    // On a busy host it may be old before it is removed.
    let mut attempts = (0..200).map(|_| {
        let file = lab.files.create(&root, b"f", &guarded(0o600)).unwrap().handle;
        lab.write(&file, 0, b"x").unwrap();
        lab.files.remove(&root, b"f").unwrap();
        assert_eq!(lab.files.getattr(&file), Err(Status::Stale));
        (file, !lab.open_files().is_empty())
    });
    let (file, _) =
        attempts.find(|(_, is_held)| *is_held).expect("its inode number is not free yet");
    std::thread::sleep(YOUTH);
    lab.rest(1, |lab| assert_eq!(lab.files.getattr(&file), Err(Status::Stale)));
    assert!(lab.open_files().is_empty(), "{:?}", lab.open_files());
}

#[test]
fn what_is_removed_behind_our_back_is_closed_although_somebody_asks_for_it() {
    for mut lab in labs(|_| {}) {
        let root = lab.root();
        let file = lab.files.create(&root, b"f", &guarded(0o600)).unwrap().handle;
        lab.write(&file, 0, b"never on the disk").unwrap();
        let quiet = lab.file("quiet", b"x");
        lab.content(&quiet).unwrap();
        for name in ["f", "quiet"] {
            fs::remove_file(lab.path(name)).unwrap();
        }
        std::thread::sleep(YOUTH);
        let is_privileged = lab.files.shared().is_privileged();
        lab.rest(6, |lab| {
            let refusal = lab.files.getattr(&file).unwrap_err();
            // While another test makes a file with this inode number, ext4 returns ENOMEM for the
            // old handle: the client is asked to retry, and then gets NFS3ERR_STALE.
            let is_busy = is_privileged && refusal == Status::Jukebox;
            assert!(is_busy || refusal == Status::Stale, "{refusal:?}, {is_privileged}");
        });
        assert!(lab.open_files().is_empty(), "{:?}", lab.open_files());
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn the_other_shard_lets_go_of_what_one_removes_and_of_the_oldest_message_too() {
    for mut lab in labs(|config| config.shards = 2) {
        let root = lab.root();
        let other = Files::open(lab.files.shared(), 1).unwrap();
        let home = tempfile::tempdir().unwrap();
        let mut other = Lab { files: other, home, config: lab.config.clone(), clock: 0 };
        other.files.serving.mounts = Arc::clone(&lab.files.serving.mounts);
        act_as_root(&mut other);
        let names: Vec<_> = (0..3_000).map(|number| format!("f{number}")).collect();
        let held = ["f0", "f1700", "f2999"];
        for name in &names {
            fs::write(lab.path(name), b"x").unwrap();
        }
        let handles = held.map(|name| lab.find(name));
        lab.files.flush().unwrap();
        for handle in &handles {
            assert_eq!(other.content(handle).unwrap(), b"x");
        }
        std::thread::sleep(YOUTH);
        for name in &names {
            lab.files.remove(&root, name.as_bytes()).unwrap();
        }
        assert_eq!(lab.open_files().len(), 6, "those of the other one");
        other.files.tidy(Time(1));
        assert!(lab.open_files().is_empty(), "{:?}", lab.open_files());
        for handle in &handles {
            assert_eq!(other.files.getattr(handle), Err(Status::Stale));
        }
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_program_that_was_stored_can_be_executed_soon_although_it_is_looked_at() {
    for mut lab in labs(|_| {}) {
        let (root, program) = (lab.root(), fs::read("/bin/true").unwrap());
        let made = lab.files.create(&root, b"program", &guarded(0o755)).unwrap().handle;
        for (number, part) in program.chunks(1 << 16).enumerate() {
            lab.write(&made, (number as u64) << 16, part).unwrap();
        }
        let path = lab.path("program");
        let run = || {
            // A child of another test may have a copy of our descriptors until it executes its own
            // program.
            let busy =
                |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
            (0..20).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                !Command::new(&path).status().as_ref().is_err_and(busy)
            })
        };
        assert!(!run(), "it is open to be written");
        // Its data is unstable, and a client reads it all the time.
        lab.rest(3, |lab| assert_eq!(lab.content(&made).unwrap().len(), 4096));
        assert!(run());
        assert_eq!(lab.write(&made, 0, &program[..10]), Ok(10), "and written again");
        lab.files.commit(&made).unwrap();
        lab.rest(3, |_| {});
        assert!(run());
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn unstable_data_stays_guarded_when_its_descriptor_is_exchanged_and_closed() {
    for mut lab in labs(|_| {}) {
        let root = lab.root();
        let file = lab.files.create(&root, b"f", &guarded(0o600)).unwrap().handle;
        lab.write(&file, 0, b"x").unwrap();
        lab.rest(6, |_| {});
        assert_eq!(lab.open_files(), ["f", "f"], "open to be synced");
        let first = lab.files.commit(&file).unwrap().verifier;
        lab.rest(6, |_| {});
        assert!(lab.open_files().is_empty());

        // The exchange reports a failure that was not reported before.
        lab.write(&file, 0, b"y").unwrap();
        lab.files.failing_syncs.set(1);
        lab.rest(3, |_| {});
        let second = lab.files.commit(&file).unwrap().verifier;
        assert_ne!(second, first);

        // A client that never commits: the file is synced before it is closed.
        lab.write(&file, 0, b"z").unwrap();
        lab.rest(10, |_| {});
        lab.files.failing_syncs.set(1);
        lab.rest(60, |_| {});
        assert!(lab.open_files().is_empty(), "{:?}", lab.open_files());
        assert_ne!(lab.files.commit(&file).unwrap().verifier, second);
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_descriptor_that_takes_the_place_of_another_asks_it_for_lost_data() {
    for mut lab in labs(|_| {}) {
        let root = lab.root();
        let file = lab.files.create(&root, b"f", &guarded(0o600)).unwrap().handle;
        lab.write(&file, 0, b"lost").unwrap();
        // From here on another descriptor reports failures of the data.
        lab.rest(3, |_| {});
        let written = lab.files.shared().verifier();
        // Another descriptor gets the report, so that ones opened from here on do not.
        lab.files.failing_syncs.set(1);
        assert_eq!(lab.write(&file, 4, b"kept"), Ok(4));
        assert_eq!(lab.files.failing_syncs.get(), 0, "it was asked");
        assert_ne!(lab.files.commit(&file).unwrap().verifier, written);

        // Failures of stable data are not queried.
        let committed = lab.files.shared().verifier();
        lab.rest(3, |_| {});
        lab.files.failing_syncs.set(1);
        assert_eq!(lab.content(&file).unwrap(), b"lostkept");
        assert_eq!(lab.write(&file, 0, b"x"), Ok(1));
        lab.files.failing_syncs.set(0);
        assert_eq!(lab.files.commit(&file).unwrap().verifier, committed);
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_file_that_may_not_be_read_is_synced_before_its_descriptor_goes() {
    let mut lab = Lab::new();
    let root = lab.root();
    let file = lab.files.create(&root, b"f", &guarded(0o200)).unwrap().handle;
    lab.write(&file, 0, b"x").unwrap();
    lab.rest(3, |_| {});
    let open = lab.open_files();
    assert_eq!(open, if is_root() { vec!["f", "f"] } else { vec!["f"] });
    assert_eq!(lab.write(&file, 0, b"y"), Ok(1));
    assert_eq!(fs::metadata(lab.path("f")).unwrap().permissions().mode() & 0o777, 0o200);
}

#[test]
fn what_was_renamed_behind_our_back_while_it_was_open_is_found_after_it_was_closed() {
    let mut lab = Lab::new();
    fs::create_dir_all(lab.path("a/b/c")).unwrap();
    let (deep, file) = (lab.find("a/b/c"), lab.file("a/b/f", b"x"));
    lab.content(&file).unwrap();
    lab.files.getattr(&deep).unwrap();
    fs::rename(lab.path("a/b"), lab.path("a/z")).unwrap();
    fs::rename(lab.path("a/z/f"), lab.path("g")).unwrap();
    fs::rename(lab.path("a"), lab.path("y")).unwrap();
    lab.rest(6, |_| {});
    assert!(lab.open_files().is_empty());
    assert_eq!(lab.content(&file).unwrap(), b"x");
    assert_eq!(lab.files.getattr(&deep).unwrap().kind, FileKind::Directory);
    lab = lab.restart();
    assert_eq!(lab.content(&file).unwrap(), b"x");
    assert_eq!(lab.find("y/z/c"), deep);
}

#[test]
fn an_export_that_is_deleted_has_no_handle_and_one_made_again_has_another_on_every_shard() {
    // An export made anew has kernel handles, too.
    for mut lab in labs(|config| config.shards = 2).take(2) {
        let mut other = Files::open(lab.files.shared(), 1).unwrap();
        let old = lab.files.mount(b"/data").unwrap();
        assert_eq!(other.mount(b"/data"), Ok(old));
        stag_nfs_os::user::leave().unwrap();
        let again = |lab: &Lab| {
            fs::remove_dir(lab.path("")).unwrap();
            fs::create_dir(lab.path("")).unwrap();
            fs::write(lab.path("f"), b"new").unwrap();
        };
        fs::remove_dir(lab.path("")).unwrap();
        assert_eq!(lab.files.mount(b"/data"), Err(Status::Stale), "MNT3ERR_NOENT");
        assert_eq!(lab.files.getattr(&old), Err(Status::Stale));
        stag_nfs_os::user::leave().unwrap();
        fs::create_dir(lab.path("")).unwrap();
        for _ in 0..3 {
            again(&lab);
            let new = lab.files.mount(b"/data").unwrap();
            assert_ne!(new, old);
            assert_eq!(lab.root(), new);
            act_as_root(&mut lab);
            let file = lab.files.lookup(&new, b"f").unwrap().handle;
            assert_eq!(lab.content(&file).unwrap(), b"new");
            assert_eq!(lab.files.getattr(&old), Err(Status::Stale));
            lab.files.flush().unwrap();
            // The handles of one shard are valid on the other without a MNT there.
            other.act_as(&User::Unix { uid: 0, gid: 0, gids: Default::default() });
            assert_eq!(other.getattr(&file).unwrap().size, 3);
            assert_eq!(other.getattr(&old), Err(Status::Stale));
            assert_eq!(other.mount(b"/data"), Ok(new));
            stag_nfs_os::user::leave().unwrap();
            fs::remove_file(lab.path("f")).unwrap();
        }
        // Also after a restart: the export's number is stored.
        let new = lab.files.mount(b"/data").unwrap();
        stag_nfs_os::user::leave().unwrap();
        drop(other);
        let mut lab = lab.restart();
        assert_eq!(lab.files.mount(b"/data"), Ok(new));
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn idle_passes_are_wanted_as_long_as_a_file_is_open_or_a_record_waits() {
    for mut lab in labs(|_| {}) {
        let file = lab.file("file", b"octets");
        lab.files.flush().unwrap();
        lab.rest(10, |lab| lab.files.flush().unwrap());
        assert!(lab.open_files().is_empty() && !lab.files.wants_idle_passes());
        assert_eq!(lab.content(&file).unwrap(), b"octets");
        lab.files.flush().unwrap();
        assert!(lab.files.wants_idle_passes(), "it is to be closed when nobody uses it");
        lab.rest(10, |lab| lab.files.flush().unwrap());
        assert!(!lab.files.wants_idle_passes());
        stag_nfs_os::user::leave().unwrap();
    }
}
