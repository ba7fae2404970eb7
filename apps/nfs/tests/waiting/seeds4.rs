//! One seed is one run, by version 4: compounds of several operations each of which may wait,
//! connections that are lost meanwhile, and slots.

use crate::waiting::{
    client4::{
        CONFIG, Reply4, Session4, create, exchange_over, look, make_directory, open, put, request,
    },
    plays::play_all,
    world::{CONNECTIONS, World},
};
use fastrand::Rng;
use stag_protocol::nfs::{
    Bulk,
    v3::StableHow,
    v4::{
        Answer, Bitmap, Commit4Args, Read4Args, ReadDir4Args, Rename4Args, Request, Stateid,
        Status4, Text, Write4Args,
    },
};
use stag_sim::Faults;
use stag_verbs::Time;
use std::time::Duration;

const ACTORS: usize = 6;
const TASKS: usize = 20;
/// Octets from one place of the file to the next.
const STRIDE: u64 = 16_384;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    Write,
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
    /// Their replies are kept: what they do is done once.
    const fn is_kept(&self) -> bool {
        !matches!(self, Self::Read | Self::Look | Self::List | Self::Find(_))
    }

    /// Place of the operation that counts.
    const fn place(&self) -> usize {
        if matches!(self, Self::Rename(..)) { 4 } else { 2 }
    }
}

/// Does one thing after the other in its slot, each until it is done.
struct Actor {
    number: usize,
    stateid: Stateid,
    left: usize,
    task: Option<Task>,
    version: u32,
    names: Vec<String>,
    fresh: usize,
    /// Time before which it asks nothing; none while it waits for a reply.
    rests_until: Option<Time>,
    /// The request is a new one for its slot.
    is_new: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    changes: u64,
    refusals: u64,
    losses: u64,
    suspensions: u64,
    joined: u64,
    replayed: u64,
    hung: u64,
    /// Replies that were not kept, and asked for again.
    unkept: u64,
    /// Compounds that came over the other shard.
    forwarded: u64,
    /// Compounds that the other shard has carried out itself.
    lent: u64,
}

/// Shards that serve the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    One,
    /// The second one forwards all.
    Forwarding,
    /// The session is made over the second one, which has its slots at first.
    Lending,
}

impl Actor {
    fn new(number: usize, stateid: Stateid) -> Self {
        let (names, version, fresh) = (vec![], 0, 0);
        let (rests_until, is_new) = (Some(Time(0)), true);
        Self {
            number,
            stateid,
            left: TASKS,
            task: None,
            version,
            names,
            fresh,
            rests_until,
            is_new,
        }
    }

