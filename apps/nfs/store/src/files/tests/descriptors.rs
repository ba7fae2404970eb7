//! Tests of a process without free descriptors: files that a call needs stay open when room is
//! made.

use super::{idle::*, *};
use crate::NameIn;
use core::time::Duration;
use stag_engine::Time;

#[test]
fn a_process_without_descriptors_closes_idle_files() {
    let test = "files::tests::descriptors::a_process_without_descriptors_closes_idle_files";
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
        // Connections, for example, take the rest.
        let others: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        assert_eq!(lab.content(&late).unwrap(), b"x");
        let others_since: Vec<_> =
            std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        assert!(!others_since.is_empty(), "files were closed");
        let root = lab.root();
        let made = lab.files.create(&root, b"made", &guarded(0o600)).unwrap().handle;
        assert_eq!(lab.write(&made, 0, b"x"), Ok(1));
        lab.files.readdir(&root, crate::ListingStart::default(), &mut |_| true).unwrap();
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
    let test = "files::tests::descriptors::a_call_about_two_files_keeps_both_when_room_is_made";
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
        let how =
            CreateMode::Unchecked(NewAttributes { size: Some(0), ..NewAttributes::default() });
        // Each succeeds, or the client is asked to retry; none takes one file for another.
        let calls: [&Refusal<'_>; 5] = [
            &|files| {
                files
                    .rename(NameIn::new(&a, b"f"), NameIn::new(&b, b"g"))
                    .err()
                    .map(|failed| failed.status)
            },
            &|files| files.link(&file, &b, b"g").err().map(|failed| failed.status),
            &|files| {
                files.mkdir(&a, b"d", &NewAttributes::default()).err().map(|failed| failed.status)
            },
            &|files| files.create(&a, b"f", &how).err().map(|failed| failed.status),
            &|files| files.create(&a, b"h", &guarded(0o600)).err().map(|failed| failed.status),
        ];
        // These descriptors are free when the call begins, and these files can be closed.
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
    // Both wait for a third one, which is slow.
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
            // It has checked all its files when the other one removes one of them.
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
    let [target, source] =
        [&root, &dir].map(|handle| lab.files.directory(handle, Intent::Change).unwrap());
    lab.files.cache.pair(source, target);
    // The directory was moved between the lookup of the name and RENAME's own replacement.
    std::thread::sleep(YOUTH);
    let identity = lab.files.cache.get(source).identity;
    lab.files.let_go(identity, FileKind::Directory);
    assert_eq!(lab.files.cache.look_for(identity.file), Some(source));
    assert!(!lab.files.cache.get(source).is_removed.get());
    lab.files.cache.part();
}

#[test]
fn an_object_that_was_made_is_answered_without_a_descriptor_to_spare() {
    let mut lab = Lab::new();
    let root = lab.root();
    let set = NewAttributes::default();
    // The second open of a CREATE fails, and again after idle files were closed.
    lab.files.spare.fail(2);
    let made = lab.files.create(&root, b"file", &CreateMode::Guarded(set)).unwrap();
    assert!(made.is_new);
    lab.files.spare.fail(2);
    lab.files.mkdir(&root, b"directory", &set).unwrap();
    lab.files.spare.fail(2);
    lab.files.symlink(&root, b"link", b"file", &set).unwrap();
    lab.files.spare.fail(2);
    lab.files.mknod(&root, b"fifo", FileKind::Fifo.into(), &set).unwrap();
}
