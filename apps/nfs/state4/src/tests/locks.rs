//! Byte-range locks, waiters for them, and their shadow.

use super::*;
use stag_protocol::nfs::v4::state::LockRange;

/// Clients 0 and 1 with the file open for both, without locks.
fn opened() -> (Fixture, [Stateid; 2]) {
    let mut fixture = Fixture::new();
    let opens = [0, 1].map(|client| fixture.open(client, "open", BOTH, 0));
    (fixture, opens)
}

fn known(stateid: Stateid) -> LockerRef<'static> {
    LockerRef::Known(stateid)
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

fn denied(fault: Result<Stateid, StateFault>) -> DeniedLock {
    match fault {
        Err(StateFault::Denied(denied)) => denied,
        other => panic!("{other:?}"),
    }
}

#[test]
fn locks_of_two_owners_conflict_and_the_denial_tells_whose_lock_it_is() {
    let (mut fixture, opens) = opened();
    let locks = fixture.lock(0, by(opens[0], "p"), LockType::Write, 10, 5).unwrap();
    assert_eq!(locks.seqid, 1);
    for (offset, length) in [(14, 1), (0, 11), (12, u64::MAX)] {
        let one = denied(fixture.lock(1, by(opens[1], "q"), LockType::Read, offset, length));
        assert_eq!((one.range, one.exclusive), (range(10, 5), true));
        assert_eq!(fixture.tables.lock_owner(one.holder), Some((11, &b"p"[..])));
    }
    assert_eq!(fixture.tables.states_of(fixture.clients[1]), 1, "a denied lock is no state");
    let beside = fixture.lock(1, by(opens[1], "q"), LockType::Write, 15, 5).unwrap();
    assert_eq!(fixture.unlock(0, locks, 10, 5).unwrap().seqid, 2);
    assert_eq!(fixture.lock(1, known(beside), LockType::Write, 10, 5).unwrap().seqid, 2);
}

#[test]
fn another_lock_owner_of_the_same_client_conflicts_and_another_open_of_the_same_owner_does_not() {
    let (mut fixture, opens) = opened();
    fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 10).unwrap();
    denied(fixture.lock(0, by(opens[0], "q"), LockType::Read, 0, 1));
    let second = fixture.open(0, "second", BOTH, 0);
    let locks = fixture.lock(0, by(second, "p"), LockType::Read, 0, 4).unwrap();
    fixture.unlock(0, locks, 0, 2).unwrap();
    fixture.lock(1, by(opens[1], "x"), LockType::Read, 0, 4).unwrap();
}

#[test]
fn a_lock_owner_that_lost_its_stateid_gets_the_same_one_again() {
    let (mut fixture, opens) = opened();
    let first = fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 1).unwrap();
    let again = fixture.lock(0, by(opens[0], "p"), LockType::Write, 5, 1).unwrap();
    assert_eq!((again.other, again.seqid), (first.other, 2));
}

#[test]
fn a_lock_needs_an_open_for_what_it_protects() {
    let mut fixture = Fixture::new();
    for (access, read, write) in [(READ, true, false), (WRITE, false, true), (BOTH, true, true)] {
        let open = fixture.open(0, "a", access, 0);
        for (kind, may) in [(LockType::Read, read), (LockType::Write, write)] {
            let locked = fixture.lock(0, by(open, "p"), kind, 0, 1);
            if may {
                let locks = locked.unwrap();
                fixture.unlock(0, locks, 0, 1).unwrap();
            } else {
                assert_eq!(locked, failed(Status4::OpenMode));
            }
        }
        fixture.close(0, open).unwrap();
    }
}

#[test]
fn stateids_of_another_kind_are_bad_ones() {
    let (mut fixture, [open, _]) = opened();
    let locks = fixture.lock(0, by(open, "p"), LockType::Write, 0, 1).unwrap();
    let bad = failed(Status4::BadStateid);
    assert_eq!(fixture.lock(0, known(open), LockType::Read, 0, 1), bad);
    assert_eq!(fixture.lock(0, by(locks, "q"), LockType::Read, 0, 1), bad);
    assert_eq!(fixture.unlock(0, open, 0, 1), bad);
    assert_eq!(fixture.close(0, locks), failed(Status4::BadStateid));
    for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::INVALID] {
        assert_eq!(fixture.lock(0, by(special, "p"), LockType::Read, 0, 1), bad);
        assert_eq!(fixture.unlock(0, special, 0, 1), bad);
    }
    assert_eq!(fixture.lock(1, known(locks), LockType::Read, 0, 1), bad, "it is another client's");
}

