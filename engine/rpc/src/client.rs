//! The client that waits: its thread runs the passes of its shard until a reply is there.

use crate::{
    app::{Door, Outcomes},
    call::{CLIENT_TOKEN, CallError, request, results},
    error::SetupError,
    fabric::{AnyShard, Parts, Url, random, shard_for},
    program::{ArgumentsOf, Procedure, Programs, ResultsOf},
    sim,
};
use stag_engine::{CallFault, Cause, Config, Outcome, PeerId, Time, Token, clock::Clock};
use stag_pools::Buf;
use stag_protocol::rpc::Credential;
use std::{fmt, mem, time::Duration};

/// Time for which a core spins before it lets others run, and then before it sleeps between looks.
const SPIN: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_micros(500);
const NAP: Duration = Duration::from_micros(50);
/// Time for the engine to end a call by itself before the client gives it up.
const MARGIN: Duration = Duration::from_secs(5);
/// Time for which a client that is dropped waits for its connection to end in order.
const FAREWELL: Duration = Duration::from_millis(20);

/// A client to be. Everything has a default.
pub struct ClientBuilder {
    pub(crate) config: Option<Config>,
    pub(crate) clock: Clock,
    pub(crate) timeout: Duration,
    pub(crate) credential: Credential<'static>,
    pub(crate) keep: bool,
    pub(crate) programs: Option<Box<dyn Programs>>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A client with one connection, which makes one call at a time.
pub struct Client {
    shard: Box<dyn AnyShard<Door<Box<dyn Programs>, Latest>>>,
    clock: Clock,
    to: Url,
    peer: Option<PeerId>,
    timeout: Duration,
    credential: Credential<'static>,
    keep: bool,
    calls: u64,
    /// The reply to the latest call, which its results borrow from.
    reply: Reply,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("to", &self.to).finish_non_exhaustive()
    }
}

/// The octets of a reply.
#[derive(Debug, Default)]
struct Reply {
    message: Vec<u8>,
    chunk: Option<Buf>,
}

/// Keeps how the latest call ended.
#[derive(Debug, Default)]
struct Latest {
    /// The call that is waited for.
    token: Option<Token>,
    ended: Option<Result<(), CallFault>>,
    reply: Reply,
    up: Option<PeerId>,
    down: Option<(PeerId, Cause)>,
}

impl Outcomes for Latest {
    fn on_reply(&mut self, outcome: Outcome<'_>) {
        // Nobody waits for a call that was given up.
        if self.token != Some(outcome.token) {
            return;
        }
        self.token = None;
        self.ended = Some(outcome.reply.map(|message| {
            self.reply.message.clear();
            self.reply.message.extend_from_slice(message);
        }));
        self.reply.chunk = outcome.result;
    }

    fn on_peer_up(&mut self, peer: PeerId) {
        self.up = Some(peer);
    }

    fn on_peer_down(&mut self, peer: PeerId, cause: Cause) {
        self.down = Some((peer, cause));
        if self.up == Some(peer) {
            self.up = None;
        }
    }
}

/// A client's sizes: its buffers, and calls at a time.
pub(crate) fn sizes(slots: [usize; 3], calls: u16) -> Config {
    let (outbound, receives) = (usize::from(calls), usize::from(calls) * 4);
    Config {
        calls_max: u32::from(calls),
        receives,
        inbound: receives,
        outbound,
        peers: 2,
        streams: 2,
        slots,
        ..Config::default()
    }
}

