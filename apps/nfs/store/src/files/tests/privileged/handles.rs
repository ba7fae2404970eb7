use super::*;
use crate::exports::handle::Named;

fn is_of_the_kernel(lab: &Lab, handle: &FileHandle) -> bool {
    matches!(lab.files.shared.handles.open(handle), Ok(Named::Kernel(..)))
}

/// Restarts the server without its index, and with nothing open.
fn restart_without_index(mut lab: Lab) -> Lab {
    let state = lab.config.state_dir.clone();
    lab.files.flush().unwrap();
    let logged = fs::metadata(state.join("index.0.log")).unwrap().len();
    assert_eq!(logged, 0, "nothing is written to the index");
    let Lab { home, config, files, clock } = lab;
    drop(files);
    fs::remove_file(state.join("index.base")).unwrap();
    let files = Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap();
    Lab { home, config, files, clock }
}

#[test]
fn handles_survive_restart_rename_and_move_with_nothing_open_and_no_index() {
    let Some(mut lab) = lab(|_| {}) else { return };
    fs::create_dir_all(lab.path("a/b")).unwrap();
    fs::create_dir(lab.path("z")).unwrap();
    lab.give("a/b/f", ALICE, ALICE, 0o600);
    let handles = lab.by(user(ALICE), |lab| [lab.root(), lab.find("a/b"), lab.find("a/b/f")]);
    assert!(handles.iter().all(|handle| is_of_the_kernel(&lab, handle)));
    let [root, dir, file] = handles;
    lab = restart_without_index(lab);
    fs::rename(lab.path("a/b/f"), lab.path("z/g")).unwrap();
    fs::rename(lab.path("a"), lab.path("z/a")).unwrap();
    for _ in 0..2 {
        lab.by(user(ALICE), |lab| {
            assert_eq!(lab.content(&file).unwrap(), b"x");
            assert_eq!(lab.files.getattr(&dir).unwrap().kind, FileKind::Directory);
            assert_eq!(lab.find("z/g"), file);
            assert_eq!(lab.find("z/a/b"), dir);
            assert_eq!(lab.files.lookup(&dir, b"..").unwrap().handle, lab.find("z/a"));
            assert_eq!(lab.root(), root);
        });
        lab = restart_without_index(lab);
    }
}

#[test]
fn every_way_to_a_file_gives_the_same_handle() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let root = lab.root();
    let how = guarded(0o600);
    let made = lab.by(user(ALICE), |lab| {
        let file = lab.files.create(&root, b"f", &how).unwrap().handle;
        let set = NewAttributes::default();
        let dir = lab.files.mkdir(&root, b"d", &set).unwrap().handle;
        let link = lab.files.symlink(&root, b"l", b"target", &set).unwrap().handle;
        let fifo = lab.files.mknod(&root, b"p", FileKind::Fifo.into(), &set).unwrap().handle;
        lab.files.link(&file, &root, b"g").unwrap();
        [
            (&b"f"[..], file),
            (b"d", dir),
            (b"l", link),
            (b"p", fifo),
            (b"g", file),
            (b".", root),
            (b"..", root),
        ]
    });
    for _ in 0..2 {
        lab.by(user(BOB), |lab| {
            let mut seen = 0;
            for (name, handle) in &made {
                assert_eq!(lab.files.lookup(&root, name).unwrap().handle, *handle);
            }
            let mut visit = |entry: &crate::ListedEntry<'_>| {
                let (_, handle) = made.iter().find(|(name, _)| *name == entry.name).unwrap();
                assert_eq!(entry.object.unwrap().0, *handle);
                seen += 1;
                true
            };
            lab.files.readdirplus(&root, crate::ListingStart::default(), &mut visit).unwrap();
            assert_eq!(seen, made.len());
            for (_, handle) in &made {
                lab.files.getattr(handle).unwrap();
            }
        });
        lab = restart_without_index(lab);
    }
}

