//! Stateids, opens and closes.

use super::*;

#[test]
fn every_wrong_part_of_a_stateid_is_refused_with_its_own_status() {
    let mut fixture = Fixture::new();
    let first = fixture.open(0, "a", READ, 0);
    assert_eq!(first.seqid, 1);
    let second = fixture.open(0, "a", READ, 0);
    assert_eq!((second.seqid, second.other), (2, first.other));
    let mut read = |stateid| fixture.io(0, stateid, IoAccess::Read);
    assert_eq!(read(second), Ok(IoGrant::Covered));
    assert_eq!(read(Stateid { seqid: 0, ..second }), Ok(IoGrant::Covered));
    assert_eq!(read(first), failed(Status4::OldStateid));
    assert_eq!(read(Stateid { seqid: 3, ..second }), failed(Status4::BadStateid));
    for place in 0..12 {
        for bit in 0..8 {
            let mut other = second.other;
            other[place] ^= 1 << bit;
            let changed = Stateid { other, ..second };
            assert_eq!(read(changed), failed(Status4::BadStateid), "{place} {bit}");
        }
    }
    assert_eq!(fixture.io(1, second, IoAccess::Read), failed(Status4::BadStateid));
    let elsewhere = StateRequest { file: FileId(8), ..fixture.on(0, second) };
    let judged = fixture.tables.check_io(&elsewhere, IoAccess::Read, 0);
    assert_eq!(judged, failed(Status4::BadStateid));
}

#[test]
fn a_stateid_of_an_earlier_start_or_of_another_shard_names_nothing() {
    let mut fixture = Fixture::new();
    let stateid = fixture.open(0, "a", READ, 0);
    for (home, epoch) in [(3, 2), (4, 1)] {
        let mut later = Fixture::new();
        later.tables = StateTables::new(home, epoch, LEASE, SMALL);
        let client = later.tables.add_client(11, false, 0).unwrap();
        later.tables.complete_reclaims(client, false).unwrap();
        later.clients[0] = client;
        let own = later.open(0, "a", READ, 0);
        assert_eq!(later.io(0, stateid, IoAccess::Read), failed(Status4::BadStateid));
        assert_eq!(later.tables.test(client, &stateid), Status4::BadStateid);
        assert_eq!(later.io(0, own, IoAccess::Read), Ok(IoGrant::Covered));
    }
}

#[test]
fn a_stateid_of_a_closed_open_stays_bad_when_its_place_is_used_again() {
    let mut fixture = Fixture::new();
    let first = fixture.open(0, "a", READ, 0);
    assert_eq!(fixture.close(0, first), Ok(()));
    let second = fixture.open(0, "a", READ, 0);
    assert_ne!(first.other, second.other);
    for stateid in [first, Stateid { seqid: 0, ..first }] {
        assert_eq!(fixture.close(0, stateid), failed(Status4::BadStateid));
        assert_eq!(fixture.tables.test(fixture.clients[0], &stateid), Status4::BadStateid);
    }
}

#[test]
fn io_gets_what_its_open_has() {
    let mut fixture = Fixture::new();
    let open = |fixture: &mut Fixture, access| fixture.open(0, "a", access, 0);
    let expected = [
        (READ, Ok(IoGrant::Covered), failed(Status4::OpenMode)),
        (WRITE, Ok(IoGrant::WriteOnlyOpen), Ok(IoGrant::Covered)),
        (BOTH, Ok(IoGrant::Covered), Ok(IoGrant::Covered)),
    ];
    for (access, read, write) in expected {
        let stateid = open(&mut fixture, access);
        assert_eq!(fixture.io(0, stateid, IoAccess::Read), read);
        assert_eq!(fixture.io(0, stateid, IoAccess::Write), write);
        fixture.close(0, stateid).unwrap();
    }
}

#[test]
fn io_by_a_lock_stateid_gets_what_the_open_below_it_has() {
    let expected = [
        (READ, LockType::Read, Ok(IoGrant::Covered), failed(Status4::OpenMode)),
        (WRITE, LockType::Write, Ok(IoGrant::WriteOnlyOpen), Ok(IoGrant::Covered)),
        (BOTH, LockType::Write, Ok(IoGrant::Covered), Ok(IoGrant::Covered)),
    ];
    for (access, kind, read, write) in expected {
        let mut fixture = Fixture::new();
        let open = fixture.open(0, "a", access, 0);
        let locks = fixture.lock(0, by(open, "p"), kind, 0, 10).unwrap();
        assert_eq!(fixture.io(0, locks, IoAccess::Read), read, "{access}");
        assert_eq!(fixture.io(0, locks, IoAccess::Write), write, "{access}");
    }
}

