//! LOOKUP and READLINK (RFC 1813 §3.3.3, §3.3.5).

use stag_engine::Cx;
use stag_protocol::nfs::{
    Bulk,
    v3::{LookupArgs, LookupOk, LookupResult, ReadLinkArgs, ReadLinkOk, ReadLinkResult, Status},
};

use crate::reply::{ReplyWriter, Results};
use stag_nfs_store::Procedures;

pub(super) fn lookup(store: &mut impl Procedures, args: &LookupArgs<'_>) -> LookupResult {
    let found = store.lookup(&args.what.dir, args.what.name.0)?;
    Ok(LookupOk {
        object: found.handle,
        attributes: Some(found.attributes.into()),
        dir_attributes: found.directory.map(Into::into),
    })
}

/// Returns the target as a separate item, because it may travel in a Write chunk (RFC 8267 §4).
pub(super) fn readlink(
    store: &mut impl Procedures,
    cx: &Cx<'_>,
    args: &ReadLinkArgs,
    reply: &mut ReplyWriter,
) -> Status {
    let mut target = None;
    let read = store.readlink(&|len| cx.take(len), &args.symlink).map_err(Into::into);
    let results: ReadLinkResult<'_> = read.map(|done| {
        let count = done.target.len() as u32;
        // RFC 1813 §3.3.5 [1813-33]: the target of a link is returned uninterpreted
        target = Some(done.target);
        ReadLinkOk { attributes: Some(done.attributes.into()), path: Bulk::Apart(count) }
    });
    let status = reply.results(&results);
    if let Some(target) = target {
        reply.put_item(target.into());
    }
    status
}
