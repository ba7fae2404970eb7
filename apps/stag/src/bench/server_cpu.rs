//! CPU time of a server on this host, as counted in proc_pid_stat(5).

use crate::Error;
use rustix::param::clock_ticks_per_second;
use std::{fs, time::Instant};

/// A server's process, from some time on.
#[derive(Debug)]
pub struct ServerCpu {
    pid: u32,
    ticks: u64,
    since: Instant,
}

impl ServerCpu {
    /// The process `pid` from now on.
    pub fn watch(pid: u32) -> Result<Self, Error> {
        let ticks = ticks(pid).ok_or_else(|| {
            Error::usage(format!("--server-pid {pid}: there is no such process on this host"))
        })?;
        Ok(Self { pid, ticks, since: Instant::now() })
    }

    /// Average number of cores that it kept busy since then; none when it is gone.
    pub fn cores(&self) -> Option<f64> {
        let used = ticks(self.pid)?.checked_sub(self.ticks)?;
        let seconds = self.since.elapsed().as_secs_f64();
        Some(used as f64 / clock_ticks_per_second() as f64 / seconds.max(1e-9))
    }
}

/// Ticks that a process ran for, in user mode and in the kernel's.
fn ticks(pid: u32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<u64> {
    // The name is in parentheses, and may contain some itself.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, kernel): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_those_of_both_modes_whatever_the_name_is() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1";
        assert_eq!(parse(stat), Some(42));
        assert_eq!((parse(""), parse("7 (a) R 1 2")), (None, None));
        let own = ServerCpu::watch(std::process::id()).unwrap();
        assert!(own.cores().unwrap() >= 0.0);
        assert!(ServerCpu::watch(u32::MAX).is_err());
    }
}
