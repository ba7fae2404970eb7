//! One shard on its core: it is built there, says what it is made of, runs until it is told to stop, and leaves its counters.

use super::{
    plan::{Plan, plain},
    watch::Logged,
};
use crate::{Error, admission::Clients, caller::aside, descriptors::Share};
use rustix::rand::{GetRandomFlags, getrandom};
use stag_engine::{Config, Over, Sampling, Shard, clock::Clock, control::Control, stats::Snapshot};
use stag_fabrics::{Fabric, FabricGroup, FabricVisitor, Settings};
use stag_nfs::{
    Gateway, Report,
    drc::{self, Branch},
    helpers::Helpers,
    state::StartError,
    store::{
        Store,
        files::{Files, Late, Ring, Shared},
        memory::{self, Memory},
    },
};
use stag_pools::Budget;
use stag_protocol::rpcrdma::Versions;
use stag_verbs::FabricFault;
use std::{fmt::Display, io, net::SocketAddr, os::fd::AsFd, sync::Arc};

/// RDMA connections of one shard, if its descriptors allow as many.
pub const CONNECTIONS: usize = 1_024;
/// Its TCP connections.
pub const STREAMS: usize = 1_024;
/// Receives of one shard: one call at a time for each connection, and many for those that use them.
const RECEIVES: usize = 4_160;
const _: () = assert!(RECEIVES > 2 * CONNECTIONS);
/// Calls over TCP at a time.
const STREAM_CALLS: usize = 1_024;
/// Calls of ours: a gateway makes none.
const OUTBOUND: usize = 16;
/// Work requests of one connection: the pushes and replies of all its calls.
const SEND_QUEUE: usize = 256;
/// READs that wait for the disk with a buffer of theirs: at most a quarter of the large ones. Helpers bring the rest.
const RING_READS: u16 = 48;

/// What a shard's store is made of.
#[derive(Clone, Debug)]
pub enum Source {
    /// Directories, which all shards serve.
    Files(Arc<Shared>),
    /// Memory, which one shard has.
    Memory(memory::Config),
}

/// Where a shard runs, and what it is built from.
pub struct Seat {
    /// Among all shards.
    pub index: usize,
    /// Among those of its fabric.
    pub place: usize,
    pub fabric: FabricGroup,
    pub shm_allow: Vec<u32>,
    pub tcp: Option<SocketAddr>,
    /// Other shards listen at the same addresses.
    pub is_shared: bool,
    pub clients: Clients,
    /// Its part of the process' descriptors.
    pub share: Share,
    /// Tell clients while they connect what they may send.
    pub private_data: bool,
    /// Versions of RPC-over-RDMA.
    pub versions: Versions,
    /// One call in so many is watched from stage to stage.
    pub sample: u32,
    /// Whoever asks is told how long calls take.
    pub tells_stages: bool,
    pub source: Source,
    /// Its part of the duplicate request cache.
    pub branch: Branch,
    /// Its way to the helpers, if its store has any.
    pub helpers: Option<Helpers>,
    pub clock: Clock,
}

/// What a shard says of itself once it is ready.
#[derive(Debug)]
pub struct Started {
    /// The addresses in use.
    pub fabric: FabricGroup,
    pub tcp: Option<SocketAddr>,
    pub budgets: [Budget; 2],
    /// RDMA connections at a time, receives, and how many of them one connection gets.
    pub connections: usize,
    pub receives: usize,
    pub grant: u32,
    /// TCP connections at a time.
    pub streams: usize,
    pub duplicates: drc::Budget,
    /// What a store in memory takes.
    pub memory: Option<Budget>,
}

/// The sizes of a server's shard. Grants follow use, from receives that all connections share (DESIGN D8).
fn config(xid_seed: u32) -> Config {
    let config = Config { peers: CONNECTIONS, ..Config::default() };
    let receives = RECEIVES;
    Config { receives, inbound: receives + STREAM_CALLS, outbound: OUTBOUND, xid_seed, ..config }
}

/// Octets of the buffers of one shard.
pub fn shard_buffers() -> usize {
    config(0).octets()
}

/// A shard, and what it says of itself.
type Built<P, S> = (Shard<P, Logged<Gateway<S>>>, Started);

