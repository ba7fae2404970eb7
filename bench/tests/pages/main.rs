//! READs of pages that WRITEs change meanwhile, over the software RNIC with CRCs and the smallest
//! send buffer.
//!
//! The memory store promises that what a READ sends never changes: each page of 4 KiB is as it was
//! before a WRITE of that page or as it is after it. The files store promises that the wire is
//! sound and that each octet is old or new, nothing about pages: its READ copies what the file
//! system gives at that moment, which may be in the middle of a write(2) by another shard or a
//! local process. Neither goes back to what was before an acknowledged WRITE.

use crate::requester::{Requester, request};
use fastrand::Rng;
use stag_engine::{App, Config, PeerId, Shard, Token, clock::Clock};
use stag_iwarp::{Crc, Iwarp};
use stag_nfs::Gateway;
use stag_nfs_store::{
    Procedures, Store,
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
    memory::{self, Memory, MemoryExport},
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
    collections::BTreeMap,
    time::{Duration, Instant},
};

const PAGE: usize = 4_096;
/// Pages of the file: two blocks of the memory store.
const PAGES: usize = 32;
/// Calls outstanding.
const READS: usize = 6;
const WRITES: usize = 3;
const LIMITS: Limits =
    Limits { connections: 4, send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// Pages of the file, one bit each.
type Pages = u64;

/// An adapter with the smallest send buffer that the kernel gives.
fn rnic(clock: &Clock) -> Iwarp {
    let config = stag_iwarp::IwarpConfig::new(LIMITS, [7; 32], clock.now());
    Iwarp::new(stag_iwarp::IwarpConfig { crc: Crc::Always, send_buffer: Some(1), ..config })
        .unwrap()
}

/// Some pages in a row.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    count: usize,
}

impl Span {
    /// For a READ: mostly one page, seldom some, a block or more.
    fn read(dice: &mut Rng) -> Self {
        let count = if dice.usize(..40) > 0 { 1 } else { [2, 4, 16, 20][dice.usize(..4)] };
        Self::of(count, dice)
    }

    /// For a WRITE: mostly within a block, sometimes all of it, sometimes over its end.
    fn write(dice: &mut Rng) -> Self {
        let count = [1, 1, 2, 4, 16, 16, 20][dice.usize(..7)];
        Self::of(count, dice)
    }

    fn of(count: usize, dice: &mut Rng) -> Self {
        let first =
            if count == 16 { dice.usize(..PAGES / 16) * 16 } else { dice.usize(..=PAGES - count) };
        Self { first, count }
    }

    const fn pages(self) -> Pages {
        ((1 << self.count) - 1) << self.first
    }
}

/// Record of one page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// The versions that were written, in order: the next is sent when the one before is
    /// acknowledged.
    versions: Vec<u32>,
    /// A READ that begins may not find an older one: it was acknowledged, or read.
    floor: u32,
}

/// A READ in flight.
struct Reading {
    span: Span,
    floors: Vec<u32>,
    /// Pages that a WRITE was changing meanwhile.
    changing: Pages,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    /// READs of a page that a WRITE was changing meanwhile.
    crossed: u64,
    writes: u64,
    pages: u64,
    /// Pages that a WRITE was changing while they were read.
    changing: u64,
    /// Of these, pages that hold what was not acknowledged when the READ was sent.
    newer: u64,
    /// And pages whose next WRITE was carried out and acknowledged before the READ's reply was
    /// here.
    overtaken: u64,
    /// Pages of more than one version.
    mixed: u64,
}

struct World<A: App> {
    clock: Clock,
    server: Shard<Iwarp, A>,
    client: Shard<Iwarp, Requester>,
    reader: PeerId,
    writer: PeerId,
    file: FileHandle,
    dice: Rng,
    pages: Vec<Page>,
    version: u32,
    next: u64,
    reading: BTreeMap<u64, Reading>,
    writing: BTreeMap<u64, (Span, u32)>,
    counts: Counts,
}

