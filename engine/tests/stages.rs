//! Time that calls spend in each stage, in virtual time: to the nanosecond, as far as the buckets
//! of a histogram resolve it.

use crate::support::{
    self, AtServer, GRANT, LIMITS, config, echo_head, message, pattern, rpc, rpc_of,
};
use stag_echo::{Caller, ECHO, Echo, NULL};
use stag_engine::{
    Answer, App, Call, Config, Cx, Sampling, Shard, Stage, Stages, Token, stages::service,
};
use stag_pools::Access;
use stag_protocol::{
    rpc::{Accepted, Outcome, ReplyHeader},
    rpcrdma::{ChunkLists, Position, Segment},
    xdr::{Reader, Writer},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Provider, Time};

/// A shard that watches one call in `every`.
fn watching(every: u32) -> Config {
    Config { sampling: Sampling { every, shard: 7, ..Sampling::default() }, ..config() }
}

fn null(xid: u32) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &rpc(xid, NULL, &[]))
}

/// The samples of a stage that lasted so long, and all of them.
fn samples(stages: &Stages, stage: Stage, nanos: u64) -> (u64, u64) {
    let times = stages.times(stage).unwrap();
    (times.count_at(nanos), times.len())
}

/// Every stage but these lasted no time at all, and had this many samples.
fn expect_no_time_beside(stages: &Stages, beside: &[Stage], calls: u64) {
    for (stage, times) in stages.iter().filter(|(stage, _)| !beside.contains(stage)) {
        let is_rare = matches!(stage, Stage::Pull | Stage::Push);
        assert_eq!(
            (times.max(), times.len()),
            (0, if is_rare { 0 } else { calls }),
            "{}",
            stage.name()
        );
    }
}

/// Answers each call 200 µs after it came.
#[derive(Default)]
struct Late {
    waiting: Vec<(Time, stag_engine::CallId, ReplyHeader<'static>)>,
}

const LATE: u64 = 200_000;

impl App for Late {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.waiting.push((Time(cx.now().0 + LATE), call.id, call.header.reply(Accepted::Success)));
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        for (due, id, reply) in std::mem::take(&mut self.waiting) {
            if due > cx.now() {
                self.waiting.push((due, id, reply));
                continue;
            }
            let mut message = cx.message(64).unwrap();
            let mut writer = Writer::new(message.spare_mut());
            reply.emit(&mut writer).unwrap();
            let len = writer.len();
            message.extend(len);
            cx.answer(id, Answer { message, item: None });
        }
    }
}

#[test]
fn an_app_that_waits_200_microseconds_shows_exactly_that() {
    let mut at = AtServer::serving(Late::default(), watching(1));
    for xid in 1..=20 {
        assert_eq!(at.ask(&null(xid)), None, "not yet");
        at.now = Time(at.now.0 + LATE);
        at.settle();
        assert!(at.raw.received.pop_front().is_some());
    }
    let stages = at.shard.snapshot().stages;
    assert_eq!(samples(&stages, Stage::App, LATE), (20, 20));
    expect_no_time_beside(&stages, &[Stage::App], 20);
    assert_eq!((stages.calls(), stages.every(), stages.shard()), (20, 1, 7));
}

fn item_position() -> Position {
    Position::new(rpc(1, ECHO, &[0; 4]).len() as u32).unwrap()
}

/// An echo of `len` octets from a Read chunk to a Write chunk.
fn echo<A: App>(at: &mut AtServer<A>, xid: u32, len: usize) -> Vec<u8> {
    let mut lists = ChunkLists::new();
    lists.push_read(item_position(), at.raw.window(&pattern(len), Access::RemoteRead)).unwrap();
    lists.begin_write().unwrap();
    lists.push_write(at.raw.window(&vec![0; len], Access::RemoteWrite)).unwrap();
    message(xid, &lists, &rpc(xid, ECHO, &echo_head(len)))
}

#[test]
fn a_read_that_the_fabric_delays_shows_in_pull() {
    let mut at = AtServer::serving(Echo::default(), watching(1));
    let delay = 300_000;
    at.fabric.set_faults(Faults { fetch_delay: delay..delay + 1, ..Faults::NONE });
    for xid in 1..=4 {
        let call = echo(&mut at, xid, 9_000);
        at.ask(&call).expect("it is answered");
    }
    let stages = at.shard.snapshot().stages;
    assert_eq!(samples(&stages, Stage::Pull, delay), (4, 4));
    assert_eq!(samples(&stages, Stage::Push, 0), (4, 4), "each reply was pushed");
    expect_no_time_beside(&stages, &[Stage::Pull, Stage::Push], 4);
}

/// Both ends with a shard, where the server watches one call in `every`.
fn calls(every: u32, count: u64) -> (Stages, Stages) {
    let fabric = Fabric::new(3, Faults::DELAYS);
    let shard = |name, config| {
        Shard::<Sim, _>::new(fabric.end(name, LIMITS), Both::default(), config, Box::new(|_| true))
    };
    let mut server = shard("server", watching(every)).unwrap();
    let mut client = shard("client", watching(every)).unwrap();
    let peer = client.connect(&server.listen(&Port(0)).unwrap()).unwrap();
    let (mut now, mut called) = (Time(0), 0);
    while client.app().caller_done < count {
        while called < count && called - client.app().caller_done < 4 {
            let octets = pattern([0, 100, 5_000][called as usize % 3]);
            assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(called), Some(&octets))));
            called += 1;
        }
        if !(server.pass(now) | client.pass(now)) {
            now = fabric.next_due().map_or(now, |due| due.max(now));
        }
    }
    (server.snapshot().stages, client.snapshot().stages)
}

