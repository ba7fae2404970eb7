//! Leases, and the state of clients whose lease expired.

use super::*;

/// Lets time pass, and checks all leases.
fn pass(fixture: &mut Fixture, time: u64) -> Vec<StateWork> {
    fixture.now += time;
    fixture.tables.handle_time(fixture.now);
    fixture.work()
}

/// Lets only the lease of client 0 expire.
fn expire_first(fixture: &mut Fixture) -> Vec<StateWork> {
    fixture.now += LEASE + 1;
    for client in [1, 2] {
        assert!(fixture.tables.renew(fixture.clients[client], fixture.now));
    }
    pass(fixture, 0)
}

#[test]
fn a_client_without_state_goes_when_its_lease_has_expired_and_is_told_of_once() {
    let mut fixture = Fixture::new();
    assert_eq!(pass(&mut fixture, LEASE), [], "a lease lasts as long as it says");
    let expired = fixture.clients.map(StateWork::Expired);
    assert_eq!(pass(&mut fixture, 1), expired);
    assert_eq!(pass(&mut fixture, LEASE), []);
    fixture.tables.release_client(fixture.clients[1]);
    assert!(!fixture.tables.renew(fixture.clients[1], fixture.now));
    assert!(fixture.tables.renew(fixture.clients[0], fixture.now));
    assert_eq!(pass(&mut fixture, LEASE + 1), [StateWork::Expired(fixture.clients[0])]);
}

#[test]
fn a_client_that_renews_its_lease_before_it_is_told_of_stays() {
    let mut fixture = Fixture::new();
    fixture.now = LEASE + 1;
    fixture.tables.handle_time(fixture.now);
    assert!(fixture.tables.renew(fixture.clients[1], fixture.now));
    let gone = [0, 2].map(|client| StateWork::Expired(fixture.clients[client]));
    assert_eq!(fixture.work(), gone);
}

#[test]
fn a_renewed_lease_keeps_the_state_from_others() {
    let mut fixture = Fixture::new();
    fixture.open(0, "a", READ, WRITE);
    for _ in 0..5 {
        assert_eq!(pass(&mut fixture, LEASE), []);
        fixture
            .clients
            .iter()
            .for_each(|client| assert!(fixture.tables.renew(*client, fixture.now)));
        assert_eq!(fixture.open_file(1, FILE, "b", WRITE, 0), denied());
    }
}

fn denied() -> Result<Opened, StateFault> {
    Err(StateFault::Failed(Status4::ShareDenied))
}

#[test]
fn the_state_of_an_expired_client_stays_until_somebody_wants_what_it_denies() {
    let mut fixture = Fixture::new();
    let first = fixture.open(0, "a", READ, WRITE);
    assert_eq!(expire_first(&mut fixture), []);
    assert!(fixture.open_file(1, FILE, "b", READ, 0).is_ok(), "it is in nobody's way");
    let removal = StateFault::AwaitRemoval(fixture.clients[0]);
    assert_eq!(fixture.open_file(2, FILE, "c", WRITE, 0), Err(removal));
    assert_eq!(fixture.io(2, Stateid::ANONYMOUS, IoAccess::Write), Err(removal));
    assert_eq!(fixture.tables.states_of(fixture.clients[0]), 1, "asking takes nothing away");
    fixture.tables.release_client(fixture.clients[0]);
    fixture.tables.assert_consistent();
    assert!(fixture.open_file(2, FILE, "c", WRITE, 0).is_ok());
    assert_eq!(fixture.io(0, first, IoAccess::Read), failed(Status4::BadStateid));
}

#[test]
fn an_expired_client_that_comes_back_in_time_goes_on_as_if_nothing_had_happened() {
    let mut fixture = Fixture::new();
    let first = fixture.open(0, "a", READ, WRITE);
    expire_first(&mut fixture);
    assert!(fixture.tables.renew(fixture.clients[0], fixture.now));
    assert_eq!(fixture.open_file(2, FILE, "c", WRITE, 0), denied());
    assert_eq!(fixture.io(0, first, IoAccess::Read), Ok(IoGrant::Covered));
}

#[test]
fn a_lock_of_an_expired_client_gives_way_and_one_of_a_living_client_does_not() {
    let mut fixture = Fixture::new();
    let opens = [0, 1, 2].map(|client| fixture.open(client, "a", BOTH, 0));
    fixture.lock(0, by(opens[0], "p"), LockType::Read, 0, 10).unwrap();
    fixture.lock(1, by(opens[1], "p"), LockType::Read, 5, 10).unwrap();
    expire_first(&mut fixture);
    let removal = StateFault::AwaitRemoval(fixture.clients[0]);
    let write = |fixture: &mut Fixture, offset| {
        fixture.lock(2, by(opens[2], "p"), LockType::Write, offset, 1)
    };
    assert_eq!(write(&mut fixture, 0), Err(removal));
    let denied = write(&mut fixture, 5);
    assert!(matches!(denied, Err(StateFault::Denied(_))), "no removal helps here: {denied:?}");
    fixture.tables.release_client(fixture.clients[0]);
    assert!(write(&mut fixture, 0).is_ok());
}

