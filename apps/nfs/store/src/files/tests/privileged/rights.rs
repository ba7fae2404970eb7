use super::*;
use crate::{Acl, AclEntry, AclPart, AclSubject, Procedures, Procedures4 as _};
use stag_protocol::nfs::v3::Access;

fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

#[test]
fn two_callers_in_turn_on_one_file_never_lend_each_other_their_rights() {
    let Some(mut lab) = lab(|_| {}) else { return };
    for (name, bits, staff_reads, staff_writes) in [
        ("none", 0o600, false, false),
        ("read", 0o640, true, false),
        ("write", 0o620, false, true),
        ("both", 0o660, true, true),
    ] {
        lab.give(name, ALICE, STAFF, bits);
        let file = lab.by(user(ALICE), |lab| lab.find(name));
        let expect = |right: bool| if right { Ok(()) } else { Err(Status::Acces) };
        for round in 0..6 {
            let staff = member(BOB, BOB, &[STAFF]);
            // Every order in which a descriptor can be opened.
            for step in 0..4 {
                let (who, reads, writes) = match (round + step) % 3 {
                    0 => (user(ALICE), true, true),
                    1 => (staff, staff_reads, staff_writes),
                    _ => (user(BOB), false, false),
                };
                lab.by(who, |lab| {
                    let read = |lab: &mut Lab| lab.content(&file).map(drop);
                    let write = |lab: &mut Lab| lab.write(&file, 0, b"x").map(drop);
                    if round % 2 == 0 {
                        assert_eq!(write(lab), expect(writes), "{name}, {who:?} writes");
                        assert_eq!(read(lab), expect(reads), "{name}, {who:?} reads");
                    } else {
                        assert_eq!(read(lab), expect(reads), "{name}, {who:?} reads");
                        assert_eq!(write(lab), expect(writes), "{name}, {who:?} writes");
                    }
                    let commit = lab.files.commit(&file).map(drop).map_err(|failed| failed.status);
                    assert_eq!(commit, expect(writes), "{name}, {who:?} commits");
                });
            }
            if round == 3 {
                lab = lab.restart();
            }
        }
        assert_eq!(fs::read(lab.path(name)).unwrap(), b"x");
    }
}

#[test]
fn a_list_gives_rights_and_takes_them_at_once_and_only_the_owner_sets_it() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, STAFF, 0o640);
    let file = lab.by(user(ALICE), |lab| lab.find("f"));
    let may = |lab: &mut Lab, file: &FileHandle| {
        lab.by(user(BOB), |lab| (lab.content(file).map(drop), lab.write(file, 0, b"x").map(drop)))
    };
    let set = |lab: &mut Lab, who, list: &[u8]| {
        lab.by(who, |lab| {
            let done = lab.files.set_acl(&file, AclPart::Access, list);
            done.map(drop).map_err(|failed| failed.status)
        })
    };
    let list = |rights, mask| {
        use AclSubject as S;
        let all = [(S::Owner, 6), (S::OwningGroup, 4), (S::User(BOB), rights), (S::Mask, mask)];
        let all = all.into_iter().chain([(S::Other, 0)]);
        Acl::new(all.map(|(subject, rights)| AclEntry::new(subject, rights)).collect()).unwrap()
    };
    assert_eq!(may(&mut lab, &file), (Err(Status::Acces), Err(Status::Acces)));
    if set(&mut lab, user(ALICE), &list(4, 7).octets()) == Err(Status::NotSupp) {
        return;
    }
    assert_eq!(may(&mut lab, &file), (Ok(()), Err(Status::Acces)));
    set(&mut lab, user(ALICE), &list(6, 7).octets()).unwrap();
    assert_eq!(may(&mut lab, &file), (Ok(()), Ok(())));
    // The mask has the last word, and so has the mode, whose group's rights it is.
    set(&mut lab, user(ALICE), &list(6, 4).octets()).unwrap();
    assert_eq!(may(&mut lab, &file), (Ok(()), Err(Status::Acces)));
    lab.by(user(ALICE), |lab| Procedures::setattr(&mut lab.files, &file, &mode(0o600), None))
        .unwrap();
    assert_eq!(may(&mut lab, &file), (Err(Status::Acces), Err(Status::Acces)));

    for who in [user(BOB), member(BOB, BOB, &[STAFF])] {
        assert_eq!(set(&mut lab, who, &list(7, 7).octets()), Err(Status::Perm));
        assert_eq!(set(&mut lab, who, &[]), Err(Status::Perm));
    }
    set(&mut lab, user(ALICE), &[]).unwrap();
    assert_eq!(may(&mut lab, &file), (Err(Status::Acces), Err(Status::Acces)));
}