impl<S: Store + Procedures> World<Gateway<S>> {
    fn new(mut store: S) -> Self {
        let root = store.mount(b"/data").unwrap();
        let clock = Clock::start();
        let admit = || Box::new(|_| true) as Box<_>;
        let config = Config { slots: [512, 24, 24], ..Config::small() };
        let mut server =
            Shard::new(rnic(&clock), Gateway::new(store), config.clone(), admit()).unwrap();
        let config = Config { calls_max: 32, ..config };
        let mut client = Shard::new(rnic(&clock), Requester::default(), config, admit()).unwrap();
        let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
        let [reader, writer] = [(); 2].map(|()| client.keep_connected(&at).unwrap());
        let mut world = Self {
            clock,
            server,
            client,
            reader,
            writer,
            file: root,
            dice: Rng::with_seed(1),
            pages: vec![Page::default(); PAGES],
            version: 0,
            next: 0,
            reading: BTreeMap::new(),
            writing: BTreeMap::new(),
            counts: Counts::default(),
        };
        let how =
            CreateHow::Guarded(SetAttributes { mode: Some(0o644), ..SetAttributes::default() });
        let place = DirOpArgs { dir: root, name: Name(b"file") };
        world.call(world.writer, 0, &Call::Create(CreateArgs { place, how }));
        let reply = world.reply().1;
        world.file = match Reply::parse(Procedure::Create, Reader::new(&reply[ReplyHeader::LEN..]))
            .unwrap()
        {
            Reply::Create(Ok(made)) => made.object.unwrap(),
            other => panic!("{other:?}"),
        };
        world.write(Span { first: 0, count: PAGES / 2 });
        world.write(Span { first: PAGES / 2, count: PAGES / 2 });
        while !world.writing.is_empty() {
            world.conclude(false);
        }
        world
    }

    fn call(&mut self, peer: PeerId, token: u64, call: &Call<'_>) {
        self.client.with_app(|_, cx| {
            let request = request(cx, Token(token), call);
            cx.call(peer, request);
        });
    }

    /// The next reply, whichever it is.
    fn reply(&mut self) -> (u64, Vec<u8>) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some((token, reply)) = self.client.with_app(|app, _| app.take()) {
                return (token.0, reply.unwrap());
            }
            assert!(Instant::now() < until, "every call has a reply");
            self.pass();
        }
    }

    fn pass(&mut self) {
        if !(self.server.pass(self.clock.now()) | self.client.pass(self.clock.now())) {
            std::thread::yield_now();
        }
    }

    fn read(&mut self) {
        let span = Span::read(&mut self.dice);
        let floors = self.pages[span.first..][..span.count].iter().map(|page| page.floor).collect();
        let changing = self.writing.values().fold(0, |pages, (span, _)| pages | span.pages());
        self.next += 1;
        self.reading.insert(self.next, Reading { span, floors, changing });
        let (offset, count) = ((span.first * PAGE) as u64, (span.count * PAGE) as u32);
        self.call(self.reader, self.next, &Call::Read(ReadArgs { file: self.file, offset, count }));
    }

    /// Writes these pages if no WRITE is changing any of them.
    fn write(&mut self, span: Span) {
        if self.writing.values().any(|(other, _)| other.pages() & span.pages() != 0) {
            return;
        }
        self.version += 1;
        self.next += 1;
        let version = self.version;
        self.pages[span.first..][..span.count]
            .iter_mut()
            .for_each(|page| page.versions.push(version));
        self.reading.values_mut().for_each(|reading| reading.changing |= span.pages());
        self.writing.insert(self.next, (span, version));
        let octets: Vec<u8> = (span.first..span.first + span.count)
            .flat_map(|page| word(page, version).to_be_bytes().repeat(PAGE / 8))
            .collect();
        let (offset, data) = ((span.first * PAGE) as u64, Bulk::Inline(&octets[..]));
        let stable =
            if version.is_multiple_of(2) { StableHow::FileSync } else { StableHow::Unstable };
        self.call(
            self.writer,
            self.next,
            &Call::Write(WriteArgs { file: self.file, offset, stable, data }),
        );
    }

    /// Takes a reply and judges it.
    fn conclude(&mut self, is_whole: bool) {
        let (token, reply) = self.reply();
        let results = Reader::new(&reply[ReplyHeader::LEN..]);
        if let Some((span, version)) = self.writing.remove(&token) {
            match Reply::parse(Procedure::Write, results).unwrap() {
                Reply::Write(Ok(done)) => assert_eq!(done.count as usize, span.count * PAGE),
                other => panic!("{other:?}"),
            }
            let pages = &mut self.pages[span.first..][..span.count];
            pages.iter_mut().for_each(|page| page.floor = page.floor.max(version));
            self.counts.writes += 1;
            return;
        }
        let reading = self.reading.remove(&token).expect("it was called");
        let octets = match Reply::parse(Procedure::Read, results).unwrap() {
            Reply::Read(Ok(done)) => done.data.octets().unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(octets.len(), reading.span.count * PAGE);
        self.counts.reads += 1;
        self.counts.crossed += u64::from(reading.changing & reading.span.pages() != 0);
        for (i, octets) in octets.chunks(PAGE).enumerate() {
            self.judge(reading.span.first + i, octets, &reading, reading.floors[i], is_whole);
        }
    }

    fn judge(
        &mut self,
        number: usize,
        octets: &[u8],
        reading: &Reading,
        floor: u32,
        is_whole: bool,
    ) {
        let (version, newest) = versions(number, octets);
        let page = &mut self.pages[number];
        for version in [version, newest] {
            assert!(
                page.versions.binary_search(&version).is_ok(),
                "page {number}: {version} was written to it"
            );
        }
        assert!(version >= floor, "page {number} went back from {floor} to {version}");
        assert!(
            version == newest || !is_whole,
            "page {number} is a mixture of {version} and {newest}"
        );
        let counts = &mut self.counts;
        counts.pages += 1;
        counts.mixed += u64::from(version != newest);
        if reading.changing & (1 << number) != 0 {
            counts.changing += 1;
            counts.newer += u64::from(version > floor);
            counts.overtaken += u64::from(version < page.floor);
        }
        page.floor = page.floor.max(version);
    }

    /// Reads while it writes until a WRITE was changing what was read `wanted` times.
    fn run(mut self, wanted: u64, is_whole: bool) {
        let begun = Instant::now();
        while self.counts.crossed < wanted {
            while self.reading.len() < READS {
                self.read();
            }
            if self.writing.len() < WRITES {
                let span = Span::write(&mut self.dice);
                self.write(span);
            }
            self.conclude(is_whole);
        }
        while !self.reading.is_empty() || !self.writing.is_empty() {
            self.conclude(is_whole);
        }
        (0..100).for_each(|_| self.pass());
        let ends = [self.server.provider().stats(), self.client.provider().stats()];
        let short = ends.map(|stats| (stats.sendmsg, stats.sendmsg_short));
        println!("{:?} after {:?}; sendmsg, and in part: {short:?}", self.counts, begun.elapsed());
        for stats in ends {
            assert_eq!((stats.crc_errors, stats.terminates_sent.total()), (0, 0));
            assert!(stats.sendmsg_short > wanted / 100, "the kernel took FPDUs in part: {short:?}");
        }
        assert_eq!(self.client.app().losses(), 0);
        // That they met at all: how often, and who was first, depends on who gets the core.
        assert!(self.counts.newer + self.counts.overtaken > wanted / 1_000, "{:?}", self.counts);
        assert_eq!((self.server.buffers_in_use(), self.client.buffers_in_use()), (0, 0));
    }
}

