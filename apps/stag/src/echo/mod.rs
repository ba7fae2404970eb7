//! `stag echo`: the echo program, as something to measure.

pub mod options;

use crate::{
    Error,
    address::{self, cannot_listen},
    admission::Clients,
    bench,
    caller::{aside, random, say, settle},
    cidr,
    descriptors::{self, Share, Wanted},
    serve::check_open,
    signals,
};
use signal_hook::{consts::SIGUSR1, iterator::Signals};
use stag_echo::{Driver, driver::DEPTH_MAX};
use stag_engine::{
    Config, Over, Sampling, Shard,
    clock::Clock,
    control::{self, Command},
    launch,
};
use stag_fabrics::{Fabric, FabricVisitor, Settings};
use stag_verbs::FabricFault;
use std::{io, net::SocketAddr, thread};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Calls that one connection may have outstanding.
const GRANT: u32 = 1_024;

/// Serves until a signal comes.
pub fn run(arguments: &options::EchoOptions) -> Result<(), Error> {
    let at = address::listen(&arguments.listen)?;
    let tcp = arguments.tcp.as_deref().map(address::tcp).transpose()?.flatten();
    let clients = cidr::clients(&arguments.clients)?;
    check_open("--listen", at.ip().as_slice(), &clients)?;
    check_open("--tcp", tcp.as_slice(), &clients)?;
    let (limit, defaults) = (descriptors::raise(), Config::default());
    let streams = if tcp.is_some() { defaults.streams } else { 0 };
    let wanted = Wanted { shards: 1, connections: defaults.peers, streams, files: 0, per_file: 0 };
    let share = Share::of(limit, wanted)?;
    if let Some(notice) = share.notice(limit, wanted) {
        aside(format!("notice: {notice}\n"));
    }
    let peers = if at.info().is_over_tcp { share.connections } else { defaults.peers };
    let echo =
        Server { tcp, clients: Clients::new(clients, None), share, peers, every: arguments.sample };
    let _settings = settle();
    let core = launch::cores().first().copied();
    let serve = move |_| at.visit(echo);
    let failed = |error: io::Error| Error::failure(format!("cannot start a thread: {error}"));
    let thread = launch::spawn("echo".to_owned(), core, serve).map_err(failed)?;
    thread.join().unwrap_or_else(|_| Err(Error::failure("the shard panicked")))
}

/// A server of the echo program.
struct Server {
    tcp: Option<SocketAddr>,
    clients: Clients,
    share: Share,
    /// Connections over the fabric.
    peers: usize,
    /// One call in so many is watched.
    every: u32,
}

impl FabricVisitor for Server {
    type Output = Result<(), Error>;

    fn visit<P: Fabric>(self, at: P::Address) -> Self::Output {
        serve::<P>(self, &at)
    }
}

fn serve<P: Fabric>(server: Server, at: &P::Address) -> Result<(), Error> {
    let Server { tcp, clients, share, peers, every } = server;
    let short = |error: io::Error| {
        Error::failure(format!("no memory or descriptors to serve with: {error}"))
    };
    let clock = Clock::start();
    let config = Config {
        grant: GRANT,
        grant_first: 64,
        reverse_calls_max: DEPTH_MAX,
        receives: 8_192,
        inbound: 9_216,
        peers,
        streams: share.streams.max(1),
        slots: [16_384, 2_048, 192],
        xid_seed: u32::from_ne_bytes(random()?),
        sampling: Sampling { every, clock: Some(clock), ..Sampling::default() },
        ..Config::default()
    };
    let settings = Settings {
        half_open: Some(share.half_open),
        spare: Some(share.spare),
        links: Some(share.links),
        ..Settings::new(config.limits(GRANT as usize * 4), random()?, clock.now())
    };
    let fabric = P::for_listening(settings, std::slice::from_ref(at)).map_err(short)?;
    let mut shard = Shard::new(fabric, Driver::default(), config, clients.admission(Over::Fabric))
        .map_err(short)?;
    let at = shard.listen(at).map_err(|fault| cannot_listen(at, fault, "--listen"))?;
    let mut ready = format!("READY\nLISTEN {at}\n");
    if let Some(tcp) = tcp {
        let taken = shard.listen_tcp(tcp, false);
        let taken =
            taken.map_err(|error| cannot_listen(&tcp, FabricFault::from(&error), "--tcp"))?;
        ready.push_str(&format!("TCP {taken}\n"));
    }
    let (control, handle) = control::pair().map_err(short)?;
    signals::ignore(signals::strays().into_iter().chain([SIGUSR1])).map_err(short)?;
    let mut signals = Signals::new(signals::stopping()).map_err(short)?;
    let stop = move || signals.forever().for_each(|_| handle.tell(Command::Stop));
    thread::Builder::new().name("signals".to_owned()).spawn(stop).map_err(short)?;
    say(ready + "END\n");
    aside("to stop: Ctrl-C or SIGTERM\n");
    shard
        .run(&control, move || clock.now())
        .map_err(|error| Error::failure(format!("the shard stopped: {error}")))?;
    aside(bench::served(&shard.snapshot().stages));
    Ok(())
}