#[test]
fn what_is_removed_is_stale_through_us_and_behind_our_back_and_its_space_is_free() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let root = lab.root();
    for name in ["f", "g", "d"] {
        let is_dir = name == "d";
        if is_dir {
            fs::create_dir(lab.path(name)).unwrap()
        } else {
            lab.give(name, ALICE, ALICE, 0o600)
        }
        lab.by(user(ALICE), |lab| {
            let handle = lab.find(name);
            lab.files.getattr(&handle).unwrap();
            match name {
                "f" => drop(lab.files.remove(&root, b"f").unwrap()),
                _ => {
                    stag_nfs_os::user::leave().unwrap();
                    if is_dir {
                        fs::remove_dir(lab.path(name))
                    } else {
                        fs::remove_file(lab.path(name))
                    }
                    .unwrap();
                    lab.files.act_as(&user(ALICE));
                }
            }
            assert_eq!(lab.settled(|lab| lab.files.getattr(&handle)), Err(Status::Stale));
            assert_eq!(lab.settled(|lab| lab.content(&handle)), Err(Status::Stale));
        });
    }
    // Other tests of this process remove files of their own with the same name.
    let removed =
        format!("{} (deleted)", fs::canonicalize(lab.path(".")).unwrap().join("f").display());
    assert!(!open_paths().contains(&removed), "{removed}");
}

/// Lists the paths that this process has open.
fn open_paths() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let paths = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    paths.map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_later_file_with_the_same_inode_is_another_file() {
    let Some(mut lab) = lab(|_| {}) else { return };
    for _ in 0..200 {
        lab.give("f", ALICE, ALICE, 0o600);
        let inode = fs::metadata(lab.path("f")).unwrap().ino();
        let old = lab.by(user(ALICE), |lab| lab.find("f"));
        fs::remove_file(lab.path("f")).unwrap();
        lab.give("f", ALICE, ALICE, 0o600);
        if fs::metadata(lab.path("f")).unwrap().ino() == inode {
            lab.by(user(ALICE), |lab| {
                let new = lab.find("f");
                assert_ne!(old, new);
                assert_eq!(lab.content(&old), Err(Status::Stale));
                assert_eq!(lab.content(&new).unwrap(), b"x");
                assert_eq!(lab.content(&old), Err(Status::Stale), "also when the new file is open");
            });
            return;
        }
        fs::remove_file(lab.path("f")).unwrap();
    }
    eprintln!("skipped: this file system does not use an inode number again soon");
}

#[test]
fn a_handle_of_another_generation_is_stale_whether_the_file_is_open_or_not() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, ALICE, 0o600);
    let good = lab.by(user(ALICE), |lab| lab.find("f"));
    let Ok(Named::Kernel(file, kernel)) = lab.files.shared.handles.open(&good) else {
        panic!("of the kernel")
    };
    for octet in 0..kernel.octets().len() {
        let mut octets = kernel.octets().to_vec();
        octets[octet] ^= 1;
        let other = stag_nfs_os::KernelHandle::new(kernel.kind(), &octets).unwrap();
        let old = lab.files.shared.handles.seal(&Named::Kernel(file, other));
        lab.by(user(ALICE), |lab| {
            assert_eq!(lab.settled(|lab| lab.content(&old)), Err(Status::Stale), "octet {octet}");
            assert_eq!(lab.content(&good).unwrap(), b"x");
            assert_eq!(
                lab.settled(|lab| lab.content(&old)),
                Err(Status::Stale),
                "octet {octet}, open"
            );
        });
        lab = restart_without_index(lab);
    }
}

#[test]
fn a_forged_handle_is_refused_and_an_authentic_one_of_another_place_is_stale() {
    let Some(mut lab) = lab(|config| config.callers.squash = Squash::None) else { return };
    lab.give("f", ALICE, ALICE, 0o600);
    fs::create_dir(lab.home.path().join("outside/d")).unwrap();
    let good = lab.by(user(0), |lab| lab.find("f"));
    for bit in 0..good.octets().len() * 8 {
        let mut octets = good.octets().to_vec();
        octets[bit / 8] ^= 1 << (bit % 8);
        let forged = FileHandle::new(&octets).unwrap();
        lab.by(user(0), |lab| {
            assert_eq!(lab.content(&forged), Err(Status::BadHandle), "bit {bit}");
            assert_eq!(lab.files.lookup(&forged, b"f").unwrap_err().status, Status::BadHandle);
        });
    }
    // As if the key were known: the directory is found to be outside nevertheless.
    let outside = fs::File::open(lab.home.path().join("outside/d")).unwrap();
    let Ok(Named::Kernel(file, _)) = lab.files.shared.handles.open(&good) else {
        panic!("of the kernel")
    };
    let file = crate::exports::handle::FileId { inode: outside.metadata().unwrap().ino(), ..file };
    let kernel = stag_nfs_os::KernelHandle::of(&outside).unwrap();
    let handle = lab.files.shared.handles.seal(&Named::Kernel(file, kernel));
    assert_eq!(lab.by(user(0), |lab| lab.files.getattr(&handle)), Err(Status::Stale));
    // A handle whose parts do not match.
    let mixed = lab.files.shared.handles.seal(&Named::Kernel(file, kernel_of(&lab, &good)));
    assert_eq!(lab.by(user(0), |lab| lab.files.getattr(&mixed)), Err(Status::Stale));
}

