//! Start, connection and end of an asynchronous client's thread.

use super::{
    AsyncClient,
    line::{OrderLine, OrderTaker},
    local::{self, LocalPass, LocalShard},
    protected::OrderProtector,
    slot::lock,
};
use crate::{
    app::Door,
    client::ClientBuilder,
    error::SetupError,
    gss::{ContextFault, CreationRoute, Tickets},
    shard::{AnyShard, Purpose, ShardParts, is_simulated, parse, random, shard_for, sizes},
    sim,
};
use stag_engine::{
    Cause, Command, Config, Control, Handle, Waker, clock::Clock, control, stats::Snapshot,
};
use stag_fabrics::Endpoint;
use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::JoinHandle,
    time::Duration,
};

/// A shard that makes the calls of an asynchronous client. Dropping it stops the shard.
#[derive(Debug)]
pub(super) struct AsyncShard {
    line: Arc<OrderLine>,
    on: RunsOn,
}

#[derive(Debug)]
enum RunsOn {
    Thread {
        /// The control channel has one user at a time.
        handle: Mutex<Handle<Snapshot<u64>>>,
        thread: Option<JoinHandle<()>>,
    },
    /// On the thread that made it, under this name.
    Local { name: u64, waker: Waker },
    /// On the thread that made it in simulated time, under this name.
    Simulated(u64),
}

/// The next step for a future whose call has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// Nothing: its waker is woken.
    Wait,
    /// To look, and to poll it again soon: its shard has made a pass.
    Again,
    /// To look again: simulated time has advanced.
    Now,
    /// Nothing: its shard belongs to another thread.
    Never,
}

/// The app of an asynchronous client's shard.
pub(super) type AsyncShardApp = Door<(), OrderTaker>;

impl AsyncShard {
    pub(super) const fn line(&self) -> &Arc<OrderLine> {
        &self.line
    }

    /// The name and the waker of a shard that runs on the thread that made it.
    pub(super) fn local(&self) -> Option<(u64, Waker)> {
        match &self.on {
            RunsOn::Local { name, waker } => Some((*name, waker.clone())),
            RunsOn::Thread { .. } | RunsOn::Simulated(_) => None,
        }
    }

    /// Returns true if calls can be made on this thread.
    pub(super) fn is_here(&self) -> bool {
        match self.on {
            RunsOn::Thread { .. } => true,
            RunsOn::Local { name, .. } => local::has(name),
            RunsOn::Simulated(name) => sim::has(name),
        }
    }

    /// Does what nothing else does for a future.
    pub(super) fn advance(&self) -> Advance {
        match self.on {
            RunsOn::Thread { .. } => Advance::Wait,
            RunsOn::Local { name, .. } => match local::pass(name) {
                LocalPass::ByRunner => Advance::Wait,
                LocalPass::Made => Advance::Again,
                LocalPass::Elsewhere => Advance::Never,
            },
            RunsOn::Simulated(name) if sim::has(name) => {
                sim::step(&mut |_| false, None);
                Advance::Now
            }
            RunsOn::Simulated(_) => Advance::Never,
        }
    }
}

impl Drop for AsyncShard {
    fn drop(&mut self) {
        match &mut self.on {
            RunsOn::Thread { handle, thread } => {
                lock(handle).tell(Command::Stop);
                // A future's waker may have dropped the last client on the client's own thread.
                if let Some(thread) = thread.take()
                    && thread.thread().id() != std::thread::current().id()
                {
                    let _ = thread.join();
                }
            }
            RunsOn::Local { name, .. } => local::remove(*name),
            RunsOn::Simulated(name) => sim::remove(*name),
        }
    }
}

/// The parts that a client's shard is built from.
struct AsyncSetup {
    to: Endpoint,
    config: Config,
    clock: Clock,
    keep: bool,
    line: Arc<OrderLine>,
    connected: Sender<Result<(), Cause>>,
    tickets: Option<Tickets>,
    timeout: Duration,
}

impl AsyncSetup {
    /// A shard that connects.
    fn shard(self) -> Result<Box<dyn AnyShard<AsyncShardApp>>, SetupError> {
        let Self { to, config, clock, keep, line, connected, tickets, timeout } = self;
        let tls = config.call_tls.clone();
        let protector = tickets.map(|tickets| {
            let route = CreationRoute::new(tickets.creation(&to, tls), keep);
            OrderProtector::open(&tickets, route, timeout)
        });
        let protector = protector.transpose();
        let protector = protector.map_err(|ContextFault(why)| SetupError::Tickets(why))?;
        let parts = ShardParts { config, clock, admission: Box::new(|_| false), is_shared: false };
        let door = Door::new((), OrderTaker::new(line, connected, protector));
        let mut shard = shard_for(&Purpose::Connect(&to), door, parts)?;
        shard.connect(&to, keep)?;
        Ok(shard)
    }

