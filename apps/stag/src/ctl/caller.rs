//! The controller's end of the control socket.

use crate::{
    Error, plain,
    system::{OF_HOST, default_state_dir},
};
use rustix::process::geteuid;
use serde_json::Value;
use stag_operate::control::{
    CONTROL_FILE,
    wire::{REPLY_MAX, Reply, Request},
};
use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// Time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a server's control socket.
#[derive(Debug)]
pub struct Controller {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

impl Controller {
    /// Connects to `socket`, else to `$STAG_CONTROL`, else to the socket in the state directory.
    ///
    /// # Errors
    /// A sentence that says which socket, and how to name another.
    pub fn connect(socket: Option<&Path>) -> Result<Self, Error> {
        let paths = match socket {
            Some(path) => vec![path.to_owned()],
            None => usual()?,
        };
        let (path, connected) = first_that_answers(paths);
        let stream = connected.map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "no server made it".to_owned(),
                io::ErrorKind::ConnectionRefused => "its server has ended".to_owned(),
                io::ErrorKind::PermissionDenied => {
                    "only the server's user and root may use it (stag serve --control-group)"
                        .to_owned()
                }
                _ => plain(&error),
            };
            Error::usage(format!(
                "cannot use the control socket {}: {why}; give the one that the READY block of \
                 the server names with --socket PATH",
                path.display()
            ))
        })?;
        let timed =
            stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
        timed.map_err(|error| Error::failure(format!("{}: {error}", path.display())))?;
        Ok(Self { reader: BufReader::new(stream), path })
    }

    /// Sends `request`; returns the server's answer.
    ///
    /// # Errors
    /// The server says that it cannot do this, or does not answer.
    pub fn ask(&mut self, request: &Request) -> Result<Value, Error> {
        let lost = |why: String| Error::failure(format!("{}: {why}", self.path.display()));
        let mut line = serde_json::to_vec(request).map_err(|error| lost(error.to_string()))?;
        line.push(b'\n');
        // A server that refuses a controller answers without reading; that answer is read below.
        let sent = self.reader.get_mut().write_all(&line);
        line.clear();
        let len = self.reader.by_ref().take(REPLY_MAX as u64).read_until(b'\n', &mut line);
        match (len, sent) {
            (Ok(1..), _) => {}
            (Ok(0), _) => return Err(lost("the server has ended".to_owned())),
            (Err(error), _) => return Err(lost(format!("no answer: {}", plain(&error)))),
        }
        match serde_json::from_slice(&line) {
            Ok(Reply::Ok(value)) => Ok(value),
            Ok(Reply::Error(why)) => Err(Error::failure(why)),
            Err(error) => Err(lost(format!("what it says is no reply: {error}"))),
        }
    }
}

/// Connects to the first socket that has a server; else returns the error of the last one.
fn first_that_answers(paths: Vec<PathBuf>) -> (PathBuf, io::Result<UnixStream>) {
    let mut outcome = (PathBuf::new(), Err(io::ErrorKind::NotFound.into()));
    for path in paths {
        let connected = UnixStream::connect(&path);
        let is_there = connected.is_ok();
        outcome = (path, connected);
        if is_there {
            break;
        }
    }
    outcome
}

/// The default sockets of servers: first of the caller's own server, then of the host's.
fn usual() -> Result<Vec<PathBuf>, Error> {
    if let Some(given) = env::var_os("STAG_CONTROL").filter(|given| !given.is_empty()) {
        return Ok(vec![PathBuf::from(given)]);
    }
    let own = default_state_dir()?;
    let host = Path::new(OF_HOST);
    // A user who names a state directory means no other one.
    let is_named = env::var_os("STAG_STATE_DIR").is_some_and(|given| !given.is_empty());
    let asks_host = geteuid().is_root() && !is_named && own != host;
    let directories = [Some(own), asks_host.then(|| host.to_owned())];
    Ok(directories.into_iter().flatten().map(|directory| directory.join(CONTROL_FILE)).collect())
}
