//! Step of a plan: the exports, and the store that serves their files. All that `stag serve`
//! decides by the kind of a store is in the file of that kind; the rest of the command line asks
//! [`PlannedStore`].

mod ceph;
mod ceph_url;
mod files;
mod memory;

use self::{ceph::PlannedCeph, ceph_url::CephPlan, files::PlannedFiles, memory::PlannedMemory};
use super::{
    Plan, PlanPurpose,
    client_rules::Reach,
    exports::{self, Exported},
    options::ServeOptions,
    security,
    state_dir::state_dir,
};
use crate::{Error, settings::Merged};
use stag_nfs::serve::StoreSource;
use stag_nfs_store::{
    exports::cluster::Cluster,
    files::{Callers, SlowExports},
};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A store as it is planned, by its kind. What a method returns by default is right for a store
/// whose files are not in directories of this host.
pub trait PlannedStore: fmt::Debug {
    /// Its kind and its size, in the line that introduces a server.
    fn headline(&self) -> String;

    /// The directory for persistent state and the control socket, if there is one.
    fn state_dir(&self) -> Option<&Path>;

    /// The directory of the records of clients of version 4; none if what clients have open is
    /// lost with the process.
    fn records_dir(&self) -> Option<&Path> {
        self.state_dir()
    }

    /// The cluster that this server is a gateway of.
    fn cluster(&self) -> Option<&Cluster> {
        None
    }

    /// The users as whom callers access files of this host; none if no files of this host are
    /// served in place.
    fn host_callers(&self) -> Option<&Callers> {
        None
    }

    /// The users other than its own that a caller of `plan` can act as by a mere claim.
    /// `is_privileged` is true if the process can act as its callers.
    ///
    /// # Errors
    /// When a setting has no effect on such a server.
    fn claimable(&self, plan: &Plan, is_privileged: bool) -> Result<Option<&'static str>, Error>;

    /// Exports whose calls are made by threads that may wait.
    fn slow_exports(&self) -> SlowExports {
        SlowExports::None
    }

    /// Threads that wait in place of the shards; none for a store whose calls never wait.
    fn helper_threads(&self) -> Option<usize> {
        None
    }

    /// True if the first shard has all content, and executes the calls of the others.
    fn is_in_first_shard(&self) -> bool {
        false
    }

    /// The reason why the files of `export` cannot be watched; none if they can.
    fn not_watched(&self, export: Option<&Exported>) -> Option<&'static str>;

    /// The reason why a server of it cannot be confined (`--confine`), if there is one.
    fn not_confined(&self) -> Option<&'static str> {
        None
    }

    /// The place of the content of `export`, as lists of exports show it.
    fn source(&self, export: &Exported) -> String;

    /// The same for people, in the lines that introduce a server.
    fn described(&self, export: &Exported) -> String {
        self.source(export)
    }

    /// Its settings that cannot change while a server runs, by their flags.
    fn fixed_settings(&self) -> Vec<(&'static str, String)>;

    /// Opens it, for a server of `plan`.
    ///
    /// # Errors
    /// A sentence about what stands in the way.
    fn open(&self, plan: &Plan) -> Result<StoreSource, Error>;
}

/// Content to serve, and where it is.
#[derive(Debug)]
pub struct ContentPlan {
    /// All exports.
    pub exports: Vec<Exported>,
    /// The file system of exports on CephFS.
    pub ceph: Option<CephPlan>,
    /// Octets of a store in memory.
    pub capacity: Option<usize>,
}

impl ContentPlan {
    /// Checks the settings of exports.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(settings: &Merged<ServeOptions>) -> Result<Self, Error> {
        let (arguments, origins) = (&settings.options, &settings.origins);
        let ceph = ceph_url::of(arguments, &settings.exports, origins)?;
        let exports = match &ceph {
            Some(ceph) => ceph.exported(),
            None => exports::all(arguments, &settings.exports, origins)?,
        };
        let capacity = arguments.memory.as_deref().map(memory::capacity).transpose()?;
        let mut content = Self { exports, ceph, capacity };
        let usual = security::usual(settings, security::has_kerberos(arguments))?;
        security::settle(&mut content.exports, usual);
        if let Some(ceph) = &mut content.ceph {
            ceph.settle(usual);
        }
        exports::check_names(&content.exports, content.is_of_host(), origins)?;
        Ok(content)
    }

    /// The directories of this host that are served, in place or as copies.
    pub fn host_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.exports.iter().filter_map(|export| export.path.as_ref())
    }

    /// True if exports are directories that are served in place.
    pub const fn is_of_host(&self) -> bool {
        self.capacity.is_none() && self.ceph.is_none()
    }
}

/// Plans the store of `content`, for callers within `reach`.
///
/// # Errors
/// A sentence about the first thing that is wrong.
pub fn planned(
    arguments: &ServeOptions,
    content: &ContentPlan,
    reach: Reach,
    purpose: PlanPurpose,
) -> Result<Box<dyn PlannedStore>, Error> {
    let exports = &content.exports;
    let state_dir = || state_dir(arguments.state_dir.as_deref(), exports, purpose);
    Ok(match (content.capacity, &content.ceph) {
        (Some(capacity), _) => {
            let state_dir = arguments.state_dir.is_some().then(state_dir).transpose()?;
            Box::new(PlannedMemory { capacity, state_dir })
        }
        (None, Some(ceph)) => {
            Box::new(PlannedCeph::checked(ceph, arguments, exports, reach, state_dir()?)?)
        }
        (None, None) => Box::new(PlannedFiles::checked(arguments, exports, reach, state_dir()?)?),
    })
}
