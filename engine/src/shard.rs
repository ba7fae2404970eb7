//! One shard: a fabric, an app, and everything between them. Each role adds its part in its folder,
//! and `pass` is the loop that joins them.

use crate::{
    app::{App, Cx, PeerId},
    config::{Config, INLINE_LEN},
    core::Core,
    pass::Crowd,
    peer::{FabricLink, Link},
    stats::Snapshot,
    stream::Streams,
};
use stag_pools::{Budget, Pool};
use stag_protocol::rpcrdma::{InlineSize, PrivateData, Side, Version};
use stag_verbs::{FabricFault, Limits, PeerAddress, Provider, Time};
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
};

/// Decides whether a peer may connect.
pub type Admission = Box<dyn Fn(PeerAddress) -> bool>;

/// A fabric, an app and everything between them, on one core.
///
/// ```
/// use stag_echo::Echo;
/// use stag_engine::{Config, ConfigFault, Shard, Time};
/// use stag_sim::{Fabric, Faults, Port};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (fabric, config) = (Fabric::new(1, Faults::NONE), Config::small());
/// let end = fabric.end("server", config.limits(64));
/// let mut server = Shard::new(end, Echo::default(), config.clone(), Box::new(|_| true))?;
/// server.listen(&Port(7))?;
/// assert!(!server.pass(Time(0)), "nobody calls");
///
/// // A provider that holds fewer receives than the shard wants:
/// let end = fabric.end("small", Config { receives: 8, ..config.clone() }.limits(64));
/// let error = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap_err();
/// let fault = error.get_ref().and_then(|error| error.downcast_ref::<ConfigFault>());
/// assert_eq!(fault.map(|fault| fault.field), Some("receives"));
/// # Ok(())
/// # }
/// ```
pub struct Shard<P: Provider, A: App> {
    pub(crate) provider: P,
    pub(crate) app: A,
    pub(crate) core: Core,
    pub(crate) streams: Streams,
    pub(crate) admission: Admission,
    /// The same over TCP, if it differs.
    pub(crate) stream_admission: Option<Admission>,
    pub(crate) private_data: SidedPrivateData,
    /// The address of each peer that is kept connected, by its place among the peers.
    pub(crate) targets: Box<[Option<P::Address>]>,
    /// Room for the message that a look finds.
    pub(crate) front: Box<[u8]>,
    /// Messages that wait for a later pass.
    pub(crate) crowd: Crowd,
}

