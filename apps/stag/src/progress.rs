//! Display of progress while something takes its time: a live line on a terminal, plain lines
//! elsewhere. Always on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{IsTerminal, stderr},
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
    /// With `lines`, each step leaves one also where no live line can be shown.
    pub fn new(lines: bool) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(spinner());
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, lines, began: Instant::now() }
    }

    /// A step begins. With `octets` it moves so many.
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
