//! Byte-range locks, and what ends with a client (RFC 8881 §9, §18.10–§18.12, §18.38, §18.48).

use super::client::Client4;
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
