//! Directories of this host, served in place, alone or as a gateway of a cluster.

use super::PlannedStore;
use crate::{
    Error,
    serve::plan::{
        Plan,
        checks::cluster_of,
        client_rules::{Reach, callers, named_at_will},
        exports::Exported,
        meaningless,
        options::ServeOptions,
    },
};
use stag_nfs::serve::StoreSource;
use stag_nfs_store::{
    exports::cluster::Cluster,
    files::{Callers, FilesConfig, SharedFiles, SlowExports, WaitingConfig},
};
use std::path::{Path, PathBuf};

/// Directories to serve in place.
#[derive(Debug)]
pub struct PlannedFiles {
    state_dir: PathBuf,
    callers: Callers,
    cluster: Option<Cluster>,
    /// Helpers, and the exports whose calls they make.
    waiting: WaitingConfig,
}

impl PlannedFiles {
    /// The store of `exports`, for callers within `reach`.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(
        arguments: &ServeOptions,
        exports: &[Exported],
        reach: Reach,
        state_dir: PathBuf,
    ) -> Result<Self, Error> {
        let cluster = cluster_of(arguments.cluster.as_deref(), exports)?;
        let callers = callers(arguments, reach)?;
        Ok(Self { state_dir, callers, cluster, waiting: waiting(arguments, exports)? })
    }
}

impl PlannedStore for PlannedFiles {
    fn headline(&self) -> String {
        "files".to_owned()
    }

    fn state_dir(&self) -> Option<&Path> {
        Some(&self.state_dir)
    }

    fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    fn host_callers(&self) -> Option<&Callers> {
        Some(&self.callers)
    }

    fn claimable(&self, plan: &Plan, is_privileged: bool) -> Result<Option<&'static str>, Error> {
        meaningless::check_found(plan, is_privileged)?;
        Ok(named_at_will(plan, is_privileged))
    }

    fn slow_exports(&self) -> SlowExports {
        self.waiting.slow.clone()
    }

    fn helper_threads(&self) -> Option<usize> {
        Some(self.waiting.helpers)
    }

    fn not_watched(&self, export: Option<&Exported>) -> Option<&'static str> {
        if self.cluster.is_some() {
            return Some(
                "the other gateways of the cluster change files that are watched here: write none",
            );
        }
        export.is_some_and(|export| export.is_slow).then_some(
            "an export whose calls wait (slow) cannot be watched: write none, or exclusive if this \
             server alone changes its files",
        )
    }

    fn source(&self, export: &Exported) -> String {
        export.path.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }

    fn fixed_settings(&self) -> Vec<(&'static str, String)> {
        let Self { state_dir, callers, cluster, waiting } = self;
        let name = cluster.as_ref().map(|cluster| cluster.name().to_owned());
        vec![
            ("state-dir", format!("{state_dir:?}")),
            ("mode", format!("{:?}", callers.mode)),
            ("groups", format!("{:?}", callers.groups)),
            ("squash", format!("{callers:?}")),
            ("cluster", format!("{name:?}")),
            ("helpers", format!("{:?}", waiting.helpers)),
        ]
    }

    fn open(&self, plan: &Plan) -> Result<StoreSource, Error> {
        let config = FilesConfig {
            state_dir: self.state_dir.clone(),
            exports: plan.directories(),
            shards: plan.shards(),
            sync_directories: true,
            callers: self.callers.clone(),
            open_files: Some(plan.share.files),
            cluster: self.cluster.clone(),
        };
        SharedFiles::open_waiting(&config, &self.waiting)
            .map(StoreSource::Files)
            .map_err(|error| Error::usage(error.to_string()))
    }
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
