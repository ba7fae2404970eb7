//! Instructions under callgrind: exact, whatever else the host does.

use std::{fs, path::Path, process::Command};

/// Returns the command that is run, as one would type it.
pub fn shown(program: &str, subject: &str, times: u64) -> String {
    format!("valgrind --tool=callgrind --toggle-collect='*measured*' {program} {subject} {times}")
}

/// Instructions of `subject`, each of `times` times, by the release build of a counting program
/// (`stag-counts` and its like) at `program`.
///
/// # Errors
/// When valgrind or the program fails, with its words.
pub fn count(program: &Path, subject: &str, times: u64) -> Result<f64, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured*"])
        .arg(format!("--callgrind-out-file={}", file.path().display()))
        .arg(program)
        .args([subject, &times.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !run.status.success() {
        return Err(format!("{subject}: {}", String::from_utf8_lossy(&run.stderr)));
    }
    let profile = fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
    let total =
        profile.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse::<f64>().ok());
    match total {
        Some(total) if total > times as f64 => Ok(total / times as f64),
        _ => Err(format!("{subject}: nothing was counted")),
    }
}
