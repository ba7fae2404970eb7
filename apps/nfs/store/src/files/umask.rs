//! The client's umask for new objects (RFC 8275), and default access control lists of directories,
//! which override it (acl(5)).

use std::ffi::CStr;

use rustix::{fs::getxattr, io::Errno};
use stag_protocol::nfs::v3::FileHandle;

use super::{Files, Intent, cache::FileSlotId};
use crate::NewAttributes;

/// The default list of a directory, inherited by its entries (acl(5)).
const DEFAULT_LIST: &CStr = c"system.posix_acl_default";

impl Files {
    /// The attributes of a new object with its umask applied to the mode, unless a default list
    /// overrides it.
    pub(super) fn under_umask(
        &mut self,
        directory: &FileHandle,
        set: &NewAttributes,
    ) -> NewAttributes {
        let (mode, umask) = (set.mode, 0);
        if set.umask == 0 {
            return *set;
        }
        // Errors about the directory are left to the call itself.
        let slot = self.directory(directory, Intent::Change);
        // RFC 8275 §4: a umask is ignored where the directory has inheritable entries
        if slot.is_ok_and(|slot| self.has_default_list(slot)) {
            return NewAttributes { mode, umask, ..*set };
        }
        NewAttributes { mode: set.masked_mode(), umask, ..*set }
    }

    /// Returns true if a directory has a default POSIX access control list for its entries.
    pub(super) fn has_default_list(&self, directory: FileSlotId) -> bool {
        let path = self.path_of_link(directory);
        let mut room = [0_u8; 256];
        match getxattr(path.octets(), DEFAULT_LIST, &mut room[..]) {
            Ok(len) => len > 0,
            // The list is longer than the buffer.
            Err(error) => error == Errno::RANGE,
        }
    }
}
