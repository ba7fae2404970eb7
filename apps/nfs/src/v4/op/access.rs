//! ACCESS (RFC 8881 §18.1).

use stag_protocol::nfs::{
    v3::{Access, FileKind},
    v4::{Access4Args, Access4Ok, Answer, Status4},
};

use crate::{
    store::Store,
    v4::{
        node::Node,
        turn::{Done, Turn},
    },
};

/// Every right of minor version 1. They have the numbers of version 3.
const ALL: u32 = 0x3f;
/// Rights that the root of all exports knows.
const LOOK: u32 = Access::READ.0 | Access::LOOKUP.0;

pub(super) fn access<S: Store>(turn: &mut Turn<'_, '_, S>, args: &Access4Args) -> Done {
    if args.rights & !ALL != 0 {
        return Err(Status4::Inval.into());
    }
    let (supported, granted) = match turn.current()? {
        Node::Root => (args.rights, args.rights & LOOK),
        Node::Object(object) => {
            let asked = Access(args.rights);
            let (granted, attributes) = turn.access(&object, asked)?;
            (args.rights & meaningful(attributes.kind), granted.0)
        }
    };
    let granted = granted & supported;
    turn.put(&Answer::Access(Ok(Access4Ok { supported, granted })))
}

/// The rights that mean something for an object of this kind.
fn meaningful(kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => ALL & !Access::EXECUTE.0,
        _ => ALL & !(Access::LOOKUP.0 | Access::DELETE.0),
    }
}
