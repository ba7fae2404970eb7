//! Check that an open file is still inside its export, and was not moved out of it by a local
//! program, alone or with a directory above it.
//!
//! No event reports that in time: inotify does not cover directories above, and every queue is read
//! later than it is filled. The path of a descriptor (`/proc/self/fd`) is current when it is read.
//! Reading it costs more than a `statx`, so it is read
//!
//! - in each call that changes something or looks up a name, before it does;
//! - in each other call, when the file's ctime differs, since renaming a file sets it;
//! - in other calls on the file, once per step of the search for idle files (`eviction`, 16 ms), in
//!   case a directory above was moved.
//!
//! **A file opened by its kernel handle** may have no path in the kernel's memory, and with several
//! names it has the path of any. Unless it is a directory, it then counts as inside.

use core::cell::{Cell, RefCell};
use std::os::fd::AsFd;

use rustix::{
    fs::{Statx, readlinkat_raw},
    path::DecInt,
};
use stag_protocol::nfs::v3::{FileKind, Status};

use super::{Files, Intent, cache::FileSlotId, resolve::PATH_MAX};
use crate::exports::config::{ExportId, stat};

/// Suffix of the path of a file that has lost the name by which it was opened.
const DELETED: &[u8] = b" (deleted)";

/// The last judgement about an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastJudged {
    step: u64,
    call: u64,
    /// None before a file's first attributes; it was just found by its name.
    ctime: Option<(i64, u32)>,
}

impl Default for LastJudged {
    fn default() -> Self {
        Self { step: u64::MAX, call: u64::MAX, ctime: None }
    }
}

/// The current step and call, and the paths of the exports' roots as of a step.
#[derive(Debug, Default)]
pub(super) struct InsideJudge {
    step: Cell<u64>,
    call: Cell<u64>,
    roots: RefCell<Vec<RootPath>>,
}

#[derive(Debug)]
struct RootPath {
    export: ExportId,
    step: u64,
    path: Vec<u8>,
}

impl InsideJudge {
    /// Begins a step, which invalidates earlier judgements.
    pub(super) fn begin_step(&self) {
        self.step.set(self.step.get().wrapping_add(1));
    }

    pub(super) fn begin_call(&self) {
        self.call.set(self.call.get().wrapping_add(1));
    }
}

/// Returns true for the path of a directory, or one below it.
fn is_at_or_below(path: &[u8], root: &[u8]) -> bool {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl Files {
    /// Refuses an open file that is outside its export.
    ///
    /// # Errors
    /// [`Status::Stale`].
    pub(super) fn must_be_inside(&self, slot: FileSlotId, intent: Intent) -> Result<(), Status> {
        let judge = &self.inside;
        let open = self.cache.get(slot);
        let last = open.judged.get();
        if intent == Intent::Look && last.step == judge.step.get() {
            return Ok(());
        }
        if !self.is_inside(slot) {
            return Err(Status::Stale);
        }
        open.judged.set(LastJudged { step: judge.step.get(), call: judge.call.get(), ..last });
        Ok(())
    }

    /// The same for a file whose attributes show that it may have been renamed.
    pub(super) fn must_not_have_left(&self, slot: FileSlotId, found: &Statx) -> Result<(), Status> {
        let judge = &self.inside;
        let open = self.cache.get(slot);
        let last = open.judged.get();
        let ctime = Some((found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec));
        if last.ctime == ctime {
            return Ok(());
        }
        let is_judged = last.ctime.is_none() || last.call == judge.call.get();
        if !is_judged && !self.is_inside(slot) {
            return Err(Status::Stale);
        }
        open.judged.set(LastJudged { ctime, ..last });
        Ok(())
    }

    fn is_inside(&self, slot: FileSlotId) -> bool {
        let open = self.cache.get(slot);
        let file = open.identity.file;
        let mut buffer = [0; PATH_MAX];
        let Some(path) = self.shown_path(&open.path, &mut buffer) else {
            // The path is too long to be shown: directories are followed up.
            let is_directory = open.kind == FileKind::Directory;
            return !is_directory
                || open
                    .path
                    .try_clone()
                    .is_ok_and(|path| self.must_lie_inside(&path, file).is_ok());
        };
        if self.is_below_root(file.export, path) {
            return true;
        }
        let is_vague = || {
            let is_sole = || stat(&open.path).is_ok_and(|found| found.stx_nlink <= 1);
            open.kernel.is_some()
                && open.kind != FileKind::Directory
                && (path.strip_suffix(DELETED).unwrap_or(path) == b"/" || !is_sole())
        };
        is_vague()
    }

    fn is_below_root(&self, export: ExportId, path: &[u8]) -> bool {
        let step = self.inside.step.get();
        let mut roots = self.inside.roots.borrow_mut();
        let place = roots.iter().position(|root| root.export == export).unwrap_or_else(|| {
            roots.push(RootPath { export, step: step.wrapping_sub(1), path: Vec::new() });
            roots.len() - 1
        });
        let Some(root) = roots.get_mut(place) else { return false };
        if root.step == step && is_at_or_below(path, &root.path) {
            return true;
        }
        // The root itself may have been moved, which changes all paths below it.
        let mut buffer = [0; PATH_MAX];
        let Some(found) = self.shown_path(self.export(export).root(), &mut buffer) else {
            return true;
        };
        root.path.clear();
        root.path.extend_from_slice(found);
        root.step = step;
        is_at_or_below(path, found)
    }

    /// The path of an open file as the system shows it.
    fn shown_path<'a>(&self, file: impl AsFd, buffer: &'a mut [u8; PATH_MAX]) -> Option<&'a [u8]> {
        let number = DecInt::from_fd(file);
        let len = readlinkat_raw(&self.shared.descriptors, number, buffer.as_mut_slice()).ok()?;
        buffer.get(..len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_a_root_by_whole_names() {
        for (path, root, is) in [
            ("/srv/data", "/srv/data", true),
            ("/srv/data/a", "/srv/data", true),
            ("/srv/database", "/srv/data", false),
            ("/srv", "/srv/data", false),
            ("/anything", "/", true),
            ("/", "/", true),
            ("(unreachable)/a/b", "(unreachable)/a", true),
        ] {
            assert_eq!(is_at_or_below(path.as_bytes(), root.as_bytes()), is, "{path} {root}");
        }
    }
}
