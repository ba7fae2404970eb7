//! The cases on the fake library, and what only a library with faults on demand can show.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, missing_docs, reason = "tests")]

mod cases;

use cases::{Place, name};
use stag_ceph::{Errno, Library, OpenFlags, Released, StatMask, Vino, live_mounts};
use std::{
    env,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
// Only so that Cargo builds it beside this program.
use stag_ceph_fake as _;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<&'static Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let here = env::current_exe().unwrap();
        Library::open(&here.with_file_name("libstag_ceph_fake.so")).unwrap()
    })
}

/// A cluster of its own. Tests that count the mounts of this process go one after the other.
fn place() -> (Place, TempDir, MutexGuard<'static, ()>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    until("earlier mounts end", || live_mounts() == 0);
    let home = tempfile::tempdir().unwrap();
    let configuration = home.path().join("ceph.conf");
    std::fs::write(&configuration, "").unwrap();
    (Place { library: library(), configuration, is_real: false }, home, turn)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_case_passes_and_gives_back_what_it_took() {
    let (place, _home, _turn) = place();
    for (name, case) in cases::all() {
        println!("{name}");
        case(&place);
        until("its mounts end", || live_mounts() == 0);
    }
    let held = place.mount().option("fake_held");
    assert_eq!(held.as_deref(), Ok("0"), "references, files and directories");
}

#[test]
fn the_fake_library_has_all_functions() {
    assert_eq!(library().absent(), [""; 0]);
    assert_eq!(library().version(), [16, 2, 0]);
}

#[test]
fn an_error_of_any_call_is_that_of_the_call_and_nothing_is_left() {
    let (place, _home, _turn) = place();
    let mount = place.mount();
    let root = place.root();
    let directory = place.directory(&mount);
    let (inode, file, _) = directory.create(&name("f"), 0o600, true, &root).unwrap();
    let held = mount.option("fake_held").unwrap();
    type Run<'a> = &'a dyn Fn() -> Result<(), Errno>;
    let calls: [(&str, Run<'_>); 8] = [
        ("ceph_ll_lookup", &|| directory.lookup(&name("f"), &root).map(drop)),
        ("ceph_ll_getattr", &|| inode.attributes(StatMask::ALL, &root).map(drop)),
        ("ceph_ll_create", &|| directory.create(&name("g"), 0o600, true, &root).map(drop)),
        ("ceph_ll_open", &|| inode.open(OpenFlags::Read, &root).map(drop)),
        ("ceph_ll_read", &|| file.read_at(0, &mut [0; 4]).map(drop)),
        ("ceph_ll_write", &|| file.write_at(0, b"x").map(drop)),
        ("ceph_ll_opendir", &|| directory.open_directory(&root).map(drop)),
        ("ceph_ll_mkdir", &|| directory.make_directory(&name("d"), 0o700, &root).map(drop)),
    ];
    for (call, run) in calls {
        for errno in [Errno::IO, Errno::TIMEDOUT] {
            mount.set_option("fake_fail", &format!("{call} {} 1", errno.raw_os_error())).unwrap();
            assert_eq!(run(), Err(errno), "{call}");
        }
        assert!(!mount.is_lost(), "{call}");
    }
    assert_eq!(mount.option("fake_held"), Ok(held));
    mount.set_option("fake_fail", "ceph_ll_read 108 1").unwrap();
    assert_eq!(file.read_at(0, &mut [0; 4]), Err(Errno::SHUTDOWN));
    assert!(mount.is_lost());
}

#[test]
fn a_blocked_call_keeps_its_mount_and_no_other_one() {
    let (place, _home, _turn) = place();
    let (mount, control) = (place.mount(), place.mount());
    let directory = place.directory(&mount);
    let (_, file, _) = directory.create(&name("f"), 0o600, true, &place.root()).unwrap();
    control.set_option("fake_block", "ceph_ll_read").unwrap();
    let reader = thread::spawn(move || file.read_at(0, &mut [0; 4]));
    until("the read waits", || control.option("fake_waiting").as_deref() == Ok("1"));
    drop((directory, mount));
    assert_eq!(live_mounts(), 2, "the call's mount stays");
    assert!(control.root().is_ok(), "other calls go on");
    control.set_option("fake_unblock", "ceph_ll_read").unwrap();
    assert_eq!(reader.join().unwrap(), Ok(0));
    until("its mount ends", || live_mounts() == 1);
}

#[test]
fn inodes_that_are_asked_back_are_told() {
    let (place, _home, _turn) = place();
    let mount = place.mount();
    assert_eq!(mount.take_released(), Released::These(Vec::new()));
    mount.set_option("fake_release", "7").unwrap();
    mount.set_option("fake_release", "8").unwrap();
    assert_eq!(mount.take_released(), Released::These(vec![Vino::live(7), Vino::live(8)]));
}
