//! READ (RFC 1813 §3.3.6).

use stag_engine::{Cx, config};
use stag_pools::Buf;
use stag_protocol::nfs::{
    Bulk,
    v3::{Failure, ReadArgs, ReadOk, ReadResult, Status},
};

use super::failure;
use crate::gateway::Reply;
use crate::report::Data;
use crate::store::files::{Files, system::TRANSFER_MAX};

/// The octets go from the file straight to a buffer, and from there to the caller's memory.
///
/// A success always has attributes, and no results lie behind the octets: else a Linux client puts what came in a Write
/// chunk in the wrong place.
pub(super) fn read(
    files: &mut Files,
    data: &mut Data,
    cx: &Cx<'_>,
    args: &ReadArgs,
    reply: &mut Reply,
) -> Status {
    let wanted = args.count.min(TRANSFER_MAX) as usize;
    let Some((mut octets, len)) = take(cx, wanted) else {
        data.short_of_memory += 1;
        let about = files.getattr(&args.file).ok();
        let later: ReadResult<'_> = Err(Failure { status: Status::Jukebox, attributes: about });
        return reply.results(&later);
    };
    data.short_of_memory += u64::from(len < wanted);
    let room = octets.spare_mut().get_mut(..len).expect("`take` found a buffer for as many");
    let results: ReadResult<'_> = files.read(&args.file, args.offset, room).map_err(failure).map(|done| {
        data.octets_read += u64::from(done.count);
        octets.extend(done.count as usize);
        ReadOk { attributes: Some(done.attributes), eof: done.eof, data: Bulk::Apart(done.count) }
    });
    let status = reply.results(&results);
    reply.put_item(octets.freeze());
    status
}

/// A buffer for `wanted` octets, or for as many as there is memory for: a READ may return less than was asked for.
fn take(cx: &Cx<'_>, wanted: usize) -> Option<(Buf, usize)> {
    let lens = [wanted, wanted.min(config::MEDIUM_LEN), wanted.min(config::INLINE_LEN)];
    lens.into_iter().find_map(|len| cx.take(len).map(|buf| (buf, len)))
}
