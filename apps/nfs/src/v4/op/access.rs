//! ACCESS (RFC 8881 §18.1).

use stag_protocol::nfs::{
    v3::{Access, FileKind},
    v4::{Access4Args, Access4Ok, Answer, Status4},
};

use crate::v4::context::{CompoundContext, OpResult, filehandle::Node};
use stag_nfs_store::Store;

/// Every right of minor version 1. They have the numbers of version 3.
const ALL: u32 = 0x3f;
/// Reading, writing and listing extended attributes (RFC 8276 §8.2), of minor version 2.
const XATTR_READ: u32 = 0x40;
const XATTR_WRITE: u32 = 0x80;
const XATTR_LIST: u32 = 0x100;
/// Rights that apply to directories of the pseudo file system.
const LOOK: u32 = Access::READ.0 | Access::LOOKUP.0;

/// The rights that an ACCESS asks for, and the minor version of its compound.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct AskedRights {
    /// The bits of the arguments.
    pub(in crate::v4) rights: u32,
    /// 1, or 2 with three more rights.
    pub(in crate::v4) minor_version: u32,
}

impl AskedRights {
    /// Rights to extended attributes that the minor version has.
    const fn xattrs(self) -> u32 {
        // RFC 8276 §8.2 [8276-1]: minor version 2 has three more rights
        if self.minor_version < 2 { 0 } else { XATTR_READ | XATTR_WRITE | XATTR_LIST }
    }

    /// Returns true if there are rights among them that do not exist.
    pub(in crate::v4) const fn are_invalid(self) -> bool {
        self.rights & !(ALL | self.xattrs()) != 0
    }

    /// The rights to ask the store for: extended attributes are read, listed and written with the
    /// rights to the content.
    pub(in crate::v4) const fn to_ask_store(self) -> Access {
        let rights = self.rights;
        let reads = if rights & (XATTR_READ | XATTR_LIST) != 0 { Access::READ.0 } else { 0 };
        let writes = if rights & XATTR_WRITE != 0 { Access::MODIFY.0 } else { 0 };
        Access(rights & ALL | reads | writes)
    }

    /// The results for an object of this kind, of which the store grants these rights.
    pub(in crate::v4) fn results(self, granted: Access, kind: FileKind) -> Access4Ok {
        let supported = self.rights & (meaningful(kind) | self.xattrs());
        // RFC 8881 §18.1.3 [8881-318]: what is not supported is not granted
        Access4Ok { supported, granted: with_xattrs(granted.0) & supported }
    }
}

pub(super) fn access<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Access4Args,
) -> OpResult {
    let minor_version = context.compound.minor_version;
    let asked = AskedRights { rights: args.rights, minor_version };
    if asked.are_invalid() {
        return Err(Status4::Inval.into());
    }
    let ok = match context.current()? {
        Node::Pseudo(handle) => {
            context.directory(&handle)?;
            Access4Ok { supported: args.rights, granted: args.rights & LOOK }
        }
        Node::Object(object) => {
            let (granted, attributes) = context.access(&object, asked.to_ask_store())?;
            asked.results(granted, attributes.kind)
        }
    };
    context.put(&Answer::Access(Ok(ok)))
}

/// Adds the rights to extended attributes that follow.
const fn with_xattrs(granted: u32) -> u32 {
    let reads = if granted & Access::READ.0 != 0 { XATTR_READ | XATTR_LIST } else { 0 };
    let writes = if granted & Access::MODIFY.0 != 0 { XATTR_WRITE } else { 0 };
    granted | reads | writes
}

/// The rights that apply to an object of this kind.
fn meaningful(kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => ALL & !Access::EXECUTE.0,
        _ => ALL & !(Access::LOOKUP.0 | Access::DELETE.0),
    }
}
