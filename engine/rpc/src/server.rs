//! Servers: programs, at one or more URLs of one or more fabrics.

use crate::{
    app::Door,
    error::SetupError,
    panics::{self, PanicCount},
    program::Programs,
    shard::{
        AnyShard, Purpose, ShardParts, can_share_shard, is_for_one_shard, is_simulated, of_shard,
        parse, random, shard_for,
    },
    sim,
};
use stag_engine::gss::GssContexts;
use stag_engine::{
    Command, Config, Handle, PeerAddress, clock::Clock, config::INLINE_LEN, control, launch,
    stats::Snapshot,
};
use stag_fabrics::Endpoint;
use stag_protocol::rpc::gss::GssService;
use std::{
    fmt, io,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

/// Maximum of cores of a server.
const CORES_MAX: usize = 1_024;

/// Decides which peers may connect; called by every shard.
type Admit = Arc<dyn Fn(PeerAddress) -> bool + Send + Sync>;

/// Configuration of a server. Everything but the URLs has a default.
#[derive(Clone)]
pub struct ServerBuilder {
    listen: Vec<String>,
    config: Config,
    clock: Clock,
    admit: Admit,
    cores: Option<usize>,
    contexts: Option<Arc<GssContexts>>,
    demand: Option<GssService>,
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// A running server. Dropping it stops the server.
///
/// ```
/// use stag_rpc::{Client, Config, PeerAddress, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder()
///     .listen("sim://0")
///     .config(Config { peers: 8, ..Config::small() })
///     .admit(|peer| matches!(peer, PeerAddress::Simulated))
///     .serve(|| ())?;
/// // It has no programs, and every client may connect to ask for one.
/// assert!(Client::connect(&server.addresses()[0]).is_ok());
/// server.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    running: Vec<RunningShard>,
    addresses: Vec<String>,
    /// Gets a message from each thread at its end.
    ends: mpsc::Receiver<()>,
    panics: PanicCount,
}

/// Reports the end of a shard's thread, even by a panic.
struct EndReport(mpsc::Sender<()>);

impl Drop for EndReport {
    fn drop(&mut self) {
        // A server that is being dropped has no receiver.
        let _ = self.0.send(());
    }
}

#[derive(Debug)]
enum RunningShard {
    Thread { handle: Handle<Snapshot<u64>>, thread: Option<JoinHandle<io::Result<()>>> },
    Simulated(u64),
}

/// ShardOrders to one shard.
struct ShardOrders {
    urls: Vec<Endpoint>,
    config: Config,
    clock: Clock,
    admit: Admit,
    is_shared: bool,
    panics: PanicCount,
    demand: Option<GssService>,
}

impl Server {
    /// Configures a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            listen: Vec::new(),
            config: Config {
                receives: 1_024,
                receive_len: INLINE_LEN,
                peers: 256,
                streams: 256,
                inbound: 1_280,
                outbound: 128,
                slots: [2_048, 64, 32],
                ..Config::default()
            },
            clock: Clock::start(),
            admit: Arc::new(|_| true),
            cores: None,
            contexts: None,
            demand: None,
        }
    }

    /// The URLs in use, in the order in which they were given: a port of 0 is replaced by the
    /// chosen one.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The number of panics so far of its programs' methods, and of the closure given to
    /// [`admit`](ServerBuilder::admit). The caller of such a method gets SYSTEM_ERR, unless it was
    /// already answered. The server continues, with the program's state as the panic left it. The
    /// first, second, fourth panic and so on is logged to standard error.
    pub fn panics(&self) -> u64 {
        self.panics.count()
    }

    /// Serves until the process ends. If any of its shards ends, the others stop as by
    /// [`stop`](Self::stop).
    ///
    /// # Errors
    /// If a shard cannot continue: the system fails it, or it panicked.
    pub fn wait(mut self) -> Result<(), SetupError> {
        // Without threads, in simulated time, there is no sender.
        let _ = self.ends.recv();
        self.tell_to_stop();
        self.join()
    }

    /// Accepts no more calls, answers calls in progress, and disconnects all peers.
    ///
    /// # Errors
    /// If a shard could not continue.
    pub fn stop(mut self) -> Result<(), SetupError> {
        self.tell_to_stop();
        self.join()
    }

    /// Records the addresses in use of the URLs at these indices.
    fn note_addresses(&mut self, places: &[usize], bound: &[Endpoint]) {
        for (place, url) in places.iter().zip(bound) {
            if let Some(address) = self.addresses.get_mut(*place) {
                *address = url.to_string();
            }
        }
    }

    fn tell_to_stop(&self) {
        for running in &self.running {
            match running {
                RunningShard::Thread { handle, .. } => handle.tell(Command::Stop),
                RunningShard::Simulated(name) => sim::remove(*name),
            }
        }
    }

    fn join(&mut self) -> Result<(), SetupError> {
        let mut fault = None;
        for running in &mut self.running {
            let RunningShard::Thread { thread, .. } = running else { continue };
            match thread.take().map(JoinHandle::join) {
                Some(Ok(Ok(()))) | None => {}
                Some(Ok(Err(error))) => drop(fault.get_or_insert(SetupError::Os(error))),
                Some(Err(panic)) => {
                    let why = panics::message(&*panic).to_owned();
                    fault.get_or_insert(SetupError::Panicked(why));
                }
            }
        }
        fault.map_or(Ok(()), Err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tell_to_stop();
        for running in &mut self.running {
            if let RunningShard::Thread { thread, .. } = running
                && let Some(thread) = thread.take()
            {
                // The server is being dropped, so the result is ignored.
                let _ = thread.join();
            }
        }
    }
}

