//! Tests of a store's behaviour that a client can see, procedure by procedure.

use super::*;

fn status<T: core::fmt::Debug, A: core::fmt::Debug>(outcome: Result<T, Failed<A>>) -> Status {
    outcome.unwrap_err().status
}

on_every_store! {
    fn reads_end_where_the_file_ends(bench) {
        let content: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let file = bench.file(b"f", &content);
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
            (i64::MAX as u64 + 1, 1, 0, true),
            (u64::MAX, 100, 0, true),
        ] {
            let done = bench.read(&file, offset, len).unwrap();
            assert_eq!((done.data.len(), done.eof), (count, eof), "{len} octets at {offset}");
            assert_eq!(done.attributes.attributes().size, 10_000);
        }
    }

    fn holes_read_as_zeros_and_sizes_follow(bench) {
        let file = bench.file(b"f", b"abc");
        bench.write(&file, 200_000, b"xyz").unwrap();
        let mut expected = vec![0; 200_003];
        expected[..3].copy_from_slice(b"abc");
        expected[200_000..].copy_from_slice(b"xyz");
        assert!(bench.content(&file).unwrap() == expected);
        for size in [200_001, 70_000, 65_536, 65_535, 2, 100_000, 0, 5] {
            let set = NewAttributes { size: Some(size), ..NewAttributes::default() };
            let wcc = bench.store.setattr(&file, &set, None).unwrap().object;
            assert!(wcc.before.is_none_or(|before| before.size == expected.len() as u64));
            assert_eq!(wcc.after.unwrap().size, size);
            expected.resize(size as usize, 0);
            assert!(bench.content(&file).unwrap() == expected, "{size}");
        }
    }

    fn only_regular_files_have_content(bench) {
        let root = bench.root;
        let set = NewAttributes::default();
        let link = bench.store.symlink(&root, b"l", b"f", &set).unwrap().handle;
        let fifo = bench.store.mknod(&root, b"p", FileKind::Fifo.into(), &set).unwrap().handle;
        for (handle, expected) in
            [(root, Status::IsDir), (link, Status::Inval), (fifo, Status::Inval)]
        {
            assert_eq!(bench.content(&handle), Err(expected));
            assert_eq!(bench.write(&handle, 0, b"x"), Err(expected));
            assert_eq!(bench.write(&handle, 0, b""), Err(expected));
            assert_eq!(status(bench.store.commit(&handle)), expected);
            let size = NewAttributes { size: Some(0), ..set };
            assert_eq!(status(bench.store.setattr(&handle, &size, None)), expected);
        }
    }

    fn writes_are_as_stable_as_asked_for_and_carry_the_verifier(bench) {
        let file = bench.file(b"f", b"");
        for how in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
            let done = bench.store.write(&file, 3, (&b"data"[..]).into(), how).unwrap();
            assert_eq!((done.count, done.verifier), (4, bench.store.verifier()));
            assert!(done.committed >= how, "{how:?}");
        }
        let done = bench.store.commit(&file).unwrap();
        assert_eq!((done.verifier, done.file.after.unwrap().size), (bench.store.verifier(), 7));
        let last = i64::MAX as u64;
        for offset in [last, last - 1, last + 1, u64::MAX - 1, u64::MAX] {
            assert_eq!(bench.write(&file, offset, b"ab"), Err(Status::FBig), "{offset}");
        }
        assert_eq!(bench.content(&file).unwrap(), b"\0\0\0data");
    }

    fn attributes_are_set_and_the_rest_stays(bench) {
        let file = bench.file(b"f", b"0123456789");
        let time = |seconds| FileTime { seconds, nanos: 123_456_789 };
        let set = NewAttributes {
            mode: Some(0o4751),
            size: Some(4),
            atime: NewTime::Client(time(1000)),
            mtime: NewTime::Client(time(2000)),
            ..NewAttributes::default()
        };
        let after = bench.store.setattr(&file, &set, None).unwrap().object.after.unwrap();
        assert_eq!((after.size, after.mode), (4, 0o4751));
        assert_eq!((after.atime, after.mtime), (time(1000), time(2000)));
        let server = NewAttributes { mtime: NewTime::Server, ..NewAttributes::default() };
        let after = bench.store.setattr(&file, &server, None).unwrap().object.after.unwrap();
        assert!(after.mtime.seconds > 1_000_000_000);
        assert_eq!(after.atime, time(1000));
        let mode = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
        let other = FileTime { nanos: after.ctime.nanos ^ 1, ..after.ctime };
        let failed = bench.store.setattr(&file, &mode, Some(other)).unwrap_err();
        assert_eq!((failed.status, failed.about.object.after.unwrap()), (Status::NotSync, after));
        bench.store.setattr(&file, &mode, Some(after.ctime)).unwrap();
        for wrong in [
            NewAttributes {
                mtime: NewTime::Client(FileTime { seconds: 1, nanos: 1_000_000_000 }),
                ..set
            },
            NewAttributes { uid: Some(u32::MAX), ..NewAttributes::default() },
        ] {
            assert_eq!(status(bench.store.setattr(&file, &wrong, None)), Status::Inval);
        }
        let root = bench.root;
        let link = bench.store.symlink(&root, b"l", b"f", &NewAttributes::default());
        let link = link.unwrap().handle;
        assert_eq!(status(bench.store.setattr(&link, &mode, None)), Status::NotSupp);
        let huge = NewAttributes { size: Some(u64::MAX), ..NewAttributes::default() };
        assert_eq!(status(bench.store.setattr(&file, &huge, None)), Status::FBig);
    }

    fn a_lookup_finds_entries_the_directory_itself_and_the_one_above(bench) {
        let root = bench.root;
        let dir = bench.store.mkdir(&root, b"d", &NewAttributes::default()).unwrap().handle;
        let file = bench.store.create(&dir, b"f", &guarded(0o600)).unwrap().handle;
        let found = bench.store.lookup(&dir, b"f").unwrap();
        assert_eq!((found.handle, found.attributes), (file, bench.store.getattr(&file).unwrap()));
        assert_eq!(found.directory.unwrap(), bench.store.getattr(&dir).unwrap());
        assert_eq!(bench.store.lookup(&dir, b".").unwrap().handle, dir);
        assert_eq!(bench.store.lookup(&dir, b"..").unwrap().handle, root);
        let above = bench.store.lookup(&root, b"..").unwrap();
        assert_eq!(above.handle, root, "nothing is above the root");
        for (name, expected) in [
            (&b"none"[..], Status::NoEnt),
            (b"", Status::Acces),
            (b"a/b", Status::Acces),
            (b"a\0b", Status::Acces),
            (&[b'x'; 255], Status::NoEnt),
            (&[b'x'; 256], Status::NameTooLong),
        ] {
            let failed = bench.store.lookup(&root, name).unwrap_err();
            let kind = failed.about.unwrap().kind;
            assert_eq!((failed.status, kind), (expected, FileKind::Directory));
        }
        assert_eq!(status(bench.store.lookup(&file, b"x")), Status::NotDir);
        assert_eq!(bench.store.mount(b"/data/d/"), Ok(dir));
        assert_eq!(bench.store.mount(b"/data/../.."), Ok(root));
        for (path, expected) in [
            (&b""[..], Status::NoEnt),
            (b"/", Status::NoEnt),
            (b"/dat", Status::NoEnt),
            (b"/data/c", Status::NoEnt),
            (b"/data/d/f", Status::NotDir),
            (b"/data/d/f/g", Status::NotDir),
        ] {
            assert_eq!(bench.store.mount(path), Err(expected), "{path:?}");
        }
        assert!(bench.store.exports().eq(["data"]));
    }

    fn a_created_object_has_what_was_asked_for(bench) {
        let root = bench.root;
        for mode in [0o644, 0o777, 0o4755, 0o444, 0o000] {
            let made = bench.store.create(&root, b"f", &guarded(mode)).unwrap();
            assert_eq!((made.attributes.mode, made.attributes.kind), (mode, FileKind::Regular));
            assert!(made.directory.after.is_some());
            assert_eq!(bench.write(&made.handle, 0, b"hello"), Ok(5), "whatever its mode");
            assert_eq!(bench.content(&made.handle).unwrap(), b"hello");
            bench.store.remove(&root, b"f").unwrap();
        }
        let time = FileTime { seconds: 1234, nanos: 5678 };
        let set = NewAttributes {
            mode: Some(0o640),
            size: Some(10),
            mtime: NewTime::Client(time),
            ..NewAttributes::default()
        };
        let made = bench.store.create(&root, b"f", &CreateMode::Guarded(set)).unwrap().attributes;
        assert_eq!((made.size, made.mtime, made.mode), (10, time, 0o640));
        let made = bench.store.mkdir(&root, b"d", &set).unwrap().attributes;
        assert_eq!((made.mtime, made.mode, made.nlink), (time, 0o640, 2));
        let group = NewAttributes { mode: Some(0o2755), ..NewAttributes::default() };
        let dir = bench.store.mkdir(&root, b"g", &group).unwrap().handle;
        let plain = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        assert_eq!(bench.store.mkdir(&dir, b"d", &plain).unwrap().attributes.mode, 0o2755);
        let made = bench.store.symlink(&root, b"l", b"../../target", &plain).unwrap();
        assert_eq!((made.attributes.kind, made.attributes.size), (FileKind::Symlink, 12));
        assert_eq!(bench.target(&made.handle).unwrap(), b"../../target");
        assert_eq!(bench.target(&root), Err(Status::Inval));
        let made = bench.store.mknod(&root, b"p", FileKind::Fifo.into(), &plain).unwrap();
        assert_eq!((made.attributes.kind, made.attributes.mode), (FileKind::Fifo, 0o755));
        let made = bench.store.mknod(&root, b"s", FileKind::Socket.into(), &plain).unwrap();
        assert_eq!(made.attributes.kind, FileKind::Socket);
    }

    fn creating_a_name_that_exists_depends_on_how(bench) {
        let (root, old) = (bench.root, bench.file(b"f", b"0123456789"));
        let failed = bench.store.create(&root, b"f", &guarded(0o600)).unwrap_err();
        assert_eq!((failed.status, failed.about.after.is_some()), (Status::Exist, true));
        let exclusive = CreateMode::exclusive([1; 8]);
        assert_eq!(status(bench.store.create(&root, b"f", &exclusive)), Status::Exist);
        let mode = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
        let made = bench.store.create(&root, b"f", &CreateMode::Unchecked(mode)).unwrap();
        assert_eq!((made.handle, made.attributes.size, made.attributes.mode), (old, 10, 0o644));
        let cut = NewAttributes { size: Some(3), ..NewAttributes::default() };
        let made = bench.store.create(&root, b"f", &CreateMode::Unchecked(cut)).unwrap();
        assert_eq!(made.attributes.size, 3);
        bench.store.mkdir(&root, b"d", &mode).unwrap();
        bench.store.symlink(&root, b"l", b"nowhere", &mode).unwrap();
        for name in ["d", "l", ".", ".."] {
            for how in [CreateMode::Unchecked(cut), guarded(0o600), exclusive] {
                assert_eq!(status(bench.store.create(&root, name.as_bytes(), &how)), Status::Exist);
            }
        }
        assert_eq!(status(bench.store.lookup(&root, b"nowhere")), Status::NoEnt);
    }

    fn an_exclusive_create_that_comes_again_succeeds_until_its_client_sets_the_times(bench) {
        let root = bench.root;
        for verifier in [[0; 8], [0x7f; 8], *b"verifier"] {
            let how = CreateMode::exclusive(verifier);
            let made = bench.store.create(&root, b"f", &how).unwrap();
            assert_eq!(bench.store.create(&root, b"f", &how).unwrap().handle, made.handle);
            let mut other = verifier;
            other[7] ^= 1;
            let again = bench.store.create(&root, b"f", &CreateMode::exclusive(other));
            assert_eq!(status(again), Status::Exist);
            let set =
                NewAttributes {
                    atime: NewTime::Server,
                    mtime: NewTime::Server,
                    ..NewAttributes::default()
                };
            bench.store.setattr(&made.handle, &set, None).unwrap();
            assert_eq!(status(bench.store.create(&root, b"f", &how)), Status::Exist);
            bench.store.remove(&root, b"f").unwrap();
        }
    }

    fn what_cannot_be_made_is_refused_and_shows_the_directory(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b""));
        let set = NewAttributes::default();
        for (kind, expected) in [
            (FileKind::Regular, Status::BadType),
            (FileKind::Directory, Status::BadType),
            (FileKind::Symlink, Status::BadType),
        ] {
            let failed = bench.store.mknod(&root, b"n", kind.into(), &set).unwrap_err();
            assert_eq!((failed.status, failed.about.after.is_some()), (expected, true));
        }
        for target in [&b""[..], b"a\0b"] {
            assert_eq!(status(bench.store.symlink(&root, b"l", target, &set)), Status::Inval);
        }
        let long = bench.store.symlink(&root, b"l", &[b't'; 4096], &set);
        assert_eq!(status(long), Status::NameTooLong);
        for (name, expected) in [
            (&b"f"[..], Status::Exist),
            (b".", Status::Exist),
            (b"..", Status::Exist),
            (b"", Status::Acces),
            (b"a/b", Status::Acces),
            (&[b'x'; 256], Status::NameTooLong),
        ] {
            assert_eq!(status(bench.store.mkdir(&root, name, &set)), expected);
            assert_eq!(status(bench.store.symlink(&root, name, b"t", &set)), expected);
            let made = bench.store.mknod(&root, name, FileKind::Fifo.into(), &set);
            assert_eq!(status(made), expected);
            assert_eq!(status(bench.store.create(&root, name, &guarded(0o600))), expected);
        }
        assert_eq!(status(bench.store.create(&file, b"x", &guarded(0o600))), Status::NotDir);
        bench.store.create(&root, &[b'x'; 255], &guarded(0o600)).unwrap();
    }

    fn names_are_taken_away(bench) {
        let root = bench.root;
        bench.file(b"f", b"x");
        let dir = bench.store.mkdir(&root, b"d", &NewAttributes::default()).unwrap().handle;
        bench.store.create(&dir, b"x", &guarded(0o600)).unwrap();
        assert_eq!(status(bench.store.remove(&root, b"d")), Status::IsDir);
        assert_eq!(status(bench.store.rmdir(&root, b"f")), Status::NotDir);
        assert_eq!(status(bench.store.rmdir(&root, b"d")), Status::NotEmpty);
        for (name, remove, rmdir) in [
            (&b"none"[..], Status::NoEnt, Status::NoEnt),
            (b".", Status::Acces, Status::Inval),
            (b"..", Status::Acces, Status::Exist),
            (b"", Status::Acces, Status::Acces),
            (&[b'x'; 256], Status::NameTooLong, Status::NameTooLong),
        ] {
            assert_eq!(status(bench.store.remove(&root, name)), remove, "{name:?}");
            assert_eq!(status(bench.store.rmdir(&root, name)), rmdir, "{name:?}");
        }
        bench.store.remove(&dir, b"x").unwrap();
        let links = bench.store.getattr(&root).unwrap().nlink;
        let wcc = bench.store.rmdir(&root, b"d").unwrap();
        assert_eq!(wcc.after.unwrap().nlink + 1, links);
        assert_eq!(bench.store.getattr(&dir), Err(Status::Stale));
        bench.store.remove(&root, b"f").unwrap();
        let names = bench.names(&root, 10).unwrap();
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    fn renaming_moves_one_name_over_what_it_may_replace(bench) {
        let root = bench.root;
        let set = NewAttributes::default();
        let a = bench.store.mkdir(&root, b"a", &set).unwrap().handle;
        let b = bench.store.mkdir(&a, b"b", &set).unwrap().handle;
        let file = bench.file(b"f", b"content");
        let about = bench.store.rename(NameIn::new(&root, b"f"), NameIn::new(&b, b"g")).unwrap();
        assert!(about.from.after.is_some() && about.to.after.is_some());
        assert_eq!(bench.store.lookup(&b, b"g").unwrap().handle, file);
        assert_eq!(bench.content(&file).unwrap(), b"content");
        for (from, to, expected) in [
            ((&root, &b"a"[..]), (&b, &b"a"[..]), Status::Inval),
            ((&root, b"a"), (&a, b"a"), Status::Inval),
            ((&root, b"none"), (&root, b"x"), Status::NoEnt),
            ((&root, b"."), (&root, b"x"), Status::Inval),
            ((&root, b"a"), (&root, b".."), Status::Inval),
            ((&b, b"g"), (&root, b"a"), Status::NotEmpty),
            ((&a, b"b"), (&root, b"a"), Status::NotEmpty),
            ((&root, b"present"), (&a, b"b"), Status::IsDir),
            ((&a, b"b"), (&root, b"present"), Status::NotDir),
            ((&root, b"present"), (&root, &[b'x'; 256]), Status::NameTooLong),
        ] {
            let failed = bench.store.rename(NameIn::new(from.0, from.1), NameIn::new(to.0, to.1));
            let failed = failed.unwrap_err();
            assert_eq!(failed.status, expected, "{from:?} {to:?}");
            assert!(failed.about.from.after.is_some() && failed.about.to.after.is_some());
        }
        bench.store.rename(NameIn::new(&b, b"g"), NameIn::new(&root, b"present")).unwrap();
        assert_eq!(bench.store.lookup(&root, b"present").unwrap().handle, file);
        bench.store.rename(NameIn::new(&a, b"b"), NameIn::new(&root, b"b")).unwrap();
        assert_eq!(bench.store.lookup(&b, b"..").unwrap().handle, root);
        assert!(bench.counts_late || bench.store.getattr(&a).unwrap().nlink == 2);
        bench.store.rename(NameIn::new(&root, b"b"), NameIn::new(&root, b"a")).unwrap();
        assert_eq!(bench.store.getattr(&a), Err(Status::Stale), "an empty directory is replaced");
        assert_eq!(bench.store.lookup(&root, b"a").unwrap().handle, b);
    }

    fn a_file_lives_until_its_last_name_is_gone(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b"x"));
        let about = bench.store.link(&file, &root, b"g").unwrap();
        assert_eq!(about.file.unwrap().nlink, 2);
        bench.store.rename(NameIn::new(&root, b"f"), NameIn::new(&root, b"g")).unwrap();
        let found = bench.store.lookup(&root, b"f").unwrap();
        assert_eq!(found.handle, file, "two names of one file stay");
        bench.store.remove(&root, b"f").unwrap();
        assert_eq!(bench.content(&file).unwrap(), b"x");
        assert_eq!(bench.store.getattr(&file).unwrap().nlink, 1);
        let dir = bench.store.mkdir(&root, b"d", &NewAttributes::default()).unwrap().handle;
        for (handle, name, expected) in [
            (&file, &b"g"[..], Status::Exist),
            (&file, b".", Status::Exist),
            (&file, b"", Status::Acces),
            (&file, &[b'x'; 256], Status::NameTooLong),
            (&dir, b"x", Status::Inval),
        ] {
            let failed = bench.store.link(handle, &root, name).unwrap_err();
            assert_eq!(failed.status, expected, "{name:?}");
            assert!(failed.about.file.is_some() && failed.about.directory.after.is_some());
        }
        assert_eq!(status(bench.store.link(&file, &file, b"x")), Status::NotDir);
    }

    fn a_listing_goes_on_whatever_comes_and_goes(bench) {
        let root = bench.root;
        let dir = bench.store.mkdir(&root, b"d", &NewAttributes::default()).unwrap().handle;
        for i in 0..200 {
            bench.store.create(&dir, format!("n{i}").as_bytes(), &guarded(0o600)).unwrap();
        }
        for piece in [1, 2, 7, 1000] {
            let mut names = bench.names(&dir, piece).unwrap();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 202);
            for (name, fileid) in names.iter().filter(|(name, _)| name.starts_with(b"n")) {
                assert_eq!(bench.store.lookup(&dir, name).unwrap().attributes.fileid, *fileid);
            }
        }
        let mut seen = Vec::new();
        let mut place = ListingStart::default();
        loop {
            let (mut left, mut cookie) = (5, place.cookie);
            let listed = bench.store.readdirplus(&dir, place, &mut |entry| {
                left -= 1;
                let object = entry.object.filter(|_| entry.name != b"..");
                assert!(object.is_none_or(|(_, attributes)| attributes.fileid == entry.fileid));
                if left >= 0 {
                    cookie = entry.cookie;
                    seen.push(entry.name.to_vec());
                }
                left >= 0
            });
            let listed = listed.unwrap();
            if let Some(name) = seen.last().filter(|name| name.starts_with(b"n")) {
                bench.store.remove(&dir, name).unwrap();
            }
            if listed.eof {
                break;
            }
            let verifier = listed.verifier;
            place = ListingStart { cookie, verifier, window: 0, ..ListingStart::default() };
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 202, "what was there all the time comes once");
        let verifier = [9; 8];
        let strange = ListingStart { cookie: 1, verifier, window: 0, ..ListingStart::default() };
        assert_eq!(status(bench.store.readdir(&dir, strange, &mut |_| true)), Status::BadCookie);
        let file = bench.file(b"f", b"");
        let listed = bench.store.readdir(&file, ListingStart::default(), &mut |_| true);
        assert_eq!(status(listed), Status::NotDir);
    }

    fn the_file_system_is_described(bench) {
        let root = bench.root;
        let (fsstat, attributes) = bench.store.fsstat(&root).unwrap();
        assert!(fsstat.total_octets >= fsstat.free_octets);
        assert!(fsstat.free_octets >= fsstat.available_octets);
        assert!(fsstat.total_octets > 0, "{fsstat:?}");
        assert_eq!(attributes, bench.store.getattr(&root).unwrap());
        let (fsinfo, _) = bench.store.fsinfo(&root).unwrap();
        assert_eq!((fsinfo.read_max, fsinfo.write_max), (1 << 20, 1 << 20));
        assert!(fsinfo.file_size_max >= 1 << 40, "{fsinfo:?}");
        let (pathconf, _) = bench.store.pathconf(&root).unwrap();
        assert_eq!((pathconf.name_max, pathconf.no_trunc), (255, true));
        assert!(pathconf.link_max > 100, "{pathconf:?}");
    }

    fn rights_follow_the_kind(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b"x"));
        let all = Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE;
        assert_eq!(bench.store.access(&root, Access::ALL).unwrap().0, all);
        assert_eq!(bench.store.access(&root, Access::LOOKUP).unwrap().0, Access::LOOKUP);
        let rw = Access::READ | Access::MODIFY | Access::EXTEND;
        assert_eq!(bench.store.access(&file, Access::ALL).unwrap().0, rw);
        let set = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        bench.store.setattr(&file, &set, None).unwrap();
        assert_eq!(bench.store.access(&file, Access::ALL).unwrap().0, rw | Access::EXECUTE);
    }
}

