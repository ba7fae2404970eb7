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

pub(super) fn access<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Access4Args,
) -> OpResult {
    // RFC 8276 §8.2 [8276-1]: minor version 2 has three more rights
    let xattrs =
        if context.compound.minor_version < 2 { 0 } else { XATTR_READ | XATTR_WRITE | XATTR_LIST };
    if args.rights & !(ALL | xattrs) != 0 {
        return Err(Status4::Inval.into());
    }
    let (supported, granted) = match context.current()? {
        Node::Pseudo(handle) => {
            context.directory(&handle)?;
            (args.rights, args.rights & LOOK)
        }
        Node::Object(object) => {
            let (granted, attributes) = context.access(&object, Access(asked(args.rights)))?;
            (args.rights & (meaningful(attributes.kind) | xattrs), with_xattrs(granted.0))
        }
    };
    // RFC 8881 §18.1.3 [8881-318]: what is not supported is not granted
    let granted = granted & supported;
    context.put(&Answer::Access(Ok(Access4Ok { supported, granted })))
}

/// The rights to ask the store for: extended attributes are read, listed and written with the
/// rights to the content.
const fn asked(rights: u32) -> u32 {
    let reads = if rights & (XATTR_READ | XATTR_LIST) != 0 { Access::READ.0 } else { 0 };
    let writes = if rights & XATTR_WRITE != 0 { Access::MODIFY.0 } else { 0 };
    rights & ALL | reads | writes
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