/// An echo that calls, too.
#[derive(Default)]
struct Both {
    echo: Echo,
    caller_done: u64,
}

impl App for Both {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.echo.on_call(cx, call);
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: stag_engine::Outcome<'_>) {
        assert!(outcome.reply.is_ok());
        self.caller_done += 1;
    }
}

#[test]
fn one_call_in_64_is_watched_and_no_reply() {
    for (every, count, watched) in [(64, 640, 10), (64, 639, 9), (1, 99, 99), (0, 200, 0)] {
        let (server, client) = calls(every, count);
        assert_eq!((server.calls(), client.calls()), (watched, 0), "{count} calls, 1 in {every}");
    }
}

#[test]
fn a_reply_that_waits_for_room_shows_in_send_and_counts_once() {
    let mut at = AtServer::serving(Echo::default(), watching(1));
    // Completions are late, so that two replies of 63 Writes and a Send each fill the queue.
    let late = 1_000_000_000;
    at.fabric.set_faults(Faults { completion_delay: late..late + 1, ..Faults::NONE });
    for xid in 1..=GRANT {
        let mut lists = ChunkLists::new();
        lists.begin_write().unwrap();
        let target = at.raw.window(&[0xee; 504], Access::RemoteWrite);
        for piece in 0..63 {
            let offset = target.offset + 8 * piece;
            lists.push_write(Segment { length: 8, offset, ..target }).unwrap();
        }
        let arguments = [&echo_head(504)[..], &pattern(504)].concat();
        at.raw.send(&message(xid, &lists, &rpc(xid, ECHO, &arguments)), None);
    }
    at.settle();
    assert_eq!(at.raw.received.len(), GRANT as usize);
    assert!(at.shard.snapshot().engine.limits.send_queue > 0, "replies waited for room");
    let stages = at.shard.snapshot().stages;
    let send = stages.times(Stage::Send).unwrap();
    assert_eq!((stages.calls(), send.len()), (GRANT.into(), GRANT.into()));
    assert!(send.count_at(0) < send.len() && send.max() >= late, "{send:?}");
    expect_no_time_beside(&stages, &[Stage::Send, Stage::Push], GRANT.into());
}

#[test]
fn calls_whose_connection_dies_count_nothing_and_their_places_are_used_again() {
    let mut at = AtServer::serving(Late::default(), watching(1));
    for round in 0..200 {
        // As many as the peer may have outstanding: none is answered.
        (0..GRANT).for_each(|xid| at.raw.send(&null(xid + 1), None));
        at.settle();
        assert_eq!(at.shard.calls_in_progress().0, GRANT as usize);
        at.shard.with_app(|app, _| app.waiting.clear());
        at.raw.end.disconnect(at.raw.qp.unwrap());
        at.settle();
        at.connect();
        assert_eq!(at.shard.snapshot().stages.calls(), round);
        at.raw.send(&null(9), None);
        at.settle();
        at.now = Time(at.now.0 + LATE);
        at.settle();
        assert!(at.raw.received.pop_back().is_some());
    }
    let stages = at.shard.snapshot().stages;
    assert_eq!(samples(&stages, Stage::App, LATE), (200, 200));
    expect_no_time_beside(&stages, &[Stage::App], 200);
}

/// Serves its stages in addition to the echo program.
#[derive(Default)]
struct Open(Echo);

impl App for Open {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        if !service::answer(cx, &call) {
            self.0.on_call(cx, call);
        }
    }
}

/// A call of the program that reports stages.
fn ask(xid: u32, version: u32, procedure: u32, lists: &ChunkLists) -> Vec<u8> {
    message(xid, lists, &rpc_of((service::PROGRAM, version, procedure), xid, &[]))
}

#[test]
fn whoever_asks_is_told_the_stages() {
    let mut at = AtServer::serving(Open::default(), watching(2));
    (1..=100).for_each(|xid| drop(at.ask(&null(xid)).unwrap()));
    let known = at.shard.snapshot().stages;
    assert_eq!(known.calls(), 50);
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    let room = at.raw.window(&[0; 4_096], Access::RemoteWrite);
    lists.push_write(room).unwrap();
    let (answer, invalidated) = at.ask(&ask(200, 1, service::ASK, &lists)).unwrap();
    let (_, returned, payload) = support::reply(&answer);
    let len = returned.writes().next().unwrap().segments[0].length as usize;
    if invalidated.is_none() {
        at.raw.fence(room);
        at.settle();
    }
    assert_eq!(support::results(&payload), (len as u32).to_be_bytes());
    assert_eq!(service::parse(&at.raw.content(room)[..len]), Ok(known));
    let mut is = |version, procedure, expected| {
        let (answer, _) = at.ask(&ask(201, version, procedure, &ChunkLists::new())).unwrap();
        let (_, _, payload) = support::reply(&answer);
        ReplyHeader::parse(&mut Reader::new(&payload)).unwrap().outcome
            == Outcome::accepted(expected)
    };
    assert!(is(1, service::NULL, Accepted::Success));
    assert!(is(1, 9, Accepted::ProcUnavail));
    assert!(is(2, service::ASK, Accepted::ProgMismatch { low: 1, high: 1 }));
    assert!(at.ask(&null(300)).is_some(), "the app's own program is served");
    assert_eq!(at.shard.buffers_in_use(), 0);
}
