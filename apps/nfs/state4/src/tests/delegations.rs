//! Delegations: their grant, their recall, and attributes under one.

use super::*;
use stag_protocol::nfs::v4::state::RecallAnswer;
use stag_protocol::nfs::v4::{DelegationType, NoDelegation, sequence_flag};

pub const OFFER: DelegationOffer = DelegationOffer {
    policy: DelegationPolicy::ReadWrite,
    has_back_channel: true,
    is_changing: false,
    call: Some(GrantingCall { session: [5; 16], slot: 3, sequence: 9 }),
};

/// An OPEN of [`FILE`] with the facts of `offer`.
pub fn ask(
    fixture: &mut Fixture,
    client: usize,
    access: u32,
    claim: Claim,
    offer: DelegationOffer,
) -> Result<Opened, StateFault> {
    let request = OpenRequest {
        client: fixture.clients[client],
        file: FileRef { id: FILE, handle: b"handle" },
        owner: b"a",
        access,
        deny: 0,
        claim,
        offer,
        is_promised: false,
    };
    let opened = fixture.tables.open(&request, fixture.now);
    fixture.tables.assert_consistent();
    opened
}

/// An OPEN that gets a delegation.
fn delegated(fixture: &mut Fixture, client: usize, access: u32) -> GivenDelegation {
    match ask(fixture, client, access, Claim::New, OFFER).unwrap().delegation {
        DelegationOutcome::Given(given) => given,
        other => panic!("{other:?}"),
    }
}

fn give_back(fixture: &mut Fixture, client: usize, stateid: Stateid) -> Result<(), StateFault> {
    let request = fixture.on(client, stateid);
    let returned = fixture.tables.return_delegation(&request);
    fixture.tables.assert_consistent();
    returned
}

/// The recalls to send; any other work fails the test.
fn recalls(fixture: &mut Fixture) -> Vec<RecallOrder> {
    let order = |work| match work {
        StateWork::Recall(order) => order,
        other => panic!("{other:?}"),
    };
    fixture.work().into_iter().map(order).collect()
}

const AWAIT: Result<(), StateFault> = Err(StateFault::AwaitRecall);

#[test]
fn an_open_gets_the_delegation_that_its_access_export_and_wants_allow() {
    use DelegationPolicy::{Never, Read, ReadWrite, Watched};
    let cases = [
        (READ, ReadWrite, true, Some(false)),
        (BOTH, ReadWrite, true, Some(true)),
        (WRITE, ReadWrite, true, None),
        (READ, Read, true, Some(false)),
        (BOTH, Read, true, None),
        (READ, Watched, true, Some(false)),
        (BOTH, Watched, true, None),
        (READ, Never, true, None),
        (READ, ReadWrite, false, None),
        (READ | share::WANT_NO_DELEGATION, ReadWrite, true, None),
        (READ | share::WANT_CANCEL, ReadWrite, true, None),
        (READ | share::WANT_ANY_DELEGATION, ReadWrite, true, Some(false)),
    ];
    for (access, policy, has_back_channel, expected) in cases {
        let mut fixture = Fixture::new();
        let offer = DelegationOffer { policy, has_back_channel, ..OFFER };
        let opened = ask(&mut fixture, 0, access, Claim::New, offer).unwrap();
        let write = match opened.delegation {
            DelegationOutcome::Given(given) => Some(given.write),
            DelegationOutcome::None => {
                assert_eq!(access & share::WANT_MASK, 0, "who says what it wants hears why");
                None
            }
            DelegationOutcome::Refused(_) => {
                assert_ne!(access & share::WANT_MASK, 0);
                None
            }
        };
        assert_eq!(write, expected, "{access:x} {policy:?} {has_back_channel}");
    }
}

#[test]
fn a_file_that_is_being_changed_gets_no_delegation() {
    let mut fixture = Fixture::new();
    let offer = DelegationOffer { is_changing: true, ..OFFER };
    let access = READ | share::WANT_ANY_DELEGATION;
    let opened = ask(&mut fixture, 0, access, Claim::New, offer).unwrap();
    let refused = DelegationOutcome::Refused(NoDelegation::Contention(false));
    assert_eq!(opened.delegation, refused);
    let opened = ask(&mut fixture, 0, access, Claim::New, OFFER).unwrap();
    assert!(matches!(opened.delegation, DelegationOutcome::Given(_)));
}

