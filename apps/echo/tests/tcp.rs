//! Echo calls over TCP: record marking, many calls at once, peers that misbehave.

use stag_echo::{Caller, Done, ECHO, Echo, NULL, PROGRAM, VERSION};
use stag_engine::{CallFault, Config, Shard, Token};
use stag_protocol::{
    rpc::{Accepted, Auth, CallHeader, Credential, Denied, Outcome, ReplyHeader, record::Fragment},
    rpcrdma::Xid,
    xdr::{Reader, Writer},
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::{Limits, Time};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits { read_spans: 64, windows: 512, ..stag_sim::LIMITS };

struct Server {
    shard: Shard<Sim, Echo>,
    /// The shard's time, which advances in its passes alone: a busy host ends no connection.
    time: Duration,
    at: std::net::SocketAddr,
}

impl Server {
    fn new() -> Self {
        Self::admitting(|_| true)
    }

    fn admitting(admission: impl Fn(stag_verbs::PeerAddress) -> bool + 'static) -> Self {
        let end = Fabric::new(1, Faults::NONE).end("server", LIMITS);
        let mut shard =
            Shard::new(end, Echo::default(), Config::small(), Box::new(admission)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { shard, time: Duration::ZERO, at }
    }

    fn now(&self) -> Time {
        Time(self.time.as_nanos() as u64)
    }

    fn pass(&mut self) {
        self.time += Duration::from_micros(1);
        let now = self.now();
        if !self.shard.pass(now) {
            std::thread::yield_now();
        }
    }

    /// Lets time go by in which nothing arrives.
    fn skip(&mut self, seconds: u64) {
        self.time += Duration::from_secs(seconds);
        (0..10).for_each(|_| self.pass());
    }

    /// Writes until neither the socket nor the server takes more; returns how much that was.
    fn fill(&mut self, socket: &mut TcpStream, record: &[u8]) -> usize {
        let (mut written, mut refused) = (0, 0);
        while refused < 2_000 {
            match socket.write(&record[written % record.len()..]) {
                Ok(len) => (written, refused) = (written + len, 0),
                Err(_) => refused += 1,
            }
            self.pass();
        }
        written
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.at).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// Writes everything and reads whole records until `count` came, or until the server closes.
    fn exchange(
        &mut self,
        socket: &mut TcpStream,
        mut octets: &[u8],
        count: usize,
    ) -> Vec<Vec<u8>> {
        let (mut records, mut input) = (Vec::new(), Vec::new());
        let until = Instant::now() + Duration::from_secs(10);
        let mut staging = vec![0; 1 << 16];
        while records.len() < count {
            assert!(
                Instant::now() < until,
                "{} of {count} records came in ten seconds",
                records.len()
            );
            if !octets.is_empty() {
                match socket.write(octets) {
                    Ok(sent) => octets = &octets[sent..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return records,
                }
            }
            self.pass();
            match socket.read(&mut staging) {
                Ok(0) => return records,
                Ok(len) => input.extend_from_slice(&staging[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return records,
            }
            while let Some(mark) = input.first_chunk::<4>() {
                let fragment = Fragment::parse(*mark);
                let end = 4 + fragment.octets() as usize;
                if input.len() < end {
                    break;
                }
                assert!(fragment.last, "we send records of one fragment");
                records.push(input[4..end].to_vec());
                input.drain(..end);
            }
        }
        records
    }
}

fn call(xid: u32, procedure: u32, octets: Option<&[u8]>) -> Vec<u8> {
    let header = CallHeader {
        xid: Xid(xid),
        program: PROGRAM,
        version: VERSION,
        procedure,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let mut out = vec![0; 64 + octets.map_or(0, |octets| octets.len() + 8)];
    let mut writer = Writer::new(&mut out);
    header.emit(&mut writer).unwrap();
    octets.into_iter().for_each(|octets| writer.opaque(octets).unwrap());
    let len = writer.len();
    out.truncate(len);
    out
}

fn marked(record: &[u8]) -> Vec<u8> {
    let mut out = Fragment::new(record.len() as u32, true).unwrap().emit().to_vec();
    out.extend_from_slice(record);
    out
}

fn outcome(reply: &[u8]) -> (u32, Outcome<'_>) {
    let header = ReplyHeader::parse(&mut Reader::new(reply)).unwrap();
    (header.xid.0, header.outcome)
}

fn echo_of(reply: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(reply);
    ReplyHeader::parse(&mut reader).unwrap();
    let octets = reader.opaque(1 << 20).unwrap().to_vec();
    reader.finish().unwrap();
    octets
}

#[test]
fn echoes_of_every_size_come_back_over_tcp() {
    let mut server = Server::new();
    let mut socket = server.connect();
    for len in [0, 1, 3, 4, 5, 4095, 4096, 65535, 65536, 65537, 262_144, 300_001, 1 << 20] {
        let octets: Vec<u8> = (0..len).map(|i: usize| (i * 7) as u8).collect();
        let replies = server.exchange(&mut socket, &marked(&call(9, ECHO, Some(&octets))), 1);
        assert!(echo_of(&replies[0]) == octets, "{len} octets");
    }
    assert_eq!(server.shard.buffers_in_use(), 0);
}

#[test]
fn many_calls_in_one_segment_are_answered_in_order_by_few_system_calls() {
    let mut server = Server::new();
    let mut socket = server.connect();
    let octets: Vec<u8> = (0..500).flat_map(|xid| marked(&call(xid, NULL, None))).collect();
    let replies = server.exchange(&mut socket, &octets, 500);
    let xids: Vec<_> = replies.iter().map(|reply| outcome(reply).0).collect();
    assert_eq!(xids, (0..500).collect::<Vec<_>>());
    let stats = server.shard.snapshot().engine.stream;
    assert!(stats.sends <= 20, "500 replies left in {} sends", stats.sends);
}

#[test]
fn a_record_may_come_in_any_fragments_and_portions() {
    let mut server = Server::new();
    let mut socket = server.connect();
    let record = call(5, ECHO, Some(b"fragments"));
    let mut octets = Vec::new();
    for (i, part) in record.chunks(7).enumerate() {
        let last = (i + 1) * 7 >= record.len();
        octets.extend(Fragment::new(part.len() as u32, last).unwrap().emit());
        octets.extend_from_slice(part);
    }
    let replies = server.exchange(&mut socket, &octets, 1);
    assert_eq!(echo_of(&replies[0]), b"fragments");
    for (i, octet) in octets.iter().enumerate() {
        let wanted = usize::from(i + 1 == octets.len());
        let replies = server.exchange(&mut socket, &[*octet], wanted);
        server.pass();
        assert_eq!(replies.len(), wanted);
        if wanted == 0 {
            socket.write_all(&[*octet]).unwrap();
        }
    }
}

#[test]
fn what_is_no_call_gets_the_answer_that_rpc_gives_or_the_end() {
    let mut server = Server::new();
    let mut socket = server.connect();
    let expect =
        |server: &mut Server, socket: &mut TcpStream, record: &[u8], wanted: Outcome<'_>| {
            let replies = server.exchange(socket, &marked(record), 1);
            assert_eq!(outcome(&replies[0]).1, wanted);
        };
    expect(&mut server, &mut socket, &call(1, 99, None), Outcome::accepted(Accepted::ProcUnavail));
    expect(
        &mut server,
        &mut socket,
        &call(1, ECHO, None),
        Outcome::accepted(Accepted::GarbageArgs),
    );
    let mut other_rpc = call(1, NULL, None);
    other_rpc[11] = 3;
    let mismatch = Outcome::Denied(Denied::RpcMismatch { low: 2, high: 2 });
    expect(&mut server, &mut socket, &other_rpc, mismatch);
    // A reply, a cut header, a record longer than the limit: the connection ends.
    let mut reply = call(1, NULL, None);
    reply[7] = 1;
    let too_long = Fragment::new(1 << 30, true).unwrap().emit().to_vec();
    for octets in [marked(&reply), marked(&[0; 7]), too_long] {
        let mut socket = server.connect();
        assert!(server.exchange(&mut socket, &octets, 1).is_empty());
    }
    assert_eq!(server.shard.snapshot().engine.connections.live, 1);
}

#[test]
fn a_caller_that_does_not_read_is_not_read_either() {
    let mut server = Server::new();
    let mut socket = server.connect();
    let octets = vec![7; 60_000];
    let record = marked(&call(3, ECHO, Some(&octets)));
    let mut written = 0;
    for _ in 0..20_000 {
        match socket.write(&record[written % record.len()..]) {
            Ok(len) => written += len,
            Err(_) => server.pass(),
        }
    }
    let held = server.shard.buffers_in_use();
    assert!(held < 300, "{held} buffers wait for a caller that does not read");
    // All of its calls are answered once it reads.
    let whole = written / record.len();
    let rest = &record[written % record.len()..];
    let replies = server.exchange(&mut socket, rest, whole + 1);
    assert!(replies.iter().all(|reply| outcome(reply).0 == 3));
    // Another caller is served meanwhile.
    let mut other = server.connect();
    assert_eq!(server.exchange(&mut other, &marked(&call(4, NULL, None)), 1).len(), 1);
    drop(socket);
    let until = Instant::now() + Duration::from_secs(5);
    while server.shard.buffers_in_use() > 0 {
        assert!(Instant::now() < until, "the buffers of a dead connection come back");
        server.pass();
    }
}

#[test]
fn a_caller_from_elsewhere_is_turned_away() {
    let mut server = Server::admitting(|_| false);
    let mut socket = server.connect();
    assert!(server.exchange(&mut socket, &marked(&call(1, NULL, None)), 1).is_empty());
    assert_eq!(server.shard.snapshot().engine.connections.refused, 1);
}

struct Client {
    shard: Shard<Sim, Caller>,
    server: Server,
}

impl Client {
    fn new(server: Server) -> Self {
        let end = Fabric::new(2, Faults::NONE).end("client", LIMITS);
        let shard =
            Shard::new(end, Caller::default(), Config::small(), Box::new(|_| true)).unwrap();
        Self { shard, server }
    }

    fn pass(&mut self) {
        self.server.pass();
        let now = self.server.now();
        self.shard.pass(now);
    }

    fn outcome(&mut self) -> Done {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(done) = self.shard.with_app(|app, _| app.take()) {
                return done;
            }
            assert!(Instant::now() < until, "every call has an outcome");
            self.pass();
        }
    }
}

#[test]
fn our_calls_over_tcp_come_back_in_every_size() {
    let mut client = Client::new(Server::new());
    let at = client.server.at;
    let peer = client.shard.connect_tcp(at).unwrap();
    for (token, len) in [0, 1, 3, 4, 4096, 65_537, 300_001, 1 << 20].into_iter().enumerate() {
        let octets: Vec<u8> = (0..len).map(|i: usize| (i * 11) as u8).collect();
        assert!(client.shard.with_app(|_, cx| Caller::call(
            cx,
            peer,
            Token(token as u64),
            Some(&octets)
        )));
        let done = client.outcome();
        assert_eq!(done.token, Token(token as u64));
        assert!(done.echo.unwrap().unwrap()[..] == octets, "{len} octets");
    }
    for token in 0..300 {
        assert!(client.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), None)));
        if token % 50 == 49 {
            for _ in 0..50 {
                client.outcome().echo.unwrap();
            }
        }
    }
    assert_eq!((client.shard.buffers_in_use(), client.server.shard.buffers_in_use()), (0, 0));
    client.shard.with_app(|_, cx| cx.disconnect(peer));
    while client.server.shard.snapshot().engine.connections.live > 0 {
        client.pass();
    }
    assert!(client.shard.app().peers().is_empty());
}

#[test]
fn a_tcp_server_that_is_not_there_or_goes_away_fails_its_calls() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut client = Client::new(Server::new());
    let peer = client.shard.connect_tcp(closed).unwrap();
    client.shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), None));
    assert!(matches!(client.outcome().echo, Err(CallFault::Disconnected(_))));
    // This one takes a call and never answers.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = client.shard.connect_tcp(deaf.local_addr().unwrap()).unwrap();
    client.shard.with_app(|_, cx| Caller::call(cx, peer, Token(2), Some(&[7; 5_000])));
    let (socket, _) = deaf.accept().unwrap();
    for _ in 0..100 {
        client.pass();
    }
    drop(socket);
    assert!(matches!(client.outcome().echo, Err(CallFault::Disconnected(_))));
    assert_eq!((client.shard.buffers_in_use(), client.shard.calls_in_progress()), (0, (0, 0)));
}

