//! Requests wait a moment for a conflicting delegation to be returned.

use crate::waiting::{
    client4::put,
    holders::{World, open},
    requester::request as request3,
};
use stag_engine::Token;
use stag_nfs_store::memory::Memory;
use stag_protocol::nfs::{
    v3::{self, FileHandle},
    v4::*,
};
use std::time::Duration;

#[test]
fn an_open_goes_on_when_the_delegation_in_its_way_is_returned() {
    for are_forwarded in [[false, false], [false, true], [true, false], [true, true]] {
        go_on_when_returned(are_forwarded);
    }
}

fn go_on_when_returned(are_forwarded: [bool; 2]) {
    let mut world = World::new(are_forwarded);
    let (delegation, file) = world.delegate();
    let before = world.server.snapshot().app.nfs4.suspensions;
    let began = world.conflict();
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    let reply = loop {
        if let Some(reply) = world.take(1) {
            break reply;
        }
        world.step();
    };
    assert_eq!(reply.status(), Status4::Ok, "{reply:?}");
    assert!(world.now.since(began) < Duration::from_millis(100), "it did not wait on");
    let report = world.server.snapshot().app.nfs4;
    let waited = report.suspensions - before;
    assert_eq!((report.suspended, waited, report.busy_slots), (0, 1, 0));
    assert_eq!(world.clients[0].app().recalled[0].1, file.octets());
    let forwarded = world.arrival.snapshot().app.nfs4.forwarded;
    let count = are_forwarded.iter().filter(|is_forwarded| **is_forwarded).count();
    assert!((forwarded > 0) == (count > 0), "{forwarded} were forwarded");
}

#[test]
fn the_first_open_of_a_file_waits_for_other_shards_to_hear_of_it_unless_one_of_them_hangs() {
    for are_forwarded in [[false, false], [true, false]] {
        let mut world = World::new(are_forwarded);
        world.make_file();
        let before = world.server.snapshot().app.nfs4.suspensions;
        assert!(world.open_existing().is_some());
        assert_eq!(world.server.snapshot().app.nfs4.suspensions, before + 1, "it waited");
    }
    let mut world = World::new([false, true]);
    world.make_file();
    world.is_arrival_stuck = true;
    for bounds in [10..15, 0..10] {
        let began = world.now;
        assert!(world.open_existing().is_none());
        let waited = world.now.since(began).as_millis();
        assert!(bounds.contains(&waited), "{waited} ms");
        world.close();
    }
    world.is_arrival_stuck = false;
    assert!((0..100).any(|_| world.open_existing().is_some()));
}

#[test]
fn a_delegation_that_does_not_come_back_in_time_is_asked_for_again() {
    let mut world = World::new([false, true]);
    let (delegation, file) = world.delegate();
    let began = world.conflict();
    let wake_at = world.server.wake_at().expect("a shard that sleeps is woken for it");
    assert!(wake_at.since(began) <= Duration::from_millis(100));
    let reply = loop {
        if let Some(reply) = world.take(1) {
            break reply;
        }
        world.step();
    };
    let waited = world.now.since(began);
    assert_eq!((reply.status(), reply.answers().len()), (Status4::Delay, 4), "{reply:?}");
    assert!(waited >= Duration::from_millis(100) && waited < Duration::from_millis(200));
    // The same question again, when it is back.
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    let requests = [
        world.sequence(1),
        Request::PutRootFh(()),
        Request::Lookup(Text(b"memory")),
        open(share::BOTH, OpenHow::NoCreate),
    ];
    assert_eq!(world.exchange(1, &requests).status(), Status4::Ok);
    assert_eq!(world.server.snapshot().app.nfs4.busy_slots, 0);
}

