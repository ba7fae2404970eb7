//! Tests of attributes that version 3 cannot express: the change attribute (RFC 8881 §5.8.1.4),
//! times beyond 32 bits, and the birth time.

use super::*;

/// The change attribute, once it is settled (`crate::contract::change_attribute`).
fn settled<S: Store + Procedures>(bench: &mut Bench<S>, object: &FileHandle) -> u64 {
    let first = bench.store.getattr(object).unwrap().change;
    std::thread::sleep(std::time::Duration::from_millis(25));
    let later = bench.store.getattr(object).unwrap().change;
    assert!(later == first || later == first + 1, "a look changes nothing");
    later
}

on_every_store! {
    fn each_change_of_a_file_changes_its_change_attribute(bench) {
        let file = bench.file(b"f", b"content");
        let mode = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
        let size = NewAttributes { size: Some(3), ..NewAttributes::default() };
        let root = bench.root;
        let mut seen = vec![settled(bench, &file)];
        bench.write(&file, 0, b"octets").unwrap();
        seen.push(settled(bench, &file));
        bench.store.setattr(&file, &mode, None).unwrap();
        seen.push(settled(bench, &file));
        bench.store.setattr(&file, &size, None).unwrap();
        seen.push(settled(bench, &file));
        bench.store.link(&file, &root, b"g").unwrap();
        seen.push(settled(bench, &file));
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
        bench.content(&file).unwrap();
        assert_eq!(settled(bench, &file), *seen.last().unwrap(), "a READ changes nothing");
    }

    fn each_change_of_names_changes_the_change_attribute_of_the_directory(bench) {
        let root = bench.root;
        let mut seen = vec![settled(bench, &root)];
        let file = bench.file(b"f", b"");
        seen.push(settled(bench, &root));
        bench.store.link(&file, &root, b"g").unwrap();
        seen.push(settled(bench, &root));
        bench.store.rename(NameIn::new(&root, b"g"), NameIn::new(&root, b"h")).unwrap();
        seen.push(settled(bench, &root));
        bench.store.remove(&root, b"h").unwrap();
        seen.push(settled(bench, &root));
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
        bench.write(&file, 0, b"octets").unwrap();
        assert_eq!(settled(bench, &root), *seen.last().unwrap(), "a WRITE is no change of names");
    }

    fn a_file_knows_when_it_was_made(bench) {
        let file = bench.file(b"f", b"");
        let made = bench.store.getattr(&file).unwrap();
        let past = NewTime::Client(FileTime { seconds: 1000, nanos: 1 });
        let set = NewAttributes { mtime: past, ..NewAttributes::default() };
        let after = bench.store.setattr(&file, &set, None).unwrap().object.after.unwrap();
        assert_eq!(after.birth, made.birth);
        if let Some(birth) = made.birth {
            assert!(birth > FileTime { seconds: 1_000_000_000, nanos: 0 } && birth <= made.ctime);
        }
    }

    fn times_beyond_32_bits_are_kept_or_refused_but_never_become_others(bench) {
        let file = bench.file(b"f", b"");
        for seconds in [i64::from(u32::MAX) + 1_000, -1_000, i64::from(u32::MAX) - 1_000] {
            let time = FileTime { seconds, nanos: 0 };
            let set = NewAttributes { mtime: NewTime::Client(time), ..NewAttributes::default() };
            match bench.store.setattr(&file, &set, None) {
                Ok(change) => assert_eq!(change.object.after.unwrap().mtime, time),
                Err(failed) => assert_eq!(failed.status, Status::Inval),
            }
        }
    }

    fn a_guard_is_the_ctime_as_version_3_tells_it(bench) {
        let file = bench.file(b"f", b"");
        let ctime = bench.store.getattr(&file).unwrap().ctime;
        let set = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
        bench.store.setattr(&file, &set, Some(ctime.in_32_bits())).unwrap();
    }

    fn a_listing_tells_kinds_and_all_attributes(bench) {
        let root = bench.root;
        let file = bench.file(b"f", b"content");
        let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        bench.store.mkdir(&root, b"d", &set).unwrap();
        let mut kinds = Vec::new();
        let place = ListingStart { window: 4096, ..ListingStart::default() };
        let mut visit = |entry: &ListedEntry<'_>| {
            kinds.push((entry.name.to_vec(), entry.kind));
            true
        };
        bench.store.readdir(&root, place, &mut visit).unwrap();
        for (name, kind) in [(&b"f"[..], FileKind::Regular), (b"d", FileKind::Directory)] {
            let (_, found) = kinds.iter().find(|(found, _)| found == name).unwrap();
            assert!(found.is_none_or(|found| found == kind), "{found:?}");
        }
        let room = PlusRoom { names: 8192, all: 65_536 };
        let place = ListingStart { room, ..place };
        let mut listed = None;
        let mut visit = |entry: &ListedEntry<'_>| {
            if entry.name == b"f" {
                listed = entry.object;
            }
            true
        };
        bench.store.readdirplus(&root, place, &mut visit).unwrap();
        let (handle, attributes) = listed.unwrap();
        let known = bench.store.getattr(&file).unwrap();
        assert_eq!((handle, attributes.birth), (file, known.birth));
        assert_eq!((attributes.size, attributes.ctime), (known.size, known.ctime));
    }
}