#[test]
fn expired_clients_go_when_a_living_one_waits_for_their_locks_alone() {
    for is_other_alive in [false, true] {
        let mut fixture = Fixture::new();
        let opens = [0, 1, 2].map(|client| fixture.open(client, "a", BOTH, 0));
        for client in [0, 1] {
            fixture.lock(client, by(opens[client], "p"), LockType::Read, 0, 10).unwrap();
        }
        let wait = |fixture: &mut Fixture| {
            let waits = fixture.lock(2, by(opens[2], "p"), LockType::WriteWait, 5, 1);
            assert!(matches!(waits, Err(StateFault::Denied(_))), "{waits:?}");
        };
        fixture.now = LEASE / 2;
        wait(&mut fixture);
        assert_eq!(pass(&mut fixture, 0), [], "their leases last");
        let alive = if is_other_alive { &[1, 2][..] } else { &[2] };
        alive
            .iter()
            .for_each(|at| assert!(fixture.tables.renew(fixture.clients[*at], fixture.now)));
        let expired = pass(&mut fixture, LEASE / 2 + 1);
        let both = [0, 1].map(|client| StateWork::Expired(fixture.clients[client]));
        match is_other_alive {
            true => assert_eq!(expired, [], "a living client denies it as well"),
            false => assert_eq!(expired, both),
        }
        assert_eq!(pass(&mut fixture, 0), [], "once");
        [0, 1].iter().for_each(|at| fixture.tables.release_client(fixture.clients[*at]));
        fixture.tables.assert_consistent();
        assert!(matches!(fixture.work()[..], [StateWork::NotifyLock(_)]));
    }
}

#[test]
fn no_client_goes_for_a_waiter_that_expired_or_has_asked_too_long_ago() {
    let mut fixture = Fixture::new();
    let opens = [0, 1].map(|client| fixture.open(client, "a", BOTH, 0));
    fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 10).unwrap();
    let waits = fixture.lock(1, by(opens[1], "p"), LockType::WriteWait, 5, 1);
    assert!(matches!(waits, Err(StateFault::Denied(_))));
    fixture.now = LEASE + 1;
    fixture.tables.renew(fixture.clients[2], fixture.now);
    assert_eq!(pass(&mut fixture, 0), [], "both have expired");
    fixture.tables.renew(fixture.clients[1], fixture.now);
    assert_eq!(pass(&mut fixture, 0), [], "it has not asked for a lease");
}

#[test]
fn a_waiter_for_a_local_process_is_notified_when_that_has_unlocked_and_not_before() {
    let mut fixture = Fixture::new();
    let opens = [0, 1].map(|client| fixture.open(client, "a", BOTH, 0));
    let locks = fixture.lock(0, by(opens[0], "p"), LockType::Write, 20, 1).unwrap();
    let request = |offset| LockRequest {
        client: fixture.clients[1],
        file: FILE,
        kind: LockType::WriteWait,
        reclaim: false,
        offset,
        length: 1,
        locker: by(opens[1], "w"),
    };
    let requests = [0, 5].map(request);
    requests.iter().for_each(|request| fixture.tables.queue_local_waiter(request, 0));
    fixture.unlock(0, locks, 20, 1).unwrap();
    assert_eq!(fixture.work(), [], "a client's lock was not in the way");
    let [first, second] = fixture.tables.local_waits(8)[..] else { panic!("both wait") };
    fixture.tables.handle_local_unlock(&second);
    assert!(matches!(fixture.work()[..], [StateWork::NotifyLock(_)]));
    assert_eq!(fixture.tables.local_waits(8), [first]);
    fixture.tables.assert_consistent();
}

#[test]
fn a_living_opener_denies_although_an_expired_one_denies_as_well() {
    let mut fixture = Fixture::new();
    fixture.open(0, "a", READ, WRITE);
    fixture.open(1, "a", READ, WRITE);
    expire_first(&mut fixture);
    assert_eq!(fixture.open_file(2, FILE, "c", WRITE, 0), denied());
}

