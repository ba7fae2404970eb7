//! A real Ceph cluster of this host, for tests that compare it with the fake library.

use std::{
    env,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::OnceLock,
};

/// The configuration of the cluster that this process shares, started at the first call by
/// `tests/ceph/cluster`. It ends soon after the process. None, with the reason printed, where no
/// cluster can be started.
///
/// # Panics
/// If a cluster that can be started does not start.
pub fn configuration() -> Option<&'static Path> {
    static CLUSTER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match CLUSTER.get_or_init(start) {
        Ok(configuration) => Some(configuration),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

fn start() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../tests/ceph/cluster");
    let run = |words: &[&str]| {
        let output =
            Command::new(&script).args(words).output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    run(&["able"])?;
    let home = env::temp_dir().join(format!("stag-ceph-{}", process::id()));
    let owner = process::id().to_string();
    run(&["start", &home.to_string_lossy(), &owner]).expect("a cluster that can be started is");
    Ok(home.join("ceph.conf"))
}
