//! Ten thousand silent connections: earlier connections keep their service, and new ones get in.

use stag_echo::{Caller, Echo};
use stag_engine::{
    Config, PeerId, Shard, Token,
    clock::Clock,
    control::{Command, Handle, pair},
    stats::Snapshot,
};
use stag_iwarp::{Iwarp, IwarpAddress};
use stag_verbs::Limits;
use std::{
    fs,
    io::Write,
    net::TcpStream,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

const LIMITS: Limits =
    Limits { connections: 64, send_queue: 256, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const FLOOD: usize = 10_000;
/// One connection of the flood in this many sends an MPA Request and then nothing.
const BEGINNERS: usize = 100;
/// Time that one call, and everything together, may take. Only a hang takes that long, and ends by
/// it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A shard in a thread of its own, which sleeps when there is nothing to do.
struct Server {
    at: IwarpAddress,
    handle: Handle<Snapshot<u64>>,
    thread: thread::JoinHandle<stag_iwarp::IwarpStats>,
}

impl Server {
    fn start(clock: Clock) -> Self {
        let (control, handle) = pair().unwrap();
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            let fabric = stag_iwarp::IwarpConfig::new(LIMITS, [1; 32], clock.now());
            let config = Config { peers: 128, ..Config::small() };
            let fabric = Iwarp::new(fabric).unwrap();
            let mut shard =
                Shard::new(fabric, Echo::default(), config, Box::new(|_| true)).unwrap();
            sender.send(shard.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap()).unwrap();
            shard.run(&control, move || clock.now()).unwrap();
            *shard.provider().stats()
        });
        Self { at: receiver.recv_timeout(PATIENCE).unwrap(), handle, thread }
    }

    fn stop(self) -> stag_iwarp::IwarpStats {
        self.handle.tell(Command::Stop);
        self.thread.join().unwrap()
    }
}

struct Client {
    shard: Shard<Iwarp, Caller>,
    peer: PeerId,
    clock: Clock,
    calls: u64,
}

impl Client {
    fn connect(at: IwarpAddress, clock: Clock) -> Self {
        let fabric =
            Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [2; 32], clock.now())).unwrap();
        let config = Config { calls_max: 8, ..Config::small() };
        let mut shard =
            Shard::new(fabric, Caller::with_capacity(8), config, Box::new(|_| true)).unwrap();
        let peer = shard.connect(&at).unwrap();
        Self { shard, peer, clock, calls: 0 }
    }

    /// One call with its echo, which has to be right.
    fn call(&mut self) {
        let octets = [self.calls as u8; 700];
        let (peer, token) = (self.peer, Token(self.calls));
        assert!(self.shard.with_app(|_, cx| Caller::call(cx, peer, token, Some(&octets))));
        let started = Instant::now();
        loop {
            if !self.shard.pass(self.clock.now()) {
                thread::yield_now();
            }
            if let Some(done) = self.shard.with_app(|app, _| app.take()) {
                assert_eq!(done.token, token);
                let echo =
                    done.echo.expect("every call of a client that was there before succeeds");
                assert_eq!(echo.unwrap()[..], octets);
                self.calls += 1;
                return;
            }
            assert!(started.elapsed() < PATIENCE, "call {token:?} has no reply");
        }
    }

    /// Calls for as long as `goes_on`; returns calls per second and the longest call.
    fn call_while(&mut self, mut goes_on: impl FnMut() -> bool) -> (f64, Duration) {
        let (started, before, mut longest) = (Instant::now(), self.calls, Duration::ZERO);
        while goes_on() {
            let called = Instant::now();
            self.call();
            longest = longest.max(called.elapsed());
        }
        ((self.calls - before) as f64 / started.elapsed().as_secs_f64(), longest)
    }

    fn call_for(&mut self, duration: Duration) -> (f64, Duration) {
        let until = Instant::now() + duration;
        self.call_while(|| Instant::now() < until)
    }
}

/// Descriptors this process may have.
fn descriptors() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX)
}

/// Revision 2, CRCs, IRD and ORD of one.
fn mpa_request() -> Vec<u8> {
    [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 4, 0, 1, 0, 1]].concat()
}

/// Opens silent connections, as many at a time as descriptors allow; returns the latest, still
/// open.
fn flood(at: IwarpAddress) -> Vec<TcpStream> {
    let wave = descriptors().saturating_sub(400).clamp(100, 1_000);
    let mut held = Vec::with_capacity(wave);
    for number in 0..FLOOD {
        if held.len() == wave {
            held.clear();
        }
        let mut stream = TcpStream::connect(at.0).unwrap();
        if number % BEGINNERS == 0 {
            // One that was shed at once cannot write.
            let _ = stream.write_all(&mpa_request());
        }
        held.push(stream);
        if number % 50 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }
    held
}

#[test]
fn a_flood_of_silent_connections_leaves_old_clients_their_service() {
    let started = Instant::now();
    let clock = Clock::start();
    let server = Server::start(clock);
    let mut client = Client::connect(server.at, clock);
    client.call();
    let before = client.call_for(Duration::from_millis(500));
    let at = server.at;
    let flooding = thread::spawn(move || flood(at));
    let during = client.call_while(|| !flooding.is_finished());
    let silent = flooding.join().unwrap();
    assert!(silent.len() > 64, "more than the places of half-open connections");
    let mut newcomer = Client::connect(at, clock);
    newcomer.call();
    let after = client.call_for(Duration::from_millis(500));
    for (when, (rate, longest)) in [("before", before), ("during", during), ("after", after)] {
        println!("{when:>6}: {rate:8.0} calls/s, the longest {longest:?}");
    }
    drop((client, newcomer, silent));
    let stats = server.stop();
    println!("{} accepted, {:?}, {:?} in all", stats.accepted, stats.handshakes, started.elapsed());
    // When the queue of its listener is full, the kernel forgets some.
    assert!(stats.accepted as usize > FLOOD * 9 / 10);
    assert!(stats.handshakes.displaced > 0, "the flood was one");
    assert!(started.elapsed() < PATIENCE);
}
