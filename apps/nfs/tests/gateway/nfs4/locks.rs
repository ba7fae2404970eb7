//! Byte-range locks, and state that ends with its client
//! (RFC 8881 §9, §18.10–§18.12, §18.38, §18.48).

use super::client::{Client4, ServedExport};
use crate::gateway::wire::OverTcp;
use stag_engine::Config;
use stag_nfs::Gateway;
use stag_nfs_os::range_lock::{self, LockedOctets};
use stag_nfs_store::files::Files;
use stag_protocol::nfs::v4::*;

fn owner(name: &[u8]) -> StateOwner<'_> {
    StateOwner { client_id: 0, owner: Text(name) }
}

fn lock(open: Stateid, name: &[u8], offset: u64, length: u64) -> Request<'_> {
    let new = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner: owner(name) };
    let (kind, reclaim, locker) = (LockType::Write, false, Locker::New(new));
    Request::Lock(Lock4Args { kind, reclaim, offset, length, locker })
}

#[test]
fn a_lock_keeps_others_out_and_names_itself() {
    for mut client in Client4::all() {
        let (open, handle) = client.open(b"f");
        let put = Request::PutFh(Text(&handle));
        let first = client.run(&[put.clone(), lock(open, b"one", 10, 10)]);
        let Answer::Lock(Ok(locked)) = first.last() else { panic!("{:?}", first.last()) };
        let second = client.run(&[put.clone(), lock(open, b"two", 15, 1)]);
        assert_eq!(second.status(), Status4::Denied);
        let Answer::Lock(Err(LockFault::Denied(denied))) = second.last() else { panic!() };
        assert_eq!((denied.offset, denied.length, denied.kind), (10, 10, LockType::Write));
        assert_eq!(denied.owner.owner.0, b"one");
        let test = LockT4Args { kind: LockType::Read, offset: 0, length: 100, owner: owner(b"x") };
        let tested = client.run(&[put.clone(), Request::LockT(test)]);
        assert!(matches!(tested.last(), Answer::LockT(Err(LockFault::Denied(_)))));
        let close = Request::Close(Close4Args { seqid: 0, open });
        assert_eq!(client.run(&[put.clone(), close.clone()]).status(), Status4::LocksHeld);
        let unlock = Request::LockU(LockU4Args {
            kind: LockType::Write,
            seqid: 0,
            stateid: locked,
            offset: 0,
            length: u64::MAX,
        });
        let unlocked = client.run(&[put.clone(), unlock]);
        let Answer::LockU(Ok(stateid)) = unlocked.last() else { panic!() };
        let stateids = [stateid, locked, Stateid::ANONYMOUS];
        let tested = client.run(&[Request::TestStateid(Array::of(&stateids))]);
        let Answer::TestStateid(Ok(statuses)) = tested.last() else { panic!() };
        let statuses: Vec<_> = statuses.items().collect();
        assert_eq!(statuses, [Status4::Ok, Status4::OldStateid, Status4::BadStateid]);
        assert_eq!(client.run(&[Request::FreeStateid(stateid)]).status(), Status4::Ok);
        let second = client.run(&[put.clone(), lock(open, b"two", 15, 1)]);
        assert_eq!(second.status(), Status4::Ok);
    }
}

