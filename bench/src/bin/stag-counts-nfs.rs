//! Program whose process is counted: NFS READ and GETATTR of the memory store, both ends in one
//! thread, of which one is counted. A program of its own, as `stag-counts-typed` is.
//!
//! Usage: `stag-counts-nfs iwarp|shm-trusted/read-4k|getattr/server|client CALLS`: CALLS calls, 32
//! at a time. What one side costs is what its loop costs, passes that find nothing included.

use stag_bench::counted::measured;
use stag_engine::{Config, Shard, clock::Clock};
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_load::{Load, LoadFiles, LoadPlan, Pace, RunSpan, To, Workload};
use stag_nfs::{
    Gateway,
    store::{
        Store, WritePayload,
        memory::{Memory, MemoryConfig, MemoryExport},
    },
};
use stag_protocol::nfs::v3::{CreateHow, SetAttributes, StableHow};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{Limits, Provider, Time};
use std::{io, process::ExitCode};

/// Calls under way at a time.
const DEPTH: usize = 32;
/// Calls that the server lets the client have under way.
const GRANT: u32 = 64;
/// Calls that are made before those that are counted.
const WARM_UP: u64 = 512;
/// Octets of one READ.
const LEN: usize = 4096;
/// Blocks of so many octets that the file has.
const BLOCKS: usize = 1024;
/// Key from which both fabrics make theirs.
const KEY: [u8; 32] = [7; 32];

/// End of the connection whose work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedSide {
    Server,
    Client,
}

/// Both ends.
#[derive(Debug)]
struct FileEnds<P: Provider> {
    server: Shard<P, Gateway<Memory>>,
    load: Load<P>,
    clock: Clock,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let subject = arguments.first().map_or("", String::as_str);
    let mut parts = subject.split('/');
    let mut part = || parts.next().unwrap_or_default();
    let (fabric, workload, side) = (part(), part(), part());
    let workload = match workload {
        "read-4k" => Some(Workload::Read),
        "getattr" => Some(Workload::GetAttr),
        _ => None,
    };
    let side = match side {
        "server" => Some(CountedSide::Server),
        "client" => Some(CountedSide::Client),
        _ => None,
    };
    let calls = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some(workload), Some(side), Some(calls)) = (workload, side, calls) else {
        eprintln!("stag-counts-nfs: say FABRIC/read-4k|getattr/server|client and how often");
        return ExitCode::from(2);
    };
    match count(fabric, workload, side, calls) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stag-counts-nfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count(fabric: &str, workload: Workload, side: CountedSide, calls: u64) -> io::Result<()> {
    let clock = Clock::start();
    let (store, plan) = stored(workload, fabric == "shm-trusted")?;
    match fabric {
        "iwarp" => {
            let provider = |limits| Iwarp::new(IwarpConfig::new(limits, KEY, clock.now()));
            let at = "iwarp://127.0.0.1:0".parse().expect("an address");
            FileEnds::new(provider, &at, store, &plan, clock)?.run(side, calls)
        }
        "shm-trusted" => {
            let home = tempfile::tempdir()?;
            let at = ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
            let provider = |limits| {
                Shm::new(ShmConfig { trust: true, ..ShmConfig::new(limits, KEY, clock.now()) })
            };
            FileEnds::new(provider, &at.trusting(), store, &plan, clock)?.run(side, calls)
        }
        _ => Err(io::Error::other(format!("{fabric:?} is no fabric"))),
    }
}

/// A store with one file of [`BLOCKS`], and the calls of it.
fn stored(workload: Workload, shared: bool) -> io::Result<(Memory, LoadPlan)> {
    let failed = |status| io::Error::other(format!("the store says {status:?}"));
    let exports = vec![MemoryExport { name: "memory".to_owned(), copy_of: None, read_only: false }];
    let config = MemoryConfig { shared, ..MemoryConfig::new(exports, 16 << 20) };
    let mut store = Memory::new(&config, &mut |_| ()).map_err(io::Error::other)?;
    let dir = store.mount(b"/memory").map_err(failed)?;
    let how = CreateHow::Guarded(SetAttributes::default());
    let made = store.create(&dir, b"data", &how).map_err(|made| failed(made.status))?;
    for block in 0..BLOCKS {
        let octets = [block as u8 | 1; LEN];
        let payload = WritePayload::from(&octets[..]);
        let offset = (block * LEN) as u64;
        store
            .write(&made.handle, offset, payload, StableHow::FileSync)
            .map_err(|done| failed(done.status))?;
    }
    let mut plan = LoadPlan::new(workload, LEN, DEPTH);
    (plan.verify, plan.is_nfs) = (false, true);
    plan.files = Some(LoadFiles { dir, file: made.handle, blocks: BLOCKS as u64 });
    Ok((store, plan))
}

impl<P: Provider> FileEnds<P> {
    fn new(
        provider: impl Fn(Limits) -> io::Result<P>,
        at: &P::Address,
        store: Memory,
        plan: &LoadPlan,
        clock: Clock,
    ) -> io::Result<Self> {
        let config = Config {
            grant: GRANT,
            receives: 512,
            inbound: 512,
            peers: 16,
            outbound: 64,
            slots: [1024, 32, 16],
            ..Config::default()
        };
        let pool = store.pool().cloned();
        let fabric = provider(config.limits(256))?;
        let mut server = Shard::new(fabric, Gateway::new(store), config, Box::new(|_| true))?;
        if let Some(pool) = &pool {
            server.register(pool)?;
        }
        let at = server.listen(at).map_err(io::Error::other)?;
        let mut load = Load::new(provider(plan.limits())?, plan)?;
        load.connect(&To::Fabric(at)).map_err(io::Error::other)?;
        while !load.is_connected().map_err(io::Error::other)? {
            let now = clock.now();
            if !(load.step(now) | server.pass(now)) {
                std::thread::yield_now();
            }
        }
        Ok(Self { server, load, clock })
    }

    /// Makes `calls`, of which callgrind counts what `side` does.
    fn run(mut self, side: CountedSide, calls: u64) -> io::Result<()> {
        // Everything a call touches has been touched before.
        self.make(None, WARM_UP);
        self.make(Some(side), WARM_UP + calls);
        match self.load.generator().failure() {
            Some(failure) => Err(io::Error::other(format!("{failure:?}"))),
            None => Ok(()),
        }
    }

    /// Makes calls until the generator has made `calls` in all.
    fn make(&mut self, side: Option<CountedSide>, calls: u64) {
        let from = self.clock.now();
        let span = RunSpan { from, until: Time(u64::MAX), calls: Some(calls) };
        self.load.begin(from, Pace::Closed, span);
        while !self.load.generator().is_over() {
            let now = self.clock.now();
            let Self { server, load, .. } = self;
            let mut call = || {
                load.step(now);
            };
            let mut serve = || {
                server.pass(now);
            };
            match side {
                Some(CountedSide::Client) => measured(&mut call),
                _ => call(),
            }
            match side {
                Some(CountedSide::Server) => measured(&mut serve),
                _ => serve(),
            }
        }
    }
}
