//! No OPEN fails with NFS4ERR_DELAY once it has made or cut its file, which its retry would find.

use crate::waiting::{
    beside::{Scene, ask},
    client4::{Reply4, put},
    holders::World,
    opening::{Shares, cutting, guarded, look_behind, named, opened},
};
use stag_nfs_store::files::Files;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Close4Args, Open4Args, OpenClaim, OpenHow, Request, StateOwner, Status4, Text, share},
};
use std::{fs, time::Duration};

const NO_DELEGATION: u32 = share::BOTH | share::WANT_NO_DELEGATION;
/// An OPEN that denies write access to all others.
const ALONE: Shares = Shares { access: NO_DELEGATION, deny: share::WRITE };
const PLAIN: Shares = Shares { access: NO_DELEGATION, deny: 0 };

/// A scene in which no message is in flight to the second shard, which makes no more passes.
fn late_scene() -> Scene {
    let mut scene = Scene::new();
    fs::write(scene.home.path().join("export/plain"), b"octets").unwrap();
    (0..1_000).for_each(|_| scene.world.step());
    scene.world.is_arrival_stuck = true;
    scene
}

/// Sends a compound of the first client, and lets a time pass that no OPEN waits for before it has
/// done anything.
fn send_and_wait(scene: &mut Scene, requests: &[Request<'static>]) -> Option<Status4> {
    let sequence = scene.world.sequence(0);
    let all: Vec<_> = std::iter::once(sequence).chain(requests.iter().cloned()).collect();
    scene.world.send(0, &all);
    let until = scene.world.now + Duration::from_millis(350);
    while scene.world.now < until {
        scene.world.step();
        if let Some(reply) = scene.world.take(0) {
            return Some(reply.status());
        }
    }
    None
}

/// Lets time pass until a client has its reply.
fn await_reply(scene: &mut Scene, client: usize) -> Reply4 {
    loop {
        scene.world.step();
        if let Some(reply) = scene.world.take(client) {
            return reply;
        }
    }
}

#[test]
fn an_open_that_has_made_its_file_waits_for_a_late_shard_as_long_as_it_takes() {
    let mut scene = late_scene();
    let requests = look_behind(&scene.directory, named(b"made", guarded(), ALONE));
    assert_eq!(send_and_wait(&mut scene, &requests), None, "the retry would be NFS4ERR_EXIST");
    assert_eq!(scene.names(), ["made", "plain"]);
    scene.world.is_arrival_stuck = false;
    opened(&await_reply(&mut scene, 0));
    let report = scene.world.server.snapshot().app.nfs4;
    assert_eq!((report.suspended, report.busy_slots), (0, 0));
}

#[test]
fn an_open_that_cuts_its_file_waits_for_a_late_shard_before_it_does() {
    let mut scene = late_scene();
    let requests = look_behind(&scene.directory, named(b"plain", cutting(), ALONE));
    assert_eq!(send_and_wait(&mut scene, &requests), Some(Status4::Delay));
    let path = scene.home.path().join("export/plain");
    assert_eq!(fs::read(&path).unwrap(), b"octets", "nothing is done");
    scene.world.is_arrival_stuck = false;
    while ask(&mut scene.world, 0, &requests).status() == Status4::Delay {}
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_file_that_another_shard_makes_and_denies_is_opened_at_the_first_try() {
    let mut scene = Scene::new();
    for name in [b"one".as_slice(), b"two", b"three"] {
        let requests = look_behind(&scene.directory, named(name, guarded(), ALONE));
        opened(&ask(&mut scene.world, 1, &requests));
    }
    assert_eq!(scene.names().len(), 3);
}

/// It would be refused, or deny what others may be about to do, if its arguments were not kept.
#[test]
fn an_open_that_another_shard_has_made_its_file_for_waits_although_no_buffer_is_free() {
    let mut scene = Scene::new();
    // The second shard has the slots from here on.
    let requests = look_behind(&scene.directory, named(b"first", guarded(), PLAIN));
    opened(&ask(&mut scene.world, 1, &requests));
    let requests = look_behind(&scene.directory, named(b"made", guarded(), ALONE));
    let sequence = scene.world.sequence(1);
    let all: Vec<_> = std::iter::once(sequence).chain(requests).collect();
    scene.world.is_stuck = true;
    scene.world.send(1, &all);
    (0..1_000).for_each(|_| scene.world.step());
    assert_eq!(scene.names(), ["first", "made"]);
    let taken = scene.world.server.with_app(|_, cx| {
        let lens = [1 << 20, 8 << 10, 1];
        let all = std::iter::from_fn(|| lens.into_iter().find_map(|len| cx.take(len)));
        let mut taken: Vec<_> = all.collect();
        // The reply has one: without it the home would not begin.
        taken.pop();
        taken
    });
    scene.world.is_arrival_stuck = true;
    scene.world.is_stuck = false;
    (0..1_000).for_each(|_| scene.world.step());
    assert_eq!(scene.world.server.snapshot().app.nfs4.suspended, 1);
    drop(taken);
    scene.world.is_arrival_stuck = false;
    opened(&await_reply(&mut scene, 1));
}

/// Opens of one client, at most, which are a third of all places, and opens of one file.
const OPENS: u32 = 65_536_u32.div_ceil(3);
const OPENS_OF_FILE: u32 = OPENS / 2;
/// OPENs of one compound.
const AT_ONCE: u32 = 8;

/// Opens a file by `OPENS_OF_FILE` owners.
fn crowd(world: &mut World<Files>, client: usize, file: &FileHandle) {
    for first in (0..OPENS_OF_FILE).step_by(AT_ONCE as usize) {
        let end = OPENS_OF_FILE.min(first + AT_ONCE);
        let owners: Vec<_> = (first..end).map(u32::to_be_bytes).collect();
        let opens = owners.iter().map(|owner| {
            Request::Open(Open4Args {
                seqid: 0,
                share_access: share::READ | share::WANT_NO_DELEGATION,
                share_deny: 0,
                owner: StateOwner { client_id: 0, owner: Text(owner) },
                how: OpenHow::NoCreate,
                claim: OpenClaim::Fh,
            })
        });
        let all: Vec<_> = [world.sequence(client), put(file)].into_iter().chain(opens).collect();
        assert_eq!(world.exchange(client, &all).status(), Status4::Ok);
    }
}

/// Fills the places of a client.
fn fill(scene: &mut Scene, client: usize) {
    for name in [b"first".as_slice(), b"second"] {
        let requests = look_behind(&scene.directory, named(name, guarded(), PLAIN));
        let (open, file) = opened(&ask(&mut scene.world, client, &requests));
        let close = [put(&file), Request::Close(Close4Args { seqid: 0, open })];
        assert_eq!(ask(&mut scene.world, client, &close).status(), Status4::Ok);
        crowd(&mut scene.world, client, &file);
    }
    assert_eq!(OPENS, 2 * OPENS_OF_FILE);
}

#[test]
fn no_file_is_made_for_an_open_that_no_table_has_room_for() {
    let mut scene = Scene::new();
    fill(&mut scene, 1);
    let mut refused = 0;
    for name in [b"one".as_slice(), b"two", b"three", b"four"] {
        let requests = look_behind(&scene.directory, named(name, guarded(), PLAIN));
        let reply = ask(&mut scene.world, 1, &requests);
        let is_there = scene.names().iter().any(|one| one.as_bytes() == name);
        match reply.status() {
            // What the second shard knew of room was one request old.
            Status4::Ok => assert!(is_there && refused == 0),
            status => {
                assert_eq!((status, is_there), (Status4::Delay, false));
                refused += 1;
            }
        }
    }
    assert!(refused >= 3, "{refused}");
}
