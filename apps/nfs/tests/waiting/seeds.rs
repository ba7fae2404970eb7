//! One seed is one run.

use crate::waiting::{
    plays::play_all,
    script::{Actor, Dialect, STRIDE, Sum, Task, play_script},
    store::{Pace, is_refusal},
    world::World,
};
use fastrand::Rng;
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{
            Call, CommitArgs, CreateArgs, CreateHow, DirOpArgs, GetAttrArgs, LookupArgs, MkDirArgs,
            Name, Procedure, ReadArgs, ReadDirPlusArgs, RemoveArgs, RenameArgs, Reply,
            SetAttributes, StableHow, Status, WriteArgs,
        },
    },
    rpc::ReplyHeader,
    xdr::Reader,
};
use stag_verbs::Time;
use std::time::Duration;

const TASKS: usize = 30;

const fn procedure(task: &Task) -> Procedure {
    match task {
        Task::Write => Procedure::Write,
        Task::Commit => Procedure::Commit,
        Task::Read => Procedure::Read,
        Task::Look => Procedure::GetAttr,
        Task::List => Procedure::ReadDirPlus,
        Task::Find(_) => Procedure::Lookup,
        Task::Create(_) => Procedure::Create,
        Task::MkDir(_) => Procedure::MkDir,
        Task::Remove(_) => Procedure::Remove,
        Task::Rename(..) => Procedure::Rename,
    }
}

/// Version 3: a task is a call.
struct Calls;

impl Dialect for Calls {
    fn send(&mut self, world: &mut World, actor: &Actor, _dice: &mut Rng) {
        let (slow, file) = (world.slow, world.file);
        let place = |name| DirOpArgs { dir: slow, name };
        let (octets, attributes) = (actor.octets(), SetAttributes::default());
        let offset = actor.offset();
        let call = match actor.task.as_ref().unwrap() {
            Task::Write => Call::Write(WriteArgs {
                file,
                offset,
                stable: StableHow::Unstable,
                data: Bulk::Inline(&octets),
            }),
            Task::Commit => Call::Commit(CommitArgs { file, offset: 0, count: 0 }),
            Task::Read => Call::Read(ReadArgs { file, offset, count: STRIDE as u32 }),
            Task::Look => Call::GetAttr(GetAttrArgs { object: slow }),
            Task::List => Call::ReadDirPlus(ReadDirPlusArgs {
                dir: slow,
                cookie: 0,
                verifier: [0; 8],
                dir_count: 2_000,
                max_count: 6_000,
            }),
            Task::Find(name) => Call::Lookup(LookupArgs { what: place(Name(name.as_bytes())) }),
            Task::Create(name) => Call::Create(CreateArgs {
                place: place(Name(name.as_bytes())),
                how: CreateHow::Guarded(attributes),
            }),
            Task::MkDir(name) => {
                Call::MkDir(MkDirArgs { place: place(Name(name.as_bytes())), attributes })
            }
            Task::Remove(name) => Call::Remove(RemoveArgs { object: place(Name(name.as_bytes())) }),
            Task::Rename(from, to) => Call::Rename(RenameArgs {
                from: place(Name(from.as_bytes())),
                to: place(Name(to.as_bytes())),
            }),
        };
        world.call(0, actor.number as u64, &call);
    }

    fn conclude(&mut self, now: Time, reply: &[u8], actor: &mut Actor, sum: &mut Sum) {
        let task = actor.task.as_ref().unwrap();
        let results = Reader::new(&reply[ReplyHeader::LEN..]);
        let reply = Reply::parse(procedure(task), results).unwrap();
        if is_refusal(reply.status()) {
            sum.refusals += 1;
            return actor.ask_again(now);
        }
        assert_eq!(reply.status(), Status::Ok, "{task:?}");
        match &reply {
            Reply::Read(Ok(read)) => actor.complete(now, Some(read.data.octets().unwrap())),
            _ => actor.complete(now, None),
        }
    }

    fn actor_of(&self, token: u64) -> usize {
        token as usize
    }
}