impl Seat {
    /// The seat of shard `index` in `plan`, at these addresses.
    pub fn new(
        plan: &Plan,
        (index, place): (usize, usize),
        (fabric, tcp): (&FabricGroup, Option<SocketAddr>),
        (source, branch, helpers): (&Source, Branch, Option<Helpers>),
        clock: Clock,
    ) -> Self {
        Self {
            index,
            place,
            fabric: fabric.clone(),
            shm_allow: plan.shm_allow.clone(),
            tcp,
            is_shared: plan.cores > 1,
            clients: plan.clients.clone(),
            share: plan.share,
            private_data: plan.private_data,
            versions: plan.versions,
            sample: plan.sample,
            tells_stages: plan.tells_stages,
            source: source.clone(),
            branch,
            helpers,
            clock,
        }
    }

    /// Builds the shard, calls `ready`, and runs until it is told to stop.
    pub fn run(
        mut self,
        control: &Control<Snapshot<Report>>,
        ready: impl FnOnce(Started),
    ) -> Result<Snapshot<Report>, Error> {
        let cannot = |error: StartError| Error::usage(error.to_string());
        match self.source.clone() {
            Source::Files(shared) => {
                let mut files = Files::open(&shared, self.index).map_err(cannot)?;
                if let Some(helpers) = self.helpers.take() {
                    files = files.with_helpers(helpers);
                }
                if let Some(ring) = self.ring(control.waker()) {
                    files = files.with_ring(ring);
                }
                self.run_with((files, None), control, ready)
            }
            Source::Memory(config) => {
                let config = memory::Config { shared: self.fabric.is_trusting(), ..config };
                let mut copied = (0, 0, 0);
                let mut progress = |at: &memory::Progress<'_>| copied = (at.objects, at.octets, at.left_out);
                let memory = Memory::new(&config, &mut progress).map_err(cannot)?;
                if let (objects @ 1.., octets, left_out) = copied {
                    aside(format!(
                        "copied {objects} objects, {octets} octets of files; left out: {left_out}\n"
                    ));
                }
                let budget = memory.budget();
                self.run_with((memory, Some(budget)), control, ready)
            }
        }
    }

    /// What brings READs from the disk, made by the thread that uses it. Where the system has none, helpers do.
    fn ring(&self, bell: impl AsFd) -> Option<Ring<Late>> {
        match Ring::new(RING_READS, bell) {
            Ok(ring) => Some(ring),
            Err(error) => {
                // Once for all shards.
                if self.index == 0 {
                    aside(without_ring(&error) + "\n");
                }
                None
            }
        }
    }

    fn run_with<S: Store>(
        mut self,
        (store, memory): (S, Option<Budget>),
        control: &Control<Snapshot<Report>>,
        ready: impl FnOnce(Started),
    ) -> Result<Snapshot<Report>, Error> {
        let branch = std::mem::replace(&mut self.branch, Branch::alone());
        let gateway = Gateway::new(store).with_duplicates(branch, drc::REPLIES);
        let mut random = [0; 36];
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|error| Error::failure(format!("the system gives no random numbers: {error}")))?;
        let (seed, xid_seed) = (random.first_chunk::<32>(), random.last_chunk::<4>());
        let seed = *seed.expect("36 octets hold 32");
        let mut config = config(u32::from_ne_bytes(*xid_seed.expect("36 octets hold 4")));
        (config.private_data, config.serve_versions) = (self.private_data, self.versions);
        (config.peers, config.streams) = (self.connections(), self.share.streams.max(1));
        let shard = u32::try_from(self.index).unwrap_or(u32::MAX);
        config.sampling = Sampling { every: self.sample, clock: Some(self.clock), shard };
        let settings = Settings {
            shared_port: self.is_shared,
            half_open: Some(self.share.half_open),
            spare: Some(self.share.spare),
            links: Some(self.share.links),
            allow: self.shm_allow.clone(),
            ..Settings::new(config.limits(SEND_QUEUE), seed, self.clock.now())
        };
        let at = self.fabric.of_shard(self.place);
        let at = at.map_err(|why| Error::usage(format!("--listen: {why}")))?;
        let seat = &self;
        at.visit(Start { seat, at: &at, settings, config, gateway, memory, control, ready })
    }

    /// RDMA connections at a time: only those over TCP take descriptors.
    fn connections(&self) -> usize {
        if self.fabric.info().is_over_tcp { self.share.connections } else { CONNECTIONS }
    }

    fn short(&self, error: &io::Error) -> Error {
        Error::failure(format!("shard {} cannot get its memory and descriptors: {error}", self.index))
    }

    /// A shard that listens; and what it says of itself, but for the store.
    fn build<P: Fabric, S: Store>(
        &self,
        (fabric, gateway, config): (P, Gateway<S>, Config),
        at: &[P::Address],
    ) -> Result<Built<P, S>, Error> {
        let (receives, grant, streams) = (config.receives, config.grant, config.streams);
        let duplicates = gateway.duplicates();
        let pool = gateway.store().pool().cloned();
        let admission = self.clients.clone().admission(Over::Fabric);
        let app = Logged::new(gateway, P::SCHEME, self.tells_stages);
        let mut shard = Shard::new(fabric, app, config, admission).map_err(|error| self.short(&error))?;
        shard.admit_streams_by(self.clients.clone().admission(Over::Tcp));
        if let Some(pool) = &pool {
            shard.register(pool).map_err(|error| self.short(&error))?;
        }
        let mut listen = Vec::with_capacity(at.len());
        for at in at {
            let found = shard.listen(at).map_err(|fault| cannot_listen(at, fault, "--listen"))?;
            listen.push(P::any(found));
        }
        let tcp = match self.tcp {
            Some(at) => Some(
                shard
                    .listen_tcp(at, self.is_shared)
                    .map_err(|error| cannot_listen(&at, FabricFault::from(&error), "--tcp"))?,
            ),
            None => None,
        };
        let started = Started {
            fabric: FabricGroup::all(listen).pop().expect("a shard listens at one address at least"),
            tcp,
            budgets: shard.budgets(),
            connections: shard.provider().limits().connections,
            receives,
            grant,
            streams,
            duplicates,
            memory: None,
        };
        Ok((shard, started))
    }
}

