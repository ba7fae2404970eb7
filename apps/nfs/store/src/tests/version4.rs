//! Tests of the version 4 procedures. Ceph supports none of the others; the rest depends on the
//! file system of the files.

use super::*;
use crate::AclSubject as Who;
use stag_pools::Extent;

/// The outcome, unless the store does not support this.
fn supported<T, A>(outcome: Result<T, Failed<A>>) -> Option<Result<T, Status>> {
    match outcome {
        Err(Failed { status: Status::NotSupp, .. }) => None,
        outcome => Some(outcome.map_err(|failed| failed.status)),
    }
}

fn xattr<S: Store + Procedures + Procedures4>(
    bench: &mut Bench<S>,
    file: &FileHandle,
    name: &[u8],
) -> Result<Vec<u8>, Status> {
    let pool = &bench.pool;
    let value = bench.store.get_xattr(&|len| pool.take(len), file, name);
    value.map(|value| value.to_vec()).map_err(|failed| failed.status)
}

fn names<S: Store + Procedures + Procedures4>(bench: &mut Bench<S>, file: &FileHandle) -> Extent {
    let pool = &bench.pool;
    bench.store.list_xattrs(&|len| pool.take(len), file).unwrap()
}

fn acls<S: Store + Procedures + Procedures4>(bench: &mut Bench<S>, file: &FileHandle) -> AclPair {
    let mode = bench.store.getattr(file).unwrap().mode;
    let pool = &bench.pool;
    let octets = bench.store.get_acls(&|len| pool.take(len), file).unwrap();
    AclPair::parse(&octets, mode).unwrap()
}

const fn at(file: FileHandle, offset: u64) -> FilePlace {
    FilePlace { file, offset }
}

