//! Shares of hosts and clients: places that no host can take from others.

use super::*;
use crate::hosts::SharedTable;
use stag_pools::steps::within;

/// Tables in which only the shares are reached: no client and no file has a limit of its own.
const SHARED: StateLimits = StateLimits {
    clients: 16,
    opens: 60,
    opens_promised: 2,
    opens_per_client: 60,
    opens_per_file: 60,
    lock_states: 60,
    lock_states_per_file: 60,
    ranges: 60,
    ranges_per_client: 60,
    ranges_per_file: 60,
    waiters: 8,
    waiters_per_file: 4,
    delegations: 30,
    delegations_per_client: 30,
    delegations_per_file: 3,
};

/// Limit of steps of an operation that finds no place.
const STEPS_WHEN_REFUSED: u64 = 32;

/// Two clients of one host, and the third of another.
fn hosts() -> Fixture {
    let mut fixture = Fixture::with(SHARED);
    for (client, host) in fixture.clients.into_iter().zip([1, 1, 2]) {
        fixture.tables.set_host(client, host);
    }
    fixture
}

/// Has a client take places until it is refused. Returns their number, and the refusal.
fn take_all(mut take: impl FnMut(usize) -> Result<(), StateFault>) -> (usize, StateFault) {
    let mut count = 0;
    loop {
        match take(count) {
            Ok(()) => count += 1,
            Err(fault) => return (count, fault),
        }
        assert!(count <= 60, "a table has no more");
    }
}

fn take_opens(fixture: &mut Fixture, client: usize) -> (usize, StateFault) {
    take_all(|count| {
        let opened = fixture.open_file(client, FileId(count as u128), "a", READ, 0);
        opened.map(|_| ())
    })
}

fn take_owners(fixture: &mut Fixture, client: usize) -> (usize, StateFault) {
    let open = fixture.open(client, "a", BOTH, 0);
    take_all(|count| {
        let owner = format!("p{count}");
        fixture.lock(client, by(open, &owner), LockType::Read, 0, 1).map(|_| ())
    })
}

fn take_ranges(fixture: &mut Fixture, client: usize) -> (usize, StateFault) {
    let open = fixture.open(client, "a", BOTH, 0);
    let mut locks = None;
    take_all(|count| {
        let by = locks.map_or(by(open, "p"), LockerRef::Known);
        let locked = fixture.lock(client, by, LockType::Read, 2 * count as u64, 1)?;
        locks = Some(locked);
        Ok(())
    })
}

fn take_delegations(fixture: &mut Fixture, client: usize) -> (usize, StateFault) {
    take_all(|count| {
        let request = OpenRequest {
            client: fixture.clients[client],
            file: FileRef { id: FileId(count as u128), handle: b"handle" },
            owner: b"a",
            access: READ,
            deny: 0,
            claim: Claim::New,
            offer: DelegationOffer {
                policy: DelegationPolicy::Read,
                has_back_channel: true,
                ..DelegationOffer::default()
            },
            is_promised: false,
        };
        let opened = fixture.tables.open(&request, 0)?;
        fixture.tables.assert_consistent();
        match opened.delegation {
            DelegationOutcome::Given(_) => Ok(()),
            _ => Err(Status4::Delay.into()),
        }
    })
}

#[test]
fn a_client_has_a_third_its_host_half_and_another_host_finds_places() {
    type Take = fn(&mut Fixture, usize) -> (usize, StateFault);
    let delay = StateFault::Failed(Status4::Delay);
    let tables: [(Take, usize); 4] =
        [(take_opens, 60), (take_owners, 60), (take_ranges, 60), (take_delegations, 30)];
    for (take, places) in tables {
        let mut fixture = hosts();
        assert_eq!(take(&mut fixture, 0), (places / 3, delay), "a third");
        let others = take(&mut fixture, 1);
        assert_eq!(others, (places / 6, delay), "the rest of the half of its host");
        let (of_other, fault) = take(&mut fixture, 2);
        assert_eq!((of_other, fault), (places / 6, delay), "a third of what is free");
    }
}

#[test]
fn places_that_come_back_are_taken_again() {
    let mut fixture = hosts();
    let (count, _) = take_opens(&mut fixture, 0);
    let request = |fixture: &mut Fixture| fixture.open_file(0, FileId(99), "a", READ, 0);
    assert!(request(&mut fixture).is_err());
    let again = fixture.open_file(0, FileId(0), "a", READ, 0).unwrap();
    assert!(!again.is_new, "an open that is there needs no place");
    let client = fixture.clients[0];
    let close = StateRequest { client, file: FileId(0), stateid: again.stateid };
    fixture.tables.close(&close).unwrap();
    assert!(request(&mut fixture).is_ok());
    assert_eq!(fixture.tables.check_room(client, None, b"x"), failed(Status4::Delay));
    assert_eq!(fixture.tables.check_room(fixture.clients[2], None, b"x"), Ok(()));
    fixture.tables.release_client(client);
    fixture.tables.assert_consistent();
    let (of_second, _) = take_opens(&mut fixture, 1);
    assert_eq!(of_second, count, "the places of a client that is gone are free");
}

