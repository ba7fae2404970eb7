//! The signal that a file size limit sends (RLIMIT_FSIZE, setrlimit(2)).

use rustix::io::Errno;

/// Ignores SIGXFSZ in this process, unless it has a handler: a write or a truncation past the limit
/// then fails with [`Errno::FBIG`] instead of ending the process.
///
/// # Errors
/// None that sigaction(2) has for a signal that exists.
pub fn ignore_file_size_limit() -> rustix::io::Result<()> {
    // SAFETY: all zeros are a `sigaction` without handler, mask and flags.
    let mut before: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: without a new action the call only writes the present one to `before`, which lives
    // through it.
    let asked = unsafe { libc::sigaction(libc::SIGXFSZ, core::ptr::null(), &raw mut before) };
    done(asked)?;
    if before.sa_sigaction != libc::SIG_DFL {
        return Ok(());
    }
    let ignored = libc::sigaction { sa_sigaction: libc::SIG_IGN, ..before };
    // SAFETY: `ignored` is a whole action that runs no code, and lives through the call.
    let set = unsafe { libc::sigaction(libc::SIGXFSZ, &raw const ignored, core::ptr::null_mut()) };
    done(set)
}

fn done(returned: libc::c_int) -> rustix::io::Result<()> {
    let error = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL);
    if returned == 0 { Ok(()) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the process with the limit.
    const LIMITED: &str = "STAG_TEST_FILE_SIZE_LIMITED";

    #[test]
    fn a_write_behind_the_file_size_limit_fails_and_ends_nobody() {
        if std::env::var_os(LIMITED).is_some() {
            ignore_file_size_limit().unwrap();
            let file = tempfile::tempfile().unwrap();
            assert_eq!(rustix::fs::ftruncate(&file, 1 << 20), Err(Errno::FBIG));
            assert_eq!(rustix::io::pwrite(&file, b"x", 1 << 20), Err(Errno::FBIG));
            return;
        }
        let test = "signal::tests::a_write_behind_the_file_size_limit_fails_and_ends_nobody";
        let mut command = std::process::Command::new("sh");
        // In blocks of 512 bytes, or of 1,024 in some shells.
        command.args(["-c", r#"ulimit -f 64; exec "$0" --exact "$1" --nocapture"#]);
        let output = command
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .env(LIMITED, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    }
}
