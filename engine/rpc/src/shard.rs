//! One trait for shards of any fabric, whichever fabric a URL names.

use crate::error::SetupError;
use rustix::rand::{GetRandomFlags, getrandom};
use stag_engine::{
    Admission, Allowed, App, Config, ConfigFault, Control, PeerId, Shard, Sleeper, Time,
    clock::Clock, config::INLINE_LEN, stats::Snapshot,
};
use stag_fabrics::{
    Endpoint, Fabric, FabricAddress, FabricVisitor, Open, Settings, Sharing, StreamsOnly,
};
use stag_protocol::rpcrdma::chunk::READS_MAX;
use stag_verbs::{FabricFault, Provider};
use std::{io, time::Duration};

/// Maximum of pending work requests on one connection.
const SEND_QUEUE: usize = 256;
const _: () = assert!(SEND_QUEUE > READS_MAX, "the Reads of a call fit the send queue");

/// Parses the URL of a server.
pub(crate) fn parse(url: &str) -> Result<Endpoint, SetupError> {
    Endpoint::parse(url)
        .map_err(|why| SetupError::Url { url: url.to_owned(), why: why.to_string() })
}

/// Returns true for `sim://`, where all ends are in one thread.
pub(crate) fn is_simulated(at: &Endpoint) -> bool {
    at.fabric().is_some_and(|at| at.info().is_simulated)
}

/// Returns true if only one shard can listen at `at`.
pub(crate) fn is_for_one_shard(at: &Endpoint) -> bool {
    at.fabric().is_some_and(|at| at.info().sharing == Sharing::Nobody)
}

/// Returns true if one shard can serve both: TCP joins any fabric of real time.
pub(crate) fn can_share_shard(one: &Endpoint, other: &Endpoint) -> bool {
    match (one.fabric(), other.fabric()) {
        (Some(one), Some(other)) => one.info() == other.info(),
        (Some(at), None) | (None, Some(at)) => !at.info().is_simulated,
        (None, None) => true,
    }
}

/// The address of shard `index`, of several that serve the same URL: on some fabrics each has its
/// own address.
pub(crate) fn of_shard(at: &Endpoint, index: usize) -> Result<Endpoint, SetupError> {
    match at {
        Endpoint::Fabric(fabric) => fabric
            .of_shard(index)
            .map(Endpoint::Fabric)
            .map_err(|why| SetupError::Url { url: at.to_string(), why }),
        Endpoint::Tcp(_) => Ok(at.clone()),
    }
}

/// The parts of a shard, except its app.
pub(crate) struct ShardParts {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
    /// Other shards listen at the same addresses.
    pub(crate) is_shared: bool,
}

/// The purpose of a shard: to listen or to connect.
pub(crate) enum Purpose<'a> {
    /// Peers connect to it at these addresses.
    Listen(&'a [Endpoint]),
    /// It connects to this server.
    Connect(&'a Endpoint),
}

impl Purpose<'_> {
    /// An address on the fabric that the shard needs; none for TCP alone.
    fn fabric(&self) -> Option<&FabricAddress> {
        match self {
            Self::Listen(all) => all.iter().find_map(Endpoint::fabric),
            Self::Connect(to) => to.fabric(),
        }
    }
}

/// A shard of any fabric.
pub(crate) trait AnyShard<A: App> {
    fn listen(&mut self, at: &Endpoint) -> Result<Endpoint, SetupError>;
    /// Connects; repeatedly if the connection is to be kept.
    fn connect(&mut self, to: &Endpoint, keep: bool) -> Result<PeerId, SetupError>;
    fn pass(&mut self, now: Time) -> bool;
    fn wake_at(&self) -> Option<Time>;
    fn run(&mut self, control: &Control<Snapshot<A::Report>>, clock: Clock) -> io::Result<()>;
    /// The shard's sources of events, and those of `control`.
    fn sleeper(&self, control: &Control<Snapshot<A::Report>>) -> io::Result<Sleeper>;
    /// Sleeps until there is work, or until `control` wakes it, at most for `longest`.
    fn sleep(
        &mut self,
        sleeper: &Sleeper,
        control: &Control<Snapshot<A::Report>>,
        now: Time,
        longest: Duration,
    ) -> io::Result<()>;
}

struct FabricShard<P: Provider, A: App> {
    shard: Shard<P, A>,
    is_shared: bool,
}

/// The address of `at` on the fabric of `P`.
fn address<P: Fabric>(at: &Endpoint) -> Result<P::Address, FabricFault> {
    P::only(at.fabric()).pop().ok_or(FabricFault::BadAddress)
}

impl<P: Fabric, A: App> AnyShard<A> for FabricShard<P, A> {
    fn listen(&mut self, at: &Endpoint) -> Result<Endpoint, SetupError> {
        let bound = match at {
            Endpoint::Tcp(socket) => self
                .shard
                .listen_tcp(*socket, self.is_shared)
                .map(Endpoint::Tcp)
                .map_err(|error| FabricFault::from(&error)),
            Endpoint::Fabric(_) => address::<P>(at)
                .and_then(|address| self.shard.listen(&address))
                .map(|bound| Endpoint::Fabric(P::any(bound))),
        };
        bound.map_err(|fault| SetupError::Listen { url: at.to_string(), fault })
    }