#[test]
fn a_caller_that_says_it_is_done_still_gets_its_replies() {
    let mut server = Server::new();
    let mut socket = server.connect();
    for xid in 0..20 {
        socket.write_all(&marked(&call(xid, ECHO, Some(&[1; 3_000])))).unwrap();
    }
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.exchange(&mut socket, &[], 20).len(), 20);
    assert!(server.exchange(&mut socket, &[], 1).is_empty(), "then the server closes");
    assert_eq!(server.shard.snapshot().engine.disconnects["closed by the peer"], 1);
}

#[test]
fn an_empty_last_fragment_ends_a_record_and_the_next_one_begins_behind_it() {
    let mut server = Server::new();
    let mut socket = server.connect();
    for xid in 0..3 {
        let record = call(xid, ECHO, Some(b"fragments"));
        let mut octets = Fragment::new(record.len() as u32, false).unwrap().emit().to_vec();
        octets.extend_from_slice(&record);
        octets.extend(Fragment::new(0, true).unwrap().emit());
        octets.extend(marked(&call(100 + xid, NULL, None)));
        let replies = server.exchange(&mut socket, &octets, 2);
        assert_eq!(
            replies.iter().map(|reply| outcome(reply).0).collect::<Vec<_>>(),
            [xid, 100 + xid]
        );
        assert_eq!(echo_of(&replies[0]), b"fragments");
    }
}

