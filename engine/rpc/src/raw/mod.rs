//! The untyped client: one connection, and several concurrent calls that are encoded by hand. The
//! owner's thread runs the passes of its shard.

mod call;
mod creation;
mod keeper;
mod outcomes;
mod protected;

pub use call::RawCall;
pub use keeper::{FinishedCall, Recovery};
pub(crate) use protected::insert;

use crate::{
    app::Door,
    error::SetupError,
    idle::{self, Idle},
    program::Programs,
    shard::{parse, random, settings},
    sim,
};
use keeper::CallKeeper;
use protected::Protector;
use stag_engine::{
    CallFault, Cause, Config, Control, Health, OptionFault, PeerId, Shard, Sleeper, Time,
    clock::Clock, stats::Snapshot,
};
use stag_fabrics::{AnyProvider, Endpoint, FabricAddress};
use stag_protocol::rpcrdma::Version;
use stag_verbs::{FabricFault, Provider};
use std::{fmt, net::SocketAddr, time::Duration};

/// No other thread tells the shard anything.
const NO_CONTROL: Option<&Control<()>> = None;
/// Time that an abandoned connection gets to end.
const LEAVE: Duration = Duration::from_millis(100);
/// Time that the engine gets to end a call by itself before the client abandons it.
const MARGIN: Duration = Duration::from_secs(5);

/// The reason why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// The fabric could not even try.
    Fabric(FabricFault),
    /// It ended before calls could be made.
    Ended(Cause),
    /// It took too long.
    TimedOut,
}

/// The source of a client's time.
enum TimeSource {
    Clock(Box<dyn FnMut() -> Time>),
    /// The simulated fabric of this thread: a pass of the client also runs one of its servers.
    Simulated,
}

/// A client without types, for programs whose messages are encoded and decoded by their own code.
/// Several calls may be pending; their outcomes come in the order of the replies.
///
/// ```
/// use stag_rpc::{CallError, RawCall, RawClient, Replied, Replier, Server, program};
/// use stag_rpc::{Clock, Config};
/// use std::time::Duration;
///
/// program! {
///     /// Doubles.
///     pub mod doubler: 0x2053_5402, version 1 {
///         /// Twice the number.
///         1 => fn double(number: u32) -> u32;
///     }
/// }
///
/// struct Doubler;
///
/// impl doubler::Service for Doubler {
///     fn double(&mut self, number: u32, reply: Replier<'_, '_, u32>) -> Replied {
///         reply.send(number.wrapping_mul(2))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().listen("sim://0").serve(|| doubler::Serve(Doubler))?;
/// let (url, timeout) = (&server.addresses()[0], Duration::from_secs(5));
/// let mut client = RawClient::connect_url(url, Config::small(), Clock::start(), timeout)?;
/// let (arguments_max, results_max) = (4, 4);
/// let call = RawCall { arguments_max, results_max, ..RawCall::new(doubler::PROGRAM, 1, 1) };
/// // Both are in flight at the same time.
/// let first = client.send(&call, |writer| writer.u32(3))?;
/// let second = client.send(&call, |writer| writer.u32(4))?;
/// for (token, doubled) in [(first, 6), (second, 8)] {
///     let finished = client.next_finished()?;
///     assert_eq!(finished.token, token);
///     let read = finished.read_results(|mut results| results.u32().map_err(CallError::Garbled));
///     assert_eq!(read?, doubled);
///     client.give(finished);
/// }
/// # Ok(())
/// # }
/// ```
pub struct RawClient<P: Provider = AnyProvider> {
    shard: Shard<P, Door<Box<dyn Programs>, CallKeeper>>,
    sleeper: Sleeper,
    time: TimeSource,
    peer: Option<PeerId>,
    /// The address of a connection over a fabric that is not kept.
    dialed: Option<P::Address>,
    timeout: Duration,
    calls: u64,
    /// Maximum of untaken outcomes: the maximum of concurrent calls.
    outcomes_max: usize,
    /// Contexts of RPCSEC_GSS.
    protector: Option<Protector>,
    /// A creation request ends with its connection, even with one that is kept.
    watches_losses: bool,
}

