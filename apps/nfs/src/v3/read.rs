//! READ (RFC 1813 §3.3.6).

use stag_engine::Cx;
use stag_protocol::nfs::{
    Bulk,
    v3::{AttributeOctets, ReadArgs, ReadOk, Status},
};

use crate::{
    data_counts::DataCounts,
    reply::{ReplyWriter, Results},
};
use stag_nfs_store::{Brought, Origin, Procedures, ReadSpan, ReadTicket, TRANSFER_MAX};

/// Attempt at a READ: the first, or the second.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The first attempt. With a ticket it can be deferred.
    First(Option<ReadTicket>),
    /// The second attempt, after its bytes were fetched to the system's memory or ours. Bytes that
    /// are gone again are waited for, so that it ends.
    Again(Option<Brought>),
}

/// An attempt at a READ.
#[derive(Debug)]
pub(crate) struct ReadAttempt<'a> {
    /// The file, and the requested bytes.
    pub(crate) args: &'a ReadArgs,
    /// First or second attempt.
    pub(crate) turn: Turn,
}

/// Passes the bytes directly from the store's memory to the caller's. None when the READ is
/// deferred.
///
/// A success always has attributes, and no results follow the bytes: else a Linux client misplaces
/// data that came in a Write chunk.
pub(crate) fn read(
    store: &mut impl Procedures,
    data: &mut DataCounts,
    cx: &Cx<'_>,
    ReadAttempt { args, turn }: ReadAttempt<'_>,
    reply: &mut ReplyWriter,
) -> Option<Status> {
    // RFC 1813 §3.3.6 [1813-34]: a READ above rtmax returns at most rtmax octets
    let wanted = args.count.min(TRANSFER_MAX);
    let span = ReadSpan { offset: args.offset, count: wanted };
    let lender = |len| cx.take(len);
    let is_first = matches!(turn, Turn::First(_));
    let done = match turn {
        Turn::First(Some(ticket)) => {
            store.begin_read(&lender, &args.file, span, ticket).transpose()?
        }
        Turn::First(None) => store.read(&lender, &args.file, args.offset, wanted),
        Turn::Again(brought) => store.end_read(&lender, &args.file, span, brought),
    };
    let mut octets = None;
    let results: Result<ReadOk<'_, AttributeOctets>, _> = done.map_err(Into::into).map(|done| {
        let count = done.data.len() as u32;
        debug_assert!(count <= wanted, "a store gives no more than was asked for");
        data.octets_read += u64::from(count);
        data.short_of_memory += u64::from(done.is_cut);
        *reads_of(data, done.origin, is_first) += 1;
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

/// The counter of READs whose bytes came from `origin`, at the first attempt or later.
const fn reads_of(data: &mut DataCounts, origin: Origin, is_first: bool) -> &mut u64 {
    match (origin, is_first) {
        (Origin::Memory, true) => &mut data.reads_cached,
        (Origin::Memory, false) => &mut data.reads_warmed,
        (Origin::Ring, _) => &mut data.reads_brought,
        (Origin::Disk, _) => &mut data.reads_blocking,
        (Origin::Helper, _) => &mut data.reads_helped,
        (Origin::Unknown, _) => &mut data.reads_direct,
    }
}