#[test]
fn callers_that_announce_much_and_send_little_hold_little() {
    let mut server = Server::new();
    let mut idle = Vec::new();
    for _ in 0..16 {
        let mut socket = server.connect();
        socket.write_all(&Fragment::new(1 << 20, true).unwrap().emit()).unwrap();
        socket.write_all(&[0]).unwrap();
        idle.push(socket);
    }
    let until = Instant::now() + Duration::from_secs(10);
    while server.shard.buffers_in_use() < 16 {
        assert!(Instant::now() < until, "each of them holds a buffer for its octet");
        server.pass();
    }
    let mut socket = server.connect();
    for len in [100_000, 1 << 20] {
        let octets = vec![1; len];
        let replies = server.exchange(&mut socket, &marked(&call(9, ECHO, Some(&octets))), 1);
        assert!(echo_of(&replies[0]) == octets, "{len} octets");
    }
}

#[test]
fn callers_that_do_not_read_leave_memory_for_those_that_do() {
    let mut server = Server::new();
    let record = marked(&call(3, ECHO, Some(&[7; 2_000])));
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut socket = server.connect();
        server.fill(&mut socket, &record);
        slow.push(socket);
    }
    assert_eq!(
        server.shard.snapshot().engine.connections.live,
        3,
        "there was memory for all of them"
    );
    let held = server.shard.buffers_in_use();
    assert!((1..=256).contains(&held), "their replies hold {held} of 544 buffers");
    let mut socket = server.connect();
    assert_eq!(server.exchange(&mut socket, &marked(&call(9, NULL, None)), 1).len(), 1);
    let replies = server.exchange(&mut socket, &record, 1);
    assert_eq!(echo_of(&replies[0]), [7; 2_000]);
}