fn refuses_every_change<S: Store + Procedures>(mut bench: Bench<S>) {
    let root = bench.root;
    let file = bench.store.lookup(&root, b"present").unwrap().handle;
    let before = bench.store.getattr(&root).unwrap();
    let set = NewAttributes { mode: Some(0), size: Some(0), ..NewAttributes::default() };
    let store = &mut bench.store;
    for refused in [
        status(store.setattr(&file, &set, None)),
        status(store.write(&file, 0, (&b"y"[..]).into(), StableHow::FileSync)),
        status(store.commit(&file)),
        status(store.create(&root, b"n", &guarded(0o600))),
        status(store.create(&root, b"present", &CreateMode::Unchecked(set))),
        status(store.mkdir(&root, b"n", &set)),
        status(store.symlink(&root, b"n", b"t", &set)),
        status(store.mknod(&root, b"n", FileKind::Fifo.into(), &set)),
        status(store.remove(&root, b"present")),
        status(store.rmdir(&root, b"present")),
        status(store.rename(NameIn::new(&root, b"present"), NameIn::new(&root, b"g"))),
        status(store.link(&file, &root, b"g")),
    ] {
        assert_eq!(refused, Status::RoFs);
    }
    assert_eq!(store.getattr(&root).unwrap().ctime, before.ctime);
    assert_eq!(store.access(&root, Access::ALL).unwrap().0, Access::READ | Access::LOOKUP);
    assert_eq!(bench.content(&file).unwrap(), b"here");
}

#[test]
fn a_read_only_export_refuses_every_change_before_it_touches_anything() {
    refuses_every_change(files(true));
    refuses_every_change(memory(true));
    refuses_every_change(ceph(true));
    cluster(true).into_iter().for_each(refuses_every_change);
}
