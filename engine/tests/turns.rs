//! Shares of a core in time: expensive calls, next to fifteen clients whose calls cost little. The
//! core's time is virtual, and each call takes as much of it as its procedure number says.

use crate::support::{
    Raw,
    attacks::{CLIENTS, GRANT, Make, Sender, Sends, server_config, server_limits},
    message, rpc,
};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use stag_engine::{
    App, Call, Command, Config, Cx, Handle, Meter, PeerAddress, PeerId, RemoteCaller, Shard, Spin,
    TurnHolder, clock::Clock, control, stats::Snapshot,
};
use stag_protocol::{
    rpc::{Accepted, record::Fragment},
    rpcrdma::ChunkLists,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::Time;
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Virtual time that is measured.
const MEASURED: u64 = 100_000_000;
/// Nanoseconds of the server's core for each event, beyond the cost of the call.
const EVENT: u64 = 500;
const ONE_WAY: Faults =
    Faults { delay: 10_000..10_001, completion_delay: 100..101, ..Faults::NONE };

/// The core's time.
#[derive(Debug, Default)]
struct VirtualCore(AtomicU64);

impl VirtualCore {
    fn spend(&self, nanoseconds: u64) {
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Meter for VirtualCore {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

/// Answers every call after as many microseconds as its procedure says.
struct Costly {
    spend: Box<dyn Fn(u64) + Send>,
    served: HashMap<IpAddr, u64>,
    /// Microseconds that each connection takes.
    of_connection: u64,
    connections: u64,
}

impl App for Costly {
    type Report = ();

    fn report(&self) {}

    fn on_peer_up(&mut self, _: &mut Cx<'_>, _: PeerId) {
        (self.spend)(self.of_connection * 1_000);
        self.connections += 1;
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        (self.spend)(u64::from(call.header.procedure) * 1_000);
        if let PeerAddress::Ip(from) = call.from {
            *self.served.entry(from.ip()).or_default() += 1;
        }
        cx.answer_short(call.id, call.header.reply(Accepted::Success), |_| Ok(())).unwrap();
    }
}

fn costly(time: &Arc<VirtualCore>) -> Costly {
    let time = Arc::clone(time);
    let spend = Box::new(move |nanoseconds| time.spend(nanoseconds));
    Costly { spend, served: HashMap::new(), of_connection: 0, connections: 0 }
}

fn of_cost<const MICROS: u32>(xid: u32) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &rpc(xid, MICROS, &[]))
}

/// Calls of the clients in the measured time, next to a sender of other calls if there is one.
fn measure(other: Option<Make>, has_meter: bool) -> (u64, u64) {
    let (fabric, time) = (Fabric::new(5, ONE_WAY), Arc::new(VirtualCore::default()));
    let meter = has_meter.then(|| Arc::clone(&time) as Arc<dyn Meter>);
    let config = Config { meter, ..server_config() };
    let end = fabric.end("server", server_limits());
    let mut server = Shard::new(end, costly(&time), config, Box::new(|_| true)).unwrap();
    let port = server.listen(&Port(0)).unwrap();
    let sends = |make: Make| -> Sends { (make, GRANT, u64::MAX) };
    let clients = [sends(of_cost::<2>); CLIENTS];
    let senders = clients.into_iter().chain(other.map(sends));
    let mut senders: Vec<Sender<Sim>> =
        senders.map(|sends| Sender::new(Raw::new(&fabric), port, sends)).collect();
    let answered = |senders: &[Sender<Sim>]| -> u64 {
        senders[..CLIENTS].iter().map(|sender| sender.answered).sum()
    };
    let mut before = None;
    while time.now().0 < MEASURED * 5 / 4 {
        if before.is_none() && time.now().0 >= MEASURED / 4 {
            before = Some(answered(&senders));
        }
        let mut worked = server.pass(time.now());
        for sender in &mut senders {
            worked |= sender.turn(time.now());
        }
        if worked {
            time.spend(EVENT);
        } else {
            let due = fabric.next_due().map_or(u64::MAX, |due| due.0);
            time.spend(due.saturating_sub(time.now().0).clamp(1, 10_000));
        }
    }
    assert!(senders.iter().all(|sender| sender.connections == 1), "no connection is lost");
    (answered(&senders) - before.unwrap_or(0), senders.last().unwrap().answered)
}

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_whatever_the_calls_of_another_cost() {
    let (alone, _) = measure(None, true);
    let share = alone as f64 * CLIENTS as f64 / (CLIENTS + 1) as f64;
    let others: [(&str, Make); 4] = [
        ("2 µs", of_cost::<2>),
        ("20 µs", of_cost::<20>),
        ("200 µs", of_cost::<200>),
        ("5 ms", of_cost::<5_000>),
    ];
    let ratios: Vec<_> = others
        .iter()
        .map(|(cost, make)| {
            let (calls, answers) = measure(Some(*make), true);
            assert!(answers > 0, "{cost}: the other one is served, too: {answers}");
            let ratio = calls as f64 / share;
            println!("calls of {cost}: the clients keep {ratio:.3} of their share; {answers}");
            ratio
        })
        .collect();
    assert!(ratios.iter().all(|ratio| (0.9..1.1).contains(ratio)), "{ratios:?}");
    // Shares counted in messages are no shares of the core.
    let (calls, _) = measure(Some(of_cost::<5_000>), false);
    assert!((calls as f64) < share / 4.0, "{calls} of {share}");
}

/// A caller over TCP from 127.0.0.`last`.
fn caller(to: SocketAddr, last: u8) -> TcpStream {
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &from).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// Records of `count` calls, each of which costs `micros`.
fn records(count: u32, micros: u32) -> Vec<u8> {
    let record = |xid| {
        let call = rpc(xid, micros, &[]);
        [&Fragment::new(call.len() as u32, true).unwrap().emit()[..], &call].concat()
    };
    (1..=count).flat_map(record).collect()
}

/// Octets of the reply to a call, with its record mark.
const REPLY_LEN: usize = 28;

fn await_replies(socket: &mut TcpStream, count: u32) {
    socket.set_nonblocking(false).unwrap();
    // Only a shard that has forgotten the connection takes so long.
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    socket.read_exact(&mut vec![0; count as usize * REPLY_LEN]).unwrap();
}

fn over_tcp(time: &Arc<VirtualCore>) -> (Shard<Sim, Costly>, SocketAddr) {
    let config = Config {
        meter: Some(Arc::clone(time) as Arc<dyn Meter>),
        streams: 16,
        slots: [1_024, 16, 16],
        ..Config::small()
    };
    let end = Fabric::new(1, Faults::NONE).end("server", server_limits());
    let mut shard = Shard::new(end, costly(time), config, Box::new(|_| true)).unwrap();
    let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    (shard, at)
}

fn served(shard: &Shard<Sim, Costly>, last: u8) -> u64 {
    let from = IpAddr::from([127, 0, 0, last]);
    shard.app().served.get(&from).copied().unwrap_or(0)
}

/// Passes until `done`, each of which takes a microsecond; next to nothing if it finds nothing, for
/// the system delivers data when it likes.
fn pass_until(
    shard: &mut Shard<Sim, Costly>,
    time: &VirtualCore,
    done: impl Fn(&Shard<Sim, Costly>) -> bool,
) {
    for _ in 0..10_000_000 {
        if done(shard) {
            return;
        }
        let worked = shard.pass(time.now());
        time.spend(if worked { 1_000 } else { 20 });
    }
    panic!("what came over TCP is forgotten: {:?}", shard.app().served);
}

#[test]
fn over_tcp_a_connection_whose_turn_was_put_off_goes_on_without_anything_new_from_its_socket() {
    let time = Arc::new(VirtualCore::default());
    let (mut shard, at) = over_tcp(&time);
    let mut costly = caller(at, 9);
    let mut clients = [2, 3, 4].map(|last| caller(at, last));
    // Two hosts have work, so that calls are measured.
    clients.iter_mut().for_each(|client| client.write_all(&records(1, 1)).unwrap());
    pass_until(&mut shard, &time, |shard| [2, 3, 4].iter().all(|last| served(shard, *last) == 1));
    // All have sent everything before anything is served.
    costly.write_all(&records(100, 500)).unwrap();
    clients.iter_mut().for_each(|client| client.write_all(&records(100, 100)).unwrap());
    pass_until(&mut shard, &time, |shard| [2, 3, 4].iter().all(|last| served(shard, *last) == 101));
    // Each had 10 ms: twenty of its calls, what a turn may be ahead, and the calls of one read if
    // its data arrives alone.
    let ahead = served(&shard, 9);
    assert!((15..=40).contains(&ahead), "{ahead} calls were served meanwhile");
    pass_until(&mut shard, &time, |shard| served(shard, 9) == 100);
    shard.pass(time.now());
    await_replies(&mut costly, 100);
    clients.iter_mut().for_each(|client| await_replies(client, 101));
}

#[test]
fn a_host_has_one_share_however_many_connections_it_makes() {
    let time = Arc::new(VirtualCore::default());
    let (mut shard, at) = over_tcp(&time);
    let mut many = [9; 5].map(|last| caller(at, last));
    let mut one = caller(at, 2);
    one.write_all(&records(1, 1)).unwrap();
    many.iter_mut().for_each(|socket| socket.write_all(&records(1, 1)).unwrap());
    pass_until(&mut shard, &time, |shard| served(shard, 2) == 1 && served(shard, 9) == 5);
    many.iter_mut().for_each(|socket| socket.write_all(&records(100, 100)).unwrap());
    one.write_all(&records(100, 100)).unwrap();
    pass_until(&mut shard, &time, |shard| served(shard, 2) == 101);
    // With five shares it would be 500. The calls of all five may arrive before those of the one.
    let of_many = served(&shard, 9);
    assert!((80..=200).contains(&of_many), "{of_many}");
    pass_until(&mut shard, &time, |shard| served(shard, 9) == 505);
}

#[test]
fn a_client_that_goes_away_while_it_waits_for_its_turn_holds_no_other_client_up() {
    let time = Arc::new(VirtualCore::default());
    let (mut shard, at) = over_tcp(&time);
    let mut costly = caller(at, 9);
    let mut one = caller(at, 2);
    costly.write_all(&records(100, 5_000)).unwrap();
    one.write_all(&records(100, 10)).unwrap();
    pass_until(&mut shard, &time, |shard| served(shard, 9) > 0);
    drop(costly);
    pass_until(&mut shard, &time, |shard| served(shard, 2) == 100);
    await_replies(&mut one, 100);
    let mut next = caller(at, 9);
    next.write_all(&records(10, 10)).unwrap();
    let before = served(&shard, 9);
    pass_until(&mut shard, &time, |shard| served(shard, 9) >= before + 10);
}

/// A server on a thread of its own, by the clock of the host.
struct Threaded {
    at: SocketAddr,
    handle: Handle<Snapshot<()>>,
    /// Returns the number of calls that it served.
    thread: JoinHandle<u64>,
}

fn threaded() -> Threaded {
    let clock = Clock::start();
    let spend = move |nanoseconds: u64| {
        let from = clock.now();
        while clock.now().0 < from.0 + nanoseconds {
            std::hint::spin_loop();
        }
    };
    let spend = Box::new(spend);
    let app = Costly { spend, served: HashMap::new(), of_connection: 0, connections: 0 };
    let config = Config {
        meter: Some(Arc::new(clock)),
        spin: Spin::For(Duration::ZERO),
        streams: 16,
        ..Config::small()
    };
    let (control, handle) = control::pair().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let end = Fabric::new(1, Faults::NONE).end("server", server_limits());
        let mut shard = Shard::new(end, app, config, Box::new(|_| true)).unwrap();
        tell.send(shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap()).unwrap();
        shard.run(&control, move || clock.now()).unwrap();
        shard.app().served.values().sum()
    });
    Threaded { at: told.recv().unwrap(), handle, thread }
}

