//! The progress of a run: a live line on a terminal, nothing elsewhere. On standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// Lines broken, of how many.
pub struct BreakProgress {
    bar: Option<ProgressBar>,
}

impl BreakProgress {
    /// Nothing is done yet of `lines`.
    pub fn new(lines: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(lines), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "[{bar:30}] {pos}/{len} {elapsed}, {eta} to go: {msg}",
            );
            bar.set_style(
                style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "),
            );
            bar.enable_steady_tick(std::time::Duration::from_millis(500));
            bar
        });
        Self { bar }
    }

    /// The next line begins.
    pub fn begin(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(line.to_owned());
        }
    }

    /// The line is done. Prints what came of it on standard output.
    pub fn end(&self, results: &[String]) {
        let print = || results.iter().for_each(|result| println!("{result}"));
        match &self.bar {
            Some(bar) => {
                bar.suspend(print);
                bar.inc(1);
            }
            None => print(),
        }
    }
}

impl Drop for BreakProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
