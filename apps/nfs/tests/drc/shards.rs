//! A client that moves between shards.

use crate::drc::calls::{WAYS, create, mkdir, remove};
use crate::drc::world::{Loss, Way, World, status};
use stag_protocol::nfs::v3::{Call, GetAttrArgs, Status};
use std::time::Duration;

#[test]
fn a_call_that_comes_back_to_another_shard_gets_its_first_reply_there() {
    let mut world = World::new(1, 3, 64);
    let root = world.root;
    let names: Vec<_> = (0..30_u32).map(|number| format!("name-{number}").into_bytes()).collect();
    for (xid, name) in names.iter().enumerate() {
        let octets = world.encode(xid as u32, &mkdir(root, name));
        let (first, second) = (WAYS[xid % 5], WAYS[xid / 5 % 5]);
        assert_eq!(world.attempt(xid % 3, first, Loss::Reply, &octets), None);
        let reply = world.attempt((xid + 1) % 3, second, Loss::Never, &octets).unwrap();
        assert_eq!(status(&reply), Status::Ok, "{first:?}, {second:?}");
        assert_eq!(world.attempt((xid + 2) % 3, first, Loss::Never, &octets), Some(reply));
    }
    assert_eq!((world.executions(), world.replays()), (30, 60));
    let counts = (0..3).map(|shard| world.report(shard).duplicates);
    assert_eq!(
        counts.clone().map(|counts| counts.kept).sum::<u64>(),
        30,
        "each reply is in one place"
    );
    assert_eq!(
        counts.clone().map(|counts| counts.asked_again + counts.turned_away).sum::<u64>(),
        0
    );
    let (fetched, given) =
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.fetched, sum.1 + counts.given));
    assert_eq!((fetched, given), (89, 89), "they moved with every call but the first");
    world.assert_empty();
}

#[test]
fn a_late_copy_on_the_former_shard_is_not_carried_out() {
    let mut world = World::new(2, 2, 64);
    let root = world.root;
    assert_eq!(status(&world.call(1, &create(root, b"name"))), Status::Ok);
    let octets = world.encode(2, &remove(root, b"name"));
    // Its first copy gets stuck on the way to shard 0; the second one is carried out by shard 1;
    // then the name is used again.
    let reply = world.attempt(1, Way::Tcp, Loss::Never, &octets).unwrap();
    let again = world.encode(3, &create(root, b"name"));
    assert_eq!(status(&world.attempt(1, Way::Tcp, Loss::Never, &again).unwrap()), Status::Ok);
    assert_eq!(world.attempt(0, Way::Short(4), Loss::Never, &octets), Some(reply));
    assert!(world.home.path().join("data/name").exists(), "the new file lives");
}

#[test]
fn clients_of_two_shards_do_not_disturb_each_other() {
    let mut world = World::new(3, 2, 64);
    let root = world.root;
    for (xid, name) in [b"a", b"b", b"c"].iter().enumerate() {
        for (shard, address) in ["10.0.0.1:1", "10.9.9.9:1"].into_iter().enumerate() {
            world.address = address;
            let path = [&name[..], &[b'0' + shard as u8]].concat();
            let octets = world.encode(xid as u32, &mkdir(root, &path));
            assert_eq!(
                status(&world.attempt(shard, Way::Tcp, Loss::Never, &octets).unwrap()),
                Status::Ok
            );
        }
    }
    // Unless both are in one group, nothing had to move.
    assert!(world.report(0).duplicates.given <= 3);
    assert_eq!(world.report(0).duplicates.kept + world.report(1).duplicates.kept, 6);
}

#[test]
fn a_duplicate_waits_for_a_shard_that_is_stuck_and_is_never_carried_out_twice() {
    let mut world = World::new(4, 2, 64);
    let root = world.root;
    let octets = world.encode(1, &mkdir(root, b"name"));
    assert_eq!(world.attempt(0, Way::Short(4), Loss::Reply, &octets), None);
    // Shard 0 knows the reply, and hangs in its file system.
    world.stuck = Some(0);
    let late = Loss::Step(1_000_000);
    assert_eq!(
        world.attempt(1, Way::Short(4), late, &octets),
        None,
        "ten seconds later it still waits"
    );
    let counts = world.report(1).duplicates;
    assert_eq!((counts.waited, world.executions(), world.replays()), (1, 1, 0));
    assert!((3..=5).contains(&counts.asked_again), "every two seconds: {counts:?}");
    world.stuck = None;
    let reply = world.attempt(1, Way::Tcp, Loss::Never, &octets).unwrap();
    assert_eq!((status(&reply), world.executions(), world.replays()), (Status::Ok, 1, 1));
    world.assert_empty();
}

