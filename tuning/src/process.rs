//! Settings that a process gives itself and that end with it: no other process is touched, and
//! nothing has to be undone.

use rustix::{
    process::{Resource, getrlimit},
    thread::{current_timer_slack, set_current_timer_slack},
};
use serde::Serialize;
use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Write},
    num::NonZeroU64,
    path::Path,
};

/// The file that holds cores awake while it is open (linux/Documentation/power/pm_qos_interface).
const DMA_LATENCY: &str = "/dev/cpu_dma_latency";
/// Microseconds that leaving a sleep state may take.
const AWAKE_US: i32 = 0;
/// The same without any request: the kernel's PM_QOS_CPU_LATENCY_DEFAULT_VALUE.
const ASLEEP_US: i32 = 2_000_000_000;
/// Nanoseconds that the kernel may add to a sleep of a thread; 50,000 by default.
const SLACK_NS: u64 = 1;

/// One setting, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessSetting {
    /// Its subject.
    pub name: &'static str,
    /// Its value, or the reason why it does not have the wanted one.
    pub value: String,
    /// The command that would remove the obstacle; none if there is none.
    pub fix: Option<String>,
}

impl ProcessSetting {
    fn is(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), fix: None }
    }
}

/// Settings of this process, for as long as it lives.
#[derive(Debug)]
pub struct ProcessSettings {
    /// Holds cores awake.
    awake: Option<File>,
    settings: Vec<ProcessSetting>,
}

impl ProcessSettings {
    /// Gives this thread, and all that it starts from now on, what they can have: no sleep states
    /// that take long to leave while `polls`, no slack of timers; and looks at limits.
    #[must_use]
    pub fn take(polls: bool) -> Self {
        let (awake, sleep) = if polls { hold_awake() } else { (None, None) };
        let settings = sleep.into_iter().chain([slack(), locked(), descriptors()]).collect();
        Self { awake, settings }
    }

    /// Settings that hold cores awake by another file than the kernel's: for tests.
    ///
    /// # Errors
    /// As opening the file and writing to it fail.
    #[doc(hidden)]
    pub fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self { awake: Some(hold(path)?), settings: Vec::new() })
    }

    /// True if these settings hold cores awake, and can let them sleep.
    #[must_use]
    pub const fn holds_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Holds cores awake, or lets them sleep as deep as others allow. What the kernel refuses now
    /// and allowed at the start leaves sleep states as they are.
    pub fn hold_awake(&self, awake: bool) {
        let limit: i32 = if awake { AWAKE_US } else { ASLEEP_US };
        if let Some(mut file) = self.awake.as_ref() {
            let _ = file.write_all(&limit.to_ne_bytes());
        }
    }

    /// The settings, and their outcomes.
    #[must_use]
    pub fn settings(&self) -> &[ProcessSetting] {
        &self.settings
    }

    /// One line for a person: all settings, and what to type where one could not be had.
    #[must_use]
    pub fn line(&self) -> String {
        let shown: Vec<_> = self
            .settings
            .iter()
            .map(|ProcessSetting { name, value, fix }| match fix {
                Some(fix) => format!("{name} {value} (fix: {fix})"),
                None => format!("{name} {value}"),
            })
            .collect();
        format!("process: {}", shown.join("; "))
    }
}

/// Asks for no latency of leaving a sleep state: an idle state that is deeper costs some 100 us.
fn hold_awake() -> (Option<File>, Option<ProcessSetting>) {
    let name = "sleep states";
    match hold(Path::new(DMA_LATENCY)) {
        Ok(file) => (Some(file), Some(ProcessSetting::is(name, "held at 0 us"))),
        Err(error) => {
            let (value, fix) = match error.kind() {
                ErrorKind::NotFound => (format!("not held: no {DMA_LATENCY} here"), None),
                ErrorKind::PermissionDenied => (
                    format!("not held: {DMA_LATENCY} needs root"),
                    Some(format!("chgrp stag {DMA_LATENCY}; chmod g+w {DMA_LATENCY}")),
                ),
                _ => (format!("not held: {DMA_LATENCY}: {error}"), None),
            };
            (None, Some(ProcessSetting { name, value, fix }))
        }
    }
}

fn hold(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(&AWAKE_US.to_ne_bytes())?;
    Ok(file)
}

fn slack() -> ProcessSetting {
    let name = "timer slack";
    let set = set_current_timer_slack(NonZeroU64::new(SLACK_NS));
    match set.and_then(|()| current_timer_slack()) {
        Ok(nanos) => ProcessSetting::is(name, format!("{nanos} ns")),
        Err(error) => ProcessSetting::is(name, format!("as it was: {error}")),
    }
}

/// Locked memory: with which limit it is known if a device's buffers fit.
fn locked() -> ProcessSetting {
    let name = "locked memory";
    match getrlimit(Resource::Memlock).current {
        None => ProcessSetting::is(name, "unlimited"),
        Some(octets) => ProcessSetting::is(name, format!("{} KiB at most", octets >> 10)),
    }
}

fn descriptors() -> ProcessSetting {
    let name = "descriptors";
    let limit = getrlimit(Resource::Nofile);
    match limit.current {
        None => ProcessSetting::is(name, "unlimited"),
        Some(count) => ProcessSetting::is(name, format!("{count} at most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_what_it_gave_itself() {
        let settings = std::thread::spawn(|| {
            let taken = ProcessSettings::take(true);
            let slack = taken.settings().iter().find(|setting| setting.name == "timer slack");
            assert_eq!(slack.unwrap().value, "1 ns");
            // Threads inherit it.
            std::thread::spawn(|| assert_eq!(current_timer_slack(), Ok(SLACK_NS))).join().unwrap();
            taken
        });
        let settings = settings.join().unwrap();
        let line = settings.line();
        for part in ["process: sleep states ", "; locked memory ", "; descriptors "] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!ProcessSettings::take(false).line().contains("sleep states"));
    }

    #[test]
    fn a_file_that_holds_cores_awake_gets_a_zero() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("latency");
        std::fs::write(&path, "").unwrap();
        drop(hold(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4]);
        assert!(hold(Path::new("/no/such/file")).is_err());
    }
}