    fn choose(&mut self, dice: &mut Rng) -> Task {
        let mut fresh = || {
            self.fresh += 1;
            format!("name-{}-{}", self.number, self.fresh)
        };
        match dice.usize(..12) {
            0..3 => {
                self.version += 1;
                Task::Write
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

    fn octets(&self) -> Vec<u8> {
        let len = 600 + self.number * 2_000;
        self.version.to_be_bytes().into_iter().chain(vec![self.version as u8; len]).collect()
    }

    fn send(&self, world: &mut World, session: &mut Session4, connection: u64) {
        let (slow, file) = (world.slow, world.file);
        let octets = self.octets();
        let offset = self.number as u64 * STRIDE;
        let task = self.task.as_ref().unwrap();
        let is_kept = task.is_kept();
        let sequence = match self.is_new {
            true => session.next(self.number, is_kept),
            false => session.again(self.number, is_kept),
        };
        let name = |name: &String| name.as_bytes().to_vec();
        let requests = match task {
            Task::Write => {
                let (stateid, stable) = (self.stateid, StableHow::Unstable);
                let data = Bulk::Inline(&octets[..]);
                let write = Request::Write(Write4Args { stateid, offset, stable, data });
                vec![sequence, put(&file), write]
            }
            Task::Commit => {
                vec![sequence, put(&file), Request::Commit(Commit4Args { offset: 0, count: 0 })]
            }
            Task::Read => {
                let (stateid, count) = (self.stateid, STRIDE as u32);
                let read = Request::Read(Read4Args { stateid, offset, count });
                vec![sequence, put(&file), read]
            }
            Task::Look => vec![sequence, put(&slow), look(), look()],
            Task::List => {
                let args = ReadDir4Args {
                    cookie: 0,
                    verifier: [0; 8],
                    dir_count: 2_000,
                    max_count: 6_000,
                    attributes: Bitmap::of([1, 3, 4, 19, 20, 33]),
                };
                vec![sequence, put(&slow), Request::ReadDir(args)]
            }
            Task::Find(of) => {
                let found = name(of).leak();
                vec![sequence, put(&slow), Request::Lookup(Text(found)), look()]
            }
            Task::Create(of) => {
                let made = create(name(of).leak());
                vec![sequence, put(&slow), made, Request::GetFh(()), look()]
            }
            Task::MkDir(of) => vec![sequence, put(&slow), make_directory(name(of).leak()), look()],
            Task::Remove(of) => {
                vec![sequence, put(&slow), Request::Remove(Text(name(of).leak())), look()]
            }
            Task::Rename(from, to) => {
                let (old, new) = (Text(&*name(from).leak()), Text(&*name(to).leak()));
                let rename = Request::Rename(Rename4Args { old, new });
                vec![sequence, put(&slow), Request::SaveFh(()), put(&slow), rename]
            }
        };
        world.send(0, self.number as u64 * 2 + connection, |cx, token| {
            request(cx, token, &requests)
        });
    }

    /// Takes the reply to its task.
    fn conclude(&mut self, reply: &Reply4, now: Time, sum: &mut Sum) {
        let task = self.task.clone().unwrap();
        let answers = reply.answers();
        let status = |place: usize| answers.get(place).map(status_of);
        self.rests_until = Some(now + Duration::from_millis(500));
        self.is_new = true;
        match (status(0), status(task.place())) {
            // The slot is as it was.
            (Some(Status4::Delay), None) => {
                self.is_new = false;
                sum.refusals += 1;
                return;
            }
            (Some(Status4::Ok), _) => {}
            other => panic!("{task:?}: {other:?}"),
        }
        if status(1) == Some(Status4::RetryUncachedRep) {
            assert!(!task.is_kept(), "{task:?} is done once");
            sum.unkept += 1;
            return;
        }
        match status(task.place()) {
            Some(Status4::Ok) => {}
            Some(Status4::Delay) => {
                sum.refusals += 1;
                return;
            }
            other => panic!("{task:?}: {other:?} {answers:?}"),
        }
        match (&task, &answers[task.place()]) {
            (Task::Read, Answer::Read(Ok(read))) => {
                let octets = read.data.octets().unwrap();
                let mine = self.octets();
                let end = mine.len().min(octets.len());
                assert!(self.version == 0 || octets[..end] == mine[..end], "what was written");
            }
            (Task::Create(name) | Task::Rename(_, name), _) => self.names.push(name.clone()),
            _ => {}
        }
        self.task = None;
        self.rests_until = Some(now);
    }
}

fn status_of(answer: &Answer<'_>) -> Status4 {
    use stag_protocol::nfs::v4::AnswerSet as _;
    answer.status()
}

fn play(seed: u64, setting: Setting) -> Sum {
    let mut dice = Rng::with_seed(seed);
    let mut world = match setting {
        Setting::One => World::with(seed, |gateway| gateway.with_nfs4(CONFIG)),
        Setting::Forwarding => World::on_two(seed, |gateway| gateway.with_nfs4(CONFIG)),
        Setting::Lending => World::lending(seed, CONFIG),
    };
    // Calls over the connection that the session was made over, before others come; or all.
    let (first, mut phase) = match setting {
        Setting::Lending => (1, (Some(1), [0, 20, 60, u64::MAX][dice.usize(..4)])),
        Setting::One | Setting::Forwarding => (0, (None, u64::MAX)),
    };
    let mut session = Session4::open_over(&mut world, 0, 0, first);
    let stateid = match setting {
        Setting::Lending => {
            let slow = world.slow;
            loop {
                let opened = [session.next(0, true), put(&slow), open(b"file", 0)];
                let reply = exchange_over(&mut world, 0, first, &opened);
                match reply.last() {
                    Answer::Open(Ok(opened)) => break opened.stateid,
                    Answer::Open(Err(Status4::Delay)) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        Setting::One | Setting::Forwarding => Stateid::ANONYMOUS,
    };
    let mut actors: Vec<_> = (0..ACTORS).map(|number| Actor::new(number, stateid)).collect();
    let lost = [0, 200, 1_000, 5_000][dice.usize(..4)];
    world.fabric.set_faults(Faults { lost, ..Faults::DELAYS });
    // The first slot has carried a request.
    let mut sum = Sum::default();
    while actors.iter().any(|actor| actor.left > 0 || actor.task.is_some()) {
        for actor in &mut actors {
            if actor.rests_until.is_none_or(|until| until > world.now) {
                continue;
            }
            if actor.task.is_none() {
                if actor.left == 0 {
                    continue;
                }
                actor.left -= 1;
                actor.task = Some(actor.choose(&mut dice));
            }
            actor.rests_until = None;
            sum.calls += 1;
            if phase.1 == 0 {
                // For a while all of them come one way, or none does.
                let ways = [(None, 30), (Some(0), 40), (Some(1), 80)];
                phase = ways[dice.usize(..3)];
            }
            let connection = phase.0.unwrap_or_else(|| dice.u64(..CONNECTIONS as u64));
            phase.1 -= u64::from(phase.1 != u64::MAX);
            actor.send(&mut world, &mut session, connection);
        }
        if setting != Setting::One && dice.u32(..200) == 0 {
            world.stuck_until = world.steps() + dice.u64(..100);
        }
        world.step();
        while let Some((number, reply)) = world.take(0) {
            let now = world.now;
            actors[number as usize / 2].conclude(&Reply4::of(&reply), now, &mut sum);
        }
    }
    world.fabric.set_faults(Faults::DELAYS);
    world.end();
    let report = world.report();
    assert_eq!((report.nfs4.suspended, report.nfs4.busy_slots), (0, 0), "no slot is lost");
    assert_eq!(world.lent_busy(), 0, "nor one that is lent");
    let shared = world.shared.borrow();
    for (what, times) in &shared.done {
        assert_eq!(*times, 1, "{what} was carried out more than once");
    }
    assert_eq!(shared.again, 0, "a WRITE whose reply is kept is carried out once");
    for actor in &actors {
        let last = shared.versions.get(&(actor.number as u64 * STRIDE)).copied().unwrap_or(0);
        assert_eq!(last, actor.version, "each version was written");
    }
    sum.changes = shared.done.len() as u64;
    sum.losses = world.losses();
    sum.suspensions = report.nfs4.suspensions;
    (sum.joined, sum.replayed) = (report.nfs4.joined, report.nfs4.replayed);
    sum.hung = shared.hung;
    drop(shared);
    (sum.forwarded, sum.lent) = (world.forwarded(), world.lent());
    sum
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.changes += other.changes;
        self.refusals += other.refusals;
        self.losses += other.losses;
        self.suspensions += other.suspensions;
        self.joined += other.joined;
        self.replayed += other.replayed;
        self.hung += other.hung;
        self.unkept += other.unkept;
        self.forwarded += other.forwarded;
        self.lent += other.lent;
    }
}

#[test]
fn whatever_is_lost_each_operation_of_a_compound_is_carried_out_once_and_no_slot_is_lost() {
    assert_eq!(run(Setting::One).forwarded, 0);
}

#[test]
fn the_same_holds_when_a_client_comes_over_two_shards_and_letters_are_late() {
    let sum = run(Setting::Forwarding);
    assert!(sum.forwarded > sum.calls / 4 && sum.lent == 0, "{sum:?}");
}

#[test]
fn the_same_holds_when_the_second_shard_has_the_slots_and_gives_them_back() {
    let sum = run(Setting::Lending);
    assert!(sum.forwarded > sum.calls / 4 && sum.lent > sum.calls / 4, "{sum:?}");
}

fn run(setting: Setting) -> Sum {
    // Fewer on two shards, to keep the whole suite short.
    let usual = if setting == Setting::One { 1_000 } else { 500 };
    let (count, sum) = play_all(usual, 5, |seed| play(seed, setting));
    println!("{count} seeds, {setting:?}: {sum:?}");
    if count >= 50 {
        assert!(sum.suspensions > sum.calls / 2, "{sum:?}");
        assert!(sum.joined > 0 && sum.replayed > 0 && sum.hung > count / 2, "{sum:?}");
        assert!(sum.losses > 0 && sum.refusals > 0 && sum.unkept > 0, "{sum:?}");
    }
    sum
}
