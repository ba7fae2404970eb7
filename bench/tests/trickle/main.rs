//! Crowds of peers that trickle, before a gateway with little memory. Peers whose octets move lose
//! nothing by them and newcomers get in. The crowd is ended, counted and given the reason (RFC 8166
//! §8.1.4, RFC 5042 §6.4).
//!
//! Prints what a peer's rate is beside the crowd, and without it: `cargo test --release -p
//! stag-bench --test costs trickle -- --nocapture`.

use crate::requester::{Requester, request};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use stag_engine::{Config, PeerId, Shard, Token, clock::Clock};
use stag_iwarp::{Iwarp, IwarpAddress};
use stag_nfs::Gateway;
use stag_nfs_store::{
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{
            Call, CreateArgs, CreateHow, DirOpArgs, FileHandle, Name, Procedure, ReadArgs, Reply,
            SetAttributes, StableHow, WriteArgs,
        },
    },
    rpc::ReplyHeader,
    xdr::Reader,
};
use stag_verbs::Limits;
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;
const LIMITS: Limits =
    Limits { connections: 64, send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
/// Longest time of any step. Only a hang takes that long, and ends by it.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    clock: Clock,
    server: Shard<Iwarp, Gateway<Files>>,
    at: IwarpAddress,
    tcp: SocketAddr,
    file: FileHandle,
    _home: tempfile::TempDir,
}

/// A peer that behaves.
struct Client {
    shard: Shard<Iwarp, Requester>,
    peer: PeerId,
    next: u64,
}

fn rnic(clock: &Clock) -> Iwarp {
    Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [7; 32], clock.now())).unwrap()
}

impl World {
    fn new(slots: [usize; 3]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for name in ["data", "state"] {
            std::fs::create_dir(home.path().join(name)).unwrap();
        }
        let data = home.path().join("data");
        let export = ExportConfig {
            name: "data".to_owned(),
            path: data.clone(),
            read_only: false,
            is_mountpoint: false,
        };
        let config = files::FilesConfig {
            state_dir: home.path().join("state"),
            exports: vec![export],
            callers: files::Callers::UNPRIVILEGED,
            shards: 1,
            sync_directories: false,
            open_files: Some(16),
            cluster: None,
        };
        let mut store = Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap();
        let root = store.mount(b"/data").unwrap();
        let clock = Clock::start();
        let config = Config { slots, peers: 64, ..Config::small() };
        let mut server =
            Shard::new(rnic(&clock), Gateway::new(store), config, Box::new(|_| true)).unwrap();
        let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
        let tcp = server.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let mut world = Self { clock, server, at, tcp, file: root, _home: home };
        let mut client = world.client(false);
        let how =
            CreateHow::Guarded(SetAttributes { mode: Some(0o644), ..SetAttributes::default() });
        let place = DirOpArgs { dir: root, name: Name(b"file") };
        let reply = client.ask(&mut world, &Call::Create(CreateArgs { place, how }));
        world.file = match Reply::parse(Procedure::Create, Reader::new(&reply[ReplyHeader::LEN..]))
            .unwrap()
        {
            Reply::Create(Ok(made)) => made.object.unwrap(),
            other => panic!("{other:?}"),
        };
        client.write(&mut world);
        world
    }

    /// A client of the fabric, or over TCP.
    fn client(&mut self, over_tcp: bool) -> Client {
        let config = Config { calls_max: 32, slots: [512, 16, 40], ..Config::small() };
        let mut shard =
            Shard::new(rnic(&self.clock), Requester::default(), config, Box::new(|_| true))
                .unwrap();
        let peer = match over_tcp {
            true => shard.connect_tcp(self.tcp).unwrap(),
            false => shard.connect(&self.at).unwrap(),
        };
        Client { shard, peer, next: 0 }
    }

    fn pass(&mut self) -> bool {
        self.server.pass(self.clock.now())
    }

    /// Goes on until the server has nothing to do for the moment.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 200 {
            idle = if self.pass() { 0 } else { idle + 1 };
        }
    }
}

impl Client {
    fn begin(&mut self, call: &Call<'_>) {
        self.next += 1;
        let (peer, token) = (self.peer, Token(self.next));
        self.shard.with_app(|_, cx| {
            let request = request(cx, token, call);
            cx.call(peer, request);
        });
    }

    fn ask(&mut self, world: &mut World, call: &Call<'_>) -> Vec<u8> {
        self.begin(call);
        let until = Instant::now() + PATIENCE;
        loop {
            if !(world.pass() | self.shard.pass(world.clock.now())) {
                std::thread::yield_now();
            }
            if let Some((_, reply)) = self.shard.with_app(|app, _| app.take()) {
                return reply.expect("its connection lives");
            }
            assert!(Instant::now() < until, "every call has a reply");
        }
    }