/// A call that is served after the last reply was sent has an effect that its client never learns
/// of, and that its repetition meets.
#[test]
fn a_server_that_stops_serves_no_call_that_it_has_read_and_put_off() {
    for calls in [20, 100] {
        let Threaded { at, handle, thread } = threaded();
        let mut client = caller(at, 9);
        // Few of them are served in a pass; the rest of the octets is kept.
        client.write_all(&records(calls, 1_000)).unwrap();
        await_replies(&mut client, 1);
        handle.tell(Command::Stop);
        let mut replies = Vec::new();
        client.read_to_end(&mut replies).unwrap();
        drop(client);
        assert_eq!(replies.len() % REPLY_LEN, 0, "the last reply is whole");
        assert_eq!(thread.join().unwrap(), 1 + (replies.len() / REPLY_LEN) as u64);
    }
}

#[test]
fn a_shard_that_sleeps_when_it_is_idle_goes_on_with_whatever_it_has_put_off() {
    let Threaded { at, handle, thread } = threaded();
    let mut costly = caller(at, 9);
    let mut clients = [2, 3].map(|last| caller(at, last));
    for _ in 0..20 {
        costly.write_all(&records(40, 150)).unwrap();
        clients.iter_mut().for_each(|client| client.write_all(&records(40, 3)).unwrap());
        clients.iter_mut().for_each(|client| await_replies(client, 40));
        await_replies(&mut costly, 40);
    }
    handle.tell(Command::Stop);
    thread.join().unwrap();
}

