//! The files and commands that checks read through: those of this host, or those of a recording.

use crate::Finding;
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Time that a command may take to answer.
const COMMAND_PATIENCE: Duration = Duration::from_secs(3);
/// Time that a server may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Time in which a server that does not want a connection ends it.
const CLOSE_PATIENCE: Duration = Duration::from_millis(300);
/// Octets that are read of one file at most: /proc/interrupts of a large host has a few MiB.
const FILE_LEN_MAX: u64 = 16 << 20;

/// The outcome of a TCP connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It stays.
    Stays,
    /// The server accepts it and ends it at once.
    Closed,
    /// There is none.
    No,
}

/// Files and commands of a host. Every check reads through one.
#[derive(Debug)]
pub struct HostFiles {
    root: PathBuf,
    is_recorded: bool,
    earlier: BTreeMap<String, String>,
}

impl HostFiles {
    /// The host that this process runs on.
    #[must_use]
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), is_recorded: false, earlier: BTreeMap::new() }
    }

    /// A host that was recorded under `root`. Beside its files there may be `.commands/`, with the
    /// output of each command in a file that is named by its words, joined by `_` (a `/` in a word
    /// is written `%`); `.denied`, which lists paths that need root; `.connects` and `.closes`,
    /// which list addresses that accept connections and that end them at once; and `.earlier/`,
    /// with files as they were a second before.
    #[must_use]
    pub fn recorded(root: &Path) -> Self {
        Self { root: root.to_owned(), is_recorded: true, earlier: BTreeMap::new() }
    }

    /// Returns true if it is a recording.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The content of the file at `path`, without white space at its ends.
    ///
    /// # Errors
    /// A finding: not applicable if the file does not exist, unknown if it needs root.
    pub fn text(&self, path: &str) -> Result<String, Finding> {
        let octets = self.octets(path)?;
        Ok(String::from_utf8_lossy(&octets).trim().to_owned())
    }

    /// The content of the file at `path`.
    ///
    /// # Errors
    /// As of `text`.
    pub fn octets(&self, path: &str) -> Result<Vec<u8>, Finding> {
        self.read(path).map_err(|error| unreadable(path, &error))
    }

    /// The number that the file at `path` holds.
    ///
    /// # Errors
    /// As of `text`; not applicable if it holds something else.
    pub fn number(&self, path: &str) -> Result<i64, Finding> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Finding::not_applicable(format!("{path} holds no number")))
    }

    /// Names in the directory at `path`, in order of their numbers; none if it cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_key(|name| {
            (
                name.trim_end_matches(|c: char| c.is_ascii_digit()).len(),
                {
                    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
                    digits.parse::<u64>().unwrap_or(0)
                },
                name.clone(),
            )
        });
        names
    }

    /// The last part of the path that the symbolic link at `path` leads to.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.at(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns true if there is something at `path`.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Opens the file at `path` for reading and writing, and closes it again.
    ///
    /// # Errors
    /// As of `text`.
    pub fn open(&self, path: &str) -> Result<(), Finding> {
        let opened = self
            .refuse_denied(path)
            .and_then(|()| OpenOptions::new().read(true).write(true).open(self.at(path)).map(drop));
        opened.map_err(|error| unreadable(path, &error))
    }

    /// The standard output of a command.
    ///
    /// # Errors
    /// Not applicable if the command is not installed; unknown if it fails.
    pub fn output(&self, words: &[&str]) -> Result<String, Finding> {
        if self.is_recorded {
            let name = words.join("_").replace('/', "%");
            let recorded = fs::read_to_string(self.root.join(".commands").join(name));
            return recorded.map_err(|_| not_installed(words));
        }
        run(words)
    }

    /// Tries a TCP connection to `server`.
    #[must_use]
    pub fn reaches(&self, server: SocketAddr) -> Reached {
        if self.is_recorded {
            let is_in = |list| self.listed(list, &server.to_string());
            let found = [(".closes", Reached::Closed), (".connects", Reached::Stays)];
            let found = found.into_iter().find(|(list, _)| is_in(list));
            return found.map_or(Reached::No, |(_, reached)| reached);
        }
        let Ok(mut stream) = TcpStream::connect_timeout(&server, CONNECT_PATIENCE) else {
            return Reached::No;
        };
        // NFS and iWARP say nothing before they are asked.
        let _ = stream.set_read_timeout(Some(CLOSE_PATIENCE));
        match stream.read(&mut [0]) {
            Ok(0) => Reached::Closed,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Reached::Closed,
            _ => Reached::Stays,
        }
    }

    /// Keeps the files at `paths` as they are, for checks that judge how they change.
    pub fn keep(&mut self, paths: &[String]) {
        for path in paths {
            if let Ok(text) = self.text(path) {
                self.earlier.insert(path.clone(), text);
            }
        }
    }

    /// The file at `path` as it was kept.
    #[must_use]
    pub fn earlier(&self, path: &str) -> Option<String> {
        if self.is_recorded {
            let at = self.root.join(".earlier").join(path.trim_start_matches('/'));
            return fs::read_to_string(at).ok().map(|text| text.trim().to_owned());
        }
        self.earlier.get(path).cloned()
    }

    /// Writes `value` to the file at `path`, which exists.
    ///
    /// A recorded file with a choice in brackets, or with tabs between numbers, takes the value as
    /// the kernel does.
    ///
    /// # Errors
    /// Those of the file system, and those of the kernel about the value.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.refuse_denied(path)?;
        let at = self.at(path);
        if !self.is_recorded {
            return OpenOptions::new().write(true).open(at)?.write_all(value.as_bytes());
        }
        let before = fs::read_to_string(&at)?;
        let text = match chosen(&before) {
            Some(_) => choose(&before, value).ok_or(ErrorKind::InvalidInput)?,
            None if before.contains('\t') => value.replace(' ', "\t") + "\n",
            None => format!("{value}\n"),
        };
        // A file of the kernel has its old value or its new one, whenever its writer dies.
        let beside = self.root.join(".writing");
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut draft = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        draft.write_all(text.as_bytes())?;
        fs::rename(beside, at)
    }

    /// The path by which this process reaches `path` of the host.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.refuse_denied(path)?;
        let mut octets = Vec::new();
        fs::File::open(self.at(path))?.take(FILE_LEN_MAX).read_to_end(&mut octets)?;
        Ok(octets)
    }

    fn refuse_denied(&self, path: &str) -> io::Result<()> {
        match self.is_recorded && self.listed(".denied", path) {
            true => Err(ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }

    fn listed(&self, list: &str, line: &str) -> bool {
        let list = fs::read_to_string(self.root.join(list)).unwrap_or_default();
        list.lines().any(|listed| listed == line)
    }
}

/// The choice of a file like `always [madvise] never`.
pub(crate) fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// The same file after `value` was chosen; none if it offers no such choice.
fn choose(text: &str, value: &str) -> Option<String> {
    let plain = text.replace(['[', ']'], "");
    let words: Vec<_> = plain.split_whitespace().collect();
    words.contains(&value).then(|| {
        let marked: Vec<_> = words
            .iter()
            .map(|word| if *word == value { format!("[{word}]") } else { (*word).to_owned() })
            .collect();
        marked.join(" ") + "\n"
    })
}

fn unreadable(path: &str, error: &io::Error) -> Finding {
    match error.kind() {
        ErrorKind::PermissionDenied => Finding::unknown(format!("{path} needs root")),
        ErrorKind::NotFound => Finding::not_applicable(format!("no {path} here")),
        _ => Finding::not_applicable(format!("{path}: {error}")),
    }
}

fn not_installed(words: &[&str]) -> Finding {
    Finding::not_applicable(format!("no command {}", words.first().unwrap_or(&"")))
}

fn run(words: &[&str]) -> Result<String, Finding> {
    let (name, arguments) = words.split_first().ok_or_else(|| not_installed(words))?;
    let mut child = Command::new(name)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| not_installed(words))?;
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.map(|from| from.take(FILE_LEN_MAX).read_to_end(&mut text));
        read.map(|_| text).unwrap_or_default()
    });
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < COMMAND_PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => {
                let _ = child.kill().and_then(|()| child.wait().map(drop));
                return Err(Finding::unknown(format!("{} does not answer", words.join(" "))));
            }
        }
    };
    let text = reader.join().unwrap_or_default();
    match status.success() {
        true => Ok(String::from_utf8_lossy(&text).into_owned()),
        false => Err(Finding::unknown(format!("'{}' fails here", words.join(" ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_ends_connections_is_told_from_one_that_keeps_them_and_from_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, host) = (listener.local_addr().unwrap(), HostFiles::live());
        // It waits in the listener's queue.
        assert_eq!(host.reaches(at), Reached::Stays);
        let closing = std::thread::spawn(move || {
            let _first = listener.accept().unwrap();
            drop(listener.accept().unwrap());
        });
        assert_eq!(host.reaches(at), Reached::Closed);
        closing.join().unwrap();
        assert_eq!(host.reaches(at), Reached::No);
    }
}
