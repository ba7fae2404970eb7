//! Tests of a file system that is full, or to be remounted read-only: open files release their
//! space.

use super::{idle::*, *};
use crate::NameIn;
use core::time::Duration;
use stag_engine::Time;
use std::{os::unix::fs::PermissionsExt, process::Command};

/// Runs `test` of this module again where it may mount; false in that process itself.
pub(super) fn with_mounts(test: &str) -> bool {
    if std::env::var("STAG_TEST_MARKER").is_ok_and(|marker| marker == "mounts") {
        return false;
    }
    let test = format!("files::tests::space::{test}");
    let own: &[&str] = if is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--map-root-user", "--mount"]
    };
    if !run_under(own, &test, "mounts") {
        eprintln!("skipped: this process may not mount");
    }
    true
}

/// A small file system in memory at the export of a lab.
pub(super) fn on_tmpfs(options: &str, change: impl FnOnce(&mut FilesConfig)) -> Lab {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(home.path().join("export")).unwrap();
    data::mount_tmpfs(&home.path().join("export"), options);
    Lab::at(home, change)
}

/// Writes a file of `mib` MiB.
fn fill(lab: &mut Lab, name: &[u8], mib: u64) -> Result<(), Status> {
    let (root, part) = (lab.root(), vec![7; 1 << 20]);
    let how = CreateMode::Unchecked(NewAttributes::default());
    let file = lab.files.create(&root, name, &how).map_err(|failed| failed.status)?.handle;
    for at in 0..mib {
        let mut done = 0;
        while done < part.len() {
            done += lab.write(&file, (at << 20) + done as u64, &part[done..])? as usize;
        }
    }
    Ok(())
}

/// Modes in which a store serves: by the names of files, and by kernel handles.
pub(super) fn modes() -> impl Iterator<Item = CallerMode> {
    // In a separate thread: after a failed attempt its identity is undefined.
    let check = || stag_nfs_os::user::check(&stag_nfs_os::User::new(65_534, 65_534, [])).is_ok();
    let may_switch = std::thread::spawn(check).join().unwrap();
    [Some(CallerMode::Unprivileged), may_switch.then_some(CallerMode::Privileged)]
        .into_iter()
        .flatten()
}

/// A store on a file system with few inodes, in which callers act as themselves.
fn crowded(mode: CallerMode) -> Lab {
    let mut lab = on_tmpfs("size=64m,nr_inodes=12", |config| {
        (config.callers.mode, config.callers.squash) = (mode, Squash::None);
    });
    act_as_root(&mut lab);
    lab
}

#[test]
fn files_that_are_replaced_or_removed_free_their_space_at_once() {
    if with_mounts("files_that_are_replaced_or_removed_free_their_space_at_once") {
        return;
    }
    for mode in modes() {
        let mut lab = crowded(mode);
        let root = lab.root();
        for round in 0..16 {
            fill(&mut lab, b"new", 10)
                .unwrap_or_else(|status| panic!("{mode:?}, round {round}: {status:?}"));
            lab.files.rename(NameIn::new(&root, b"new"), NameIn::new(&root, b"name")).unwrap();
        }
        for round in 0..16 {
            fill(&mut lab, b"new", 30)
                .unwrap_or_else(|status| panic!("{mode:?}, round {round}: {status:?}"));
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
        let mut lab = crowded(mode);
        let root = lab.root();
        for _ in 0..3 {
            fill(&mut lab, b"f", 40).unwrap();
            fs::remove_file(lab.path("f")).unwrap();
            // Searches of all open files are rate-limited.
            std::thread::sleep(Duration::from_millis(110));
        }
        // All inodes are in use, and no removal was announced.
        for round in 0..3 {
            for number in 0..9 {
                let name = format!("{round}-{number}");
                lab.files.create(&root, name.as_bytes(), &guarded(0o600)).unwrap();
                fs::remove_file(lab.path(&name)).unwrap();
            }
            std::thread::sleep(Duration::from_millis(110));
        }
        // A file system that is really full is reported as full.
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
        shared.attach_wakeup(1, move || asleep.send(()).unwrap());
        files.getattr(&file).unwrap();
        ready.send(()).unwrap();
        // It sleeps until it is woken.
        awake.recv().unwrap();
        files.tidy(Time(0));
    });
    is_ready.recv().unwrap();
    std::thread::sleep(YOUTH);
    lab.files.remove(&root, b"f").unwrap();
    // On a busy host the other one may take longer than a call waits: the client is asked to retry.
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
