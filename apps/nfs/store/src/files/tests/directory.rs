use super::*;
use crate::{ListedEntry, ListingStart};
use stag_protocol::{
    nfs::v3::{
        Entry, EntryPlus, Name, PlusLimits, ReadDirPlusArgs, ReadDirPlusResult, ReadDirPlusWriter,
    },
    xdr::{Codec, Reader, Writer},
};
use std::{collections::BTreeMap, os::unix::fs::MetadataExt};

/// Lists a directory in windows of `count` entries; calls `between` after each window.
fn list(
    lab: &mut Lab,
    dir: &FileHandle,
    count: usize,
    between: &mut dyn FnMut(usize),
) -> BTreeMap<String, u64> {
    let mut names = BTreeMap::new();
    let (mut place, mut windows) = (ListingStart::default(), 0);
    loop {
        let mut taken = 0;
        let mut cookie = place.cookie;
        let mut visit = |entry: &ListedEntry<'_>| {
            if taken == count {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            assert!(names.insert(name.clone(), entry.fileid).is_none(), "{name} came twice");
            true
        };
        let listed = if windows % 2 == 0 {
            lab.files.readdir(dir, place, &mut visit).unwrap()
        } else {
            lab.files.readdirplus(dir, place, &mut visit).unwrap()
        };
        if listed.eof {
            return names;
        }
        place = ListingStart {
            cookie,
            verifier: listed.verifier,
            window: 8192,
            ..ListingStart::default()
        };
        windows += 1;
        between(windows);
    }
}

#[test]
fn two_thousand_entries_come_once_each_in_windows_of_any_size() {
    let mut lab = Lab::new();
    for number in 0..2000 {
        fs::write(lab.path(&format!("file-{number}")), b"").unwrap();
    }
    let root = lab.root();
    for count in [1, 7, 100, 5000] {
        let names = list(&mut lab, &root, count, &mut |_| {});
        assert_eq!(names.len(), 2002, "windows of {count}");
        assert!((0..2000).all(|number| names.contains_key(&format!("file-{number}"))));
    }
}

#[test]
fn entries_that_stay_come_once_each_while_others_are_removed() {
    let mut lab = Lab::new();
    for number in 0..2000 {
        fs::write(lab.path(&format!("file-{number}")), b"").unwrap();
    }
    let (root, home) = (lab.root(), lab.path(""));
    let mut next = 0;
    let names = list(&mut lab, &root, 20, &mut |_| {
        for _ in 0..10 {
            if next < 2000 {
                fs::remove_file(home.join(format!("file-{next}"))).unwrap();
                next += 2;
            }
        }
    });
    assert!((1..2000).step_by(2).all(|number| names.contains_key(&format!("file-{number}"))));
    assert!(next > 500, "the test removes while it lists");
}

#[test]
fn dot_and_dot_dot_have_the_right_ids() {
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    let (root, dir) = (lab.root(), lab.find("d"));
    let (root_id, dir_id) =
        (fs::metadata(lab.path("")).unwrap().ino(), fs::metadata(lab.path("d")).unwrap().ino());
    let names = list(&mut lab, &root, 1, &mut |_| {});
    assert_eq!((names["."], names[".."], names["d"]), (root_id, root_id, dir_id));
    let names = list(&mut lab, &dir, 100, &mut |_| {});
    assert_eq!((names["."], names[".."]), (dir_id, root_id));
}

#[test]
fn readdirplus_tells_what_lookup_tells() {
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    fs::write(lab.path("f"), b"abc").unwrap();
    std::os::unix::fs::symlink("t", lab.path("l")).unwrap();
    let root = lab.root();
    let mut seen = Vec::new();
    let mut visit = |entry: &ListedEntry<'_>| {
        seen.push((entry.name.to_vec(), entry.object.unwrap()));
        true
    };
    assert!(lab.files.readdirplus(&root, ListingStart::default(), &mut visit).unwrap().eof);
    assert_eq!(seen.len(), 5);
    for (name, (handle, attributes)) in seen {
        let found = lab.files.lookup(&root, &name).unwrap();
        assert_eq!((found.handle, found.attributes.fileid), (handle, attributes.fileid));
        // Listing a directory is an access to it.
        assert_eq!(
            found.attributes,
            FileAttributes { atime: found.attributes.atime, ..attributes }
        );
    }
}

