//! `stag cluster takeover`: ends another gateway's session with a Ceph cluster.

use crate::Error;
use stag_ceph::{Library, MountSettings, PreparedMount, Reclaimed};
use stag_nfs_store::ceph::session_name;
use std::path::Path;

/// A Ceph cluster, and the user that asks it.
pub struct CephCluster<'a> {
    pub conf: Option<&'a Path>,
    pub user: Option<&'a str>,
    pub fs: Option<&'a str>,
}

/// Ends the session of the gateway `node`, and says how that went.
pub fn run(node: &str, at: &CephCluster<'_>) -> Result<String, Error> {
    let name = session_name(node).map_err(|error| Error::usage(error.to_string()))?;
    let library = Library::installed().map_err(|error| Error::usage(error.to_string()))?;
    let settings = MountSettings {
        user: at.user.map(|user| user.trim_start_matches("client.")),
        configuration: at.conf,
        file_system: at.fs,
        options: &[],
    };
    let client =
        PreparedMount::new(library, &settings).map_err(|error| Error::usage(error.to_string()))?;
    match client.reclaim(&name).map_err(|error| Error::failure(error.to_string()))? {
        Reclaimed::Ended => {
            Ok(format!("{node} has no session any more: its files are free, and it cannot write\n"))
        }
        Reclaimed::NotThere => {
            Ok(format!("{node} has no session: there is nothing to take over\n"))
        }
    }
}