on_every_store! {
    fn a_pinned_file_outlives_its_last_name(bench) {
        let root = bench.root;
        let file = bench.file(b"f", b"content");
        for _ in 0..2 {
            bench.store.pin(&file).unwrap();
        }
        bench.store.remove(&root, b"f").unwrap();
        assert_eq!(bench.store.getattr(&file).unwrap().nlink, 0);
        assert_eq!(bench.content(&file).unwrap(), b"content");
        bench.write(&file, 7, b" and more").unwrap();
        bench.store.unpin(&file);
        assert_eq!(bench.content(&file).unwrap(), b"content and more");
        let linked = bench.store.link(&file, &root, b"g");
        assert!(linked.is_err(), "what lost its last name gets none again");
        bench.store.unpin(&file);
        assert_eq!(bench.store.getattr(&file), Err(Status::Stale));
        // One unpin too many does no harm.
        bench.store.unpin(&file);
        assert_eq!(bench.store.pin(&file), Err(Status::Stale));
    }

    fn a_pinned_file_that_is_replaced_by_a_rename_stays(bench) {
        let root = bench.root;
        let old = bench.file(b"f", b"old");
        let new = bench.file(b"g", b"new");
        bench.store.pin(&old).unwrap();
        bench.store.rename(NameIn::new(&root, b"g"), NameIn::new(&root, b"f")).unwrap();
        assert_eq!(bench.content(&old).unwrap(), b"old");
        assert_eq!(bench.store.lookup(&root, b"f").unwrap().handle, new);
        bench.store.unpin(&old);
        assert_eq!(bench.store.getattr(&old), Err(Status::Stale));
        assert_eq!(bench.content(&new).unwrap(), b"new");
    }

    fn only_regular_files_are_pinned(bench) {
        let root = bench.root;
        assert_eq!(bench.store.pin(&root), Err(Status::IsDir));
        let set = NewAttributes::default();
        let fifo = bench.store.mknod(&root, b"p", FileKind::Fifo.into(), &set).unwrap().handle;
        assert_eq!(bench.store.pin(&fifo), Err(Status::Inval));
        let file = bench.file(b"f", b"");
        bench.store.pin(&file).unwrap();
        bench.store.unpin(&file);
        assert!(bench.store.getattr(&file).is_ok(), "a file with a name is not touched");
    }

    fn the_directory_above_is_found_up_to_the_root_of_the_export(bench) {
        let root = bench.root;
        let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        let low = bench.store.mkdir(&root, b"d", &set).unwrap().handle;
        let lower = bench.store.mkdir(&low, b"e", &set).unwrap().handle;
        let found = bench.store.lookupp(&lower).unwrap();
        assert_eq!((found.handle, found.attributes.kind), (low, FileKind::Directory));
        let own = bench.store.getattr(&lower).unwrap();
        assert_eq!(found.directory.unwrap().fileid, own.fileid);
        assert_eq!(bench.store.lookupp(&low).unwrap().handle, root);
        assert_eq!(bench.store.lookupp(&root).unwrap_err().status, Status::NoEnt);
        let file = bench.file(b"f", b"");
        assert_eq!(bench.store.lookupp(&file).unwrap_err().status, Status::NotDir);
    }

    fn creating_tells_what_is_new_and_what_was_set(bench) {
        let root = bench.root;
        let set = NewAttributes { mode: Some(0o640), size: Some(3), ..NewAttributes::default() };
        let how = CreateMode::Unchecked(set);
        let made = bench.store.create(&root, b"f", &how).unwrap();
        assert!(made.is_new && made.set == SetMask::MODE | SetMask::SIZE, "{made:?}");
        let again = bench.store.create(&root, b"f", &how).unwrap();
        assert!(!again.is_new && again.set == SetMask::SIZE, "{again:?}");
        assert_eq!((again.handle, again.attributes.size), (made.handle, 3));
        let set = NewAttributes { mode: Some(0o604), ..NewAttributes::default() };
        let how = CreateMode::Exclusive { verifier: [7; 8], set };
        let made = bench.store.create(&root, b"g", &how).unwrap();
        assert!(made.is_new && made.set.contains(SetMask::MODE), "{made:?}");
        assert_eq!(made.attributes.mode, 0o604);
        let again = bench.store.create(&root, b"g", &how).unwrap();
        assert!(!again.is_new, "the same verifier finds the file");
        assert_eq!((again.handle, again.set), (made.handle, made.set));
        let made = bench.store.mkdir(&root, b"d", &set).unwrap();
        assert!(made.is_new && made.set == SetMask::MODE, "{made:?}");
    }

    fn setting_tells_what_was_set(bench) {
        let file = bench.file(b"f", b"content");
        let set = NewAttributes { mode: Some(0o600), size: Some(2), ..NewAttributes::default() };
        let done = bench.store.setattr(&file, &set, None).unwrap();
        assert_eq!(done.set, SetMask::MODE | SetMask::SIZE);
        let wrong = NewAttributes { uid: Some(u32::MAX), size: Some(2), ..set };
        let failed = bench.store.setattr(&file, &wrong, None).unwrap_err();
        assert!(!failed.about.set.contains(SetMask::UID));
    }

    fn exports_are_told_with_their_roots(bench) {
        let roots = bench.store.export_roots();
        let [only] = roots.as_slice() else { panic!("{roots:?}") };
        assert_eq!((only.name.as_str(), only.is_read_only), ("data", false));
        let root = bench.root;
        assert!(only.root.is_none_or(|found| found == root));
        assert_eq!(only.fsid, bench.store.getattr(&root).unwrap().fsid);
    }

    fn data_and_holes_are_found_and_the_end_is_a_hole(bench) {
        let file = bench.file(b"f", b"");
        let mib = 1 << 20;
        bench.write(&file, 4 * mib, &[7; 4096]).unwrap();
        let end = 4 * mib + 4096;
        let mut seek = |at, what| {
            let done = bench.store.seek(&file, at, what).map_err(|failed| failed.status)?;
            Ok((done.offset, done.eof))
        };
        for what in [SeekFor::Data, SeekFor::Hole] {
            assert_eq!(seek(end, what), Err(Status::NxIo));
            assert_eq!(seek(u64::MAX, what), Err(Status::NxIo));
        }
        assert_eq!(seek(4 * mib + 5, SeekFor::Hole), Ok((end, true)));
        assert_eq!(seek(4 * mib + 5, SeekFor::Data), Ok((4 * mib + 5, false)));
        // If the file system reports holes there is one in front; else all is data.
        let (data, hole) = (seek(0, SeekFor::Data).unwrap(), seek(0, SeekFor::Hole).unwrap());
        assert!(!data.1 && (data.0 == 0 || data.0 > 3 * mib), "{data:?}");
        assert_eq!(hole, if data.0 == 0 { (end, true) } else { (0, false) });
    }

    fn space_is_taken_and_given_back(bench) {
        let root = bench.root;
        let file = bench.file(b"f", b"content");
        let span = |offset, len| FileSpan { offset, len };
        let Some(done) = supported(bench.store.allocate(&file, span(2, 200_000))) else { return };
        assert_eq!(done.unwrap().after.unwrap().size, 200_002);
        assert_eq!(bench.content(&file).unwrap()[..7], *b"content");
        assert!(bench.content(&file).unwrap()[7..].iter().all(|octet| *octet == 0));
        assert!(bench.store.getattr(&file).unwrap().used >= 200_000);
        bench.write(&file, 0, &[7; 200_002]).unwrap();
        let Some(done) = supported(bench.store.deallocate(&file, span(5, 150_000))) else {
            return;
        };
        let after = done.unwrap().after.unwrap();
        assert_eq!(after.size, 200_002);
        assert!(after.used < 200_000, "{after:?}");
        let expected: Vec<u8> =
            (0..200_002).map(|at| if (5..150_005).contains(&at) { 0 } else { 7 }).collect();
        assert!(bench.content(&file).unwrap() == expected);
        // Past the end there is nothing to release.
        bench.store.deallocate(&file, span(200_000, 1 << 30)).unwrap();
        assert_eq!(bench.store.getattr(&file).unwrap().size, 200_002);
        let refused = |outcome: StoreResult<ObjectChange, ObjectChange>| {
            outcome.unwrap_err().status
        };
        assert_eq!(refused(bench.store.allocate(&file, span(0, 0))), Status::Inval);
        assert_eq!(refused(bench.store.allocate(&file, span(u64::MAX, 2))), Status::FBig);
        assert_eq!(refused(bench.store.deallocate(&root, span(0, 1))), Status::IsDir);
    }

    fn octets_are_copied_in_as_many_calls_as_it_takes(bench) {
        let content: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
        let source = bench.file(b"f", &[]);
        for (at, part) in (0..).zip(content.chunks(1 << 20)) {
            bench.write(&source, at << 20, part).unwrap();
        }
        let target = bench.file(b"g", b"head");
        let (mut done, mut expected) = (0, b"head".to_vec());
        while done < 3_000_000 {
            let copied = bench.store.copy(at(source, done), at(target, 4 + done), 0);
            let Some(copied) = supported(copied) else { return };
            let copied = copied.unwrap();
            assert!(copied.count > 0);
            done += copied.count;
            assert_eq!(copied.file.after.unwrap().size, 4 + done);
        }
        expected.extend_from_slice(&content);
        assert!(bench.content(&target).unwrap() == expected);
        let mut refused = |from, to, count| {
            bench.store.copy(from, to, count).unwrap_err().status
        };
        assert_eq!(refused(at(source, 0), at(source, 5), 1), Status::Inval);
        assert_eq!(refused(at(source, 3_000_001), at(target, 0), 0), Status::Inval);
        assert_eq!(refused(at(source, 2_999_999), at(target, 0), 2), Status::Inval);
        assert_eq!(refused(at(source, 0), at(target, i64::MAX as u64), 10), Status::FBig);
        let root = bench.root;
        assert_eq!(refused_dir(bench, root, target), Status::IsDir);
    }

    fn holes_are_copied_as_holes_over_what_was_there(bench) {
        const MIB: u64 = 1 << 20;
        let source = bench.file(b"f", b"");
        for place in [MIB, 6 * MIB] {
            bench.write(&source, place, &vec![7; MIB as usize]).unwrap();
        }
        let size = NewAttributes { size: Some(20 * MIB), ..NewAttributes::default() };
        bench.store.setattr(&source, &size, None).unwrap();
        let target = bench.file(b"g", b"");
        bench.write(&target, 0, &vec![9; MIB as usize]).unwrap();
        let mut done = 0;
        while done < 20 * MIB {
            let copied = bench.store.copy(at(source, done), at(target, done), 0);
            let Some(copied) = supported(copied) else { return };
            let copied = copied.unwrap();
            assert!(copied.count > 0);
            done += copied.count;
        }
        assert!(bench.content(&source).unwrap() == bench.content(&target).unwrap());
        let stored = bench.store.getattr(&target).unwrap();
        assert_eq!(stored.size, 20 * MIB);
        assert!(stored.used < 3 * MIB, "{} octets are stored", stored.used);
    }

    fn files_share_octets_where_the_file_system_can(bench) {
        let source = bench.file(b"f", &[7; 65_536]);
        let target = bench.file(b"g", b"");
        let can = bench.store.limits(&source).unwrap().clone_block.is_some();
        match supported(bench.store.clone_range(at(source, 0), at(target, 0), 0)) {
            None => assert!(!can),
            Some(done) => {
                assert!(can);
                assert_eq!(done.unwrap().after.unwrap().size, 65_536);
                assert!(bench.content(&target).unwrap() == [7; 65_536]);
            }
        }
    }

    fn extended_attributes_are_set_read_listed_and_removed(bench) {
        let file = bench.file(b"f", b"");
        let has = bench.store.limits(&file).unwrap().has_xattrs;
        let set = |bench: &mut Bench<S>, name: &[u8], value: &[u8], how| {
            bench.store.set_xattr(&file, name, value, how).map_err(|failed| failed.status)
        };
        let first = set(bench, b"b", b"value", XattrMode::Create);
        if first == Err(Status::NotSupp) {
            assert!(!has);
            return;
        }
        assert!(has);
        first.unwrap();
        let before = bench.store.getattr(&file).unwrap().ctime;
        assert_eq!(xattr(bench, &file, b"b").unwrap(), b"value");
        assert_eq!(set(bench, b"b", b"x", XattrMode::Create), Err(Status::Exist));
        assert_eq!(set(bench, b"a", b"x", XattrMode::Replace), Err(Status::NoEnt));
        set(bench, b"b", b"other", XattrMode::Replace).unwrap();
        set(bench, b"a", b"", XattrMode::Either).unwrap();
        assert_eq!(xattr(bench, &file, b"b").unwrap(), b"other");
        assert_eq!(xattr(bench, &file, b"a").unwrap(), b"");
        assert_eq!(xattr(bench, &file, b"c"), Err(Status::NoEnt));
        assert_eq!(names(bench, &file)[..], *b"a\0b\0");
        assert!(bench.store.getattr(&file).unwrap().ctime >= before);
        assert_eq!(set(bench, b"", b"x", XattrMode::Either), Err(Status::Inval));
        assert_eq!(set(bench, &[b'n'; 251], b"x", XattrMode::Either), Err(Status::NameTooLong));
        let too_long = set(bench, b"long", &[1; XATTR_MAX + 1], XattrMode::Either);
        assert!(matches!(too_long, Err(Status::TooSmall | Status::NoSpc)), "{too_long:?}");
        bench.store.remove_xattr(&file, b"a").unwrap();
        assert_eq!(bench.store.remove_xattr(&file, b"a").unwrap_err().status, Status::NoEnt);
        assert_eq!(names(bench, &file)[..], *b"b\0");
        bench.store.remove_xattr(&file, b"b").unwrap();
        assert!(names(bench, &file).is_empty());
    }

    fn access_control_lists_are_set_read_inherited_and_removed(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b""));
        let directory = bench.store.mkdir(&root, b"d", &NewAttributes::default()).unwrap();
        let directory = directory.handle;
        let has = bench.store.limits(&file).unwrap().has_acls;
        let named = [(Who::Owner, 6), (Who::User(4_711), 6), (Who::OwningGroup, 4)];
        let rest = [(Who::Mask, 4), (Who::Other, 0)];
        let entries = named.into_iter().chain(rest);
        let entries = entries.map(|(subject, rights)| AclEntry::new(subject, rights));
        let list = Acl::new(entries.collect());
        let list = list.unwrap();
        let set = |bench: &mut Bench<S>, file: &FileHandle, part, list: &[u8]| {
            let done = bench.store.set_acl(file, part, list);
            done.map(drop).map_err(|failed| failed.status)
        };
        let first = set(bench, &file, AclPart::Access, &list.octets());
        if first == Err(Status::NotSupp) {
            assert!(!has);
            let pool = &bench.pool;
            let read = bench.store.get_acls(&|len| pool.take(len), &file).map(drop);
            assert_eq!(read.unwrap_err().status, Status::NotSupp);
            return;
        }
        assert!(has);
        first.unwrap();
        // The rights of the group in the mode are those of the mask.
        assert_eq!(bench.store.getattr(&file).unwrap().mode & 0o777, 0o640);
        assert_eq!(acls(bench, &file), AclPair { access: list.clone(), default: None });
        let of_directory = set(bench, &file, AclPart::Default, &list.octets());
        assert_eq!(of_directory, Err(Status::Inval));
        assert_eq!(set(bench, &file, AclPart::Access, &[0; 12]), Err(Status::Inval));

        set(bench, &directory, AclPart::Default, &list.octets()).unwrap();
        assert_eq!(acls(bench, &directory).default, Some(list.clone()));
        let made = bench.store.create(&directory, b"new", &guarded(0o666)).unwrap();
        let inherited = acls(bench, &made.handle).access;
        let named = AclEntry::new(Who::User(4_711), 6);
        assert!(inherited.entries().contains(&named), "{inherited:?}");

        for (file, part) in [(file, AclPart::Access), (directory, AclPart::Default)] {
            // One that is not there can be removed, too.
            for _ in 0..2 {
                set(bench, &file, part, &[]).unwrap();
            }
        }
        let mode = bench.store.getattr(&file).unwrap().mode;
        assert_eq!(acls(bench, &file).access, Acl::of_mode(mode));
        assert_eq!(acls(bench, &directory).default, None);
        assert!(bench.store.lookup(&root, b"f").is_ok());
    }
}

