//! One shard on its core: it is built there, reports its resources, runs until it is asked to stop,
//! and returns its counters.

use super::{Copied, ServeError, ShardSizes, Started, StoreSource, logged::Logged};
use crate::{
    ConnectionPolicy, Gateway, GatewayReport, MountList, Nfs4Config, Nfs4Link, Nfs4Records,
    owner_names::OwnerNames,
    reply_cache::{self, CacheHandle},
    v4::OPERATIONS,
};
use rustix::rand::{GetRandomFlags, getrandom};
use stag_engine::{
    Admission, Config, Over, RestListener, Sampling, Shard, Spin, WatchedProgram, clock::Clock,
    control::Control, gss::GssContexts, stats::Snapshot, tls::ServerTls,
};
use stag_fabrics::{Fabric, FabricGroup, FabricVisitor, Settings};
use stag_nfs_os::steer::{place_of, steer_by_source};
use stag_nfs_store::{Store, helpers::Helpers, memory::MemoryMail};
use stag_pools::Budget;
use stag_protocol::{
    nfs::{mount, v3, v4},
    rpcrdma::Versions,
};
use stag_verbs::{FabricFault, LinkSettings, OutageReport, PassedListeners, Steering};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

/// Work requests of one connection: the pushes and replies of all its calls.
const SEND_QUEUE: usize = 256;
/// READs that wait for the disk with a buffer, at most; and no more than a quarter of the large
/// buffers. Helpers serve the rest.
const RING_READS: usize = 48;
/// The time within which a TCP connection must send its first call. Clients connect when they have
/// a call to make.
const FIRST_CALL_WITHIN: Duration = Duration::from_secs(30);

/// The programs whose procedures are timed separately.
const WATCHED: [WatchedProgram; 3] = [
    WatchedProgram {
        program: v3::PROGRAM,
        version: v3::VERSION,
        procedures: v3::Procedure::ALL.len() as u32,
        operations: 0,
    },
    WatchedProgram {
        program: v3::PROGRAM,
        version: v4::VERSION,
        procedures: v4::COMPOUND + 1,
        operations: OPERATIONS as u32,
    },
    WatchedProgram {
        program: mount::PROGRAM,
        version: mount::VERSION,
        procedures: mount::Procedure::ALL.len() as u32,
        operations: 0,
    },
];

/// The connections guaranteed to one shard by its share of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionShare {
    /// Connections over a fabric whose connections take descriptors.
    pub connections: usize,
    /// Connections of RPC over TCP.
    pub streams: usize,
    /// Half-open connections of an iWARP listener.
    pub half_open: usize,
    /// Peers accepted while all connections are in use.
    pub spare: usize,
    /// Concurrent processes over shared memory.
    pub links: usize,
}

/// Versions of NFS that a shard serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsVersions {
    /// Version 3.
    pub three: bool,
    /// Versions 4.1 and 4.2: the first shard owns their clients and state. The others execute
    /// operations that change no state, and forward the rest.
    pub four: Option<Nfs4Config>,
}

/// The parameters of a shard: its store, its addresses, and its limits.
pub struct ServeShard {
    /// Its number among all shards.
    pub index: usize,
    /// Its number among those of its fabric.
    pub place: usize,
    /// The addresses of its fabric.
    pub fabric: FabricGroup,
    /// Connections on RDMA devices.
    pub rdma: LinkSettings,
    /// Users whose processes may connect by shared memory, in addition to our own and root.
    pub shm_allow: Vec<u32>,
    /// The address of NFS and MOUNT over TCP.
    pub tcp: Option<SocketAddr>,
    /// Sockets passed by a service manager to listen on.
    pub passed: PassedListeners,
    /// TLS of calls over TCP (RFC 9289).
    pub tls: Option<Arc<ServerTls>>,
    /// Contexts of Kerberos (RFC 2203), which all shards share.
    pub gss: Option<Arc<GssContexts>>,
    /// Shards that listen at the same addresses, this one included.
    pub places: usize,
    /// Number of shards that listen there, if the caller's address selects the shard.
    pub steered: Option<u32>,
    /// Creates the admission check for peers, over the fabric and over TCP.
    pub admission: Arc<dyn Fn(Over) -> Admission + Send + Sync>,
    /// Lists and limits of connections.
    pub policy: Arc<dyn ConnectionPolicy>,
    /// Mounts of all shards' clients.
    pub mounts: Arc<MountList>,
    /// Its sizes.
    pub sizes: ShardSizes,
    /// Its part of the process' descriptors.
    pub share: ConnectionShare,
    /// True to announce to connecting clients what they may send.
    pub private_data: bool,
    /// Versions of RPC-over-RDMA.
    pub versions: Versions,
    /// Traces one in this many calls from stage to stage.
    pub sample: u32,
    /// True if any peer may query how long calls take.
    pub tells_stages: bool,
    /// The source of its store.
    pub source: StoreSource,
    /// Versions of NFS.
    pub nfs: NfsVersions,
    /// Records of version 4 clients, if any.
    pub records: Option<Nfs4Records>,
    /// Exports that only this server changes: version 4 grants delegations of their files.
    pub exclusive: Vec<String>,
    /// Exports that local programs change, too, and whose files are watched while they are
    /// delegated.
    pub watched: Vec<String>,
    /// Names of owners, if they have a domain.
    pub owner_names: Option<Arc<OwnerNames>>,
    /// Its part of version 4 on several shards; none if one shard serves it.
    pub link: Option<Nfs4Link>,
    /// Its part of the duplicate request cache.
    pub branch: CacheHandle,
    /// Its access to the helpers, if its store has any.
    pub helpers: Option<Helpers>,
    /// Its part of a memory served by several shards.
    pub memory: Option<MemoryMail>,
    /// The process' clock.
    pub clock: Clock,
    /// Notified when the shard rests and works.
    pub rest: Option<Arc<dyn RestListener>>,
    /// Notified when the device is gone.
    pub outage: OutageReport,
}

