//! Reclaims after a restart, the grace period and its end.

use super::*;
use stag_protocol::nfs::v4::DelegationType;

const ENDS_AT: u64 = 90_000;

/// A server that has just started: the records list clients 0 and 1, and 2 is new.
fn started() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.tables = StateTables::new(3, 2, LEASE, SMALL);
    fixture.tables.begin_grace(2, ENDS_AT);
    let listed = [true, true, false];
    fixture.clients =
        [0, 1, 2].map(|at| fixture.tables.add_client(at as u64 + 11, listed[at], 0).unwrap());
    fixture
}

fn reclaim(fixture: &mut Fixture, client: usize, deny: u32) -> Result<Stateid, StateFault> {
    let request = OpenRequest {
        client: fixture.clients[client],
        file: FileRef { id: FILE, handle: b"handle" },
        owner: b"a",
        access: BOTH,
        deny,
        claim: Claim::Previous(DelegationType::None),
        offer: DelegationOffer::default(),
        is_promised: false,
    };
    let opened = fixture.tables.open(&request, fixture.now);
    fixture.tables.assert_consistent();
    opened.map(|opened| opened.stateid)
}

fn reclaim_lock(
    fixture: &mut Fixture,
    client: usize,
    open: Stateid,
) -> Result<Stateid, StateFault> {
    let request = LockRequest {
        client: fixture.clients[client],
        file: FILE,
        kind: LockType::Write,
        reclaim: true,
        offset: 0,
        length: 10,
        locker: by(open, "p"),
    };
    fixture.tables.lock(&request, fixture.now)
}

fn complete(fixture: &mut Fixture, client: usize) -> Result<(), Status4> {
    fixture.tables.complete_reclaims(fixture.clients[client], false)
}

fn open(fixture: &mut Fixture, client: usize) -> Result<Opened, StateFault> {
    fixture.open_file(client, FileId(9), "n", READ, 0)
}

fn grace<T>() -> Result<T, StateFault> {
    failed(Status4::Grace)
}

#[test]
fn in_the_grace_period_only_listed_clients_get_state_and_only_by_reclaims() {
    let mut fixture = started();
    assert_eq!(fixture.tables.check_grace(), Err(Status4::Grace));
    let stateid = reclaim(&mut fixture, 0, 0).unwrap();
    assert_eq!(reclaim(&mut fixture, 2, 0), failed(Status4::NoGrace));
    assert_eq!(fixture.io(0, stateid, IoAccess::Write), Ok(IoGrant::Covered));
    assert!(reclaim_lock(&mut fixture, 0, stateid).is_ok());
    assert_eq!(fixture.lock(0, by(stateid, "q"), LockType::Write, 20, 1), grace());
    for client in 0..3 {
        assert_eq!(open(&mut fixture, client), grace(), "{client}");
    }
    assert_eq!(complete(&mut fixture, 2), Ok(()));
    assert_eq!(open(&mut fixture, 2), grace(), "others may still reclaim");
    let test = LockTestRequest {
        client: fixture.clients[2],
        file: FILE,
        kind: LockType::Read,
        offset: 0,
        length: 1,
        owner: b"t",
    };
    assert_eq!(fixture.tables.test_lock(&test, 0), grace());
    let anonymous = fixture.io(2, Stateid::ANONYMOUS, IoAccess::Read);
    assert_eq!(anonymous, grace(), "a lock that is not reclaimed yet may deny it");
}

#[test]
fn a_client_reclaims_nothing_after_it_said_that_it_is_done() {
    let mut fixture = started();
    let stateid = reclaim(&mut fixture, 0, 0).unwrap();
    assert_eq!(fixture.tables.complete_reclaims(fixture.clients[0], true), Ok(()));
    assert!(reclaim(&mut fixture, 0, 0).is_ok(), "one file system is not all");
    assert_eq!(complete(&mut fixture, 0), Ok(()));
    assert_eq!(reclaim(&mut fixture, 0, 0), failed(Status4::NoGrace));
    let current = Stateid { seqid: 0, ..stateid };
    assert_eq!(reclaim_lock(&mut fixture, 0, current), failed(Status4::NoGrace));
    assert_eq!(complete(&mut fixture, 0), Err(Status4::CompleteAlready));
    assert!(reclaim(&mut fixture, 1, 0).is_ok(), "the other is not done");
}

#[test]
fn reclaims_that_conflict_with_each_other_are_refused_as_such() {
    let mut fixture = started();
    let first = reclaim(&mut fixture, 0, 0).unwrap();
    assert_eq!(reclaim(&mut fixture, 1, READ), failed(Status4::ReclaimConflict));
    let second = reclaim(&mut fixture, 1, 0).unwrap();
    assert!(reclaim_lock(&mut fixture, 0, first).is_ok());
    assert_eq!(reclaim_lock(&mut fixture, 1, second), failed(Status4::ReclaimConflict));
}

