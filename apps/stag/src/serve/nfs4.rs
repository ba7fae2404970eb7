//! Versions of NFS that a server serves.

use super::{options::ServeOptions, plan::Plan, sentences::cannot_serve};
use crate::Error;
use stag_nfs::serve::{NfsVersions, StoreSource, nfs4_config};

/// Versions of NFS that a server is to serve.
#[derive(Clone, Copy, Debug)]
pub struct NfsPlan {
    /// Version 3.
    pub three: bool,
    /// Versions 4.1 and 4.2: the seconds of a lease.
    pub four: Option<u16>,
}

impl NfsPlan {
    /// The versions that are asked for.
    ///
    /// # Errors
    /// When version 4 is asked for and cannot be served.
    pub fn new(arguments: &ServeOptions, shards: usize) -> Result<Self, Error> {
        let asked = &arguments.nfs;
        let three = asked.contains(&3);
        if !asked.contains(&4) {
            return Ok(Self { three, four: None });
        }
        if shards > 1 {
            return Err(Error::usage(
                "--nfs 4 cannot be served: there is more than one core or fabric, and version 4 is \
                 served by one shard; leave one of them out",
            ));
        }
        Ok(Self { three, four: Some(arguments.lease) })
    }
}

/// The versions of a server that starts.
pub fn versions(plan: &Plan, source: &StoreSource) -> Result<NfsVersions, Error> {
    let NfsPlan { three, four } = plan.nfs;
    let four = four.map(|lease| nfs4_config(source, lease, !three));
    Ok(NfsVersions { three, four: four.transpose().map_err(cannot_serve)? })
}