impl ClientBuilder {
    /// The sizes of the client's shard. Default: 16 calls at a time, about 10 MB;
    /// 256 calls, about 26 MB, of an asynchronous client. One more call fails with
    /// [`CallFault::Limit`].
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config: Some(config), ..self }
    }

    /// The clock. Default: one that starts with the builder.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Limits the time that a connection, or the reply to a call, may take. Default: 30 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The user for whom calls are made. Default: nobody in particular (AUTH_NONE).
    #[must_use]
    pub fn credential(self, credential: Credential<'static>) -> Self {
        Self { credential, ..self }
    }

    /// Makes a lost connection of a fabric again, and sends calls without a reply again with the
    /// same XID. That is for servers that recognise a call which comes again, and for programs
    /// whose calls may be carried out twice. Default: a call fails with its connection, and the
    /// next one makes another.
    #[must_use]
    pub fn keep_connected(self) -> Self {
        Self { keep: true, ..self }
    }

    /// Serves these programs to the server, which may call back over the client's connection (RFC
    /// 8167). A [`Client`] answers while it waits: for the reply to a call of its own, or in
    /// [`Client::serve_for`].
    #[must_use]
    pub fn serve(self, programs: impl Programs + 'static) -> Self {
        Self { programs: Some(Box::new(programs)), ..self }
    }

    /// Connects to `url`, and waits until calls can be made.
    ///
    /// # Errors
    /// It is no address, nobody serves there, or the system is short of something.
    pub fn connect(self, url: &str) -> Result<Client, SetupError> {
        let to: Url = url.parse()?;
        let Self { config, clock, timeout, credential, keep, programs } = self;
        let programs = programs.unwrap_or_else(|| Box::new(()));
        let config = config.unwrap_or_else(|| sizes([128, 8, 8], 16));
        let config = Config { xid_seed: u32::from_ne_bytes(random()?), ..config };
        let parts = Parts { config, clock, admission: Box::new(|_| false), is_shared: false };
        let shard = shard_for(&to, Door::new(programs, Latest::default()), parts)?;
        let reply = Reply::default();
        let (peer, calls) = (None, 0);
        let mut client = Client { shard, clock, to, peer, timeout, credential, keep, calls, reply };
        client.reconnect()?;
        Ok(client)
    }
}