#[test]
fn a_directorys_list_is_for_those_who_may_read_it() {
    let Some(mut lab) = lab(|_| {}) else { return };
    fs::create_dir(lab.path("d")).unwrap();
    lab.give("d/f", ALICE, ALICE, 0o644);
    lab.own("d", ALICE, STAFF, 0o740);
    let dir = lab.by(user(ALICE), |lab| lab.find("d"));
    let list = |lab: &mut Lab| {
        let mut known = None;
        let mut visit = |entry: &crate::ListedEntry<'_>| {
            if entry.name == b"f" {
                known = Some(entry.object.is_some());
            }
            true
        };
        let listed = lab.files.readdirplus(&dir, crate::ListingStart::default(), &mut visit);
        listed.map(|_| known.unwrap()).map_err(|failed| failed.status)
    };
    for _ in 0..3 {
        assert_eq!(lab.by(user(ALICE), list), Ok(true));
        assert_eq!(
            lab.by(member(BOB, STAFF, &[]), list),
            Ok(false),
            "no right to look at what is in it"
        );
        assert_eq!(lab.by(user(BOB), list), Err(Status::Acces));
    }
    lab.own("d", ALICE, STAFF, 0o700);
    assert_eq!(lab.by(member(BOB, STAFF, &[]), list), Err(Status::Acces));
}

#[test]
fn a_right_that_is_taken_away_ends_at_once_here_and_behind_our_back() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, STAFF, 0o660);
    let file = lab.by(user(ALICE), |lab| lab.find("f"));
    let staff = member(BOB, STAFF, &[]);
    let both = |lab: &mut Lab| {
        let written = lab.write(&file, 0, b"y").map(drop);
        (written, lab.content(&file).map(drop))
    };
    let (may, may_not) = ((Ok(()), Ok(())), (Err(Status::Acces), Err(Status::Acces)));
    assert_eq!(lab.by(staff, both), may);
    lab.own("f", ALICE, STAFF, 0o600);
    let cut = NewAttributes { size: Some(0), ..NewAttributes::default() };
    let set =
        |lab: &mut Lab| lab.files.set_attributes(&file, &cut, None).map_err(|failed| failed.status);
    let create = |lab: &mut Lab| {
        let root = lab.root();
        lab.files.create(&root, b"f", &CreateMode::Unchecked(cut)).map_err(|failed| failed.status)
    };
    assert_eq!(lab.by(staff, create).unwrap_err(), Status::Acces);
    assert_eq!(lab.by(staff, set).unwrap_err(), Status::Acces);
    assert_eq!(lab.by(staff, both), may_not);
    lab.by(user(ALICE), |lab| lab.files.set_attributes(&file, &mode(0o660), None)).unwrap();
    assert_eq!(lab.by(staff, both), may);
    lab.by(user(ALICE), |lab| lab.files.set_attributes(&file, &mode(0o640), None)).unwrap();
    assert_eq!(lab.by(staff, both), (Err(Status::Acces), Ok(())));
    lab.own("f", ALICE, ALICE, 0o660);
    assert_eq!(lab.by(staff, both), may_not, "another group");
    lab.own("f", BOB, ALICE, 0o000);
    assert_eq!(lab.by(staff, both), may, "its owner");
    lab.own("f", ALICE, ALICE, 0o000);
    assert_eq!(lab.by(staff, both), may_not);
    assert_eq!(lab.by(staff, set).unwrap_err(), Status::Acces);
    assert_eq!(lab.by(user(ALICE), both), may);
}

/// An access control list of `system.posix_acl_access`: the owner and perhaps one user may read and
/// write.
fn list(user: Option<u32>) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let owner = [(1_u16, 6_u16, NOBODY)];
    let named = user.map(|uid| (2, 6, uid));
    let rest = [(4, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    let mut octets = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in owner.into_iter().chain(named).chain(rest) {
        octets.extend(tag.to_le_bytes());
        octets.extend(rights.to_le_bytes());
        octets.extend(id.to_le_bytes());
    }
    octets
}

#[test]
fn a_right_that_only_an_access_list_gives_ends_with_it() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, ALICE, 0o600);
    let file = lab.by(user(ALICE), |lab| lab.find("f"));
    let set = |lab: &Lab, user| {
        let name = c"system.posix_acl_access";
        rustix::fs::setxattr(lab.path("f"), name, &list(user), rustix::fs::XattrFlags::empty())
    };
    if let Err(error) = set(&lab, Some(BOB)) {
        eprintln!("skipped: no access control lists: {error}");
        return;
    }
    let mode = fs::metadata(lab.path("f")).unwrap().mode();
    for _ in 0..3 {
        set(&lab, Some(BOB)).unwrap();
        assert_eq!(lab.by(user(BOB), |lab| lab.write(&file, 0, b"y")), Ok(1));
        assert_eq!(lab.by(user(BOB), |lab| lab.content(&file)).unwrap(), b"y");
        set(&lab, None).unwrap();
        assert_eq!(fs::metadata(lab.path("f")).unwrap().mode(), mode, "no mode bit tells");
        assert_eq!(lab.by(user(BOB), |lab| lab.content(&file)), Err(Status::Acces));
        assert_eq!(lab.by(user(BOB), |lab| lab.write(&file, 0, b"z")), Err(Status::Acces));
    }
}