    fn connect(&mut self, to: &Endpoint, keep: bool) -> Result<PeerId, SetupError> {
        let peer = match to {
            Endpoint::Tcp(socket) => self.shard.connect_tcp(*socket),
            Endpoint::Fabric(_) => address::<P>(to).and_then(|address| match keep {
                true => self.shard.keep_connected(&address),
                false => self.shard.connect(&address),
            }),
        };
        peer.map_err(|fault| SetupError::Connect { url: to.to_string(), fault })
    }

    fn pass(&mut self, now: Time) -> bool {
        self.shard.pass(now)
    }

    fn wake_at(&self) -> Option<Time> {
        self.shard.wake_at()
    }

    fn run(&mut self, control: &Control<Snapshot<A::Report>>, clock: Clock) -> io::Result<()> {
        self.shard.run(control, move || clock.now())
    }

    fn sleeper(&self, control: &Control<Snapshot<A::Report>>) -> io::Result<Sleeper> {
        Sleeper::new(&self.shard, Some(control))
    }

    fn sleep(
        &mut self,
        sleeper: &Sleeper,
        control: &Control<Snapshot<A::Report>>,
        now: Time,
        longest: Duration,
    ) -> io::Result<()> {
        self.shard.sleep(sleeper, Some(control), now, longest)
    }
}

/// Makes a shard on the fabric that `purpose` needs, with its memory allocated.
pub(crate) fn shard_for<A: App + 'static>(
    purpose: &Purpose<'_>,
    app: A,
    parts: ShardParts,
) -> Result<Box<dyn AnyShard<A>>, SetupError> {
    let settings = settings(&parts.config, parts.is_shared, &parts.clock)?;
    let make = MakeShard { purpose, app, parts, settings };
    match purpose.fabric() {
        Some(at) => at.clone().visit(make),
        // TCP needs some fabric; this one costs nothing while it is not used.
        None => {
            let fabric = <StreamsOnly as Open>::for_connecting(make.settings.clone(), None)?;
            make.around(fabric)
        }
    }
}

/// A client's sizes: its buffers, and the maximum number of concurrent calls.
pub(crate) fn sizes(slots: [usize; 3], calls: u16) -> Config {
    let (outbound, receives) = (usize::from(calls), usize::from(calls) * 4);
    Config {
        calls_max: u32::from(calls),
        receives,
        receive_len: INLINE_LEN,
        inbound: receives,
        outbound,
        peers: 2,
        streams: 2,
        slots,
        ..Config::default()
    }
}

/// The settings of a fabric for a shard of these sizes, if they are possible. A server or a client
/// of this crate may get a message of any length, so it needs buffers of each class.
pub(crate) fn settings(
    config: &Config,
    shared_port: bool,
    clock: &Clock,
) -> Result<Settings, SetupError> {
    config.check_sizes()?;
    if config.slots.contains(&0) {
        let rule = "there are buffers of each class";
        let (field, allowed) = ("slots", Allowed::AtLeast(1));
        return Err(ConfigFault { field, value: 0, allowed, rule }.into());
    }
    let reserved_port = config.reserved_port;
    let settings = Settings::new(config.limits(SEND_QUEUE), random()?, clock.now());
    Ok(Settings { shared_port, reserved_port, ..settings })
}

/// Makes a shard of the visited fabric.
struct MakeShard<'a, A> {
    purpose: &'a Purpose<'a>,
    app: A,
    parts: ShardParts,
    settings: Settings,
}

impl<A: App + 'static> MakeShard<'_, A> {
    fn around<P: Fabric>(self, fabric: P) -> Result<Box<dyn AnyShard<A>>, SetupError> {
        let ShardParts { config, admission, is_shared, .. } = self.parts;
        let shard = Shard::new(fabric, self.app, config, admission)?;
        Ok(Box::new(FabricShard { shard, is_shared }))
    }
}

impl<A: App + 'static> FabricVisitor for MakeShard<'_, A> {
    type Output = Result<Box<dyn AnyShard<A>>, SetupError>;

    fn visit<P: Fabric>(self, at: P::Address) -> Self::Output {
        let settings = self.settings.clone();
        let fabric = match self.purpose {
            Purpose::Listen(all) => {
                P::for_listening(settings, &P::only(all.iter().filter_map(Endpoint::fabric)))?
            }
            Purpose::Connect(_) => P::for_connecting(settings, Some(&at))?,
        };
        self.around(fabric)
    }
}

/// Unpredictable octets.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SetupError> {
    let mut octets = [0; N];
    getrandom(&mut octets, GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_they_are_written_and_others_say_why() {
        for text in ["iwarp://127.0.0.1:1", "shm:///x?trust=uid", "tcp://[::1]:2", "sim://3"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for (text, part) in [
            ("127.0.0.1:1", "no scheme"),
            ("http://x", "there is no scheme http://, only iwarp, shm"),
            ("tcp://localhost", "tcp://IP:PORT"),
            ("shm://x", "absolute"),
            ("sim://x", "no address of sim://"),
            #[cfg(not(feature = "verbs"))]
            ("rdma://127.0.0.1:1", "--features verbs"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
