//! A server of one shard on one core, which says READY and serves until a signal comes: `stag echo`
//! and `stag accept serve`.

use crate::{
    Error,
    admission::Clients,
    args::{
        address::{self, cannot_listen},
        cidr::{self, check_open},
    },
    caller::{aside, random, say, settle},
    descriptors::{self, Share, Wanted},
    signals,
};
use signal_hook::{consts::SIGUSR1, iterator::Signals};
use stag_echo::driver::DEPTH_MAX;
use stag_engine::{
    App, Config, Over, Sampling, Shard, Stages,
    clock::Clock,
    control::{self, Command},
    launch,
};
use stag_fabrics::{Fabric, FabricAddress, FabricVisitor, Settings};
use stag_verbs::{FabricFault, Limits};
use std::{io, net::SocketAddr, thread};

/// Calls that one connection may have outstanding.
const GRANT: u32 = 1_024;

/// The parts of such a server.
pub struct OneShard<'a, A> {
    /// The address to listen at.
    pub at: FabricAddress,
    /// The argument that gives the address, for sentences about it.
    pub flag: &'static str,
    /// The address for RPC over TCP, if there is one.
    pub tcp: Option<&'a str>,
    /// Networks that may connect.
    pub clients: &'a [String],
    /// Samples one call in this number.
    pub sample: u32,
    /// Makes the app, in the thread of the shard.
    pub app: Box<dyn FnOnce(&FabricAddress) -> A + Send>,
    /// Called once with the limits and the name of the device, before any client is served.
    pub open: fn(&mut A, &Limits, Option<&str>),
    /// Called with the address in use, once READY is printed.
    pub ready: fn(&str),
}

impl<A: App + 'static> OneShard<'_, A> {
    /// Serves until a signal comes; returns the time that calls were in each stage.
    pub fn serve(self) -> Result<Stages, Error> {
        let tcp = self.tcp.map(address::tcp).transpose()?.flatten();
        let clients = cidr::clients(self.clients)?;
        check_open(self.flag, self.at.ip().as_slice(), &clients)?;
        check_open("--tcp", tcp.as_slice(), &clients)?;
        let (limit, defaults) = (descriptors::raise(), Config::default());
        let streams = if tcp.is_some() { defaults.streams } else { 0 };
        let wanted =
            Wanted { shards: 1, connections: defaults.peers, streams, files: 0, per_file: 0 };
        let share = Share::of(limit, wanted)?;
        if let Some(notice) = share.notice(limit, wanted) {
            aside(format!("notice: {notice}\n"));
        }
        let peers = if self.at.info().is_over_tcp { share.connections } else { defaults.peers };
        let clients = Clients::new(clients, None);
        let Self { at, flag, sample: every, app, open, ready, .. } = self;
        let seat = ShardSeat { flag, tcp, clients, share, peers, every, app, open, ready };
        let _settings = settle();
        let core = launch::cores().first().copied();
        let serve = move |_| at.visit(seat);
        let failed = |error: io::Error| Error::failure(format!("cannot start a thread: {error}"));
        let thread = launch::spawn("echo".to_owned(), core, serve).map_err(failed)?;
        thread.join().unwrap_or_else(|_| Err(Error::failure("the shard panicked")))
    }
}

/// The parts that go to the thread of the shard.
struct ShardSeat<A> {
    flag: &'static str,
    tcp: Option<SocketAddr>,
    clients: Clients,
    share: Share,
    /// Connections over the fabric.
    peers: usize,
    every: u32,
    app: Box<dyn FnOnce(&FabricAddress) -> A + Send>,
    open: fn(&mut A, &Limits, Option<&str>),
    ready: fn(&str),
}

impl<A: App> FabricVisitor for ShardSeat<A> {
    type Output = Result<Stages, Error>;

    fn visit<P: Fabric>(self, at: P::Address) -> Self::Output {
        self.serve::<P>(&at)
    }
}

impl<A: App> ShardSeat<A> {
    fn config(&self, clock: Clock) -> Result<Config, Error> {
        Ok(Config {
            grant: GRANT,
            grant_first: 64,
            reverse_calls_max: DEPTH_MAX,
            receives: 8_192,
            inbound: 9_216,
            peers: self.peers,
            streams: self.share.streams.max(1),
            slots: [16_384, 2_048, 192],
            xid_seed: u32::from_ne_bytes(random()?),
            sampling: Sampling { every: self.every, clock: Some(clock), ..Sampling::default() },
            ..Config::default()
        })
    }

    fn serve<P: Fabric>(self, at: &P::Address) -> Result<Stages, Error> {
        let short = |error: io::Error| {
            Error::failure(format!("no memory or descriptors to serve with: {error}"))
        };
        let clock = Clock::start();
        let config = self.config(clock)?;
        let Self { flag, tcp, clients, share, app, open, ready, .. } = self;
        let settings = Settings {
            half_open: Some(share.half_open),
            spare: Some(share.spare),
            links: Some(share.links),
            ..Settings::new(config.limits(GRANT as usize * 4), random()?, clock.now())
        };
        let fabric = P::for_listening(settings, std::slice::from_ref(at)).map_err(short)?;
        let (limits, device) = (*fabric.limits(), fabric.device_name().map(str::to_owned));
        let mut app = app(&P::any(at.clone()));
        open(&mut app, &limits, device.as_deref());
        let admission = clients.admission(Over::Fabric);
        let mut shard = Shard::new(fabric, app, config, admission).map_err(short)?;
        let at = shard.listen(at).map_err(|fault| cannot_listen(at, fault, flag))?;
        let mut lines = format!("READY\nLISTEN {at}\n");
        if let Some(tcp) = tcp {
            let taken = shard.listen_tcp(tcp, false);
            let taken =
                taken.map_err(|error| cannot_listen(&tcp, FabricFault::from(&error), "--tcp"))?;
            lines.push_str(&format!("TCP {taken}\n"));
        }
        let (control, handle) = control::pair().map_err(short)?;
        signals::ignore(signals::strays().into_iter().chain([SIGUSR1])).map_err(short)?;
        let mut signals = Signals::new(signals::stopping()).map_err(short)?;
        let stop = move || signals.forever().for_each(|_| handle.tell(Command::Stop));
        thread::Builder::new().name("signals".to_owned()).spawn(stop).map_err(short)?;
        say(lines + "END\n");
        ready(&at.to_string());
        aside("to stop: Ctrl-C or SIGTERM\n");
        shard
            .run(&control, move || clock.now())
            .map_err(|error| Error::failure(format!("the shard stopped: {error}")))?;
        Ok(shard.snapshot().stages)
    }
}
