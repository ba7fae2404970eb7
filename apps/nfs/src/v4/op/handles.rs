//! PUTFH, PUTPUBFH, PUTROOTFH, GETFH, SAVEFH and RESTOREFH (RFC 8881 §18.8, §18.19–§18.21, §18.27,
//! §18.28).

use stag_protocol::nfs::v4::{Answer, Handle4};

use crate::v4::context::{Done, Turn, filehandle::Node};
use stag_nfs_store::Store;

/// The handle is checked by the operation that uses it.
pub(super) fn putfh<S: Store>(turn: &mut Turn<'_, '_, S>, handle: &Handle4<'_>) -> Done {
    let node = Node::of(handle)?;
    turn.set_current(node);
    turn.put(&Answer::PutFh(Ok(())))
}

/// The public filehandle is that of the root.
pub(super) fn putpubfh<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    turn.set_current(Node::ROOT);
    turn.put(&Answer::PutPubFh(Ok(())))
}

pub(super) fn putrootfh<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    turn.set_current(Node::ROOT);
    turn.put(&Answer::PutRootFh(Ok(())))
}

pub(super) fn getfh<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    let node = turn.current()?;
    turn.put(&Answer::GetFh(Ok(node.handle())))
}

pub(super) fn savefh<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    turn.current()?;
    turn.save();
    turn.put(&Answer::SaveFh(Ok(())))
}

pub(super) fn restorefh<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    turn.saved()?;
    turn.restore();
    turn.put(&Answer::RestoreFh(Ok(())))
}
