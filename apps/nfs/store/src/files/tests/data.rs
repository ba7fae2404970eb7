use super::*;
use crate::{Effort, Store};

#[test]
fn reads_end_where_the_file_ends() {
    let mut lab = Lab::new();
    let content: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let handle = lab.file("f", &content);
    let mut room = vec![0; 12_000];
    for (offset, len, count, eof) in [
        (0_u64, 12_000, 10_000, true),
        (0, 10_000, 10_000, true),
        (0, 9_999, 9_999, false),
        (9_999, 1, 1, true),
        (9_999, 100, 1, true),
        (10_000, 100, 0, true),
        (10_001, 100, 0, true),
        (5, 0, 0, false),
        (10_000, 0, 0, true),
        (i64::MAX as u64 - 5, 100, 0, true),
        (i64::MAX as u64, 1, 0, true),
        (i64::MAX as u64 + 1, 1, 0, true),
        (u64::MAX, 100, 0, true),
    ] {
        let done = lab.files.read(&handle, offset, &mut room[..len]).unwrap();
        assert_eq!((done.count, done.eof), (count, eof), "{len} octets at {offset}");
        if count > 0 {
            let at = offset as usize;
            assert_eq!(room[..count as usize], content[at..at + count as usize]);
        }
        assert_eq!(done.attributes.size, 10_000);
    }
}

#[test]
fn only_regular_files_have_content() {
    let mut lab = Lab::new();
    std::os::unix::fs::symlink("f", lab.path("l")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, lab.path("p"), Mode::RUSR | Mode::WUSR).unwrap();
    let (root, link, fifo) = (lab.root(), lab.find("l"), lab.find("p"));
    for (handle, expected) in [(root, Status::IsDir), (link, Status::Inval), (fifo, Status::Inval)]
    {
        assert_eq!(lab.content(&handle), Err(expected));
        assert_eq!(lab.write(&handle, 0, b"x"), Err(expected));
        assert_eq!(lab.write(&handle, 0, b""), Err(expected));
        assert_eq!(lab.files.commit(&handle).unwrap_err().status, expected);
    }
}

#[test]
fn slices_are_written_one_behind_the_other() {
    let mut lab = Lab::new();
    let handle = lab.file("f", b"");
    for (how, offset) in
        [(StableHow::Unstable, 0), (StableHow::DataSync, 9), (StableHow::FileSync, 18)]
    {
        let mut slices = [&b""[..], b"ab", b"", b"cdefg", b"hi"].map(IoSlice::new);
        let done = lab.files.write_slices(&handle, offset, &mut slices, how).unwrap();
        assert_eq!((done.count, done.committed), (9, how));
        assert_eq!(done.verifier, lab.files.shared().verifier());
        assert_eq!(done.file.after.unwrap().size, offset + 9);
    }
    assert_eq!(lab.content(&handle).unwrap(), b"abcdefghi".repeat(3));
    let done = lab.files.write_slices(&handle, 5, &mut [], StableHow::FileSync).unwrap();
    assert_eq!((done.count, done.file.after.unwrap().size), (0, 27));
}

#[test]
fn offsets_beyond_the_last_are_too_big() {
    let mut lab = Lab::new();
    let handle = lab.file("f", b"x");
    for offset in
        [i64::MAX as u64, i64::MAX as u64 - 1, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX]
    {
        assert_eq!(lab.write(&handle, offset, b"ab"), Err(Status::FBig), "{offset}");
    }
    assert_eq!(lab.content(&handle).unwrap(), b"x");
}

#[test]
fn a_failed_sync_changes_the_verifier_for_every_shard() {
    let mut lab = Lab::with(|config| config.shards = 2);
    let mut other = Files::open(lab.files.shared(), 1).unwrap();
    let handle = lab.file("f", b"");
    let write =
        |files: &mut Files, how| files.write_slices(&handle, 0, &mut [IoSlice::new(b"x")], how);
    let first = write(&mut lab.files, StableHow::Unstable).unwrap().verifier;
    assert_eq!(lab.files.commit(&handle).unwrap().verifier, first);
    lab.files.failing_syncs.set(1);
    let failed = lab.files.commit(&handle).unwrap_err();
    assert_eq!((failed.status, failed.about.after.is_some()), (Status::Io, true));
    // The kernel reports the loss once: a repeated COMMIT succeeds, but never with the verifier of
    // lost data.
    let second = lab.files.commit(&handle).unwrap().verifier;
    assert_ne!(second, first);
    lab.files.flush().unwrap();
    assert_eq!(other.commit(&handle).unwrap().verifier, second);
    for how in [StableHow::DataSync, StableHow::FileSync] {
        let before = lab.files.shared().verifier();
        lab.files.failing_syncs.set(1);
        assert_eq!(write(&mut lab.files, how).unwrap_err().status, Status::Io);
        assert_ne!(write(&mut lab.files, how).unwrap().verifier, before);
    }
}

#[test]
fn a_file_that_makes_room_is_synced_and_a_failure_shows() {
    let mut lab = Lab::with(|config| config.open_files = Some(OPEN_FILES_MIN));
    let handles: Vec<_> = (0..40).map(|number| lab.file(&format!("f{number}"), b"")).collect();
    lab.files.failing_syncs.set(1);
    let first = lab.files.shared().verifier();
    for handle in &handles[..OPEN_FILES_MIN] {
        lab.write(handle, 0, b"x").unwrap();
    }
    assert_eq!(lab.files.shared().verifier(), first, "all of them are open");
    lab.write(&handles[OPEN_FILES_MIN], 0, b"x").unwrap();
    assert_ne!(lab.files.shared().verifier(), first);
}