#[test]
fn a_caller_that_takes_no_reply_for_thirty_seconds_is_disconnected() {
    let mut server = Server::new();
    let mut slow = server.connect();
    server.fill(&mut slow, &marked(&call(3, ECHO, Some(&[7; 2_000]))));
    let mut quiet = server.connect();
    assert_eq!(server.exchange(&mut quiet, &marked(&call(1, NULL, None)), 1).len(), 1);
    server.skip(29);
    let live = |server: &Server| server.shard.snapshot().engine.connections.live;
    assert_eq!(live(&server), 2, "it has its time");
    assert!(server.shard.buffers_in_use() > 0);
    server.skip(3);
    assert_eq!(live(&server), 1);
    assert_eq!(
        (server.shard.buffers_in_use(), server.shard.snapshot().engine.limits.stalled),
        (0, 1)
    );
    // A client that holds nothing may be silent for as long as it likes.
    server.skip(3_600);
    assert_eq!(server.exchange(&mut quiet, &marked(&call(2, NULL, None)), 1).len(), 1);
}

#[test]
fn a_caller_that_sends_half_a_record_is_disconnected_after_thirty_seconds() {
    let mut server = Server::new();
    let mut socket = server.connect();
    let record = marked(&call(3, ECHO, Some(&[7; 60_000])));
    assert!(server.exchange(&mut socket, &record[..30_000], 0).is_empty());
    socket.write_all(&record[..30_000]).unwrap();
    while server.shard.buffers_in_use() == 0 {
        server.pass();
    }
    server.skip(29);
    assert_eq!(server.shard.snapshot().engine.connections.live, 1, "it has its time");
    server.skip(3);
    assert_eq!(
        (server.shard.snapshot().engine.connections.live, server.shard.buffers_in_use()),
        (0, 0)
    );
}

