//! Files are let go: unused ones, removed ones, and any where something is short.

use super::*;
use core::time::Duration;
use stag_engine::Time;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Longer than the clock of birth times takes to tick.
const YOUTH: Duration = Duration::from_millis(60);

impl Lab {
    /// Passes for so many seconds, of which no time goes by for anybody else; `between` is called
    /// in each.
    fn rest(&mut self, seconds: u64, mut between: impl FnMut(&mut Self)) {
        for _ in 0..seconds * 4 {
            self.clock += 250_000_000;
            self.files.tidy(Time(self.clock));
            between(self);
        }
    }

    /// Files of the export that this process has open, but for the root.
    fn open_files(&self) -> Vec<String> {
        open_below(&self.path(""))
    }
}

/// Files below a directory that this process has open.
fn open_below(directory: &Path) -> Vec<String> {
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

/// Each mode that this process can be in: all callers as one, callers as themselves by the kernel's
/// handles, and these without such handles. The caller is root.
fn labs(change: impl Fn(&mut Config)) -> impl Iterator<Item = Lab> {
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

#[test]
fn what_nobody_uses_is_closed_after_seconds_and_opened_again() {
    for mut lab in labs(|_| {}) {
        fs::create_dir(lab.path("d")).unwrap();
        let (dir, file, used) = (lab.find("d"), lab.file("d/f", b"x"), lab.file("used", b"y"));
        lab.files.readdir(&dir, crate::store::Place::default(), &mut |_| true).unwrap();
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
        let (root, set) = (lab.root(), SetAttributes::default());
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
        lab.files.rename((&root, b"new"), (&root, b"replaced")).unwrap();
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
    let (file, _) = attempts.find(|(_, is_held)| *is_held).expect("its inode number is not free yet");
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
            // While another test makes a file with this inode number, ext4 says ENOMEM of the old
            // one's handle: the client is told to come again, and then that it is stale.
            let is_busy = is_privileged && refusal == Status::Jukebox;
            assert!(is_busy || refusal == Status::Stale, "{refusal:?}, {is_privileged}");
        });
        assert!(lab.open_files().is_empty(), "{:?}", lab.open_files());
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn the_other_shard_lets_go_of_what_one_removes_and_of_the_oldest_letter_too() {
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
            let busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
            (0..20).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                !Command::new(&path).status().as_ref().is_err_and(busy)
            })
        };
        assert!(!run(), "it is open to be written");
        // Its data is not on stable storage, and a client reads it all the time.
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

        // The exchange is told of a failure that nobody was told of.
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
        // From here on another descriptor answers for the data.
        lab.rest(3, |_| {});
        let written = lab.files.shared().verifier();
        // Somebody else is told of the failure, so that what is opened from here on is not.
        lab.files.failing_syncs.set(1);
        assert_eq!(lab.write(&file, 4, b"kept"), Ok(4));
        assert_eq!(lab.files.failing_syncs.get(), 0, "it was asked");
        assert_ne!(lab.files.commit(&file).unwrap().verifier, written);

        // Nothing is asked about data on stable storage.
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
    // What is exported anew brings the kernel's handles with it.
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
            // The handles of one shard are good on the other without a MNT there.
            other.act_as(&User::Unix { uid: 0, gid: 0, gids: Default::default() });
            assert_eq!(other.getattr(&file).unwrap().size, 3);
            assert_eq!(other.getattr(&old), Err(Status::Stale));
            assert_eq!(other.mount(b"/data"), Ok(new));
            stag_nfs_os::user::leave().unwrap();
            fs::remove_file(lab.path("f")).unwrap();
        }
        // Also after a restart: the number of the export is kept.
        let new = lab.files.mount(b"/data").unwrap();
        stag_nfs_os::user::leave().unwrap();
        drop(other);
        let mut lab = lab.restart();
        assert_eq!(lab.files.mount(b"/data"), Ok(new));
        stag_nfs_os::user::leave().unwrap();
    }
}

/// Runs `test` of this module again where it may mount; false when that is this process.
fn with_mounts(test: &str) -> bool {
    if std::env::var("STAG_TEST_MARKER").is_ok_and(|marker| marker == "mounts") {
        return false;
    }
    let test = format!("store::files::tests::idle::{test}");
    let own: &[&str] =
        if is_root() { &["unshare", "--mount"] } else { &["unshare", "--map-root-user", "--mount"] };
    if !run_under(own, &test, "mounts") {
        eprintln!("skipped: this process may not mount");
    }
    true
}