/// A shard, and its report.
type Built<P, S> = (Shard<P, Logged<Gateway<S>>>, Started);

impl ServeShard {
    /// Builds the shard of its store, calls `ready`, and runs until it is asked to stop.
    pub(super) fn run_with<S: Store>(
        mut self,
        store: S,
        notes: StoreNotes,
        control: &Control<Snapshot<GatewayReport>>,
        ready: impl FnOnce(Started),
    ) -> Result<Snapshot<GatewayReport>, ServeError> {
        let branch = std::mem::replace(&mut self.branch, CacheHandle::alone());
        let mut gateway = Gateway::new(store).with_duplicates(branch, reply_cache::REPLIES);
        // A shard other than the first borrows sessions.
        if let Some(config) = self.nfs.four {
            gateway = gateway.with_nfs4(config);
        }
        if let Some(names) = self.owner_names.take() {
            gateway = gateway.with_owner_names(names);
        }
        if self.nfs.four.is_some() && self.index == 0 {
            gateway = gateway.with_exclusive(&self.exclusive).with_watched(&self.watched)?;
            if let Some(records) = self.records.take() {
                let waker = control.waker();
                records.keeper.wakeup().attach(move || waker.wake());
                gateway = gateway.with_records(records);
            }
        }
        if let Some(link) = self.link.take() {
            gateway = gateway.with_link(link);
        }
        if !self.nfs.three {
            gateway = gateway.without_nfs3();
        }
        let mut random = [0; 36];
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|error| ServeError::Random(error.into()))?;
        let (seed, xid_seed) = (random.first_chunk::<32>(), random.last_chunk::<4>());
        let seed = *seed.expect("36 octets hold 32");
        let mut config =
            self.sizes.config(u32::from_ne_bytes(*xid_seed.expect("36 octets hold 4")));
        let gateway = gateway.with_slots(config.slots).with_policy(Arc::clone(&self.policy));
        let gateway = gateway.with_mounts(Arc::clone(&self.mounts));
        (config.private_data, config.serve_versions) = (self.private_data, self.versions);
        (config.peers, config.streams) = (self.connections(), self.share.streams.max(1));
        config.first_call_within = Some(FIRST_CALL_WITHIN);
        config.serve_tls = self.tls.clone();
        config.gss = self.gss.clone();
        config.rest = self.rest.clone();
        config.meter = Some(Arc::new(self.clock));
        config.steering = self.steered.map(steering);
        let shard = u32::try_from(self.index).unwrap_or(u32::MAX);
        if notes.is_beside_helpers {
            config.spin = Spin::For(Duration::ZERO);
        }
        let (every, clock) = (self.sample, Some(self.clock));
        config.sampling = Sampling { every, clock, shard, programs: &WATCHED };
        let settings = Settings {
            shared_port: self.places > 1,
            place: self.place,
            places: self.places,
            changes_user: self.source.changes_user(),
            steering: config.steering.clone(),
            half_open: Some(self.share.half_open),
            spare: Some(self.share.spare),
            links: Some(self.share.links),
            allow: self.shm_allow.clone(),
            link: self.rdma,
            passed: self.passed.clone(),
            outage: self.outage.clone(),
            ..Settings::new(config.limits(SEND_QUEUE), seed, self.clock.now())
        };
        let at = self.fabric.of_shard(self.place);
        let at = at.map_err(ServeError::Address)?;
        let shard = &self;
        at.visit(ShardStart { shard, at: &at, settings, config, gateway, notes, control, ready })
    }

    /// RDMA connections at a time: only iWARP's, over TCP, take descriptors.
    fn connections(&self) -> usize {
        if self.fabric.info().is_over_tcp { self.share.connections } else { self.sizes.connections }
    }

    /// READs that wait for the disk with a buffer.
    pub(super) fn ring_reads(&self) -> u16 {
        let [_, _, large] = self.sizes.slots;
        u16::try_from(RING_READS.min(large / 4).max(1)).unwrap_or(u16::MAX)
    }

    const fn short(&self, error: io::Error) -> ServeError {
        ServeError::Memory { index: self.index, error }
    }

    /// Listens for TCP callers, on the socket passed for the address if there is one.
    fn listen_tcp<P: Fabric, S: Store>(
        &self,
        shard: &mut Shard<P, Logged<Gateway<S>>>,
        at: SocketAddr,
    ) -> Result<SocketAddr, ServeError> {
        let listening = match self.passed.at(at) {
            Some(passed) => passed.and_then(|socket| shard.listen_tcp_by(socket)),
            None => shard.listen_tcp(at, self.places > 1),
        };
        listening.map_err(|error| {
            let (at, fault) = (at.to_string(), FabricFault::from(&error));
            ServeError::Listen { at, over: Over::Tcp, fault }
        })
    }

    /// A listening shard, and its report without the store's part.
    fn build<P: Fabric, S: Store>(
        &self,
        fabric: P,
        gateway: Gateway<S>,
        config: Config,
        at: &[P::Address],
    ) -> Result<Built<P, S>, ServeError> {
        let (receives, streams) = (config.receives, config.streams);
        let duplicates = gateway.duplicates();
        let states = gateway.state_desk();
        let pool = gateway.store().pool().cloned();
        let admission = (self.admission)(Over::Fabric);
        let app = Logged::new(gateway, P::SCHEME, self.tells_stages);
        let mut shard =
            Shard::new(fabric, app, config, admission).map_err(|error| self.short(error))?;
        shard.admit_streams_by((self.admission)(Over::Tcp));
        if let Some(pool) = &pool {
            shard.register(pool).map_err(|error| self.short(error))?;
        }
        let mut listen = Vec::with_capacity(at.len());
        for at in at {
            let found = shard.listen(at).map_err(|fault| ServeError::Listen {
                at: at.to_string(),
                over: Over::Fabric,
                fault,
            })?;
            listen.push(P::any(found));
        }
        let tcp = self.tcp.map(|at| self.listen_tcp(&mut shard, at)).transpose()?;
        let started = Started {
            fabric: FabricGroup::all(listen)
                .pop()
                .expect("a shard listens at one address at least"),
            device: shard.provider().device_name().map(str::to_owned),
            notices: shard.provider().notices(),
            tcp,
            budgets: shard.budgets(),
            connections: shard.provider().limits().connections,
            receives,
            grant: shard.grant_max(),
            streams,
            duplicates,
            states,
            memory: None,
            copied: None,
            ring_fault: None,
            is_beside_helpers: false,
        };
        Ok((shard, started))
    }
}

