//! Calls beyond the limit of calls in progress wait for a place. They are answered in their turn,
//! and asked to retry only when no place becomes free.

use crate::waiting::{store::Pace, world::World};
use stag_protocol::{
    nfs::v3::{Call, GetAttrArgs, Procedure, ReadArgs, Reply, SetAttrArgs, SetAttributes, Status},
    rpc::ReplyHeader,
    xdr::Reader,
};
use std::{collections::BTreeMap, time::Duration};

/// READs and WRITEs of this size take a large buffer, of which eight may be lent here.
const LEN: u32 = 100 << 10;
const MANY: u64 = 30;

type Answers = BTreeMap<u64, Status>;

/// Makes steps until `count` calls are answered, or time is over; returns the statuses by token.
fn answers(world: &mut World, procedure: impl Fn(u64) -> Procedure, count: usize) -> Answers {
    let mut found = BTreeMap::new();
    let began = world.now;
    while found.len() < count && world.now.since(began) < Duration::from_secs(20) {
        world.step();
        for client in 0..2 {
            while let Some((token, reply)) = world.take(client) {
                let reader = Reader::new(&reply[ReplyHeader::LEN..]);
                let reply = Reply::parse(procedure(token), reader).unwrap();
                assert!(found.insert(token, reply.status()).is_none(), "one answer for each call");
            }
        }
    }
    found
}

/// Each number makes a different call: a duplicate would not be in progress twice.
fn read(world: &World, number: u64) -> Call<'static> {
    Call::Read(ReadArgs { file: world.file, offset: number, count: LEN })
}

/// Connections are there, and have credits.
fn connect(world: &mut World) {
    for number in 0..4 {
        world.call(number / 2, number as u64, &Call::Null);
    }
    answers(world, |_| Procedure::Null, 4);
}

#[test]
fn reads_beyond_the_buffers_that_may_be_lent_are_answered_in_their_turn() {
    let mut world = World::new(1);
    world.shared.borrow_mut().pace = Pace::Even;
    for token in 0..MANY {
        let call = read(&world, token);
        world.call(token as usize % 2, token, &call);
    }
    let found = answers(&mut world, |_| Procedure::Read, MANY as usize);
    assert_eq!(found.len() as u64, MANY);
    assert!(found.values().all(|status| *status == Status::Ok), "{found:?}");
    let waiting = world.report().waiting;
    assert_eq!((waiting.refused, waiting.withdrawn), (0, 0));
    world.end();
}

#[test]
fn a_call_whose_place_does_not_come_is_given_up_and_one_that_needs_no_buffer_waits_for_none() {
    let mut world = World::new(2);
    connect(&mut world);
    // READs hang, and what changes something does not.
    world.shared.borrow_mut().pace = Pace::ChangesOnly;
    for token in 0..MANY {
        let call = read(&world, token);
        world.call(token as usize % 2, token, &call);
    }
    world.pass_time(Duration::from_millis(100));
    assert_eq!(world.report().waiting.under_way, 8, "a quarter of the large buffers");
    let attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let set = SetAttrArgs { object: world.file, attributes, guard: None };
    world.call(0, 100, &Call::SetAttr(set));
    let procedure = |token| if token == 100 { Procedure::SetAttr } else { Procedure::Read };
    let found = answers(&mut world, procedure, 1);
    assert_eq!(found, BTreeMap::from([(100, Status::Ok)]));
    // Twenty-two waited for two seconds, and eight hung for five.
    let began = world.now;
    let found = answers(&mut world, procedure, MANY as usize - 8);
    assert!(world.now.since(began) < Duration::from_secs(3), "{:?}", world.now.since(began));
    assert!(found.values().all(|status| *status == Status::Jukebox), "{found:?}");
    assert_eq!(world.report().waiting.withdrawn, MANY - 8);
    let found = answers(&mut world, procedure, 8);
    assert!(found.values().all(|status| *status == Status::Jukebox), "{found:?}");
    assert_eq!((found.len(), world.report().waiting.given_up), (8, 8));
    // What comes then finds a place again.
    world.shared.borrow_mut().pace = Pace::Even;
    world.call(1, 200, &Call::GetAttr(GetAttrArgs { object: world.file }));
    let found = answers(&mut world, |_| Procedure::GetAttr, 1);
    assert_eq!(found, BTreeMap::from([(200, Status::Ok)]));
    world.end();
}

#[test]
fn a_call_that_needs_another_kind_of_buffer_waits_for_none_of_this_one() {
    let mut world = World::new(4);
    connect(&mut world);
    // READs hang: more than may have a large buffer, and then as many as may have a medium one.
    world.shared.borrow_mut().pace = Pace::ChangesOnly;
    for token in 0..20 {
        let call = read(&world, token);
        world.call(token as usize % 2, token, &call);
    }
    world.pass_time(Duration::from_millis(50));
    assert_eq!(world.report().waiting.under_way, 8, "a quarter of the large buffers");
    for token in 20..28 {
        let read = ReadArgs { file: world.file, offset: token, count: 40_000 };
        world.call(token as usize % 2, token, &Call::Read(read));
    }
    world.pass_time(Duration::from_millis(50));
    assert_eq!(world.report().waiting.under_way, 16, "they did not wait behind the others");
    world.shared.borrow_mut().pace = Pace::Even;
    let found = answers(&mut world, |_| Procedure::Read, 28);
    assert!(found.len() == 28 && found.values().all(|it| *it == Status::Ok), "{found:?}");
    world.end();
}

#[test]
fn a_caller_that_goes_while_it_waits_leaves_nothing_behind() {
    let mut world = World::new(3);
    connect(&mut world);
    world.shared.borrow_mut().pace = Pace::ChangesOnly;
    for token in 0..MANY {
        let call = read(&world, token);
        world.call(0, token, &call);
    }
    world.pass_time(Duration::from_millis(100));
    assert_eq!(world.report().waiting.under_way, 8);
    world.leave(0);
    world.pass_time(Duration::from_millis(100));
    world.shared.borrow_mut().pace = Pace::Even;
    world.pass_time(Duration::from_millis(200));
    // Waiting calls were dropped without a read.
    assert_eq!(world.report().waiting.put_off, 8);
    // Asserts that buffers, calls and the records of them are released.
    world.end();
}