/// A small file system in memory at the export of a lab.
fn on_tmpfs(options: &str, change: impl FnOnce(&mut Config)) -> Lab {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(home.path().join("export")).unwrap();
    data::mount_tmpfs(&home.path().join("export"), options);
    Lab::at(home, change)
}

/// Writes a file of so many MiB.
fn fill(lab: &mut Lab, name: &[u8], mib: u64) -> Result<(), Status> {
    let (root, part) = (lab.root(), vec![7; 1 << 20]);
    let how = CreateHow::Unchecked(SetAttributes::default());
    let file = lab.files.create(&root, name, &how).map_err(|failed| failed.status)?.handle;
    for at in 0..mib {
        let mut done = 0;
        while done < part.len() {
            done += lab.write(&file, (at << 20) + done as u64, &part[done..])? as usize;
        }
    }
    Ok(())
}

/// Modes in which a store serves: by the names of files, and by the kernel's handles.
fn modes() -> impl Iterator<Item = CallerMode> {
    // In a thread of its own: one that tried in vain is nobody afterwards.
    let check = || stag_nfs_os::user::check(&stag_nfs_os::User::new(65_534, 65_534, [])).is_ok();
    let may_switch = std::thread::spawn(check).join().unwrap();
    [Some(CallerMode::Unprivileged), may_switch.then_some(CallerMode::Privileged)].into_iter().flatten()
}

fn act_as_root(lab: &mut Lab) {
    lab.files.act_as(&User::Unix { uid: 0, gid: 0, gids: Default::default() });
}