/// Selects a caller's shard, among this number, by the caller's address.
fn steering(shards: u32) -> Steering {
    Steering::new(shards, place_of, |listener, shards| Ok(steer_by_source(listener, shards)?))
}

/// Facts about an open store.
#[derive(Debug, Default)]
pub(super) struct StoreNotes {
    pub memory: Option<Budget>,
    pub copied: Option<Copied>,
    pub ring_fault: Option<io::Error>,
    /// True if helpers execute calls on this shard's core: a spinning shard keeps them from it.
    pub is_beside_helpers: bool,
}

/// The start of a shard on the fabric of its addresses.
struct ShardStart<'a, S, R> {
    shard: &'a ServeShard,
    at: &'a FabricGroup,
    settings: Settings,
    config: Config,
    gateway: Gateway<S>,
    notes: StoreNotes,
    control: &'a Control<Snapshot<GatewayReport>>,
    ready: R,
}

impl<S: Store, R: FnOnce(Started)> FabricVisitor for ShardStart<'_, S, R> {
    type Output = Result<Snapshot<GatewayReport>, ServeError>;

    /// Builds the shard, reports that it is ready, and runs it until it is asked to stop.
    fn visit<P: Fabric>(self, _: P::Address) -> Self::Output {
        let Self { shard: plan, at, settings, config, gateway, notes, control, ready } = self;
        let at = P::only(at.addresses());
        let fabric = P::for_listening(settings, &at).map_err(|error| plan.short(error))?;
        let (mut shard, started) = plan.build(fabric, gateway, config, &at)?;
        let StoreNotes { memory, copied, ring_fault, is_beside_helpers } = notes;
        ready(Started { memory, copied, ring_fault, is_beside_helpers, ..started });
        let (clock, index) = (plan.clock, plan.index);
        shard
            .run(control, move || clock.now())
            .map_err(|error| ServeError::Stopped { index, why: error.to_string() })?;
        Ok(shard.snapshot())
    }
}
