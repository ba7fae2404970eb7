//! READ (RFC 1813 §3.3.6).

use stag_engine::Cx;
use stag_protocol::nfs::{
    Bulk,
    v3::{ReadArgs, ReadOk, ReadResult, Status},
};

use super::failure;
use crate::gateway::Reply;
use crate::report::Data;
use crate::store::{Store, TRANSFER_MAX};

/// The octets go from where the store has them straight to the caller's memory.
///
/// A success always has attributes, and no results lie behind the octets: else a Linux client puts what came in a Write
/// chunk in the wrong place.
pub(super) fn read(
    store: &mut impl Store,
    data: &mut Data,
    cx: &Cx<'_>,
    args: &ReadArgs,
    reply: &mut Reply,
) -> Status {
    let wanted = args.count.min(TRANSFER_MAX);
    let mut octets = None;
    let done = store.read(&|len| cx.take(len), &args.file, args.offset, wanted).map_err(failure);
    let results: ReadResult<'_> = done.map(|done| {
        let count = done.data.len() as u32;
        debug_assert!(count <= wanted, "a store gives no more than was asked for");
        data.octets_read += u64::from(count);
        data.short_of_memory += u64::from(done.is_cut);
        octets = Some(done.data);
        ReadOk { attributes: Some(done.attributes), eof: done.eof, data: Bulk::Apart(count) }
    });
    let status = reply.results(&results);
    data.short_of_memory += u64::from(status == Status::Jukebox);
    if let Some(octets) = octets {
        reply.put_item(octets);
    }
    status
}