#[test]
fn version_3_on_another_shard_asks_the_home_before_it_changes_what_is_delegated() {
    let mut world = World::new([false, true]);
    let (delegation, file) = world.delegate();
    let set = v3::Call::SetAttr(v3::SetAttrArgs {
        object: file,
        attributes: v3::SetAttributes { mode: Some(0o600), ..v3::SetAttributes::default() },
        guard: None,
    });
    assert_eq!(world.exchange3(&set), v3::Status::Jukebox as u32, "it has to come back first");
    while world.clients[0].app().recalled.is_empty() {
        world.step();
    }
    let asked = |world: &World<Memory>| world.arrival.snapshot().app.nfs4.asked_home;
    assert_eq!(asked(&world), 1);
    // A name without a delegation: the home's verdict is that it may be removed, and the shard's
    // own store is asked, which does not know handles of the home's store.
    let root = [
        world.sequence(0),
        Request::PutRootFh(()),
        Request::Lookup(Text(b"memory")),
        Request::GetFh(()),
    ];
    let reply = world.exchange(0, &root);
    let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
    let dir = FileHandle::new(handle.0).unwrap();
    let remove = v3::Call::Remove(v3::RemoveArgs {
        object: v3::DirOpArgs { dir, name: v3::Name(b"nothing") },
    });
    let unknown = [v3::Status::Stale as u32, v3::Status::BadHandle as u32];
    assert!(unknown.contains(&world.exchange3(&remove)));
    assert_eq!(asked(&world), 2);
    // With the delegation gone, another one may be given at any moment, until a change is let
    // through. Then the home need not be asked.
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    for _ in 0..3 {
        assert!(unknown.contains(&world.exchange3(&set)));
        assert_eq!(asked(&world), 3);
    }
}

/// A SETATTR of the mode, which conflicts with every delegation.
fn change(file: FileHandle) -> v3::Call<'static> {
    v3::Call::SetAttr(v3::SetAttrArgs {
        object: file,
        attributes: v3::SetAttributes { mode: Some(0o600), ..v3::SetAttributes::default() },
        guard: None,
    })
}

#[test]
fn no_delegation_is_given_before_every_shard_knows_that_it_has_to_ask() {
    let mut world = World::new([false, true]);
    // No message is left in flight to the shard that stops looking: its time would not go on.
    for _ in 0..1_000 {
        world.step();
    }
    world.is_arrival_stuck = true;
    for _ in 0..20 {
        assert_eq!(world.open_for_reading().0, None, "the other shard may be changing it");
    }
    world.is_arrival_stuck = false;
    let (_, file) = world.delegate();
    assert_eq!(world.exchange3(&change(file)), v3::Status::Jukebox as u32);
}

#[test]
fn a_change_that_was_let_through_is_done_before_a_delegation_is_given() {
    let mut world = World::new([false, true]);
    let (delegation, file) = world.delegate();
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    let asked = |world: &World<Memory>| world.arrival.snapshot().app.nfs4.asked_home;
    let before = asked(&world);
    world.clients[1].with_app(|app, cx| {
        let (peer, call) = (app.peer.unwrap(), request3(cx, Token(0), &change(file)));
        cx.call(peer, call);
    });
    while asked(&world) == before {
        world.step();
    }
    // The home lets it through, and the shard does not come to carry it out.
    world.is_arrival_stuck = true;
    for _ in 0..20 {
        assert_eq!(world.open_for_reading().0, None, "a change is on its way");
    }
    assert!(world.clients[1].app().replies.is_empty());
    world.is_arrival_stuck = false;
    world.delegate();
    while world.clients[1].app().replies.is_empty() {
        world.step();
    }
    assert_eq!(asked(&world), before + 1);
}

#[test]
fn clients_that_come_and_go_while_the_home_is_busy_fill_no_memory() {
    let mut world = World::new([false, true]);
    let before = world.arrival.snapshot().app.nfs4.forwarded;
    let first = world.sequences[1];
    world.is_stuck = true;
    let (mut delayed, mut lost) = (0, 0);
    for _ in 0..200 {
        let root = [world.sequence(1), Request::PutRootFh(())];
        world.send(1, &root);
        // The call is taken, and refused at once or not at all.
        for _ in 0..50 {
            world.step();
        }
        match world.take(1) {
            Some(reply) => {
                assert_eq!(reply.status(), Status4::Delay);
                delayed += 1;
            }
            None => lost += 1,
        }
        let second = world.second;
        world.clients[1].with_app(|app, cx| cx.disconnect(app.peer.take().unwrap()));
        for _ in 0..50 {
            world.step();
        }
        world.clients[1].connect(&second).unwrap();
        while world.clients[1].app().peer.is_none() {
            world.step();
        }
    }
    assert_eq!((lost, delayed), (128, 72), "so many lie in boxes");
    assert_eq!(world.arrival.snapshot().app.nfs4.forwarded - before, 128);
    assert_eq!(world.clients[1].app().lost, 128);
    // The home carries them out in their order. No client waits for their replies, and the slot
    // goes on.
    world.is_stuck = false;
    for _ in 0..1_000 {
        world.step();
    }
    world.sequences[1] = first + 128;
    let root = [world.sequence(1), Request::PutRootFh(())];
    assert_eq!(world.exchange(1, &root).status(), Status4::Ok);
}