    /// Starts the shard on a thread of its own.
    fn start(
        self,
        control: Control<Snapshot<u64>>,
        handle: Handle<Snapshot<u64>>,
    ) -> Result<RunsOn, SetupError> {
        let (tell, told) = mpsc::channel();
        let clock = self.clock;
        let run = move || match self.shard() {
            Ok(mut shard) => {
                let _ = tell.send(Ok(()));
                // Its end fails all remaining calls.
                let _ = shard.run(&control, clock);
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("stag-rpc".to_owned()).spawn(run)?;
        let on = RunsOn::Thread { handle: Mutex::new(handle), thread: Some(thread) };
        told.recv().map_err(|_| std::io::Error::other("a client's thread ended"))??;
        Ok(on)
    }
}

/// Waits for a connection while simulated time advances. None if it takes too long.
fn wait_simulated(
    connected: &Receiver<Result<(), Cause>>,
    timeout: Duration,
) -> Option<Result<(), Cause>> {
    let start = sim::now();
    loop {
        match connected.try_recv() {
            Ok(ended) => return Some(ended),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) if sim::now().since(start) > timeout => return None,
            Err(TryRecvError::Empty) => {
                sim::step(&mut |_| false, None);
            }
        }
    }
}

/// Waits for a connection while its shard makes passes. None if it takes too long.
fn wait_local(
    name: u64,
    connected: &Receiver<Result<(), Cause>>,
    clock: Clock,
    timeout: Duration,
) -> Option<Result<(), Cause>> {
    let start = clock.now();
    let look = || match connected.try_recv() {
        Ok(ended) => Some(Some(ended)),
        Err(TryRecvError::Disconnected) => Some(None),
        Err(TryRecvError::Empty) => (clock.now().since(start) > timeout).then_some(None),
    };
    let rest = || Some(timeout.saturating_sub(clock.now().since(start)));
    local::run(name, look, rest)?
}

impl ClientBuilder {
    /// Connects to `url` with a thread of its own, and waits until calls can be made. At `sim://`
    /// there is no thread: polling a future advances the simulated time, and the future stays on
    /// the thread that made the client.
    ///
    /// A lost connection fails its calls and all later ones: connect again, or [keep
    /// connected](Self::keep_connected).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_async(self, url: &str) -> Result<AsyncClient, SetupError> {
        self.connect_on(Place::OwnThread, url)
    }

    /// Connects to `url`, and waits until calls can be made. The client has no thread of its own:
    /// it works while its futures are polled, and all of this happens on the thread that made it.
    /// [`AsyncClient::block_on`] makes its passes between polls, and sleeps without work. In any
    /// other executor the poll of a future makes a pass, and the future is polled again soon, so
    /// that the thread is always busy.
    ///
    /// A call made on another thread ends with [`CallFault::NoPeer`](crate::CallFault::NoPeer), and
    /// the future of one that is polled there with
    /// [`CallFault::Cancelled`](crate::CallFault::Cancelled). Drop the client and its futures on
    /// this thread: dropped elsewhere, the connection lasts as long as the thread.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_local(self, url: &str) -> Result<AsyncClient, SetupError> {
        self.connect_on(Place::ThisThread, url)
    }

    fn connect_on(self, place: Place, url: &str) -> Result<AsyncClient, SetupError> {
        let to = parse(url)?;
        let Self { config, clock, timeout, credential, keep, programs, tickets } = self;
        if programs.is_some() {
            return Err(SetupError::Config(
                "an asynchronous client serves no programs: call serve on one that waits",
            ));
        }
        let config = config.unwrap_or_else(|| sizes([1_024, 32, 16], 256));
        let config = Config { xid_seed: u32::from_ne_bytes(random()?), ..config };
        let (connected, connections) = mpsc::channel();
        let not_connected = |cause| SetupError::NotConnected { url: to.to_string(), cause };
        let setup = |line| {
            let to = to.clone();
            AsyncSetup { to, config, clock, keep, line, connected, tickets, timeout }
        };
        let (running, ended) = if is_simulated(&to) {
            let line = Arc::new(OrderLine::new(None));
            let on = RunsOn::Simulated(sim::add(setup(Arc::clone(&line)).shard()?));
            (AsyncShard { line, on }, wait_simulated(&connections, timeout))
        } else {
            let (control, handle) = control::pair()?;
            match place {
                Place::OwnThread => {
                    let line = Arc::new(OrderLine::new(Some(handle.waker())));
                    let on = setup(Arc::clone(&line)).start(control, handle)?;
                    (AsyncShard { line, on }, connections.recv_timeout(timeout).ok())
                }
                Place::ThisThread => {
                    let line = Arc::new(OrderLine::new(None));
                    let shard = setup(Arc::clone(&line)).shard()?;
                    let name =
                        local::add(LocalShard::new(shard, clock, control, Arc::clone(&line))?);
                    let running =
                        AsyncShard { line, on: RunsOn::Local { name, waker: handle.waker() } };
                    (running, wait_local(name, &connections, clock, timeout))
                }
            }
        };
        match ended {
            Some(Ok(())) => Ok(AsyncClient { running: Arc::new(running), timeout, credential }),
            Some(Err(cause)) => Err(not_connected(Some(cause))),
            None => Err(not_connected(None)),
        }
    }
}

/// The thread that runs a client's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    OwnThread,
    ThisThread,
}
