//! A server of ours in a thread, which reports what it holds: receives, buffers, calls,
//! connections.

use crate::gss::KnownKeyAcceptor;
use stag_engine::{
    Config, Shard, Stats,
    clock::Clock,
    gss::{ContextLimits, GssContexts},
};
use stag_iwarp::{Iwarp, IwarpAddress};
use stag_nfs::Gateway;
use stag_nfs_store::{
    Security,
    exports::security::SecurityFlavors,
    memory::{self, Memory, MemoryExport},
};
use stag_verbs::Limits;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The name of its export.
pub const EXPORT: &str = "/hostile";
const CAPACITY: usize = 64 << 20;
const CONNECTIONS: usize = 256;
/// Protection that calls of its export may have: all there is.
const FLAVORS: [Security; 4] = [Security::Sys, Security::Krb5, Security::Krb5i, Security::Krb5p];
/// Time for which a thread without work lets others run.
const NAP: Duration = Duration::from_micros(50);

/// Resources that a server holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldByServer {
    /// Buffers in use, posted receives excepted.
    pub buffers: usize,
    /// Calls in progress, of peers and its own.
    pub calls: (usize, usize),
    /// Receives promised to connections: their grants.
    pub promised: usize,
    /// Connections that are up.
    pub live: u64,
}

/// A server of ours.
#[derive(Debug)]
pub struct OurServer {
    /// Address on which the server takes RDMA connections.
    pub rdma: SocketAddr,
    /// Address on which the server takes TCP connections.
    pub tcp: SocketAddr,
    stop: Arc<AtomicBool>,
    asks: Sender<()>,
    answers: Receiver<(HeldByServer, Stats)>,
    thread: JoinHandle<(Stats, stag_iwarp::IwarpStats)>,
}

fn config() -> Config {
    Config {
        peers: CONNECTIONS,
        receives: 2_048,
        inbound: 2_048,
        slots: [2_048, 64, 32],
        ..Config::small()
    }
}

/// A shard that serves [`EXPORT`] on free ports of loopback, and its addresses for RDMA and TCP.
///
/// # Errors
/// As memory and sockets fail.
pub fn shard(clock: Clock) -> io::Result<(Shard<Iwarp, Gateway<Memory>>, SocketAddr, SocketAddr)> {
    let other = |error: String| io::Error::other(error);
    let contexts = GssContexts::start(Box::new(KnownKeyAcceptor), ContextLimits::default())?;
    let config = Config { gss: Some(contexts), ..config() };
    let limits = Limits {
        connections: CONNECTIONS,
        send_queue: 256,
        receives: config.receives,
        receives_each: None,
        receive_len: config.receive_len,
        windows: 512,
        read_spans: 64,
        private_data_len: 196,
        sends_invalidation: true,
        bears_invalidation: true,
    };
    let export = MemoryExport {
        name: EXPORT.trim_start_matches('/').to_owned(),
        copy_of: None,
        read_only: false,
    };
    let security = SecurityFlavors::of(&FLAVORS).map_err(|_| other("flavors".to_owned()))?;
    let content = memory::MemoryConfig::new(vec![export], CAPACITY);
    let store = Memory::new(&memory::MemoryConfig { security, ..content }, &mut |_| ())
        .map_err(|error| other(error.to_string()))?;
    let fabric = Iwarp::new(stag_iwarp::IwarpConfig::new(limits, [5; 32], clock.now()))?;
    let mut shard = Shard::new(fabric, Gateway::new(store), config, Box::new(|_| true))?;
    let any = IwarpAddress(SocketAddr::from(([127, 0, 0, 1], 0)));
    let rdma = shard.listen(&any).map_err(|fault| other(fault.to_string()))?;
    let tcp = shard.listen_tcp(any.0, false)?;
    Ok((shard, rdma.0, tcp))
}

impl OurServer {
    /// Starts one on free ports of loopback.
    pub fn start() -> io::Result<Self> {
        let clock = Clock::start();
        let stop = Arc::new(AtomicBool::new(false));
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        let (ready, started) = channel();
        let halt = Arc::clone(&stop);
        let thread = thread::Builder::new().name("server".to_owned()).spawn(move || {
            let (mut shard, rdma, tcp) = match self::shard(clock) {
                Ok(built) => built,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return (Stats::default(), stag_iwarp::IwarpStats::default());
                }
            };
            let _ = ready.send(Ok((rdma, tcp)));
            while !halt.load(Ordering::Relaxed) {
                if !shard.pass(clock.now()) {
                    thread::sleep(NAP);
                }
                if asked.try_recv().is_ok() {
                    let stats = shard.snapshot().engine;
                    let held = HeldByServer {
                        buffers: shard.buffers_in_use(),
                        calls: shard.calls_in_progress(),
                        promised: shard.receives_promised(),
                        live: stats.connections.live,
                    };
                    let _ = answer.send((held, stats));
                }
            }
            (shard.snapshot().engine, *shard.provider().stats())
        })?;
        let (rdma, tcp) = started.recv().map_err(io::Error::other)??;
        Ok(Self { rdma, tcp, stop, asks, answers, thread })
    }

    /// Returns the resources that the server holds, and its counters.
    pub fn look(&self) -> io::Result<(HeldByServer, Stats)> {
        self.asks.send(()).map_err(io::Error::other)?;
        self.answers.recv_timeout(Duration::from_secs(10)).map_err(io::Error::other)
    }

    /// Waits until it holds what it held; what it holds then.
    pub fn settle(&self, held: HeldByServer, patience: Duration) -> io::Result<HeldByServer> {
        let until = Instant::now() + patience;
        loop {
            let (now, _) = self.look()?;
            if now == held || Instant::now() > until {
                return Ok(now);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it. An error when its thread panicked.
    pub fn stop(self) -> io::Result<(Stats, stag_iwarp::IwarpStats)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| io::Error::other("the server panicked"))
    }
}
