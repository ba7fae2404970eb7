//! A generator with its shard, on one core.

mod tickets;

use crate::{
    generator::{Generator, SessionStep},
    latency::CallRecord,
    schedule::{Pace, RunSpan},
    stages::Stage,
    workload::{LoadFiles, Maker, Workload},
};
use stag_client::Error;
use stag_engine::{
    CallFault, Config, PeerId, Sampling, Shard, Stages, config::INLINE_LEN, tls::ClientTls,
};
use stag_protocol::{
    nfs::v4::Status4,
    rpc::{AuthSys, Gids},
    rpcrdma::{Version, Versions},
};
use stag_rpc::gss::{TcpCreation, Tickets};
use stag_verbs::{FabricFault, Limits, Provider, Time};
use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

/// Time that a core spins with nothing to do before it lets others run.
const SPIN: Duration = Duration::from_micros(50);

/// Octets of a protected message in addition to its item.
const AROUND_ITEM: usize = 1_024;

/// Pause before a server that asked for patience is asked again.
const PATIENCE: Duration = Duration::from_millis(100);

/// Settings of one load generator.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Workload that the generator calls.
    pub workload: Workload,
    /// Octets of payload of one call.
    pub len: usize,
    /// Connections of this generator.
    pub connections: usize,
    /// Calls outstanding on each, at most.
    pub depth: usize,
    /// Compare every octet of payload.
    pub verify: bool,
    /// Time allowed for the reply to one call, or for making a connection.
    pub timeout: Duration,
    /// Decides places, mixtures and XIDs.
    pub seed: u64,
    /// The user and group that AUTH_SYS names.
    pub user: (u32, u32),
    /// An export is named: NULL is that of NFS.
    pub is_nfs: bool,
    /// Files on the server that NFS workloads work on.
    pub files: Option<LoadFiles>,
    /// Versions of RPC-over-RDMA to call by.
    pub versions: Versions,
    /// TLS of connections over TCP.
    pub tls: Option<Arc<ClientTls>>,
    /// Selection of the calls that are watched from stage to stage.
    pub sampling: Sampling,
    /// A lost connection over a fabric is made again, and its calls wait for it.
    pub reconnects: bool,
    /// Octets of the longest reply without chunks.
    pub receive_len: usize,
    /// Tickets of Kerberos, by which calls of NFS are made instead of AUTH_SYS.
    pub tickets: Option<Tickets>,
    /// Contexts at most; connections above that share them.
    pub contexts_max: usize,
    /// Place of their creation over TCP, if the server refuses it over the connections.
    pub creation: Option<TcpCreation>,
}

impl LoadPlan {
    /// Calls of `workload` over one connection, `depth` at a time with `len` octets of payload,
    /// which are compared.
    pub fn new(workload: Workload, len: usize, depth: usize) -> Self {
        Self {
            workload,
            len,
            connections: 1,
            depth,
            verify: true,
            timeout: Duration::from_secs(30),
            seed: 1,
            user: (0, 0),
            is_nfs: false,
            files: None,
            versions: Versions::One,
            tls: None,
            sampling: Sampling::default(),
            reconnects: false,
            // Items of the echo program are about chunks, down to 4 KiB.
            receive_len: match workload.is_nfs() {
                true => INLINE_LEN,
                false => Config::default().receive_len,
            },
            tickets: None,
            contexts_max: 1,
            creation: None,
        }
    }

    /// The sizes of its shard.
    fn shard(&self) -> Config {
        let calls = self.connections * self.depth;
        let is_called = self.workload == Workload::Reverse;
        // Connections of a storm end for a while.
        let peers = self.connections * if self.workload == Workload::ConnStorm { 2 } else { 1 };
        let receives = calls + peers * 2 + 64;
        let Self { receive_len, .. } = *self;
        let depth = u32::try_from(self.depth).unwrap_or(u32::MAX);
        // Under protection an item is part of its message.
        let len = self.len + self.tickets.as_ref().map_or(0, |_| AROUND_ITEM);
        let (small, medium) = (calls * 4 + 64, if len > 1_024 { calls * 2 + 4 } else { 4 });
        let large = if len > 65_536 { calls * 2 + 2 } else { 2 };
        Config {
            call_versions: self.versions,
            call_tls: self.tls.clone(),
            calls_max: if is_called { 1 } else { depth },
            reverse_grant: if is_called { depth } else { 0 },
            receives,
            receive_len,
            inbound: receives,
            peers: peers + 1,
            outbound: calls + 4,
            slots: [small, medium, large],
            reserved_port: self.takes_reserved_ports(),
            xid_seed: self.seed as u32,
            ..Config::default()
        }
    }