#[test]
fn a_lock_of_no_octets_or_beyond_the_end_of_numbers_is_refused() {
    let mut client = Client4::in_memory();
    let (open, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    for (offset, length) in [(0, 0), (u64::MAX, 2), (2, u64::MAX - 1)] {
        let reply = client.run(&[put.clone(), lock(open, b"one", offset, length)]);
        assert_eq!(reply.status(), Status4::Inval, "{offset} {length}");
    }
}

#[test]
fn the_reply_of_a_lock_can_be_kept() {
    let mut client = Client4::in_memory();
    let (open, handle) = client.open(b"f");
    let requests = [client.sequence(true), Request::PutFh(Text(&handle)), lock(open, b"one", 0, 1)];
    let first = client.send(&requests);
    assert_eq!(first.status(), Status4::Ok);
    assert_eq!(client.send(&requests), first);
}

#[test]
fn the_state_of_a_client_that_is_replaced_is_in_nobody_s_way() {
    let mut client = Client4::in_memory();
    let (open, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    client.run(&[put.clone(), lock(open, b"one", 0, 1)]);
    let (id, sequence) = client.exchange_id(b"client", 2).unwrap();
    client.id = id;
    client.session = client.create_session(sequence).unwrap().session;
    client.sequences = [0; 64];
    client.run(&[Request::ReclaimComplete(false)]);
    let locked = client.open(b"f");
    assert_eq!(client.run(&[]).status(), Status4::Ok);
    let reply = client.run(&[put, lock(locked.0, b"two", 0, 1)]);
    assert_eq!(reply.status(), Status4::Ok);
}

/// A client on a server with files, and the file `f` as a program of the host has it open.
fn beside_a_program() -> (Client4, std::fs::File) {
    let home = crate::gateway::client::Home::new();
    let gateway: Gateway<Files> = home.gateway().with_nfs4(super::client::CONFIG);
    let path = home.path("data/f");
    let wire = Box::new(OverTcp::new(gateway, Config::small()));
    let client = Client4::on(wire, ServedExport::new(b"data", home), 2);
    let mut options = std::fs::File::options();
    (client, options.read(true).write(true).create(true).truncate(false).open(path).unwrap())
}

const fn octets(first: u64, last: u64) -> LockedOctets {
    LockedOctets { first, last }
}

/// The locks that a program of the host finds in its way, one after the other.
fn seen(program: &std::fs::File) -> Vec<(u64, u64, bool)> {
    let (mut seen, mut from) = (Vec::new(), 0);
    while let Some(lock) = range_lock::find(program, octets(from, u64::MAX), true).unwrap() {
        seen.push((lock.octets.first, lock.octets.last, lock.exclusive));
        let Some(next) = lock.octets.last.checked_add(1) else { break };
        from = next;
    }
    seen
}

#[test]
fn programs_of_the_host_see_the_strongest_lock_of_all_clients() {
    let (mut client, program) = beside_a_program();
    let (open, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    let first = client.run(&[put.clone(), lock(open, b"one", 10, 10)]);
    let Answer::Lock(Ok(one)) = first.last() else { panic!("{:?}", first.last()) };
    assert_eq!(seen(&program), [(10, 19, true)]);
    let refused = range_lock::set(&program, octets(0, 10), Some(false)).unwrap_err();
    assert!(range_lock::is_conflict(refused));
    // Read locks of two owners, of which one becomes one of writing and goes again.
    let mut other = None;
    client.swap(&mut other);
    let (other_open, _) = client.open(b"f");
    let reads = |request| match request {
        Request::Lock(args) => Request::Lock(Lock4Args { kind: LockType::Read, ..args }),
        _ => unreachable!(),
    };
    let read = client.run(&[put.clone(), reads(lock(other_open, b"two", 30, u64::MAX))]);
    let Answer::Lock(Ok(two)) = read.last() else { panic!("{:?}", read.last()) };
    assert_eq!(seen(&program), [(10, 19, true), (30, u64::MAX, false)]);
    client.swap(&mut other);
    let read = client.run(&[put.clone(), reads(lock(open, b"three", 40, 10))]);
    let Answer::Lock(Ok(three)) = read.last() else { panic!("{:?}", read.last()) };
    let unlock = |stateid, offset, length| {
        let kind = LockType::Write;
        Request::LockU(LockU4Args { kind, seqid: 0, stateid, offset, length })
    };
    // What another client has locked stays.
    client.swap(&mut other);
    let freed = client.run(&[put.clone(), unlock(two, 0, u64::MAX)]);
    assert_eq!(freed.status(), Status4::Ok);
    assert_eq!(seen(&program), [(10, 19, true), (40, 49, false)]);
    client.swap(&mut other);
    // A part of a lock goes; the rest goes with the stateid.
    let freed = client.run(&[put.clone(), unlock(one, 12, 2), unlock(three, 0, u64::MAX)]);
    assert_eq!(freed.status(), Status4::Ok);
    assert_eq!(seen(&program), [(10, 11, true), (14, 19, true)]);
    range_lock::set(&program, octets(12, 13), Some(true)).unwrap();
    range_lock::set(&program, octets(0, u64::MAX), None).unwrap();
    let (id, sequence) = client.exchange_id(b"client", 2).unwrap();
    client.id = id;
    client.session = client.create_session(sequence).unwrap().session;
    client.sequences = [0; 64];
    client.run(&[Request::ReclaimComplete(false)]);
    assert_eq!(seen(&program), [], "a client that began anew has no locks");
}

#[test]
fn a_lock_that_a_program_of_the_host_has_is_in_the_way_of_clients() {
    let (mut client, program) = beside_a_program();
    let (open, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    range_lock::set(&program, octets(100, 199), Some(false)).unwrap();
    let mine = client.run(&[put.clone(), lock(open, b"one", 0, 50)]);
    assert_eq!(mine.status(), Status4::Ok);
    for offset in [50, 150, 199] {
        let denied = client.run(&[put.clone(), lock(open, b"two", offset, 60)]);
        let Answer::Lock(Err(LockFault::Denied(found))) = denied.last() else {
            panic!("{:?}", denied.last())
        };
        assert_eq!((found.offset, found.length, found.kind), (100, 100, LockType::Read));
        assert_eq!((found.owner.client_id, found.owner.owner.0), (0, &b"local"[..]));
    }
    assert_eq!(seen(&program), [(0, 49, true)], "what was refused is not shown");
    let test = |kind| {
        let asked = LockT4Args { kind, offset: 150, length: 1, owner: owner(b"x") };
        Request::LockT(asked)
    };
    let denied = client.run(&[put.clone(), test(LockType::Write)]);
    assert!(matches!(denied.last(), Answer::LockT(Err(LockFault::Denied(_)))));
    assert_eq!(client.run(&[put.clone(), test(LockType::Read)]).status(), Status4::Ok);
    drop(program);
    let granted = client.run(&[put, lock(open, b"two", 50, u64::MAX)]);
    assert_eq!(granted.status(), Status4::Ok);
}

/// Locks `count` bytes, each apart from the next, for one lock-owner: its stateid.
fn lock_many(client: &mut Client4, (open, handle): (Stateid, &[u8]), count: u64) -> Stateid {
    let mut last = None;
    for first in (0..count).step_by(13) {
        let locks = (first..count.min(first + 13)).map(|at| lock(open, b"many", 2 * at, 1));
        let requests: Vec<_> = [Request::PutFh(Text(handle))].into_iter().chain(locks).collect();
        let locked = client.run(&requests);
        let Answer::Lock(Ok(stateid)) = locked.last() else { panic!("{:?}", locked.last()) };
        last = Some(stateid);
    }
    last.unwrap()
}

const fn unlock_all(stateid: Stateid) -> Request<'static> {
    let (kind, length) = (LockType::Write, u64::MAX);
    Request::LockU(LockU4Args { kind, seqid: 0, stateid, offset: 0, length })
}

#[test]
fn an_unlock_of_thousands_of_ranges_is_one_answer_and_programs_see_that_it_is_done() {
    let (mut client, program) = beside_a_program();
    let (open, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    let locked = lock_many(&mut client, (open, &handle), 2_000);
    let apart = client.run(&[put.clone(), lock(open, b"two", 1_001, 1)]);
    assert_eq!(apart.status(), Status4::Ok);
    assert_eq!(seen(&program).len(), 1_999, "two touch the one between them");
    let freed = client.run(&[put.clone(), unlock_all(locked)]);
    let Answer::LockU(Ok(freed)) = freed.last() else { panic!("{:?}", freed.last()) };
    assert_eq!(freed.seqid, locked.seqid + 1, "all parts are one LOCKU");
    for _ in 0..64 {
        client.run(std::slice::from_ref(&put));
    }
    assert_eq!(seen(&program), [(1_001, 1_001, true)]);
    let locked = lock_many(&mut client, (open, &handle), 400);
    let whole = client.run(&[put.clone(), lock(open, b"many", 0, 1_000)]);
    assert_eq!(whole.status(), Status4::Ok);
    assert_eq!(seen(&program), [(0, 999, true), (1_001, 1_001, true)]);
    for stateid in [locked, freed] {
        let stateid = Stateid { seqid: 0, ..stateid };
        assert_eq!(client.run(&[put.clone(), unlock_all(stateid)]).status(), Status4::Ok);
    }
}

#[test]
fn a_file_with_too_many_ranges_refuses_more_by_a_status_that_no_client_waits_for() {
    let (mut client, program) = beside_a_program();
    let (open, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    let locked = lock_many(&mut client, (open, &handle), 4_096);
    let more = client.run(&[put.clone(), lock(open, b"many", 100_000, 1)]);
    assert_eq!(more.status(), Status4::ServerFault);
    assert_eq!(seen(&program).len(), 4_096, "what was refused is not shown");
    assert_eq!(client.run(&[put, unlock_all(locked)]).status(), Status4::Ok);
}

#[test]
fn eight_unlocks_of_everything_in_one_compound_leave_others_served_in_between() {
    let (mut client, _program) = beside_a_program();
    let (open, handle) = client.open(b"f");
    let locked = lock_many(&mut client, (open, &handle), 3_000);
    let stateid = Stateid { seqid: 0, ..locked };
    let mut requests = vec![Request::PutFh(Text(&handle))];
    requests.extend((0..8).map(|_| unlock_all(stateid)));
    let done = client.run(&requests);
    let Answer::LockU(Ok(last)) = done.last() else { panic!("{:?}", done.last()) };
    assert_eq!(last.seqid, locked.seqid + 8);
    assert!(client.wire.report().nfs4.suspensions > 0, "it was put aside");
}
