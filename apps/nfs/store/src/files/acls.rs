//! POSIX access control lists, stored by the file system. The kernel decides with them, keeps the
//! mode in agreement, and gives a new object the default list of its directory.

use rustix::{
    fs::{XattrFlags, getxattr, removexattr, setxattr},
    io::Errno,
};
use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};

use super::{Files, Intent, errno::status};
use crate::{Acl, AclPair, AclPart, Failed, ObjectChange, StoreResult};

/// The status for an error of a call on a list.
fn acl_status(error: Errno) -> Status {
    match error {
        Errno::RANGE => Status::TooSmall,
        // A list that is longer than the file system can store.
        Errno::TOOBIG => Status::NoSpc,
        error => status(error),
    }
}

impl Files {
    /// Reads both lists to the front of `room`, for [`AclPair::parse`]; returns their length.
    pub(super) fn acls_to(&mut self, file: &FileHandle, room: &mut [u8]) -> StoreResult<u32> {
        let slot = self.resolve(file, Intent::Look)?;
        let path = self.path_of_link(slot);
        let is_directory = self.cache.get(slot).kind == FileKind::Directory;
        let read = |part: AclPart, room: &mut [u8]| {
            // Nothing but a directory has a default list. An empty room would only query the
            // length.
            if part == AclPart::Default && !is_directory {
                return Ok(0);
            }
            if room.is_empty() {
                return Err(Status::TooSmall);
            }
            match getxattr(path.octets(), part.attribute(), room) {
                Err(Errno::NODATA) => Ok(0),
                read => read.map_err(acl_status),
            }
        };
        AclPair::fill(room, Status::TooSmall, read)
            .map_err(|status| Failed { status, about: self.attributes(slot).ok() })
    }

    /// Replaces a list of an object, or removes it if `list` is empty.
    pub(super) fn put_acl(
        &mut self,
        file: &FileHandle,
        part: AclPart,
        list: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let slot = self.resolve(file, Intent::Change)?;
        let is_directory = self.cache.get(slot).kind == FileKind::Directory;
        let is_valid = list.is_empty()
            || (Acl::parse(list).is_some() && (part == AclPart::Access || is_directory));
        // The kernel answers a list in another layout with EOPNOTSUPP.
        if !is_valid {
            return self.changed(slot, Err(Status::Inval)).map(|((), about)| about);
        }
        let path = self.path_of_link(slot);
        let change = |_: &Self| match list {
            [] => match removexattr(path.octets(), part.attribute()) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            },
            list => setxattr(path.octets(), part.attribute(), list, XattrFlags::empty()),
        };
        let outcome = self.insist(&[slot], change).map_err(acl_status);
        let outcome = outcome.and_then(|()| self.sync_object(slot));
        self.changed(slot, outcome).map(|((), about)| about)
    }
}