    /// True if its connections come from ports below 1024. Those of a storm do not: there are too
    /// few.
    pub fn takes_reserved_ports(&self) -> bool {
        self.workload != Workload::ConnStorm && stag_client::takes_reserved_ports()
    }

    /// Returns the limits that the generator's fabric has to support.
    pub fn limits(&self) -> Limits {
        let shard = self.shard();
        Limits { windows: shard.outbound * 4, ..shard.limits((self.depth * 4).max(256)) }
    }

    fn maker(&self) -> Maker {
        let Self { workload, len, depth, verify, timeout, is_nfs, files, .. } = *self;
        let (uid, gid) = self.user;
        let (stamp, machine_name, gids) = (0, &b"stag-bench"[..], Gids::default());
        let user = AuthSys { stamp, machine_name, uid, gid, gids };
        let read = None;
        Maker { workload, len, depth, verify, user, timeout, is_nfs, files, read }.prepared()
    }
}

/// Destination of a connection.
#[derive(Clone, Debug)]
pub enum To<A> {
    /// Over the fabric.
    Fabric(A),
    /// By RPC over TCP.
    Tcp(SocketAddr),
}

/// A generator with its shard.
pub struct Load<P: Provider> {
    shard: Shard<P, Generator>,
    timeout: Duration,
    /// Connections to be made before the first call.
    connections: usize,
    /// Destination of the connections of a storm.
    to: Option<To<P::Address>>,
    /// Set by the first reply: the version in use, or none over TCP.
    spoken: Option<Option<Version>>,
    reconnects: bool,
    /// Tickets of which no context was made.
    tickets: Option<Tickets>,
    contexts_max: usize,
    creation: Option<TcpCreation>,
    is_version4: bool,
}

impl<P: Provider> fmt::Debug for Load<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").field("generator", self.shard.app()).finish_non_exhaustive()
    }
}

fn connect<P: Provider>(
    shard: &mut Shard<P, Generator>,
    to: &To<P::Address>,
) -> Result<PeerId, FabricFault> {
    match to {
        To::Fabric(at) => shard.connect(at),
        To::Tcp(at) => shard.connect_tcp(*at),
    }
}

impl<P: Provider> Load<P> {
    /// One that is not connected. Fails as `mmap(2)` and `epoll_create(2)` do.
    pub fn new(provider: P, plan: &LoadPlan) -> io::Result<Self> {
        let mut generator =
            Generator::new(plan.maker(), plan.seed, plan.connections, plan.sampling);
        if plan.workload.is_nfs4() {
            generator = generator.in_sessions(plan.connections);
        }
        if plan.reconnects {
            generator.keep_on();
        }
        let shard = Shard::new(provider, generator, plan.shard(), Box::new(|_| false))?;
        let connections = if plan.workload == Workload::ConnStorm { 0 } else { plan.connections };
        let (timeout, reconnects) = (plan.timeout, plan.reconnects);
        let (tickets, is_version4) = (plan.tickets.clone(), plan.workload.is_nfs4());
        let (to, spoken) = (None, None);
        let (contexts_max, creation) = (plan.contexts_max, plan.creation.clone());
        Ok(Self {
            shard,
            timeout,
            connections,
            to,
            spoken,
            reconnects,
            tickets,
            contexts_max,
            creation,
            is_version4,
        })
    }

    /// Begins to connect; passes have to be run until [`Load::is_connected`].
    ///
    /// # Errors
    /// As the fabric gives them.
    pub fn connect(&mut self, to: &To<P::Address>) -> Result<(), FabricFault> {
        for _ in 0..self.connections {
            let peer = match to {
                To::Fabric(at) if self.reconnects => self.shard.keep_connected(at)?,
                to => connect(&mut self.shard, to)?,
            };
            self.shard.with_app(|generator, _| generator.add_peer(peer));
        }
        self.to = (self.connections == 0).then(|| to.clone());
        Ok(())
    }

