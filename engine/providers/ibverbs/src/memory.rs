//! Locked memory: a device reaches only pages that cannot be moved, and the system limits how many
//! a process may have.

use rustix::process::{Resource, getrlimit};
use std::{fs, io};

/// The bit of `CAP_IPC_LOCK`, which lifts the limit.
const CAP_IPC_LOCK: u32 = 14;
/// Octets that queues and windows pin in addition to the pools, as an estimate.
const QUEUES: u64 = 4 << 20;

/// Locked memory that this process has, and may have.
#[derive(Clone, Copy, Debug)]
struct Locked {
    /// Octets it may lock; `None` for no limit.
    limit: Option<u64>,
    /// The limit does not bind it, because it may lock memory anyway. (siw of Linux 6.1 does not
    /// know that.)
    is_exempt: bool,
    /// Octets it has pinned.
    pinned: u64,
}

impl Locked {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next())
        };
        let capabilities =
            field("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let pinned = field("VmPin:").and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
        let is_exempt = capabilities >> CAP_IPC_LOCK & 1 == 1;
        let limit = getrlimit(Resource::Memlock).current;
        Self { limit, is_exempt, pinned: pinned.saturating_mul(1024) }
    }

    /// Checks that `more` octets fit; the error gives a remedy if they do not.
    fn check(self, more: u64) -> io::Result<()> {
        match self.is_exempt {
            true => Ok(()),
            false => self.check_limit(more),
        }
    }

    fn check_limit(self, more: u64) -> io::Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let need = self.pinned.saturating_add(more).saturating_add(QUEUES);
        if need <= limit {
            return Ok(());
        }
        let kib = need.div_ceil(1024);
        Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "the device needs {kib} KiB of locked memory and the limit is {} KiB; fix: `ulimit \
                 -l {kib}` in the shell that starts this (as root), or `LimitMEMLOCK={kib}K` in \
                 the systemd unit",
                limit / 1024
            ),
        ))
    }
}

/// Checks that `more` octets can be locked; the error says how to raise the limit.
pub(crate) fn check(more: usize) -> io::Result<()> {
    Locked::now().check(more as u64)
}

/// Adds the known causes to a failed registration of `len` octets.
pub(crate) fn explain(error: io::Error, len: usize) -> io::Error {
    if error.raw_os_error() == Some(libc::ENOMEM)
        && let Err(limit) = Locked::now().check_limit(len as u64)
    {
        return limit;
    }
    let is_fork_safe =
        ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"].iter().any(|name| std::env::var_os(name).is_some());
    // libibverbs then splits mappings by base pages, which huge pages do not allow. The variable
    // has to be there before the process has threads, so it is asked for and not set.
    if error.raw_os_error() == Some(libc::EINVAL)
        && is_fork_safe
        && std::env::var_os("RDMAV_HUGEPAGES_SAFE").is_none()
    {
        return io::Error::new(
            error.kind(),
            format!(
                "{error}; fix: set RDMAV_HUGEPAGES_SAFE=1 beside RDMAV_FORK_SAFE, or leave both out"
            ),
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_the_limit_may_be_locked_and_no_octet_more() {
        let locked = Locked { limit: Some(64 << 20), is_exempt: false, pinned: 10 << 20 };
        assert!(locked.check(50 << 20).is_ok());
        assert!(locked.check((50 << 20) + 1).is_err());
        assert!(Locked { limit: None, ..locked }.check(u64::MAX).is_ok());
        assert!(Locked { is_exempt: true, ..locked }.check(u64::MAX).is_ok());
        assert!(locked.check(u64::MAX).is_err(), "nothing wraps");
    }

    #[test]
    fn a_limit_too_low_is_told_with_the_commands_that_raise_it() {
        let error = Locked { limit: Some(8 << 20), is_exempt: false, pinned: 0 }
            .check(60 << 20)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`ulimit -l 65536`") && error.contains("`LimitMEMLOCK=65536K`"),
            "{error}"
        );
        assert!(error.contains("the limit is 8192 KiB"), "{error}");
    }

    #[test]
    fn this_process_has_a_state() {
        assert!(Locked::now().check(0).is_ok() || Locked::now().limit.is_some());
    }
}
