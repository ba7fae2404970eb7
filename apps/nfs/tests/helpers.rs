//! READs of what is not in memory: io_uring or helpers wait for the disk, and nobody waits for them but who needs it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::result_large_err, dead_code, missing_docs)]

#[path = "gateway/client.rs"]
mod client;
#[path = "gateway/wire.rs"]
mod wire;

use client::{Client, Home, encode, pattern};
use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags, preadv2},
};
use stag_engine::{App, Call as Inbound, Cause, Config, Cx, PeerId, Shard};
use stag_nfs::{
    Gateway, Report,
    export::ExportConfig,
    helpers::{Fetch, Helpers, QUEUE_LEN},
    store::files::{self, Files, Ring, Shared},
};
use stag_protocol::{
    nfs::v3::{Call, FileHandle, GetAttrArgs, ReadArgs, Reply, Status},
    rpc::{ReplyHeader, record::Fragment},
    xdr::Reader,
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::{Limits, Time};
use std::{
    fs::File,
    io::{ErrorKind, IoSliceMut, Read, Write},
    net::{SocketAddr, TcpStream},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A directory that is probably on a disk.
fn home() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file that only the disk has.
fn write_cold(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// Whether a file can be out of memory here at all, and the system says so.
fn is_on_disk(directory: &Path) -> bool {
    let path = directory.join("probe");
    write_cold(&path, &pattern(8192, 1));
    let mut octets = [0; 8192];
    let read =
        preadv2(File::open(&path).unwrap(), &mut [IoSliceMut::new(&mut octets)], 0, ReadWriteFlags::NOWAIT);
    if read != Err(Errno::AGAIN) {
        eprintln!("skipped: {} keeps its files in memory, or does not say ({read:?})", directory.display());
    }
    read == Err(Errno::AGAIN)
}

/// What nobody listens to: these shards do not sleep.
fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// Reads, as helpers do.
fn bring(file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]) {
    let file = File::from(file.try_clone_to_owned().unwrap());
    let _ = file.read_at(scratch, offset).unwrap();
}

/// A disk that brings nothing before it is told so; dropping the sender opens it for good.
fn gated() -> (Sender<()>, Arc<AtomicUsize>, Arc<Fetch>) {
    let (go, gate) = channel();
    let (gate, begun) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&begun);
    let fetch = move |file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]| {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = gate.lock().unwrap().recv();
        bring(file, offset, scratch);
    };
    (go, begun, Arc::new(fetch))
}

/// Shards that serve one directory over TCP.
struct World {
    shards: Vec<Shard<Sim, Gateway>>,
    ports: Vec<SocketAddr>,
    root: FileHandle,
    handles: Files,
    home: TempDir,
    began: Instant,
    _fabric: Fabric,
}

impl World {
    /// None where no file is ever out of memory.
    fn new(helpers: impl FnOnce() -> Vec<Helpers>) -> Option<Self> {
        Self::with(0, helpers)
    }

    /// Shards with a ring for so many READs at a time, too. None also where the system has no ring.
    fn with_rings(reads: u16, helpers: impl FnOnce() -> Vec<Helpers>) -> Option<Self> {
        if let Err(error) = Ring::<()>::new(reads, bell()) {
            eprintln!("skipped: no io_uring here ({error})");
            return None;
        }
        Self::with(reads, helpers)
    }

