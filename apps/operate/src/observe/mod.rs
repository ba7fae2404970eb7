//! Monitoring of a running server: its sockets, which are bound before it starts and answer once it
//! is ready.

mod refusals;

use crate::{
    control::{
        CONTROL_FILE,
        answers::{Answers, Facts, Reload},
        server::{ControlSocket, SocketFile},
    },
    metrics::{Shards, http, ready, scrape},
    plain,
};
use refusals::RefusalWatch;
use stag_verbs::{AddressFault, socket_address};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The port of `GET /metrics`, unless another is given.
const METRICS_PORT: u16 = 9_464;

/// The sockets that are asked for, each by a text of its flag; `none` disables one.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonitorRequest<'a> {
    /// `--metrics`: the address of `GET /metrics`.
    pub metrics: Option<&'a str>,
    /// `--control`: the path of the control socket.
    pub control: Option<&'a str>,
    /// `--control-group`: the group whose members may also use it.
    pub control_group: Option<&'a str>,
    /// The directory for the control socket where no path is given.
    pub state_dir: Option<&'a Path>,
}

/// Sockets that are bound, and not answered yet.
#[derive(Debug)]
pub struct Bound {
    metrics: Option<TcpListener>,
    control: Option<(ControlSocket, PathBuf)>,
    notices: Vec<String>,
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

impl MonitorRequest<'_> {
    /// The address of metrics that is asked for.
    ///
    /// # Errors
    /// A sentence about a text that is no address.
    pub fn metrics_address(&self) -> Result<Option<SocketAddr>, String> {
        let asked = self.metrics.filter(|asked| *asked != "none");
        let parse = |asked: &str| {
            socket_address(asked).map_err(|fault| match fault {
                AddressFault::Form => format!("--metrics {asked:?}: write IP:PORT, or none"),
                fault => format!("--metrics {asked:?}: {fault}"),
            })
        };
        asked.map(parse).transpose()
    }

    /// The path of the control socket; none if it is disabled.
    ///
    /// # Errors
    /// A sentence about a group for no socket.
    pub fn control_path(&self) -> Result<Option<PathBuf>, String> {
        let path = match self.control {
            Some("none") => None,
            Some(asked) => Some(PathBuf::from(asked)),
            None => self.state_dir.map(|home| home.join(CONTROL_FILE)),
        };
        if path.is_none() && self.control_group.is_some() {
            return Err(
                "--control-group without a control socket: give --control PATH, too".to_owned()
            );
        }
        Ok(path)
    }

    /// Checks that the control socket could be made, without effect on that of a running server.
    ///
    /// # Errors
    /// A sentence about one that was asked for and could not be made.
    pub fn check_control(&self) -> Result<(), String> {
        let path = self.control_path()?;
        match path.filter(|_| self.names_control()) {
            None => Ok(()),
            Some(path) => {
                let is_to_come = self
                    .state_dir
                    .is_some_and(|home| path.parent() == Some(home) && !home.exists());
                ControlSocket::check(&path, self.control_group, is_to_come)
            }
        }
    }

    /// True if the socket, or its group, was asked for.
    const fn names_control(&self) -> bool {
        self.control.is_some() || self.control_group.is_some()
    }
}

impl Bound {
    /// Binds the sockets of `request`. `free_ports` chooses free ports where it names none.
    ///
    /// # Errors
    /// A sentence about what was asked for and cannot be used. What was not asked for and cannot be
    /// used is a notice.
    pub fn new(request: &MonitorRequest<'_>, free_ports: bool) -> Result<Self, String> {
        let mut bound = Self { metrics: None, control: None, notices: Vec::new() };
        bound.bind_metrics(request, free_ports)?;
        bound.bind_control(request)?;
        Ok(bound)
    }

    /// Sentences about sockets that are missing.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Answers from here on, about `shards` and `facts`, as long as the returned value lives.
    /// `reload` reads the configuration again, if there is one. Logs peers that the fabrics refuse;
    /// `settle` is called now and then to log the number of other refusals.
    ///
    /// # Errors
    /// As starting a thread does.
    pub fn start(
        self,
        shards: &Arc<Shards>,
        facts: Facts,
        reload: Option<Reload>,
        settle: impl Fn() + Send + 'static,
    ) -> io::Result<(Watched, Watching)> {
        let [scraped, asked] = [(); 2].map(|()| Arc::clone(shards));
        let pages = http::Pages {
            metrics: Box::new(move || scrape(&scraped)),
            ready: Box::new(move || ready(&asked)),
        };
        let serve = |listener| http::serve(listener, Arc::new(pages));
        let metrics = self.metrics.map(serve).transpose()?;
        let url = metrics.map(|at| format!("http://{at}/metrics"));
        let facts = Facts { metrics: url, ..facts };
        let answers = Arc::new(Answers { shards: Arc::clone(shards), facts, reload });
        let (file, control) = match self.control {
            Some((socket, path)) => (Some(socket.serve(answers)?), Some(path)),
            None => (None, None),
        };
        let refusals = refusals::watch(Arc::clone(shards), settle)?;
        Ok((Watched { metrics, control }, Watching { _file: file, _refusals: refusals }))
    }

    fn bind_metrics(
        &mut self,
        request: &MonitorRequest<'_>,
        free_ports: bool,
    ) -> Result<(), String> {
        if request.metrics == Some("none") {
            return Ok(());
        }
        let asked = request.metrics_address()?;
        let at = asked.unwrap_or_else(|| usual_metrics(free_ports));
        match TcpListener::bind(at) {
            Ok(listener) => self.metrics = Some(listener),
            Err(error) if asked.is_some() => {
                return Err(format!("cannot listen at {at}: {} (--metrics)", plain(&error)));
            }
            Err(error) => self.notices.push(format!(
                "no metrics: cannot listen at {at}: {}; give --metrics IP:PORT, or --metrics none",
                plain(&error)
            )),
        }
        Ok(())
    }

    fn bind_control(&mut self, request: &MonitorRequest<'_>) -> Result<(), String> {
        let Some(path) = request.control_path()? else { return Ok(()) };
        match ControlSocket::bind(&path, request.control_group) {
            Ok(socket) => self.control = Some((socket, path)),
            Err(error) if request.names_control() => return Err(error),
            Err(error) => self.notices.push(format!("{error}; 'stag ctl' cannot be used")),
        }
        Ok(())
    }
}

/// The default address of metrics; with `free_ports` the port is chosen among the free ones.
pub fn usual_metrics(free_ports: bool) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, if free_ports { 0 } else { METRICS_PORT }))
}
