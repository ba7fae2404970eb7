//! One seed is one run, by version 4: compounds of several operations each of which may wait,
//! connections that are lost meanwhile, and slots.

use crate::waiting::{
    client4::{
        CONFIG, Reply4, Session4, create, exchange_over, look, make_directory, open, put, request,
    },
    plays::play_all,
    script::{ACTORS, Actor, Dialect, STRIDE, Sum, Task, play_script},
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
use stag_verbs::Time;

const TASKS: usize = 20;

/// Their replies are kept: what they do is done once.
const fn is_kept(task: &Task) -> bool {
    !matches!(task, Task::Read | Task::Look | Task::List | Task::Find(_))
}

/// Place of the operation that counts.
const fn place(task: &Task) -> usize {
    if matches!(task, Task::Rename(..)) { 4 } else { 2 }
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

/// Version 4: a task is a compound in the slot of its actor.
struct Compounds {
    setting: Setting,
    session: Session4,
    stateid: Stateid,
    /// The request of an actor is a new one for its slot.
    are_new: [bool; ACTORS],
    /// Connection of the next calls, or any, and their number.
    phase: (Option<u64>, u64),
}

impl Compounds {
    fn connection(&mut self, dice: &mut Rng) -> u64 {
        if self.phase.1 == 0 {
            // For a while all of them come one way, or none does.
            let ways = [(None, 30), (Some(0), 40), (Some(1), 80)];
            self.phase = ways[dice.usize(..3)];
        }
        self.phase.1 -= u64::from(self.phase.1 != u64::MAX);
        self.phase.0.unwrap_or_else(|| dice.u64(..CONNECTIONS as u64))
    }
}

impl Dialect for Compounds {
    fn send(&mut self, world: &mut World, actor: &Actor, dice: &mut Rng) {
        let connection = self.connection(dice);
        let (slow, file) = (world.slow, world.file);
        let (octets, offset) = (actor.octets(), actor.offset());
        let task = actor.task.as_ref().unwrap();
        let sequence = match self.are_new[actor.number] {
            true => self.session.next(actor.number, is_kept(task)),
            false => self.session.again(actor.number, is_kept(task)),
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
        world.send(0, actor.number as u64 * 2 + connection, |cx, token| {
            request(cx, token, &requests)
        });
    }

    fn conclude(&mut self, now: Time, reply: &[u8], actor: &mut Actor, sum: &mut Sum) {
        let reply = Reply4::of(reply);
        let task = actor.task.as_ref().unwrap();
        let answers = reply.answers();
        let status = |place: usize| answers.get(place).map(status_of);
        self.are_new[actor.number] = true;
        match (status(0), status(place(task))) {
            // The slot is as it was.
            (Some(Status4::Delay), None) => {
                self.are_new[actor.number] = false;
                sum.refusals += 1;
                return actor.ask_again(now);
            }
            (Some(Status4::Ok), _) => {}
            other => panic!("{task:?}: {other:?}"),
        }
        if status(1) == Some(Status4::RetryUncachedRep) {
            assert!(!is_kept(task), "{task:?} is done once");
            sum.unkept += 1;
            return actor.ask_again(now);
        }
        match status(place(task)) {
            Some(Status4::Ok) => {}
            Some(Status4::Delay) => {
                sum.refusals += 1;
                return actor.ask_again(now);
            }
            other => panic!("{task:?}: {other:?} {answers:?}"),
        }
        match &answers[place(task)] {
            Answer::Read(Ok(read)) => actor.complete(now, Some(read.data.octets().unwrap())),
            _ => actor.complete(now, None),
        }
    }

    fn actor_of(&self, token: u64) -> usize {
        token as usize / 2
    }

    fn disturb(&mut self, world: &mut World, dice: &mut Rng) {
        if self.setting != Setting::One && dice.u32(..200) == 0 {
            world.stuck_until = world.steps() + dice.u64(..100);
        }
    }
}

fn status_of(answer: &Answer<'_>) -> Status4 {
    use stag_protocol::nfs::v4::AnswerSet as _;
    answer.status()
}

/// An open of the file, over the connection that the session was made over.
fn open_file(world: &mut World, session: &mut Session4, connection: u64) -> Stateid {
    let slow = world.slow;
    loop {
        let opened = [session.next(0, true), put(&slow), open(b"file", 0)];
        let reply = exchange_over(world, 0, connection, &opened);
        match reply.last() {
            Answer::Open(Ok(opened)) => return opened.stateid,
            Answer::Open(Err(Status4::Delay)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn play(seed: u64, setting: Setting) -> Sum {
    let mut dice = Rng::with_seed(seed);
    let mut world = match setting {
        Setting::One => World::with(seed, |gateway| gateway.with_nfs4(CONFIG)),
        Setting::Forwarding => World::on_two(seed, |gateway| gateway.with_nfs4(CONFIG)),
        Setting::Lending => World::lending(seed, CONFIG),
    };
    // Calls over the connection that the session was made over, before others come; or all.
    let (first, phase) = match setting {
        Setting::Lending => (1, (Some(1), [0, 20, 60, u64::MAX][dice.usize(..4)])),
        Setting::One | Setting::Forwarding => (0, (None, u64::MAX)),
    };
    // The first slot has carried a request then.
    let mut session = Session4::open_over(&mut world, 0, 0, first);
    let stateid = match setting {
        Setting::Lending => open_file(&mut world, &mut session, first),
        Setting::One | Setting::Forwarding => Stateid::ANONYMOUS,
    };
    let mut compounds = Compounds { setting, session, stateid, are_new: [true; ACTORS], phase };
    let sum = play_script(&mut world, &mut dice, TASKS, &mut compounds);
    let report = world.report().nfs4;
    assert_eq!((report.suspended, report.busy_slots), (0, 0), "no slot is lost");
    assert_eq!(world.lent_busy(), 0, "nor one that is lent");
    assert_eq!(sum.again, 0, "a WRITE whose reply is kept is carried out once");
    Sum {
        suspensions: report.suspensions,
        joined: report.joined,
        replayed: report.replayed,
        forwarded: world.forwarded(),
        lent: world.lent(),
        ..sum
    }
}

#[test]
fn whatever_is_lost_each_operation_of_a_compound_is_carried_out_once_and_no_slot_is_lost() {
    assert_eq!(run(Setting::One).forwarded, 0);
}

#[test]
fn the_same_holds_when_a_client_comes_over_two_shards_and_messages_are_late() {
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
    let usual = if setting == Setting::One { 1_000 } else { 300 };
    let (count, sum) = play_all(usual, 5, |seed| play(seed, setting));
    println!("{count} seeds, {setting:?}: {sum:?}");
    if count >= 50 {
        assert!(sum.suspensions > sum.calls / 2, "{sum:?}");
        assert!(sum.joined > 0 && sum.replayed > 0 && sum.hung > count / 2, "{sum:?}");
        assert!(sum.losses > 0 && sum.refusals > 0 && sum.unkept > 0, "{sum:?}");
    }
    sum
}