#[test]
fn one_host_alone_lets_others_in_after_a_few_of_its_calls() {
    let time = Arc::new(VirtualCore::default());
    let (mut shard, at) = over_tcp(&time);
    let mut costly = caller(at, 9);
    costly.write_all(&records(100, 500)).unwrap();
    pass_until(&mut shard, &time, |shard| served(shard, 9) > 0);
    let at_once = served(&shard, 9);
    assert!(at_once < 20, "{at_once} calls of one read are carried out in a pass");
    let mut one = caller(at, 2);
    one.write_all(&records(10, 10)).unwrap();
    pass_until(&mut shard, &time, |shard| served(shard, 2) == 10);
    assert!(served(&shard, 9) < 60, "{}", served(&shard, 9));
    pass_until(&mut shard, &time, |shard| served(shard, 9) == 100);
}

#[test]
fn connections_that_come_and_go_have_the_share_of_one_host_together() {
    let time = Arc::new(VirtualCore::default());
    let (mut shard, at) = over_tcp(&time);
    let mut clients = [2, 3, 4].map(|last| caller(at, last));
    clients.iter_mut().for_each(|client| client.write_all(&records(1, 1)).unwrap());
    pass_until(&mut shard, &time, |shard| [2, 3, 4].iter().all(|last| served(shard, *last) == 1));
    shard.with_app(|app, _| app.of_connection = 500);
    let others: Vec<_> = (0..12).map(|_| caller(at, 9)).collect();
    let before = shard.app().connections;
    clients.iter_mut().for_each(|client| client.write_all(&records(100, 10)).unwrap());
    pass_until(&mut shard, &time, |shard| [2, 3, 4].iter().all(|last| served(shard, *last) == 101));
    // Each client had a millisecond. Connections may arrive before the first of the calls.
    let made = shard.app().connections - before;
    assert!(made <= 6, "{made} connections were taken meanwhile");
    pass_until(&mut shard, &time, |shard| shard.app().connections == before + 12);
    drop(others);
    clients.iter_mut().for_each(|client| client.write_all(&records(100, 10)).unwrap());
    pass_until(&mut shard, &time, |shard| [2, 3, 4].iter().all(|last| served(shard, *last) == 201));
}

