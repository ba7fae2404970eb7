//! Comparison of an export with the directory at its path, for MNT and for LOOKUP of an export in
//! the pseudo file system.
//!
//! When the directory was mounted over or replaced, the directory found is served from then on, as
//! another export under the same name: handles into the first are stale. An export of a mount point
//! ends while nothing is mounted there. A directory that was moved away stays exported as long as
//! its path leads to no other.
//!
//! A separate thread looks, as a path may lead into a file system that does not answer: the caller
//! waits for it briefly, and then serves the known exports. [`LookBudget`] limits the threads
//! started per second; beyond that, the last result counts.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, statx},
    io::Errno,
};
use stag_nfs_os::user;
use stag_protocol::nfs::v3::FileKind;

use super::{Files, SharedFiles, attributes};
use crate::exports::{
    blocking_probe::within,
    config::{Export, ExportConfig, HostInode, OpenedRoot, STAT_MASK, open_root, stat},
};

/// Time that a look may take.
const LIMIT: Duration = Duration::from_millis(500);

/// Burst of looks at a path.
const LOOKS_AT_ONCE: u32 = 64;
/// Time after which one more is allowed.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Looks at the paths of exports: at most one thread per path can hang.
#[derive(Debug, Default)]
pub(super) struct PathLooks(Arc<Mutex<BTreeMap<PathBuf, PathLook>>>);

/// The looks at one path.
#[derive(Debug, Default)]
struct PathLook {
    is_active: bool,
    budget: LookBudget,
}

/// Looks that were made and not yet earned back by time.
#[derive(Debug, Default)]
struct LookBudget {
    spent: u32,
    at: Option<Instant>,
}

impl LookBudget {
    /// Returns true if one more look may be made, and counts it.
    fn take(&mut self, now: Instant) -> bool {
        let at = *self.at.get_or_insert(now);
        let earned = now.saturating_duration_since(at).as_nanos() / LOOK_INTERVAL.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned > 0 {
            self.spent = self.spent.saturating_sub(earned);
            self.at = Some(now);
        }
        let may_look = self.spent < LOOKS_AT_ONCE;
        self.spent += u32::from(may_look);
        may_look
    }
}

impl PathLooks {
    /// Looks at a path; none if it does not answer in time, or an earlier look still hangs.
    fn look(&self, config: &ExportConfig, old: Option<Arc<Export>>) -> Option<FoundRoot> {
        {
            let mut paths = paths(&self.0);
            let path = paths.entry(config.path.clone()).or_default();
            if path.is_active || !path.budget.take(Instant::now()) {
                return None;
            }
            path.is_active = true;
        }
        let (guard, own) = (LookGuard(Arc::clone(&self.0), config.path.clone()), config.clone());
        let found = within(LIMIT, &config.path, move || {
            let found = FoundRoot::at(&own, old.as_deref());
            drop(guard);
            found
        });
        if found.is_err() {
            let (export, path) = (config.name.as_str(), config.path.display());
            tracing::warn!(target: "stag", export, %path, "the path of an export does not answer");
        }
        found.ok()
    }
}

/// A look at a path, which ends when this is dropped, even if no thread could be started.
struct LookGuard(Arc<Mutex<BTreeMap<PathBuf, PathLook>>>, PathBuf);

impl Drop for LookGuard {
    fn drop(&mut self) {
        if let Some(path) = paths(&self.0).get_mut(&self.1) {
            path.is_active = false;
        }
    }
}

fn paths(
    looks: &Mutex<BTreeMap<PathBuf, PathLook>>,
) -> MutexGuard<'_, BTreeMap<PathBuf, PathLook>> {
    looks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object that the path of an export leads to.
#[derive(Debug)]
enum FoundRoot {
    /// The exported directory, or nothing that could replace it.
    Same,
    /// No directory, or one without the required mount.
    None,
    /// Another directory, or one where none was exported.
    Other(Box<OpenedRoot>),
}

