//! A shard whose memory, queues and patience run out: no peer crashes it, and none takes what
//! belongs to others.

use crate::support::{
    AtServer, LIMITS, Raw, config, echo_head, message, pattern, reply, results, rpc,
};
use stag_echo::{Caller, ECHO, Echo};
use stag_engine::{
    Answer, AnswerItem, App, Call, CallFault, Cause, Config, Cx, Outcome, PeerId, Shard, Token,
};
use stag_pools::{Access, Buf};
use stag_protocol::{
    rpc::Accepted,
    rpcrdma::{ChunkLists, Position},
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Time};
use std::time::Duration;

/// Octets of an item that only a large slot takes.
const LARGE: usize = 100_000;
/// A Read that is answered after this time is not answered at all.
const NEVER: Faults = Faults { fetch_delay: u64::MAX / 4..u64::MAX / 4 + 1, ..Faults::NONE };
const MOMENT: Duration = Duration::from_millis(1);
/// The longest time between two passes.
const LOOK: Duration = Duration::from_millis(5);

/// A server, and several peers whose messages are made by hand.
struct Crowd<A: App> {
    fabric: Fabric,
    shard: Shard<Sim, A>,
    peers: Vec<Raw>,
    now: Time,
}

impl<A: App> Crowd<A> {
    fn new(app: A, limits: Limits, config: Config, count: usize) -> Self {
        let fabric = Fabric::new(7, Faults::NONE);
        let mut shard =
            Shard::new(fabric.end("server", limits), app, config, Box::new(|_| true)).unwrap();
        let port = shard.listen(&Port(0)).unwrap();
        let connect = |_| {
            let mut raw = Raw::with_slots(&fabric, [256, 72]);
            raw.qp = Some(raw.end.connect(&port, &Raw::private_data()).unwrap());
            raw
        };
        let peers = (0..count).map(connect).collect();
        let mut this = Self { fabric, shard, peers, now: Time(0) };
        this.run_for(MOMENT);
        this
    }

    /// Everything that happens in this time.
    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..100_000 {
            let worked = self
                .peers
                .iter_mut()
                .fold(self.shard.pass(self.now), |worked, peer| worked | peer.poll(self.now));
            match self.fabric.next_due() {
                _ if worked => {}
                Some(due) if due <= until.min(self.now + LOOK) => self.now = due.max(self.now),
                _ if self.now < until => self.now = until.min(self.now + LOOK),
                _ => return,
            }
        }
        panic!("the fabric never comes to rest\n{}", self.fabric.trace());
    }

    /// An echo of `len` octets in one Read chunk, which comes back in a Write chunk of `targets`
    /// equal segments.
    fn echo(&mut self, peer: usize, xid: u32, len: usize, targets: usize) {
        let raw = &mut self.peers[peer];
        let mut lists = ChunkLists::new();
        let source = raw.window(&pattern(len), Access::RemoteRead);
        lists.push_read(item_position(), source).unwrap();
        lists.begin_write().unwrap();
        for _ in 0..targets {
            let target = raw.window(&vec![0; len / targets], Access::RemoteWrite);
            lists.push_write(target).unwrap();
        }
        raw.send(&message(xid, &lists, &rpc(xid, ECHO, &echo_head(len))), None);
    }

    /// A call with two items in Read chunks. Its answer is an error, for no place is offered for
    /// the echo.
    fn call_with_two_items(&mut self, peer: usize, xid: u32, len: usize) {
        self.call_with_items(peer, xid, len, 2);
    }

    fn call_with_items(&mut self, peer: usize, xid: u32, len: usize, count: u32) {
        let raw = &mut self.peers[peer];
        let head = item_position().octets();
        let mut lists = ChunkLists::new();
        for item in 0..count {
            let source = raw.window(&pattern(len), Access::RemoteRead);
            let position = head + item * (len as u32 + 4);
            lists.push_read(Position::new(position).unwrap(), source).unwrap();
        }
        let arguments = echo_head(len).repeat(count as usize);
        raw.send(&message(xid, &lists, &rpc(xid, ECHO, &arguments)), None);
    }

    fn received(&self) -> Vec<usize> {
        self.peers.iter().map(|peer| peer.received.len()).collect()
    }
}

/// Position of the item in an echo call.
fn item_position() -> Position {
    Position::new(rpc(1, ECHO, &[0; 4]).len() as u32).unwrap()
}