#[test]
fn opens_of_others_stand_in_the_way_of_delegations_and_those_of_the_client_do_not() {
    let cases = [
        (1, READ, READ, true),
        (1, WRITE, READ, false),
        (1, READ, BOTH, false),
        (0, WRITE, READ, true),
        (0, BOTH, BOTH, true),
    ];
    for (other, other_access, access, expected) in cases {
        let mut fixture = Fixture::new();
        fixture.open(other, "other", other_access, 0);
        let opened = ask(&mut fixture, 0, access, Claim::New, OFFER).unwrap();
        let given = matches!(opened.delegation, DelegationOutcome::Given(_));
        assert_eq!(given, expected, "{other} {other_access} {access}");
    }
}

#[test]
fn a_client_has_one_delegation_of_a_file() {
    let mut fixture = Fixture::new();
    delegated(&mut fixture, 0, READ);
    let wants = READ | share::WANT_READ_DELEGATION;
    let second = ask(&mut fixture, 0, wants, Claim::New, OFFER).unwrap();
    let short = DelegationOutcome::Refused(NoDelegation::Resource(false));
    assert_eq!(second.delegation, short);
    assert!(!delegated(&mut fixture, 1, READ).write, "readers share");
}

#[test]
fn an_open_of_another_client_waits_until_the_delegation_is_back() {
    for (held, access, conflicts) in
        [(READ, READ, false), (READ, WRITE, true), (BOTH, READ, true), (BOTH, WRITE, true)]
    {
        let mut fixture = Fixture::new();
        let given = delegated(&mut fixture, 0, held);
        let open = |fixture: &mut Fixture| ask(fixture, 1, access, Claim::New, OFFER).map(|_| ());
        if !conflicts {
            assert_eq!(open(&mut fixture), Ok(()));
            assert_eq!(recalls(&mut fixture), []);
            continue;
        }
        assert_eq!(open(&mut fixture), AWAIT);
        assert_eq!(open(&mut fixture), AWAIT);
        let order = recalls(&mut fixture);
        assert_eq!(order.len(), 1, "one recall is for all who wait");
        let expected = Stateid { seqid: 0, ..given.stateid };
        assert_eq!((order[0].client, order[0].stateid), (fixture.clients[0], expected));
        assert_eq!(*order[0].handle, *b"handle");
        let read = fixture.io(0, given.stateid, IoAccess::Read);
        assert_eq!(read, Ok(IoGrant::Covered), "the holder goes on while it is recalled");
        let claim = Claim::Delegated(given.stateid);
        assert!(ask(&mut fixture, 0, READ, claim, OFFER).is_ok());
        assert_eq!(give_back(&mut fixture, 0, given.stateid), Ok(()));
        assert_eq!(fixture.work(), [StateWork::GoOn(FILE)]);
        assert_eq!(open(&mut fixture), Ok(()));
        assert_eq!(give_back(&mut fixture, 0, given.stateid), failed(Status4::BadStateid));
    }
}

#[test]
fn the_holder_is_never_in_its_own_way() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    let client = Some(fixture.clients[0]);
    for scope in [RecallScope::Writers, RecallScope::All] {
        assert_eq!(fixture.tables.recall(FILE, client, scope, 0), Ok(()));
    }
    let grant = fixture.io(0, Stateid::ANONYMOUS, IoAccess::Write);
    assert_eq!(grant, Ok(IoGrant::Anonymous));
    assert!(ask(&mut fixture, 0, BOTH, Claim::New, OFFER).is_ok());
    assert_eq!(fixture.tables.check_attributes(FILE, client), Ok(AttributeSource::Store));
    assert_eq!(fixture.work(), []);
    assert_eq!(fixture.io(0, given.stateid, IoAccess::Write), Ok(IoGrant::Covered));
}