impl<P: Provider> fmt::Debug for RawClient<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawClient")
            .field("peer", &self.peer)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl RawClient {
    /// A client on the fabric of `at`, which can also call over TCP; without `at`, only over TCP.
    /// It is not connected. A call or a connection may take `timeout`. Its XIDs begin at a random
    /// value, whatever `config` contains.
    ///
    /// # Errors
    /// If the sizes of `config` contradict each other, or the system lacks a resource.
    pub fn on_fabric(
        at: Option<&FabricAddress>,
        config: Config,
        clock: Clock,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        Self::serving(Box::new(()), at, config, clock, timeout)
    }

    /// A client that is connected to `url`.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`](crate::ClientBuilder::connect).
    pub fn connect_url(
        url: &str,
        config: Config,
        clock: Clock,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let to = parse(url)?;
        let mut client = Self::on_fabric(to.fabric(), config, clock, timeout)?;
        client.connect_endpoint(&to, false).map_err(|fault| fault.at(&to))?;
        Ok(client)
    }

    /// A client that serves `programs` to its server.
    pub(crate) fn serving(
        programs: Box<dyn Programs>,
        at: Option<&FabricAddress>,
        config: Config,
        clock: Clock,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let config = Config { xid_seed: u32::from_ne_bytes(random()?), ..config };
        let settings = settings(&config, false, &clock)?;
        let fabric = AnyProvider::for_connecting(settings, at)?;
        let time = match at.is_some_and(|at| at.info().is_simulated) {
            true => TimeSource::Simulated,
            false => TimeSource::Clock(Box::new(move || clock.now())),
        };
        Self::with(programs, fabric, config, timeout, time)
    }

    /// Connects to `to`, and waits until calls can be made. An earlier connection is closed first.
    /// `keep` re-establishes a lost connection of a fabric; a TCP connection is made once.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn connect_endpoint(&mut self, to: &Endpoint, keep: bool) -> Result<(), ConnectFault> {
        match to {
            Endpoint::Fabric(at) if keep => self.keep_connected(at),
            Endpoint::Fabric(at) => self.connect(at),
            Endpoint::Tcp(at) => self.connect_tcp(*at),
        }
    }
}

impl From<ConnectFault> for CallFault {
    fn from(fault: ConnectFault) -> Self {
        match fault {
            ConnectFault::Ended(cause) => Self::Disconnected(cause),
            ConnectFault::TimedOut => Self::TimedOut,
            ConnectFault::Fabric(fault) => Self::Disconnected(Cause::Fabric(fault)),
        }
    }
}

impl ConnectFault {
    /// Converts the fault to the error of a client that cannot be made.
    pub(crate) fn at(self, to: &Endpoint) -> SetupError {
        let url = to.to_string();
        match self {
            Self::Fabric(fault) => SetupError::Connect { url, fault },
            Self::Ended(cause) => SetupError::NotConnected { url, cause: Some(cause) },
            Self::TimedOut => SetupError::NotConnected { url, cause: None },
        }
    }
}

impl<P: Provider> RawClient<P> {
    /// A client on `fabric`, which is not connected. `now` is its clock, read once per pass: a test
    /// may run the passes of its server in it.
    ///
    /// # Errors
    /// As `mmap(2)` and `epoll_create(2)` fail, and if the fabric cannot hold what `config`
    /// promises.
    pub fn new(
        fabric: P,
        config: Config,
        timeout: Duration,
        now: impl FnMut() -> Time + 'static,
    ) -> Result<Self, SetupError> {
        let time = TimeSource::Clock(Box::new(now));
        Self::with(Box::new(()), fabric, config, timeout, time)
    }