    /// Makes the connections that the generator wants.
    fn connect_wanted(&mut self) {
        let Some(to) = &self.to else { return };
        while let Some(index) = self.shard.with_app(|generator, _| generator.next_connection()) {
            let peer = connect(&mut self.shard, to);
            self.shard.with_app(|generator, _| generator.note_connection(index, peer));
        }
    }

    /// Returns true once all connections are established.
    ///
    /// # Errors
    /// [`Error::NotConnected`] when one cannot be made.
    pub fn is_connected(&self) -> Result<bool, Error> {
        match self.shard.app().connected() {
            (_, Some(cause)) => Err(Error::NotConnected(Some(cause))),
            (up, None) => Ok(up >= self.connections),
        }
    }

    /// Connects, and waits until all connections are established, or `stop` says so.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`], [`Error::NotConnected`] and, when it takes too long or is
    /// stopped, [`Error::Call`].
    pub fn meet(
        &mut self,
        to: &To<P::Address>,
        now: impl Fn() -> Time,
        stop: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.connect(to).map_err(Error::Fabric)?;
        self.pass_until(&now, &stop, |load| Ok(load.is_connected()?.then_some(())))
    }

    /// Makes a session of NFS version 4.1 for every connection, if the workload needs one; `run` is
    /// a unique name of the run. A server that asks for patience is asked again.
    ///
    /// # Errors
    /// When one cannot be made, in the time that a call may take, or is stopped.
    pub fn begin_sessions(
        &mut self,
        run: [u8; 16],
        now: impl Fn() -> Time,
        stop: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.with_generator(|generator| generator.name_sessions(run));
        let begun = (0..self.generator().sessions()).try_for_each(|connection| {
            let mut steps = SessionStep::BEGIN.into_iter();
            steps.try_for_each(|step| self.session_step(connection, step, &now, &stop))
        });
        if begun.is_err() {
            // Sessions that remain end with their lease.
            let _ = self.end_sessions(now, stop);
        }
        begun
    }

    /// Ends the sessions, and leaves nothing at the server.
    ///
    /// # Errors
    /// The first failure: then the leases end the others.
    pub fn end_sessions(
        &mut self,
        now: impl Fn() -> Time,
        stop: impl Fn() -> bool,
    ) -> Result<(), Error> {
        for connection in 0..self.generator().sessions() {
            for step in SessionStep::END {
                self.session_step(connection, step, &now, &stop)?;
            }
        }
        Ok(())
    }

