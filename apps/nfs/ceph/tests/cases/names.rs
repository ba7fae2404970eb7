//! Names in directories.

use super::{Place, cases, name};
use stag_ceph::{CephMount, Errno, StatMask, UserPerm, Vino};
use std::collections::BTreeSet;

cases! {
    names_are_made_and_removed_as_posix_says,
    links_and_special_files_keep_what_they_are,
    a_rename_replaces_what_it_may,
    a_listing_goes_on_in_another_mount,
    a_file_without_a_name_lives_as_long_as_it_is_held,
    an_inode_of_another_mount_is_refused,
}

fn names_are_made_and_removed_as_posix_says(place: &Place) {
    let mount = place.mount();
    let (directory, root) = (place.directory(&mount), place.root());
    directory.create(&name("f"), 0o600, true, &root).unwrap();
    let again = directory.create(&name("f"), 0o600, true, &root).map(drop);
    assert_eq!(again, Err(Errno::EXIST));
    let (same, ..) = directory.create(&name("f"), 0o600, false, &root).unwrap();
    let (found, stat) = directory.lookup(&name("f"), &root).unwrap();
    assert_eq!((same.vino(), stat.inode), (found.vino(), found.vino().unwrap().inode));
    let (inner, _) = directory.make_directory(&name("d"), 0o755, &root).unwrap();
    let above = inner.lookup(&name(".."), &root).unwrap().0;
    assert_eq!(above.vino(), directory.vino());
    inner.create(&name("x"), 0o600, true, &root).unwrap();
    assert_eq!(directory.remove_directory(&name("d"), &root), Err(Errno::NOTEMPTY));
    assert_eq!(directory.unlink(&name("d"), &root), Err(Errno::ISDIR));
    assert_eq!(directory.remove_directory(&name("f"), &root), Err(Errno::NOTDIR));
    assert_eq!(directory.unlink(&name("none"), &root), Err(Errno::NOENT));
    let long = directory.create(&name(&"x".repeat(256)), 0o600, true, &root).map(drop);
    assert_eq!(long, Err(Errno::NAMETOOLONG));
    directory.create(&name(&"x".repeat(255)), 0o600, true, &root).unwrap();
    inner.unlink(&name("x"), &root).unwrap();
    directory.remove_directory(&name("d"), &root).unwrap();
    assert_eq!(directory.lookup(&name("d"), &root).map(drop), Err(Errno::NOENT));
}

fn links_and_special_files_keep_what_they_are(place: &Place) {
    let mount = place.mount();
    let (directory, root) = (place.directory(&mount), place.root());
    let (link, stat) = directory.make_link(&name("l"), &name("to/here"), &root).unwrap();
    assert_eq!((stat.size, u32::from(stat.mode) & 0o170_000), (7, 0o120_000));
    let mut target = [0; 100];
    assert_eq!(link.read_link(&mut target, &root), Ok(7));
    assert_eq!(target.get(..7), Some(&b"to/here"[..]));
    assert_eq!(directory.read_link(&mut target, &root), Err(Errno::INVAL));
    let device = libc::makedev(7, 8);
    let (_, stat) = directory.make_node(&name("c"), 0o020_600, device, &root).unwrap();
    assert_eq!((u32::from(stat.mode), stat.special), (0o020_600, device));
    let (_, stat) = directory.make_node(&name("p"), 0o010_644, 0, &root).unwrap();
    assert_eq!(u32::from(stat.mode), 0o010_644);

    let (file, ..) = directory.create(&name("f"), 0o600, true, &root).unwrap();
    file.link(&directory, &name("g"), &root).unwrap();
    assert_eq!(file.link(&directory, &name("g"), &root), Err(Errno::EXIST));
    assert_eq!(file.attributes(StatMask::ALL, &root).unwrap().links, 2);
    assert!(directory.link(&directory, &name("h"), &root).is_err(), "of a directory");
}