    fn with(ring_reads: u16, helpers: impl FnOnce() -> Vec<Helpers>) -> Option<Self> {
        let home = home();
        for name in ["data", "state"] {
            std::fs::create_dir(home.path().join(name)).unwrap();
        }
        if !is_on_disk(&home.path().join("data")) {
            return None;
        }
        let helpers = helpers();
        let path = home.path().join("data");
        let config = files::Config {
            state_dir: home.path().join("state"),
            exports: vec![ExportConfig { name: "data".to_owned(), path, read_only: false }],
            callers: files::Callers::UNPRIVILEGED,
            shards: helpers.len() + 1,
            sync_directories: false,
            open_files: Some(512),
        };
        let shared = Shared::open(&config).unwrap();
        let fabric = Fabric::new(1, Faults::DELAYS);
        let (mut shards, mut ports) = (vec![], vec![]);
        let count = helpers.len();
        for (index, helpers) in helpers.into_iter().enumerate() {
            let mut files = Files::open(&shared, index).unwrap().with_helpers(helpers);
            if ring_reads > 0 {
                files = files.with_ring(Ring::new(ring_reads, bell()).unwrap());
            }
            let config = Config { slots: [1024, 64, 8], ..Config::small() };
            let end = fabric.end("server", LIMITS);
            let mut shard = Shard::new(end, Gateway::new(files), config, Box::new(|_| true)).unwrap();
            ports.push(shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap());
            shards.push(shard);
        }
        let mut handles = Files::open(&shared, count).unwrap();
        let root = handles.mount(b"/data").unwrap();
        Some(Self { shards, ports, root, handles, home, began: Instant::now(), _fabric: fabric })
    }

    /// A file that only the disk has; its handle is known without a look at its octets.
    fn cold(&mut self, name: &str, content: &[u8]) -> FileHandle {
        write_cold(&self.home.path().join("data").join(name), content);
        let handle = self.handles.lookup(&self.root, name.as_bytes()).unwrap().handle;
        self.handles.flush().unwrap();
        handle
    }

    fn pass(&mut self) {
        let now = Time(self.began.elapsed().as_nanos() as u64);
        for shard in &mut self.shards {
            shard.pass(now);
        }
    }

    fn connect(&self, shard: usize) -> Caller {
        let socket = TcpStream::connect(self.ports[shard]).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        Caller { socket, input: vec![] }
    }

    /// The next reply.
    fn await_reply(&mut self, caller: &mut Caller) -> Vec<u8> {
        let began = Instant::now();
        loop {
            self.pass();
            if let Some(reply) = caller.reply() {
                return reply;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "no reply");
        }
    }

    fn report(&self, shard: usize) -> Report {
        self.shards[shard].snapshot().app
    }

    /// READs that were carried out.
    fn reads(&self, shard: usize) -> u64 {
        self.report(shard).nfs3.get("READ").map_or(0, |served| served.calls)
    }

    fn await_fetches(&mut self, begun: &AtomicUsize, count: usize) {
        let began = Instant::now();
        while begun.load(Ordering::SeqCst) < count {
            self.pass();
            assert!(began.elapsed() < Duration::from_secs(10), "no helper begins");
        }
    }

    fn assert_empty(&mut self) {
        (0..100).for_each(|_| self.pass());
        for shard in &self.shards {
            assert_eq!((shard.buffers_in_use(), shard.calls_in_progress().0), (0, 0));
        }
    }
}

struct Caller {
    socket: TcpStream,
    input: Vec<u8>,
}

impl Caller {
    fn call(&mut self, call: &Call<'_>) {
        let (octets, _) = encode(call);
        let mut record = Fragment::new(octets.len() as u32, true).unwrap().emit().to_vec();
        record.extend_from_slice(&octets);
        self.socket.write_all(&record).unwrap();
    }

    fn read(&mut self, file: FileHandle, offset: u64, count: u32) {
        self.call(&Call::Read(ReadArgs { file, offset, count }));
    }