#[test]
fn a_full_table_asks_for_the_client_that_has_been_away_for_longest() {
    let mut fixture = Fixture::with(StateLimits { opens: 2, ..SMALL });
    fixture.open(0, "a", READ, 0);
    fixture.open(1, "a", READ, 0);
    let full = |fixture: &mut Fixture| fixture.open_file(2, FILE, "c", READ, 0);
    assert_eq!(full(&mut fixture), Err(StateFault::Failed(Status4::Delay)));
    fixture.tables.renew(fixture.clients[1], 1);
    fixture.now = LEASE + 2;
    fixture.tables.renew(fixture.clients[2], fixture.now);
    pass(&mut fixture, 0);
    assert_eq!(full(&mut fixture), Err(StateFault::AwaitRemoval(fixture.clients[0])));
    fixture.tables.release_client(fixture.clients[0]);
    assert!(full(&mut fixture).is_ok());
}

#[test]
fn courtesy_ends_after_a_day() {
    let mut fixture = Fixture::new();
    fixture.open(0, "a", READ, 0);
    expire_first(&mut fixture);
    fixture.now = COURTESY_MS;
    assert!([1, 2].iter().all(|at| fixture.tables.renew(fixture.clients[*at], COURTESY_MS)));
    assert_eq!(pass(&mut fixture, 0), []);
    assert_eq!(pass(&mut fixture, 1), [StateWork::Expired(fixture.clients[0])]);
}

#[test]
fn releasing_a_client_leaves_nothing_of_it() {
    let mut fixture = Fixture::new();
    for file in 0..4 {
        for owner in ["a", "b", "c"] {
            fixture.open_file(0, FileId(file), owner, BOTH, 0).unwrap();
        }
    }
    let open = fixture.open(0, "a", BOTH, 0);
    for owner in ["p", "q"] {
        fixture.lock(0, by(open, owner), LockType::Read, 0, 5).unwrap();
    }
    fixture.tables.release_client(fixture.clients[0]);
    fixture.tables.assert_consistent();
    assert!(fixture.tables.states.is_empty() && fixture.tables.files.is_empty());
}

#[test]
fn a_client_with_much_state_goes_in_parts_and_is_in_nobody_s_way_meanwhile() {
    let mut fixture = Fixture::new();
    let client = fixture.clients[0];
    let first = fixture.open(0, "a", BOTH, READ);
    let locked = fixture.lock(0, by(first, "p"), LockType::Write, 0, 10).unwrap();
    fixture.lock(0, by(first, "q"), LockType::Write, 20, 10).unwrap();
    fixture.open_file(0, FileId(9), "b", READ, 0).unwrap();
    let before = fixture.tables.states_of(client);
    fixture.tables.begin_release(client);
    assert!(!fixture.tables.release_some(client, 1));
    assert_eq!(fixture.tables.states_of(client), before - 1);
    fixture.tables.assert_consistent();
    let other = fixture.open_file(1, FILE, "c", BOTH, 0);
    assert_eq!(other, Err(StateFault::AwaitRemoval(client)), "it is as one that expired");
    let mut parts = 0;
    while !fixture.tables.release_some(client, 1) {
        fixture.tables.assert_consistent();
        parts += 1;
        assert!(parts < 10, "each part takes a state");
    }
    assert_eq!(fixture.tables.client_id(client), None);
    assert_eq!(fixture.io(0, locked, IoAccess::Read), failed(Status4::BadStateid));
    assert!(fixture.open_file(1, FILE, "c", BOTH, 0).is_ok());
    let swept = std::iter::from_fn(|| fixture.tables.next_swept()).count();
    assert_eq!(swept, 2, "each file that nobody has state of is told once");
}

#[test]
fn a_silent_client_with_state_is_forgotten_after_some_leases_and_recorded_when_it_is_back() {
    let mut fixture = Fixture::new();
    let client = fixture.clients[0];
    fixture.tables.await_record(client);
    fixture.tables.handle_recorded(client);
    let open = fixture.open(0, "a", READ, 0);
    expire_first(&mut fixture);
    let silent = RECORDED_LEASES * LEASE;
    for (idle, work) in [(silent, vec![]), (silent + 1, vec![StateWork::Silent(client)])] {
        fixture.now = idle;
        for at in [1, 2] {
            assert!(fixture.tables.renew(fixture.clients[at], idle));
        }
        fixture.tables.handle_time(idle);
        let due = |it: &StateWork| matches!(it, StateWork::Silent(_) | StateWork::Returned(_));
        assert_eq!(fixture.work().into_iter().filter(due).collect::<Vec<_>>(), work);
    }
    fixture.tables.await_record(client);
    fixture.tables.handle_time(silent + 2);
    assert!(fixture.tables.renew(client, silent + 3));
    assert!(fixture.tables.find_state(&open).is_some(), "its state was kept");
    assert!(fixture.work().contains(&StateWork::Returned(client)));
    let granted = |fixture: &mut Fixture| fixture.open_file(0, FileId(9), "a", READ, 0);
    assert_eq!(granted(&mut fixture), Err(StateFault::AwaitRecord));
    fixture.tables.handle_recorded(client);
    assert!(granted(&mut fixture).is_ok());
}
