//! Exports whose files may be delegated, and the file systems that serve them. These change when
//! another directory or file system appears at the path of an export.

use stag_nfs_store::{ExportRoot, Store};

use crate::v4::Nfs4;

/// Exports by the programs that change their files. Only the home of a server has some.
#[derive(Debug, Default)]
pub(in crate::v4) struct DelegatedExports {
    /// Names of exports whose files only this server changes.
    exclusive: Vec<String>,
    /// Names of exports whose files are watched.
    watched: Vec<String>,
}

impl Nfs4 {
    /// Only this server changes files of these exports: there are delegations of all kinds.
    pub(crate) fn set_exclusive<S: Store>(&mut self, exports: &[String], store: &S) {
        self.delegated.exclusive = exports.to_vec();
        self.renew_delegated(store);
    }

    /// Programs of the host change files of these exports, too, and the store is ready to watch
    /// them: there are delegations to read.
    pub(crate) fn set_watched<S: Store>(&mut self, exports: &[String], store: &S) {
        if !exports.is_empty() {
            self.state.note_undelegated();
        }
        self.delegated.watched = exports.to_vec();
        self.renew_delegated(store);
    }

    /// Grants delegations in the file systems that currently serve these exports.
    pub(in crate::v4) fn renew_delegated<S: Store>(&mut self, store: &S) {
        let DelegatedExports { exclusive, watched } = &self.delegated;
        if exclusive.is_empty() && watched.is_empty() {
            return;
        }
        let roots = store.export_roots();
        let of = |names: &[String]| -> Vec<u64> {
            let named = |root: &&ExportRoot| names.contains(&root.name);
            roots.iter().filter(named).map(|root| root.fsid).collect()
        };
        self.exclusive = of(exclusive);
        self.watched.set_exports(of(watched));
    }

    /// Returns true if files of some exports may be delegated for writing.
    pub(in crate::v4) const fn has_exclusive(&self) -> bool {
        !self.delegated.exclusive.is_empty()
    }

    /// Returns true if files of some exports are watched.
    pub(in crate::v4) const fn has_watched(&self) -> bool {
        !self.delegated.watched.is_empty()
    }
}
