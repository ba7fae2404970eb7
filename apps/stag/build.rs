//! Passes the commit and the target of the build to the command, for `--version`. The commit is
//! `STAG_COMMIT` if that is set, else the one that git reports for this directory, else unknown.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=STAG_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let given = env::var("STAG_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| {
        // What moves when something is committed or checked out.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) =
                git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists())
            {
                println!("cargo:rerun-if-changed={path}");
            }
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo:rustc-env=STAG_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let target = env::var("TARGET").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo:rustc-env=STAG_TARGET={target}");
}

/// The first line that git prints. None without git, and outside of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned).filter(|line| !line.is_empty())
}