#[test]
fn cookies_that_are_none_of_ours_are_refused_or_end_the_list() {
    let mut lab = Lab::new();
    let (root, file) = (lab.root(), lab.file("f", b""));
    let mut never = |_: &ListedEntry<'_>| true;
    let place =
        ListingStart { cookie: 3, verifier: [1; 8], window: 100, ..ListingStart::default() };
    let failed = lab.files.readdir(&root, place, &mut never).unwrap_err();
    assert_eq!((failed.status, failed.about.is_some()), (Status::BadCookie, true));
    let place = ListingStart { cookie: u64::MAX, ..ListingStart::default() };
    assert_eq!(lab.files.readdir(&root, place, &mut never).unwrap_err().status, Status::BadCookie);
    assert_eq!(
        lab.files.readdir(&file, ListingStart::default(), &mut never).unwrap_err().status,
        Status::NotDir
    );
    for shift in 0..63 {
        let place = ListingStart { cookie: 1 << shift, ..ListingStart::default() };
        let _ = lab.files.readdir(&root, place, &mut never);
    }
}

#[test]
fn a_directory_that_takes_no_entry_is_not_at_its_end() {
    let mut lab = Lab::new();
    let root = lab.root();
    assert!(!lab.files.readdir(&root, ListingStart::default(), &mut |_| false).unwrap().eof);
}

/// Fills a reply of READDIRPLUS, as version 3 of the gateway does.
fn fill_plus(lab: &mut Lab, args: &ReadDirPlusArgs, writer: &mut Writer<'_>) {
    let directory = lab.files.getattr(&args.dir).unwrap().into();
    let limits = PlusLimits { dir_count: args.dir_count, max_count: args.max_count };
    let mut list =
        ReadDirPlusWriter::begin(writer, Some(directory), args.verifier, limits).unwrap();
    let place = ListingStart::plus(args, list.room());
    let mut push = |found: &ListedEntry<'_>| {
        let entry = Entry { fileid: found.fileid, name: Name(found.name), cookie: found.cookie };
        let (handle, attributes) = found.object.unzip();
        list.push(&EntryPlus { entry, attributes: attributes.map(Into::into), handle }).is_ok()
    };
    let listed = lab.files.readdirplus(&args.dir, place, &mut push).unwrap();
    list.finish(listed.eof).unwrap();
}

/// Names of all entries by READDIRPLUS in replies of `octets` bytes, in order, and the number of
/// replies.
pub(super) fn listing(lab: &mut Lab, dir: &FileHandle, octets: u32) -> (Vec<Vec<u8>>, usize) {
    let (mut names, mut replies, mut cookie) = (vec![], 0, 0);
    let mut reply = vec![0; octets as usize];
    loop {
        let (verifier, dir_count, max_count) = ([0; 8], octets, octets);
        let args = ReadDirPlusArgs { dir: *dir, cookie, verifier, dir_count, max_count };
        let mut writer = Writer::new(&mut reply);
        fill_plus(lab, &args, &mut writer);
        let len = writer.len();
        let results = ReadDirPlusResult::parse(&mut Reader::new(&reply[..len])).unwrap().unwrap();
        for entry in results.entries {
            cookie = entry.entry.cookie;
            names.push(entry.entry.name.0.to_vec());
            assert_eq!(entry.handle.is_some(), entry.attributes.is_some());
        }
        replies += 1;
        if results.eof {
            return (names, replies);
        }
    }
}

/// A directory of many files, listed in replies of any size: each entry is looked up once, so that
/// a larger reply never costs more.
pub(super) fn each_entry_is_looked_at_once(lab: &mut Lab) {
    let dir = lab.find("d");
    let (mut fewest, mut expected) = (usize::MAX, vec![]);
    for octets in [2_048, 4_096, 8_192, 16_384, 32_768, 65_536] {
        let before = lab.files.counts().looks;
        let (mut names, replies) = listing(lab, &dir, octets);
        assert_eq!(
            lab.files.counts().looks - before,
            3_000,
            "{replies} replies of {octets} octets"
        );
        assert!(replies < fewest, "{replies} replies of {octets} octets, {fewest} smaller ones");
        assert!(
            replies <= 3_002 * 220 / octets as usize + 1,
            "{replies} replies of {octets} octets are full"
        );
        fewest = replies;
        names.sort();
        assert!(expected.is_empty() || names == expected, "{octets}");
        expected = names;
    }
    assert_eq!(expected.len(), 3_002);
}

pub(super) fn fill(dir: PathBuf) {
    fs::create_dir(&dir).unwrap();
    for number in 0..3_000_u32 {
        // Names of all lengths, so that replies end at any position.
        let name = format!("{number}-{}", "x".repeat(number as usize % 37));
        fs::write(dir.join(name), b"").unwrap();
    }
}

#[test]
fn a_larger_reply_looks_at_no_more_entries() {
    let mut lab = Lab::new();
    fill(lab.path("d"));
    each_entry_is_looked_at_once(&mut lab);
}
