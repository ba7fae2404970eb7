//! READ (RFC 1813 §3.3.6).

use stag_engine::Cx;
use stag_protocol::nfs::{
    Bulk,
    v3::{ReadArgs, ReadOk, ReadResult, Status},
};

use super::failure;
use crate::gateway::Reply;
use crate::helpers::Ticket;
use crate::report::Data;
use crate::store::{Brought, Origin, Store, TRANSFER_MAX};

/// How often a READ was tried.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Not yet. With a ticket it can be put off.
    First(Option<Ticket>),
    /// Once, and then its octets were brought, to the system's memory or to ours. Those that are gone again are waited for,
    /// so that it ends.
    Again(Option<Brought>),
}

/// The octets go from where the store has them straight to the caller's memory. None when the READ is put off.
///
/// A success always has attributes, and no results lie behind the octets: else a Linux client puts what came in a Write
/// chunk in the wrong place.
pub(crate) fn read(
    store: &mut impl Store,
    data: &mut Data,
    cx: &Cx<'_>,
    (args, turn): (&ReadArgs, Turn),
    reply: &mut Reply,
) -> Option<Status> {
    // RFC 1813 §3.3.6 [1813-34]
    let wanted = args.count.min(TRANSFER_MAX);
    let lender = |len| cx.take(len);
    let is_first = matches!(turn, Turn::First(_));
    let done = match turn {
        Turn::First(Some(ticket)) => {
            store.begin_read(&lender, &args.file, (args.offset, wanted), ticket).transpose()?
        }
        Turn::First(None) => store.read(&lender, &args.file, args.offset, wanted),
        Turn::Again(brought) => store.end_read(&lender, &args.file, (args.offset, wanted), brought),
    };
    let mut octets = None;
    let results: ReadResult<'_> = done.map_err(failure).map(|done| {
        let count = done.data.len() as u32;
        debug_assert!(count <= wanted, "a store gives no more than was asked for");
        data.octets_read += u64::from(count);
        data.short_of_memory += u64::from(done.is_cut);
        *match (done.origin, is_first) {
            (Origin::Memory, true) => &mut data.reads_cached,
            (Origin::Memory, false) => &mut data.reads_warmed,
            (Origin::Ring, _) => &mut data.reads_brought,
            (Origin::Disk, _) => &mut data.reads_blocking,
            (Origin::Unknown, _) => &mut data.reads_direct,
        } += 1;
        octets = Some(done.data);
        ReadOk { attributes: Some(done.attributes), eof: done.eof, data: Bulk::Apart(count) }
    });
    let status = reply.results(&results);
    data.short_of_memory += u64::from(status == Status::Jukebox);
    if let Some(octets) = octets {
        reply.put_item(octets);
    }
    Some(status)
}
