//! Calls from outside of the shard, one by one or several at a time: passes are run until a reply is there.

use crate::{Caller, Done, caller::Recovery};
use stag_engine::{
    CallFault, Cause, Health, HealthFault, PeerId, Request, RequestItem, Shard, Token, stats::Snapshot,
};
use stag_protocol::{
    nfs::{acl, mount, v3},
    rpc::{Accepted, Auth, AuthStatus, AuthSys, CallHeader, Credential, Denied, Gids, Outcome, ReplyHeader},
    rpcrdma::{Version, Xid},
    xdr::{self, Piece, Reader, Writer},
};
use stag_verbs::{FabricFault, Limits, Provider, Time};
use std::{fmt, io, net::SocketAddr, time::Duration};

/// Octets of the longest call without its item: an access control list, and the header with its credential.
const CALL_LEN_MAX: usize = acl::ARGUMENTS_LEN_MAX + 1_024;
const _: () = assert!(acl::ARGUMENTS_LEN_MAX > 2 * (4 + v3::Name::MAX) + 2 * (4 + v3::FileHandle::MAX));
/// How long a core spins before it lets others run, and how long before it sleeps between looks.
const SPIN: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_micros(500);
const NAP: Duration = Duration::from_micros(50);

/// Why a call gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no connection; it was never there, or ended with this cause.
    NotConnected(Option<Cause>),
    /// The fabric could not even try to connect.
    Fabric(FabricFault),
    /// The call has no reply.
    Call(CallFault),
    /// The server accepted the call and did not run the procedure.
    Rejected(Accepted),
    /// The server does not believe the caller.
    Denied(Denied),
    /// The reply cannot be decoded.
    Garbled(xdr::Error),
    /// The reply contradicts the call, or itself.
    Nonsense(&'static str),
    /// NFS says no.
    Nfs(v3::Status),
    /// MOUNT says no.
    Mount(mount::Status),
    /// Our own memory for the call is short.
    NoMemory,
    /// The server does not say how it is.
    Health(HealthFault),
}

impl Error {
    /// Whether later calls cannot succeed either.
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
            Self::Rejected(Accepted::ProgUnavail) => f.write_str("the server does not have this program"),
            Self::Rejected(Accepted::ProcUnavail) => f.write_str("the program does not have this procedure"),
            Self::Rejected(Accepted::GarbageArgs) => f.write_str("the server cannot decode the arguments"),
            Self::Rejected(Accepted::ProgMismatch { low, high }) => {
                write!(f, "the server has versions {low} to {high} of this program, and not ours")
            }
            Self::Rejected(status) => write!(f, "the server did not run the procedure ({status:?})"),
            Self::Denied(Denied::AuthError(AuthStatus(status))) => {
                write!(f, "the server does not take our credential (auth_stat {status})")
            }
            Self::Denied(denied) => write!(f, "the server denied the call ({denied:?})"),
            Self::Garbled(error) => write!(f, "the reply cannot be decoded: {error}"),
            Self::Nonsense(what) => f.write_str(what),
            Self::Nfs(status) => write!(f, "{status} ({status:?})"),
            Self::Mount(status) => write!(f, "MOUNT failed ({status:?})"),
            Self::NoMemory => f.write_str("our own memory for the call is short"),
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

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The sizes of its shard.
    pub shard: stag_engine::Config,
    /// How long the reply to one call, or a connection, may take.
    pub timeout: Duration,
    /// The user and group that AUTH_SYS names.
    pub user: (u32, u32),
}

impl Config {
    /// A client with one connection and few calls, that calls as the user of this process. `xid_seed` should differ from run to
    /// run: a server may remember XIDs.
    pub fn new(xid_seed: u32) -> Self {
        let shard = stag_engine::Config {
            calls_max: 16,
            receives: 64,
            peers: 2,
            inbound: 64,
            outbound: 16,
            slots: [128, 8, 8],
            reserved_port: crate::takes_reserved_ports(),
            xid_seed,
            ..stag_engine::Config::default()
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

    /// What a provider has to hold for such a client.
    pub fn limits(&self) -> Limits {
        Limits { windows: self.shard.outbound * 4, ..self.shard.limits(256) }
    }
}

/// One connection to a server, and calls on it one by one.
pub struct Client<P: Provider> {
    shard: Shard<P, Caller>,
    now: Box<dyn FnMut() -> Time>,
    peer: Option<PeerId>,
    timeout: Duration,
    user: (u32, u32),
    calls: u64,
    /// The call that is being written.
    scratch: Vec<u8>,
}

impl<P: Provider> fmt::Debug for Client<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("peer", &self.peer).field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// What a call consists of.
pub(crate) struct Parts<'a> {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    /// Octets of the longest results without their item, and of the item.
    pub(crate) results: (usize, usize),
    /// The argument that may travel in a Read chunk: it is the last, and its length word is written by `Parts`' owner.
    pub(crate) item: Option<&'a [u8]>,
}

impl<P: Provider> Client<P> {
    /// A client that is not connected. `now` is the clock, asked once per pass; a test runs the passes of its server in it.
    /// Fails as `mmap(2)` and `epoll_create(2)` do.
    pub fn new(provider: P, config: Config, now: impl FnMut() -> Time + 'static) -> io::Result<Self> {
        let shard = Shard::new(provider, Caller::default(), config.shard, Box::new(|_| false))?;
        let (timeout, user) = (config.timeout, config.user);
        let scratch = vec![0; CALL_LEN_MAX];
        Ok(Self { shard, now: Box::new(now), peer: None, timeout, user, calls: 0, scratch })
    }