#[test]
fn a_write_by_another_takes_the_set_user_bit_away() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, STAFF, 0o6777);
    let file = lab.by(user(BOB), |lab| lab.find("f"));
    assert_eq!(lab.by(user(BOB), |lab| lab.write(&file, 0, b"y")), Ok(1));
    assert_eq!(fs::metadata(lab.path("f")).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(lab.by(user(BOB), |lab| lab.write(&file, 0, b"z")), Ok(1), "and is judged again");
}

#[test]
fn what_is_made_in_a_directory_of_a_group_belongs_to_the_group() {
    let Some(mut lab) = lab(|_| {}) else { return };
    fs::create_dir(lab.path("g")).unwrap();
    lab.own("g", 0, STAFF, 0o2777);
    lab.by(user(ALICE), |lab| {
        let dir = lab.find("g");
        lab.files.create(&dir, b"f", &guarded(0o644)).unwrap();
        let made = lab.files.mkdir(&dir, b"d", &mode(0o755)).unwrap();
        assert_eq!(made.attributes.mode, 0o2755);
    });
    assert_eq!((lab.owner("g/f"), lab.owner("g/d")), ((ALICE, STAFF), (ALICE, STAFF)));
}

#[test]
fn an_exclusive_file_of_any_mode_is_its_makers_to_write() {
    let Some(mut lab) = lab(|config| config.sync_directories = true) else { return };
    let root = lab.root();
    // Without the right to read the directory, which is synced nevertheless.
    lab.own("", 0, 0, 0o733);
    let how = CreateMode::exclusive(*b"verifier");
    let file = lab.by(user(ALICE), |lab| lab.files.create(&root, b"f", &how)).unwrap().handle;
    lab.by(user(ALICE), |lab| lab.files.set_attributes(&file, &mode(0o000), None)).unwrap();
    lab = lab.restart();
    assert_eq!(lab.by(user(ALICE), |lab| lab.write(&file, 0, b"hello")), Ok(5));
    assert_eq!(lab.by(user(ALICE), |lab| lab.content(&file)).unwrap(), b"hello");
    assert_eq!(lab.by(user(BOB), |lab| lab.content(&file)), Err(Status::Acces));
    let granted = lab.by(user(ALICE), |lab| lab.files.access(&file, Access::ALL)).unwrap().0;
    assert_eq!(granted, Access::NONE, "whoever asks before he opens is told what the mode says");
}

#[test]
fn a_program_that_may_be_run_may_be_read_and_not_written() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, ALICE, 0o711);
    let file = lab.by(user(BOB), |lab| lab.find("f"));
    assert_eq!(lab.by(user(BOB), |lab| lab.content(&file)).unwrap(), b"x");
    assert_eq!(lab.by(user(BOB), |lab| lab.write(&file, 0, b"y")), Err(Status::Acces));
}

#[test]
fn only_a_change_of_the_ctime_alone_is_taken_for_our_own() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, ALICE, 0o600);
    lab.by(user(ALICE), |lab| {
        let file = lab.find("f");
        let slot = lab.files.resolve(&file, Intent::Look).unwrap();
        let before = lab.files.attributes(slot).unwrap();
        let later = FileAttributes {
            ctime: FileTime { seconds: before.ctime.seconds + 1, nanos: 0 },
            ..before
        };
        for (after, is_judged_again) in [
            (later, false),
            (FileAttributes { mode: 0o640, ..later }, true),
            (FileAttributes { uid: BOB, ..later }, true),
            (FileAttributes { gid: STAFF, ..later }, true),
        ] {
            lab.files.review(slot, &before);
            lab.files.expect_change(slot, &before, &after);
            assert_eq!(lab.files.review(slot, &after), is_judged_again, "{after:?}");
        }
        lab.files.review(slot, &before);
        lab.files.expect_change(
            slot,
            &later,
            &FileAttributes { ctime: FileTime::default(), ..later },
        );
        assert!(!lab.files.review(slot, &before), "what was not seen before is no change of ours");
    });
}
