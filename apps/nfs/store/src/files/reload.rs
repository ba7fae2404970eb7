//! Replacement of the exports while they are served: all or nothing.
//!
//! An export that stays keeps its open files. New ones are opened here, on the calling thread, and
//! handed to the roster, from which every shard takes them in one of its next passes
//! ([`super::serving`]).

use std::sync::{Arc, PoisonError};

use super::{
    SharedFiles, SlowExports,
    access_table::AccessTable,
    kernel_handles::ExportMounts,
    serving::{Serving, in_memory},
    shared::{check_cluster, check_openat2},
};
use crate::{
    exports::{
        blocking_probe::{START_LIMIT, within},
        client_rules::ExportRules,
        config::{ExportConfig, Exports},
    },
    start_error::StartError,
};

/// An export with the rules for its clients.
#[derive(Clone, Debug)]
pub struct RuledExport {
    /// The directory and its name.
    pub config: ExportConfig,
    /// Its clients, and what they may do.
    pub rules: ExportRules,
}

/// Exports to serve from now on.
#[derive(Clone, Debug)]
pub struct ExportSet {
    /// All exports; any other ends.
    pub exports: Vec<RuledExport>,
    /// The exports whose calls may block.
    pub slow: SlowExports,
    /// Callers may come from any port where an export does not say otherwise.
    pub is_insecure: bool,
}

/// Changes made by a replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportChanges {
    /// Names of exports that were not served before.
    pub added: Vec<String>,
    /// Names of exports that ended: handles into them are stale.
    pub removed: Vec<String>,
    /// Names of exports whose directory or read-only setting changed.
    pub reopened: Vec<String>,
}

impl ExportChanges {
    /// True if the same directories are exported as before.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

impl SharedFiles {
    /// Serves these exports instead of the present ones. To be called by a thread that acts as the
    /// server itself.
    ///
    /// # Errors
    /// A sentence. All exports are then served as before.
    pub fn replace_exports(&self, set: &ExportSet) -> Result<ExportChanges, StartError> {
        let _alone = self.roster.reviving.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.roster.serving();
        if set.exports.len() > self.exports_max {
            return Err(StartError(format!(
                "{} exports are more than the {} that this server has descriptors for until it is \
                 started again",
                set.exports.len(),
                self.exports_max
            )));
        }
        let configs: Vec<_> = set.exports.iter().map(|export| export.config.clone()).collect();
        let exports = before.exports.replaced(&configs, &self.state, self.cluster.as_ref())?;
        let changes = changes(&before.exports, &exports);
        for export in exports.shared() {
            if before.export(export.id()).is_none() {
                let copy = Arc::clone(export);
                within(START_LIMIT, export.path(), move || check_openat2(&copy))??;
            }
        }
        set.slow.check(&exports)?;
        let waiting = set.slow.of(&exports);
        if !waiting.is_empty() && self.helping.count == 0 {
            return Err(StartError(
                "this server was started without threads that wait for file systems, and one of \
                 the exports needs them: start it again"
                    .to_owned(),
            ));
        }
        let mounts = match self.policy {
            Some(_) => before.mounts.renewed(&exports),
            None => ExportMounts::default(),
        };
        if let Some(cluster) = &self.cluster {
            check_cluster(cluster, &exports, &mounts)?;
        }
        let rules = set.exports.iter();
        let rules = rules.map(|it| (it.config.name.clone(), it.rules.clone())).collect();
        self.roster.publish(Serving {
            waiting,
            in_memory: in_memory(&exports),
            access: AccessTable::of(rules, &exports, set.is_insecure).map(Arc::new),
            exports: Arc::new(exports),
            mounts: Arc::new(mounts),
            slow: Arc::new(set.slow.clone()),
            edition: before.edition + 1,
        });
        // New settings may come with changed users.
        if let Some(policy) = &self.policy {
            policy.forget_groups();
        }
        Ok(changes)
    }
}

fn changes(before: &Exports, after: &Exports) -> ExportChanges {
    let mut changes = ExportChanges::default();
    for export in after.shared() {
        let name = export.name().to_owned();
        match before.shared().find(|other| other.name() == export.name()) {
            None => changes.added.push(name),
            Some(other) if !Arc::ptr_eq(other, export) => changes.reopened.push(name),
            Some(_) => {}
        }
    }
    let is_gone = |name: &str| after.by_name(name.as_bytes()).is_none();
    let gone = before.iter().map(|export| export.name()).filter(|name| is_gone(name));
    changes.removed = gone.map(str::to_owned).collect();
    changes
}
