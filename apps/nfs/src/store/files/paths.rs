//! Comparison of an export with the directory that its path leads to, for MNT and for LOOKUP of an
//! export in the pseudo file system.
//!
//! When something was mounted over the directory, or another one was put in its place, that one is
//! served from then on, as another export under the same name: handles into the first are stale. An
//! export of a mount point ends while nothing is mounted there. A directory that was moved away
//! stays exported as long as there is no other at its path.
//!
//! A thread of its own looks, as a path may lead into a file system that does not answer: the
//! caller waits for it for a moment, and then serves what there is.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxAttributes, statx};
use rustix::io::Errno;
use stag_nfs_os::user;
use stag_protocol::nfs::v3::FileKind;

use super::{Files, SharedFiles, attributes};
use crate::export::{Export, ExportConfig, HostInode, OpenedRoot, STAT_MASK, open_root, stat};
use crate::patience::within;

/// Time that a look may take.
const LIMIT: Duration = Duration::from_millis(500);

/// Paths that a thread looks at: at most one thread hangs for each.
#[derive(Debug, Default)]
pub(super) struct PathLooks(Arc<Mutex<BTreeSet<PathBuf>>>);

impl PathLooks {
    /// Finds out what is at a path; none if it does not say in time, or did not before.
    fn look(&self, config: &ExportConfig, old: Option<Arc<Export>>) -> Option<FoundRoot> {
        if !paths(&self.0).insert(config.path.clone()) {
            return None;
        }
        let (looks, own) = (Arc::clone(&self.0), config.clone());
        let found = within(LIMIT, &config.path, move || {
            let found = FoundRoot::at(&own, old.as_deref());
            paths(&looks).remove(&own.path);
            found
        });
        if found.is_err() {
            let (export, path) = (config.name.as_str(), config.path.display());
            tracing::warn!(target: "stag", export, %path, "the path of an export does not answer");
        }
        found.ok()
    }
}

fn paths(looks: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    looks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object that the path of an export leads to.
#[derive(Debug)]
enum FoundRoot {
    /// The directory that is exported, or none that could be served instead.
    Same,
    /// No directory, or one where nothing is mounted and something has to be.
    None,
    /// Another directory, or one where none was exported.
    Other(Box<OpenedRoot>),
}

impl FoundRoot {
    fn at(config: &ExportConfig, old: Option<&Export>) -> Self {
        // What is known of the root suffices, and no file system is mounted for this.
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
        // Another thread that is at it serves what it finds to this one, too.
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
                // Without a helper for it, a shard would wait for its file system.
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
    /// Serves what is exported now, after a look at the path of the export that `mounted` leads to.
    /// Another user has to be assumed next.
    pub(super) fn revive(&mut self, mounted: &[u8]) {
        self.shared.compare(mounted);
        self.renew();
    }
}