#[test]
fn a_host_that_has_its_share_costs_no_expired_client_of_another_its_state() {
    let mut fixture = hosts();
    fixture.open(2, "a", READ, 0);
    take_opens(&mut fixture, 1);
    fixture.now = LEASE + 2;
    fixture.tables.renew(fixture.clients[0], fixture.now);
    fixture.tables.renew(fixture.clients[1], fixture.now);
    fixture.tables.handle_time(fixture.now);
    assert!(fixture.tables.is_expired(fixture.clients[2]));
    let full = |fixture: &mut Fixture| fixture.open_file(1, FileId(99), "b", READ, 0);
    assert_eq!(full(&mut fixture), failed(Status4::Delay));
    // A client of the host itself makes room.
    fixture.open(0, "b", READ, 0);
    fixture.now = 2 * LEASE + 4;
    fixture.tables.renew(fixture.clients[1], fixture.now);
    fixture.tables.handle_time(fixture.now);
    assert_eq!(full(&mut fixture), Err(StateFault::AwaitRemoval(fixture.clients[0])));
}

#[test]
fn a_crowded_file_costs_no_client_that_has_it_not_open_its_state() {
    let mut fixture = Fixture::with(StateLimits { opens_per_file: 2, ..SMALL });
    fixture.open_file(2, FileId(99), "a", READ, 0).unwrap();
    let first = fixture.open(0, "a", READ, 0);
    fixture.open(1, "a", READ, 0);
    fixture.now = LEASE + 2;
    for client in [0, 1] {
        fixture.tables.renew(fixture.clients[client], fixture.now);
    }
    fixture.tables.handle_time(fixture.now);
    let full = |fixture: &mut Fixture| fixture.open_file(1, FILE, "b", READ, 0);
    assert_eq!(full(&mut fixture), failed(Status4::Delay));
    fixture.now = 2 * LEASE + 4;
    fixture.tables.renew(fixture.clients[1], fixture.now);
    fixture.tables.handle_time(fixture.now);
    assert_eq!(full(&mut fixture), Err(StateFault::AwaitRemoval(fixture.clients[0])));
    assert!(fixture.tables.find_state(&first).is_some());
}

#[test]
fn what_was_granted_before_a_restart_is_granted_again_in_any_order() {
    let mut fixture = hosts();
    fixture.tables = StateTables::new(3, 2, LEASE, SHARED);
    fixture.tables.begin_grace(3, LEASE);
    fixture.clients = [11, 12, 13].map(|id| fixture.tables.add_client(id, true, 0).unwrap());
    for (client, host) in fixture.clients.into_iter().zip([1, 1, 2]) {
        fixture.tables.set_host(client, host);
    }
    let mut reclaim = |client: usize, count: u128| {
        let request = OpenRequest {
            client: fixture.clients[client],
            file: FileRef { id: FileId(count), handle: b"handle" },
            owner: b"a",
            access: BOTH,
            deny: 0,
            claim: Claim::Previous(stag_protocol::nfs::v4::DelegationType::None),
            offer: DelegationOffer::default(),
            is_promised: false,
        };
        fixture.tables.open(&request, 0).map(|_| ())
    };
    // The other host had its own before the first took half.
    (0..30).for_each(|count| reclaim(2, count).unwrap());
    (30..60).for_each(|count| reclaim(0, count).unwrap());
    fixture.tables.assert_consistent();
}

#[test]
fn hosts_without_clients_take_no_place() {
    let mut fixture = hosts();
    let first = fixture.clients[0];
    fixture.tables.set_host(first, 3);
    fixture.tables.set_host(first, 1);
    fixture.tables.assert_consistent();
    fixture.clients.into_iter().for_each(|client| fixture.tables.release_client(client));
    fixture.tables.assert_consistent();
    assert!(fixture.tables.hosts.is_empty() && fixture.tables.by_host.is_empty());
    assert!(SharedTable::ALL.into_iter().all(|table| fixture.tables.has_share(first, table)));
}

