//! PUTFH, PUTPUBFH, PUTROOTFH, GETFH, SAVEFH and RESTOREFH (RFC 8881 §18.8, §18.19–§18.21, §18.27,
//! §18.28).

use stag_protocol::nfs::v4::{Answer, Handle4};

use crate::v4::context::{CompoundContext, OpResult, filehandle::Node};
use stag_nfs_store::Store;

/// The handle is checked by the operation that uses it.
pub(super) fn putfh<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    handle: &Handle4<'_>,
) -> OpResult {
    let node = Node::of(handle)?;
    context.set_current(node);
    context.put(&Answer::PutFh(Ok(())))
}

/// The public filehandle is that of the root.
pub(super) fn putpubfh<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    context.set_current(Node::ROOT);
    context.put(&Answer::PutPubFh(Ok(())))
}

pub(super) fn putrootfh<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    context.set_current(Node::ROOT);
    context.put(&Answer::PutRootFh(Ok(())))
}

pub(super) fn getfh<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    let node = context.current()?;
    context.put(&Answer::GetFh(Ok(node.handle())))
}

pub(super) fn savefh<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    context.current()?;
    context.save();
    context.put(&Answer::SaveFh(Ok(())))
}

pub(super) fn restorefh<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    context.saved()?;
    context.restore();
    context.put(&Answer::RestoreFh(Ok(())))
}