#[test]
fn special_stateids_get_what_no_open_denies_and_only_reads_bypass_that() {
    use IoAccess::{Read, Write};
    for (deny, read, write) in
        [(0, true, true), (READ, false, true), (WRITE, true, false), (BOTH, false, false)]
    {
        let mut fixture = Fixture::new();
        fixture.open(0, "a", READ, deny);
        let expected = |is_free: bool| {
            if is_free { Ok(IoGrant::Anonymous) } else { failed(Status4::Locked) }
        };
        let mut io = |stateid, access| fixture.io(1, stateid, access);
        assert_eq!(io(Stateid::ANONYMOUS, Read), expected(read));
        assert_eq!(io(Stateid::ANONYMOUS, Write), expected(write));
        assert_eq!(io(Stateid::READ_BYPASS, Read), Ok(IoGrant::Anonymous));
        assert_eq!(io(Stateid::READ_BYPASS, Write), expected(write));
        for bad in [Stateid::CURRENT, Stateid::INVALID, Stateid { seqid: 7, other: [0xff; 12] }] {
            assert_eq!(io(bad, Read), failed(Status4::BadStateid));
            assert_eq!(io(bad, Write), failed(Status4::BadStateid));
        }
    }
}

#[test]
fn every_pair_of_opens_conflicts_as_the_text_says_and_a_refusal_leaves_nothing() {
    for access in 1..4 {
        for deny in 0..4 {
            for (other_access, other_deny) in (1..4).flat_map(|a| (0..4).map(move |d| (a, d))) {
                for (client, owner) in [(0, "a"), (0, "b"), (1, "a")] {
                    let mut fixture = Fixture::new();
                    fixture.open(0, "a", access, deny);
                    let denied = access & other_deny != 0 || deny & other_access != 0;
                    let opened = fixture.open_file(client, FILE, owner, other_access, other_deny);
                    match opened {
                        Ok(opened) => {
                            assert!(!denied);
                            assert_eq!(opened.is_new, (client, owner) != (0, "a"));
                        }
                        Err(fault) => {
                            assert_eq!(fault, StateFault::Failed(Status4::ShareDenied));
                            assert!(denied);
                            let states =
                                [0, 1].map(|at| fixture.tables.states_of(fixture.clients[at]));
                            assert_eq!(states, [1, 0]);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_open_owner_has_one_open_of_a_file_and_one_close_ends_it() {
    let mut fixture = Fixture::new();
    fixture.open(0, "a", READ, 0);
    let both = fixture.open(0, "a", WRITE, 0);
    assert_eq!(fixture.io(0, both, IoAccess::Write), Ok(IoGrant::Covered));
    assert_eq!(fixture.tables.states_of(fixture.clients[0]), 1);
    let other = fixture.open(0, "b", READ, 0);
    assert_ne!(other.other, both.other);
    fixture.close(0, both).unwrap();
    assert_eq!(fixture.io(0, other, IoAccess::Read), Ok(IoGrant::Covered));
    assert_eq!(fixture.close(0, both), failed(Status4::BadStateid));
}

#[test]
fn a_downgrade_reaches_only_what_was_opened_before() {
    let mut fixture = Fixture::new();
    fixture.open(0, "a", READ, 0);
    let both = fixture.open(0, "a", BOTH, 0);
    let downgrade = |fixture: &mut Fixture, stateid, access, deny| {
        let open = fixture.on(0, stateid);
        let stayed = fixture.tables.downgrade(&DowngradeRequest { open, access, deny });
        fixture.tables.assert_consistent();
        stayed
    };
    for (access, deny) in [(WRITE, 0), (0, 0), (READ, READ), (4, 0), (READ, 4)] {
        assert_eq!(downgrade(&mut fixture, both, access, deny), failed(Status4::Inval));
    }
    let old = Stateid { seqid: 1, ..both };
    assert_eq!(downgrade(&mut fixture, old, READ, 0), failed(Status4::OldStateid));
    let read = downgrade(&mut fixture, both, READ, 0).unwrap();
    assert_eq!((read.seqid, read.other), (3, both.other));
    assert_eq!(fixture.io(0, read, IoAccess::Write), failed(Status4::OpenMode));
    assert_eq!(downgrade(&mut fixture, read, BOTH, 0), failed(Status4::Inval));
    let same = downgrade(&mut fixture, read, READ, 0).unwrap();
    assert_eq!(same.seqid, 4, "it rises also when nothing changes");
    assert!(fixture.open_file(1, FILE, "x", READ, WRITE).is_ok(), "nobody writes any more");
}

#[test]
fn bits_that_no_open_may_have_are_refused_and_wants_are_no_access() {
    let mut fixture = Fixture::new();
    let inval = Err(StateFault::Failed(Status4::Inval));
    let deny = fixture.open(1, "deny", READ, BOTH); // it is not looked at for such an OPEN
    let undefined = [4, 0x600, 0x4_0000, 0x20_0000].map(|bits| (READ | bits, 0));
    for (access, deny) in [(0, 0), (4, 0), (READ, 4)].into_iter().chain(undefined) {
        assert_eq!(fixture.open_file(0, FILE, "a", access, deny), inval);
    }
    fixture.close(1, deny).unwrap();
    let wants = [0, 0x100, 0x200, 0x300, 0x400, 0x500, 0x1_0000, 0x2_0000, 0x10_0000];
    for want in wants {
        let stateid = fixture.open(0, "a", READ | want, 0);
        assert_eq!(fixture.io(0, stateid, IoAccess::Write), failed(Status4::OpenMode));
    }
}

#[test]
fn a_stateid_is_tested_without_its_file_and_freed_only_without_state() {
    let mut fixture = Fixture::new();
    let client = fixture.clients[0];
    let first = fixture.open(0, "a", READ, 0);
    let second = fixture.open(0, "a", READ, 0);
    let test = |fixture: &Fixture, stateid: Stateid| fixture.tables.test(client, &stateid);
    assert_eq!(test(&fixture, second), Status4::Ok);
    assert_eq!(test(&fixture, first), Status4::OldStateid);
    assert_eq!(test(&fixture, Stateid { seqid: 9, ..first }), Status4::BadStateid);
    for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID] {
        assert_eq!(test(&fixture, special), Status4::BadStateid);
        assert_eq!(fixture.tables.free(client, &special), Err(Status4::BadStateid));
    }
    assert_eq!(fixture.tables.test(fixture.clients[1], &second), Status4::BadStateid);
    assert_eq!(fixture.tables.free(client, &second), Err(Status4::LocksHeld));
    assert_eq!(fixture.io(0, second, IoAccess::Read), Ok(IoGrant::Covered));
}

#[test]
fn full_tables_refuse_opens_and_leave_what_is_there() {
    let limits = [
        StateLimits { opens: 2, ..SMALL },
        StateLimits { opens_per_client: 2, ..SMALL },
        StateLimits { opens_per_file: 2, ..SMALL },
    ];
    for limits in limits {
        let mut fixture = Fixture::with(limits);
        let first = fixture.open(0, "a", READ, 0);
        fixture.open(0, "b", READ, 0);
        let third = fixture.open_file(0, FILE, "c", READ, 0);
        assert_eq!(third, Err(StateFault::Failed(Status4::Delay)));
        let again = fixture.open(0, "a", WRITE, 0);
        assert_eq!(again.other, first.other, "an open that is there needs no place");
        fixture.close(0, again).unwrap();
        assert!(fixture.open_file(0, FILE, "c", READ, 0).is_ok());
    }
}

#[test]
fn a_file_that_was_made_for_an_open_is_opened_although_the_table_has_become_full() {
    let mut fixture = Fixture::with(StateLimits { opens: 2, ..SMALL });
    fixture.open(0, "a", READ, 0);
    let client = fixture.clients[0];
    assert!(fixture.tables.has_room(client));
    assert_eq!(fixture.tables.check_room(client, None, b"b"), Ok(()));
    fixture.open(1, "a", READ, 0);
    assert!(!fixture.tables.has_room(client));
    let full = Err(StateFault::Failed(Status4::Delay));
    assert_eq!(fixture.tables.check_room(client, None, b"b"), full);
    assert_eq!(fixture.tables.check_room(client, Some(FILE), b"b"), full);
    assert_eq!(fixture.tables.check_room(client, Some(FILE), b"a"), Ok(()), "it has a place");
    let open = |fixture: &mut Fixture, file, is_promised| {
        let request = OpenRequest {
            client,
            file: FileRef { id: FileId(file), handle: b"handle" },
            owner: b"b",
            access: READ,
            deny: 0,
            claim: Claim::New,
            offer: DelegationOffer::default(),
            is_promised,
        };
        let opened = fixture.tables.open(&request, fixture.now);
        fixture.tables.assert_consistent();
        opened.map(drop)
    };
    assert_eq!(open(&mut fixture, 10, false), full);
    for file in [10, 11] {
        assert_eq!(open(&mut fixture, file, true), Ok(()));
    }
    assert_eq!(open(&mut fixture, 12, true), full, "so many are promised at a time");
}