    /// Connects, and waits until calls can be made. An earlier connection is left first.
    ///
    /// # Errors
    /// [`Error::Fabric`] and [`Error::NotConnected`] with the cause; [`Error::Call`] when it takes too long.
    pub fn connect(&mut self, to: &P::Address) -> Result<(), Error> {
        self.disconnect();
        let peer = self.shard.connect(to).map_err(Error::Fabric)?;
        self.await_up(peer)
    }

    /// Connects as [`Client::connect`] does, and again whenever the connection is lost: calls without a reply go out again with
    /// the same XID, until their time is over. The first connection has to succeed at once.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn keep_connected(&mut self, to: &P::Address) -> Result<(), Error> {
        self.disconnect();
        let peer = self.shard.keep_connected(to).map_err(Error::Fabric)?;
        self.await_up(peer)
    }

    /// Connects over TCP (RFC 5531 §11), once: items travel inline. An earlier connection is left first.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_tcp(&mut self, to: SocketAddr) -> Result<(), Error> {
        self.disconnect();
        let peer = self.shard.connect_tcp(to).map_err(Error::Fabric)?;
        self.await_up(peer)
    }

    /// Waits until `peer` can be called, and calls it from then on.
    fn await_up(&mut self, peer: PeerId) -> Result<(), Error> {
        let connected = self.wait(|caller| match (caller.peer(), caller.ended()) {
            (Some(up), _) if up == peer => Some(Ok(())),
            (_, Some((down, cause))) if down == peer => Some(Err(Error::NotConnected(Some(cause)))),
            _ => None,
        });
        let connected = connected.unwrap_or(Err(Error::Call(CallFault::TimedOut)));
        match connected {
            Ok(()) => self.peer = Some(peer),
            // A peer that is to be kept would be tried again.
            Err(_) => self.shard.with_app(|_, cx| cx.disconnect(peer)),
        }
        connected
    }

    /// Disconnects in order, and waits for it.
    pub fn disconnect(&mut self) {
        let Some(peer) = self.peer.take() else { return };
        self.shard.with_app(|_, cx| cx.disconnect(peer));
        let _ = self.wait(|caller| caller.peer().is_none().then_some(()));
    }

    /// From here on the reply to a call, or a connection, takes no longer than this, however long it was allowed to take before.
    pub fn limit_timeout(&mut self, timeout: Duration) {
        self.timeout = self.timeout.min(timeout);
    }

    /// Why the last connection ended.
    fn cause(&self) -> Option<Cause> {
        self.shard.app().ended().map(|(_, cause)| cause)
    }

    /// The version of RPC-over-RDMA that the connection keeps to; none over TCP, and before the first reply.
    pub fn version(&self) -> Option<u32> {
        self.shard.version(self.peer?).map(Version::number)
    }

    /// Asks the server how it is.
    ///
    /// # Errors
    /// [`Error::Health`], and [`Error::NotConnected`].
    pub fn health(&mut self) -> Result<Health, Error> {
        let peer = self.peer.ok_or(Error::NotConnected(self.cause()))?;
        self.shard.with_app(|_, cx| cx.ask_health(peer));
        let health = self.wait(Caller::take_health);
        health.unwrap_or(Err(HealthFault::TimedOut)).map_err(Error::Health)
    }

    /// How often the connection was lost, and how the last loss was overcome.
    pub const fn recovery(&self) -> Recovery {
        self.shard.app().recovery()
    }

    /// Calls made so far.
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// The shard's counters.
    pub fn snapshot(&self) -> Snapshot<u64> {
        self.shard.snapshot()
    }

    /// The shard, for what only it knows.
    pub const fn shard(&self) -> &Shard<P, Caller> {
        &self.shard
    }

    /// The time, as the shard sees it.
    pub fn now(&mut self) -> Time {
        (self.now)()
    }

    /// Runs passes until `look` finds what it looks for. None when that takes longer than a call may.
    fn wait<T>(&mut self, mut look: impl FnMut(&mut Caller) -> Option<T>) -> Option<T> {
        let start = (self.now)();
        let mut busy_at = start;
        loop {
            let now = (self.now)();
            let busy = self.shard.pass(now);
            if let Some(found) = self.shard.with_app(|caller, _| look(caller)) {
                return Some(found);
            }
            // The engine ends calls by themselves; the margin lets it report that instead of us.
            if now.since(start) > self.timeout + Duration::from_secs(5) {
                return None;
            }
            if busy {
                busy_at = now;
                continue;
            }
            match now.since(busy_at) {
                idle if idle < SPIN => std::hint::spin_loop(),
                idle if idle < YIELD => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// Makes a call and gives its results to `read`: `emit` writes the arguments, `read` takes the results.
    pub(crate) fn call<T>(
        &mut self,
        parts: &Parts<'_>,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), xdr::NoRoom>,
        read: impl FnOnce(Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let token = self.send(parts, emit)?;
        // What belongs to a call that was given up is of no interest.
        let mut done = self.next()?;
        while done.token != token {
            done = self.next()?;
        }
        self.conclude(done, read)
    }

    /// The next outcome of a call, whichever it is.
    pub(crate) fn next(&mut self) -> Result<Done, Error> {
        self.wait(Caller::take).ok_or(Error::Call(CallFault::TimedOut))
    }

    /// Gives the results of a call that is over to `read`.
    pub(crate) fn conclude<T>(
        &mut self,
        done: Done,
        read: impl FnOnce(Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Done { reply, result, .. } = done;
        let reply = reply.map_err(|fault| match fault {
            CallFault::NoPeer => Error::NotConnected(self.cause()),
            fault => Error::Call(fault),
        })?;
        let pieces = [Piece::Inline(&reply), Piece::Chunk(result.as_deref().unwrap_or_default())];
        let read = results(Reader::over(&pieces)).and_then(read);
        self.shard.with_app(|caller, _| caller.give(reply));
        read
    }

    /// Makes a call; its outcome comes by [`Client::next`].
    pub(crate) fn send(
        &mut self,
        parts: &Parts<'_>,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), xdr::NoRoom>,
    ) -> Result<Token, Error> {
        let peer = self.peer.ok_or(Error::NotConnected(self.cause()))?;
        let (uid, gid) = self.user;
        let gids = Gids::new(&[]).expect("no group is not too many");
        let sys = AuthSys { stamp: 0, machine_name: b"stag-load", uid, gid, gids };
        let header = CallHeader {
            xid: Xid(0),
            program: parts.program,
            version: parts.version,
            procedure: parts.procedure,
            credential: Credential::Sys(sys),
            // RFC 5531 §A [5531-29]
            verifier: Auth::NONE,
        };
        let mut writer = Writer::new(&mut self.scratch);
        header.emit(&mut writer).and_then(|()| emit(&mut writer)).map_err(|_| Error::NoMemory)?;
        let position = writer.len();
        let message = self.scratch.get(..position).unwrap_or_default();
        let token = Token(self.calls);
        self.calls += 1;
        let timeout = self.timeout;
        let (rest_max, item_max) = parts.results;
        self.shard
            .with_app(|_, cx| {
                let mut request = Request {
                    message: cx.message(position)?,
                    item: None,
                    reply_max: (ReplyHeader::LEN + rest_max).max(ReplyHeader::REFUSAL_LEN_MAX),
                    result: None,
                    timeout,
                    token,
                };
                request.message.append(message).ok()?;
                if let Some(octets) = parts.item {
                    let mut item = cx.take(octets.len())?;
                    item.append(octets).ok()?;
                    request.item = Some(RequestItem { position, octets: item });
                }
                if item_max > 0 {
                    let mut result = cx.take(item_max)?;
                    result.extend(item_max);
                    request.result = Some(result);
                }
                cx.call(peer, request);
                Some(token)
            })
            .ok_or(Error::NoMemory)
    }
}

/// The results behind a reply's header; an error when it says that there are none.
pub(crate) fn results(mut reader: Reader<'_>) -> Result<Reader<'_>, Error> {
    match ReplyHeader::parse(&mut reader).map_err(Error::Garbled)?.outcome {
        Outcome::Accepted { status: Accepted::Success, .. } => Ok(reader),
        Outcome::Accepted { status, .. } => Err(Error::Rejected(status)),
        Outcome::Denied(denied) => Err(Error::Denied(denied)),
    }
}
