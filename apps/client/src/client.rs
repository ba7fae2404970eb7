//! NFS client: calls of NFS and its companion protocols over a [`RawClient`], one by one, or
//! several at a time.

use crate::{patience::Patience, reconnect::Reconnect};
use stag_protocol::{
    nfs::{acl, mount, v3, v4::Status4},
    rpc::{Accepted, AuthSys, Credential, Denied, Gids, gss::GssService},
    xdr::{self, Reader, Writer},
};
use stag_rpc::{
    AnyProvider, CallError, CallFault, Cause, Clock, Config, ConnectFault, Endpoint, FabricAddress,
    FabricFault, FinishedCall, Health, INLINE_LEN, Limits, OptionFault, Provider, RawCall,
    RawClient, Recovery, SetupError, Snapshot, Time, Token,
    gss::{ContextSource, TcpCreation, UnprovenReply},
};
use std::{cell::RefCell, collections::VecDeque, fmt, net::SocketAddr, rc::Rc, time::Duration};

/// Octets of the longest arguments without their item: an access control list.
const ARGUMENTS_LEN_MAX: usize = acl::ARGUMENTS_LEN_MAX;
const _: () = assert!(ARGUMENTS_LEN_MAX > 2 * (4 + v3::Name::MAX) + 2 * (4 + v3::FileHandle::MAX));

/// Why a call gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no connection; it was never there, or ended with this cause.
    NotConnected(Option<Cause>),
    /// The fabric could not even try to connect.
    Fabric(FabricFault),
    /// The call has no reply.
    Call(CallFault),
    /// The server accepted the call but did not run the procedure.
    Rejected(Accepted),
    /// The server does not believe the caller.
    Denied(Denied),
    /// The reply cannot be decoded.
    Garbled(xdr::Error),
    /// The arguments are longer than a call of ours.
    TooLong,
    /// The reply contradicts the call, or itself.
    Nonsense(&'static str),
    /// A listing of a directory has another number of names than the directory.
    Listed {
        /// Names that came.
        names: u32,
        /// Names in the directory.
        instead_of: u32,
    },
    /// NFS says no.
    Nfs(v3::Status),
    /// NFS says no, by a status that version 4 alone has.
    Nfs4(Status4),
    /// MOUNT says no.
    Mount(mount::Status),
    /// Our own memory for the call is short.
    NoMemory,
    /// The reply does not have the protection that its call asked for.
    Unproven(UnprovenReply),
    /// There is no context of RPCSEC_GSS with the server.
    NoContext,
    /// The server does not say how it is.
    Health(OptionFault),
}

