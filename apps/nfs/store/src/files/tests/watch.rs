//! Tests of watching files while version 4 has them delegated.

use super::*;
use crate::{Procedures4 as _, Store as _, TouchedFile};
use std::{
    os::unix::fs::{PermissionsExt, chown},
    time::{Duration, Instant},
};

/// A lab with a watch, and a pinned file of it.
fn watching(change: impl FnOnce(&mut FilesConfig)) -> (Lab, FileHandle) {
    let mut lab = Lab::with(change);
    let file = lab.file("file", b"octets");
    lab.files.pin(&file).unwrap();
    lab.files.start_watching().unwrap();
    (lab, file)
}

impl Lab {
    /// Watches a file in its current state.
    fn watch(&mut self, file: &FileHandle) -> bool {
        let change = self.files.getattr(file).unwrap().change;
        self.files.watch(file, change)
    }

    /// The same, once there is no conflict: a child of another test may briefly hold a copy of a
    /// write descriptor.
    fn watch_soon(&mut self, file: &FileHandle) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if self.watch(file) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn touched(&mut self) -> TouchedFile {
        let start = Instant::now();
        loop {
            if let Some(touched) = self.files.next_touched() {
                return touched;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "nothing was told");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn our_own_write_is_in_nobody_s_way_and_later_ones_wait_until_the_file_is_not_watched() {
    let (mut lab, file) = watching(|_| {});
    lab.write(&file, 0, b"new").unwrap();
    assert!(lab.watch_soon(&file), "the descriptor to write by was closed for it");
    assert!(lab.watch_soon(&file), "once more is no more");
    assert_eq!(lab.content(&file).unwrap(), b"newets");
    assert_eq!(lab.write(&file, 0, b"old"), Err(Status::Jukebox));
    let touched = lab.touched();
    assert_eq!(touched.file, file);
    assert!(touched.patience.is_some_and(|time| time > Duration::ZERO), "a write would wait");
    assert!(!lab.watch(&file), "somebody waits");
    assert_eq!(lab.files.next_touched(), None, "it is told of once");
    lab.files.unwatch(&file);
    lab.write(&file, 0, b"old").unwrap();
    assert!(lab.watch_soon(&file));
}

#[test]
fn a_program_that_waits_is_told_of_though_the_file_was_changed_before() {
    let (mut lab, file) = watching(|_| {});
    assert!(lab.watch_soon(&file));
    fs::set_permissions(lab.path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(lab.touched(), TouchedFile { file, patience: None });
    assert_eq!(lab.write(&file, 0, b"old"), Err(Status::Jukebox));
    let touched = lab.touched();
    assert_eq!((touched.file, touched.patience.is_some()), (file, true));
    assert_eq!(lab.write(&file, 0, b"old"), Err(Status::Jukebox));
    fs::set_permissions(lab.path("file"), fs::Permissions::from_mode(0o644)).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(lab.files.next_touched(), None, "that is known");
}

#[test]
fn a_file_that_is_not_as_its_open_saw_it_is_not_watched() {
    let (mut lab, file) = watching(|_| {});
    let change = lab.files.getattr(&file).unwrap().change;
    assert!(!lab.files.watch(&file, change ^ 1));
    let writer = fs::File::options().write(true).open(lab.path("file")).unwrap();
    assert!(!lab.files.watch(&file, change), "somebody writes it");
    drop(writer);
    assert!(lab.watch_soon(&file));
    lab.files.unwatch(&file);
    fs::remove_file(lab.path("file")).unwrap();
    assert!(!lab.watch(&file), "it has no name");
}

#[test]
fn another_store_s_descriptor_to_write_by_goes_when_it_is_in_the_way() {
    let (mut lab, file) = watching(|config| config.shards = 2);
    lab.files.flush().unwrap();
    let mut other = Files::open(lab.files.shared(), 1).unwrap();
    other.write_slices(&file, 0, &mut [IoSlice::new(b"new")], StableHow::Unstable).unwrap();
    assert!(!lab.watch(&file));
    other.tidy(stag_engine::Time(0));
    assert!(lab.watch_soon(&file));
    // It can still sync its earlier writes.
    other.commit(&file).unwrap();
}

#[test]
fn an_inode_of_two_exports_is_watched_in_each() {
    let (mut lab, file) = watching(|config| {
        let again = ExportConfig { name: "again".to_owned(), ..config.exports[0].clone() };
        config.exports.push(again);
    });
    let root = lab.files.mount(b"/again").unwrap();
    let twin = lab.files.lookup(&root, b"file").unwrap().handle;
    lab.files.pin(&twin).unwrap();
    assert!(lab.watch_soon(&file) && lab.watch_soon(&twin));
    lab.files.unwatch(&file);
    fs::set_permissions(lab.path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(lab.touched(), TouchedFile { file: twin, patience: None });
    assert_eq!(lab.files.next_touched(), None);
}

#[test]
fn files_of_others_are_watched_with_the_right_to_take_leases() {
    let Some(mut lab) = privileged::lab(|_| {}) else { return };
    let user = |uid| User::Unix { uid, gid: uid, gids: Default::default() };
    fs::write(lab.path("file"), b"octets").unwrap();
    chown(lab.path("file"), Some(1_001), None).unwrap();
    lab.files.act_as(&user(1_002));
    let file = lab.find("file");
    lab.files.pin(&file).unwrap();
    lab.files.start_watching().unwrap();
    let has_right = rustix::thread::capabilities(None).unwrap().effective;
    let has_right = has_right.contains(rustix::thread::CapabilitySet::LEASE);
    assert_eq!(has_right && lab.watch_soon(&file), has_right, "the caller is another user");
    lab.files.act_as(&user(1_001));
    assert!(lab.watch_soon(&file), "an owner needs none");
    stag_nfs_os::user::leave().unwrap();
}