impl Client {
    /// A client to be.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            config: None,
            clock: Clock::start(),
            timeout: Duration::from_secs(30),
            credential: Credential::None,
            keep: false,
            programs: None,
        }
    }

    /// A client of the server at `url`, with all defaults.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect(url: &str) -> Result<Self, SetupError> {
        Self::builder().connect(url)
    }

    /// Calls procedure `P` and waits for its results. They borrow from the reply, which is kept
    /// until the next call.
    ///
    /// # Errors
    /// There are none. After [`CallFault::Disconnected`] and [`CallFault::TimedOut`] nobody knows if the call was carried
    /// out; the next call connects again.
    pub fn call<P: Procedure>(
        &mut self,
        arguments: ArgumentsOf<'_, P>,
    ) -> Result<ResultsOf<'_, P>, CallError> {
        let peer = self.peer()?;
        let token = Token(CLIENT_TOKEN | self.calls);
        self.calls = (self.calls + 1) & !CLIENT_TOKEN;
        let (credential, timeout) = (self.credential, self.timeout);
        // The room of the reply before is that of the next one.
        let mut room = mem::take(&mut self.reply);
        room.chunk = None;
        let mut made = Ok(());
        self.shard.with_app(&mut |door, cx| {
            let latest = &mut door.outcomes;
            (latest.token, latest.ended) = (Some(token), None);
            latest.reply = mem::take(&mut room);
            match request::<P>(cx, credential, &arguments, timeout, token) {
                Ok(request) => cx.call(peer, request),
                Err(error) => made = Err(error),
            }
        });
        made?;
        let ended = self.wait(timeout + MARGIN, |latest| {
            latest.ended.take().map(|ended| (ended, mem::take(&mut latest.reply)))
        });
        let (ended, reply) = ended.ok_or(CallFault::TimedOut)?;
        ended?;
        self.reply = reply;
        results::<P::Results>(&self.reply.message, self.reply.chunk.as_deref().unwrap_or_default())
    }

    /// Answers the server's calls for so long; returns at once when the connection ends.
    pub fn serve_for(&mut self, time: Duration) {
        let peer = self.peer;
        self.wait(time, |latest| (latest.up != peer).then_some(()));
    }

    /// The peer to call: the one that is connected, or another one if that is gone.
    fn peer(&mut self) -> Result<PeerId, CallFault> {
        let mut is_gone = false;
        self.shard.with_app(&mut |door, _| {
            is_gone = door.outcomes.up.is_none();
        });
        match self.peer {
            Some(peer) if self.keep || !is_gone => Ok(peer),
            _ => self.reconnect().map_err(|error| match error {
                SetupError::NotConnected { cause: Some(cause), .. } => CallFault::Disconnected(cause),
                SetupError::NotConnected { cause: None, .. } => CallFault::TimedOut,
                SetupError::Connect { fault, .. } => CallFault::Disconnected(Cause::Fabric(fault)),
                _ => CallFault::NoPeer,
            }),
        }
    }

    fn reconnect(&mut self) -> Result<PeerId, SetupError> {
        self.peer = None;
        let failed = |fault| SetupError::Connect { url: self.to.to_string(), fault };
        let peer = self.shard.connect(&self.to, self.keep).map_err(failed)?;
        let connected = self.wait(self.timeout, |latest| match (latest.up, latest.down) {
            (Some(up), _) if up == peer => Some(Ok(())),
            (_, Some((down, cause))) if down == peer => Some(Err(cause)),
            _ => None,
        });
        match connected {
            Some(Ok(())) => {
                self.peer = Some(peer);
                Ok(peer)
            }
            ended => {
                // One that is to be kept would be tried again.
                self.shard.with_app(&mut |_, cx| cx.disconnect(peer));
                let cause = ended.and_then(Result::err);
                Err(SetupError::NotConnected { url: self.to.to_string(), cause })
            }
        }
    }

    fn now(&self) -> Time {
        if matches!(self.to, Url::Sim(_)) { sim::now() } else { self.clock.now() }
    }

    /// One pass; in simulated time one of every server, too.
    fn pass(&mut self) -> bool {
        match self.to {
            Url::Sim(_) => {
                let wake_at = self.shard.wake_at();
                sim::step(&mut |now| self.shard.pass(now), wake_at)
            }
            _ => self.shard.pass(self.clock.now()),
        }
    }

    /// Runs passes until `look` finds what it looks for. None when that takes longer than `limit`.
    fn wait<T>(&mut self, limit: Duration, mut look: impl FnMut(&mut Latest) -> Option<T>) -> Option<T> {
        let start = self.now();
        let mut busy_at = start;
        let mut found = None;
        loop {
            let is_busy = self.pass();
            self.shard.with_app(&mut |door, _| found = look(&mut door.outcomes));
            if found.is_some() {
                return found;
            }
            let now = self.now();
            if now.since(start) > limit {
                return None;
            }
            if is_busy || matches!(self.to, Url::Sim(_)) {
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
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(peer) = self.peer.filter(|_| !std::thread::panicking()) else { return };
        self.shard.with_app(&mut |_, cx| cx.disconnect(peer));
        self.wait(FAREWELL, |latest| latest.up.is_none().then_some(()));
    }
}

/// Typed clients of a program.
#[doc(hidden)]
#[macro_export]
macro_rules! clients {
    ($(
        $(#[$meta:meta])*
        fn $procedure:ident($($argument:ident: $type:ty),*) -> $results:ty;
    )+) => {
        /// A client that waits for each reply. It owns its connection, or borrows one that it
        /// shares with clients of other programs.
        #[derive(Debug)]
        pub struct Client<C = $crate::Client>(C);

        impl Client {
            /// Connects to the server at `url`.
            ///
            /// # Errors
            /// As `stag_rpc::ClientBuilder::connect`.
            pub fn connect(url: &str) -> ::std::result::Result<Self, $crate::SetupError> {
                $crate::Client::connect(url).map(Self)
            }
        }

        impl<C: ::std::borrow::BorrowMut<$crate::Client>> Client<C> {
            /// Calls over this connection.
            pub const fn over(connection: C) -> Self {
                Self(connection)
            }

            /// The connection.
            pub fn connection(&mut self) -> &mut $crate::Client {
                self.0.borrow_mut()
            }

            $(
                $(#[$meta])*
                ///
                /// # Errors
                /// As `stag_rpc::Client::call`.
                pub fn $procedure(
                    &mut self,
                    $($argument: <$type as $crate::XdrType>::Of<'_>),*
                ) -> ::std::result::Result<
                    <$results as $crate::XdrType>::Of<'_>,
                    $crate::CallError,
                > {
                    self.0.borrow_mut().call::<procedures::$procedure>(($($argument,)*))
                }
            )+
        }
    };
}
