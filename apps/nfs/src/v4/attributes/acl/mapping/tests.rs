//! Both mappings, held against the way in which each kind of list decides.

use super::*;

const RIGHTS: [u32; 3] = [READ, WRITE, EXECUTE];

/// A user who asks for rights to an object, whose owner is user 0 and whose group is group 0.
#[derive(Clone, Debug)]
struct Asker {
    uid: u32,
    gids: Vec<u32>,
}

/// All users of interest: the owner, three others, each in every set of three groups.
fn askers() -> impl Iterator<Item = Asker> {
    (0..4).flat_map(|uid| {
        (0..8_u32).map(move |set| {
            let gids = (0..3).filter(|gid| set >> gid & 1 == 1).collect();
            Asker { uid, gids }
        })
    })
}

/// Rights by acl(5).
fn posix_grants(list: &Acl, asker: &Asker, right: u32) -> bool {
    let rights_of = |subject| {
        let entry = list.entries().iter().find(|entry| entry.subject == subject);
        entry.map(|entry| entry.rights)
    };
    let mask = rights_of(AclSubject::Mask).unwrap_or(7);
    if asker.uid == 0 {
        return rights_of(AclSubject::Owner).unwrap() & right != 0;
    }
    if let Some(rights) = rights_of(AclSubject::User(asker.uid)) {
        return rights & mask & right != 0;
    }
    let own = asker.gids.contains(&0).then(|| rights_of(AclSubject::OwningGroup).unwrap());
    let named = asker.gids.iter().filter_map(|gid| rights_of(AclSubject::Group(*gid)));
    let groups = own.into_iter().chain(named).collect::<Vec<_>>();
    match groups.is_empty() {
        false => groups.iter().any(|rights| rights & mask & right != 0),
        true => rights_of(AclSubject::Other).unwrap() & right != 0,
    }
}

/// Rights by RFC 8881 §6.2.1: each bit is decided by the first entry that names it.
fn version4_grants(aces: &[AceOf], asker: &Asker, right: u32, is_directory: bool) -> bool {
    let mut rest = rights_mask(right, is_directory);
    for ace in aces.iter().filter(|ace| ace.inheritance & flag::INHERIT_ONLY == 0) {
        let applies = match ace.subject {
            AceSubject::Owner => asker.uid == 0,
            AceSubject::User(id) => asker.uid == id,
            AceSubject::Group => asker.gids.contains(&0),
            AceSubject::Members(id) => asker.gids.contains(&id),
            AceSubject::Everyone => true,
        };
        if applies && ace.denies && ace.mask & rest != 0 {
            return false;
        }
        if applies && !ace.denies {
            rest &= !ace.mask;
        }
    }
    rest == 0
}

fn some_list(random: &mut fastrand::Rng) -> Acl {
    let mut entry = |subject| AclEntry::new(subject, random.u32(0..8));
    let mut entries =
        vec![entry(AclSubject::Owner), entry(AclSubject::OwningGroup), entry(AclSubject::Other)];
    let named = [1, 2].map(AclSubject::User).into_iter().chain([1, 2].map(AclSubject::Group));
    let named = named.map(|subject| (entry(subject), entry(AclSubject::Mask))).collect::<Vec<_>>();
    let chosen = named.iter().filter(|_| random.bool()).collect::<Vec<_>>();
    entries.extend(chosen.iter().map(|(entry, _)| *entry));
    entries.extend(chosen.first().map(|(_, mask)| *mask));
    Acl::new(entries).unwrap()
}

fn some_aces(random: &mut fastrand::Rng) -> Vec<AceOf> {
    let bits = right::READ_DATA | write_mask(true) | right::EXECUTE;
    let ace = |random: &mut fastrand::Rng| AceOf {
        denies: random.bool(),
        inheritance: 0,
        mask: random.u32(..) & bits,
        subject: match random.u32(0..7) {
            0 => AceSubject::Owner,
            1 => AceSubject::Group,
            2 => AceSubject::Everyone,
            3 | 4 => AceSubject::User(random.u32(0..3)),
            _ => AceSubject::Members(random.u32(0..3)),
        },
    };
    (0..random.u32(0..9)).map(|_| ace(random)).collect()
}

fn pair(access: Acl) -> AclPair {
    AclPair { access, default: None }
}

#[test]
fn a_posix_list_as_one_of_version_4_grants_the_same() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..3_000 {
        let (list, is_directory) = (some_list(&mut random), round % 2 == 0);
        let aces = aces_of(&pair(list.clone()), is_directory);
        for asker in askers() {
            for right in RIGHTS {
                let granted = version4_grants(&aces, &asker, right, is_directory);
                // The owner may be a user or a member of a group that a later entry is about.
                assert_eq!(
                    granted,
                    posix_grants(&list, &asker, right),
                    "{list:?} as {aces:?}: {asker:?} asks for {right}"
                );
            }
        }
    }
}