fn kernel_of(lab: &Lab, handle: &FileHandle) -> stag_nfs_os::KernelHandle {
    match lab.files.shared.handles.open(handle) {
        Ok(Named::Kernel(_, kernel)) => kernel,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_moved_out_of_the_export_is_stale_when_it_is_opened_again() {
    let Some(mut lab) = lab(|config| config.callers.squash = Squash::None) else { return };
    fs::create_dir_all(lab.path("d/e")).unwrap();
    lab.give("d/f", ALICE, ALICE, 0o644);
    let (dir, below, file) =
        lab.by(user(0), |lab| (lab.find("d"), lab.find("d/e"), lab.find("d/f")));
    lab = restart_without_index(lab);
    fs::rename(lab.path("d"), lab.home.path().join("outside/d")).unwrap();
    lab.by(user(0), |lab| {
        assert_eq!(lab.files.getattr(&dir), Err(Status::Stale));
        assert_eq!(lab.files.lookup(&dir, b"f").unwrap_err().status, Status::Stale);
        assert_eq!(lab.files.getattr(&below), Err(Status::Stale));
        // As with knfsd and no_subtree_check if the kernel does not remember its name.
        let content = lab.content(&file);
        assert!(matches!(content.as_deref(), Err(Status::Stale) | Ok(b"x")), "{content:?}");
    });
    fs::rename(lab.home.path().join("outside/d"), lab.path("back")).unwrap();
    lab.by(user(0), |lab| assert_eq!(lab.files.lookup(&dir, b"f").unwrap().handle, file));
}

#[test]
fn handles_issued_without_privilege_stay_good_with_it() {
    let mut old = Lab::with(|config| config.callers = Callers::UNPRIVILEGED);
    let file = old.file("f", b"x");
    let Lab { home, files, .. } = old;
    drop(files);
    let Some(mut lab) = lab_at(home, |_| {}) else { return };
    lab.own("f", ALICE, ALICE, 0o600);
    lab.by(user(ALICE), |lab| {
        assert_eq!(lab.content(&file).unwrap(), b"x");
        assert!(is_of_the_kernel(
            lab,
            &lab.files.shared().root(lab.files.shared().exports().iter().next().unwrap())
        ));
    });
    assert_eq!(lab.by(user(BOB), |lab| lab.content(&file)), Err(Status::Acces));
}

#[test]
fn an_export_without_kernel_handles_is_served_by_the_index_with_the_callers_rights() {
    // procfs has no handles.
    let change = |config: &mut FilesConfig| config.exports[0].path = "/proc/sys".into();
    let Some(mut lab) = lab_for_proc(change) else { return };
    let notices = lab.files.shared().notices().join("\n");
    assert!(notices.contains("found by the index of their names"), "{notices}");
    let file = lab.by(user(ALICE), |lab| lab.find("kernel/ostype"));
    assert!(!is_of_the_kernel(&lab, &file));
    assert_eq!(lab.by(user(ALICE), |lab| lab.content(&file)).unwrap(), b"Linux\n");
    lab = lab.restart();
    assert_eq!(lab.by(user(BOB), |lab| lab.content(&file)).unwrap(), b"Linux\n");
    assert_eq!(lab.by(user(BOB), |lab| lab.write(&file, 0, b"x")), Err(Status::Acces));
}

fn lab_for_proc(change: impl FnOnce(&mut FilesConfig)) -> Option<Lab> {
    if stag_nfs_os::user::check(&stag_nfs_os::User::new(ALICE, ALICE, [])).is_err() {
        return None;
    }
    Some(Lab::with(|config| {
        config.callers.mode = CallerMode::Privileged;
        change(config);
    }))
}
