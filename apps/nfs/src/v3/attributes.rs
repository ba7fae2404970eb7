//! GETATTR, SETATTR and ACCESS (RFC 1813 §3.3.1, §3.3.2, §3.3.4).

use stag_protocol::nfs::v3::{
    AccessArgs, AccessOk, AccessResult, Failure, GetAttrArgs, GetAttrResult, SetAttrArgs, SetAttrResult,
};

use super::failure;
use crate::store::files::Files;

pub(super) fn getattr(files: &mut Files, args: &GetAttrArgs) -> GetAttrResult {
    files.getattr(&args.object).map_err(Failure::from)
}

pub(super) fn setattr(files: &mut Files, args: &SetAttrArgs) -> SetAttrResult {
    files.setattr(&args.object, &args.attributes, args.guard).map_err(failure)
}

pub(super) fn access(files: &mut Files, args: &AccessArgs) -> AccessResult {
    let (access, attributes) = files.access(&args.object, args.access).map_err(failure)?;
    Ok(AccessOk { attributes: Some(attributes), access })
}
