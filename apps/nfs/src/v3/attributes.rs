//! GETATTR, SETATTR and ACCESS (RFC 1813 §3.3.1, §3.3.2, §3.3.4).

use stag_protocol::nfs::v3::{
    AccessArgs, AccessOk, AccessResult, AttributeOctets, Failure, GetAttrArgs, SetAttrArgs,
    SetAttrResult,
};

use super::failure;
use crate::store::Procedures;

pub(super) fn getattr(
    store: &mut impl Procedures,
    args: &GetAttrArgs,
) -> Result<AttributeOctets, Failure<()>> {
    store.getattr_octets(&args.object).map_err(Failure::from)
}

pub(super) fn setattr(store: &mut impl Procedures, args: &SetAttrArgs) -> SetAttrResult {
    store.setattr(&args.object, &args.attributes, args.guard).map_err(failure)
}

pub(super) fn access(store: &mut impl Procedures, args: &AccessArgs) -> AccessResult {
    let (access, attributes) = store.access(&args.object, args.access).map_err(failure)?;
    Ok(AccessOk { attributes: Some(attributes), access })
}