#[test]
fn a_server_that_we_left_alone_for_an_hour_is_called_again() {
    let mut client = Client::new(Server::new());
    client.server.skip(3_600);
    let at = client.server.at;
    let peer = client.shard.connect_tcp(at).unwrap();
    for token in 0..3 {
        assert!(client.shard.with_app(|_, cx| Caller::call(
            cx,
            peer,
            Token(token),
            Some(&[7; 5_000])
        )));
        let done = client.outcome();
        assert_eq!((done.token, done.echo.unwrap().unwrap()[..].len()), (Token(token), 5_000));
        client.server.skip(3_600);
    }
    assert_eq!(client.shard.snapshot().engine.limits.stalled, 0);
}

#[test]
fn a_server_that_stops_sends_every_reply_of_what_it_carried_out() {
    let (control, handle) = stag_engine::control::pair().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let clock = stag_engine::clock::Clock::start();
        let end = Fabric::new(1, Faults::NONE).end("server", LIMITS);
        let mut shard =
            Shard::new(end, Echo::default(), Config::small(), Box::new(|_| true)).unwrap();
        tell.send(shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap()).unwrap();
        shard.run(&control, || clock.now()).unwrap();
        shard.snapshot().app
    });
    let mut socket = TcpStream::connect(told.recv().unwrap()).unwrap();
    let mut reader = socket.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let record = marked(&call(7, ECHO, Some(&vec![7; 1 << 20])));
        // The server stops amid these.
        while socket.write_all(&record).is_ok() {}
    });
    let carried_out = || {
        let question = handle.ask(stag_engine::Command::Snapshot);
        question.answer(Duration::from_secs(10)).expect("the server runs").app
    };
    while carried_out() < 4 {
        std::thread::yield_now();
    }
    handle.tell(stag_engine::Command::Stop);
    let mut replies = Vec::new();
    reader.read_to_end(&mut replies).expect("the end is said, not reset");
    let calls = server.join().unwrap();
    assert_eq!(replies.len(), calls as usize * (4 + ReplyHeader::LEN + 4 + (1 << 20)));
    drop(reader);
    writer.join().unwrap();
}