#[test]
fn a_refused_operation_walks_over_no_table_of_clients() {
    let mut fixture = Fixture::with(StateLimits { clients: 1_024, opens: 6_000, ..SHARED });
    let tables = &mut fixture.tables;
    let open = |tables: &mut StateTables, client, file| {
        let request = OpenRequest {
            client,
            file: FileRef { id: FileId(file), handle: b"handle" },
            owner: b"a",
            access: READ,
            deny: 0,
            claim: Claim::New,
            offer: DelegationOffer::default(),
            is_promised: false,
        };
        within(STEPS_WHEN_REFUSED, || tables.open(&request, 0).map(|_| ()))
    };
    // A thousand clients of one host, of which one has state and expires.
    let many: Vec<_> = (0..1_000).map(|id| tables.add_client(100 + id, false, id)).collect();
    let many: Vec<_> = many.into_iter().flatten().collect();
    for client in &many {
        tables.set_host(*client, 1);
        tables.complete_reclaims(*client, false).unwrap();
    }
    let (client, gone) = (fixture.clients[0], many[500]);
    tables.set_host(client, 1);
    open(tables, gone, 1).unwrap();
    let now = LEASE + 2_000;
    for active in many.iter().filter(|one| **one != gone).chain([&client]) {
        tables.renew(*active, now);
    }
    (0..32).for_each(|_| tables.handle_time(now));
    assert!(tables.is_expired(gone) && !tables.is_expired(client));
    let refused = (2..).find_map(|file| open(tables, client, file).err());
    assert_eq!(refused, Some(StateFault::AwaitRemoval(gone)));
    tables.assert_consistent();
}

#[test]
fn a_client_that_comes_back_is_not_among_the_expired() {
    let mut fixture = hosts();
    fixture.now = LEASE + 1;
    fixture.tables.handle_time(fixture.now);
    assert_eq!(fixture.tables.oldest_expired(), Some(fixture.clients[0]));
    fixture.tables.renew(fixture.clients[0], fixture.now);
    assert_eq!(fixture.tables.oldest_expired(), Some(fixture.clients[1]));
    fixture.tables.set_host(fixture.clients[1], 2);
    fixture.tables.assert_consistent();
    fixture.tables.release_client(fixture.clients[1]);
    assert_eq!(fixture.tables.oldest_expired(), Some(fixture.clients[2]));
    fixture.tables.assert_consistent();
}

/// Has a client wait for locks of a file, one owner after the other. Returns the number that wait
/// then.
fn wait_all(fixture: &mut Fixture, client: usize, file: FileId, most: usize) -> usize {
    let before = fixture.tables.waiters;
    let opened = fixture.open_file(client, file, "w", BOTH, 0).unwrap();
    for count in 0..most {
        let owner = format!("w{count}");
        let request = LockRequest {
            client: fixture.clients[client],
            file,
            kind: LockType::WriteWait,
            reclaim: false,
            offset: 0,
            length: 1,
            locker: by(opened.stateid, &owner),
        };
        assert!(matches!(fixture.tables.lock(&request, 0), Err(StateFault::Denied(_))));
    }
    fixture.tables.assert_consistent();
    fixture.tables.waiters - before
}

#[test]
fn a_host_leaves_places_of_waiters_to_others_at_a_file_and_in_all() {
    let limits = StateLimits { waiters: 60, waiters_per_file: 12, ..SHARED };
    let mut fixture = Fixture::with(limits);
    for (client, host) in fixture.clients.into_iter().zip([1, 1, 2]) {
        fixture.tables.set_host(client, host);
    }
    let holder = fixture.tables.add_client(14, false, 0).unwrap();
    fixture.tables.complete_reclaims(holder, false).unwrap();
    fixture.clients[1] = holder;
    for file in (1..=9).map(FileId) {
        let open = fixture.open_file(1, file, "h", BOTH, 0).unwrap().stateid;
        let request = LockRequest {
            client: holder,
            file,
            kind: LockType::Write,
            reclaim: false,
            offset: 0,
            length: 1,
            locker: by(open, "h"),
        };
        fixture.tables.lock(&request, 0).unwrap();
    }
    assert_eq!(wait_all(&mut fixture, 0, FileId(1), 20), 6, "half of those of a file");
    assert_eq!(wait_all(&mut fixture, 2, FileId(1), 20), 3, "half of the rest");
    let of_first: usize = (2..=9).map(|it| wait_all(&mut fixture, 0, FileId(it), 20)).sum();
    assert_eq!(6 + of_first, 19, "a third of all, as of every table");
    assert!(wait_all(&mut fixture, 2, FileId(9), 20) > 0);
    fixture.tables.release_client(fixture.clients[0]);
    fixture.tables.assert_consistent();
}
