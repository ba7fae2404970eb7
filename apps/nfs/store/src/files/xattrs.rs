//! Extended attributes (RFC 8276), stored in the host's namespace `user.`, whose prefix names here
//! lack. The kernel checks the caller's rights.
//!
//! A path-only descriptor does not support these calls, so a file is named by its link in
//! `/proc/self/fd`.

use std::{io::Write as _, os::fd::AsRawFd};

use rustix::{
    fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr},
    io::Errno,
};
use stag_protocol::nfs::v3::{FileHandle, Status};

use super::{Files, Intent, cache::FileSlotId, errno::status};
use crate::{
    Failed, FileAttributes, ObjectChange, StoreResult, XATTR_MAX, XATTR_NAME_MAX, XattrMode,
};

/// The namespace, a prefix of every name on the host.
const NAMESPACE: &[u8] = b"user.";

/// A name on the host, or a path in `/proc/self/fd`.
pub(super) struct ShortText {
    octets: [u8; NAMESPACE.len() + XATTR_NAME_MAX],
    len: usize,
}

impl ShortText {
    /// A name with its namespace.
    ///
    /// # Errors
    /// [`Status::Inval`] for an empty name, [`Status::NameTooLong`].
    fn name(name: &[u8]) -> Result<Self, Status> {
        match name {
            [] => return Err(Status::Inval),
            name if name.len() > XATTR_NAME_MAX => return Err(Status::NameTooLong),
            name if name.contains(&0) => return Err(Status::Inval),
            _ => {}
        }
        Ok(Self::of(|mut room| {
            let all = room.len();
            room.write_all(NAMESPACE).and_then(|()| room.write_all(name)).map(|()| all - room.len())
        }))
    }

    fn of(write: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) -> Self {
        let mut octets = [0; NAMESPACE.len() + XATTR_NAME_MAX];
        let len = write(&mut octets).expect("a name and a path are shorter");
        Self { octets, len }
    }

    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

/// The status for an error of an extended attribute call.
fn xattr_status(error: Errno) -> Status {
    match error {
        Errno::NODATA => Status::NoEnt,
        Errno::RANGE | Errno::TOOBIG => Status::TooSmall,
        error => status(error),
    }
}

impl Files {
    pub(super) fn path_of_link(&self, slot: FileSlotId) -> ShortText {
        let number = self.cache.path(slot).as_raw_fd();
        ShortText::of(|mut room| {
            let all = room.len();
            write!(room, "/proc/self/fd/{number}").map(|()| all - room.len())
        })
    }

    fn failed_on<T>(
        &self,
        slot: FileSlotId,
        outcome: Result<T, Status>,
    ) -> Result<T, Failed<Option<FileAttributes>>> {
        outcome.map_err(|status| Failed { status, about: self.attributes(slot).ok() })
    }

    /// Reads the value of an attribute to the front of `room`; returns its length.
    pub(super) fn xattr_to(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        room: &mut [u8],
    ) -> StoreResult<u32> {
        let slot = self.resolve(file, Intent::Look)?;
        let outcome = ShortText::name(name).and_then(|name| {
            let path = self.path_of_link(slot);
            // An empty buffer would only query the length.
            if room.is_empty() {
                return Err(Status::TooSmall);
            }
            let len = getxattr(path.octets(), name.octets(), room).map_err(xattr_status)?;
            u32::try_from(len).map_err(|_| Status::TooSmall)
        });
        self.failed_on(slot, outcome)
    }

    /// Writes the names of all attributes to the front of `room`, each followed by a zero byte;
    /// returns their length.
    pub(super) fn xattr_names_to(
        &mut self,
        file: &FileHandle,
        room: &mut [u8],
    ) -> StoreResult<u32> {
        let slot = self.resolve(file, Intent::Look)?;
        let outcome = self.listed_names(slot).and_then(|names| {
            let mut rest = room;
            let all = rest.len();
            for name in names {
                let put = rest.write_all(&name).and_then(|()| rest.write_all(&[0]));
                put.map_err(|_| Status::TooSmall)?;
            }
            u32::try_from(all - rest.len()).map_err(|_| Status::TooSmall)
        });
        self.failed_on(slot, outcome)
    }

    /// The names in the namespace, in byte order.
    fn listed_names(&self, slot: FileSlotId) -> Result<Vec<Box<[u8]>>, Status> {
        let mut list = vec![0; XATTR_MAX];
        let len = match listxattr(self.path_of_link(slot).octets(), &mut list[..]) {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP) => 0,
            Err(error) => return Err(xattr_status(error)),
        };
        let names = list.get(..len).unwrap_or_default().split(|octet| *octet == 0);
        let names = names.filter_map(|name| name.strip_prefix(NAMESPACE));
        let mut names: Vec<Box<[u8]>> = names.map(Into::into).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn put_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let flags = match how {
            XattrMode::Either => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(file, name, |path, name| setxattr(path, name, value, flags))
    }

    pub(super) fn take_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.change_xattr(file, name, |path, name| removexattr(path, name))
    }

    fn change_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        change: impl Fn(&[u8], &[u8]) -> rustix::io::Result<()>,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let slot = self.resolve(file, Intent::Change)?;
        let outcome = ShortText::name(name).and_then(|name| {
            let path = self.path_of_link(slot);
            let change = |_: &Self| change(path.octets(), name.octets());
            self.insist(&[slot], change).map_err(xattr_status)?;
            self.sync_object(slot)
        });
        self.changed(slot, outcome).map(|((), about)| about)
    }
}