#[test]
fn a_range_that_is_none_is_refused_before_anything_else() {
    let (mut fixture, [open, _]) = opened();
    for (offset, length) in [(0, 0), (2, u64::MAX - 1), (u64::MAX, 2)] {
        let inval = failed(Status4::Inval);
        assert_eq!(fixture.lock(0, by(open, "p"), LockType::Read, offset, length), inval);
        assert_eq!(fixture.unlock(0, open, offset, length), inval);
        let test = LockTestRequest {
            client: fixture.clients[0],
            file: FILE,
            kind: LockType::Read,
            offset,
            length,
            owner: b"p",
        };
        assert_eq!(fixture.tables.test_lock(&test, 0), failed(Status4::Inval));
    }
}

#[test]
fn lockt_needs_no_open_and_does_not_mind_the_locks_of_the_owner() {
    let (mut fixture, [open, _]) = opened();
    fixture.lock(0, by(open, "p"), LockType::Read, 0, 10).unwrap();
    let mut test = |client: usize, owner, kind, offset| {
        let client = fixture.clients[client];
        let request = LockTestRequest { client, file: FILE, kind, offset, length: u64::MAX, owner };
        fixture.tables.test_lock(&request, 0)
    };
    assert_eq!(test(0, b"p", LockType::Write, 0), Ok(()));
    assert!(matches!(test(2, b"p", LockType::Write, 9), Err(StateFault::Denied(_))));
    assert!(matches!(test(0, b"q", LockType::WriteWait, 0), Err(StateFault::Denied(_))));
    assert_eq!(test(2, b"p", LockType::ReadWait, 0), Ok(()));
    assert_eq!(test(2, b"p", LockType::Write, 10), Ok(()));
}

#[test]
fn an_open_with_locks_stays_and_one_whose_locks_are_gone_takes_their_stateid_with_it() {
    let (mut fixture, [open, _]) = opened();
    let client = fixture.clients[0];
    let locks = fixture.lock(0, by(open, "p"), LockType::Write, 0, 10).unwrap();
    assert_eq!(fixture.close(0, open), failed(Status4::LocksHeld));
    assert_eq!(fixture.tables.free(client, &locks), Err(Status4::LocksHeld));
    let locks = fixture.unlock(0, locks, 0, u64::MAX).unwrap();
    assert_eq!(fixture.tables.test(client, &locks), Status4::Ok, "it stays without locks");
    assert_eq!(fixture.io(0, locks, IoAccess::Write), Ok(IoGrant::Covered));
    assert_eq!(fixture.close(0, open), Ok(()));
    assert_eq!(fixture.tables.test(client, &locks), Status4::BadStateid);
    assert_eq!(fixture.tables.states_of(client), 0);
}

#[test]
fn a_stateid_without_locks_can_be_freed_once() {
    let (mut fixture, [open, _]) = opened();
    let client = fixture.clients[0];
    let locks = fixture.lock(0, by(open, "p"), LockType::Write, 0, 10).unwrap();
    let locks = fixture.unlock(0, locks, 0, 10).unwrap();
    assert_eq!(fixture.tables.free(fixture.clients[1], &locks), Err(Status4::BadStateid));
    assert_eq!(fixture.tables.free(client, &locks), Ok(()));
    fixture.tables.assert_consistent();
    assert_eq!(fixture.tables.free(client, &locks), Err(Status4::BadStateid));
    let next = fixture.lock(0, by(open, "p"), LockType::Write, 0, 10).unwrap();
    assert_ne!(next.other, locks.other);
}

