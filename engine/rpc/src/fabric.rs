//! The table of fabrics: what a URL says, and the shard that serves or calls it.
//!
//! A fabric is one variant of [`Url`] and one arm of [`shard_for`]; nothing else here knows which
//! it is.

use crate::{error::SetupError, sim};
use rustix::rand::{GetRandomFlags, getrandom};
use stag_engine::{Admission, App, Config, Control, Cx, PeerId, Shard, Time, clock::Clock, stats::Snapshot};
use stag_iwarp::Iwarp;
use stag_protocol::rpcrdma::chunk::READS_MAX;
use stag_shm::Shm;
use stag_verbs::{FabricFault, Provider};
use std::{fmt, io, net::SocketAddr, str::FromStr};

/// Work requests that one connection may have pending.
const SEND_QUEUE: usize = 256;
const _: () = assert!(SEND_QUEUE > READS_MAX, "the Reads of a call fit the send queue");

/// An address to listen at or to connect to, and its fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Url {
    /// The software RNIC.
    Iwarp(stag_iwarp::Address),
    /// Memory shared with processes of this host.
    Shm(stag_shm::Address),
    /// RPC over TCP, beside whatever fabric the shard has.
    Tcp(SocketAddr),
    /// The simulated fabric of this thread.
    Sim(stag_sim::Port),
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iwarp(at) => at.fmt(f),
            Self::Shm(at) => at.fmt(f),
            Self::Tcp(at) => write!(f, "tcp://{at}"),
            Self::Sim(at) => at.fmt(f),
        }
    }
}

impl FromStr for Url {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        let no = |why: String| SetupError::Url { url: text.to_owned(), why };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| no("it has no scheme, as in tcp://127.0.0.1:4000".into()))?;
        let socket = || {
            rest.parse::<SocketAddr>()
                .map_err(|_| no(format!("write {scheme}://IP:PORT, as in {scheme}://127.0.0.1:4000")))
        };
        match scheme {
            "iwarp" => Ok(Self::Iwarp(stag_iwarp::Address(socket()?))),
            "tcp" => Ok(Self::Tcp(socket()?)),
            "shm" => text.parse().map(Self::Shm).map_err(|why: stag_shm::AddressError| no(why.to_string())),
            "sim" => {
                let port = rest.parse().map_err(|_| no("write sim://NUMBER".into()))?;
                Ok(Self::Sim(stag_sim::Port(port)))
            }
            _ => Err(no("the schemes are iwarp://, shm://, tcp:// and sim://".into())),
        }
    }
}

impl Url {
    /// Returns true if one shard can serve both: TCP joins any fabric of real time.
    pub(crate) fn joins(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sim(_), Self::Sim(_)) => true,
            (Self::Sim(_), _) | (_, Self::Sim(_)) => false,
            (Self::Tcp(_), _) | (_, Self::Tcp(_)) => true,
            (Self::Iwarp(_), Self::Iwarp(_)) | (Self::Shm(_), Self::Shm(_)) => true,
            (Self::Iwarp(_), Self::Shm(_)) | (Self::Shm(_), Self::Iwarp(_)) => false,
        }
    }

    /// The address of shard `index`, of several that serve the same URL: over shared memory each
    /// has a socket of its own.
    pub(crate) fn of_shard(&self, index: usize) -> Result<Self, SetupError> {
        match self {
            Self::Shm(at) => at
                .of_shard(index)
                .map(Self::Shm)
                .map_err(|why| SetupError::Url { url: self.to_string(), why: why.to_string() }),
            _ => Ok(self.clone()),
        }
    }
}

/// The parts of a shard, beside its app.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
    /// Other shards listen at the same addresses.
    pub(crate) is_shared: bool,
}

