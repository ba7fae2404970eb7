//! LOOKUP and READLINK (RFC 1813 §3.3.3, §3.3.5).

use stag_engine::Cx;
use stag_protocol::nfs::{
    Bulk,
    v3::{
        Failure, LookupArgs, LookupOk, LookupResult, PATH_MAX, ReadLinkArgs, ReadLinkOk, ReadLinkResult,
        Status,
    },
};

use super::failure;
use crate::gateway::Reply;
use crate::store::files::Files;

pub(super) fn lookup(files: &mut Files, args: &LookupArgs<'_>) -> LookupResult {
    let found = files.lookup(&args.what.dir, args.what.name.0).map_err(failure)?;
    Ok(LookupOk { object: found.handle, attributes: Some(found.attributes), dir_attributes: found.directory })
}

/// The target goes to a buffer of its own, for it may travel in a Write chunk (RFC 8267 §4).
pub(super) fn readlink(files: &mut Files, cx: &Cx<'_>, args: &ReadLinkArgs, reply: &mut Reply) -> Status {
    let Some(mut target) = cx.take(PATH_MAX) else {
        let about = files.getattr(&args.symlink).ok();
        let later: ReadLinkResult<'_> = Err(Failure { status: Status::Jukebox, attributes: about });
        return reply.results(&later);
    };
    let room = target.spare_mut().get_mut(..PATH_MAX).expect("the buffer was taken for as many");
    let read = files.readlink(&args.symlink, room).map_err(failure);
    let results: ReadLinkResult<'_> = read.map(|done| {
        target.extend(done.count as usize);
        ReadLinkOk { attributes: Some(done.attributes), path: Bulk::Apart(done.count) }
    });
    let status = reply.results(&results);
    reply.put_item(target.freeze());
    status
}