#[test]
fn who_waits_is_told_once_and_in_order_when_nothing_denies_the_lock_any_more() {
    let (mut fixture, opens) = opened();
    let third = fixture.open(2, "open", BOTH, 0);
    let locks = fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 10).unwrap();
    denied(fixture.lock(1, by(opens[1], "w"), LockType::WriteWait, 0, 10));
    denied(fixture.lock(1, by(opens[1], "w"), LockType::WriteWait, 0, 10));
    denied(fixture.lock(2, by(third, "r"), LockType::ReadWait, 5, 1));
    denied(fixture.lock(2, by(third, "never"), LockType::Read, 5, 1));
    let locks = fixture.unlock(0, locks, 6, 4).unwrap();
    assert_eq!(fixture.work(), [], "octets that both want are still locked");
    let locks = fixture.unlock(0, locks, 5, 1).unwrap();
    let notice = |client: usize, owner: &str| {
        StateWork::NotifyLock(LockNotice {
            client: fixture.clients[client],
            handle: Box::from(&b"handle"[..]),
            owner: Box::from(owner.as_bytes()),
        })
    };
    let (reader, writer) = (notice(2, "r"), notice(1, "w"));
    assert_eq!(fixture.work(), [reader], "a reader of one octet need not wait for the others");
    fixture.unlock(0, locks, 0, 10).unwrap();
    assert_eq!(fixture.work(), [writer]);
    assert_eq!(fixture.work(), []);
    assert_eq!(fixture.tables.waiting().count(), 0);
}

#[test]
fn a_downgrade_a_close_and_the_end_of_a_client_tell_those_who_wait() {
    for end in 0..3 {
        let (mut fixture, opens) = opened();
        let locks = fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 10).unwrap();
        denied(fixture.lock(1, by(opens[1], "w"), LockType::ReadWait, 0, 10));
        match end {
            0 => drop(fixture.lock(0, known(locks), LockType::Read, 0, 10).unwrap()),
            1 => drop(fixture.unlock(0, locks, 0, 10).unwrap()),
            _ => fixture.tables.release_client(fixture.clients[0]),
        }
        fixture.tables.assert_consistent();
        assert!(matches!(fixture.work()[..], [StateWork::NotifyLock(_)]), "{end}");
    }
}

#[test]
fn a_waiter_leaves_when_it_gets_its_lock_when_it_gives_up_and_when_its_client_ends() {
    let (mut fixture, opens) = opened();
    let locks = fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 10).unwrap();
    denied(fixture.lock(1, by(opens[1], "w"), LockType::WriteWait, 0, 20));
    fixture.lock(1, by(opens[1], "w"), LockType::Write, 15, 1).unwrap();
    assert_eq!(fixture.tables.waiting().count(), 0, "it got a part, and asks anew for the rest");
    denied(fixture.lock(1, by(opens[1], "w"), LockType::WriteWait, 0, 20));
    fixture.now += LEASE;
    denied(fixture.lock(1, by(opens[1], "v"), LockType::WriteWait, 0, 20));
    assert_eq!(fixture.tables.waiting().count(), 1, "who has not asked for a lease is gone");
    fixture.tables.release_client(fixture.clients[1]);
    fixture.tables.assert_consistent();
    fixture.unlock(0, locks, 0, 10).unwrap();
    assert_eq!(fixture.work(), []);
}

#[test]
fn full_queues_of_waiters_deny_like_others() {
    let (mut fixture, opens) = opened();
    fixture.lock(0, by(opens[0], "p"), LockType::Write, 0, 10).unwrap();
    for owner in 0..9_u8 {
        let owner = format!("w{owner}");
        denied(fixture.lock(1, by(opens[1], &owner), LockType::WriteWait, 0, 1));
    }
    assert_eq!(fixture.tables.waiting().count(), SMALL.waiters_per_file);
}