/// A shard of any fabric.
pub(crate) trait AnyShard<A: App> {
    fn listen(&mut self, at: &Url) -> Result<Url, SetupError>;
    /// Connects; again and again if the connection is to be kept.
    fn connect(&mut self, to: &Url, keep: bool) -> Result<PeerId, FabricFault>;
    fn pass(&mut self, now: Time) -> bool;
    fn wake_at(&self) -> Option<Time>;
    fn with_app(&mut self, run: &mut dyn FnMut(&mut A, &mut Cx<'_>));
    fn run(&mut self, control: &Control<Snapshot<A::Report>>, clock: Clock) -> io::Result<()>;
}

struct On<P: Provider, A: App> {
    shard: Shard<P, A>,
    is_shared: bool,
    /// The address in a URL, and the URL of an address.
    address: fn(&Url) -> Option<&P::Address>,
    url: fn(P::Address) -> Url,
}

impl<P: Provider, A: App> AnyShard<A> for On<P, A> {
    fn listen(&mut self, at: &Url) -> Result<Url, SetupError> {
        let cannot = |fault| SetupError::Listen { url: at.to_string(), fault };
        match (at, (self.address)(at)) {
            (Url::Tcp(socket), _) => {
                let bound = self.shard.listen_tcp(*socket, self.is_shared);
                bound.map(Url::Tcp).map_err(|error| cannot(FabricFault::from(&error)))
            }
            (_, Some(address)) => self.shard.listen(address).map(self.url).map_err(cannot),
            (_, None) => Err(cannot(FabricFault::BadAddress)),
        }
    }

    fn connect(&mut self, to: &Url, keep: bool) -> Result<PeerId, FabricFault> {
        match (to, (self.address)(to)) {
            (Url::Tcp(socket), _) => self.shard.connect_tcp(*socket),
            (_, Some(address)) if keep => self.shard.keep_connected(address),
            (_, Some(address)) => self.shard.connect(address),
            (_, None) => Err(FabricFault::BadAddress),
        }
    }

    fn pass(&mut self, now: Time) -> bool {
        self.shard.pass(now)
    }

    fn wake_at(&self) -> Option<Time> {
        self.shard.wake_at()
    }

    fn with_app(&mut self, run: &mut dyn FnMut(&mut A, &mut Cx<'_>)) {
        self.shard.with_app(|app, cx| run(app, cx));
    }

    fn run(&mut self, control: &Control<Snapshot<A::Report>>, clock: Clock) -> io::Result<()> {
        self.shard.run(control, move || clock.now())
    }
}

/// A shard whose fabric `at` needs, with its memory taken.
pub(crate) fn shard_for<A: App + 'static>(
    at: &Url,
    app: A,
    parts: Parts,
) -> Result<Box<dyn AnyShard<A>>, SetupError> {
    check(&parts.config)?;
    let (limits, now, is_shared) = (parts.config.limits(SEND_QUEUE), parts.clock.now(), parts.is_shared);
    let seed = random::<32>()?;
    let parts = (app, parts);
    match at {
        // TCP needs a fabric beside it that costs nothing while nobody listens there.
        Url::Iwarp(_) | Url::Tcp(_) => {
            let config =
                stag_iwarp::Config { reuse_port: is_shared, ..stag_iwarp::Config::new(limits, seed, now) };
            on(
                Iwarp::new(config)?,
                parts,
                |url| if let Url::Iwarp(at) = url { Some(at) } else { None },
                Url::Iwarp,
            )
        }
        Url::Shm(at) => {
            let trust = at.is_trusting();
            let config = stag_shm::Config { trust, ..stag_shm::Config::new(limits, seed, now) };
            on(Shm::new(config)?, parts, |url| if let Url::Shm(at) = url { Some(at) } else { None }, Url::Shm)
        }
        Url::Sim(_) => {
            on(sim::end(limits), parts, |url| if let Url::Sim(at) = url { Some(at) } else { None }, Url::Sim)
        }
    }
}

fn on<P: Provider + 'static, A: App + 'static>(
    fabric: P,
    (app, parts): (A, Parts),
    address: fn(&Url) -> Option<&P::Address>,
    url: fn(P::Address) -> Url,
) -> Result<Box<dyn AnyShard<A>>, SetupError> {
    let Parts { config, admission, is_shared, .. } = parts;
    let shard = Shard::new(fabric, app, config, admission)?;
    Ok(Box::new(On { shard, is_shared, address, url }))
}

/// Octets that nobody can foretell.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SetupError> {
    let mut octets = [0; N];
    getrandom(&mut octets, GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(octets)
}

/// Finds sizes that cannot be had together, which a shard takes for a mistake of its maker.
fn check(config: &Config) -> Result<(), SetupError> {
    let two = config.serve_versions.include_two() || config.call_versions.include_two();
    let why = match config {
        _ if two && config.private_data && config.receive_len < 4_096 => {
            "version 2 takes messages of 4,096 octets: receive_len is shorter"
        }
        Config { inbound, receives, .. } if inbound < receives => {
            "every call that can arrive needs a place: inbound is below receives"
        }
        Config { receives: 0, .. } | Config { peers: 0, .. } => "a shard has receives and peers",
        Config { slots, .. } if slots.contains(&0) => "there are buffers of each class: a slot count is 0",
        _ => return Ok(()),
    };
    Err(SetupError::Config(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_they_are_written_and_others_say_why() {
        for text in ["iwarp://127.0.0.1:1", "shm:///x?trust=uid", "tcp://[::1]:2", "sim://3"] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("127.0.0.1:1", "no scheme"),
            ("http://x", "the schemes are"),
            ("tcp://localhost", "tcp://IP:PORT"),
            ("shm://x", "absolute"),
            ("sim://x", "sim://NUMBER"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn sizes_that_contradict_each_other_are_an_error() {
        assert!(check(&Config::small()).is_ok());
        for config in [
            Config { receive_len: 1_024, ..Config::small() },
            Config { inbound: 1, ..Config::small() },
            Config { peers: 0, ..Config::small() },
            Config { slots: [8, 0, 8], ..Config::small() },
        ] {
            assert!(matches!(check(&config), Err(SetupError::Config(_))), "{config:?}");
        }
    }
}
