//! Slots of a session go to the shard that its requests come from.

use crate::waiting::{
    client4::{CONFIG, Reply4, create, exchange_over, look, make_directory, put, request},
    lending::{Deaf, Guest, LEASE, Rival, close, even, lock, opened, read, write},
    store::Pace,
    world::World,
};
use stag_nfs::Nfs4Config;
use stag_protocol::nfs::v4::{Answer, Request, Status4, share};
use std::time::Duration;

#[test]
fn slots_go_to_the_shard_that_requests_come_from_for_long_with_what_the_client_has() {
    let mut world = even(CONFIG);
    let mut guest = Guest::new(&mut world, 0);
    let stateid = guest.stateid;
    assert_eq!(guest.ask(&mut world, 0, write(stateid)).status(), Status4::Ok);
    let reply = guest.ask(&mut world, 0, lock(stateid, 100));
    let Answer::Lock(Ok(locks)) = reply.last() else { panic!("{reply:?}") };
    // The slots are at the home, with what was opened and locked since.
    let mut cost = |world: &mut World, asked: Request<'static>| {
        let (forwarded, lent) = (world.forwarded(), world.lent());
        assert_eq!(guest.ask(world, 1, asked).status(), Status4::Ok);
        (world.forwarded() - forwarded, world.lent() - lent)
    };
    let away = (0..100).take_while(|_| cost(&mut world, read(stateid)) == (1, 0)).count();
    assert_eq!(away, 32);
    for asked in [write(stateid), read(locks), look()] {
        assert_eq!(cost(&mut world, asked), (0, 1));
    }
    // Who asks again the other way finds what was answered here.
    let (replayed, file) = (world.report().nfs4.replayed, world.file);
    assert_eq!(guest.ask(&mut world, 1, write(stateid)).status(), Status4::Ok);
    let again = [guest.session.again(0, true), put(&file), write(stateid)];
    assert_eq!(exchange_over(&mut world, 0, 0, &again).status(), Status4::Ok);
    assert_eq!(world.report().nfs4.replayed, replayed + 1);
    world.end();
}

#[test]
fn who_has_more_states_than_that_gets_the_slots_behind_as_many_requests() {
    let mut world = even(CONFIG);
    let mut guest = Guest::new(&mut world, 0);
    let slow = world.slow;
    for number in 0..40 {
        let name = format!("file-{number}");
        let made = [guest.session.next(0, true), put(&slow), create(name.as_bytes())];
        assert_eq!(exchange_over(&mut world, 0, 0, &made).status(), Status4::Ok);
    }
    let mut is_away = |world: &mut World| {
        let lent = world.lent();
        assert_eq!(guest.ask(world, 1, look()).status(), Status4::Ok);
        world.lent() == lent
    };
    assert_eq!((0..200).take_while(|_| is_away(&mut world)).count(), 64);
    world.end();
}

/// A compound that comes `delay` steps after the one that brings the slots. Returns true if it
/// was in flight to the home then, and was carried out at the second shard.
fn cross(delay: u64) -> bool {
    let mut world = even(CONFIG);
    let mut guest = Guest::new(&mut world, 0);
    let (file, slow) = (world.file, world.slow);
    for connection in std::iter::once(0).chain([1; 31]) {
        assert_eq!(guest.ask(&mut world, connection, look()).status(), Status4::Ok);
    }
    let (forwarded, lent) = (world.forwarded(), world.lent());
    let last = [guest.session.next(0, true), put(&file), look()];
    world.send(0, 1, |cx, token| request(cx, token, &last));
    (0..delay).for_each(|_| world.step());
    let behind = [guest.session.next(1, true), put(&slow), make_directory(b"made")];
    world.send(0, 3, |cx, token| request(cx, token, &behind));
    for _ in 0..2 {
        let reply = loop {
            match world.take(0) {
                Some((_, reply)) => break Reply4::of(&reply),
                None => world.step(),
            }
        };
        assert_eq!(reply.status(), Status4::Ok);
    }
    assert!(world.shared.borrow().done.values().all(|times| *times == 1));
    let counts = (world.forwarded() - forwarded, world.lent() - lent);
    world.end();
    counts == (2, 1)
}