#[test]
fn changes_and_reads_by_others_recall_what_they_conflict_with() {
    type Event = fn(&mut Fixture) -> Result<(), StateFault>;
    let events: [(Event, bool, bool); 6] = [
        (|f| f.io(1, Stateid::ANONYMOUS, IoAccess::Read).map(|_| ()), false, true),
        (|f| f.io(1, Stateid::ANONYMOUS, IoAccess::Write).map(|_| ()), true, true),
        (|f| f.tables.check_stateless_io(FILE, IoAccess::Read, 0), false, true),
        (|f| f.tables.check_stateless_io(FILE, IoAccess::Write, 0), true, true),
        (|f| f.tables.recall(FILE, Some(f.clients[1]), RecallScope::All, 0), true, true),
        (
            |f| {
                let client = f.clients[1];
                let kind = LockType::Read;
                let (offset, length, owner) = (0, 1, &b"t"[..]);
                let test = LockTestRequest { client, file: FILE, kind, offset, length, owner };
                f.tables.test_lock(&test, 0)
            },
            false,
            true,
        ),
    ];
    for (at, (event, of_readers, of_writers)) in events.into_iter().enumerate() {
        for (access, is_recalled) in [(READ, of_readers), (BOTH, of_writers)] {
            let mut fixture = Fixture::new();
            delegated(&mut fixture, 0, access);
            let expected = if is_recalled { AWAIT } else { Ok(()) };
            assert_eq!(event(&mut fixture), expected, "{at} {access}");
            assert_eq!(recalls(&mut fixture).len(), usize::from(is_recalled), "{at} {access}");
        }
    }
}

#[test]
fn a_setattr_takes_any_valid_stateid_of_its_client() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, READ);
    let open = fixture.open(1, "x", READ, 0);
    let set = |client: usize, stateid| {
        let request = fixture.on(client, stateid);
        fixture.tables.check_setattr(&request)
    };
    assert_eq!(set(0, given.stateid), Ok(()), "one for reading will do");
    assert_eq!(set(0, Stateid::ANONYMOUS), Ok(()));
    assert_eq!(set(1, given.stateid), Err(Status4::BadStateid));
    assert_eq!(set(1, Stateid::INVALID), Err(Status4::BadStateid));
    assert_eq!(set(1, open), Ok(()));
}

#[test]
fn a_file_whose_delegation_was_recalled_gets_none_for_a_while() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, READ);
    let all = |fixture: &mut Fixture| {
        fixture.tables.recall(FILE, Some(fixture.clients[1]), RecallScope::All, fixture.now)
    };
    assert_eq!(all(&mut fixture), AWAIT);
    let wants = READ | share::WANT_ANY_DELEGATION;
    let contention = DelegationOutcome::Refused(NoDelegation::Contention(false));
    let open = |fixture: &mut Fixture| ask(fixture, 2, wants, Claim::New, OFFER).unwrap();
    assert_eq!(open(&mut fixture).delegation, contention, "it is still being recalled");
    give_back(&mut fixture, 0, given.stateid).unwrap();
    fixture.now = CONTENTION_MS - 1;
    assert_eq!(open(&mut fixture).delegation, contention);
    fixture.now += 1;
    assert!(matches!(open(&mut fixture).delegation, DelegationOutcome::Given(_)));
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked_after_its_record_and_kept_until_it_is_freed() {
    let mut fixture = Fixture::new();
    let client = fixture.clients[0];
    let given = delegated(&mut fixture, 0, BOTH);
    let open = |fixture: &mut Fixture| ask(fixture, 1, READ, Claim::New, OFFER).map(|_| ());
    assert_eq!(open(&mut fixture), AWAIT);
    recalls(&mut fixture);
    fixture.tables.handle_recall_sent(given.state, 1_000);
    let pass = |fixture: &mut Fixture, now| {
        fixture.now = now;
        fixture.clients.iter().for_each(|client| assert!(fixture.tables.renew(*client, now)));
        fixture.tables.handle_time(now);
        fixture.tables.assert_consistent();
        fixture.work()
    };
    assert_eq!(pass(&mut fixture, 1_000 + LEASE - 1), []);
    assert_eq!(pass(&mut fixture, 1_000 + LEASE), [StateWork::Revoke(given.state)]);
    assert_eq!(pass(&mut fixture, 1_000 + LEASE + 1), [], "it is asked for once");
    assert_eq!(open(&mut fixture), AWAIT, "the record is not written yet");
    assert_eq!(fixture.tables.sequence_flags(client), 0);
    fixture.tables.revoke(given.state);
    fixture.tables.assert_consistent();
    assert_eq!(fixture.work(), [StateWork::GoOn(FILE)]);
    assert_eq!(open(&mut fixture), Ok(()));
    let revoked = sequence_flag::RECALLABLE_STATE_REVOKED;
    assert_eq!(fixture.tables.sequence_flags(client), revoked);
    assert_eq!(fixture.tables.test(client, &given.stateid), Status4::DelegRevoked);
    let refused = failed(Status4::DelegRevoked);
    assert_eq!(fixture.io(0, given.stateid, IoAccess::Read), failed(Status4::DelegRevoked));
    assert_eq!(give_back(&mut fixture, 0, given.stateid), refused);
    let claim = Claim::Delegated(given.stateid);
    let claimed = ask(&mut fixture, 0, READ, claim, OFFER);
    assert_eq!(claimed, Err(StateFault::Failed(Status4::DelegRevoked)));
    assert_eq!(pass(&mut fixture, 1_000 + 3 * LEASE), []);
    assert_eq!(fixture.tables.free(client, &given.stateid), Ok(()));
    fixture.tables.assert_consistent();
    assert_eq!(fixture.tables.sequence_flags(client), 0);
    assert_eq!(fixture.tables.test(client, &given.stateid), Status4::BadStateid);
}