#[test]
fn the_verifier_changes_with_a_restart() {
    let lab = Lab::new();
    let first = lab.files.shared().verifier();
    assert_ne!(lab.restart().files.shared().verifier(), first);
}

#[test]
fn many_more_files_than_stay_open_can_be_used() {
    let mut lab = Lab::with(|config| config.open_files = Some(OPEN_FILES_MIN));
    let handles: Vec<_> = (0..200_u32).map(|number| lab.file(&format!("f{number}"), b"")).collect();
    for round in 0..3_u8 {
        for (number, handle) in handles.iter().enumerate() {
            lab.write(handle, u64::from(round), &[number as u8 ^ round]).unwrap();
        }
    }
    for (number, handle) in handles.iter().enumerate() {
        let expected: Vec<_> = (0..3).map(|round| number as u8 ^ round).collect();
        assert_eq!(lab.content(handle).unwrap(), expected);
    }
}

#[test]
fn a_full_disk_answers_that_no_space_is_left() {
    let ran = run_under(&["unshare", "-rm"], "files::tests::data::inside_a_full_disk", "full-disk");
    if !ran {
        eprintln!("skipped: no mount namespace for a small tmpfs");
    }
}

/// Runs in its own mount namespace.
#[test]
#[ignore = "started by a_full_disk_answers_that_no_space_is_left"]
fn inside_a_full_disk() {
    if std::env::var("STAG_TEST_MARKER").as_deref() != Ok("full-disk") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("export")).unwrap();
    mount_tmpfs(&home.path().join("export"), "size=64k");
    let mut lab = Lab::at(home, |_| {});
    let handle = lab.file("f", b"");
    let written = lab.write(&handle, 0, &[1; 200_000]).unwrap();
    assert!(written < 200_000, "what fits is written, the rest is asked for again");
    assert_eq!(lab.write(&handle, written.into(), &[1; 4096]), Err(Status::NoSpc));
    let root = lab.root();
    let made = lab.files.symlink(&root, b"l", &[b't'; 3000], &NewAttributes::default());
    assert_eq!(made.unwrap_err().status, Status::NoSpc);
    assert_eq!(lab.content(&handle).unwrap(), [1; 4096]);
    lab.files.remove(&root, b"f").unwrap();
}

#[test]
fn a_full_state_directory_keeps_its_records_waiting() {
    let ran = run_under(
        &["unshare", "-rm"],
        "files::tests::data::inside_a_full_state_directory",
        "full-state",
    );
    if !ran {
        eprintln!("skipped: no mount namespace for a small tmpfs");
    }
}

/// Runs in its own mount namespace.
#[test]
#[ignore = "started by a_full_state_directory_keeps_its_records_waiting"]
fn inside_a_full_state_directory() {
    if std::env::var("STAG_TEST_MARKER").as_deref() != Ok("full-state") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    mount_tmpfs(&state, "size=64k");
    let mut lab = Lab::at(home, |_| {});
    let names: Vec<_> = (0..100).map(|number| format!("{number:0>200}")).collect();
    let handles: Vec<_> = names.iter().map(|name| lab.file(name, b"x")).collect();
    // Leaves room for a part of the records, so that the log ends with a torn one.
    let _ = fs::write(state.join("filler"), vec![1; 100_000]);
    fs::OpenOptions::new().write(true).open(state.join("filler")).unwrap().set_len(40_000).unwrap();
    for _ in 0..3 {
        assert!(lab.files.flush().is_err());
        assert_eq!(lab.content(&handles[0]).unwrap(), b"x", "handles work while the server lives");
    }
    fs::remove_file(state.join("filler")).unwrap();
    lab.files.flush().unwrap();
    let mut lab = lab.restart();
    for handle in &handles {
        assert_eq!(lab.content(handle).unwrap(), b"x");
    }
}

pub(super) fn mount_tmpfs(path: &Path, options: &str) {
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(path);
    assert!(mount.status().unwrap().success());
}

#[test]
fn syncs_wait_for_no_helper_where_files_are_in_memory() {
    let places = ["/dev/shm", "/var/tmp", "/tmp"].map(Path::new);
    let is_in_memory = |place: &Path| {
        rustix::fs::statfs(place).ok().map(|about| about.f_type as u32 == 0x0102_1994)
    };
    for is_wanted in [true, false] {
        let Some(place) = places.iter().find(|place| is_in_memory(place) == Some(is_wanted)) else {
            println!("skipped: no directory for files in memory ({is_wanted})");
            continue;
        };
        for slow in [SlowExports::ByFileSystem, SlowExports::All] {
            let Ok(home) = tempfile::tempdir_in(place) else { continue };
            let lab = Lab::at(home, |config| config.sync_directories = true);
            drop(lab.files);
            let waiting = WaitingConfig { helpers: 2, slow: slow.clone() };
            let shared = SharedFiles::open_waiting(&lab.config, &waiting).unwrap();
            let helpers = Helpers::start_with(1, 2, Arc::new(|_, _, _| ())).unwrap().remove(0);
            let files = Files::open(&shared, 0).unwrap().with_helpers(helpers);
            let exports = shared.exports();
            let export = exports.iter().next().unwrap();
            let root = shared.root(export);
            if export.limits().is_remote {
                continue;
            }
            let waits = |effort| Store::waits(&files, &root, effort);
            let is_slow = slow == SlowExports::All;
            assert_eq!(waits(Effort::Plain), is_slow);
            for effort in [Effort::Sync, Effort::Change] {
                assert_eq!(waits(effort), is_slow || !is_wanted, "{effort:?} {slow:?} {place:?}");
            }
            assert!(waits(Effort::Long), "a copy takes long anywhere");
            let garbage = FileHandle::new(b"of no export").unwrap();
            assert!(Store::waits(&files, &garbage, Effort::Sync));
        }
    }
}
