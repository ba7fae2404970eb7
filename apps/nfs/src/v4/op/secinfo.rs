//! SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29, §18.45).

use stag_protocol::{
    nfs::v4::{Answer, Array, SecInfoStyle, SecurityFlavor},
    rpc::flavor,
};

use super::lookup::{find, parent};
use crate::v4::context::{CompoundContext, OpResult, status::check_name};
use stag_nfs_store::Store;

/// Accepted flavors, the best first.
const FLAVORS: [SecurityFlavor<'static>; 2] =
    [SecurityFlavor::Plain(flavor::SYS), SecurityFlavor::Plain(flavor::NONE)];

pub(super) fn secinfo<S: Store>(context: &mut CompoundContext<'_, '_, S>, name: &[u8]) -> OpResult {
    let node = context.current()?;
    check_name(name)?;
    find(context, &node, name)?;
    // RFC 8881 §18.29.3 [8881-308]: a success consumes the current filehandle
    context.drop_current();
    context.put(&Answer::SecInfo(Ok(Array::of(&FLAVORS))))
}

pub(super) fn secinfo_no_name<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    style: SecInfoStyle,
) -> OpResult {
    context.current()?;
    if style == SecInfoStyle::Parent {
        parent(context)?;
    }
    context.drop_current();
    context.put(&Answer::SecInfoNoName(Ok(Array::of(&FLAVORS))))
}
