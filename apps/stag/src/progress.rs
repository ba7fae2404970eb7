//! Progress display of long operations: a live line on a terminal, plain lines elsewhere. Always on
//! standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{IsTerminal, stderr},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Interval at which the live line moves while nothing is reported.
const TICK: Duration = Duration::from_millis(100);

/// Steps of something, shown.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// True if lines stay when there is no terminal.
    lines: bool,
    began: Instant,
}

impl Progress {
    /// With `lines`, each step prints one even where no live line can be shown.
    pub fn new(lines: bool) -> Self {
        Self { bar: live_line(), lines, began: Instant::now() }
    }

    /// A step begins. With `octets` it moves that number.
    pub fn begin(&mut self, what: &str, octets: Option<u64>) {
        self.began = Instant::now();
        let Some(bar) = &self.bar else { return };
        bar.reset();
        bar.set_message(what.to_owned());
        match octets {
            Some(octets) => {
                bar.set_style(moving());
                bar.set_length(octets);
            }
            None => bar.set_style(spinner()),
        }
    }

    /// Octets moved so far in this step.
    pub fn at(&self, octets: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(octets);
        }
    }

    /// The step is over; a line says what came of it.
    pub fn end(&self, line: &str) {
        let line = format!("{line} ({:.2} s)", self.began.elapsed().as_secs_f64());
        match &self.bar {
            Some(bar) if self.lines => bar.println(line),
            None if self.lines => crate::caller::aside(line + "\n"),
            _ => {}
        }
    }

    /// Shows something else while the live line is away.
    pub fn pause<T>(&self, show: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }

    /// Takes the live line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Progress of many files at a time, which several threads move: one line for all of them.
#[derive(Debug)]
pub struct TransferProgress {
    bar: Option<ProgressBar>,
    found: AtomicU64,
    ended: AtomicU64,
}

impl TransferProgress {
    /// A live line on a terminal, and nothing elsewhere.
    pub fn new() -> Self {
        let bar = live_line();
        if let Some(bar) = &bar {
            bar.set_style(moving());
            bar.set_length(0);
        }
        Self { bar, found: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// A file of `len` octets is to be moved.
    pub fn find(&self, len: u64) {
        self.found.fetch_add(1, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.inc_length(len);
        }
        self.show();
    }

    /// A file is over, however it ended.
    pub fn end_file(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// A file of `len` octets is left as it is.
    pub fn leave(&self, len: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(len);
        }
    }

    /// Follows one file of which `from` octets are present: the result is called with the number
    /// present.
    pub fn moving(&self, from: u64) -> impl FnMut(u64) + use<> {
        let bar = self.bar.clone();
        if let Some(bar) = &bar {
            bar.inc(from);
        }
        let mut last = from;
        move |at| {
            if let Some(bar) = &bar {
                bar.inc(at.saturating_sub(last));
            }
            last = last.max(at);
        }
    }

    fn show(&self) {
        if let Some(bar) = &self.bar {
            let [ended, found] =
                [&self.ended, &self.found].map(|count| count.load(Ordering::Relaxed));
            bar.set_message(format!("{ended} of {found} files"));
        }
    }

    /// Takes the live line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A live line, where standard error is a terminal.
fn live_line() -> Option<ProgressBar> {
    stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(spinner());
        bar.enable_steady_tick(TICK);
        bar
    })
}

fn spinner() -> ProgressStyle {
    style("{spinner} {msg}")
}

fn moving() -> ProgressStyle {
    style("{spinner} {msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("=> ")
}