#[test]
fn compounds_that_cross_the_message_with_the_slots_come_back_and_are_carried_out_once() {
    assert!((0..150).filter(|delay| cross(*delay)).count() > 0);
}

/// The connection is lost after a call that hangs, and the client comes back over another shard,
/// where it waits for its slots: the delay is not the client's.
#[test]
fn what_a_client_says_while_its_slots_are_held_up_is_heard_before_anything_is_taken_from_it() {
    let Deaf { mut world, mut session, given, mut rival, .. } = Deaf::new(share::READ);
    world.shared.borrow_mut().pace = Pace::NoChange;
    let (slow, file) = (world.slow, world.file);
    let hangs = [session.next(0, true), put(&slow), make_directory(b"late")];
    world.send(0, 1, |cx, token| request(cx, token, &hangs));
    assert!(opened(&rival.open_denying(&mut world, 0)).is_none(), "it is recalled");
    let back = [session.next(1, true), put(&file), Request::DelegReturn(given)];
    world.send(0, 2, |cx, token| request(cx, token, &back));
    for _ in 0..64 {
        world.pass_time(LEASE / 16);
        // The delegation and the open conflict with it.
        for deny in [0, share::BOTH] {
            let reply = rival.open_denying(&mut world, deny);
            assert!(opened(&reply).is_none(), "the slots are not back");
        }
    }
    go_on(world, rival);
}

/// The store goes on: two requests that hung or waited are answered.
fn answer_two(world: &mut World) {
    assert!(world.take(0).is_none());
    world.shared.borrow_mut().pace = Pace::Even;
    for _ in 0..2 {
        let (token, reply) = loop {
            world.step();
            if let Some(answered) = world.take(0) {
                break answered;
            }
        };
        assert_eq!(Reply4::of(&reply).status(), Status4::Ok, "call {token}");
    }
}

/// The same, and the file is the rival's then.
fn go_on(mut world: World, mut rival: Rival) {
    answer_two(&mut world);
    while opened(&rival.open_denying(&mut world, 0)).is_none() {
        world.pass_time(Duration::from_millis(100));
    }
    world.end();
}

/// A client returns a delegation while a WRITE by it hangs, as Linux does not. The delay is
/// not the client's.
#[test]
fn what_is_given_up_behind_its_own_write_waits_for_that_and_is_not_taken_away() {
    let Deaf { mut world, mut session, given, mut rival, .. } = Deaf::new(share::BOTH);
    let file = world.file;
    world.shared.borrow_mut().pace = Pace::NoChange;
    let late = [session.next(0, true), put(&file), write(given)];
    world.send(0, 1, |cx, token| request(cx, token, &late));
    assert!(opened(&rival.open_denying(&mut world, 0)).is_none(), "it is recalled");
    let back = [session.next(1, true), put(&file), Request::DelegReturn(given)];
    world.send(0, 3, |cx, token| request(cx, token, &back));
    for _ in 0..64 {
        world.pass_time(LEASE / 16);
        let alive = [session.next(2, false), Request::PutRootFh(())];
        assert_eq!(exchange_over(&mut world, 0, 1, &alive).status(), Status4::Ok);
        assert!(opened(&rival.open_denying(&mut world, 0)).is_none(), "the WRITE is not over");
    }
    go_on(world, rival);
}

