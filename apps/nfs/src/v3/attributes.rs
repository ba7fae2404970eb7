//! GETATTR, SETATTR and ACCESS (RFC 1813 §3.3.1, §3.3.2, §3.3.4).

use stag_protocol::nfs::v3::{
    AccessArgs, AccessOk, AccessResult, AttributeOctets, Failure, GetAttrArgs, SetAttrArgs,
    SetAttrResult,
};

use stag_nfs_store::{NewAttributes, Procedures};

pub(super) fn getattr(
    store: &mut impl Procedures,
    args: &GetAttrArgs,
) -> Result<AttributeOctets, Failure<()>> {
    store.getattr_octets(&args.object).map_err(Failure::from)
}

pub(super) fn setattr(store: &mut impl Procedures, args: &SetAttrArgs) -> SetAttrResult {
    let (set, guard) = (NewAttributes::from(&args.attributes), args.guard.map(Into::into));
    let done = store.setattr(&args.object, &set, guard);
    done.map(|done| done.object.into()).map_err(Into::into)
}

pub(super) fn access(store: &mut impl Procedures, args: &AccessArgs) -> AccessResult {
    let (access, attributes) = store.access(&args.object, args.access)?;
    Ok(AccessOk { attributes: Some(attributes.into()), access })
}