impl ServerBuilder {
    /// Also listens at `url`: `iwarp://IP:PORT`, `shm:///PATH`, `tcp://IP:PORT`, `sim://NUMBER`,
    /// or, with the default feature `verbs`, `rdma://IP:PORT`. Each fabric has shards of its own;
    /// TCP shares those of the first.
    #[must_use]
    pub fn listen(mut self, url: &str) -> Self {
        self.listen.push(url.to_owned());
        self
    }

    /// The sizes of each shard. Default: 256 connections, about 50 MB.
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// The clock of all shards. Default: one that starts with the builder.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Accepts only peers for which `admit` returns true. Default: all peers that reach the
    /// address.
    #[must_use]
    pub fn admit(self, admit: impl Fn(PeerAddress) -> bool + Send + Sync + 'static) -> Self {
        Self { admit: Arc::new(admit), ..self }
    }

    /// Takes calls of RPCSEC_GSS in these contexts, as [`contexts_of_keytab`] makes them;
    /// [`Replier::proven`](crate::Replier::proven) is the caller. Calls with other credentials are
    /// taken as before.
    ///
    /// [`contexts_of_keytab`]: crate::gss::contexts_of_keytab
    #[must_use]
    pub fn contexts(self, contexts: Arc<GssContexts>) -> Self {
        Self { contexts: Some(contexts), ..self }
    }

    /// Denies calls with less protection than this, and calls without a ticket, with AUTH_TOOWEAK
    /// (RFC 2203 §5.3.3.3 takes it for a service that the server does not accept). Procedure 0
    /// without a ticket is answered: a client looks by it for a server. Default: every call is
    /// taken.
    #[must_use]
    pub fn demand(self, protection: GssService) -> Self {
        Self { demand: Some(protection), ..self }
    }

    /// Runs this number of shards for each fabric, each pinned to a core of its own. Default: one,
    /// on a core of the system's choice.
    #[must_use]
    pub fn cores(self, cores: usize) -> Self {
        Self { cores: Some(cores), ..self }
    }

    /// Starts the server. `programs` makes the programs of each shard, on its thread: shards share
    /// only what it gives them.
    ///
    /// # Errors
    /// If an address is invalid or in use, the sizes conflict, or the system lacks a resource. Then
    /// nothing runs.
    pub fn serve<S: Programs + 'static>(
        self,
        programs: impl Fn() -> S + Clone + Send + 'static,
    ) -> Result<Server, SetupError> {
        let urls = self.listen.iter().map(|url| parse(url)).collect::<Result<Vec<_>, _>>()?;
        if urls.is_empty() {
            return Err(SetupError::Config("a server listens somewhere: call listen with a URL"));
        }
        let shards = shards(self.cores)?;
        let mut cores = self.cores.map(|_| launch::cores()).unwrap_or_default().into_iter();
        let (end, ends) = mpsc::channel();
        let mut server = Server {
            running: Vec::new(),
            addresses: vec![String::new(); urls.len()],
            ends,
            panics: PanicCount::default(),
        };
        for places in by_fabric(&urls) {
            let mut at: Vec<Endpoint> =
                places.iter().filter_map(|place| urls.get(*place)).cloned().collect();
            let shards = if at.iter().any(is_for_one_shard) { 1 } else { shards };
            for index in 0..shards {
                let panics = server.panics.clone();
                let orders = ShardOrders { panics, ..self.orders(&at, index, shards)? };
                let (running, bound) = match at.first().is_some_and(is_simulated) {
                    true => simulate(orders, programs())?,
                    false => {
                        let end = EndReport(end.clone());
                        start_thread(orders, cores.next(), programs.clone(), end)?
                    }
                };
                server.running.push(running);
                // If the port was chosen by the system, the other shards listen where the first one
                // does.
                if index == 0 {
                    server.note_addresses(&places, &bound);
                    at = bound;
                }
            }
        }
        Ok(server)
    }

    /// The orders to shard `index` of `shards` that serve `at` together.
    fn orders(
        &self,
        at: &[Endpoint],
        index: usize,
        shards: usize,
    ) -> Result<ShardOrders, SetupError> {
        Ok(ShardOrders {
            urls: at.iter().map(|url| of_shard(url, index)).collect::<Result<_, _>>()?,
            config: Config {
                xid_seed: u32::from_ne_bytes(random()?),
                gss: self.contexts.clone().or_else(|| self.config.gss.clone()),
                ..self.config.clone()
            },
            clock: self.clock,
            admit: Arc::clone(&self.admit),
            is_shared: shards > 1,
            panics: PanicCount::default(),
            demand: self.demand,
        })
    }
}