    fn with(
        programs: Box<dyn Programs>,
        fabric: P,
        config: Config,
        timeout: Duration,
        time: TimeSource,
    ) -> Result<Self, SetupError> {
        let door = Door::new(programs, CallKeeper::default());
        let outcomes_max = config.outbound.max(1);
        let shard = Shard::new(fabric, door, config, Box::new(|_| false))?;
        let sleeper = Sleeper::new(&shard, NO_CONTROL)?;
        Ok(Self {
            shard,
            sleeper,
            time,
            peer: None,
            dialed: None,
            timeout,
            calls: 0,
            outcomes_max,
            protector: None,
            watches_losses: false,
        })
    }

    /// Connects, and waits until calls can be made. An earlier connection is closed first.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn connect(&mut self, to: &P::Address) -> Result<(), ConnectFault> {
        self.disconnect();
        let peer = self.shard.connect(to).map_err(ConnectFault::Fabric)?;
        self.await_up(peer)?;
        self.dialed = Some(to.clone());
        Ok(())
    }

    /// Connects as [`connect`](Self::connect) does, and reconnects whenever the connection is lost.
    /// Calls without a reply are sent again with the same XID, until their deadline. The first
    /// connection has to succeed at once.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn keep_connected(&mut self, to: &P::Address) -> Result<(), ConnectFault> {
        self.disconnect();
        let peer = self.shard.keep_connected(to).map_err(ConnectFault::Fabric)?;
        self.await_up(peer)
    }

    /// Connects over TCP (RFC 5531 §11), once: items travel inline. An earlier connection is closed
    /// first.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn connect_tcp(&mut self, to: SocketAddr) -> Result<(), ConnectFault> {
        self.disconnect();
        let peer = self.shard.connect_tcp(to).map_err(ConnectFault::Fabric)?;
        self.await_up(peer)
    }

    /// Waits until `peer` can be called, and uses it from then on.
    fn await_up(&mut self, peer: PeerId) -> Result<(), ConnectFault> {
        let connected = self.wait(self.timeout, |keeper| match (keeper.up, keeper.down) {
            (Some(up), _) if up == peer => Some(Ok(())),
            (_, Some((down, cause))) if down == peer => Some(Err(ConnectFault::Ended(cause))),
            _ => None,
        });
        let connected = connected.unwrap_or(Err(ConnectFault::TimedOut));
        match connected {
            Ok(()) => self.peer = Some(peer),
            // A kept peer would be retried, and a slow one occupies a table entry.
            Err(_) => self.leave(peer),
        }
        connected
    }

    /// Ends a connection that is not established, and waits briefly for its table entry.
    fn leave(&mut self, peer: PeerId) {
        self.shard.with_app(|door, cx| {
            door.outcomes.down = door.outcomes.down.filter(|(down, _)| *down != peer);
            cx.disconnect(peer);
        });
        let is_gone = |down: Option<(PeerId, Cause)>| down.is_some_and(|(down, _)| down == peer);
        let _ = self.wait(LEAVE, |keeper| is_gone(keeper.down).then_some(()));
    }

    /// Closes the connection in order, and waits for that.
    pub fn disconnect(&mut self) {
        self.disconnect_within(self.timeout.saturating_add(MARGIN));
    }

    /// Closes the connection in order, and waits for that no longer than `limit`.
    pub(crate) fn disconnect_within(&mut self, limit: Duration) {
        self.dialed = None;
        let Some(peer) = self.peer.take() else { return };
        if self.keeper().up != Some(peer) {
            return self.leave(peer);
        }
        self.end_context(peer);
        self.shard.with_app(|_, cx| cx.disconnect(peer));
        let _ = self.wait(limit, |keeper| keeper.up.is_none().then_some(()));
    }

    /// Returns true while the connection is established.
    pub fn is_up(&self) -> bool {
        self.peer.is_some() && self.keeper().up == self.peer
    }

    /// Returns true after the first connection, until [`disconnect`](Self::disconnect), even while
    /// a kept connection is re-established.
    pub const fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Serves `programs` to the server from now on, in place of the earlier ones.
    pub fn serve(&mut self, programs: Box<dyn Programs>) {
        self.shard.with_app(|door, _| door.programs = programs);
    }

    /// Answers the server's calls for `time`; returns early if the connection ends.
    pub fn serve_for(&mut self, time: Duration) {
        let peer = self.peer;
        self.wait(time, |keeper| (keeper.up != peer).then_some(()));
    }

    /// Asks the server for its health.
    ///
    /// # Errors
    /// If it does not answer, or not in time, or if there is no connection.
    pub fn health(&mut self) -> Result<Health, OptionFault> {
        let peer = self.peer.ok_or(OptionFault::NoPeer)?;
        self.shard.with_app(|door, cx| {
            door.outcomes.health = None;
            cx.ask_health(peer);
        });
        let limit = self.timeout.saturating_add(MARGIN);
        let health = self.wait(limit, |keeper| {
            keeper.health.take().filter(|(asked, _)| *asked == peer).map(|(_, health)| health)
        });
        health.unwrap_or(Err(OptionFault::TimedOut))
    }

    /// Limits the time of later calls and connections to `timeout`.
    pub fn limit_timeout(&mut self, timeout: Duration) {
        self.timeout = self.timeout.min(timeout);
    }

    /// Returns the time that a call may take.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The reason why the last connection ended, or could not be made.
    pub fn cause(&self) -> Option<Cause> {
        self.keeper().down.map(|(_, cause)| cause)
    }

    /// Returns the number of losses of the connection, and the times of the last recovery.
    pub fn recovery(&self) -> Recovery {
        self.keeper().recovery
    }

    /// The negotiated version of RPC-over-RDMA; none over TCP, and before the first reply.
    pub fn version(&self) -> Option<u32> {
        self.shard.version(self.peer?).map(Version::number)
    }

    /// Calls made so far.
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// Panics of the programs that it serves, counted as by
    /// [`Server::panics`](crate::Server::panics).
    pub fn panics(&self) -> u64 {
        self.shard.app().panics()
    }

    /// The shard's counters; its app counts calls of the server.
    pub fn snapshot(&self) -> Snapshot<u64> {
        self.shard.snapshot()
    }

    /// Buffers of the shard that are in use: none once every call has ended and its outcome was
    /// taken.
    pub fn buffers_in_use(&self) -> usize {
        self.shard.buffers_in_use()
    }

    /// Calls in progress: of the peer, and ours.
    pub fn calls_in_progress(&self) -> (usize, usize) {
        self.shard.calls_in_progress()
    }

    /// The time of the shard's clock.
    pub fn now(&mut self) -> Time {
        match &mut self.time {
            TimeSource::Clock(now) => now(),
            TimeSource::Simulated => sim::now(),
        }
    }

    const fn keeper(&self) -> &CallKeeper {
        &self.shard.app().outcomes
    }

    /// Runs one pass at `now`; in simulated time also one of every server.
    fn pass(&mut self, now: Time) -> bool {
        match self.time {
            TimeSource::Clock(_) => self.shard.pass(now),
            TimeSource::Simulated => {
                let wake_at = self.shard.wake_at();
                sim::step(&mut |now| self.shard.pass(now), wake_at);
                // Always busy, because there is nothing to wait for.
                true
            }
        }
    }

    /// Runs passes until `look` returns a result. None if that takes longer than `limit`.
    pub(crate) fn wait<T>(
        &mut self,
        limit: Duration,
        mut look: impl FnMut(&mut CallKeeper) -> Option<T>,
    ) -> Option<T> {
        let start = self.now();
        let mut idle = Idle::since(start);
        loop {
            let now = self.now();
            let worked = self.pass(now);
            if let Some(found) = self.shard.with_app(|door, _| look(&mut door.outcomes)) {
                return Some(found);
            }
            let waited = now.since(start);
            if waited > limit {
                return None;
            }
            if idle.is_long(now, worked) {
                let longest = limit.saturating_sub(waited);
                let slept = self.shard.sleep(&self.sleeper, NO_CONTROL, now, longest);
                slept.unwrap_or_else(|_| idle::nap());
            }
        }
    }
}