#[test]
fn a_posix_list_comes_back_with_its_rights_as_far_as_the_mask_lets_them() {
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..3_000 {
        let (access, default) = (some_list(&mut random), some_list(&mut random));
        let is_directory = round % 2 == 0;
        let lists = AclPair { access, default: is_directory.then_some(default) };
        let back = lists_of(&aces_of(&lists, is_directory), is_directory).unwrap();
        let both = [(Some(lists.access), Some(back.access)), (lists.default, back.default)];
        for (sent, back) in both {
            assert_eq!(sent.is_some(), back.is_some());
            let (Some(sent), Some(back)) = (sent, back) else { continue };
            let all = ListSummary::of(&sent);
            let limited = sent.entries().iter().map(|entry| match entry.subject {
                AclSubject::Owner | AclSubject::Other => *entry,
                AclSubject::Mask => {
                    AclEntry::new(entry.subject, all.users | all.group | all.groups)
                }
                subject => AclEntry::new(subject, entry.rights & all.mask),
            });
            assert_eq!(back.entries(), limited.collect::<Vec<_>>(), "{sent:?}");
        }
    }
}

#[test]
fn no_list_of_version_4_becomes_one_that_grants_more() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut kept = 0;
    for round in 0..20_000 {
        let (aces, is_directory) = (some_aces(&mut random), round % 2 == 0);
        let list = lists_of(&aces, is_directory).unwrap().access;
        for asker in askers() {
            for right in RIGHTS {
                let granted = posix_grants(&list, &asker, right);
                let may = version4_grants(&aces, &asker, right, is_directory);
                assert!(may || !granted, "{aces:?} as {list:?}: {asker:?} gets {right}");
                kept += u32::from(granted);
            }
        }
    }
    assert!(kept > 100_000, "{kept} rights are granted at all");
}

#[test]
fn the_list_of_a_mode_is_that_of_linux() {
    let text = |mode, is_directory| {
        let aces = aces_of(&pair(Acl::of_mode(mode)), is_directory);
        aces.iter()
            .map(|ace| {
                let kind = if ace.denies { 'D' } else { 'A' };
                format!("{kind} {:?} {:#x}", ace.subject, ace.mask)
            })
            .collect::<Vec<_>>()
    };
    // As `nfs4_getfacl` shows them: rwatTcCy, rtcy and tcy.
    assert_eq!(text(0o640, false), ["A Owner 0x160187", "A Group 0x120081", "A Everyone 0x120080"]);
    assert_eq!(
        text(0o466, true),
        ["D Owner 0x46", "A Owner 0x160181", "A Group 0x1200c7", "A Everyone 0x1200c7"]
    );
    assert_eq!(text(0o707, false)[1..3], ["A Group 0x120080", "D Group 0x27"]);
}

#[test]
fn entries_that_cannot_be_stored_are_refused() {
    use stag_protocol::nfs::v4::Text;
    let ace = Ace { kind: Ace::ALLOW, flags: 0, mask: 1, who: Text(Ace::OWNER) };
    let status = |ace: &Ace<'_>| received(ace, AceSubject::Owner).err();
    assert_eq!(status(&ace), None);
    for kind in [2, 3, u32::MAX] {
        assert_eq!(status(&Ace { kind, ..ace.clone() }), Some(Status4::AttrNotSupp));
    }
    for flags in [0x4, 0x10, 0x20, 0x80, 0x100] {
        assert_eq!(status(&Ace { flags, ..ace.clone() }), Some(Status4::AttrNotSupp));
    }
    let inherited = |inheritance, is_directory| {
        let ace = AceOf { inheritance, ..received(&ace, AceSubject::Owner).unwrap() };
        lists_of(&[ace], is_directory).map(|lists| lists.default.is_some())
    };
    assert_eq!(inherited(flag::FILE_INHERIT, true), Ok(true));
    assert_eq!(inherited(flag::FILE_INHERIT, false), Err(Status4::AttrNotSupp));
    assert_eq!(inherited(flag::INHERIT_ONLY, true), Err(Status4::AttrNotSupp));
    assert_eq!(inherited(0, true), Ok(false));
}

#[test]
fn what_a_default_list_leaves_out_is_that_of_the_directory() {
    let own = |subject, mask| AceOf { denies: false, inheritance: 0, mask, subject };
    let inherited = AceOf {
        inheritance: INHERITANCE,
        ..own(AceSubject::User(7), rights_mask(READ | EXECUTE, true))
    };
    let aces = [
        own(AceSubject::Owner, rights_mask(7, true)),
        own(AceSubject::Group, rights_mask(READ, true)),
        own(AceSubject::Everyone, rights_mask(EXECUTE, true)),
        inherited,
    ];
    let default = lists_of(&aces, true).unwrap().default.unwrap();
    let rights = default.entries().iter().map(|entry| entry.rights).collect::<Vec<_>>();
    // The owner, user 7, the owning group, the mask, all others.
    assert_eq!(rights, [7, 5, 5, 5, 1]);
}
