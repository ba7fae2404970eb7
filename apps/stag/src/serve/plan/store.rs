//! Step of a plan: the exports, and the store that serves their files.

use super::{
    PlanPurpose,
    ceph_url::{self, CephPlan},
    checks::cluster_of,
    client_rules::{Reach, callers},
    exports::{self, Exported},
    options::ServeOptions,
    security,
    state_dir::state_dir,
};
use crate::{Error, args::size, settings::Merged};
use stag_nfs_store::{
    ceph::CephExportConfig,
    exports::cluster::Cluster,
    files::{Callers, SlowExports, WaitingConfig},
    memory,
};
use std::path::{Path, PathBuf};

/// Kind of store that serves the files.
#[derive(Clone, Debug)]
pub enum StorePlan {
    /// Directories, alone or as a gateway of a cluster.
    Files {
        state_dir: PathBuf,
        callers: Callers,
        cluster: Option<Cluster>,
        /// Helpers, and the exports whose calls they make.
        waiting: WaitingConfig,
    },
    /// Directories of a Ceph file system, alone or as a gateway of a cluster.
    Ceph {
        ceph: CephPlan,
        state_dir: PathBuf,
        callers: Callers,
        cluster: Option<Cluster>,
        helpers: usize,
    },
    /// Memory of `capacity` octets; the directory of the control socket, if one was named.
    Memory { capacity: usize, state_dir: Option<PathBuf> },
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
            Some(ceph) => ceph.exports.iter().map(exported).collect(),
            None => exports::all(arguments, &settings.exports, origins)?,
        };
        let capacity = arguments.memory.as_deref().map(capacity).transpose()?;
        let mut content = Self { exports, ceph, capacity };
        let usual = security::usual(settings, security::has_kerberos(arguments))?;
        security::settle(&mut content.exports, content.ceph.as_mut(), usual);
        exports::check_names(&content.exports, content.is_of_host(), origins)?;
        Ok(content)
    }

    /// True if exports are directories that are served in place.
    pub const fn is_of_host(&self) -> bool {
        self.capacity.is_none() && self.ceph.is_none()
    }
}

impl StorePlan {
    /// The state directory; a store in memory has one only if it was named.
    pub fn state_dir(&self) -> Option<&Path> {
        match self {
            Self::Files { state_dir, .. } | Self::Ceph { state_dir, .. } => Some(state_dir),
            Self::Memory { state_dir, .. } => state_dir.as_deref(),
        }
    }

    /// Plans the store of `content`, for callers within `reach`.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(
        arguments: &ServeOptions,
        content: &ContentPlan,
        reach: Reach,
        purpose: PlanPurpose,
    ) -> Result<Self, Error> {
        let exports = &content.exports;
        let state_dir = || state_dir(arguments.state_dir.as_deref(), exports, purpose);
        let cluster = || cluster_of(arguments.cluster.as_deref(), exports);
        match (content.capacity, content.ceph.clone()) {
            (Some(capacity), _) => {
                let state_dir = arguments.state_dir.is_some().then(state_dir).transpose()?;
                Ok(Self::Memory { capacity, state_dir })
            }
            (None, Some(ceph)) => Ok(Self::Ceph {
                ceph,
                state_dir: state_dir()?,
                callers: callers(arguments, reach)?,
                cluster: cluster()?,
                helpers: usize::from(arguments.helpers),
            }),
            (None, None) => {
                let (state_dir, cluster) = (state_dir()?, cluster()?);
                let callers = callers(arguments, reach)?;
                let waiting = waiting(arguments, exports)?;
                Ok(Self::Files { state_dir, callers, cluster, waiting })
            }
        }
    }
}

fn exported(export: &CephExportConfig) -> Exported {
    let mut exported = Exported::new(export.name.clone(), None, export.read_only);
    exported.rules.options.security = export.security;
    exported
}

/// Helpers, and the exports whose calls they make.
fn waiting(arguments: &ServeOptions, exports: &[Exported]) -> Result<WaitingConfig, Error> {
    let helpers = usize::from(arguments.helpers);
    let slow_in_file = exports.iter().filter(|it| it.is_slow).map(|it| it.name.clone());
    let mut names = arguments.slow.clone();
    names.extend(slow_in_file);
    let names = names.as_slice();
    let unknown = |name: &&String| exports.iter().all(|export| export.name != **name);
    let slow = match names {
        [] => SlowExports::ByFileSystem,
        [all] if all == "all" => SlowExports::All,
        names => match names.iter().find(unknown) {
            None => SlowExports::Named(names.to_vec()),
            Some(name) => {
                return Err(Error::usage(format!(
                    "--slow {name}: no export has that name; give the name of one, or all"
                )));
            }
        },
    };
    Ok(WaitingConfig { helpers, slow })
}

/// Octets for a store in memory.
fn capacity(text: &str) -> Result<usize, Error> {
    if text == "auto" {
        return Ok(memory::MemoryConfig::default_capacity());
    }
    let octets = size::octets(text);
    match octets {
        Ok(octets) if octets >= memory::CAPACITY_MIN => {
            let host = memory::MemoryConfig::host_memory();
            if octets > host {
                return Err(Error::usage(format!(
                    "--memory {text} is {} MiB, and this process can have {} MiB: give less, or \
                     auto",
                    octets >> 20,
                    host >> 20
                )));
            }
            Ok(octets)
        }
        Ok(_) => {
            Err(Error::usage(format!("--memory {text} is less than 1M, the least there can be")))
        }
        Err(why) => Err(Error::usage(format!("--memory: {why}; or auto"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_host_has_at_most() {
        let host = memory::MemoryConfig::host_memory();
        assert_eq!((capacity("8M"), capacity("1.5m")), (Ok(8 << 20), Ok(3 << 19)));
        assert!(capacity("auto").unwrap() >= memory::CAPACITY_MIN);
        assert!(matches!(capacity("1023K"), Err(Error::Usage(_))));
        let much = format!("{}M", (host >> 20) + 1);
        let sentence = capacity(&much).unwrap_err().to_string();
        assert!(
            sentence.contains(&much) && sentence.contains(&format!("can have {} MiB", host >> 20)),
            "{sentence}"
        );
    }
}
