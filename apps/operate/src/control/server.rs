//! Control socket: lines in, lines out, on threads of its own. Nothing here waits long for a shard,
//! and no shard waits for anything here.

use super::{
    answers::Answers,
    wire::{REQUEST_MAX, Reply, Request},
};
use crate::plain;
use rustix::fs::{Gid, chown};
use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// Controllers at a time; one more gets an error.
const CONTROLLERS_MAX: usize = 8;
/// Octets of a socket's path, at most (unix(7)).
const PATH_MAX: usize = 107;
/// Name of a socket that is not yet at its path.
const DRAFT: &str = "s";
/// Time that a controller may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Time that it may take for its reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after an `accept` that failed, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that is bound. Dropping it removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that stays is found unused by the next server.
        let _ = fs::remove_file(&self.0);
    }
}

impl ControlSocket {
    /// Binds `path` with mode 0600; with a group, 0660 for that.
    ///
    /// # Errors
    /// A sentence: another server has it, it is no socket, or it cannot be made.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, String> {
        let group = group.map(group_of).transpose()?;
        check_len(path)?;
        clear(path).map_err(|why| cannot_make(path, &why))?;
        let listener = bind_private(path, group);
        let listener = listener.map_err(|error| cannot_make(path, &other_path(&error)))?;
        let file = SocketFile(path.to_owned());
        Ok(Self { listener, file })
    }

    /// Checks that `path` could be bound, even where a running server has it. `is_to_come` says
    /// that its directory is made by the start.
    ///
    /// # Errors
    /// A sentence: it is no socket, or none can be made there.
    pub fn check(path: &Path, group: Option<&str>, is_to_come: bool) -> Result<(), String> {
        let group = group.map(group_of).transpose()?;
        check_len(path)?;
        let is_free = look(path).map_err(|why| cannot_make(path, &why));
        if is_to_come {
            return is_free.map(drop);
        }
        is_free?;
        private_socket(path, group)
            .map(drop)
            .map_err(|error| cannot_make(path, &other_path(&error)))
    }

    /// Answers controllers from here on. The file lives as long as the returned value.
    ///
    /// # Errors
    /// As starting a thread does.
    pub fn serve(self, answers: Arc<Answers>) -> io::Result<SocketFile> {
        let Self { listener, file } = self;
        let heard = Arc::new(AtomicUsize::new(0));
        let accept = move || {
            loop {
                match listener.accept() {
                    Ok((controller, _)) => hear(controller, &heard, &answers),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        };
        thread::Builder::new().name("control".to_owned()).spawn(accept)?;
        Ok(file)
    }
}

fn cannot_make(path: &Path, why: &str) -> String {
    format!("cannot make the control socket {}: {why}", path.display())
}

fn other_path(error: &io::Error) -> String {
    format!("{}; give another path (--control PATH)", plain(error))
}

fn check_len(path: &Path) -> Result<(), String> {
    if path.as_os_str().len() <= PATH_MAX {
        return Ok(());
    }
    let why =
        format!("its path has more than {PATH_MAX} octets; give a shorter one (--control PATH)");
    Err(cannot_make(path, &why))
}

/// Binds a socket in a directory of its own, so that it never has more rights than it should, and
/// moves it to `path`.
fn bind_private(path: &Path, group: Option<Gid>) -> io::Result<UnixListener> {
    let (private, listener) = private_socket(path, group)?;
    fs::rename(private.path().join(DRAFT), path)?;
    Ok(listener)
}

/// Binds a socket in a temporary directory next to `path`; the returned directory removes itself.
fn private_socket(path: &Path, group: Option<Gid>) -> io::Result<(TempDir, UnixListener)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let private = tempfile::Builder::new().prefix(".s").rand_bytes(4).tempdir_in(folder)?;
    let made = private.path().join(DRAFT);
    let listener = UnixListener::bind(&made)?;
    if let Some(group) = group {
        chown(&made, None, Some(group))?;
    }
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    fs::set_permissions(&made, fs::Permissions::from_mode(mode))?;
    Ok((private, listener))
}

/// Returns true if there is a socket at `path`, and false if there is nothing.
fn look(path: &Path) -> Result<bool, String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(other_path(&error)),
        Ok(found) if !found.file_type().is_socket() => {
            Err("it exists and is no socket; give another path (--control PATH)".to_owned())
        }
        Ok(_) => Ok(true),
    }
}