impl<P: Provider, A: App> fmt::Debug for Shard<P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("peers", &self.core.peers.len()).finish_non_exhaustive()
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// A shard with its memory taken and its receives posted. Fails as `mmap(2)` and
    /// `epoll_create(2)` do, and with a [`ConfigFault`](crate::ConfigFault) of the kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) when the provider cannot hold what `config`
    /// promises ([`Config::check`]).
    pub fn new(mut provider: P, app: A, config: Config, admission: Admission) -> io::Result<Self> {
        let config = config.settled();
        config.check(provider.limits())?;
        let config = config.within(provider.limits().receives_each);
        let limits = *provider.limits();
        let private_data = SidedPrivateData::new(&config, &limits);
        let make = if provider.wants_shared_pools() { Pool::shared } else { Pool::new };
        let core = Core::new(config, &limits, |classes| {
            let pool = make(classes)?;
            provider.register(&pool)?;
            Ok(pool)
        })?;
        let streams = Streams::new(&core.config)?;
        let targets = (0..core.peers.capacity()).map(|_| None).collect();
        let front = vec![0; core.config.receive_len].into_boxed_slice();
        let mut shard = Self {
            front,
            crowd: Crowd::new(core.config.receives),
            provider,
            app,
            core,
            streams,
            admission,
            stream_admission: None,
            private_data,
            targets,
        };
        shard.replenish();
        Ok(shard)
    }

    /// Makes a pool of the app's own known to the fabric, before it serves anybody: a device
    /// reaches nothing else. Fails as [`Provider::register`] does.
    pub fn register(&mut self, pool: &Pool) -> io::Result<()> {
        self.provider.register(pool)
    }

    /// Waits for peers of the fabric at `at`; returns the address in use.
    pub fn listen(&mut self, at: &P::Address) -> Result<P::Address, FabricFault> {
        self.core.is_quiet = false;
        self.provider.listen(at)
    }

    /// Decides by `admission` who may connect over TCP, instead of as over the fabric.
    pub fn admit_streams_by(&mut self, admission: Admission) {
        self.stream_admission = Some(admission);
    }

    /// Waits for callers over TCP at `at`; returns the address in use. `shared` lets several shards
    /// wait at one address.
    pub fn listen_tcp(&mut self, at: SocketAddr, shared: bool) -> io::Result<SocketAddr> {
        self.core.is_quiet = false;
        self.streams.listen(at, shared, self.core.config.steering.as_ref())
    }

    /// Waits for callers over TCP by a socket that listens and never blocks, as a service manager
    /// passes it; returns its address.
    pub fn listen_tcp_by(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        self.core.is_quiet = false;
        self.streams.listen_by(listener)
    }

    /// The app.
    pub const fn app(&self) -> &A {
        &self.app
    }

    /// The app and what it can do, from outside of a pass.
    pub fn with_app<R>(&mut self, run: impl FnOnce(&mut A, &mut Cx<'_>) -> R) -> R {
        let result = run(&mut self.app, &mut Cx::new(&mut self.core, &mut self.provider));
        self.empty_outbox();
        result
    }

    /// The same at `now`, which is not earlier than the latest pass: calls that the app makes count
    /// their time from then on, and leave before this returns.
    pub fn with_app_at<R>(&mut self, now: Time, run: impl FnOnce(&mut A, &mut Cx<'_>) -> R) -> R {
        self.core.begin_pass(now);
        let result = self.with_app(run);
        self.ring();
        self.core.end_pass();
        result
    }

    /// The fabric, for its own counters.
    pub const fn provider(&self) -> &P {
        &self.provider
    }

    /// The cost of the shard's memory: its buffers, and its receives.
    pub fn budgets(&self) -> [Budget; 2] {
        [self.core.memory.budget(), self.core.receives.budget()]
    }

    /// Buffers that somebody holds, receives posted excepted. Zero when nothing is in progress.
    pub fn buffers_in_use(&self) -> usize {
        self.core.memory.taken() + self.core.receives.taken() - self.provider.receives_posted()
    }

    /// Receives that one connection gets, at most: what was configured, or fewer where the device
    /// has no more for each.
    pub const fn grant_max(&self) -> u32 {
        self.core.config.grant
    }

    /// Calls that are not over: of peers, and of ours.
    pub fn calls_in_progress(&self) -> (usize, usize) {
        (self.core.responder.len(), self.core.requester.len())
    }

    /// Receives promised to connections that live: grants, and replies to our own calls.
    pub const fn receives_promised(&self) -> usize {
        self.core.receives.promised()
    }

    /// The version of RPC-over-RDMA that a peer's connection keeps to, once that is settled. None
    /// over TCP.
    pub fn version(&self, peer: PeerId) -> Option<Version> {
        match &self.core.peers.get(peer)?.link {
            Link::Fabric(FabricLink { state: Some(connection), .. }) => connection.version(),
            _ => None,
        }
    }

    /// Messages that went a [short way](crate::config::Config::short_ways), both ways. Counted
    /// where assertions are on.
    #[cfg(debug_assertions)]
    pub const fn short_ways_taken(&self) -> u64 {
        self.core.ways.taken()
    }

    /// The counters.
    pub fn snapshot(&self) -> Snapshot<A::Report> {
        let mut engine = self.core.counters.snapshot();
        engine.connections.live =
            self.core.peers.iter().filter(|(_, peer)| peer.is_up()).count() as u64;
        let fabric = (P::SCHEME, self.provider.counts());
        let stages = self.core.watch.stages().clone();
        let procedures = self.core.watch.procedures().clone();
        Snapshot { engine, fabric, stages, procedures, detail: None, app: self.app.report() }
    }
}

/// Our private data: as the client of a connection, and as its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SidedPrivateData {
    client: PrivateData,
    server: PrivateData,
}

impl SidedPrivateData {
    fn new(config: &Config, limits: &Limits) -> Self {
        let size = |len: usize| InlineSize::at_most(u32::try_from(len).unwrap_or(u32::MAX));
        let of = |remote_invalidation| match config.private_data {
            true => PrivateData {
                remote_invalidation,
                send: size(INLINE_LEN),
                receive: size(config.receive_len),
            },
            false => PrivateData::SILENT,
        };
        Self {
            // draft 001 §2.1 [reminv-8]: remote invalidation is announced exactly if borne
            client: of(limits.bears_invalidation),
            // A server's replies invalidate. In its own calls it names keys only where it has
            // windows, and a device that lends windows bears it.
            server: of(limits.sends_invalidation),
        }
    }

    pub(crate) const fn of(&self, side: Side) -> PrivateData {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }
}
