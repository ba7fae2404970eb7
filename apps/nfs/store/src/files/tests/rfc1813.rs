//! Tests of RFC 1813's requirements on the store over a real file system.

use crate::NameIn;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Makes the next sync fail; returns true if `change` reports that.
fn is_synced<T, About>(
    lab: &mut Lab,
    change: impl FnOnce(&mut Files, &FileHandle) -> Result<T, crate::Failed<About>>,
) -> bool {
    let root = lab.root();
    lab.files.failing_syncs.set(1);
    let outcome = change(&mut lab.files, &root).map_err(|failed| failed.status);
    let is_used = lab.files.failing_syncs.replace(0) == 0;
    matches!(outcome, Err(Status::Io)) && is_used
}

#[test]
fn every_change_is_on_stable_storage_before_it_is_answered() {
    let mut lab = Lab::with(|config| config.sync_directories = true);
    let file = lab.file("file", b"content");
    lab.files.mkdir(&lab.root(), b"empty", &NewAttributes::default()).unwrap();
    lab.file("moved", b"");
    lab.file("removed", b"");
    let set = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    let guarded = CreateMode::Guarded(set);
    assert!(is_synced(&mut lab, |files, root| files.create(root, b"a", &guarded)), "CREATE");
    assert!(
        is_synced(&mut lab, |files, root| files.create(root, b"b", &CreateMode::exclusive([7; 8]))),
        "EXCLUSIVE"
    );
    assert!(is_synced(&mut lab, |files, root| files.mkdir(root, b"c", &set)), "MKDIR");
    assert!(is_synced(&mut lab, |files, root| files.symlink(root, b"d", b"t", &set)), "SYMLINK");
    assert!(
        is_synced(&mut lab, |files, root| files.mknod(root, b"e", FileKind::Fifo.into(), &set)),
        "MKNOD"
    );
    assert!(is_synced(&mut lab, |files, _| files.set_attributes(&file, &set, None)), "SETATTR");
    assert!(is_synced(&mut lab, |files, root| files.link(&file, root, b"f")), "LINK");
    assert!(
        is_synced(&mut lab, |files, root| files
            .rename(NameIn::new(root, b"moved"), NameIn::new(root, b"g"))),
        "RENAME"
    );
    assert!(is_synced(&mut lab, |files, root| files.remove(root, b"removed")), "REMOVE");
    assert!(is_synced(&mut lab, |files, root| files.rmdir(root, b"empty")), "RMDIR");
    assert!(is_synced(&mut lab, |files, _| files.commit(&file)), "COMMIT");
    for how in [StableHow::DataSync, StableHow::FileSync] {
        assert!(
            is_synced(&mut lab, |files, _| files.write_slices(
                &file,
                0,
                &mut [IoSlice::new(b"x")],
                how
            )),
            "WRITE {how:?}"
        );
    }
    let unstable = StableHow::Unstable;
    assert!(!is_synced(&mut lab, |files, _| files.write_slices(
        &file,
        0,
        &mut [IoSlice::new(b"x")],
        unstable
    )));
}

#[test]
fn a_name_that_is_replaced_is_there_all_the_time() {
    let mut lab = Lab::new();
    let root = lab.root();
    lab.file("name", b"");
    let (path, is_over) = (lab.path("name"), AtomicBool::new(false));
    let missed = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut missed = 0;
            while !is_over.load(Ordering::Relaxed) {
                missed += u32::from(!path.exists());
            }
            missed
        });
        for _ in 0..500 {
            lab.file("other", b"");
            lab.files.rename(NameIn::new(&root, b"other"), NameIn::new(&root, b"name")).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        looks.join().unwrap()
    });
    assert_eq!(missed, 0, "it was not there for a moment");
}

#[test]
fn fsstat_tells_what_the_file_system_does() {
    let mut lab = Lab::new();
    let root = lab.root();
    let (told, _) = lab.files.fsstat(&root).unwrap();
    let found = rustix::fs::statvfs(lab.path(".")).unwrap();
    assert_eq!(
        (told.total_octets, told.total_files),
        (found.f_blocks * found.f_frsize, found.f_files)
    );
    // Other programs write to it, too.
    let is_near = |told: u64, blocks: u64| told.abs_diff(blocks * found.f_frsize) < 1 << 26;
    assert!(
        is_near(told.free_octets, found.f_bfree) && is_near(told.available_octets, found.f_bavail)
    );
}
