//! READLINK (RFC 8881 §18.24).

use stag_protocol::nfs::{
    Bulk,
    v3::FileKind,
    v4::{Answer, LinkPath, Status4},
};

use crate::v4::context::{CompoundContext, OpExit, OpResult};
use stag_nfs_store::Store;

pub(super) fn readlink<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    let link = context.current()?.object(Status4::WrongType)?;
    let path = match context.readlink(&link) {
        Ok(done) => done.target,
        Err(OpExit::Fail(Status4::Inval)) => {
            // RFC 8881 §18.24.3 [8881-311]: an object of another type is WRONG_TYPE
            let attributes = context.getattr(&link)?;
            let is_link = attributes.kind == FileKind::Symlink;
            return Err(if is_link { Status4::Inval } else { Status4::WrongType }.into());
        }
        Err(stop) => return Err(stop),
    };
    let len = u32::try_from(path.len()).map_err(|_| Status4::ServerFault)?;
    context.put(&Answer::ReadLink(Ok(LinkPath(Bulk::Apart(len)))))?;
    context.put_item(path.into())
}
