//! Locks and opens that a client waits for, and that belong to a client or a program that is gone,
//! in virtual time.

use crate::waiting::{
    beside::{Scene, ask},
    client4::put,
    holders::{World, open, open_denying},
    opening::{Shares, look_behind, named, opened},
};
use stag_nfs_os::range_lock::{self, LockedOctets};
use stag_nfs_store::{Store, memory::Memory};
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{
        Answer, CreateHow4, Lock4Args, LockType, Locker, NewLockOwner, OpenHow, RawAttributes,
        Request, StateOwner, Stateid, Status4, Text, share,
    },
};
use std::{fs, time::Duration};

const LEASE: Duration = Duration::from_secs(10);
const NO_DELEGATION: u32 = share::BOTH | share::WANT_NO_DELEGATION;

fn make() -> OpenHow<'static> {
    OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default()))
}

fn lock(open: Stateid) -> Request<'static> {
    let owner = StateOwner { client_id: 0, owner: Text(b"locker") };
    let owner = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner };
    let (kind, locker) = (LockType::WriteWait, Locker::New(owner));
    Request::Lock(Lock4Args { kind, reclaim: false, offset: 0, length: 10, locker })
}

/// Opens the file by a client.
fn open_by(
    world: &mut World<Memory>,
    client: usize,
    open: Request<'_>,
) -> Result<Stateid, Status4> {
    let requests =
        [world.sequence(client), Request::PutRootFh(()), Request::Lookup(Text(b"memory")), open];
    match world.exchange(client, &requests).last() {
        Answer::Open(open) => open.map(|open| open.stateid),
        other => panic!("{other:?}"),
    }
}

/// Asks for the lock by a client that has the file of that name open.
fn lock_by(world: &mut World<Memory>, client: usize, open: Stateid) -> Status4 {
    let [root, export] = [Request::PutRootFh(()), Request::Lookup(Text(b"memory"))];
    let file = Request::Lookup(Text(b"file"));
    let requests = [world.sequence(client), root, export, file, lock(open)];
    world.exchange(client, &requests).status()
}

/// Lets time pass, in which the second client renews its lease.
fn pass<S: Store>(world: &mut World<S>, time: Duration) {
    let until = world.now + time;
    while world.now < until {
        world.step();
    }
    let renew = [world.sequence(1), Request::PutRootFh(())];
    assert_eq!(world.exchange(1, &renew).status(), Status4::Ok);
}

#[test]
fn a_lock_of_a_client_that_is_gone_is_free_one_lease_later_and_who_waits_for_it_is_notified() {
    for are_forwarded in [[false, false], [false, true], [true, false]] {
        let mut world = World::leasing(are_forwarded, LEASE);
        let opens =
            [0, 1].map(|client| open_by(&mut world, client, open(NO_DELEGATION, make())).unwrap());
        assert_eq!(lock_by(&mut world, 0, opens[0]), Status4::Ok);
        let began = world.now;
        assert_eq!(lock_by(&mut world, 1, opens[1]), Status4::Denied);
        let wake_at = world.server.wake_at().expect("a shard that sleeps is woken for a waiter");
        assert!(wake_at.since(world.now) <= Duration::from_secs(1));
        while world.clients[1].app().notices == 0 {
            pass(&mut world, Duration::from_millis(100));
            assert!(world.now.since(began) < LEASE + Duration::from_secs(2), "{are_forwarded:?}");
        }
        assert!(world.now.since(began) >= LEASE, "a lease lasts as long as it says");
        assert_eq!(lock_by(&mut world, 1, opens[1]), Status4::Ok);
    }
}

#[test]
fn the_state_of_a_client_that_is_gone_stays_while_nobody_waits_for_it() {
    let mut world = World::leasing([false, false], LEASE);
    let opens =
        [0, 1].map(|client| open_by(&mut world, client, open(NO_DELEGATION, make())).unwrap());
    assert_eq!(lock_by(&mut world, 0, opens[0]), Status4::Ok);
    (0..30).for_each(|_| pass(&mut world, Duration::from_secs(1)));
    let renew = [world.sequence(0), Request::PutRootFh(())];
    assert_eq!(world.exchange(0, &renew).status(), Status4::Ok);
    assert_eq!(lock_by(&mut world, 1, opens[1]), Status4::Denied, "it came back");
    assert_eq!(world.clients[1].app().notices, 0);
}

#[test]
fn what_a_client_that_is_gone_denies_is_open_to_others_one_lease_later() {
    let mut world = World::leasing([false, false], LEASE);
    let alone = || open_denying(NO_DELEGATION, share::BOTH, make());
    while open_by(&mut world, 0, alone()).is_err() {}
    let began = world.now;
    while let Err(status) = open_by(&mut world, 1, open(NO_DELEGATION, OpenHow::NoCreate)) {
        assert_eq!(status, Status4::ShareDenied);
        pass(&mut world, Duration::from_millis(100));
        assert!(world.now.since(began) < LEASE + Duration::from_secs(2));
    }
    assert!(world.now.since(began) >= LEASE);
}

#[test]
fn who_waits_for_a_lock_of_a_program_is_notified_when_the_program_unlocks() {
    let mut scene = Scene::new();
    let path = scene.home.path().join("export/file");
    fs::write(&path, b"octets").unwrap();
    let shares = Shares { access: NO_DELEGATION, deny: 0 };
    let found = look_behind(&scene.directory, named(b"file", OpenHow::NoCreate, shares));
    let (open, file): (Stateid, FileHandle) = opened(&ask(&mut scene.world, 1, &found));
    let program = fs::File::options().write(true).read(true).open(&path).unwrap();
    let octets = LockedOctets { first: 0, last: 4 };
    range_lock::set(&program, octets, Some(true)).unwrap();
    let asked = [put(&file), lock(open)];
    assert_eq!(ask(&mut scene.world, 1, &asked).status(), Status4::Denied);
    (0..3).for_each(|_| pass(&mut scene.world, Duration::from_secs(1)));
    assert_eq!(scene.world.clients[1].app().notices, 0, "it is still locked");
    range_lock::set(&program, octets, None).unwrap();
    let wake_at = scene.world.server.wake_at().expect("the system does not report it");
    assert!(wake_at.since(scene.world.now) <= Duration::from_secs(1));
    pass(&mut scene.world, Duration::from_millis(1_100));
    assert_eq!(scene.world.clients[1].app().notices, 1);
    assert_eq!(ask(&mut scene.world, 1, &asked).status(), Status4::Ok);
}