    /// What is here of a reply, when it is all of it.
    fn reply(&mut self) -> Option<Vec<u8>> {
        let mut staging = [0; 65_536];
        match self.socket.read(&mut staging) {
            Ok(0) => panic!("the connection is closed"),
            Ok(len) => self.input.extend_from_slice(&staging[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let len = 4 + Fragment::parse(*self.input.first_chunk()?).octets() as usize;
        (self.input.len() >= len).then(|| self.input.drain(..len).skip(4).collect())
    }
}

/// What a READ returned.
fn octets(reply: &[u8]) -> Result<Vec<u8>, Status> {
    let results = Reader::new(&reply[ReplyHeader::LEN..]);
    match Reply::parse(stag_protocol::nfs::v3::Procedure::Read, results).unwrap() {
        Reply::Read(Ok(read)) => Ok(read.data.octets().unwrap().to_vec()),
        Reply::Read(Err(failure)) => Err(failure.status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn while_a_disk_is_slow_others_are_answered() {
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let content = pattern(100_000, 2);
    let file = world.cold("file", &content);
    let (mut reader, mut other) = (world.connect(0), world.connect(0));
    reader.read(file, 1_000, 50_000);
    world.await_fetches(&begun, 1);
    for _ in 0..50 {
        other.call(&Call::GetAttr(GetAttrArgs { object: file }));
        world.await_reply(&mut other);
        assert!(reader.reply().is_none(), "its octets are still on the disk");
    }
    assert_eq!((world.reads(0), world.report(0).nfs3["GETATTR"].calls), (0, 50));
    assert_eq!(world.shards[0].calls_in_progress().0, 1);
    go.send(()).unwrap();
    assert!(octets(&world.await_reply(&mut reader)) == Ok(content[1_000..51_000].to_vec()));
    let data = world.report(0).data;
    assert_eq!((data.reads_cached, data.reads_warmed + data.reads_blocking, data.reads_direct), (0, 1, 0));
    assert_eq!((world.reads(0), begun.load(Ordering::SeqCst)), (1, 1));
    // What is in memory needs no helper.
    reader.read(file, 1_000, 50_000);
    assert!(octets(&world.await_reply(&mut reader)) == Ok(content[1_000..51_000].to_vec()));
    world.assert_empty();
}

/// Reads all of eight files in pieces, each of them cold, by two shards in turn.
fn read_cold_files(mut world: World, did: impl Fn(&Report) -> u64) {
    let contents: Vec<_> = (0..8_usize).map(|seed| pattern(300_000 + seed * 7_777, seed)).collect();
    let files: Vec<_> =
        contents.iter().enumerate().map(|(n, content)| world.cold(&format!("{n}"), content)).collect();
    let mut callers = [world.connect(0), world.connect(1)];
    for (n, (file, content)) in files.iter().zip(&contents).enumerate() {
        for offset in (0..content.len() + 1).step_by(120_000) {
            let caller = &mut callers[(n + offset / 120_000) % 2];
            caller.read(*file, offset as u64, 120_000);
            let read = octets(&world.await_reply(caller)).unwrap();
            assert!(read == content[offset..content.len().min(offset + 120_000)], "{n} at {offset}");
        }
    }
    let reports = [world.report(0), world.report(1)];
    assert!(reports.iter().all(|report| did(report) > 0), "{reports:?}");
    let total: u64 = reports.iter().map(carried_out).sum();
    assert_eq!(total, world.reads(0) + world.reads(1));
    world.assert_empty();
}

/// READs by where their octets were.
fn carried_out(Report { data, .. }: &Report) -> u64 {
    data.reads_cached + data.reads_brought + data.reads_warmed + data.reads_blocking
}

#[test]
fn what_the_disk_brings_is_what_was_written_in_two_shards() {
    let Some(world) = World::new(|| Helpers::start(2).unwrap()) else { return };
    read_cold_files(world, |report| report.data.reads_warmed);
}

#[test]
fn what_a_ring_brings_is_what_was_written_in_two_shards() {
    let idle = |_: BorrowedFd<'_>, _: u64, _: &mut [u8]| panic!("one READ at a time needs no helper");
    let Some(world) = World::with_rings(1, || Helpers::start_with(2, 1, Arc::new(idle)).unwrap()) else {
        return;
    };
    read_cold_files(world, |report| report.data.reads_brought);
}

#[test]
fn a_full_ring_leaves_the_rest_to_helpers() {
    let Some(mut world) = World::with_rings(2, || Helpers::start(1).unwrap()) else { return };
    let contents: Vec<_> = (0..24).map(|seed| pattern(60_000, seed)).collect();
    let files: Vec<_> =
        contents.iter().enumerate().map(|(n, content)| world.cold(&format!("{n}"), content)).collect();
    let mut callers: Vec<_> = files.iter().map(|_| world.connect(0)).collect();
    (0..100).for_each(|_| world.pass());
    for (caller, file) in callers.iter_mut().zip(&files) {
        caller.read(*file, 0, 60_000);
    }
    for (caller, content) in callers.iter_mut().zip(&contents) {
        assert!(octets(&world.await_reply(caller)).as_ref() == Ok(content));
    }
    let report = world.report(0);
    assert!(report.data.reads_brought > 0 && report.data.reads_warmed > 0, "{report:?}");
    assert_eq!(carried_out(&report), 24);
    world.assert_empty();
}

#[test]
fn a_connection_that_dies_while_a_ring_reads_leaves_nothing_behind() {
    let Some(mut world) = World::with_rings(4, || Helpers::start(1).unwrap()) else { return };
    for round in 0..40 {
        let content = pattern(400_000, round);
        let file = world.cold("file", &content);
        let mut gone = world.connect(0);
        gone.call(&Call::GetAttr(GetAttrArgs { object: file }));
        gone.read(file, 0, 400_000);
        // Further and further into the READ.
        (0..round / 4 + 2).for_each(|_| world.pass());
        drop(gone);
        let mut caller = world.connect(0);
        caller.read(file, 100_000, 200_000);
        assert!(octets(&world.await_reply(&mut caller)).unwrap() == content[100_000..300_000]);
        drop(caller);
    }
    assert!(world.report(0).data.reads_brought > 0, "{:?}", world.report(0).data);
    let began = Instant::now();
    while world.shards[0].calls_in_progress().0 > 0 || world.shards[0].buffers_in_use() > 0 {
        world.pass();
        assert!(began.elapsed() < Duration::from_secs(10), "something is left");
    }
}

#[test]
fn a_file_that_is_removed_or_cut_while_a_ring_reads_is_answered() {
    let Some(mut world) = World::with_rings(4, || Helpers::start(1).unwrap()) else { return };
    let mut caller = world.connect(0);
    for round in 0..40 {
        let content = pattern(300_000, round);
        let name = format!("{round}");
        let file = world.cold(&name, &content);
        caller.read(file, 0, 300_000);
        (0..round / 4).for_each(|_| world.pass());
        let path = world.home.path().join("data").join(name);
        if round % 2 == 0 {
            std::fs::remove_file(path).unwrap();
        } else {
            File::options().write(true).open(path).unwrap().set_len(1_000).unwrap();
        }
        let read = octets(&world.await_reply(&mut caller));
        let is_stale = read == Err(Status::Stale) && round % 2 == 0;
        assert!(is_stale || read.is_ok_and(|read| read == content || read == content[..1_000]), "{round}");
    }
    world.assert_empty();
}

#[test]
fn a_full_queue_makes_the_shard_wait_itself() {
    const SURPLUS: usize = 10;
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let contents: Vec<_> = (0..1 + QUEUE_LEN + SURPLUS).map(|seed| pattern(5_000, seed)).collect();
    let files: Vec<_> =
        contents.iter().enumerate().map(|(n, content)| world.cold(&format!("{n}"), content)).collect();
    let mut callers = vec![];
    for _ in &files {
        callers.push(world.connect(0));
        world.pass();
    }
    for (n, (caller, file)) in callers.iter_mut().zip(&files).enumerate() {
        caller.read(*file, 0, 5_000);
        if n == 0 {
            world.await_fetches(&begun, 1);
        }
    }
    let began = Instant::now();
    while world.reads(0) < SURPLUS as u64 && began.elapsed() < Duration::from_secs(10) {
        world.pass();
    }
    (0..100).for_each(|_| world.pass());
    assert_eq!((world.reads(0), begun.load(Ordering::SeqCst)), (SURPLUS as u64, 1));
    // The look at memory made the system read ahead, so a file may be there when the shard turns to it again.
    let data = world.report(0).data;
    assert_eq!(data.reads_blocking + data.reads_cached, SURPLUS as u64);
    drop(go);
    for (caller, content) in callers.iter_mut().zip(&contents) {
        assert!(octets(&world.await_reply(caller)).as_ref() == Ok(content));
    }
    assert!(world.report(0).data.reads_warmed > 0);
    world.assert_empty();
}

#[test]
fn a_connection_that_dies_leaves_nothing_behind() {
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let content = pattern(9_000, 4);
    let file = world.cold("file", &content);
    let mut gone = world.connect(0);
    gone.call(&Call::GetAttr(GetAttrArgs { object: file }));
    gone.read(file, 0, 9_000);
    world.await_fetches(&begun, 1);
    // Closed over a reply that nobody read, it is reset.
    drop(gone);
    let began = Instant::now();
    while world.shards[0].calls_in_progress().0 > 0 {
        world.pass();
        assert!(began.elapsed() < Duration::from_secs(10), "the connection does not end");
    }
    drop(go);
    let mut caller = world.connect(0);
    for _ in 0..300 {
        caller.read(file, 0, 9_000);
        assert!(octets(&world.await_reply(&mut caller)).as_ref() == Ok(&content));
    }
    assert_eq!(world.reads(0), 300, "the READ of the one who is gone was not carried out");
    world.assert_empty();
}

#[test]
fn octets_that_are_gone_again_are_waited_for() {
    let forget = |file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]| {
        bring(file, offset, scratch);
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
    };
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, Arc::new(forget)).unwrap()) else { return };
    let content = pattern(200_000, 5);
    let file = world.cold("file", &content);
    let mut caller = world.connect(0);
    caller.read(file, 0, 200_000);
    assert!(octets(&world.await_reply(&mut caller)).as_ref() == Ok(&content));
    let data = world.report(0).data;
    assert_eq!((data.reads_cached, data.reads_warmed, data.reads_blocking), (0, 0, 1));
    world.assert_empty();
}

#[test]
fn a_file_that_is_removed_while_the_disk_brings_it_is_stale_or_still_there() {
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let content = pattern(9_000, 6);
    let file = world.cold("file", &content);
    let mut caller = world.connect(0);
    caller.read(file, 0, 9_000);
    world.await_fetches(&begun, 1);
    std::fs::remove_file(world.home.path().join("data/file")).unwrap();
    drop(go);
    let read = octets(&world.await_reply(&mut caller));
    assert!(read == Err(Status::Stale) || read.as_ref() == Ok(&content));
    world.assert_empty();
}

/// A gateway whose passes end when all its READs are carried out: time on the simulated fabric waits for the disk.
struct Waiting {
    gateway: Gateway,
    begun: u64,
}

impl App for Waiting {
    type Report = Report;

    fn report(&self) -> Report {
        self.gateway.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Inbound<'_>) {
        self.begun += u64::from((call.header.program, call.header.procedure) == (100_003, 6));
        self.gateway.on_call(cx, call);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.gateway.on_peer_down(cx, peer, cause);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        loop {
            self.gateway.on_pass_end(cx);
            if self.report().nfs3.get("READ").map_or(0, |served| served.calls) == self.begun {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Reads a cold file over a simulated fabric.
fn read_over_fabric(equip: impl FnOnce(Files) -> Files, did: impl Fn(&Report) -> u64) {
    let home = Home::within(home());
    if !is_on_disk(&home.path("data")) {
        return;
    }
    let content = pattern(1 << 20, 7);
    write_cold(&home.path("data/file"), &content);
    let gateway = Gateway::new(equip(home.store_after(|| ())));
    let wire = wire::OverFabric::new(Waiting { gateway, begun: 0 }, Config::small());
    let mut client = Client::on(Box::new(wire), home);
    let root = client.root;
    let file = client.lookup(root, b"file").unwrap();
    for (offset, len) in [(0, 4096), (500_000, 500_000), (0, 1 << 20)] {
        let (octets, _) = client.read(file, offset, len).unwrap();
        assert!(octets == content[offset as usize..][..len as usize]);
    }
    let report = client.wire.report();
    assert!(did(&report) > 0, "{report:?}");
    assert_eq!(carried_out(&report), 3);
}

#[test]
fn a_read_that_was_put_off_is_pushed_like_any_other() {
    let equip = |files: Files| files.with_helpers(Helpers::start(1).unwrap().remove(0));
    read_over_fabric(equip, |report| report.data.reads_warmed);
}

#[test]
fn a_read_that_a_ring_carries_out_is_pushed_like_any_other() {
    match Ring::new(4, bell()) {
        Ok(ring) => read_over_fabric(|files| files.with_ring(ring), |report| report.data.reads_brought),
        Err(error) => eprintln!("skipped: no io_uring here ({error})"),
    }
}
