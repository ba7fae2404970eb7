//! A shard: one fabric, one app, and all state between them. Each role adds its methods in its own
//! folder, and `pass` is the loop that calls them.

use crate::{
    app::{App, Cx, PeerId},
    config::{Config, INLINE_LEN},
    core::Core,
    gss::ContextCounts,
    state::{Crowd, FabricLink, Link},
    stats::{GssStats, Snapshot},
    tcp::Streams,
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

/// A fabric, an app and all state between them, on one core.
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
/// // A provider that holds fewer receives than the shard needs:
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
    /// The admission of TCP clients, if it differs.
    pub(crate) stream_admission: Option<Admission>,
    pub(crate) private_data: SidedPrivateData,
    /// The address of each peer that is kept connected, by index of the peer.
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
    /// Makes a shard, with its memory allocated and its receives posted. Fails as `mmap(2)` and
    /// `epoll_create(2)` do, and with a [`ConfigFault`](crate::ConfigFault) of the kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the provider cannot hold what `config`
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

    /// Registers a pool of the app's own with the fabric, before the shard serves any peer: a
    /// device can access only registered memory. Fails as [`Provider::register`] does.
    pub fn register(&mut self, pool: &Pool) -> io::Result<()> {
        self.provider.register(pool)
    }

    /// Listens for peers of the fabric at `at`; returns the address in use.
    pub fn listen(&mut self, at: &P::Address) -> Result<P::Address, FabricFault> {
        self.core.is_quiet = false;
        self.provider.listen(at)
    }

    /// Uses `admission`, instead of the one of the fabric, for clients over TCP.
    pub fn admit_streams_by(&mut self, admission: Admission) {
        self.stream_admission = Some(admission);
    }

    /// Listens for TCP clients at `at`; returns the address in use. With `shared`, several shards
    /// can listen at one address.
    pub fn listen_tcp(&mut self, at: SocketAddr, shared: bool) -> io::Result<SocketAddr> {
        self.core.is_quiet = false;
        self.streams.listen(at, shared, self.core.config.steering.as_ref())
    }

    /// Listens for TCP clients on a non-blocking listening socket, as a service manager passes it;
    /// returns its address.
    pub fn listen_tcp_by(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        self.core.is_quiet = false;
        self.streams.listen_by(listener)
    }

    /// The app.
    pub const fn app(&self) -> &A {
        &self.app
    }

    /// Runs a function with the app and its actions, outside of a pass.
    pub fn with_app<R>(&mut self, run: impl FnOnce(&mut A, &mut Cx<'_>) -> R) -> R {
        let result = run(&mut self.app, &mut Cx::new(&mut self.core, &mut self.provider));
        self.empty_outbox();
        result
    }

    /// The same at `now`, which is not earlier than the latest pass: the deadlines of calls that
    /// the app makes count from then on, and the calls are sent before this returns.
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

    /// Buffers in use, posted receives excepted. Zero if nothing is in progress.
    pub fn buffers_in_use(&self) -> usize {
        self.core.memory.taken() + self.core.receives.taken() - self.provider.receives_posted()
    }

    /// Maximum of receives for one connection: the configured number, or fewer if the device limits
    /// them.
    pub const fn grant_max(&self) -> u32 {
        self.core.config.grant
    }

    /// Calls that have not ended: of peers, and of ours.
    pub fn calls_in_progress(&self) -> (usize, usize) {
        (self.core.responder.len(), self.core.requester.len())
    }

    /// Receives promised to live connections: for grants, and for replies to our own calls.
    pub const fn receives_promised(&self) -> usize {
        self.core.receives.promised()
    }

    /// The version of RPC-over-RDMA of a peer's connection, once it is negotiated. None over TCP.
    pub fn version(&self, peer: PeerId) -> Option<Version> {
        match &self.core.peers.get(peer)?.link {
            Link::Fabric(FabricLink { state: Some(connection), .. }) => connection.version(),
            _ => None,
        }
    }

    /// Messages that took a [fast path](crate::config::Config::short_ways), in both directions.
    /// Counted only with debug assertions.
    #[cfg(debug_assertions)]
    pub const fn short_ways_taken(&self) -> u64 {
        self.core.ways.taken()
    }

    /// The counters.
    pub fn snapshot(&self) -> Snapshot<A::Report> {
        let mut engine = self.core.counters.snapshot();
        if let Some(gss) = &self.core.gss {
            let ContextCounts { live, waiting, crowded, displaced, .. } = gss.contexts.counts();
            engine.gss = GssStats { live, waiting, crowded, displaced, ..engine.gss };
        }
        engine.connections.live =
            self.core.peers.iter().filter(|(_, peer)| peer.is_up()).count() as u64;
        let fabric = (P::SCHEME, self.provider.counts());
        let stages = self.core.watch.stages().clone();
        let procedures = self.core.watch.procedures().clone();
        Snapshot { engine, fabric, stages, procedures, detail: None, app: self.app.report() }
    }
}

/// Our private data, as client and as server of a connection.
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
                // No longer than the provider fills them.
                receive: size(config.receive_len.min(limits.receive_len)),
            },
            false => PrivateData::SILENT,
        };
        Self {
            // draft 001 §2.1 [reminv-8]: remote invalidation is announced exactly if borne
            client: of(limits.bears_invalidation),
            // A server's replies invalidate. Its own calls offer keys only if it has windows, and a
            // device with windows accepts invalidation.
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