/// The oldest and the newest version of which a page has octets.
fn versions(page: usize, octets: &[u8]) -> (u32, u32) {
    let (mut oldest, mut newest) = (u32::MAX, 0);
    for octets in octets.chunks(8) {
        let there = u64::from_be_bytes(octets.try_into().unwrap());
        assert_eq!(there >> 32, page as u64 + 1, "page {page} holds its own octets");
        (oldest, newest) = (oldest.min(there as u32), newest.max(there as u32));
    }
    (oldest, newest)
}

#[test]
fn a_mixture_is_seen_wherever_it_begins() {
    let [old, new] = [3, 4].map(|version| word(7, version).to_be_bytes().repeat(PAGE / 8));
    assert_eq!((versions(7, &old), versions(7, &new)), ((3, 3), (4, 4)));
    for cut in (8..PAGE).step_by(8) {
        assert_eq!(versions(7, &[&old[..cut], &new[cut..]].concat()), (3, 4));
    }
}

/// Returns the word that fills a page in this version.
fn word(page: usize, version: u32) -> u64 {
    (page as u64 + 1) << 32 | u64::from(version)
}

/// A tenth of `all`, unless the environment says that it is the gate's.
fn rounds(all: u64) -> u64 {
    if std::env::var_os("CI").is_some() { all } else { all / 10 }
}

#[test]
fn a_page_of_the_memory_store_is_old_or_new_and_never_a_mixture() {
    let export = MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false };
    let config = memory::MemoryConfig::new(vec![export], 16 << 20);
    World::new(Memory::new(&config, &mut |_| ()).unwrap()).run(rounds(100_000), true);
}

#[test]
fn an_octet_of_the_files_store_is_old_or_new() {
    let home = tempfile::tempdir().unwrap();
    for name in ["data", "state"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    let export = ExportConfig {
        name: "data".to_owned(),
        path: home.path().join("data"),
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
    let shared = SharedFiles::open(&config).unwrap();
    World::new(Files::open(&shared, 0).unwrap()).run(rounds(30_000), false);
}