#[test]
fn grace_ends_early_and_nobody_gets_new_state_before_its_end_is_recorded() {
    for is_early in [true, false] {
        let mut fixture = started();
        complete(&mut fixture, 0).unwrap();
        complete(&mut fixture, 2).unwrap();
        fixture.tables.handle_time(1);
        assert_eq!(fixture.work(), []);
        if is_early {
            complete(&mut fixture, 1).unwrap();
        } else {
            fixture.now = ENDS_AT;
        }
        assert_eq!(open(&mut fixture, 2), grace(), "the record does not say it yet");
        assert!([0, 1, 2].iter().all(|at| fixture.tables.renew(fixture.clients[*at], fixture.now)));
        fixture.tables.handle_time(fixture.now);
        assert_eq!(fixture.work(), [StateWork::EndGrace]);
        fixture.tables.handle_time(fixture.now);
        assert_eq!(fixture.work(), [], "it is asked for once");
        assert_eq!(open(&mut fixture, 2), grace());
        assert_eq!(reclaim(&mut fixture, 1, 0), failed(Status4::NoGrace), "it may be written");
        fixture.tables.handle_grace_recorded();
        assert!(open(&mut fixture, 2).is_ok());
        let late = if is_early { open(&mut fixture, 1).map(|_| ()) } else { grace() };
        assert_eq!(open(&mut fixture, 1).map(|_| ()), late, "each client completes first");
        assert_eq!(fixture.tables.check_grace(), Ok(()));
    }
}

#[test]
fn a_listed_client_that_is_gone_is_not_waited_for() {
    let mut fixture = started();
    complete(&mut fixture, 0).unwrap();
    complete(&mut fixture, 2).unwrap();
    fixture.tables.release_client(fixture.clients[1]);
    fixture.tables.handle_time(1);
    assert_eq!(fixture.work(), [StateWork::EndGrace]);
    fixture.tables.handle_grace_recorded();
    assert!(open(&mut fixture, 2).is_ok());
}

#[test]
fn a_server_without_records_has_no_grace_period_and_takes_no_reclaims() {
    let mut fixture = Fixture::new();
    fixture.tables.begin_grace(0, ENDS_AT);
    assert_eq!(fixture.tables.check_grace(), Ok(()));
    assert!(open(&mut fixture, 0).is_ok());
    assert_eq!(reclaim(&mut fixture, 0, 0), failed(Status4::NoGrace));
    let new = fixture.tables.add_client(14, false, 0).unwrap();
    fixture.clients[0] = new;
    assert_eq!(open(&mut fixture, 0), grace(), "RECLAIM_COMPLETE comes first");
}

/// Checks all leases, at a time at which the clients renew theirs. Returns the work.
fn look(fixture: &mut Fixture, time: u64) -> Vec<StateWork> {
    fixture.now += time;
    assert!(fixture.clients.iter().all(|it| fixture.tables.renew(*it, fixture.now)));
    fixture.tables.handle_time(fixture.now);
    fixture.work()
}

#[test]
fn a_client_is_recorded_before_its_first_state_and_forgotten_a_lease_after_its_last() {
    let mut fixture = Fixture::new();
    let first = fixture.clients[0];
    fixture.tables.await_record(first);
    assert_eq!(open(&mut fixture, 0).map(drop), Err(StateFault::AwaitRecord));
    assert!(!fixture.tables.is_complete(first), "its shard begins no OPEN");
    assert_eq!(fixture.tables.states_of(first), 0);
    assert!(open(&mut fixture, 1).is_ok(), "others are not kept from theirs");
    fixture.tables.handle_recorded(first);
    assert!(fixture.tables.is_complete(first));
    for _ in 0..3 {
        let stateid = fixture.open(0, "a", READ, 0);
        assert_eq!(look(&mut fixture, LEASE + 1), [], "it has state");
        fixture.close(0, stateid).unwrap();
        // It opens and closes between two checks.
        for _ in 0..3 {
            assert_eq!(look(&mut fixture, LEASE / 2), []);
            let stateid = fixture.open(0, "a", READ, 0);
            fixture.close(0, stateid).unwrap();
        }
    }
    assert_eq!(look(&mut fixture, 1), []);
    assert_eq!(look(&mut fixture, LEASE), [], "a lease is not over");
    let forgotten = [StateWork::Stateless(first)];
    assert_eq!(look(&mut fixture, 1), forgotten);
    assert_eq!(look(&mut fixture, 1), forgotten, "until the caller says so");
    fixture.tables.await_record(first);
    assert_eq!(look(&mut fixture, LEASE + 1), []);
    assert_eq!(open(&mut fixture, 0).map(drop), Err(StateFault::AwaitRecord));
}

#[test]
fn a_client_that_is_given_state_before_its_record_goes_keeps_that() {
    let mut fixture = Fixture::new();
    fixture.tables.handle_recorded(fixture.clients[0]);
    fixture.now = LEASE + 1;
    assert!(fixture.tables.renew(fixture.clients[0], fixture.now));
    fixture.tables.handle_time(fixture.now);
    let stateid = fixture.open(0, "a", READ, 0);
    fixture.close(0, stateid).unwrap();
    let gone = [1, 2].map(|client| StateWork::Expired(fixture.clients[client]));
    assert_eq!(fixture.work(), gone);
}
