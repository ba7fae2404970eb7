//! Tests of weak cache consistency data (RFC 1813 §2.6): attributes from before a change are
//! returned only if no other change can intervene.

use super::*;

/// The reported object before a change, if any, and its actual state before, as a client has it.
type Seen = (&'static str, ObjectChange, FileAttributes);

/// Every procedure that changes something, once with success and, if it can fail, once without.
fn changes<S: Store + Procedures>(bench: &mut Bench<S>) -> Vec<Seen> {
    let root = bench.root;
    let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
    let file = bench.file(b"file", b"content");
    let mut seen = Vec::new();
    let mut tell = |bench: &mut Bench<S>,
                    name,
                    object: &FileHandle,
                    change: &mut dyn FnMut(&mut S) -> ObjectChange| {
        let known = bench.store.getattr(object).unwrap();
        seen.push((name, change(&mut bench.store), known));
    };
    let about = |outcome: StoreResult<ObjectChange, ObjectChange>| {
        outcome.unwrap_or_else(|failed| failed.about)
    };
    let made = |outcome: StoreResult<MadeObject, ObjectChange>| {
        outcome.map_or_else(|failed| failed.about, |made| made.directory)
    };
    for _ in 0..2 {
        tell(bench, "CREATE", &root, &mut |store| made(store.create(&root, b"f", &guarded(0o644))));
        tell(bench, "MKDIR", &root, &mut |store| made(store.mkdir(&root, b"d", &set)));
        tell(bench, "SYMLINK", &root, &mut |store| made(store.symlink(&root, b"l", b"f", &set)));
        tell(bench, "MKNOD", &root, &mut |store| {
            made(store.mknod(&root, b"p", FileKind::Fifo.into(), &set))
        });
        tell(bench, "LINK", &root, &mut |store| match store.link(&file, &root, b"second") {
            Ok(linked) => linked.directory,
            Err(failed) => failed.about.directory,
        });
    }
    for _ in 0..2 {
        tell(bench, "REMOVE", &root, &mut |store| about(store.remove(&root, b"f")));
        tell(bench, "RMDIR", &root, &mut |store| about(store.rmdir(&root, b"d")));
        tell(bench, "RENAME", &root, &mut |store| match store
            .rename(NameIn::new(&root, b"l"), NameIn::new(&root, b"m"))
        {
            Ok(renamed) => renamed.from,
            Err(failed) => failed.about.to,
        });
    }
    for guard in [None, Some(FileTime::default())] {
        tell(bench, "SETATTR", &file, &mut |store| {
            let done = store.setattr(&file, &set, guard);
            done.map_or_else(|failed| failed.about.object, |done| done.object)
        });
    }
    for offset in [3, u64::MAX] {
        tell(bench, "WRITE", &file, &mut |store| {
            let done = store.write(&file, offset, b"octets"[..].into(), StableHow::Unstable);
            done.map_or_else(|failed| failed.about, |done| done.file)
        });
    }
    tell(bench, "COMMIT", &file, &mut |store| store.commit(&file).unwrap().file);
    seen
}

/// A local program or another shard may change the object between two system calls, without a
/// trace.
#[test]
fn a_store_of_files_never_says_that_nobody_came_in_between() {
    let of_files = changes(&mut files(false));
    for (procedure, wcc, _) in of_files.into_iter().chain(changes(&mut ceph(false))) {
        assert_eq!(wcc.before, None, "{procedure}");
        assert!(wcc.after.is_some(), "{procedure}");
    }
}

#[test]
fn a_store_that_nobody_else_can_change_tells_what_was_before() {
    for (procedure, wcc, known) in changes(&mut memory(false)) {
        assert_eq!(wcc.before, Some((&known).into()), "{procedure}");
        assert!(wcc.after.is_some(), "{procedure}");
    }
}
