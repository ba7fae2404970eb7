//! SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29, §18.45).

use stag_protocol::{
    nfs::v4::{Answer, Array, SecInfoStyle, SecurityFlavor},
    rpc::flavor,
};

use super::lookup::{find, parent};
use crate::v4::context::{Done, Turn, status::check_name};
use stag_nfs_store::Store;

/// Accepted flavors, the best first.
const FLAVORS: [SecurityFlavor<'static>; 2] =
    [SecurityFlavor::Plain(flavor::SYS), SecurityFlavor::Plain(flavor::NONE)];

pub(super) fn secinfo<S: Store>(turn: &mut Turn<'_, '_, S>, name: &[u8]) -> Done {
    let node = turn.current()?;
    check_name(name)?;
    find(turn, &node, name)?;
    // RFC 8881 §18.29.3 [8881-308]: a success consumes the current filehandle
    turn.drop_current();
    turn.put(&Answer::SecInfo(Ok(Array::of(&FLAVORS))))
}

pub(super) fn secinfo_no_name<S: Store>(turn: &mut Turn<'_, '_, S>, style: SecInfoStyle) -> Done {
    turn.current()?;
    if style == SecInfoStyle::Parent {
        parent(turn)?;
    }
    turn.drop_current();
    turn.put(&Answer::SecInfoNoName(Ok(Array::of(&FLAVORS))))
}