#[test]
fn files_that_are_replaced_or_removed_free_their_space_at_once() {
    if with_mounts("files_that_are_replaced_or_removed_free_their_space_at_once") {
        return;
    }
    for mode in modes() {
        let mut lab = on_tmpfs("size=64m,nr_inodes=12", |config| {
            (config.callers.mode, config.callers.squash) = (mode, Squash::None);
        });
        act_as_root(&mut lab);
        let root = lab.root();
        for round in 0..16 {
            fill(&mut lab, b"new", 10).unwrap_or_else(|status| panic!("{mode:?}, round {round}: {status:?}"));
            lab.files.rename((&root, b"new"), (&root, b"name")).unwrap();
        }
        for round in 0..16 {
            fill(&mut lab, b"new", 30).unwrap_or_else(|status| panic!("{mode:?}, round {round}: {status:?}"));
            lab.files.remove(&root, b"new").unwrap();
        }
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_full_file_system_is_not_full_of_what_is_removed_behind_our_back() {
    if with_mounts("a_full_file_system_is_not_full_of_what_is_removed_behind_our_back") {
        return;
    }
    for mode in modes() {
        let mut lab = on_tmpfs("size=64m,nr_inodes=12", |config| {
            (config.callers.mode, config.callers.squash) = (mode, Squash::None);
        });
        act_as_root(&mut lab);
        let root = lab.root();
        for _ in 0..3 {
            fill(&mut lab, b"f", 40).unwrap();
            fs::remove_file(lab.path("f")).unwrap();
            // How often all open files are looked at has a limit.
            std::thread::sleep(Duration::from_millis(110));
        }
        // All inodes are in use, and nobody told.
        for round in 0..3 {
            for number in 0..9 {
                let name = format!("{round}-{number}");
                lab.files.create(&root, name.as_bytes(), &guarded(0o600)).unwrap();
                fs::remove_file(lab.path(&name)).unwrap();
            }
            std::thread::sleep(Duration::from_millis(110));
        }
        // What is really full is said to be.
        assert_eq!(fill(&mut lab, b"f", 70), Err(Status::NoSpc));
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_full_file_system_asks_the_other_shard() {
    if with_mounts("a_full_file_system_asks_the_other_shard") {
        return;
    }
    let mut lab = on_tmpfs("size=64m", |config| config.shards = 2);
    let shared = Arc::clone(lab.files.shared());
    fill(&mut lab, b"f", 40).unwrap();
    let (root, file) = (lab.root(), lab.find("f"));
    lab.files.flush().unwrap();
    let (asleep, awake) = std::sync::mpsc::channel();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut files = Files::open(&shared, 1).unwrap();
        shared.attach_bell(1, move || asleep.send(()).unwrap());
        files.getattr(&file).unwrap();
        ready.send(()).unwrap();
        // It sleeps until it is rung for.
        awake.recv().unwrap();
        files.tidy(Time(0));
    });
    is_ready.recv().unwrap();
    std::thread::sleep(YOUTH);
    lab.files.remove(&root, b"f").unwrap();
    // On a busy host the other one may take longer than a call waits: the client is told to come
    // again.
    let mut outcomes = (0..100).map(|_| {
        let outcome = fill(&mut lab, b"g", 40);
        std::thread::sleep(YOUTH);
        outcome
    });
    assert_eq!(outcomes.find(|outcome| *outcome != Err(Status::Jukebox)), Some(Ok(())));
    other.join().unwrap();
}

#[test]
fn a_file_system_can_be_made_read_only_seconds_after_the_last_write() {
    if with_mounts("a_file_system_can_be_made_read_only_seconds_after_the_last_write") {
        return;
    }
    for mode in modes() {
        let mut lab = on_tmpfs("size=8m", |config| {
            (config.callers.mode, config.callers.squash) = (mode, Squash::None);
        });
        let is_remounted = |lab: &Lab, how| {
            let mut command = Command::new("mount");
            command.args(["-o", how]).arg(lab.path("")).output().unwrap().status.success()
        };
        if !is_remounted(&lab, "remount,ro") || !is_remounted(&lab, "remount,rw") {
            eprintln!("skipped: this process may not remount");
            return;
        }
        act_as_root(&mut lab);
        fill(&mut lab, b"f", 1).unwrap();
        let file = lab.find("f");
        assert!(!is_remounted(&lab, "remount,ro"), "it is open to be written");
        lab.rest(3, |lab| assert_eq!(lab.files.getattr(&file).unwrap().size, 1 << 20));
        assert!(is_remounted(&lab, "remount,ro"));
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_process_without_descriptors_closes_idle_files() {
    let test = "store::files::tests::idle::a_process_without_descriptors_closes_idle_files";
    if !std::env::var("STAG_TEST_MARKER").is_ok_and(|marker| marker == "few") {
        if !run_under(&["prlimit", "--nofile=500:500"], test, "few") {
            eprintln!("skipped: no prlimit");
        }
        return;
    }
    for mut lab in labs(|_| {}) {
        let names: Vec<_> = (0..20).map(|number| format!("f{number}")).collect();
        let handles: Vec<_> = names.iter().map(|name| lab.file(name, b"x")).collect();
        for handle in &handles {
            assert_eq!(lab.content(handle).unwrap(), b"x");
        }
        let late = lab.file("late", b"x");
        // Somebody else takes the rest: connections, say.
        let others: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        assert_eq!(lab.content(&late).unwrap(), b"x");
        let others_since: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        assert!(!others_since.is_empty(), "files were closed");
        let root = lab.root();
        let made = lab.files.create(&root, b"made", &guarded(0o600)).unwrap().handle;
        assert_eq!(lab.write(&made, 0, b"x"), Ok(1));
        lab.files.readdir(&root, crate::store::Place::default(), &mut |_| true).unwrap();
        drop((others, others_since));
        stag_nfs_os::user::leave().unwrap();
    }
}

/// A call; the status when it is refused.
type Refusal<'a> = dyn Fn(&mut Files) -> Option<Status> + 'a;

/// As many open files as this process may have.
fn all_descriptors() -> Vec<fs::File> {
    std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect()
}

#[test]
fn a_call_about_two_files_keeps_both_when_room_is_made() {
    let test = "store::files::tests::idle::a_call_about_two_files_keeps_both_when_room_is_made";
    if !std::env::var("STAG_TEST_MARKER").is_ok_and(|marker| marker == "two") {
        if !run_under(&["prlimit", "--nofile=600:600"], test, "two") {
            eprintln!("skipped: no prlimit");
        }
        return;
    }
    for mut lab in labs(|config| config.sync_directories = true) {
        for name in ["a", "b", "other"] {
            fs::create_dir(lab.path(name)).unwrap();
        }
        fs::write(lab.path("a/f"), b"x").unwrap();
        let [a, b, other, file] = ["a", "b", "other", "a/f"].map(|path| lab.find(path));
        let how = CreateHow::Unchecked(SetAttributes { size: Some(0), ..SetAttributes::default() });
        // Each succeeds, or the client is told to come again; none takes one file for another.
        let calls: [&Refusal<'_>; 5] = [
            &|files| files.rename((&a, b"f"), (&b, b"g")).err().map(|failed| failed.status),
            &|files| files.link(&file, &b, b"g").err().map(|failed| failed.status),
            &|files| files.mkdir(&a, b"d", &SetAttributes::default()).err().map(|failed| failed.status),
            &|files| files.create(&a, b"f", &how).err().map(|failed| failed.status),
            &|files| files.create(&a, b"h", &guarded(0o600)).err().map(|failed| failed.status),
        ];
        // So many descriptors are there when the call begins, and so many files can be closed.
        let rooms = (0..4).flat_map(|spare| (0..4).map(move |behind| (spare, behind)));
        for ((spare, behind), call) in rooms.flat_map(|room| calls.map(|call| (room, call))) {
            lab.rest(65, |_| {});
            assert!(lab.open_files().is_empty(), "{:?}", lab.open_files());
            for handle in [&file, &other, &a, &b].into_iter().take(behind) {
                lab.files.getattr(handle).unwrap();
            }
            let mut others = all_descriptors();
            others.truncate(others.len() - spare);
            let outcome = call(&mut lab.files);
            assert!(matches!(outcome, None | Some(Status::Jukebox)), "{outcome:?}");
            drop(others);
            let _ = fs::rename(lab.path("b/g"), lab.path("a/f"));
            let _ = fs::remove_file(lab.path("b/g"));
            let _ = fs::remove_file(lab.path("a/h"));
            let _ = fs::remove_dir(lab.path("a/d"));
            assert_eq!(lab.find("a/f"), file);
        }
        stag_nfs_os::user::leave().unwrap();
    }
}

#[test]
fn a_shard_that_waits_for_room_closes_what_the_other_one_removed_before_it_says_so() {
    let mut lab = Lab::with(|config| config.shards = 3);
    let (root, shared) = (lab.root(), Arc::clone(lab.files.shared()));
    // Both wait for a third one, which takes its time.
    let (is_over, slow_is_over) = std::sync::mpsc::channel::<()>();
    let third = Arc::clone(&shared);
    let slow = std::thread::spawn(move || {
        let mut slow = Files::open(&third, 2).unwrap();
        let pause = Duration::from_millis(8);
        while slow_is_over.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            slow.tidy(Time(0));
        }
    });
    let (ask, asked) = std::sync::mpsc::channel::<(FileHandle, String)>();
    let (tell, told) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut files = Files::open(&shared, 1).unwrap();
        while let Ok((file, own)) = asked.recv() {
            files.getattr(&file).unwrap();
            files.remove(&root, own.as_bytes()).unwrap();
            tell.send(()).unwrap();
            // It has looked at all its files when the other one removes one of them.
            let _ = files.make_room(Errno::NOSPC, &[]);
            tell.send(()).unwrap();
        }
    });
    for number in 0..40 {
        let (name, own) = (format!("f{number}"), format!("own{number}"));
        fs::write(lab.path(&own), b"x").unwrap();
        let file = lab.file(&name, b"x");
        lab.files.flush().unwrap();
        ask.send((file, own)).unwrap();
        told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        lab.files.remove(&root, name.as_bytes()).unwrap();
        let is_made = lab.files.make_room(Errno::NOSPC, &[]);
        let is_open = lab.open_files().iter().any(|open| open.starts_with(&format!("{name} ")));
        assert!(is_made.is_err() || !is_open, "{number}: {name} takes room");
        told.recv().unwrap();
    }
    drop((ask, is_over));
    other.join().unwrap();
    slow.join().unwrap();
}

#[test]
fn a_directory_that_a_call_uses_is_not_let_go_when_its_name_seemed_to_be_replaced() {
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    let (root, dir) = (lab.root(), lab.find("d"));
    let [target, source] = [&root, &dir].map(|handle| lab.files.directory(handle, Intent::Change).unwrap());
    lab.files.cache.pair(source, target);
    // Somebody moved it between the look at the name and RENAME's own replacement of that.
    std::thread::sleep(YOUTH);
    let identity = lab.files.cache.get(source).identity;
    lab.files.let_go(identity, FileKind::Directory);
    assert_eq!(lab.files.cache.look_for(identity.file), Some(source));
    assert!(!lab.files.cache.get(source).is_removed.get());
    lab.files.cache.part();
}
