//! A server on the software RNIC under pressure: dead connections, commands during sleep, and a
//! peer that allows no Reads.

use stag_echo::{Caller, Done, Echo};
use stag_engine::{CallFault, Command, Config, Shard, Token, clock::Clock};
use stag_iwarp::{Iwarp, IwarpAddress};
use stag_verbs::Limits;
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const LIMITS: Limits =
    Limits { connections: 4, send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

fn rnic(clock: &Clock, ird: u16) -> Iwarp {
    Iwarp::new(stag_iwarp::IwarpConfig {
        ird,
        ..stag_iwarp::IwarpConfig::new(LIMITS, [7; 32], clock.now())
    })
    .unwrap()
}

/// A server and our requester in one thread.
struct Pair {
    clock: Clock,
    server: Shard<Iwarp, Echo>,
    client: Shard<Iwarp, Caller>,
    at: IwarpAddress,
}

impl Pair {
    /// The client lets its peer have `ird` Reads at a time.
    fn new(ird: u16) -> Self {
        let clock = Clock::start();
        let admit = || Box::new(|_| true) as Box<_>;
        let mut server =
            Shard::new(rnic(&clock, 32), Echo::default(), Config::small(), admit()).unwrap();
        let client =
            Shard::new(rnic(&clock, ird), Caller::default(), Config::small(), admit()).unwrap();
        let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
        Self { clock, server, client, at }
    }

    fn pass(&mut self) {
        if !(self.server.pass(self.clock.now()) | self.client.pass(self.clock.now())) {
            std::thread::yield_now();
        }
    }

    fn outcome(&mut self) -> Done {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(done) = self.client.with_app(|app, _| app.take()) {
                return done;
            }
            assert!(Instant::now() < until, "every call has an outcome");
            self.pass();
        }
    }
}

#[test]
fn more_dead_connections_than_places_leave_a_server_that_serves() {
    let mut pair = Pair::new(32);
    let mut dead = Vec::new();
    let mut answered = 0;
    for _ in 0..4 * LIMITS.connections {
        let mut socket = TcpStream::connect(pair.at.0).unwrap();
        socket.set_nonblocking(true).unwrap();
        // An MPA Request, revision 1, with CRCs (RFC 5044 §7.1.1).
        socket.write_all(b"MPA ID Req Frame\x40\x01\x00\x00").unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        let mut reply = [0; 512];
        let mut len = 0;
        while len == 0 && Instant::now() < until {
            pair.pass();
            len = socket.read(&mut reply).unwrap_or(0);
        }
        answered += usize::from(len > 0);
        // An FPDU whose CRC is wrong: the connection is dead, and lingers until it is closed here.
        let bad = [0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4];
        let _ = socket.write_all(&bad);
        (0..20).for_each(|_| pair.pass());
        dead.push(socket);
    }
    assert!(answered > LIMITS.connections, "{answered} connections stood");
    let peer = pair.client.keep_connected(&pair.at.clone()).unwrap();
    assert!(pair.client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(&[7; 9_000]))));
    assert_eq!(pair.outcome().echo.unwrap().unwrap()[..], [7; 9_000]);
    drop(dead);
}

#[test]
fn calls_whose_chunks_may_not_be_read_are_refused_and_the_connection_lives() {
    let mut pair = Pair::new(0);
    let peer = pair.client.connect(&pair.at.clone()).unwrap();
    // More of them than the Reads that one peer may have in flight.
    for token in 0..100 {
        assert!(pair.client.with_app(|_, cx| Caller::call(
            cx,
            peer,
            Token(token),
            Some(&[7; 9_000])
        )));
        let done = pair.outcome();
        assert!(matches!(done.echo, Err(CallFault::Refused(_))), "{token}: {done:?}");
    }
    assert!(pair.client.with_app(|_, cx| Caller::call(cx, peer, Token(100), Some(&[7; 900]))));
    assert_eq!(pair.outcome().echo.unwrap().unwrap()[..], [7; 900], "what comes inline is served");
    assert_eq!((pair.server.buffers_in_use(), pair.server.calls_in_progress()), (0, (0, 0)));
}

#[test]
fn a_server_that_was_told_something_sleeps_again() {
    let (control, handle) = stag_engine::control::pair().unwrap();
    let server = std::thread::spawn(move || {
        let clock = Clock::start();
        let admit = Box::new(|_| true);
        let mut shard =
            Shard::new(rnic(&clock, 32), Echo::default(), Config::small(), admit).unwrap();
        shard.run(&control, || clock.now()).unwrap();
    });
    let sleeps = || {
        let question = handle.ask(Command::Snapshot);
        question.answer(Duration::from_secs(20)).expect("the server runs").engine.passes.sleeps
    };
    let begun = Instant::now();
    let before = sleeps();
    let mut commands = 1;
    for gap in 0..50 {
        // While it sleeps, while it spins, and in between.
        handle.tell(Command::Look);
        let told_at = Instant::now();
        while told_at.elapsed() < Duration::from_micros(gap * 5) {
            std::hint::spin_loop();
        }
        handle.tell(Command::Look);
        std::thread::sleep(Duration::from_millis(5));
        commands += 2;
    }
    let slept = sleeps() - before;
    // A wake-up that stayed pending would end a sleep every 100 µs; each command ends two at most,
    // and so does each second.
    let most = 2 * commands + 2 * begun.elapsed().as_secs() + 4;
    assert!(slept <= most, "{slept} sleeps for {commands} commands");
    handle.tell(Command::Stop);
    server.join().unwrap();
}
