//! `stag cluster`: the file that gateways in front of the same files share.

pub mod options;
mod takeover;

use crate::{Error, caller::say};
use options::{ClusterOptions, ClusterWhat};
use serde_json::json;
use sha2::{Digest, Sha256};
use stag_nfs_store::{StartError, exports::cluster::Cluster};
use std::{fmt::Write as _, fs, path::Path};
use takeover::CephCluster;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Octets of a digest that are shown.
const SHOWN: usize = 8;

/// Does what was asked for.
pub fn run(options: &ClusterOptions) -> Result<(), Error> {
    match &options.what {
        ClusterWhat::Init { file, name, exports } => {
            let cluster = Cluster::new(name, exports).map_err(refused)?;
            cluster.create(file).map_err(refused)?;
            say(made(file, "made: give each gateway a copy of it (mode 0600)"));
        }
        ClusterWhat::Add { file, exports } => {
            let mut cluster = read(file)?;
            cluster.add(exports).map_err(refused)?;
            cluster.save(file).map_err(refused)?;
            say(made(file, "changed: give each gateway the new copy, then restart it"));
        }
        ClusterWhat::Takeover { name, conf, user, fs } => {
            let at =
                CephCluster { conf: conf.as_deref(), user: user.as_deref(), fs: fs.as_deref() };
            say(takeover::run(name, &at)?);
        }
        ClusterWhat::Show { file, json } => say(shown(&read(file)?, &digest(file)?, *json)),
    }
    Ok(())
}

/// Reads the cluster file of `--cluster`, or of this command.
pub fn read(file: &Path) -> Result<Cluster, Error> {
    Cluster::read(file).map_err(refused)
}

fn refused(error: StartError) -> Error {
    Error::usage(error.to_string())
}

fn made(file: &Path, sentence: &str) -> String {
    format!("{} {sentence}\n", file.display())
}

/// The beginning of the file's SHA-256, in hexadecimal digits. The key cannot be found from it: it
/// has 128 random bits.
fn digest(file: &Path) -> Result<String, Error> {
    let content = fs::read(file)
        .map_err(|error| Error::usage(format!("cannot read {}: {error}", file.display())))?;
    let mut digits = String::new();
    for octet in Sha256::digest(&content).iter().take(SHOWN) {
        let _ = write!(digits, "{octet:02x}");
    }
    Ok(digits)
}

fn shown(cluster: &Cluster, digest: &str, is_json: bool) -> String {
    let handles = cluster.handles();
    let exports = cluster.exports().map(|(name, id)| (name, id, handles.fsid(id)));
    if is_json {
        let exports: Vec<_> = exports
            .map(|(name, id, fsid)| {
                json!({ "name": name, "id": id.0, "fsid": format!("{fsid:#018x}") })
            })
            .collect();
        let all = json!({ "name": cluster.name(), "digest": digest, "exports": exports });
        return format!("{all:#}\n");
    }
    let mut text = format!("cluster {}\ndigest  {digest}\n", cluster.name());
    for (name, id, fsid) in exports {
        let _ = writeln!(text, "export  {:4}  fsid {fsid:#018x}  /{name}", id.0);
    }
    text
}