fn a_rename_replaces_what_it_may(place: &Place) {
    let mount = place.mount();
    let (directory, root) = (place.directory(&mount), place.root());
    let (file, ..) = directory.create(&name("a"), 0o600, true, &root).unwrap();
    directory.create(&name("b"), 0o600, true, &root).unwrap();
    let (inner, _) = directory.make_directory(&name("d"), 0o700, &root).unwrap();
    directory.rename(&name("a"), &directory, &name("b"), &root).unwrap();
    assert_eq!(directory.lookup(&name("b"), &root).unwrap().0.vino(), file.vino());
    assert_eq!(directory.rename(&name("a"), &directory, &name("b"), &root), Err(Errno::NOENT));
    directory.rename(&name("b"), &inner, &name("c"), &root).unwrap();
    assert_eq!(inner.rename(&name("c"), &directory, &name("d"), &root), Err(Errno::NOTEMPTY));
    directory.make_directory(&name("e"), 0o700, &root).unwrap();
    assert_eq!(inner.rename(&name("c"), &directory, &name("e"), &root), Err(Errno::ISDIR));
    assert_eq!(directory.rename(&name("e"), &inner, &name("c"), &root), Err(Errno::NOTDIR));
    assert_eq!(directory.rename(&name("d"), &inner, &name("e"), &root), Err(Errno::INVAL));
    let (other, _) = directory.make_directory(&name("o"), 0o700, &root).unwrap();
    assert_eq!(directory.rename(&name("o"), &directory, &name("d"), &root), Err(Errno::NOTEMPTY));
    inner.unlink(&name("c"), &root).unwrap();
    directory.rename(&name("o"), &directory, &name("d"), &root).unwrap();
    assert_eq!(directory.lookup(&name("d"), &root).unwrap().0.vino(), other.vino());
}

/// Names and places from `place` on, at most `count`.
fn list(mount: &CephMount, directory: u64, place: u64, count: usize) -> (Vec<String>, u64) {
    let root = UserPerm::root(mount.library());
    let inode = mount.inode(Vino::live(directory)).unwrap();
    let mut open = inode.open_directory(&root).unwrap();
    open.seek(place).unwrap();
    let (mut names, mut last) = (Vec::new(), place);
    while names.len() < count
        && let Some(entry) = open.next(StatMask::ALL).unwrap()
    {
        assert!(entry.attributes.inode > 0 && entry.next > last);
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        last = entry.next;
    }
    (names, last)
}

fn a_listing_goes_on_in_another_mount(place: &Place) {
    let (one, other) = (place.mount(), place.mount());
    let (directory, root) = (place.directory(&one), place.root());
    let mut expected = BTreeSet::from([".".to_owned(), "..".to_owned()]);
    for number in 0..60 {
        let text = format!("entry {number}");
        directory.create(&name(&text), 0o600, true, &root).unwrap();
        expected.insert(text);
    }
    let number = directory.vino().unwrap().inode;
    let (mut found, mut next) = (Vec::new(), 0);
    for mount in [&one, &other].into_iter().cycle() {
        let (names, last) = list(mount, number, next, 7);
        if names.is_empty() {
            break;
        }
        found.extend(names);
        next = last;
    }
    assert_eq!(found.len(), expected.len(), "none twice");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    let mut open = directory.open_directory(&root).unwrap();
    assert_eq!(open.seek(u64::MAX), Err(Errno::INVAL));
}

fn a_file_without_a_name_lives_as_long_as_it_is_held(place: &Place) {
    let mount = place.mount();
    let (directory, root) = (place.directory(&mount), place.root());
    let (inode, file, stat) = directory.create(&name("f"), 0o600, true, &root).unwrap();
    directory.unlink(&name("f"), &root).unwrap();
    assert_eq!(inode.attributes(StatMask::ALL, &root).unwrap().links, 0);
    assert_eq!(file.write_at(0, b"still"), Ok(5));
    drop((inode, file, directory));
    if place.is_real {
        // A metadata server forgets it when it likes.
        return;
    }
    assert_eq!(mount.inode(Vino::live(stat.inode)).map(drop), Err(Errno::STALE));
}

fn an_inode_of_another_mount_is_refused(place: &Place) {
    let (one, other) = (place.mount(), place.mount());
    let (here, there) = (place.directory(&one), place.directory(&other));
    let root = place.root();
    let (file, ..) = here.create(&name("f"), 0o600, true, &root).unwrap();
    assert_eq!(file.link(&there, &name("g"), &root), Err(Errno::STALE));
    assert_eq!(here.rename(&name("f"), &there, &name("g"), &root), Err(Errno::STALE));
    assert!(here.lookup(&name("f"), &root).is_ok());
    assert!(one.generation() < other.generation());
    assert_eq!(there.generation(), other.generation());
}