#[test]
fn a_call_waits_for_a_shard_that_is_stuck_however_long_that_takes() {
    let mut world = World::new(4, 2, 64);
    let root = world.root;
    assert_eq!(status(&world.call(1, &mkdir(root, b"first"))), Status::Ok);
    world.stuck = Some(0);
    let octets = world.encode(2, &mkdir(root, b"second"));
    // A connection that is closed with an unread reply is reset.
    let read_only = world.encode(3, &Call::GetAttr(GetAttrArgs { object: root }));
    let socket = world.pour(1, &[read_only, octets.clone()]);
    assert_eq!((world.report(1).duplicates.waited, world.executions()), (1, 2), "it waits");
    drop(socket);
    world.run(100);
    world.rest(Duration::from_secs(3));
    world.run(100);
    assert_eq!(world.executions(), 2, "nobody can be answered: what waited is forgotten");
    assert_eq!(world.attempt(1, Way::Short(4), Loss::Step(300_000), &octets), None);
    let counts = world.report(1).duplicates;
    assert_eq!((counts.waited, world.executions()), (2, 2));
    // When the other shard works again, everything is known.
    world.stuck = None;
    world.run(100);
    for (shard, (xid, name)) in [
        (0, (1, b"first".as_slice())),
        (1, (2, b"second")),
        (0, (2, b"second")),
        (1, (1, b"first")),
    ] {
        let octets = world.encode(xid, &mkdir(root, name));
        assert_eq!(
            status(&world.attempt(shard, Way::Short(4), Loss::Never, &octets).unwrap()),
            Status::Ok
        );
    }
    assert_eq!(world.executions(), 3);
    world.assert_empty();
}

#[test]
fn a_call_of_a_caller_that_only_sends_no_more_waits_on_and_is_carried_out_once() {
    let mut world = World::new(6, 2, 64);
    let root = world.root;
    assert_eq!(status(&world.call(1, &mkdir(root, b"first"))), Status::Ok);
    world.stuck = Some(0);
    let octets = world.encode(2, &mkdir(root, b"second"));
    // Closing looks like the end of its calls: it may still read.
    assert_eq!(world.attempt(1, Way::Tcp, Loss::Step(2_000), &octets), None);
    assert_eq!(world.attempt(1, Way::Tcp, Loss::Step(300_000), &octets), None);
    assert_eq!((world.report(1).duplicates.waited, world.executions()), (2, 1));
    world.stuck = None;
    let reply = world.attempt(1, Way::Tcp, Loss::Never, &octets).unwrap();
    assert_eq!((status(&reply), world.executions()), (Status::Ok, 2));
    world.assert_empty();
}

#[test]
fn too_many_calls_that_wait_are_turned_away_and_come_back() {
    let mut world = World::new(5, 2, 1024);
    let root = world.root;
    assert_eq!(status(&world.call(1, &mkdir(root, b"first"))), Status::Ok);
    world.stuck = Some(0);
    let names: Vec<_> = (0..300_u32).map(|number| format!("name-{number}").into_bytes()).collect();
    let calls: Vec<_> =
        names.iter().zip(2..).map(|(name, xid)| world.encode(xid, &mkdir(root, name))).collect();
    let sockets: Vec<_> = calls.chunks(100).map(|calls| world.pour(1, calls)).collect();
    let counts = world.report(1).duplicates;
    assert!(counts.turned_away > 0 && counts.waited == 256, "{counts:?}");
    world.stuck = None;
    world.run(100);
    assert_eq!(
        world.executions(),
        201,
        "the calls of the connection that was closed are forgotten"
    );
    drop(sockets);
    for octets in &calls {
        let reply = world.attempt(1, Way::Tcp, Loss::Never, octets).unwrap();
        assert_eq!(status(&reply), Status::Ok);
    }
    assert_eq!(world.executions(), 301);
    world.assert_empty();
}
