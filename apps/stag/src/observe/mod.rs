//! Monitoring of a running server: the options, and the sockets, which are bound before it starts
//! and answer once it is ready.

pub mod options;
mod refusals;

use crate::{
    Error,
    admission::AdmissionTable,
    args::address::{self, cannot_listen},
    caller::aside,
    ctl::{
        CONTROL_FILE,
        answers::{Answers, Facts, Reload},
        server::{ControlSocket, SocketFile},
    },
    metrics::{Shards, http, ready, scrape},
    plain,
};
use options::ObserveOptions;
use refusals::RefusalWatch;
use stag_verbs::FabricFault;
use stag_verbs::{AddressFault, socket_address};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The port of `GET /metrics`, unless another is given.
const METRICS_PORT: u16 = 9_464;

/// Sockets that are bound, and not answered yet.
#[derive(Debug)]
pub struct Bound {
    metrics: Option<TcpListener>,
    control: Option<(ControlSocket, PathBuf)>,
}

/// Threads and files that last as long as a server is watched.
#[derive(Debug)]
pub struct Watching {
    _file: Option<SocketFile>,
    _refusals: RefusalWatch,
}

/// Addresses at which a server that is ready can be watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The address of `GET /metrics`.
    pub metrics: Option<SocketAddr>,
    /// The socket of `stag ctl`.
    pub control: Option<PathBuf>,
}

impl Bound {
    /// Binds the sockets that `options` ask for. `free_ports` chooses free ports where the options
    /// name none; `state_dir` is where the control socket is made unless they say where.
    ///
    /// # Errors
    /// A sentence about what was asked for and cannot be used.
    pub fn new(
        options: &ObserveOptions,
        free_ports: bool,
        state_dir: Option<&Path>,
    ) -> Result<Self, Error> {
        Ok(Self { metrics: metrics(options, free_ports)?, control: control(options, state_dir)? })
    }

    /// Answers from here on, about `shards` and `facts`, as long as the returned value lives.
    /// `reload` reads the configuration again, if there is one. Logs the number of refusals that
    /// `admission` did not log.
    ///
    /// # Errors
    /// A sentence when a thread cannot be started.
    pub fn start(
        self,
        shards: &Arc<Shards>,
        facts: Facts,
        reload: Option<Reload>,
        admission: &Arc<AdmissionTable>,
    ) -> Result<(Watched, Watching), Error> {
        let failed = |error: io::Error| Error::failure(format!("cannot be watched: {error}"));
        let [scraped, asked] = [(); 2].map(|()| Arc::clone(shards));
        let pages = http::Pages {
            metrics: Box::new(move || scrape(&scraped)),
            ready: Box::new(move || ready(&asked)),
        };
        let serve = |listener| http::serve(listener, Arc::new(pages));
        let metrics = self.metrics.map(serve).transpose().map_err(failed)?;
        let url = metrics.map(|at| format!("http://{at}/metrics"));
        let facts = Facts { metrics: url, ..facts };
        let answers = Arc::new(Answers { shards: Arc::clone(shards), facts, reload });
        let (file, control) = match self.control {
            Some((socket, path)) => (Some(socket.serve(answers).map_err(failed)?), Some(path)),
            None => (None, None),
        };
        let refusals =
            refusals::watch(Arc::clone(shards), Arc::clone(admission)).map_err(failed)?;
        Ok((Watched { metrics, control }, Watching { _file: file, _refusals: refusals }))
    }
}

/// Checks what `options` ask for, without effect on the sockets of a running server.
///
/// # Errors
/// A sentence about what was asked for and could not be used.
pub fn check(options: &ObserveOptions, state_dir: Option<&Path>) -> Result<(), Error> {
    if let Some(at) = metrics_asked(options)? {
        address::probe(at)
            .map_err(|error| cannot_listen(&at, FabricFault::from(&error), "--metrics"))?;
    }
    let path = control_path(options, state_dir)?;
    let group = options.control_group.as_deref();
    match path.filter(|_| options.control.is_some() || group.is_some()) {
        None => Ok(()),
        Some(path) => {
            let is_to_come =
                state_dir.is_some_and(|home| path.parent() == Some(home) && !home.exists());
            ControlSocket::check(&path, group, is_to_come)
        }
    }
}

/// The path of the control socket; none if it is disabled.
pub fn control_path(
    options: &ObserveOptions,
    state_dir: Option<&Path>,
) -> Result<Option<PathBuf>, Error> {
    let path = match options.control.as_deref() {
        Some("none") => None,
        Some(asked) => Some(PathBuf::from(asked)),
        None => state_dir.map(|home| home.join(CONTROL_FILE)),
    };
    if path.is_none() && options.control_group.is_some() {
        return Err(Error::usage(
            "--control-group without a control socket: give --control PATH, too",
        ));
    }
    Ok(path)
}

fn control(
    options: &ObserveOptions,
    state_dir: Option<&Path>,
) -> Result<Option<(ControlSocket, PathBuf)>, Error> {
    let group = options.control_group.as_deref();
    let Some(path) = control_path(options, state_dir)? else { return Ok(None) };
    match ControlSocket::bind(&path, group) {
        Ok(socket) => Ok(Some((socket, path))),
        Err(error) if options.control.is_some() || group.is_some() => Err(error),
        Err(error) => {
            aside(format!("notice: {error}; 'stag ctl' cannot be used\n"));
            Ok(None)
        }
    }
}

/// The address of metrics that is asked for.
fn metrics_asked(options: &ObserveOptions) -> Result<Option<SocketAddr>, Error> {
    let asked = options.metrics.as_deref().filter(|asked| *asked != "none");
    let parse = |asked: &str| {
        socket_address(asked).map_err(|fault| {
            Error::usage(match fault {
                AddressFault::Form => format!("--metrics {asked:?}: write IP:PORT, or none"),
                fault => format!("--metrics {asked:?}: {fault}"),
            })
        })
    };
    asked.map(parse).transpose()
}

/// The default address of metrics; with `free_ports` the port is chosen among the free ones.
pub fn usual_metrics(free_ports: bool) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, if free_ports { 0 } else { METRICS_PORT }))
}

fn metrics(options: &ObserveOptions, free_ports: bool) -> Result<Option<TcpListener>, Error> {
    if options.metrics.as_deref() == Some("none") {
        return Ok(None);
    }
    let asked = metrics_asked(options)?;
    let at = asked.unwrap_or_else(|| usual_metrics(free_ports));
    match TcpListener::bind(at) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if asked.is_some() => {
            Err(Error::usage(format!("cannot listen at {at}: {} (--metrics)", plain(&error))))
        }
        Err(error) => {
            aside(format!(
                "notice: no metrics: cannot listen at {at}: {}; give --metrics IP:PORT, or \
                 --metrics none\n",
                plain(&error)
            ));
            Ok(None)
        }
    }
}
