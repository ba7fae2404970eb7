//! Description of the machine and of the source that was measured.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    process::Command,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDescription {
    /// As `/proc/cpuinfo` calls it.
    pub processor: String,
    /// Family, model and stepping: one name stands for many processors.
    pub model: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Of Linux.
    pub kernel: String,
    /// True if the machine runs on a hypervisor.
    pub is_virtual: bool,
    /// Of the compiler, as `rustc -V` says it.
    pub compiler: String,
}

impl HostDescription {
    /// This one.
    pub fn describe() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo
                .lines()
                .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':'))
                .map_or("?", |(_, value)| value.trim())
                .to_owned()
        };
        Self {
            processor: field("model name"),
            model: format!(
                "family {} model {} stepping {}",
                field("cpu family"),
                field("model"),
                field("stepping")
            ),
            cores: thread::available_parallelism().map_or(1, Into::into),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            is_virtual: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            compiler: said("rustc", &["-V"]).unwrap_or_else(|| "?".to_owned()),
        }
    }
}

/// Returns the output of a command, without the line's end.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}

/// The commit that is checked out, followed by a plus when files differ from it.
pub fn revision() -> String {
    let commit = said("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "?".to_owned());
    let is_changed = said("git", &["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|said| !said.is_empty());
    if is_changed { format!("{commit}+") } else { commit }
}

/// Seconds since 1970-01-01 UTC.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A day as `2026-11-20`, from seconds since 1970-01-01 UTC.
pub fn date(unix_s: u64) -> String {
    let moment = i64::try_from(unix_s).ok().and_then(|unix_s| Timestamp::from_second(unix_s).ok());
    moment.unwrap_or_default().strftime("%F").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, day) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_795_132_800, "2026-11-20"),
            (4_102_444_799, "2099-12-31"),
        ] {
            assert_eq!(date(unix_s), day);
        }
    }

    #[test]
    fn this_host_has_a_processor_and_a_kernel() {
        let host = HostDescription::describe();
        assert!(!host.kernel.is_empty() && !host.processor.is_empty() && host.cores > 0);
    }
}