/// The number of shards of each fabric, one for each core.
const fn shards(cores: Option<usize>) -> Result<usize, SetupError> {
    match cores {
        None => Ok(1),
        Some(0) => Err(SetupError::Config("a server runs on one core at least")),
        Some(cores) if cores <= CORES_MAX => Ok(cores),
        Some(_) => Err(SetupError::Config("a server runs on 1,024 cores at most")),
    }
}

/// The indices of URLs that one shard serves together. TCP goes with the first fabric.
fn by_fabric(urls: &[Endpoint]) -> Vec<Vec<usize>> {
    let is_fabric = |url: &&Endpoint| url.fabric().is_some();
    let mut groups: Vec<(&Endpoint, Vec<usize>)> = Vec::new();
    for first in urls.iter().filter(is_fabric).chain(urls.first()) {
        if !groups.iter().any(|(known, _)| can_share_shard(known, first)) {
            groups.push((first, Vec::new()));
        }
    }
    for (place, url) in urls.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| can_share_shard(known, url)) {
            Some((_, places)) => places.push(place),
            None => groups.push((url, vec![place])),
        }
    }
    groups.into_iter().map(|(_, places)| places).collect()
}

type BuiltShard<S> = (Box<dyn AnyShard<Door<S, ()>>>, Vec<Endpoint>);

/// Builds a listening shard; returns it with the addresses in use.
fn build<S: Programs + 'static>(
    orders: &ShardOrders,
    programs: S,
) -> Result<BuiltShard<S>, SetupError> {
    let (admit, panics) = (Arc::clone(&orders.admit), orders.panics.clone());
    let parts = ShardParts {
        config: orders.config.clone(),
        clock: orders.clock,
        admission: Box::new(move |peer| panics.catch("admit", || admit(peer)).unwrap_or(false)),
        is_shared: orders.is_shared,
    };
    let door = Door::new(programs, ()).count_panics(orders.panics.clone());
    let door = door.demand(orders.demand);
    let mut shard = shard_for(&Purpose::Listen(&orders.urls), door, parts)?;
    let bound = orders.urls.iter().map(|url| shard.listen(url)).collect::<Result<_, _>>()?;
    Ok((shard, bound))
}

fn simulate<S: Programs + 'static>(
    orders: ShardOrders,
    programs: S,
) -> Result<(RunningShard, Vec<Endpoint>), SetupError> {
    let (shard, bound) = build(&orders, programs)?;
    Ok((RunningShard::Simulated(sim::add(shard)), bound))
}

fn start_thread<S: Programs + 'static>(
    mut orders: ShardOrders,
    core: Option<launch::CoreId>,
    programs: impl FnOnce() -> S + Send + 'static,
    end: EndReport,
) -> Result<(RunningShard, Vec<Endpoint>), SetupError> {
    // Clients get equal shares of its time.
    orders.config.meter.get_or_insert_with(|| Arc::new(orders.clock));
    let (control, handle) = control::pair()?;
    let (tell, told) = mpsc::channel();
    let thread = launch::spawn("stag-rpc".to_owned(), core, move |_| {
        let _end = end;
        match build(&orders, programs()) {
            Ok((mut shard, bound)) => {
                // The builder waits for this.
                let _ = tell.send(Ok(bound));
                shard.run(&control, orders.clock)
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                Ok(())
            }
        }
    })?;
    match told.recv() {
        Ok(bound) => Ok((RunningShard::Thread { handle, thread: Some(thread) }, bound?)),
        Err(mpsc::RecvError) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => Err(SetupError::Os(io::Error::other("a shard ended before it began"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fabric_has_shards_of_its_own_and_tcp_joins_the_first() {
        let urls = |texts: &[&str]| {
            by_fabric(&texts.iter().map(|text| parse(text).unwrap()).collect::<Vec<_>>())
        };
        let (shm, iwarp, tcp, sim) =
            ("shm:///x", "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0", "sim://0");
        assert_eq!(urls(&[tcp, shm, iwarp, tcp, shm]), [vec![0, 1, 3, 4], vec![2]]);
        assert_eq!(urls(&[tcp, tcp]), [vec![0, 1]]);
        assert_eq!(urls(&[sim, tcp]), [vec![0], vec![1]]);
        assert_eq!(urls(&[sim, iwarp, sim]), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn the_end_of_any_shard_ends_the_wait_and_stops_the_others() {
        let server = || Server::builder().listen("iwarp://127.0.0.1:0").serve(|| ()).unwrap();
        for last in [false, true] {
            let mut server = server();
            let (end, ends) = mpsc::channel();
            let (_control, handle) = control::pair().unwrap();
            let end = EndReport(end);
            let thread = launch::spawn("ends".to_owned(), None, move |_| {
                let _end = end;
                panic!("this shard")
            });
            let ended = RunningShard::Thread { handle, thread: Some(thread.unwrap()) };
            let place = if last { server.running.len() } else { 0 };
            server.running.insert(place, ended);
            server.ends = ends;
            let why = server.wait().unwrap_err().to_string();
            assert_eq!(why, "a shard ended by a panic: this shard");
        }
    }
}
