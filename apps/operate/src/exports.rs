//! The exports of a server, and the space of the file systems that hold them.
//!
//! Asking for space may wait for as long as a file system does not answer, such as a hard mount of
//! NFS. A thread asks, and its callers go on without the numbers that are late. A file system that
//! has not answered in time is not asked again until it has.

use serde::Serialize;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Time that file systems may take to answer for their space.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// The exports of a server, which change when it reads its settings again.
#[derive(Clone, Debug, Default)]
pub struct ExportList(Arc<Listed>);

#[derive(Debug, Default)]
struct Listed {
    exports: Mutex<Vec<ExportFacts>>,
    /// Directories whose file systems have not answered yet, with the time of the first question.
    asked: Mutex<BTreeMap<PathBuf, Instant>>,
}

/// One export.
#[derive(Clone, Debug, Serialize)]
pub struct ExportFacts {
    /// With its slash.
    pub name: String,
    /// The directory, or what else there is.
    pub source: String,
    /// `ro` or `rw`.
    pub mode: &'static str,
    /// Options of its own, as `squash=none`; empty where it has the server's.
    pub options: String,
    /// The security flavor that a mount has to name; none if AUTH_SYS is accepted.
    #[serde(skip)]
    pub sec: Option<&'static str>,
    /// The directory, if the operating system knows its file system.
    #[serde(skip)]
    pub directory: Option<PathBuf>,
    /// Networks that alone may mount it, each with its options; empty if every network that may
    /// connect may mount it.
    pub clients: Vec<String>,
}

/// Space of a file system (statvfs(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    /// All of it.
    pub size_bytes: u64,
    /// Space that users without privileges can still fill.
    pub available_bytes: u64,
    /// Files that it can hold; none where they are not limited, as on btrfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Files that can still be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_inodes: Option<u64>,
}

impl Space {
    fn of(directory: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let is_limited = found.f_files > 0;
        Ok(Self {
            size_bytes: bytes(found.f_blocks),
            available_bytes: bytes(found.f_bavail),
            inodes: is_limited.then_some(found.f_files),
            available_inodes: is_limited.then_some(found.f_favail),
        })
    }
}

impl ExportList {
    /// A list of these exports.
    pub fn new(exports: Vec<ExportFacts>) -> Self {
        Self(Arc::new(Listed { exports: Mutex::new(exports), ..Listed::default() }))
    }

    /// The exports at this moment.
    pub fn all(&self) -> Vec<ExportFacts> {
        locked(&self.0.exports).clone()
    }

    /// Lists what `other` lists.
    pub fn become_like(&self, other: &Self) {
        let exports = other.all();
        *locked(&self.0.exports) = exports;
    }

    /// Begins to ask the file systems of all exports for their space.
    pub fn ask_space(&self) -> SpaceQuestion {
        self.ask(Space::of)
    }

    fn ask(&self, space: impl Fn(&Path) -> io::Result<Space> + Send + 'static) -> SpaceQuestion {
        let until = Instant::now() + PATIENCE;
        let (answers, received) = channel();
        let all = self.all().into_iter();
        let exports: Vec<_> = all.filter_map(|it| Some((it.name, it.directory?))).collect();
        if !exports.is_empty() {
            let listed = Arc::clone(&self.0);
            let ask = move || listed.ask_each(exports, space, &answers);
            // Without a thread there are no numbers.
            let _ = thread::Builder::new().name("stag-space".to_owned()).spawn(ask);
        }
        SpaceQuestion { received, until }
    }
}

impl Listed {
    fn ask_each(
        &self,
        exports: Vec<(String, PathBuf)>,
        space: impl Fn(&Path) -> io::Result<Space>,
        answers: &Sender<(String, Space)>,
    ) {
        for (name, directory) in exports {
            let now = Instant::now();
            let first = *locked(&self.asked).entry(directory.clone()).or_insert(now);
            if now.saturating_duration_since(first) > PATIENCE {
                continue;
            }
            let found = space(&directory);
            locked(&self.asked).remove(&directory);
            if let Ok(found) = found {
                // The question may have ended.
                let _ = answers.send((name, found));
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question for the space of all exports, which is being answered.
#[derive(Debug)]
pub struct SpaceQuestion {
    received: Receiver<(String, Space)>,
    until: Instant,
}

impl SpaceQuestion {
    /// The space of exports by name, of those whose file systems answered within [`PATIENCE`] from
    /// the question on.
    pub fn answer(self) -> BTreeMap<String, Space> {
        let next = || {
            let left = self.until.saturating_duration_since(Instant::now());
            self.received.recv_timeout(left).ok()
        };
        std::iter::from_fn(next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str, directory: Option<&str>) -> ExportFacts {
        ExportFacts {
            name: name.to_owned(),
            source: String::new(),
            mode: "rw",
            options: String::new(),
            sec: None,
            directory: directory.map(PathBuf::from),
            clients: Vec::new(),
        }
    }

    const SOME: Space =
        Space { size_bytes: 9, available_bytes: 3, inodes: None, available_inodes: None };

    /// The names of exports that answer, once `count` of them do: threads may be late on a busy
    /// host.
    fn answered(list: &ExportList, count: usize) -> Vec<String> {
        loop {
            let found = list.ask(|_| Ok(SOME)).answer();
            if found.len() == count {
                return found.into_keys().collect();
            }
        }
    }

    #[test]
    fn space_is_that_of_the_file_system_of_a_directory() {
        let found = Space::of(Path::new("/")).unwrap();
        let root = rustix::fs::statvfs("/").unwrap();
        assert_eq!(found.size_bytes, root.f_blocks * root.f_frsize);
        assert!(found.available_bytes <= found.size_bytes);
        let list = ExportList::new(vec![export("/a", Some("/")), export("/memory", None)]);
        assert_eq!(answered(&list, 1), ["/a"]);
        let gone = ExportList::new(vec![export("/gone", Some("/nowhere/at/all"))]);
        assert!(gone.ask_space().answer().is_empty());
    }

    #[test]
    fn a_file_system_that_hangs_is_asked_again_once_it_has_answered() {
        let list = ExportList::new(vec![export("/hung", Some("/h")), export("/b", Some("/b"))]);
        let long_ago = Instant::now().checked_sub(2 * PATIENCE).expect("the host runs for longer");
        locked(&list.0.asked).insert(PathBuf::from("/h"), long_ago);
        assert_eq!(answered(&list, 1), ["/b"]);
        assert!(locked(&list.0.asked).contains_key(Path::new("/h")));
        // As the thread that waited for it does.
        locked(&list.0.asked).remove(Path::new("/h"));
        assert_eq!(answered(&list, 2), ["/b", "/hung"]);
    }

    #[test]
    fn several_questions_at_a_time_are_all_answered() {
        let list = ExportList::new(vec![export("/a", Some("/a"))]);
        let (answer, waits) = channel::<()>();
        let first = list.ask(move |_| {
            waits.recv().unwrap();
            Ok(SOME)
        });
        while locked(&list.0.asked).is_empty() {
            thread::yield_now();
        }
        // However long the next questions take, the first one is not late.
        let later = Instant::now() + Duration::from_secs(3_600);
        locked(&list.0.asked).values_mut().for_each(|at| *at = later);
        assert_eq!(answered(&list, 1), ["/a"]);
        answer.send(()).unwrap();
        drop(first.answer());
    }
}