fn refused_dir<S: Store + Procedures + Procedures4>(
    bench: &mut Bench<S>,
    directory: FileHandle,
    file: FileHandle,
) -> Status {
    let copied = bench.store.copy(at(directory, 0), at(file, 0), 1);
    copied.unwrap_err().status
}

#[test]
fn extended_attributes_in_memory_are_limited_in_number_and_size() {
    let mut bench = memory_of(false, 2 << 20);
    let file = bench.file(b"f", b"");
    let mut set = |name: &[u8], value: &[u8]| {
        let done = bench.store.set_xattr(&file, name, value, XattrMode::Either);
        done.map(drop).map_err(|failed| failed.status)
    };
    for number in 0..64 {
        set(format!("{number}").as_bytes(), b"x").unwrap();
    }
    assert_eq!(set(b"one more", b"x"), Err(Status::NoSpc));
    assert_eq!(set(b"0", &[7; 65_536]), Ok(()));
    assert_eq!(set(b"1", &[7; 65_536]), Err(Status::NoSpc), "a sixteenth of the capacity");
    let root = bench.root;
    bench.store.remove(&root, b"f").unwrap();
    let file = bench.file(b"g", b"");
    let done = bench.store.set_xattr(&file, b"1", &[7; 65_536], XattrMode::Either);
    assert!(done.is_ok(), "what was removed has given its octets back");
}
