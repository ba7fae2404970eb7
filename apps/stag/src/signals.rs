//! Signals: some ask a command to end in order, others must not kill it.

use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGTERM, SIGUSR2, SIGVTALRM, SIGXCPU},
    flag,
};
use std::{fs, io, sync::Arc};

/// The first real-time signal for a program's own use: C libraries keep two or three.
const REAL_TIME_FIRST: i32 = if cfg!(target_env = "musl") { 35 } else { 34 };
/// The last one.
const REAL_TIME_LAST: i32 = 64;
/// SIGSTKFLT and SIGPWR (signal(7)), which are not sent to a command on purpose.
const UNUSED: [i32; 2] = [16, 30];

/// Signals that mean nothing to any command and would kill it, before it could free what it holds
/// on a server or for its clients.
pub fn strays() -> Vec<i32> {
    let named = [SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO];
    named.into_iter().chain(UNUSED).chain(REAL_TIME_FIRST..=REAL_TIME_LAST).collect()
}

/// Signals that ask for the end. SIGHUP is one, when the terminal is gone, unless it is ignored
/// from the start (`nohup`).
pub fn stopping() -> Vec<i32> {
    let mut signals = vec![SIGTERM, SIGINT, SIGXCPU];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Lets `signals` do nothing from here on.
pub fn ignore(signals: impl IntoIterator<Item = i32>) -> io::Result<()> {
    for signal in signals {
        flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// True if this process ignores `signal`, as proc(5) has it.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) >> (signal - 1) & 1 == 1
}

fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_ignored() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), 0x1001);
        assert_eq!(ignored(""), 0);
        // Rust's runtime has SIGPIPE ignored.
        assert!(is_ignored(signal_hook::consts::SIGPIPE) && !is_ignored(SIGTERM));
    }
}