/// An echo that keeps the caller's item, where it was pulled to, until the reply has left.
struct Keeper;

impl App for Keeper {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let mut message = cx.message(64).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        let octets = call.arguments.clone().item(1 << 20).unwrap();
        writer.u32(octets.len() as u32).unwrap();
        let position = writer.len();
        message.extend(position);
        let item = AnswerItem::new(position, call.pulled.share(octets).unwrap());
        cx.answer(call.id, Answer { message, item: Some(item) });
    }
}

#[test]
fn a_read_chunk_of_17_to_64_segments_is_pulled() {
    for count in 17..=64 {
        let mut at = AtServer::new();
        let octets = pattern(count * 12);
        let mut lists = ChunkLists::new();
        for piece in octets.chunks(12) {
            let source = at.raw.window(piece, Access::RemoteRead);
            lists.push_read(item_position(), source).unwrap();
        }
        let call = message(9, &lists, &rpc(9, ECHO, &echo_head(octets.len())));
        let (answer, _) = at.ask(&call).expect("it is answered");
        let (_, _, payload) = reply(&answer);
        assert_eq!(
            results(&payload),
            [echo_head(octets.len()), octets].concat(),
            "{count} segments"
        );
        at.expect_alive();
    }
}

#[test]
fn replies_that_hold_memory_go_before_calls_that_wait_for_it() {
    let limits = Limits { send_queue: 16, ..LIMITS };
    let config = Config { slots: [512, 0, 8], ..config() };
    let mut crowd = Crowd::new(Keeper, limits, config, 4);
    crowd.fabric.set_faults(Faults { fetch_delay: 1_000_000..1_000_001, ..Faults::NONE });
    // Three newcomers take all that newcomers may have; a reply is ten Writes, and a queue has
    // places for one.
    (1..=3).for_each(|peer| (0..2).for_each(|xid| crowd.echo(peer, xid, LARGE, 10)));
    crowd.run_for(MOMENT / 2);
    assert_eq!(crowd.shard.calls_in_progress(), (6, 0));
    crowd.call_with_two_items(0, 77, LARGE);
    crowd.run_for(10 * MOMENT);
    assert_eq!(crowd.received(), [1, 2, 2, 2]);
    let limits = crowd.shard.snapshot().engine.limits;
    assert!(limits.memory > 0 && limits.send_queue > 0, "both had to wait: {limits:?}");
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn a_call_that_never_gets_its_memory_holds_up_no_reply_and_ends() {
    let limits = Limits { send_queue: 16, ..LIMITS };
    let config = Config { slots: [512, 4, 1], ..config() };
    let mut crowd = Crowd::new(Keeper, limits, config, 2);
    crowd.call_with_two_items(0, 77, LARGE);
    crowd.run_for(MOMENT);
    assert_eq!(
        (crowd.shard.calls_in_progress(), crowd.shard.snapshot().engine.limits.memory),
        ((1, 0), 1)
    );
    (0..3).for_each(|xid| crowd.echo(1, xid, 100, 10));
    crowd.run_for(MOMENT);
    assert!(crowd.shard.snapshot().engine.limits.send_queue > 0, "replies had to wait, too");
    assert_eq!(crowd.received(), [0, 3]);
    crowd.run_for(Duration::from_secs(32));
    assert!(crowd.peers[0].ended.is_some() && crowd.peers[1].ended.is_none());
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn a_peer_that_never_answers_our_reads_is_disconnected_after_thirty_seconds() {
    let mut crowd = Crowd::new(Echo::default(), LIMITS, config(), 2);
    crowd.fabric.set_faults(NEVER);
    (0..3).for_each(|xid| crowd.echo(0, xid, LARGE, 1));
    crowd.run_for(Duration::from_secs(29));
    let (calls, messages, sinks) = ((3, 0), 3, 2);
    assert_eq!(
        (crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()),
        (calls, messages + sinks)
    );
    assert!(crowd.peers[0].ended.is_none(), "it has its time");
    crowd.run_for(Duration::from_secs(3));
    assert!(crowd.peers[0].ended.is_some() && crowd.peers[1].ended.is_none());
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
    assert!(crowd.shard.snapshot().engine.limits.stalled > 0);
    assert_eq!(crowd.shard.provider().receives_posted(), config().receives);
    crowd.fabric.set_faults(Faults::NONE);
    crowd.echo(1, 9, LARGE, 1);
    crowd.run_for(MOMENT);
    assert_eq!(crowd.received(), [0, 1]);
}

#[test]
fn the_pulls_of_a_newcomer_hold_two_large_slots_and_another_peer_is_served() {
    let config =
        Config { grant: 24, grant_first: 24, slots: [512, 16, 64], ..crate::support::small() };
    let receives = config.receives;
    let mut crowd = Crowd::new(Echo::default(), LIMITS, config, 2);
    crowd.fabric.set_faults(NEVER);
    (0..24).for_each(|xid| crowd.echo(0, xid, LARGE, 1));
    crowd.run_for(MOMENT);
    let messages = receives - crowd.shard.provider().receives_posted();
    assert_eq!((crowd.shard.calls_in_progress(), messages), ((24, 0), 24));
    assert_eq!(crowd.shard.buffers_in_use() - messages, 2);
    assert_eq!(crowd.shard.snapshot().engine.limits.share, 1);
    crowd.fabric.set_faults(Faults::NONE);
    for xid in 0..8 {
        crowd.echo(1, xid, LARGE, 1);
        crowd.run_for(MOMENT);
        assert_eq!(crowd.received(), [0, 1 + xid as usize]);
    }
    crowd.run_for(Duration::from_secs(32));
    assert!(crowd.peers[0].ended.is_some() && crowd.peers[1].ended.is_none());
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn a_shard_without_long_slots_answers_calls_that_offer_much() {
    for slots in [[512, 0, 0], [512, 4, 0]] {
        let mut crowd = Crowd::new(Echo::default(), LIMITS, Config { slots, ..config() }, 1);
        let mut lists = ChunkLists::new();
        lists.begin_write().unwrap();
        lists.push_write(crowd.peers[0].window(&[0; LARGE], Access::RemoteWrite)).unwrap();
        let octets = [&echo_head(8)[..], b"answered"].concat();
        crowd.peers[0].send(&message(1, &lists, &rpc(1, ECHO, &octets)), None);
        crowd.run_for(MOMENT);
        assert_eq!(crowd.received(), [1], "{slots:?}");
    }
}

#[test]
fn a_call_that_needs_more_buffers_than_newcomers_have_holds_up_no_other_newcomer() {
    let config = Config { slots: [512, 0, 8], ..config() };
    let mut crowd = Crowd::new(Echo::default(), LIMITS, config, 2);
    crowd.call_with_items(0, 1, LARGE, 7);
    crowd.run_for(MOMENT);
    for xid in 0..4 {
        crowd.echo(1, xid, LARGE, 1);
        crowd.run_for(MOMENT);
        assert_eq!(crowd.received(), [0, 1 + xid as usize]);
    }
    crowd.run_for(Duration::from_secs(32));
    assert!(crowd.peers[0].ended.is_some() && crowd.peers[1].ended.is_none());
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn a_peer_whose_credit_is_used_up_in_line_holds_up_no_proven_one() {
    let config = Config { slots: [512, 0, 16], peers: 64, ..crate::support::small() };
    let mut crowd = Crowd::new(Keeper, Limits { connections: 64, ..LIMITS }, config, 14);
    let (idler, holder, proven) = (11, 12, 13);
    for peer in [idler, holder, proven] {
        for xid in 0..24 {
            crowd.echo(peer, xid, LARGE, 1);
            crowd.run_for(MOMENT);
        }
    }
    let before = crowd.received();
    crowd.fabric.set_faults(NEVER);
    crowd.echo(idler, 100, LARGE, 1);
    crowd.run_for(250 * MOMENT);
    (0..11).for_each(|peer| crowd.echo(peer, 100, LARGE, 1));
    crowd.run_for(MOMENT);
    (0..4).for_each(|xid| crowd.echo(holder, 100 + xid, LARGE, 1));
    crowd.run_for(MOMENT);
    crowd.fabric.set_faults(Faults::NONE);
    crowd.echo(idler, 101, LARGE, 1);
    crowd.run_for(MOMENT);
    crowd.echo(proven, 100, LARGE, 1);
    crowd.run_for(290 * MOMENT);
    assert_eq!(crowd.received(), before, "all buffers are taken");
    let qp = crowd.peers[holder].qp.unwrap();
    crowd.peers[holder].end.disconnect(qp);
    crowd.run_for(30 * MOMENT);
    assert_eq!(
        crowd.shard.snapshot().engine.limits.slow,
        0,
        "those that hold the rest have their time"
    );
    assert_eq!(crowd.received()[proven], before[proven] + 1);
}

#[test]
fn a_pause_of_our_own_is_no_peers_fault() {
    let mut crowd = held_by_a_crowd();
    crowd.echo(24, 1, LARGE, 1);
    crowd.run_for(MOMENT);
    // The app, or the host, does something else for two seconds.
    crowd.now = crowd.now + Duration::from_secs(2);
    crowd.run_for(100 * MOMENT);
    assert_eq!(crowd.shard.snapshot().engine.limits.slow, 0);
    crowd.run_for(2_000 * MOMENT);
    assert!(crowd.shard.snapshot().engine.limits.slow > 0);
}

/// Sixteen large slots, and a crowd of which each has asked for an echo of what it does not give.
fn held_by_a_crowd() -> Crowd<Keeper> {
    let config = Config { slots: [512, 0, 16], peers: 64, ..crate::support::small() };
    let limits = Limits { connections: 64, ..LIMITS };
    let mut crowd = Crowd::new(Keeper, limits, config, 26);
    // The last one has shown that its octets move.
    for xid in 0..24 {
        crowd.echo(25, xid, LARGE, 1);
        crowd.run_for(MOMENT);
    }
    assert_eq!(crowd.peers[25].received.len(), 24);
    crowd.fabric.set_faults(NEVER);
    (0..24).for_each(|peer| crowd.echo(peer, 1, LARGE, 1));
    crowd.run_for(MOMENT);
    crowd.fabric.set_faults(Faults::NONE);
    crowd
}

#[test]
fn a_crowd_that_answers_no_reads_delays_no_proven_peer_and_is_ended_when_somebody_waits() {
    let mut crowd = held_by_a_crowd();
    for xid in 100..110 {
        crowd.echo(25, xid, LARGE, 1);
        crowd.run_for(MOMENT);
        assert_eq!(crowd.peers[25].received.len(), xid as usize - 75, "it is served at once");
    }
    let limits = crowd.shard.snapshot().engine.limits;
    assert!(limits.memory > 0, "newcomers stand in line: {limits:?}");
    assert_eq!((limits.slow, limits.stalled), (0, 0), "nobody has waited for long");
    crowd.echo(24, 1, LARGE, 1);
    crowd.run_for(100 * MOMENT);
    assert_eq!(crowd.peers[24].received.len(), 0, "a newcomer waits with the others");
    crowd.run_for(1_900 * MOMENT);
    assert_eq!(
        crowd.peers[24].received.len(),
        1,
        "and is served when those before it have lost what they held"
    );
    let limits = crowd.shard.snapshot().engine.limits;
    let ended = crowd.peers.iter().filter(|peer| peer.ended.is_some()).count() as u64;
    assert!(limits.slow >= 12 && limits.slow == ended, "{limits:?}, {ended} ended");
    assert!(crowd.peers[24].ended.is_none() && crowd.peers[25].ended.is_none());
    crowd.run_for(Duration::from_secs(70));
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn a_peer_that_takes_no_reply_is_ended_after_thirty_seconds_though_nobody_waits() {
    let mut crowd = Crowd::new(Keeper, LIMITS, crate::support::small(), 1);
    // What is sent to it never ends.
    let nobody = Faults { completion_delay: NEVER.fetch_delay, ..Faults::NONE };
    crowd.fabric.set_faults(nobody);
    crowd.echo(0, 1, LARGE, 1);
    crowd.run_for(Duration::from_secs(28));
    assert!(crowd.peers[0].ended.is_none(), "it has its time");
    crowd.run_for(Duration::from_secs(4));
    assert!(crowd.peers[0].ended.is_some());
    assert_eq!(crowd.shard.snapshot().engine.limits.stalled, 1);
    let causes = crowd.shard.snapshot().engine.disconnects;
    assert_eq!(causes.keys().collect::<Vec<_>>(), [&Cause::Stalled.to_string()]);
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn errors_wait_for_room_in_the_send_queue() {
    let limits = Limits { send_queue: 16, ..LIMITS };
    let config = Config { grant: 24, grant_first: 24, ..crate::support::small() };
    let mut crowd = Crowd::new(Echo::default(), limits, config, 1);
    let pausing = Faults { completion_delay: 5_000_000..5_000_001, inline: 0, ..Faults::NONE };
    crowd.fabric.set_faults(pausing);
    // Each names a chunk at a position that no argument of this program has: ERR_CHUNK.
    for xid in 0..24 {
        let raw = &mut crowd.peers[0];
        let mut lists = ChunkLists::new();
        let source = raw.window(&pattern(100), Access::RemoteRead);
        lists.push_read(Position::new(4_000).unwrap(), source).unwrap();
        raw.send(&message(xid, &lists, &rpc(xid, ECHO, &echo_head(100))), None);
    }
    crowd.run_for(40 * MOMENT);
    assert_eq!(crowd.received(), [24]);
    assert!(crowd.peers[0].ended.is_none() && crowd.shard.snapshot().engine.limits.send_queue > 0);
    assert_eq!((crowd.shard.calls_in_progress(), crowd.shard.buffers_in_use()), ((0, 0), 0));
}

/// Takes a large buffer for each call, and keeps it.
#[derive(Default)]
struct Taker(Vec<Buf>);

impl App for Taker {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.0.extend(cx.take(LARGE));
        cx.refuse(&call, Accepted::SystemErr);
    }
}

#[test]
fn calls_of_a_newcomer_leave_the_last_quarter_whatever_their_form() {
    for has_write in [false, true] {
        let config = Config { slots: [512, 0, 16], ..config() };
        let mut crowd = Crowd::new(Taker::default(), LIMITS, config, 1);
        for xid in 0..16 {
            let raw = &mut crowd.peers[0];
            let mut lists = ChunkLists::new();
            if has_write {
                lists.begin_write().unwrap();
                lists.push_write(raw.window(&[0; 100], Access::RemoteWrite)).unwrap();
            }
            raw.send(&message(xid, &lists, &rpc(xid, ECHO, &echo_head(0))), None);
            crowd.run_for(MOMENT);
        }
        assert_eq!((crowd.received(), crowd.shard.app().0.len()), (vec![16], 12));
        let for_us = crowd
            .shard
            .with_app(|_, cx| std::iter::from_fn(|| cx.take(LARGE)).collect::<Vec<_>>().len());
        assert_eq!(for_us, 4, "the app itself has all");
    }
}

/// A client that ends its server when a call of it times out.
#[derive(Default)]
struct GivesUp {
    ups: u32,
    downs: u32,
    timeouts: u32,
}

impl App for GivesUp {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, _: &mut Cx<'_>, _: Call<'_>) {}

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        assert_eq!(outcome.reply, Err(CallFault::TimedOut));
        self.timeouts += 1;
        cx.disconnect(outcome.peer);
    }

    fn on_peer_up(&mut self, _: &mut Cx<'_>, _: PeerId) {
        self.ups += 1;
    }

    fn on_peer_down(&mut self, _: &mut Cx<'_>, _: PeerId, _: Cause) {
        self.downs += 1;
    }
}

#[test]
fn an_app_that_ends_a_peer_when_a_call_times_out_is_obeyed() {
    let fabric = Fabric::new(8, Faults::NONE);
    let mut raw = Raw::new(&fabric);
    let port = raw.end.listen(&Port(0)).unwrap();
    let end = fabric.end("client", LIMITS);
    let mut shard = Shard::new(end, GivesUp::default(), config(), Box::new(|_| true)).unwrap();
    let peer = shard.keep_connected(&port).unwrap();
    let mut now = Time(0);
    let mut wait = |shard: &mut Shard<Sim, GivesUp>, time: Duration| {
        now = now + time;
        for _ in 0..10_000 {
            let worked = shard.pass(now) | raw.poll(now);
            match fabric.next_due() {
                _ if worked => {}
                Some(due) => now = due.max(now),
                None => return,
            }
        }
        panic!("the fabric never comes to rest");
    };
    wait(&mut shard, MOMENT);
    assert!(shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), None)));
    for seconds in [1, 11, 60, 60] {
        wait(&mut shard, Duration::from_secs(seconds));
    }
    let GivesUp { ups, downs, timeouts } = *shard.app();
    assert_eq!((ups, downs, timeouts), (1, 1, 1), "it is not connected again");
    assert_eq!((shard.snapshot().engine.connections.live, shard.receives_promised()), (0, 0));
    assert_eq!((shard.calls_in_progress(), shard.buffers_in_use()), ((0, 0), 0));
}