    fn session_step(
        &mut self,
        connection: usize,
        step: SessionStep,
        now: &impl Fn() -> Time,
        stop: &impl Fn() -> bool,
    ) -> Result<(), Error> {
        let began = now();
        loop {
            let is_asked = self
                .shard
                .with_app(|generator, cx| generator.begin_session_step(cx, connection, step))?;
            if !is_asked {
                return Ok(());
            }
            let take = |load: &mut Self| Ok(load.with_generator(Generator::take_session_step));
            match self.pass_until(now, stop, take)? {
                // RFC 8881 §8.4.2.1: opens wait for the end of a server's grace period.
                Err(Error::Nfs4(Status4::Grace | Status4::Delay))
                    if now().since(began) < self.timeout =>
                {
                    let asked = now();
                    self.pass_until(now, stop, |_| {
                        Ok((now().since(asked) > PATIENCE).then_some(()))
                    })?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Runs passes until `done` returns something, for no longer than a call may take.
    fn pass_until<T>(
        &mut self,
        now: &impl Fn() -> Time,
        stop: &impl Fn() -> bool,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let began = now();
        loop {
            if let Some(done) = done(self)? {
                return Ok(done);
            }
            let time = now();
            if !self.shard.pass(time) {
                std::thread::yield_now();
            }
            if time.since(began) > self.timeout {
                return Err(Error::Call(CallFault::TimedOut));
            }
            if stop() {
                return Err(Error::Call(CallFault::Cancelled));
            }
        }
    }

    /// Asks the shards at the other end of every connection, one after the other, for the time of
    /// calls in each stage.
    ///
    /// # Errors
    /// When one does not report it, does not answer in time, or is stopped.
    pub fn ask_stages(
        &mut self,
        now: impl Fn() -> Time,
        stop: impl Fn() -> bool,
    ) -> Result<Vec<Stages>, Error> {
        let mut said = Vec::with_capacity(self.connections);
        for place in 0..self.connections {
            self.ask_one(place)?;
            said.push(self.pass_until(&now, &stop, |load| load.told().transpose())?);
        }
        Ok(said)
    }

    /// Asks over connection `place`; passes have to be run until [`Load::told`] has the answer.
    ///
    /// # Errors
    /// [`Error::NoMemory`], and [`Error::NotConnected`] without such a connection.
    pub fn ask_one(&mut self, place: usize) -> Result<(), Error> {
        self.shard.with_app(|generator, cx| generator.ask_stages(cx, place))
    }

    /// Takes the stages reported by the server that [`Load::ask_one`] asked; the answer is returned
    /// once.
    pub fn told(&mut self) -> Option<Result<Stages, Error>> {
        self.with_generator(Generator::told)
    }

    /// From here on [`Load::step`] makes calls.
    pub fn begin(&mut self, now: Time, pace: Pace, span: RunSpan) {
        self.shard.with_app(|generator, _| generator.begin(now, pace, span));
    }

    /// One turn: records finished calls, makes due ones, and runs one pass. True when there was
    /// something to do.
    pub fn step(&mut self, now: Time) -> bool {
        let turned = self.shard.with_app_at(now, |generator, cx| generator.turn(cx, now));
        self.connect_wanted();
        let is_watched = self.shard.app().has_begun();
        if is_watched {
            self.with_generator(|generator| generator.stamp_begun(Stage::Emit, now));
        }
        let passed = self.shard.pass(now);
        if is_watched {
            self.with_generator(|generator| generator.stamp_begun(Stage::Send, now));
        }
        // While the peer that replied still has its connection.
        if self.spoken.is_none()
            && let Some(peer) = self.shard.app().heard()
        {
            self.spoken = Some(self.shard.version(peer));
        }
        passed | turned
    }

    /// The version of RPC-over-RDMA in use; none over TCP, and before the first reply.
    pub fn version(&self) -> Option<u32> {
        self.spoken.flatten().map(Version::number)
    }

    /// Runs until every call is over; once `stop` says so, no more are made. `keep` gets each
    /// second when it is over, and may return memory.
    pub fn run(
        &mut self,
        now: impl Fn() -> Time,
        stop: impl Fn() -> bool,
        mut keep: impl FnMut(u64, CallRecord) -> Option<CallRecord>,
    ) {
        let (mut busy_at, mut is_stopped) = (now(), false);
        while !self.shard.app().is_over() {
            let time = now();
            if !is_stopped && stop() {
                is_stopped = true;
                self.with_generator(|generator| generator.stop(time));
            }
            if self.step(time) {
                busy_at = time;
            } else if time.since(busy_at) < SPIN || self.is_due_soon(time) {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            self.shard.with_app(|generator, _| {
                while let Some((number, record)) = generator.take_second() {
                    if let Some(record) = keep(number, record) {
                        generator.give(record);
                    }
                }
            });
        }
        let (number, rest) = self.shard.with_app(|generator, _| generator.take_rest());
        keep(number, rest);
    }

    fn is_due_soon(&self, now: Time) -> bool {
        self.shard.app().wake_at().is_some_and(|due| due.since(now) < SPIN)
    }

    /// The generator.
    pub const fn generator(&self) -> &Generator {
        self.shard.app()
    }

    /// The generator, to take what it measured.
    pub fn with_generator<R>(&mut self, run: impl FnOnce(&mut Generator) -> R) -> R {
        self.shard.with_app(|generator, _| run(generator))
    }

    /// The shard.
    pub const fn shard(&self) -> &Shard<P, Generator> {
        &self.shard
    }
}
