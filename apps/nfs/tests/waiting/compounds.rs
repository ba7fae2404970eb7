//! Compounds that wait, one thing at a time.

use crate::waiting::{
    client4::{
        CONFIG, Reply4, Session4, create, exchange, look, make_directory, put, read, request,
    },
    store::Pace,
    world::World,
};
use stag_protocol::nfs::v4::{
    Answer, Attribute, Bitmap, CreateHow4, Open4Args, OpenHow, RawAttributes, Request, Status4,
};
use std::time::Duration;

fn world(seed: u64) -> (World, Session4) {
    let mut world = World::with(seed, |gateway| gateway.with_nfs4(CONFIG));
    let session = Session4::open(&mut world, 0);
    (world, session)
}

fn send(world: &mut World, token: u64, requests: &[Request<'_>]) {
    world.send(0, token, |cx, token| request(cx, token, requests));
}

/// Makes steps until a reply is here: its token, and the reply.
fn await_reply(world: &mut World) -> (u64, Reply4) {
    loop {
        if let Some((token, reply)) = world.take(0) {
            return (token, Reply4::of(&reply));
        }
        world.step();
    }
}

/// Sends a compound that the store hangs in, and makes sure that it does: now and then this store
/// refuses a call.
fn hang(world: &mut World, session: &mut Session4, slot: usize, requests: &[Request<'_>]) {
    loop {
        let mut all = vec![session.next(slot, true)];
        all.extend(requests.iter().cloned());
        send(world, slot as u64, &all);
        let before = world.report().waiting.under_way;
        for _ in 0..10_000 {
            world.step();
            if world.report().waiting.under_way > before {
                return;
            }
            if let Some((_, reply)) = world.take(0) {
                assert_eq!(Reply4::of(&reply).status(), Status4::Delay, "the store refused it");
                break;
            }
        }
    }
}

#[test]
fn a_compound_goes_on_behind_each_operation_that_waited() {
    let (mut world, mut session) = world(3);
    let slow = world.slow;
    for _ in 0..20 {
        let requests = [session.next(0, false), put(&slow), look(), look(), look()];
        let reply = exchange(&mut world, 0, &requests);
        let answers = reply.answers();
        if reply.status() == Status4::Ok {
            assert_eq!(answers.len(), 5);
            assert_eq!(answers[2], answers[4], "each is answered in its place");
            assert!(world.report().nfs4.suspensions >= 3);
            return world.end();
        }
        assert_eq!(reply.status(), Status4::Delay, "the store refused an operation");
    }
    panic!("the store refuses now and then, not always");
}

#[test]
fn an_operation_that_hangs_is_given_up_only_if_it_changes_nothing() {
    let (mut world, mut session) = world(5);
    let (slow, file) = (world.slow, world.file);
    world.shared.borrow_mut().pace = Pace::Never;
    hang(&mut world, &mut session, 0, &[put(&file), read(0, 100)]);
    hang(&mut world, &mut session, 1, &[put(&slow), make_directory(b"made"), look()]);
    let began = world.now;
    let (token, reply) = await_reply(&mut world);
    let waited = world.now.since(began);
    assert_eq!((token, reply.status()), (0, Status4::Delay));
    assert!(waited >= Duration::from_secs(4) && waited < Duration::from_secs(7), "{waited:?}");
    assert_eq!(reply.answers().len(), 3, "PUTFH was carried out");
    world.pass_time(Duration::from_secs(60));
    assert!(world.take(0).is_none(), "a change is answered when it is over");
    let report = world.report();
    assert_eq!((report.nfs4.suspended, report.nfs4.busy_slots), (1, 1));
    world.shared.borrow_mut().pace = Pace::Mixed;
    let (token, reply) = await_reply(&mut world);
    assert_eq!(token, 1);
    assert!(matches!(reply.answers()[2], Answer::Create(Ok(_))), "{reply:?}");
    world.end();
    assert_eq!(world.report().nfs4.busy_slots, 0);
}

#[test]
fn a_slot_whose_compound_waits_takes_no_other_request() {
    let (mut world, mut session) = world(7);
    let slow = world.slow;
    world.shared.borrow_mut().pace = Pace::Never;
    hang(&mut world, &mut session, 2, &[put(&slow), make_directory(b"made")]);
    // The same request over the same connection, while its reply is pending.
    let same = [session.again(2, true), put(&slow), make_directory(b"made")];
    send(&mut world, 12, &same);
    let (token, reply) = await_reply(&mut world);
    assert_eq!((token, reply.status()), (12, Status4::Delay));
    let other = [session.again(2, true), put(&slow), make_directory(b"other"), look()];
    send(&mut world, 14, &other);
    assert_eq!(await_reply(&mut world).1.status(), Status4::SeqFalseRetry);
    let next = [session.next(2, true), put(&slow)];
    send(&mut world, 16, &next);
    assert_eq!(await_reply(&mut world).1.status(), Status4::SeqMisordered);
    world.shared.borrow_mut().pace = Pace::Mixed;
    let (token, reply) = await_reply(&mut world);
    assert_eq!((token, reply.status()), (2, Status4::Ok));
    world.end();
}

#[test]
fn over_another_connection_the_newest_caller_is_answered() {
    let (mut world, mut session) = world(11);
    let slow = world.slow;
    world.shared.borrow_mut().pace = Pace::Never;
    let made = [put(&slow), make_directory(b"made")];
    hang(&mut world, &mut session, 3, &made);
    // An even token is the other connection. The former is cut, and its call comes again.
    let same = [session.again(3, true), made[0].clone(), made[1].clone()];
    send(&mut world, 4, &same);
    world.pass_time(Duration::from_secs(1));
    assert!(world.report().nfs4.joined >= 1 && world.take(0).is_none());
    world.shared.borrow_mut().pace = Pace::Mixed;
    let mut tokens = vec![];
    while tokens.len() < 2 {
        let (token, reply) = await_reply(&mut world);
        if reply.status() == Status4::Delay {
            // NFS4ERR_DELAY: the other one is in progress.
            let same = [session.again(3, true), made[0].clone(), made[1].clone()];
            send(&mut world, token, &same);
            continue;
        }
        assert_eq!(reply.status(), Status4::Ok);
        tokens.push(token);
    }
    world.end();
    assert_eq!(world.shared.borrow().done.values().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(world.report().nfs4.busy_slots, 0);
}

#[test]
fn a_session_that_ends_leaves_its_compounds_to_end_by_themselves() {
    let (mut world, mut session) = world(13);
    let slow = world.slow;
    world.shared.borrow_mut().pace = Pace::Never;
    hang(&mut world, &mut session, 5, &[put(&slow), create(b"made"), look()]);
    send(&mut world, 8, &[Request::DestroySession(session.id)]);
    let (token, reply) = await_reply(&mut world);
    assert_eq!((token, reply.status()), (8, Status4::Ok));
    let report = world.report().nfs4;
    assert_eq!((report.sessions, report.busy_slots, report.suspended), (0, 0, 1));
    world.shared.borrow_mut().pace = Pace::Mixed;
    let (token, _) = await_reply(&mut world);
    assert_eq!(token, 5, "whoever asked is answered");
    assert_eq!(world.shared.borrow().done.len(), 1);
    world.end();
    assert_eq!(world.report().nfs4.suspended, 0);
}

#[test]
fn a_client_has_a_part_of_the_compounds_that_may_wait_and_others_do_not_notice() {
    let (mut world, mut session) = world(17);
    let (file, fast) = (world.file, world.fast);
    let mut more = session.another(&mut world, 0);
    let mut other = Session4::open(&mut world, 1);
    world.shared.borrow_mut().pace = Pace::Never;
    for slot in 0..64 {
        hang(&mut world, &mut session, slot, &[put(&file), look()]);
    }
    assert_eq!(world.report().nfs4.suspended, 64);
    let under_way = world.report().waiting.under_way;
    send(&mut world, 99, &[more.next(0, false), put(&file), look()]);
    let (token, reply) = await_reply(&mut world);
    assert_eq!((token, reply.status(), reply.answers().len()), (99, Status4::Delay, 3));
    assert_eq!(world.report().waiting.under_way, under_way, "the store was not asked");
    let reply = exchange(&mut world, 1, &[other.next(0, false), put(&fast), look()]);
    assert_eq!(reply.status(), Status4::Ok);
    world.shared.borrow_mut().pace = Pace::Mixed;
    world.end();
    assert_eq!(world.report().nfs4.busy_slots, 0);
}

/// OPEN for both, by a name that may be there: with this mode if it is not.
fn open_or_make<'a>(name: &'a [u8], mode: &'a [u8; 4]) -> Request<'a> {
    let Request::Open(args) = create(name) else { unreachable!("it is an OPEN") };
    let attributes = RawAttributes { mask: Bitmap::of([Attribute::Mode as u32]), octets: mode };
    let how = OpenHow::Create(CreateHow4::Unchecked(attributes));
    Request::Open(Open4Args { how, ..args })
}

/// UNCHECKED4 makes a file or finds it (RFC 8881 §18.16.3), even if another request makes it then.
#[test]
fn two_that_make_the_same_file_unchecked_open_it_both() {
    let mut opened = 0;
    for seed in 0..40 {
        let (mut world, mut session) = world(seed);
        let slow = world.slow;
        for (slot, mode) in [[0, 0, 1, 0x80], [0, 0, 1, 0xa4]].iter().enumerate() {
            let requests = [session.next(slot, true), put(&slow), open_or_make(b"both", mode)];
            send(&mut world, slot as u64, &requests);
        }
        let replies = [(); 2].map(|()| await_reply(&mut world).1);
        for reply in &replies {
            let status = reply.status();
            assert!(matches!(status, Status4::Ok | Status4::Delay), "seed {seed}: {reply:?}");
        }
        opened += u32::from(replies.iter().all(|reply| reply.status() == Status4::Ok));
        world.end();
    }
    assert!(opened > 5, "the store refuses now and then, not always: {opened}");
}