    fn write(&mut self, world: &mut World) {
        let octets = vec![7; MIB];
        let (file, data) = (world.file, Bulk::Inline(&octets[..]));
        let args = WriteArgs { file, offset: 0, stable: StableHow::Unstable, data };
        let reply = self.ask(world, &Call::Write(args));
        match Reply::parse(Procedure::Write, Reader::new(&reply[ReplyHeader::LEN..])).unwrap() {
            Reply::Write(Ok(done)) => assert_eq!(done.count as usize, MIB),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, world: &mut World) {
        let args = ReadArgs { file: world.file, offset: 0, count: MIB as u32 };
        let reply = self.ask(world, &Call::Read(args));
        match Reply::parse(Procedure::Read, Reader::new(&reply[ReplyHeader::LEN..])).unwrap() {
            Reply::Read(Ok(done)) => assert_eq!(done.data.octets().unwrap().len(), MIB),
            other => panic!("{other:?}"),
        }
    }

    /// Makes `count` WRITEs and `count` READs of 1 MiB. Returns their number per second of this
    /// thread's time on a core, which other processes of the host do not change.
    fn work(&mut self, world: &mut World, count: u32) -> f64 {
        let begun = on_core();
        for _ in 0..count {
            self.write(world);
            self.read(world);
        }
        f64::from(2 * count) / (on_core() - begun).as_secs_f64()
    }
}

/// Time that this thread has been on a core.
fn on_core() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Callers over TCP that announce a record of 1 MiB and send a part of it.
fn trickling_writers(world: &mut World, count: usize) -> Vec<TcpStream> {
    // Two ends for each.
    let limit = getrlimit(Resource::Nofile);
    let wanted = Some(2 * count as u64 + 512).max(limit.current);
    setrlimit(Resource::Nofile, Rlimit { current: wanted.min(limit.maximum.or(wanted)), ..limit })
        .unwrap();
    let mut record = (1 << 31 | MIB as u32).to_be_bytes().to_vec();
    record.resize(100_000, 0);
    let mut crowd = Vec::new();
    for _ in 0..count {
        let mut socket = TcpStream::connect(world.tcp).unwrap();
        world.pass();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.write(&record).unwrap();
        crowd.push(socket);
        world.pass();
    }
    world.settle();
    crowd
}

fn is_ended(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => panic!("nobody answers half a record"),
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn a_thousand_records_that_trickle_in_reset_nobody_and_keep_nobody_out() {
    let mut world = World::new([4_096, 64, 24]);
    let mut known = [world.client(false), world.client(true)];
    let before = known.each_mut().map(|client| client.work(&mut world, 60));
    let mut crowd = trickling_writers(&mut world, 1_000);
    assert!(world.server.snapshot().engine.limits.memory > 0, "the crowd stands in line");
    let beside = known.each_mut().map(|client| client.work(&mut world, 60));
    println!(
        "WRITEs and READs of 1 MiB per second, over iWARP and TCP: {before:.0?}; beside 1,000: \
         {beside:.0?}"
    );
    for over_tcp in [false, true] {
        crowd.iter_mut().for_each(|socket| drop(socket.write(&[0])));
        let begun = Instant::now();
        world.client(over_tcp).work(&mut world, 1);
        println!("a newcomer's first WRITE and READ: {:?}", begun.elapsed());
    }
    let limits = world.server.snapshot().engine.limits;
    let ended = crowd.iter_mut().filter_map(|socket| is_ended(socket).then_some(())).count() as u64;
    assert!(limits.slow > 0 && ended >= limits.slow, "{limits:?}, {ended} were ended");
    known.iter_mut().for_each(|client| {
        client.work(&mut world, 5);
    });
}

#[test]
fn readers_that_take_nothing_reset_nobody_and_keep_nobody_out() {
    let mut world = World::new([1_024, 16, 16]);
    let mut known = [world.client(false), world.client(true)];
    let before = known.each_mut().map(|client| client.work(&mut world, 60));
    // Each asks for 24 MiB, and then looks at nothing. Half of them over TCP.
    let mut crowd: Vec<Client> = (0..24).map(|i| world.client(i % 2 == 1)).collect();
    for client in &mut crowd {
        for _ in 0..10 {
            world.settle();
            client.shard.pass(world.clock.now());
        }
        let args = ReadArgs { file: world.file, offset: 0, count: MIB as u32 };
        (0..24).for_each(|_| client.begin(&Call::Read(args)));
        client.shard.pass(world.clock.now());
        world.settle();
    }
    let (mut held, until) = (0, Instant::now() + PATIENCE);
    while held < 12 && Instant::now() < until {
        // A busy host takes its time to fill the sockets.
        world.settle();
        held = world.server.buffers_in_use();
    }
    assert!(held >= 12, "the crowd holds what it may: {held} buffers");
    let beside = known.each_mut().map(|client| client.work(&mut world, 60));
    println!(
        "WRITEs and READs of 1 MiB per second, over iWARP and TCP: {before:.0?}; beside 24: \
         {beside:.0?}"
    );
    for over_tcp in [false, true] {
        world.client(over_tcp).work(&mut world, 2);
    }
    let limits = world.server.snapshot().engine.limits;
    assert!(limits.share + limits.memory > 0 && limits.slow > 0, "{limits:?}");
    known.iter_mut().for_each(|client| {
        client.work(&mut world, 5);
    });
    let losses = known.iter().map(|client| client.shard.app().losses()).sum::<u64>();
    assert_eq!(losses, 0);
}