/// Carries out calls that arrived at other shards: of each host, its address' last octet, and the
/// cost of its calls in microseconds.
struct OfOthers {
    time: Arc<VirtualCore>,
    waiting: Vec<(u8, u64)>,
    served: HashMap<u8, u64>,
}

impl App for OfOthers {
    type Report = ();

    fn report(&self) {}

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        for (last, micros) in std::mem::take(&mut self.waiting) {
            let from = PeerAddress::Ip(SocketAddr::from(([127, 0, 0, last], 1_000)));
            // Two connections of a host have one account.
            let peer = PeerId::from_bits(self.served.len() as u64 % 2);
            let holder = TurnHolder::Elsewhere(RemoteCaller { from, shard: 1, peer });
            if cx.take_turn(holder) {
                self.time.spend(micros * 1_000);
                *self.served.entry(last).or_default() += 1;
                cx.end_turn(holder);
            } else {
                self.waiting.push((last, micros));
            }
        }
    }
}

#[test]
fn calls_of_other_shards_are_charged_to_the_hosts_that_they_came_from() {
    // More hosts than have accounts of their own.
    for others in [1, 100] {
        let time = Arc::new(VirtualCore::default());
        let config = Config { meter: Some(Arc::clone(&time) as Arc<dyn Meter>), ..Config::small() };
        let costly = std::iter::repeat_n((1, 500), 1_000);
        let cheap = (0..100).flat_map(|_| (2..2 + others).map(|last| (last, 50)));
        let waiting = costly.chain(cheap).collect();
        let app = OfOthers { time: Arc::clone(&time), waiting, served: HashMap::new() };
        let end = Fabric::new(1, Faults::NONE).end("server", server_limits());
        let mut shard = Shard::new(end, app, config, Box::new(|_| true)).unwrap();
        let is_over = |app: &OfOthers| app.waiting.iter().all(|(last, _)| *last == 1);
        for _ in 0..1_000_000 {
            if is_over(shard.app()) {
                break;
            }
            shard.pass(time.now());
            time.spend(100);
        }
        assert!(is_over(shard.app()), "{:?}", shard.app().served);
        // As many times as the calls of one other host cost, and what a turn may be ahead.
        let of_costly = shard.app().served[&1];
        println!("next to {others}: {of_costly}");
        assert!((5..=60).contains(&of_costly), "next to {others}: {of_costly}");
        while !shard.app().waiting.is_empty() {
            shard.pass(time.now());
            time.spend(100);
        }
        assert_eq!(shard.app().served[&1], 1_000);
    }
}