#[test]
fn a_holder_that_cannot_be_called_loses_its_delegation_all_the_same() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    assert_eq!(ask(&mut fixture, 1, READ, Claim::New, OFFER).map(|_| ()), AWAIT);
    recalls(&mut fixture);
    let mut revoked_at = None;
    for now in (0..=3 * LEASE).step_by(1_000) {
        fixture.clients.iter().for_each(|client| assert!(fixture.tables.renew(*client, now)));
        fixture.tables.handle_time(now);
        if fixture.work() == [StateWork::Revoke(given.state)] {
            revoked_at = revoked_at.or(Some(now));
        }
    }
    assert_eq!(revoked_at, Some(2 * LEASE));
}

#[test]
fn a_recall_that_is_not_answered_is_sent_again_and_one_that_is_accepted_is_not() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.tables.begin_recall(given.state, 0);
    let order = recalls(&mut fixture);
    assert_eq!(fixture.tables.recall_order(given.state, 0).as_ref(), order.first());
    fixture.tables.handle_recall_sent(given.state, 0);
    assert!(fixture.tables.handle_recall_answer(given.state, RecallAnswer::Failed));
    assert!(fixture.tables.handle_recall_answer(given.state, RecallAnswer::Unknown));
    assert!(!fixture.tables.handle_recall_answer(given.state, RecallAnswer::Accepted));
    give_back(&mut fixture, 0, given.stateid).unwrap();
    assert!(!fixture.tables.handle_recall_answer(given.state, RecallAnswer::Failed));
    assert_eq!(fixture.tables.recall_order(given.state, 0), None);
}

#[test]
fn a_recall_names_the_call_that_it_may_overtake_and_no_other() {
    let referring = |act: fn(&mut Fixture, GivenDelegation)| {
        let mut fixture = Fixture::new();
        let given = delegated(&mut fixture, 0, BOTH);
        act(&mut fixture, given);
        fixture.tables.begin_recall(given.state, fixture.now);
        recalls(&mut fixture)[0].referring
    };
    assert_eq!(referring(|_, _| {}), OFFER.call);
    assert_eq!(referring(|fixture, _| fixture.now = 1_000), None, "it has arrived by now");
}

#[test]
fn a_recall_of_a_delegation_that_came_back_is_not_sent() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.tables.begin_recall(given.state, 0);
    give_back(&mut fixture, 0, given.stateid).unwrap();
    assert_eq!(fixture.work(), [StateWork::GoOn(FILE)]);
}

#[test]
fn the_delegation_of_an_expired_client_asks_for_its_removal() {
    let mut fixture = Fixture::new();
    delegated(&mut fixture, 0, BOTH);
    fixture.now = LEASE + 1;
    for client in [1, 2] {
        fixture.tables.renew(fixture.clients[client], fixture.now);
    }
    fixture.tables.handle_time(fixture.now);
    let removal = StateFault::AwaitRemoval(fixture.clients[0]);
    assert_eq!(ask(&mut fixture, 1, READ, Claim::New, OFFER).map(|_| ()), Err(removal));
    let client = Some(fixture.clients[1]);
    assert_eq!(fixture.tables.check_attributes(FILE, client), Err(removal));
    assert_eq!(fixture.work(), [], "nothing is sent to it");
    fixture.tables.release_client(fixture.clients[0]);
    assert!(ask(&mut fixture, 1, READ, Claim::New, OFFER).is_ok());
}

