//! One seed is one run.

use crate::waiting::{
    plays::play_all,
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
use stag_sim::Faults;
use stag_verbs::Time;
use std::time::Duration;

const ACTORS: usize = 6;
const TASKS: usize = 30;
/// Octets from one place of the file to the next.
const STRIDE: u64 = 16_384;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    Write(u32),
    Commit,
    Read,
    Look,
    List,
    Find(String),
    Create(String),
    MkDir(String),
    Remove(String),
    Rename(String, String),
}

impl Task {
    const fn procedure(&self) -> Procedure {
        match self {
            Self::Write(_) => Procedure::Write,
            Self::Commit => Procedure::Commit,
            Self::Read => Procedure::Read,
            Self::Look => Procedure::GetAttr,
            Self::List => Procedure::ReadDirPlus,
            Self::Find(_) => Procedure::Lookup,
            Self::Create(_) => Procedure::Create,
            Self::MkDir(_) => Procedure::MkDir,
            Self::Remove(_) => Procedure::Remove,
            Self::Rename(..) => Procedure::Rename,
        }
    }
}

/// Does one thing after the other, each until it is done.
struct Actor {
    number: usize,
    left: usize,
    task: Option<Task>,
    version: u32,
    names: Vec<String>,
    fresh: usize,
    /// Time before which it asks nothing.
    rests_until: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    changes: u64,
    refusals: u64,
    losses: u64,
    joined: u64,
    replayed: u64,
    hung: u64,
    /// WRITEs whose reply was lost, and that were carried out again as they were.
    again: u64,
}

impl Actor {
    fn new(number: usize) -> Self {
        let (names, version, fresh) = (vec![], 0, 0);
        let rests_until = Time(0);
        Self { number, left: TASKS, task: None, version, names, fresh, rests_until }
    }

    fn choose(&mut self, dice: &mut Rng) -> Task {
        let mut fresh = || {
            self.fresh += 1;
            format!("name-{}-{}", self.number, self.fresh)
        };
        match dice.usize(..12) {
            0..3 => {
                self.version += 1;
                Task::Write(self.version)
            }
            3 => Task::Commit,
            4 => Task::Read,
            5 => Task::Look,
            6 => Task::List,
            7 => Task::MkDir(fresh()),
            8 if !self.names.is_empty() => {
                Task::Find(self.names[dice.usize(..self.names.len())].clone())
            }
            9 if !self.names.is_empty() => Task::Remove(self.names.pop().unwrap()),
            10 if !self.names.is_empty() => Task::Rename(self.names.pop().unwrap(), fresh()),
            _ => Task::Create(fresh()),
        }
    }

    fn octets(&self, version: u32) -> Vec<u8> {
        let len = 600 + self.number * 2_000;
        version.to_be_bytes().into_iter().chain(vec![version as u8; len]).collect()
    }

    fn send(&self, world: &mut World) {
        let (slow, file) = (world.slow, world.file);
        let place = |name| DirOpArgs { dir: slow, name };
        let (octets, attributes) = (self.octets(self.version), SetAttributes::default());
        let offset = self.number as u64 * STRIDE;
        let call = match self.task.as_ref().unwrap() {
            Task::Write(_) => Call::Write(WriteArgs {
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
        world.call(0, self.number as u64, &call);
    }

    /// Takes the reply to its task; true if nothing was done and it asks again.
    fn conclude(&mut self, reply: &[u8], now: Time) -> bool {
        let task = self.task.clone().unwrap();
        let results = Reader::new(&reply[ReplyHeader::LEN..]);
        let reply = Reply::parse(task.procedure(), results).unwrap();
        if is_refusal(reply.status()) {
            self.rests_until = now + Duration::from_millis(500);
            return true;
        }
        assert_eq!(reply.status(), Status::Ok, "{task:?}");
        match (&task, reply) {
            (Task::Read, Reply::Read(Ok(read))) => {
                let octets = read.data.octets().unwrap();
                let mine = self.octets(self.version);
                let end = mine.len().min(octets.len());
                assert!(self.version == 0 || octets[..end] == mine[..end], "what was written");
            }
            (Task::Create(name) | Task::Rename(_, name), _) => self.names.push(name.clone()),
            _ => {}
        }
        self.task = None;
        false
    }
}

fn play(seed: u64) -> Sum {
    let mut dice = Rng::with_seed(seed);
    let mut world = World::new(seed);
    let mut actors: Vec<_> = (0..ACTORS).map(Actor::new).collect();
    let lost = [0, 200, 1_000, 5_000][dice.usize(..4)];
    world.fabric.set_faults(Faults { lost, ..Faults::DELAYS });
    let mut sum = Sum::default();
    while actors.iter().any(|actor| actor.left > 0 || actor.task.is_some()) {
        for actor in &mut actors {
            if actor.rests_until > world.now {
                continue;
            }
            let asks_again = actor.task.is_some() && actor.rests_until != Time(0);
            if actor.task.is_none() && actor.left > 0 {
                actor.left -= 1;
                actor.task = Some(actor.choose(&mut dice));
            } else if !asks_again {
                continue;
            }
            actor.rests_until = Time(0);
            sum.calls += 1;
            actor.send(&mut world);
        }
        world.step();
        while let Some((number, reply)) = world.take(0) {
            let now = world.now;
            sum.refusals += u64::from(actors[number as usize].conclude(&reply, now));
        }
    }
    world.fabric.set_faults(Faults::DELAYS);
    world.end();
    let report = world.report();
    let shared = world.shared.borrow();
    for (what, times) in &shared.done {
        assert_eq!(*times, 1, "{what} was carried out more than once");
    }
    for actor in &actors {
        let last = shared.versions.get(&(actor.number as u64 * STRIDE)).copied().unwrap_or(0);
        assert_eq!(last, actor.version, "each version was written");
    }
    sum.changes = shared.done.len() as u64;
    sum.losses = world.losses();
    (sum.joined, sum.replayed) = (report.duplicates.busy, report.duplicates.replayed);
    (sum.hung, sum.again) = (shared.hung, shared.again);
    sum
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.changes += other.changes;
        self.refusals += other.refusals;
        self.losses += other.losses;
        self.joined += other.joined;
        self.replayed += other.replayed;
        self.hung += other.hung;
        self.again += other.again;
    }
}

#[test]
fn whatever_is_lost_and_however_late_calls_end_each_change_is_carried_out_once() {
    let (count, sum) = play_all(2_000, 7, play);
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
