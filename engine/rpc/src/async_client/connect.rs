//! Start, connection and end of an asynchronous client's thread.

use super::{
    AsyncClient,
    line::{OrderLine, OrderTaker},
    slot::lock,
};
use crate::{
    app::Door,
    client::{ClientBuilder, sizes},
    error::SetupError,
    shard::{AnyShard, Purpose, ShardParts, is_simulated, parse, random, shard_for},
    sim,
};
use stag_engine::{
    Cause, Command, Config, Control, Handle, clock::Clock, control, stats::Snapshot,
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
    /// On this thread in simulated time, under this name.
    Simulated(u64),
}

impl AsyncShard {
    pub(super) const fn line(&self) -> &Arc<OrderLine> {
        &self.line
    }

    /// The name of a shard in simulated time.
    pub(super) const fn simulated(&self) -> Option<u64> {
        match self.on {
            RunsOn::Simulated(name) => Some(name),
            RunsOn::Thread { .. } => None,
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
}

impl AsyncSetup {
    /// A shard that connects.
    fn shard(self) -> Result<Box<dyn AnyShard<Door<(), OrderTaker>>>, SetupError> {
        let Self { to, config, clock, keep, line, connected } = self;
        let parts = ShardParts { config, clock, admission: Box::new(|_| false), is_shared: false };
        let door = Door::new((), OrderTaker::new(line, connected));
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
        let to = parse(url)?;
        let Self { config, clock, timeout, credential, keep, programs } = self;
        if programs.is_some() {
            return Err(SetupError::Config(
                "an asynchronous client serves no programs: call serve on one that waits",
            ));
        }
        let config = config.unwrap_or_else(|| sizes([1_024, 32, 16], 256));
        let config = Config { xid_seed: u32::from_ne_bytes(random()?), ..config };
        let (connected, connections) = mpsc::channel();
        let not_connected = |cause| SetupError::NotConnected { url: to.to_string(), cause };
        let setup = |line| AsyncSetup { to: to.clone(), config, clock, keep, line, connected };
        let (running, ended) = if is_simulated(&to) {
            let line = Arc::new(OrderLine::new(None));
            let on = RunsOn::Simulated(sim::add(setup(Arc::clone(&line)).shard()?));
            (AsyncShard { line, on }, wait_simulated(&connections, timeout))
        } else {
            let (control, handle) = control::pair()?;
            let line = Arc::new(OrderLine::new(Some(handle.waker())));
            let on = setup(Arc::clone(&line)).start(control, handle)?;
            (AsyncShard { line, on }, connections.recv_timeout(timeout).ok())
        };
        match ended {
            Some(Ok(())) => Ok(AsyncClient { running: Arc::new(running), timeout, credential }),
            Some(Err(cause)) => Err(not_connected(Some(cause))),
            None => Err(not_connected(None)),
        }
    }
}
