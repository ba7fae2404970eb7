//! Content and attributes.

use super::{Place, cases, name};
use stag_ceph::{
    CephStat, Errno, OpenFlags, SetStamp, SetStat, Stamp, StatMask, SyncKind, UserPerm, Vino,
};

cases! {
    content_is_written_and_found_again_by_number,
    attributes_are_set_by_those_who_may,
    callers_are_judged_by_their_numbers_and_groups,
    sizes_end_at_the_limit,
    extended_attributes_are_kept,
    space_is_told,
}

fn attributes(inode: &stag_ceph::CephInode, place: &Place) -> CephStat {
    inode.attributes(StatMask::ALL, &place.root()).unwrap()
}

fn content_is_written_and_found_again_by_number(place: &Place) {
    let (one, other) = (place.mount(), place.mount());
    let root = place.root();
    let directory = place.directory(&one);
    let (inode, file, made) = directory.create(&name("f"), 0o640, true, &root).unwrap();
    assert_eq!((u32::from(made.mode), made.size, made.uid), (0o100_640, 0, 0));
    assert_eq!(inode.vino(), Ok(Vino::live(made.inode)));
    assert!(StatMask::ALL.is_known(&made));

    let content: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    assert_eq!(file.write_at(0, &content), Ok(content.len()));
    assert_eq!(file.write_at(3 << 20, b"end"), Ok(3));
    file.sync(SyncKind::Data).unwrap();
    file.sync(SyncKind::All).unwrap();

    let same = other.inode(Vino::live(made.inode)).unwrap();
    assert_eq!(attributes(&same, place).size, (3 << 20) + 3);
    let open = same.open(OpenFlags::Read, &root).unwrap();
    let mut back = vec![1; 1 << 20];
    assert_eq!(open.read_at(0, &mut back), Ok(1 << 20));
    assert!(back == content);
    assert_eq!(open.read_at(2 << 20, &mut back), Ok(1 << 20));
    assert!(back.iter().all(|octet| *octet == 0), "a hole");
    assert_eq!(open.read_at((3 << 20) + 1, &mut back), Ok(2));
    assert_eq!(back.get(..2), Some(&b"nd"[..]));
    assert_eq!(open.read_at(4 << 20, &mut back), Ok(0));
    assert_eq!(open.read_at(u64::MAX, &mut back), Err(Errno::INVAL));
    assert_eq!(open.write_at(0, b"x"), Err(Errno::BADF), "opened to read");
}

fn attributes_are_set_by_those_who_may(place: &Place) {
    let mount = place.mount();
    let (root, owner) = (place.root(), UserPerm::new(place.library, 1_000, 1_000, &[]));
    let directory = place.directory(&mount);
    let (inode, _file, _) = directory.create(&name("f"), 0o622, true, &owner).unwrap();
    let stamp = |seconds| Stamp { seconds, nanos: 123_456_789 };
    let set = SetStat {
        mode: Some(0o4622),
        size: Some(10),
        accessed: Some(SetStamp::At(stamp(1_000))),
        modified: Some(SetStamp::At(stamp(2_000))),
        ..SetStat::default()
    };
    inode.set_attributes(&set, &owner).unwrap();
    let after = attributes(&inode, place);
    assert_eq!((after.size, u32::from(after.mode)), (10, 0o104_622));
    assert_eq!((after.accessed, after.modified), (stamp(1_000), stamp(2_000)));

    let stranger = UserPerm::new(place.library, 1_001, 1_001, &[]);
    let mode = SetStat { mode: Some(0o777), ..SetStat::default() };
    assert_eq!(inode.set_attributes(&mode, &stranger), Err(Errno::PERM));
    let at = SetStat { modified: Some(SetStamp::At(stamp(1))), ..SetStat::default() };
    assert_eq!(inode.set_attributes(&at, &stranger), Err(Errno::PERM));
    let now = SetStat { modified: Some(SetStamp::Now(stamp(3_000))), ..SetStat::default() };
    inode.set_attributes(&now, &stranger).expect("he may write the file");
    assert_eq!(attributes(&inode, place).modified, stamp(3_000));
    let give = SetStat { uid: Some(1_001), gid: Some(1_001), ..SetStat::default() };
    assert_eq!(inode.set_attributes(&give, &owner), Err(Errno::PERM));
    inode.set_attributes(&give, &root).unwrap();
    let after = attributes(&inode, place);
    assert_eq!((after.uid, after.gid), (1_001, 1_001));
}

fn callers_are_judged_by_their_numbers_and_groups(place: &Place) {
    let mount = place.mount();
    let directory = place.directory(&mount);
    let owner = UserPerm::new(place.library, 1_000, 2_000, &[]);
    let (inode, _file, made) = directory.create(&name("f"), 0o640, true, &owner).unwrap();
    assert_eq!((made.uid, made.gid), (1_000, 2_000));
    let groups = [5, 2_000];
    let colleague = UserPerm::new(place.library, 1_001, 1_001, &groups);
    let stranger = UserPerm::new(place.library, 1_001, 1_001, &[]);
    let open = |flags, user: &UserPerm<'_>| inode.open(flags, user).map(drop);
    assert_eq!(open(OpenFlags::ReadWrite, &owner), Ok(()));
    assert_eq!(open(OpenFlags::Read, &colleague), Ok(()));
    assert_eq!(open(OpenFlags::ReadWrite, &colleague), Err(Errno::ACCESS));
    assert_eq!(open(OpenFlags::Read, &stranger), Err(Errno::ACCESS));
    assert_eq!(open(OpenFlags::ReadWrite, &place.root()), Ok(()));

    let closed = directory.make_directory(&name("d"), 0o700, &owner).unwrap().0;
    assert_eq!(closed.lookup(&name("x"), &owner).map(drop), Err(Errno::NOENT));
    for error in [
        closed.lookup(&name("x"), &stranger).map(drop),
        closed.create(&name("x"), 0o600, true, &stranger).map(drop),
        closed.open_directory(&stranger).map(drop),
    ] {
        assert_eq!(error, Err(Errno::ACCESS));
    }
}

fn sizes_end_at_the_limit(place: &Place) {
    let mount = place.mount();
    let directory = place.directory(&mount);
    let root = place.root();
    let (inode, file, _) = directory.create(&name("f"), 0o600, true, &root).unwrap();
    let limit = 1 << 40;
    assert_eq!(file.write_at(limit, b"x"), Err(Errno::FBIG));
    assert_eq!(file.write_at(u64::MAX, b"x"), Err(Errno::FBIG));
    let size = SetStat { size: Some(limit + 1), ..SetStat::default() };
    assert_eq!(inode.set_attributes(&size, &root), Err(Errno::FBIG));
    assert_eq!(attributes(&inode, place).size, 0);
}

fn extended_attributes_are_kept(place: &Place) {
    let mount = place.mount();
    let directory = place.directory(&mount);
    let root = place.root();
    let mut room = [0; 8];
    let none = directory.extended(&name("user.colour"), &mut room, &root);
    assert_eq!(none, Err(Errno::NODATA));
    directory.set_extended(&name("user.colour"), b"blue", &root).unwrap();
    assert_eq!(directory.extended(&name("user.colour"), &mut room, &root), Ok(4));
    assert_eq!(room.get(..4), Some(&b"blue"[..]));
    let short = directory.extended(&name("user.colour"), &mut [0; 2], &root);
    assert_eq!(short, Err(Errno::RANGE));
}

fn space_is_told(place: &Place) {
    let space = place.mount().root().unwrap().space().unwrap();
    assert!(space.block_len > 0 && space.free <= space.blocks);
}