fn play(seed: u64) -> Sum {
    let mut dice = Rng::with_seed(seed);
    let mut world = World::new(seed);
    let sum = play_script(&mut world, &mut dice, TASKS, &mut Calls);
    let duplicates = world.report().duplicates;
    Sum { joined: duplicates.busy, replayed: duplicates.replayed, ..sum }
}

#[test]
fn whatever_is_lost_and_however_late_calls_end_each_change_is_carried_out_once() {
    let (count, sum) = play_all(1_400, 5, play);
    println!("{count} seeds: {sum:?}");
    if count >= 100 {
        assert!(sum.joined > 0 && sum.replayed > 0 && sum.hung > count, "{sum:?}");
        assert!(sum.losses > 0 && sum.refusals > 0, "{sum:?}");
    }
}

/// The times that calls about what does not wait take, sorted.
fn times_of_others(hung: usize) -> Vec<Duration> {
    let mut world = World::new(7);
    // A connection has one credit before its first reply.
    for number in 0..4 {
        world.call(number / 2, number as u64, &Call::Null);
    }
    world.pass_time(Duration::from_millis(50));
    while world.take(0).or_else(|| world.take(1)).is_some() {}
    world.shared.borrow_mut().pace = Pace::Never;
    for number in 0..hung {
        let file = world.file;
        let args = ReadArgs { file, offset: number as u64, count: 4_000 };
        world.call(0, number as u64, &Call::Read(args));
    }
    world.pass_time(Duration::from_secs(1));
    if hung > 0 {
        let under_way = world.report().waiting.under_way;
        assert!(under_way as usize > hung / 2, "{under_way} of {hung} hang");
    }
    let mut times = vec![];
    for round in 0..400 {
        let fast = world.fast;
        let call = [Call::Null, Call::GetAttr(GetAttrArgs { object: fast })][round % 2];
        let began = world.now;
        world.call(1, round as u64, &call);
        while world.take(1).is_none() {
            world.step();
        }
        times.push(world.now.since(began));
    }
    times.sort_unstable();
    world.shared.borrow_mut().pace = Pace::Mixed;
    world.end();
    times
}

#[test]
fn others_do_not_notice_thirty_two_calls_that_hang() {
    let p99 = |times: &[Duration]| times[times.len() * 99 / 100].as_nanos() as f64;
    let (without, with) = (times_of_others(0), times_of_others(32));
    let ratio = p99(&with) / p99(&without);
    println!("p99 with 32 calls that hang: {ratio:.3} of that without");
    assert!(ratio <= 1.1, "{ratio}");
}

#[test]
fn calls_that_hang_leave_memory_to_others() {
    let mut world = World::new(9);
    for number in 0..4 {
        world.call(number / 2, number as u64, &Call::Null);
    }
    world.pass_time(Duration::from_millis(50));
    while world.take(0).or_else(|| world.take(1)).is_some() {}
    world.shared.borrow_mut().pace = Pace::Never;
    let (file, octets) = (world.file, [0, 0, 0, 1].repeat(5_000));
    for number in 0..48 {
        let (offset, stable) = (number * (1 << 20), StableHow::Unstable);
        let data = Bulk::Inline(&octets);
        world.call(0, number, &Call::Write(WriteArgs { file, offset, stable, data }));
    }
    world.pass_time(Duration::from_secs(20));
    let waiting = world.report().waiting;
    // A quarter of the 64 buffers of their length; a WRITE that was begun is never given up.
    assert!(waiting.under_way <= 16 && waiting.given_up == 0, "{waiting:?}");
    assert!(waiting.under_way + waiting.refused == 48 && waiting.oldest_ms > 19_000, "{waiting:?}");
    let mut refused = 0;
    while let Some((_, reply)) = world.take(0) {
        let reply = Reply::parse(Procedure::Write, Reader::new(&reply[ReplyHeader::LEN..]));
        assert_eq!(reply.unwrap().status(), Status::Jukebox);
        refused += 1;
    }
    assert_eq!(refused, waiting.refused);
    world.shared.borrow_mut().pace = Pace::Mixed;
    world.end();
    assert_eq!(world.shared.borrow().versions.len() as u64, waiting.under_way);
}