#[test]
fn an_expired_client_keeps_the_rest_when_a_recall_of_its_delegation_is_nearly_over() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.now = 5;
    let conflict = |fixture: &mut Fixture| ask(fixture, 1, READ, Claim::New, OFFER).map(|_| ());
    assert_eq!((conflict(&mut fixture), recalls(&mut fixture).len()), (AWAIT, 1));
    fixture.tables.handle_recall_sent(given.state, 5);
    // Its lease began at 0, and its time to return the delegation at 5.
    fixture.now = LEASE + 1;
    for client in [1, 2] {
        fixture.tables.renew(fixture.clients[client], fixture.now);
    }
    fixture.tables.handle_time(fixture.now);
    assert!(fixture.tables.is_expired(fixture.clients[0]));
    assert_eq!((conflict(&mut fixture), fixture.work()), (AWAIT, vec![]));
    fixture.now = LEASE + 5;
    fixture.tables.handle_time(fixture.now);
    assert_eq!(fixture.work(), [StateWork::Revoke(given.state)]);
}

#[test]
fn a_claim_under_a_delegation_needs_one_of_the_client_that_covers_the_access() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, READ);
    let claim = Claim::Delegated(given.stateid);
    assert!(ask(&mut fixture, 0, READ, claim, OFFER).is_ok());
    let write = ask(&mut fixture, 0, BOTH, claim, OFFER).map(|_| ());
    assert_eq!(write, failed(Status4::OpenMode));
    let foreign = ask(&mut fixture, 1, READ, claim, OFFER).map(|_| ());
    assert_eq!(foreign, failed(Status4::BadStateid));
    assert_eq!(give_back(&mut fixture, 1, given.stateid), failed(Status4::BadStateid));
    let open = fixture.open(0, "x", READ, 0);
    assert_eq!(give_back(&mut fixture, 0, open), failed(Status4::BadStateid));
    let claim = Claim::Delegated(open);
    let claimed = ask(&mut fixture, 0, READ, claim, OFFER).map(|_| ());
    assert_eq!(claimed, failed(Status4::BadStateid));
    let held = fixture.tables.free(fixture.clients[0], &given.stateid);
    assert_eq!(held, Err(Status4::LocksHeld));
    assert_eq!(fixture.io(0, given.stateid, IoAccess::Write), failed(Status4::OpenMode));
}

#[test]
fn delegations_are_reclaimed_in_the_grace_period_and_conflict_like_opens() {
    let reclaim = |fixture: &mut Fixture, client, access, delegation| {
        let claim = Claim::Previous(delegation);
        ask(fixture, client, access, claim, DelegationOffer::default())
    };
    let conflict = StateFault::Failed(Status4::ReclaimConflict);
    let started = || {
        let mut fixture = Fixture::new();
        fixture.tables = StateTables::new(3, 2, LEASE, SMALL);
        fixture.tables.begin_grace(2, LEASE);
        fixture.clients = [0, 1, 2].map(|id| fixture.tables.add_client(id, id < 2, 0).unwrap());
        fixture
    };
    let mut fixture = started();
    let opened = reclaim(&mut fixture, 0, BOTH, DelegationType::Write).unwrap();
    let DelegationOutcome::Given(given) = opened.delegation else { panic!("{opened:?}") };
    assert!(given.write);
    assert_eq!(reclaim(&mut fixture, 1, READ, DelegationType::None), Err(conflict));
    let mut fixture = started();
    assert!(reclaim(&mut fixture, 1, READ, DelegationType::None).is_ok());
    assert_eq!(reclaim(&mut fixture, 0, BOTH, DelegationType::Write), Err(conflict));
    assert!(reclaim(&mut fixture, 0, READ, DelegationType::Read).is_ok());
    assert_eq!(fixture.work(), [], "nothing is recalled from who reclaims");
}

#[test]
fn the_attributes_of_a_file_under_a_write_delegation_come_from_its_holder_and_never_go_back() {
    let mut fixture = Fixture::new();
    let client = Some(fixture.clients[1]);
    assert_eq!(fixture.tables.check_attributes(FILE, client), Ok(AttributeSource::Store));
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.tables.set_delegation_base(given.state, 100);
    for asks in [client, None] {
        let Ok(AttributeSource::Holder(order)) = fixture.tables.check_attributes(FILE, asks) else {
            panic!("the holder knows")
        };
        assert_eq!((order.client, order.state), (fixture.clients[0], given.state));
    }
    let pair = |change, size| ChangeAndSize { change, size };
    let here = pair(100, 5);
    let mut told = |told, here| fixture.tables.handle_attributes(given.state, told, here);
    assert_eq!(told(pair(100, 5), here), None, "nothing was changed");
    assert_eq!(told(pair(101, 9), here), Some(pair(101, 9)));
    assert_eq!(told(pair(101, 9), here), Some(pair(102, 9)), "it may have changed again");
    assert_eq!(told(pair(100, 5), here), Some(pair(103, 5)), "once changed, always changed");
    assert_eq!(told(pair(u64::MAX, 9), pair(200, 9)), Some(pair(201, 9)), "its value is not taken");
    fixture.tables.begin_recall(given.state, 0);
    let while_recalled = fixture.tables.check_attributes(FILE, client);
    assert_eq!(while_recalled, Err(StateFault::AwaitRecall));
}

