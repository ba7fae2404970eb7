//! A random script for several actors, which both versions play in their own dialect: each actor
//! does one task after the other, each until it is done.

use crate::waiting::world::World;
use fastrand::Rng;
use stag_sim::Faults;
use stag_verbs::Time;
use std::time::Duration;

pub const ACTORS: usize = 6;
/// Octets from one place of the file to the next.
pub const STRIDE: u64 = 16_384;
/// Time after which an actor asks again for what was refused.
const REST: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
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

pub struct Actor {
    pub number: usize,
    left: usize,
    pub task: Option<Task>,
    /// Number of its WRITEs.
    pub version: u32,
    names: Vec<String>,
    fresh: usize,
    /// Time before which it asks nothing; none while it waits for a reply.
    rests_until: Option<Time>,
}

impl Actor {
    fn new(number: usize, tasks: usize) -> Self {
        let (names, version, fresh) = (vec![], 0, 0);
        let rests_until = Some(Time(0));
        Self { number, left: tasks, task: None, version, names, fresh, rests_until }
    }

    /// Returns true if it is about to send a request of its task, which may be a new one.
    fn is_due(&mut self, now: Time, dice: &mut Rng) -> bool {
        if self.rests_until.is_none_or(|until| until > now) {
            return false;
        }
        if self.task.is_none() {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.task = Some(self.choose(dice));
        }
        self.rests_until = None;
        true
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

    /// The octets of its last WRITE.
    pub fn octets(&self) -> Vec<u8> {
        let len = 600 + self.number * 2_000;
        self.version.to_be_bytes().into_iter().chain(vec![self.version as u8; len]).collect()
    }

    /// Its place in the file.
    pub fn offset(&self) -> u64 {
        self.number as u64 * STRIDE
    }

    /// Nothing was done: it asks again.
    pub fn ask_again(&mut self, now: Time) {
        self.rests_until = Some(now + REST);
    }

    /// Its task is done; a READ has brought these octets.
    pub fn complete(&mut self, now: Time, read: Option<&[u8]>) {
        if let Some(octets) = read {
            let mine = self.octets();
            let end = mine.len().min(octets.len());
            assert!(self.version == 0 || octets[..end] == mine[..end], "what was written");
        }
        if let Some(Task::Create(name) | Task::Rename(_, name)) = self.task.take() {
            self.names.push(name);
        }
        self.rests_until = Some(now);
    }
}

/// Counts of all runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub calls: u64,
    pub changes: u64,
    pub refusals: u64,
    pub losses: u64,
    pub suspensions: u64,
    pub joined: u64,
    pub replayed: u64,
    pub hung: u64,
    /// WRITEs whose reply was lost, and that were carried out again as they were.
    pub again: u64,
    /// Replies that were not kept, and asked for again.
    pub unkept: u64,
    /// Compounds that came over the other shard.
    pub forwarded: u64,
    /// Compounds that the other shard has carried out itself.
    pub lent: u64,
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
        self.again += other.again;
        self.unkept += other.unkept;
        self.forwarded += other.forwarded;
        self.lent += other.lent;
    }
}

/// Requests and replies of one version.
pub trait Dialect {
    /// Sends the request of an actor's task.
    fn send(&mut self, world: &mut World, actor: &Actor, dice: &mut Rng);

    /// Takes a reply: the actor completes its task, or asks again.
    fn conclude(&mut self, now: Time, reply: &[u8], actor: &mut Actor, sum: &mut Sum);

    /// The actor of a request with this token.
    fn actor_of(&self, token: u64) -> usize;

    /// Between the requests of a step and the step.
    fn disturb(&mut self, _world: &mut World, _dice: &mut Rng) {}
}

/// Plays `tasks` tasks of each actor while messages are lost, and checks that each change was made
/// once.
pub fn play_script(
    world: &mut World,
    dice: &mut Rng,
    tasks: usize,
    dialect: &mut impl Dialect,
) -> Sum {
    let mut actors: Vec<_> = (0..ACTORS).map(|number| Actor::new(number, tasks)).collect();
    let lost = [0, 200, 1_000, 5_000][dice.usize(..4)];
    world.fabric.set_faults(Faults { lost, ..Faults::DELAYS });
    let mut sum = Sum::default();
    while actors.iter().any(|actor| actor.left > 0 || actor.task.is_some()) {
        for actor in &mut actors {
            if actor.is_due(world.now, dice) {
                sum.calls += 1;
                dialect.send(world, actor, dice);
            }
        }
        dialect.disturb(world, dice);
        world.step();
        while let Some((token, reply)) = world.take(0) {
            let actor = &mut actors[dialect.actor_of(token)];
            dialect.conclude(world.now, &reply, actor, &mut sum);
        }
    }
    world.fabric.set_faults(Faults::DELAYS);
    world.end();
    let shared = world.shared.borrow();
    for (what, times) in &shared.done {
        assert_eq!(*times, 1, "{what} was carried out more than once");
    }
    for actor in &actors {
        let last = shared.versions.get(&actor.offset()).copied().unwrap_or(0);
        assert_eq!(last, actor.version, "each version was written");
    }
    (sum.changes, sum.losses) = (shared.done.len() as u64, world.losses());
    (sum.hung, sum.again) = (shared.hung, shared.again);
    sum
}