/// The start of a shard on the fabric of its addresses.
struct Start<'a, S, R> {
    seat: &'a Seat,
    at: &'a FabricGroup,
    settings: Settings,
    config: Config,
    gateway: Gateway<S>,
    /// The memory of the store.
    memory: Option<Budget>,
    control: &'a Control<Snapshot<Report>>,
    ready: R,
}

impl<S: Store, R: FnOnce(Started)> FabricVisitor for Start<'_, S, R> {
    type Output = Result<Snapshot<Report>, Error>;

    /// Builds the shard, says that it is ready, and runs it until it is told to stop.
    fn visit<P: Fabric>(self, _: P::Address) -> Self::Output {
        let Self { seat, at, settings, config, gateway, memory, control, ready } = self;
        let at = P::only(at.addresses());
        let fabric = P::for_listening(settings, &at).map_err(|error| seat.short(&error))?;
        let (mut shard, started) = seat.build((fabric, gateway, config), &at)?;
        ready(Started { memory, ..started });
        let clock = seat.clock;
        shard
            .run(control, move || clock.now())
            .map_err(|error| Error::failure(format!("shard {} stopped: {error}", seat.index)))?;
        Ok(shard.snapshot())
    }
}

/// What is said when there is no io_uring.
fn without_ring(error: &std::io::Error) -> String {
    format!("READs from the disk are brought by threads: no io_uring ({}; it needs Linux 6.1)", plain(error))
}

/// Why an address cannot be used, and what to do about it.
pub fn cannot_listen(at: &impl Display, fault: FabricFault, flag: &str) -> Error {
    let why = match fault {
        FabricFault::AddressInUse => {
            format!("another program uses it; stop that one, or choose another address with {flag}")
        }
        FabricFault::BadAddress => format!("it is no address of this host; choose another with {flag}"),
        FabricFault::Denied => {
            format!("ports below 1024 need a privilege; choose another with {flag}, or run as root")
        }
        FabricFault::Os(number) => plain(&std::io::Error::from_raw_os_error(number)),
        other => other.to_string(),
    };
    Error::usage(format!("cannot listen at {at}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_wait_for_the_disk_leave_large_buffers_to_others() {
        assert!(usize::from(RING_READS) * 4 <= config(0).slots[2]);
    }

    #[test]
    fn a_system_without_io_uring_is_told_of_in_one_line() {
        let text = without_ring(&std::io::Error::from_raw_os_error(38));
        assert_eq!(
            text,
            "READs from the disk are brought by threads: no io_uring (function not implemented; it needs Linux 6.1)"
        );
    }
}