impl FoundRoot {
    fn at(config: &ExportConfig, old: Option<&Export>) -> Self {
        // Cached attributes of the root suffice, and no file system is mounted for this.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = match statx(CWD, &config.path, flags, STAT_MASK) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Self::None,
            // It may come back.
            Err(_) => return Self::Same,
        };
        if attributes::kind(&found) != FileKind::Directory {
            return Self::None;
        }
        let mount_root = StatxAttributes::MOUNT_ROOT;
        let is_told = found.stx_attributes_mask.contains(mount_root);
        if config.is_mountpoint && is_told && !found.stx_attributes.contains(mount_root) {
            return Self::None;
        }
        match old {
            Some(old) if HostInode::in_stat(&found) == old.place() && !is_deleted(old) => {
                Self::Same
            }
            _ => match open_root(&config.path, config.read_only) {
                Ok(opened) => Self::Other(Box::new(opened)),
                Err(_) => Self::Same,
            },
        }
    }
}

/// True once the exported directory was deleted.
fn is_deleted(export: &Export) -> bool {
    match stat(export.root()) {
        Ok(found) => found.stx_nlink == 0,
        Err(error) => matches!(error, Errno::STALE | Errno::NOENT),
    }
}

impl SharedFiles {
    /// Compares the export that a path of MOUNT leads to with the directory at its own path. The
    /// thread acts as the server itself afterwards.
    fn compare(&self, mounted: &[u8]) {
        // Another thread that does this serves its result to this one, too.
        let Ok(_reviving) = self.roster.reviving.try_lock() else { return };
        let serving = self.roster.serving();
        let Some(config) = serving.exports.config_by_path(mounted).cloned() else { return };
        if user::leave().is_err() {
            return;
        }
        let old = serving.exports.shared().find(|export| export.name() == config.name).cloned();
        let is_served = old.is_some();
        let exports = match self.looks.look(&config, old) {
            None | Some(FoundRoot::Same) => return,
            Some(FoundRoot::None) if !(config.is_mountpoint && is_served) => return,
            Some(FoundRoot::None) => serving.exports.ended(&config),
            Some(FoundRoot::Other(opened)) => {
                let (state, cluster) = (&self.state, self.cluster.as_ref());
                let exports = serving.exports.reopened(&config, *opened, state, cluster);
                let Some(exports) = exports else { return };
                // Without a helper, a shard would wait for its file system.
                let waits = self.helping.count == 0 && !serving.slow.of(&exports).is_empty();
                if waits { exports.ended(&config) } else { exports }
            }
        };
        let is_found = exports.by_name(config.name.as_bytes()).is_some();
        if is_found || is_served {
            log_change(&config, is_served, is_found);
            self.publish(serving, exports);
        }
    }
}

fn log_change(config: &ExportConfig, was_served: bool, is_found: bool) {
    let (export, path) = (config.name.as_str(), config.path.display());
    match (was_served, is_found) {
        (true, true) => tracing::warn!(
            target: "stag",
            export,
            %path,
            "another directory is at the path of an export: it is served now, and earlier handles \
             are stale"
        ),
        (false, true) => tracing::info!(
            target: "stag", export, %path, "a mount point is served: something is mounted there"
        ),
        (_, false) => tracing::warn!(
            target: "stag",
            export,
            %path,
            "an export ends until its mount point has a file system that can be served"
        ),
    }
}

impl Files {
    /// Serves the current exports, after a look at the path of the export that `mounted` leads to.
    /// Another user has to be assumed next.
    pub(super) fn revive(&mut self, mounted: &[u8]) {
        self.shared.compare(mounted);
        self.renew();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_asks_without_end_has_few_looks() {
        let (mut budget, from) = (LookBudget::default(), Instant::now());
        let mut taken = |at| (0..10_000).filter(|_| budget.take(from + at)).count();
        assert_eq!(taken(Duration::ZERO), LOOKS_AT_ONCE as usize);
        assert_eq!(taken(LOOK_INTERVAL / 2), 0);
        assert_eq!(taken(3 * LOOK_INTERVAL), 3);
        assert_eq!(taken(1_000 * LOOK_INTERVAL), LOOKS_AT_ONCE as usize, "no more is saved up");
    }
}