#[test]
fn full_tables_refuse_locks_and_change_nothing() {
    // RFC 8881 §15.2: DELAY and SERVERFAULT are statuses of LOCK and of LOCKU.
    let limits = [
        (StateLimits { ranges: 2, ..SMALL }, Status4::Delay),
        (StateLimits { ranges_per_client: 2, ..SMALL }, Status4::ServerFault),
        (StateLimits { ranges_per_file: 2, ..SMALL }, Status4::ServerFault),
    ];
    for (limits, status) in limits {
        let mut fixture = Fixture::with(limits);
        let open = fixture.open(0, "a", BOTH, 0);
        let locks = fixture.lock(0, by(open, "p"), LockType::Write, 0, 10).unwrap();
        let locks = fixture.lock(0, known(locks), LockType::Write, 20, 10).unwrap();
        let full = StateFault::Failed(status);
        let request = |offset, length, locker, kind| LockRequest {
            client: fixture.clients[0],
            file: FILE,
            kind,
            reclaim: false,
            offset,
            length,
            locker,
        };
        let more = request(40, 1, known(locks), LockType::Write);
        let owner = request(50, 1, by(open, "q"), LockType::Write);
        let split = request(2, 2, known(locks), LockType::Read);
        for request in [more, owner, split] {
            assert_eq!(fixture.tables.lock(&request, 0), Err(full));
            fixture.tables.assert_consistent();
        }
        assert_eq!(fixture.unlock(0, locks, 2, 2), Err(full), "a split needs a place");
        assert_eq!(fixture.unlock(0, locks, 0, 10).unwrap().seqid, 3);
        let joined = fixture.lock(0, known(Stateid { seqid: 0, ..locks }), LockType::Write, 15, 5);
        assert_eq!(joined.unwrap().seqid, 4);
    }
    let mut fixture = Fixture::with(StateLimits { lock_states_per_file: 1, ..SMALL });
    let open = fixture.open(0, "a", BOTH, 0);
    fixture.lock(0, by(open, "p"), LockType::Write, 0, 10).unwrap();
    let request = LockRequest {
        client: fixture.clients[0],
        file: FILE,
        kind: LockType::Write,
        reclaim: false,
        offset: 20,
        length: 1,
        locker: by(open, "q"),
    };
    assert_eq!(fixture.tables.lock(&request, 0), Err(StateFault::Failed(Status4::Delay)));
}

#[test]
fn the_shadow_is_the_strongest_lock_of_each_octet() {
    const END: u64 = 24;
    let mut random = fastrand::Rng::with_seed(15);
    for _ in 0..300 {
        let (mut fixture, opens) = opened();
        for _ in 0..random.usize(0..8) {
            let client = random.usize(0..2);
            let (offset, length) = (random.u64(0..END), random.u64(1..8));
            let kind = if random.bool() { LockType::Read } else { LockType::Write };
            let owner = ["p", "q"][random.usize(0..2)];
            let _denied = fixture.lock(client, by(opens[client], owner), kind, offset, length);
        }
        let held: Vec<_> = fixture.tables.file(FILE).unwrap().locks.held().collect();
        let first = random.u64(0..END);
        let asked = range(first, if random.bool() { u64::MAX } else { random.u64(1..END) });
        let (mut parts, mut rest) = (Vec::new(), Some(asked));
        while let Some(range) = rest {
            let part = fixture.tables.shadow_part(FILE, range, &mut random.usize(1..9));
            rest = range.behind(&part.range);
            parts.push(part);
        }
        let mut next = Some(asked.offset());
        for part in &parts {
            let is_next = match part.lock {
                // An unlocked part extends beyond both ends.
                None => next.is_some_and(|next| part.range.offset() <= next),
                Some(_) => next == Some(part.range.offset()),
            };
            assert!(is_next, "parts follow each other");
            next = part.range.last().checked_add(1);
            for octet in part.range.offset()..=part.range.last().min(2 * END) {
                let covers = |lock: &&stag_protocol::nfs::v4::state::HeldLock| {
                    lock.range.offset() <= octet && octet <= lock.range.last()
                };
                let strongest = held.iter().filter(covers).map(|lock| lock.exclusive).max();
                assert_eq!(part.lock, strongest, "{octet}");
            }
        }
        let is_end = |next: u64| asked.last().checked_add(1).is_some_and(|end| next >= end);
        assert!(next.is_none_or(is_end), "and end with the range");
    }
}