#[test]
fn what_is_given_up_behind_its_own_write_leaves_the_rest_where_it_is() {
    let Deaf { mut world, mut session, opened, given, .. } = Deaf::new(share::BOTH);
    let file = world.file;
    world.shared.borrow_mut().pace = Pace::NoChange;
    let late = [session.next(0, true), put(&file), write(given)];
    world.send(0, 1, |cx, token| request(cx, token, &late));
    let back = [session.next(1, true), put(&file), Request::DelegReturn(given)];
    world.send(0, 3, |cx, token| request(cx, token, &back));
    world.pass_time(Duration::from_secs(1));
    // Nothing is let through by it any more.
    let forwarded = world.forwarded();
    let reading = [session.next(2, false), put(&file), read(given)];
    assert_eq!(exchange_over(&mut world, 0, 1, &reading).status(), Status4::Ok);
    assert_eq!(world.forwarded(), forwarded + 1);
    answer_two(&mut world);
    let reading = [session.next(2, false), put(&file), read(given)];
    assert_eq!(exchange_over(&mut world, 0, 1, &reading).status(), Status4::BadStateid);
    let (forwarded, lent) = (world.forwarded(), world.lent());
    let reading = [session.next(2, false), put(&file), read(opened)];
    assert_eq!(exchange_over(&mut world, 0, 1, &reading).status(), Status4::Ok);
    assert_eq!((world.forwarded(), world.lent()), (forwarded, lent + 1));
    world.end();
}

/// The stateids of others are no secret.
#[test]
fn who_gives_up_what_another_client_has_takes_nothing_from_it() {
    let Deaf { mut world, mut session, opened, given, rival } = Deaf::new(share::BOTH);
    let mut other = rival.0.another_over(&mut world, 1, 1);
    let file = world.file;
    for asked in [close(opened), Request::DelegReturn(given)] {
        let asked = [other.next(0, true), put(&file), asked];
        assert_eq!(exchange_over(&mut world, 1, 1, &asked).status(), Status4::BadStateid);
    }
    for by in [opened, given] {
        let (forwarded, lent) = (world.forwarded(), world.lent());
        let reading = [session.next(0, false), put(&file), read(by)];
        assert_eq!(exchange_over(&mut world, 0, 1, &reading).status(), Status4::Ok);
        assert_eq!((world.forwarded(), world.lent()), (forwarded, lent + 1));
    }
    world.end();
}

/// An expired client speaks while it is about to be removed, this many steps after another one
/// asks for its file. Returns true if it is alive.
fn speak_late(steps: usize, is_asked_before: bool) -> bool {
    let mut world = even(Nfs4Config { lease: LEASE, ..CONFIG });
    let Guest { mut session, stateid } = Guest::new(&mut world, share::BOTH);
    let mut rival = Rival::new(&mut world);
    rival.outlive(&mut world, LEASE);
    if is_asked_before {
        assert_eq!(rival.conflict(&mut world), Status4::Delay, "its shard is asked");
        world.pass_time(Duration::from_millis(100));
    }
    rival.want(&mut world);
    (0..steps).for_each(|_| world.step());
    let alive = [session.next(1, false)];
    let is_alive = exchange_over(&mut world, 0, 1, &alive).status() == Status4::Ok;
    world.pass_time(Duration::from_secs(1));
    let (_, reply) = world.take(1).unwrap();
    let is_given = Reply4::of(&reply).status() == Status4::Ok;
    assert!(!(is_alive && is_given), "it was told that it has it, {steps} steps later");
    if is_alive {
        assert_eq!(rival.conflict(&mut world), Status4::ShareDenied, "{steps} steps later");
    }
    let file = world.file;
    let reading = [session.next(2, false), put(&file), read(stateid)];
    let status = exchange_over(&mut world, 0, 1, &reading).status();
    assert_eq!(status, if is_alive { Status4::Ok } else { Status4::BadSession });
    world.end();
    is_alive
}

#[test]
fn an_expired_client_that_is_answered_keeps_what_it_has() {
    let alive = (0..60).filter(|steps| speak_late(*steps, true)).count();
    assert!((1..60).contains(&alive), "both happen: {alive} of 60");
    assert!((0..60).all(|steps| speak_late(steps, false)), "its shard was not asked before");
}
