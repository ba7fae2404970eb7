//! READLINK (RFC 8881 §18.24).

use stag_protocol::nfs::{
    Bulk,
    v3::FileKind,
    v4::{Answer, LinkPath, Status4},
};

use crate::v4::context::{Done, Stop, Turn};
use stag_nfs_store::Store;

pub(super) fn readlink<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    let link = turn.current()?.object(Status4::WrongType)?;
    let path = match turn.readlink(&link) {
        Ok(done) => done.target,
        Err(Stop::Fail(Status4::Inval)) => {
            // RFC 8881 §18.24.3 [8881-311]: an object of another type is WRONG_TYPE
            let attributes = turn.getattr(&link)?;
            let is_link = attributes.kind == FileKind::Symlink;
            return Err(if is_link { Status4::Inval } else { Status4::WrongType }.into());
        }
        Err(stop) => return Err(stop),
    };
    let len = u32::try_from(path.len()).map_err(|_| Status4::ServerFault)?;
    turn.put(&Answer::ReadLink(Ok(LinkPath(Bulk::Apart(len)))))?;
    turn.put_item(path.into())
}
