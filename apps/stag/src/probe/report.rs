//! `stag probe --report`: one file about this host and this build, to attach to a report of a
//! fault.
//!
//! It has no environment, no configuration, no command lines and no host name: anything that may
//! hold a secret is not read at all.

use super::Found;
use crate::{Error, args, replace};
use rustix::system::uname;
use serde_json::{Value, json};
use stag_tuning::{HostCheck, HostFiles, HostPlan, HostReport, checks, measure};
use std::{
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The version of the file format. A changed meaning of a member changes it.
const SCHEMA: &str = "stag-report/1";
/// Kernel modules of interest, by the beginnings of their names.
const MODULES: [&str; 12] = [
    "ib_", "rdma", "mlx", "irdma", "iw_", "siw", "rxe", "rpcrdma", "sunrpc", "nfs", "bnxt_re",
    "qedr",
];
/// Octets of `/proc/modules` that are looked at.
const MODULES_LEN: usize = 1 << 20;

/// Writes the file.
pub fn write(to: &Path, found: &Found) -> Result<(), Error> {
    replace::check(to, "the report")?;
    let text = serde_json::to_string_pretty(&report(found)?);
    let text = text.map_err(|error| Error::failure(error.to_string()))? + "\n";
    replace::write(to, |out| out.write_all(text.as_bytes()))
        .map_err(|error| Error::failure(format!("{}: {error}", to.display())))
}

fn report(found: &Found) -> Result<Value, Error> {
    let probe = serde_json::to_value(found).map_err(|error| Error::failure(error.to_string()))?;
    let system = uname();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(json!({
        "schema": SCHEMA,
        "stag": args::VERSION,
        "made_unix_s": now.as_secs(),
        "kernel": system.release().to_string_lossy(),
        "machine": system.machine().to_string_lossy(),
        "processor": field("/proc/cpuinfo", "model name"),
        "limits": limits(),
        "modules": modules(),
        "probe": probe,
        "check": answers(checks::of_host()),
        "client_check": answers(checks::of_client()),
    }))
}

fn answers(checks: Vec<&'static HostCheck>) -> Value {
    let scene = measure(HostFiles::live(), HostPlan::default(), &checks);
    serde_json::to_value(HostReport::of(&scene, &checks)).unwrap_or_default()
}

/// The lines of `/proc/self/limits` (`proc_pid_limits(5)`).
fn limits() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn modules() -> Vec<String> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    let text = text.get(..text.len().min(MODULES_LEN)).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let known = names.filter(|name| MODULES.iter().any(|begin| name.starts_with(begin)));
    known.map(str::to_owned).collect()
}

/// The first field of that name in a text with lines `name: value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}
