//! Queue of log lines to standard error: bounded, so that a thread that logs never waits for the
//! reader. Lines that do not fit are counted, and the count is logged as soon as there is room.

use crate::quote;
use std::{
    env,
    io::{self, Write as _},
    os::linux::fs::MetadataExt,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait, at most.
const LINES_MAX: usize = 1_024;

/// Time that the end of the process leaves for waiting lines.
const PARTING: Duration = Duration::from_secs(1);

static WRITTEN: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines written and lost since the start of the process.
pub fn counted() -> (u64, u64) {
    (WRITTEN.load(Ordering::Relaxed), LOST.load(Ordering::Relaxed))
}

/// True if standard error is the journal's (systemd.exec(5), `JOURNAL_STREAM`).
pub fn is_journal() -> bool {
    let Some(named) = env::var_os("JOURNAL_STREAM") else { return false };
    let own = std::fs::metadata("/proc/self/fd/2");
    own.is_ok_and(|own| named.to_str() == Some(&format!("{}:{}", own.st_dev(), own.st_ino())))
}

/// The priority of a level (sd-daemon(3)).
const fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// The way of lines to standard error.
#[derive(Clone, Debug)]
pub struct Lines {
    /// None: to standard error at once.
    queue: Option<SyncSender<Vec<u8>>>,
    /// Each line begins with its priority.
    is_for_journal: bool,
}

/// Writes what waits when it is dropped, then ends.
#[derive(Debug)]
pub struct Flush {
    /// An empty line ends the thread: senders live as long as the process.
    queue: SyncSender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Flush {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // If standard error is not read, the waiting lines are lost, and the process ends.
        let until = Instant::now() + PARTING;
        let mut is_told = false;
        while !thread.is_finished() && Instant::now() < until {
            is_told = is_told || self.queue.try_send(Vec::new()).is_ok();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Lines {
    /// To standard error, at once.
    pub const fn direct() -> Self {
        Self { queue: None, is_for_journal: false }
    }

    /// Through the queue. Without a thread to read it, at once.
    pub fn queued(is_for_journal: bool) -> (Self, Flush) {
        let (queue, lines) = sync_channel(LINES_MAX);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || write(&lines));
        let flush = Flush { queue: queue.clone(), thread: thread.ok() };
        let queue = flush.thread.is_some().then_some(queue);
        (Self { queue, is_for_journal }, flush)
    }

    /// True if each line begins with its priority.
    pub const fn is_for_journal(&self) -> bool {
        self.is_for_journal
    }
}

/// Writes to standard error. An error is ignored: the reader may be gone.
fn aside(text: impl AsRef<[u8]>) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_ref()).and_then(|()| err.flush());
}

/// Writes lines as they come, until an empty one.
fn write(lines: &Receiver<Vec<u8>>) {
    let mut told = 0;
    while let Ok(line) = lines.recv() {
        let lost = LOST.load(Ordering::Relaxed);
        if lost > told {
            aside(format!("stag: {} events are not in the log: too many at once\n", lost - told));
            told = lost;
        }
        if line.is_empty() {
            return;
        }
        aside(line);
        WRITTEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// The writer of one event.
#[derive(Debug)]
pub struct Line<'a> {
    lines: &'a Lines,
    priority: &'static str,
    /// The process may end right after it, so it does not wait in the queue.
    is_urgent: bool,
}

impl io::Write for Line<'_> {
    /// Takes a whole event: the formatter writes it at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = escaped(self.priority, event);
        match self.lines.queue.as_ref().filter(|_| !self.is_urgent) {
            None => {
                aside(line);
                WRITTEN.fetch_add(1, Ordering::Relaxed);
            }
            Some(queue) => match queue.try_send(line) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    LOST.fetch_add(1, Ordering::Relaxed);
                }
            },
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One line of the event. Characters that control a terminal, or end a line, are escaped, as a peer
/// may have sent them.
fn escaped(priority: &str, event: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let line = quote::line(text.trim_end_matches('\n'));
    format!("{priority}{line}\n").into_bytes()
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { lines: self, priority: "", is_urgent: false }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Line<'a> {
        let priority = if self.is_for_journal { priority(*event.level()) } else { "" };
        Line { lines: self, priority, is_urgent: *event.level() == Level::ERROR }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let of = |event: &str| String::from_utf8(escaped("<4>", event.as_bytes())).unwrap();
        assert_eq!(of("a b=é\n"), "<4>a b=é\n");
        assert_eq!(of("a\nINFO b\x1b[31m\r\u{9b}\n"), "<4>a\\nINFO b\\u{1b}[31m\\r\\u{9b}\n");
        assert_eq!(escaped("", b"\xff\n"), "\u{fffd}\n".as_bytes());
    }

    #[test]
    fn lines_beyond_the_queue_are_counted_and_nobody_waits() {
        let (queue, waiting) = sync_channel(2);
        let lines = Lines { queue: Some(queue), is_for_journal: false };
        let (_, before) = counted();
        for _ in 0..5 {
            assert_eq!(lines.make_writer().write(b"x\n").unwrap(), 2);
        }
        assert_eq!((waiting.try_iter().count(), counted().1 - before), (2, 3));
    }

    #[test]
    fn priorities_are_those_of_the_journal() {
        let of = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG].map(priority);
        assert_eq!(of, ["<3>", "<4>", "<6>", "<7>"]);
    }
}