impl Error {
    /// Returns true if later calls cannot succeed either.
    pub const fn is_fatal(self) -> bool {
        matches!(self, Self::NotConnected(_) | Self::Fabric(_) | Self::Call(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected(None) => f.write_str("not connected"),
            Self::NotConnected(Some(cause)) => write!(f, "not connected: {cause}"),
            Self::Fabric(fault) => fault.fmt(f),
            Self::Call(fault) => fault.fmt(f),
            Self::Rejected(status) => CallError::Rejected(*status).fmt(f),
            Self::Denied(denied) => CallError::Denied(*denied).fmt(f),
            Self::Garbled(error) => CallError::Garbled(*error).fmt(f),
            Self::TooLong => CallError::TooLong.fmt(f),
            Self::Nonsense(what) => f.write_str(what),
            Self::Listed { names, instead_of } => {
                write!(f, "the listing has {names} names instead of {instead_of}")
            }
            Self::Nfs(status) => write!(f, "{status} ({status:?})"),
            Self::Nfs4(status) => write!(f, "NFS version 4 failed ({status:?})"),
            Self::Mount(status) => write!(f, "MOUNT failed ({status:?})"),
            Self::NoMemory => f.write_str("our own memory for the call is short"),
            Self::Unproven(fault) => CallError::Unproven(*fault).fmt(f),
            Self::NoContext => CallError::NoContext.fmt(f),
            Self::Health(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<v3::Status> for Error {
    fn from(status: v3::Status) -> Self {
        Self::Nfs(status)
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(fault) => Self::Call(fault),
            CallError::Rejected(status) => Self::Rejected(status),
            CallError::Denied(denied) => Self::Denied(denied),
            CallError::Garbled(error) => Self::Garbled(error),
            CallError::TooLong => Self::TooLong,
            CallError::Unproven(fault) => Self::Unproven(fault),
            CallError::NoContext => Self::NoContext,
        }
    }
}

impl From<ConnectFault> for Error {
    fn from(fault: ConnectFault) -> Self {
        match fault {
            ConnectFault::Fabric(fault) => Self::Fabric(fault),
            ConnectFault::Ended(cause) => Self::NotConnected(Some(cause)),
            ConnectFault::TimedOut => Self::Call(CallFault::TimedOut),
        }
    }
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The sizes of its shard.
    pub shard: Config,
    /// Time allowed for the reply to one call, or for making a connection.
    pub timeout: Duration,
    /// The user and group that AUTH_SYS names.
    pub user: (u32, u32),
}

impl ClientConfig {
    /// A client with one connection and few calls, that calls as the user of this process.
    /// `xid_seed` should differ from run to run: a server may remember XIDs.
    pub fn new(xid_seed: u32) -> Self {
        let shard = Config {
            calls_max: 16,
            receives: 64,
            receive_len: INLINE_LEN,
            peers: 2,
            inbound: 64,
            outbound: 16,
            slots: [128, 8, 8],
            reserved_port: crate::takes_reserved_ports(),
            xid_seed,
            ..Config::default()
        };
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { shard, timeout: Duration::from_secs(30), user }
    }

    /// The same with `depth` READs or WRITEs of the largest size at a time.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        let calls = depth.max(8) * 2;
        let [messages, _, _] = self.shard.slots;
        self.shard.slots = [messages.max(calls * 4), calls, calls];
        self.shard.calls_max = u32::try_from(calls).unwrap_or(u32::MAX);
        self.shard.outbound = calls;
        self.shard.receives = calls * 4;
        self.shard.inbound = calls * 4;
        self
    }

    /// Returns the limits that a provider has to support for such a client.
    pub fn limits(&self) -> Limits {
        self.shard.limits(256)
    }
}

/// One connection to a server, and calls on it.
pub struct NfsClient<P: Provider = AnyProvider> {
    raw: RawClient<P>,
    user: (u32, u32),
    /// The arguments that are being written, so that the call takes a buffer of their length.
    scratch: Vec<u8>,
    pub(crate) reconnect: Reconnect,
    pub(crate) patience: Patience,
    /// The session of version 4 that calls are made in; none while they are made by version 3.
    pub(crate) four: Option<crate::nfs4::Session4>,
    /// The back channels of other clients of version 4, once there was one.
    pub(crate) back: Option<Rc<RefCell<crate::nfs4::BackChannels>>>,
    /// True while outcomes of other calls are kept.
    pub(crate) keeps_outcomes: bool,
    pub(crate) kept: VecDeque<FinishedCall>,
}

impl<P: Provider> fmt::Debug for NfsClient<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NfsClient").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl NfsClient {
    /// A client on the fabric of `at`, which calls over TCP too, and its clock. It is not
    /// connected. It has its own XIDs; those of `config` are ignored.
    ///
    /// # Errors
    /// The sizes of `config` contradict each other, and as `getrandom(2)`, `mmap(2)` and
    /// `epoll_create(2)` fail.
    pub fn on_fabric(
        at: Option<&FabricAddress>,
        config: ClientConfig,
    ) -> Result<(Self, Clock), SetupError> {
        let ClientConfig { shard, timeout, user: (uid, gid) } = config;
        let clock = Clock::start();
        let raw = RawClient::on_fabric(at, shard, clock, timeout)?;
        Ok((Self::over(raw, uid, gid), clock))
    }

    /// Connects to `to`, and again whenever the connection is lost
    /// ([`NfsClient::keep_connected`], [`NfsClient::keep_connected_tcp`]).
    ///
    /// # Errors
    /// As [`NfsClient::connect`].
    pub fn reach(&mut self, to: &Endpoint) -> Result<(), Error> {
        match to {
            Endpoint::Fabric(at) => self.keep_connected(at),
            Endpoint::Tcp(at) => self.keep_connected_tcp(*at),
        }
    }
}

impl<P: Provider> NfsClient<P> {
    /// A client that is not connected. `now` is the clock, read once per pass; a test runs the
    /// passes of its server in it.
    ///
    /// # Errors
    /// The fabric cannot hold what `config` promises, and as `mmap(2)` and `epoll_create(2)` fail.
    pub fn new(
        provider: P,
        config: ClientConfig,
        now: impl FnMut() -> Time + 'static,
    ) -> Result<Self, SetupError> {
        let raw = RawClient::new(provider, config.shard, config.timeout, now)?;
        let (uid, gid) = config.user;
        Ok(Self::over(raw, uid, gid))
    }

    /// A client that calls as this user, over `raw`.
    fn over(raw: RawClient<P>, uid: u32, gid: u32) -> Self {
        let scratch = vec![0; ARGUMENTS_LEN_MAX];
        let reconnect = Reconnect::default();
        let kept = VecDeque::new();
        let user = (uid, gid);
        let patience = Patience::default();
        Self {
            raw,
            user,
            scratch,
            reconnect,
            patience,
            four: None,
            back: None,
            keeps_outcomes: false,
            kept,
        }
    }

    /// Connects, and waits until calls can be made. An earlier connection is closed first.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`] and [`Error::NotConnected`] with the cause; [`Error::Call`] when
    /// it takes too long.
    pub fn connect(&mut self, to: &P::Address) -> Result<(), Error> {
        self.reconnect.forget();
        Ok(self.raw.connect(to)?)
    }

    /// Connects as [`NfsClient::connect`] does, and again whenever the connection is lost: calls
    /// without a reply go out again with the same XID, until their time is over. The first
    /// connection has to succeed at once.
    ///
    /// # Errors
    /// As [`NfsClient::connect`].
    pub fn keep_connected(&mut self, to: &P::Address) -> Result<(), Error> {
        self.reconnect.forget();
        Ok(self.raw.keep_connected(to)?)
    }

    /// Connects over TCP (RFC 5531 §11), once: items travel inline. An earlier connection is closed
    /// first.
    ///
    /// # Errors
    /// As [`NfsClient::connect`].
    pub fn connect_tcp(&mut self, to: SocketAddr) -> Result<(), Error> {
        self.reconnect.forget();
        Ok(self.raw.connect_tcp(to)?)
    }

    /// Disconnects in order, and waits for it. A session of version 4 ends first.
    pub fn disconnect(&mut self) {
        self.end_version4();
        self.reconnect.forget();
        self.raw.disconnect();
    }

    /// The underlying client: its connection, its counters and its time.
    pub const fn raw(&self) -> &RawClient<P> {
        &self.raw
    }

    pub(crate) const fn raw_mut(&mut self) -> &mut RawClient<P> {
        &mut self.raw
    }

    /// Makes calls of NFS in contexts of RPCSEC_GSS from now on, with this protection. Those of
    /// MOUNT keep AUTH_SYS.
    pub fn protect(&mut self, source: Box<dyn ContextSource>, service: GssService) {
        self.raw.protect(source, service);
    }

    /// Lets contexts be created at this place if the server refuses that over RDMA.
    pub fn create_contexts_at(&mut self, tcp: Option<TcpCreation>) {
        self.raw.create_contexts_at(tcp);
    }

    /// Lets calls, and connections, take no longer than `timeout` from now on.
    pub fn limit_timeout(&mut self, timeout: Duration) {
        self.raw.limit_timeout(timeout);
    }

    /// The version of RPC-over-RDMA that the connection keeps to; none over TCP, and before the
    /// first reply.
    pub fn version(&self) -> Option<u32> {
        self.raw.version()
    }

    /// Requests the server's health.
    ///
    /// # Errors
    /// [`Error::Health`], and [`Error::NotConnected`].
    pub fn health(&mut self) -> Result<Health, Error> {
        if !self.raw.has_peer() {
            return Err(Error::NotConnected(self.raw.cause()));
        }
        self.raw.health().map_err(Error::Health)
    }

    /// Returns the number of losses of the connection, and the course of the last recovery.
    pub fn recovery(&self) -> Recovery {
        self.raw.recovery()
    }

    /// Calls made so far.
    pub const fn calls(&self) -> u64 {
        self.raw.calls()
    }

    /// The shard's counters; its app counts calls of the server.
    pub fn snapshot(&self) -> Snapshot<u64> {
        self.raw.snapshot()
    }

    /// The time, as the shard sees it.
    pub fn now(&mut self) -> Time {
        self.raw.now()
    }

    /// Makes a call and gives its results to `read`: `emit` writes the arguments, `read` takes the
    /// results. Over a TCP connection with reconnection, a call without a reply is made again.
    pub(crate) fn call<T>(
        &mut self,
        call: &RawCall<'_>,
        emit: impl Fn(&mut Writer<'_>) -> Result<(), xdr::NoRoom>,
        read: impl FnOnce(Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut read = Some(read);
        loop {
            let called = self.call_once(call, &emit, |results| {
                read.take()
                    .map_or(Err(Error::Nonsense("two replies to one call")), |read| read(results))
            });
            match called {
                Err(error) if read.is_some() && self.recovers(error) => {}
                called => return called,
            }
        }
    }

    fn call_once<T>(
        &mut self,
        call: &RawCall<'_>,
        emit: impl Fn(&mut Writer<'_>) -> Result<(), xdr::NoRoom>,
        read: impl FnOnce(Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let token = self.send(call, emit)?;
        let mut done = self.next_outcome()?;
        while done.token != token {
            self.set_aside(done);
            done = self.next_outcome()?;
        }
        self.conclude(done, read)
    }

    /// The next outcome of a call, whichever it is.
    pub(crate) fn next(&mut self) -> Result<FinishedCall, Error> {
        match self.kept.pop_front() {
            Some(done) => Ok(done),
            None => self.next_outcome(),
        }
    }

    /// The next outcome that comes.
    pub(crate) fn next_outcome(&mut self) -> Result<FinishedCall, Error> {
        Ok(self.raw.next_finished()?)
    }

    /// Handles another outcome than the awaited one. It is of an abandoned call, and dropped,
    /// unless a session is being made.
    pub(crate) fn set_aside(&mut self, done: FinishedCall) {
        if self.keeps_outcomes {
            self.kept.push_back(done);
        } else {
            self.raw.give(done);
        }
    }

    /// Gives the results of a call that is over to `read`.
    pub(crate) fn conclude<T>(
        &mut self,
        done: FinishedCall,
        read: impl FnOnce(Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if done.reply.is_ok() {
            self.reconnect.note_reply();
        }
        let read = done.read_results(read).map_err(|error| self.explained(error));
        self.raw.give(done);
        read
    }

    /// Makes a call; its outcome comes by [`NfsClient::next`].
    pub(crate) fn send(
        &mut self,
        call: &RawCall<'_>,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), xdr::NoRoom>,
    ) -> Result<Token, Error> {
        let (uid, gid) = self.user;
        let gids = Gids::new(&[]).expect("no group is not too many");
        let sys = AuthSys { stamp: 0, machine_name: b"stag", uid, gid, gids };
        let mut writer = Writer::new(&mut self.scratch);
        emit(&mut writer).map_err(|_| Error::TooLong)?;
        let arguments_max = writer.len();
        let arguments = self.scratch.get(..arguments_max).unwrap_or_default();
        let call = RawCall { credential: Credential::Sys(sys), arguments_max, ..*call };
        // MOUNT and the port mapper are asked by AUTH_SYS, as mount(8) does.
        let is_protected = self.raw.is_protected() && call.program == v3::PROGRAM;
        let write = |writer: &mut Writer<'_>| writer.fixed(arguments);
        let sent = match is_protected {
            true => self.raw.send_protected(&call, write),
            false => self.raw.send(&call, write),
        };
        sent.map_err(|error| match error {
            // A temporary limit of our own: the next call may find memory.
            CallError::Failed(CallFault::Limit) => Error::NoMemory,
            error => self.explained(error.into()),
        })
    }

    /// The error of a call, with the cause of a missing connection.
    fn explained(&self, error: Error) -> Error {
        match error {
            Error::Call(CallFault::NoPeer) => Error::NotConnected(self.raw.cause()),
            error => error,
        }
    }
}