/// Removes a socket that no server answers any more.
fn clear(path: &Path) -> Result<(), String> {
    if !look(path)? {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Ok(_) => Err("another server has it; give another path (--control PATH)".to_owned()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| plain(&error))
        }
        Err(error) => Err(plain(&error)),
    }
}

/// The group `name`, by number or by name (group(5)).
fn group_of(name: &str) -> Result<Gid, String> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    let known = || fs::read_to_string("/etc/group").ok()?.lines().find_map(entry);
    let number: Option<u32> = name.parse().ok().or_else(known);
    number.map(Gid::from_raw).ok_or_else(|| {
        format!("--control-group {name:?}: /etc/group has no such group; its number is taken, too")
    })
}

/// A controller that is being served; dropping it makes room for another one.
struct HeardController(Arc<AtomicUsize>);

impl Drop for HeardController {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn hear(controller: UnixStream, heard: &Arc<AtomicUsize>, answers: &Arc<Answers>) {
    let is_too_much = heard.fetch_add(1, Ordering::Relaxed) >= CONTROLLERS_MAX;
    let place = HeardController(Arc::clone(heard));
    if is_too_much {
        let busy = format!("{CONTROLLERS_MAX} controllers are connected already: end one of them");
        let _ = controller.set_nonblocking(true);
        let _ = say(&controller, &Reply::Error(busy));
        return;
    }
    let answers = Arc::clone(answers);
    let talk = move || {
        let _place = place;
        // One that leaves, or takes too long, is let go.
        let _ = talk(&controller, &answers);
    };
    let _ = thread::Builder::new().name("controller".to_owned()).spawn(talk);
}

/// Answers one controller until it leaves.
fn talk(controller: &UnixStream, answers: &Answers) -> io::Result<()> {
    controller.set_read_timeout(Some(SILENCE_MAX))?;
    controller.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(controller);
    let mut line = Vec::with_capacity(128);
    loop {
        line.clear();
        let len = reader.by_ref().take(REQUEST_MAX as u64).read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            let long = format!("a request ends with a newline, within {REQUEST_MAX} octets");
            return say(controller, &Reply::Error(long));
        }
        let reply = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => answers.answer(&request),
            Err(error) => Reply::Error(format!("no request: {error}; see 'stag ctl --help'")),
        };
        say(controller, &reply)?;
    }
}

fn say(mut controller: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    controller.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_socket_is_private_and_one_that_nobody_answers_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("control.sock");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let socket = ControlSocket::bind(&path, None).unwrap();
        assert_eq!(mode(), 0o600);
        let refused = ControlSocket::bind(&path, None).unwrap_err();
        assert!(refused.contains("another server has it; give another path"), "{refused}");
        ControlSocket::check(&path, None, false).unwrap();
        assert!(UnixStream::connect(&path).is_ok(), "a look leaves a server's socket alone");
        // Its process died.
        drop(socket.listener);
        std::mem::forget(socket.file);
        // A program that another test starts at this moment has the listener until it is executed.
        let until = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(&path).is_ok() && Instant::now() < until {
            thread::yield_now();
        }
        let own = rustix::process::getegid().as_raw().to_string();
        let socket = ControlSocket::bind(&path, Some(&own)).unwrap();
        assert_eq!(mode(), 0o660);
        drop(socket);
        assert!(!path.exists());
        fs::write(&path, "somebody's").unwrap();
        let refused = ControlSocket::bind(&path, None).unwrap_err();
        assert!(refused.contains("is no socket"), "{refused}");
        let long = home.path().join("x".repeat(120)).join("control.sock");
        fs::create_dir(long.parent().unwrap()).unwrap();
        let refused = ControlSocket::bind(&long, None).unwrap_err();
        assert!(refused.contains("has more than 107 octets; give a shorter one"), "{refused}");
        let refused = ControlSocket::check(&path, None, false).unwrap_err();
        assert!(refused.contains("is no socket"), "{refused}");
        let left = fs::read_dir(home.path()).unwrap().count();
        assert_eq!(left, 2, "nothing of ours is left");
    }

    #[test]
    fn groups_are_known_by_name_and_number() {
        assert_eq!(group_of("root").unwrap(), Gid::from_raw(0));
        assert_eq!(group_of("1234").unwrap(), Gid::from_raw(1_234));
        let refused = group_of("no:such").unwrap_err();
        assert!(refused.contains("/etc/group has no such group"), "{refused}");
    }
}
