//! Extended attributes of objects in memory (RFC 8276). They take heap in addition to the capacity,
//! at most one part in [`SHARE`] of it for the whole store.

use std::collections::BTreeMap;

use stag_protocol::nfs::v3::{FileHandle, FileKind};

use super::{Intent, Memory, handle::InodeId};
use crate::{Failed, ObjectChange, Status, StoreResult, XATTR_MAX, XATTR_NAME_MAX, XattrMode};

/// Extended attributes of one object, at most.
const COUNT_MAX: usize = 64;
/// 1/`SHARE` of the capacity at most.
const SHARE: u64 = 16;
/// Bytes that an attribute takes in addition to its name and value: two boxes and a place in a
/// tree.
const OVERHEAD: usize = 64;

/// Extended attributes of one object, by their names without `user.`.
#[derive(Debug, Default)]
pub(super) struct Xattrs(BTreeMap<Box<[u8]>, Box<[u8]>>);

fn weight(name: &[u8], value: &[u8]) -> usize {
    OVERHEAD + name.len() + value.len()
}

impl Xattrs {
    /// Returns the bytes that they take.
    pub fn weight(&self) -> usize {
        self.0.iter().map(|(name, value)| weight(name, value)).sum()
    }
}

/// Refuses an invalid attribute name.
fn check_name(name: &[u8]) -> Result<(), Status> {
    match name.len() {
        0 => Err(Status::Inval),
        len if len > XATTR_NAME_MAX => Err(Status::NameTooLong),
        _ if name.contains(&0) => Err(Status::Inval),
        _ => Ok(()),
    }
}

impl Memory {
    /// Passes the value of an attribute to `take`.
    pub(super) fn xattr<T>(
        &self,
        file: &FileHandle,
        name: &[u8],
        take: impl FnOnce(&[u8]) -> Result<T, Status>,
    ) -> StoreResult<T> {
        let id = self.resolve(file, Intent::Look)?;
        let found = check_name(name).and_then(|()| {
            let xattrs = self.inodes.get(id)?.xattrs.as_ref();
            xattrs.and_then(|xattrs| xattrs.0.get(name)).ok_or(Status::NoEnt)
        });
        let taken = found.and_then(|value| take(value));
        taken.map_err(|status| Failed { status, about: self.attributes(id).ok() })
    }

    /// Passes the names of all attributes to `take`, one after the other.
    pub(super) fn xattr_names(
        &self,
        file: &FileHandle,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Status>,
    ) -> StoreResult<()> {
        let id = self.resolve(file, Intent::Look)?;
        let xattrs = self.inodes.get(id)?.xattrs.as_ref();
        let mut names = xattrs.into_iter().flat_map(|xattrs| xattrs.0.keys());
        let taken = names.try_for_each(|name| take(name));
        taken.map_err(|status| Failed { status, about: self.attributes(id).ok() })
    }

    /// Sets an attribute, or removes it if there is no value.
    pub(super) fn change_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrMode,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let id = self.resolve(file, Intent::Change)?;
        let before = self.attributes(id)?;
        let outcome = check_name(name).and_then(|()| self.put_xattr(id, name, value, how));
        self.changed(id, &before, outcome).map(|((), about)| about)
    }

    fn put_xattr(
        &mut self,
        id: InodeId,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrMode,
    ) -> Result<(), Status> {
        let (now, limit) = (self.now(), self.space.octets().0 / SHARE);
        let inode = self.inodes.get_mut(id)?;
        // As on Linux: other objects have no content that user attributes could belong to.
        if !matches!(inode.body.kind(), FileKind::Regular | FileKind::Directory) {
            return Err(Status::Perm);
        }
        let old = inode.xattrs.as_ref().and_then(|xattrs| xattrs.0.get(name));
        match how {
            XattrMode::Create if old.is_some() => return Err(Status::Exist),
            XattrMode::Replace if old.is_none() => return Err(Status::NoEnt),
            _ => {}
        }
        let freed = old.map_or(0, |old| weight(name, old)) as u64;
        let wanted = value.map_or(0, |value| weight(name, value)) as u64;
        let (all, is_new) = (self.xattr_octets - freed + wanted, old.is_none());
        let xattrs = inode.xattrs.get_or_insert_default();
        match value {
            None => drop(xattrs.0.remove(name)),
            Some(value) if value.len() > XATTR_MAX => return Err(Status::TooSmall),
            Some(_) if all > limit || (is_new && xattrs.0.len() >= COUNT_MAX) => {
                return Err(Status::NoSpc);
            }
            Some(value) => drop(xattrs.0.insert(name.into(), value.into())),
        }
        self.xattr_octets = all;
        inode.meta.ctime = now;
        Ok(())
    }
}