#[test]
fn a_change_attribute_of_its_own_is_a_change_at_the_same_size() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.tables.set_delegation_base(given.state, 100);
    let [here, told] = [100, 107].map(|change| ChangeAndSize { change, size: 5 });
    let shown = fixture.tables.handle_attributes(given.state, told, here);
    assert_eq!(shown, Some(ChangeAndSize { change: 101, size: 5 }));
}

#[test]
fn a_size_of_its_own_is_a_change_whatever_the_holder_says_of_the_change_attribute() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.tables.set_delegation_base(given.state, 100);
    let told = ChangeAndSize { change: 100, size: 6 };
    let here = ChangeAndSize { change: 100, size: 5 };
    let reported = fixture.tables.handle_attributes(given.state, told, here);
    assert_eq!(reported, Some(ChangeAndSize { change: 101, size: 6 }));
}

#[test]
fn a_holder_that_has_written_all_of_it_through_the_server_has_changed_nothing_else() {
    let mut fixture = Fixture::new();
    let given = delegated(&mut fixture, 0, BOTH);
    fixture.tables.set_delegation_base(given.state, 100);
    let both = ChangeAndSize { change: 150, size: 6 };
    assert_eq!(fixture.tables.handle_attributes(given.state, both, both), None);
}

#[test]
fn who_has_most_delegations_is_asked_for_half_of_them_when_few_places_are_left() {
    let mut fixture = Fixture::new(); // with places for 8 delegations
    for (client, file) in [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6), (2, 7)] {
        fixture.tables.handle_time(fixture.now);
        assert_eq!(fixture.work(), [], "there are places");
        let request = OpenRequest {
            client: fixture.clients[client],
            file: FileRef { id: FileId(file), handle: b"handle" },
            owner: b"a",
            access: READ,
            deny: 0,
            claim: Claim::New,
            offer: OFFER,
            is_promised: false,
        };
        let opened = fixture.tables.open(&request, 0).unwrap();
        assert!(matches!(opened.delegation, DelegationOutcome::Given(_)));
    }
    let any = || [StateWork::RecallAny { client: fixture.clients[0], keep: 2 }];
    let any = any();
    for (now, is_due) in [(0, true), (4_999, false), (5_000, true)] {
        fixture.tables.handle_time(now);
        assert_eq!(fixture.work(), if is_due { &any[..] } else { &[] }, "{now}");
    }
    let fifth = fixture.tables.open(
        &OpenRequest {
            client: fixture.clients[0],
            file: FileRef { id: FileId(9), handle: b"handle" },
            owner: b"a",
            access: READ,
            deny: 0,
            claim: Claim::New,
            offer: OFFER,
            is_promised: false,
        },
        0,
    );
    assert_eq!(fifth.unwrap().delegation, DelegationOutcome::None, "it has as many as it may");
}

#[test]
fn the_filter_shows_files_with_delegations_or_denials_and_forgets_them() {
    let mut fixture = Fixture::new();
    let filter = fixture.tables.presence();
    let is_shown = || filter.may_conflict(FILE);
    assert!(!is_shown());
    let plain = fixture.open(1, "plain", READ, 0);
    assert!(!is_shown(), "an open that denies nothing is in nobody's way");
    let given = delegated(&mut fixture, 0, READ);
    assert!(is_shown());
    let deny = fixture.open(2, "deny", READ, WRITE);
    give_back(&mut fixture, 0, given.stateid).unwrap();
    assert!(is_shown());
    fixture.close(2, deny).unwrap();
    assert!(!is_shown());
    fixture.close(1, plain).unwrap();
    delegated(&mut fixture, 2, READ);
    fixture.tables.release_client(fixture.clients[2]);
    assert!(!is_shown());
    let owners = (0..64).map(|file| ConflictFilter::owner(FileId(file), 4));
    let owners: std::collections::HashSet<_> = owners.collect();
    assert_eq!(owners.len(), 4, "files spread over the shards");
}
