//! Tests of RFC 1813's requirements on a store that [`behaviour`](super::behaviour) lacks.

use super::*;
use stag_protocol::nfs::v3::{FileKind, FsInfo, Time};

on_every_store! {
    fn a_handle_never_names_a_later_object(bench) {
        let root = bench.root;
        let mut gone: Vec<FileHandle> = Vec::new();
        for round in 0..100_u32 {
            let name = round.to_string();
            let handle = bench.file(name.as_bytes(), b"content");
            assert!(!gone.contains(&handle), "round {round}");
            for old in &gone {
                match bench.store.getattr(old) {
                    // A removed file may live on while it is open.
                    Ok(attributes) => assert_eq!(attributes.nlink, 0),
                    Err(status) => assert_eq!(status, Status::Stale),
                }
            }
            bench.store.remove(&root, name.as_bytes()).unwrap();
            gone.push(handle);
        }
    }

    fn a_handle_of_a_living_object_with_one_bit_flipped_is_refused(bench) {
        let whole = bench.file(b"f", b"content").octets().to_vec();
        for bit in 0..whole.len() * 8 {
            let mut octets = whole.clone();
            octets[bit / 8] ^= 1 << (bit % 8);
            let found = bench.store.getattr(&FileHandle::new(&octets).unwrap());
            // A bit of what names an instance of a store may make it that of an earlier one.
            let is_refused = matches!(found, Err(Status::BadHandle | Status::Stale));
            assert!(is_refused, "bit {bit}: {found:?}");
        }
    }

    fn access_that_is_not_given_is_no_error(bench) {
        let file = bench.file(b"f", b"no program");
        let (granted, attributes) = bench.store.access(&file, Access::EXECUTE).unwrap();
        assert_eq!((granted, attributes.kind), (Access::NONE, FileKind::Regular));
    }

    fn a_read_of_nothing_is_checked_like_any_other(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b"content"));
        let set = NewAttributes::default();
        let pipe = bench.store.mknod(&root, b"p", FileKind::Fifo.into(), &set).unwrap().handle;
        let done = bench.read(&file, 3, 0).unwrap();
        assert_eq!((done.data.len(), done.eof), (0, false));
        assert_eq!(bench.read(&pipe, 0, 0).unwrap_err(), Status::Inval);
        assert_eq!(bench.read(&root, 0, 0).unwrap_err(), Status::IsDir);
    }

    fn an_empty_write_changes_no_time(bench) {
        let file = bench.file(b"f", b"content");
        let past = NewTime::Client(FileTime { seconds: 1000, nanos: 1 });
        let set = NewAttributes { mtime: past, atime: past, ..NewAttributes::default() };
        bench.store.setattr(&file, &set, None).unwrap();
        let before = bench.store.getattr(&file).unwrap();
        for offset in [0, 7, 1 << 40] {
            assert_eq!(bench.write(&file, offset, b""), Ok(0));
            let after = bench.store.getattr(&file).unwrap();
            assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime), "{offset}");
            assert_eq!(after.size, 7);
        }
        assert_eq!(bench.write(&file, 0, b"c"), Ok(1));
        assert_ne!(bench.store.getattr(&file).unwrap().mtime, before.mtime);
    }

    fn a_commit_with_nothing_to_flush_succeeds(bench) {
        let file = bench.store.create(&bench.root.clone(), b"f", &guarded(0o600)).unwrap().handle;
        for _ in 0..3 {
            assert_eq!(bench.store.commit(&file).unwrap().verifier, bench.store.verifier());
        }
    }

    fn fsinfo_says_what_is_so(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b""));
        let (found, _) = bench.store.fsinfo(&root).unwrap();
        let preferred = (found.read_preferred, found.write_preferred);
        assert_eq!(preferred, (found.read_max, found.write_max));
        let all = FsInfo::LINK | FsInfo::SYMLINK | FsInfo::HOMOGENEOUS | FsInfo::CAN_SET_TIME;
        assert_eq!(found.properties, all);
        bench.store.link(&file, &root, b"link").unwrap();
        bench.store.symlink(&root, b"symlink", b"f", &NewAttributes::default()).unwrap();
        assert_eq!(bench.store.pathconf(&root).unwrap().0, bench.store.pathconf(&file).unwrap().0);
        assert_eq!(found.time_delta, Time { seconds: 0, nanos: 1 });
        for nanos in [1, 123_456_789, 999_999_999] {
            let time = FileTime { seconds: 1_000_000_000, nanos };
            let set = NewAttributes { mtime: NewTime::Client(time), ..NewAttributes::default() };
            bench.store.setattr(&file, &set, None).unwrap();
            assert_eq!(bench.store.getattr(&file).unwrap().mtime, time);
        }
    }

    fn pathconf_says_how_names_are_treated(bench) {
        let root = bench.root;
        let (found, _) = bench.store.pathconf(&root).unwrap();
        let made = [&b"name"[..], b"Name", b"NAME"].map(|name| bench.file(name, name));
        assert!(!found.case_insensitive && made[0] != made[1] && made[1] != made[2]);
        let names = bench.names(&root, 10).unwrap();
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        let is_listed = |name: &[u8]| names.iter().any(|listed| listed == name);
        assert!(found.case_preserving && is_listed(b"Name") && is_listed(b"NAME"));
        let longest = vec![b'n'; found.name_max as usize];
        bench.file(&longest, b"");
        let longer = [&longest[..], b"n"].concat();
        assert!(found.no_trunc);
        let failed = bench.store.create(&root, &longer, &guarded(0o600)).unwrap_err();
        assert_eq!(failed.status, Status::NameTooLong);
    }

    fn pathconf_says_who_may_give_a_file_away(bench) {
        let (root, file) = (bench.root, bench.file(b"f", b""));
        let is_restricted = bench.store.pathconf(&root).unwrap().0.chown_restricted;
        let set = NewAttributes { uid: Some(4_000_000_000), ..NewAttributes::default() };
        let outcome = bench.store.setattr(&file, &set, None);
        let outcome = outcome.map(drop).map_err(|failed| failed.status);
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(outcome, if is_restricted && !is_root { Err(Status::Perm) } else { Ok(()) });
        assert_eq!(is_restricted, bench.store.exports().count() == 1 && is_of_files(&bench.store));
    }
}

/// True for a store that keeps its files in a file system, which restricts changes of owner.
fn is_of_files<S: Store + Procedures>(store: &S) -> bool {
    store.pool().is_none()
}
