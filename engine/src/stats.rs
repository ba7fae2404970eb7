//! Counters of a shard: plain numbers, written by one core. A snapshot is a copy.

use crate::{
    detail::Detail,
    stage_times::{Procedures, Stages},
};
use serde::Serialize;
use stag_protocol::rpcrdma::{ChunkLists, Direction, PeerFault, Version, short::Layout};
use stag_verbs::{Cause, Count};
use std::{collections::BTreeMap, mem::discriminant};

/// Counters of one shard since its start. Octets and events; no rates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Peers that connected over the fabric, and over TCP.
    pub connections: Connections,
    /// As responder, over the fabric.
    pub responder: Responder,
    /// As requester, over the fabric.
    pub requester: Requester,
    /// As responder, over TCP.
    pub stream: StreamStats,
    /// Calls with RPCSEC_GSS, and their contexts.
    pub gss: GssStats,
    /// Protocol violations of peers, by rule.
    pub peer_faults: BTreeMap<String, u64>,
    /// Ends of connections, by cause.
    pub disconnects: BTreeMap<String, u64>,
    /// Number of times that a limit delayed or refused a peer.
    pub limits: Limits,
    /// Passes of the loop, and the number of sleeps.
    pub passes: Passes,
}

/// The counters of a shard and its app, at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot<R> {
    /// The shard.
    pub engine: Stats,
    /// The fabric: its scheme, and its counters.
    #[serde(skip)]
    pub fabric: (&'static str, Count),
    /// The time of calls, by stage.
    #[serde(skip)]
    pub stages: Stages,
    /// The time of calls, by procedure and stage.
    #[serde(skip)]
    pub procedures: Procedures,
    /// Peers and calls, if they were requested.
    #[serde(skip)]
    pub detail: Option<Box<Detail>>,
    /// The app.
    pub app: R,
}

/// Calls with RPCSEC_GSS (RFC 2203), over the fabric and over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GssStats {
    /// Contexts that clients of this shard set up.
    pub contexts: u64,
    /// Requests for contexts that were refused.
    pub refused: u64,
    /// Calls inside a context.
    pub calls: u64,
    /// Calls denied: of unknown or ended contexts, or with a wrong verifier.
    pub denied: u64,
    /// Calls without an answer: their sequence number was used before, or is too old.
    pub replayed: u64,
    /// Calls whose arguments were not protected as they said.
    pub garbage: u64,
    /// Replies that could not be protected. Their connections were closed.
    pub unprotectable: u64,
    /// Contexts of all shards that exist now. As the counts below, each shard reports the same.
    pub live: u64,
    /// Requests for contexts that wait now, with the one that is judged.
    pub waiting: u64,
    /// Requests for contexts that found no place, or lost it: they wait at their shard.
    pub crowded: u64,
    /// Contexts that made room for newer ones.
    pub displaced: u64,
    /// Passes that signed, verified, sealed or opened 64 KiB of a long call or reply.
    pub steps: u64,
}

/// Connections by fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Accepted over the fabric.
    pub fabric: u64,
    /// Accepted over TCP.
    pub tcp: u64,
    /// Refused, because the address is not allowed or the shard is stopping.
    pub refused: u64,
    /// Established connections.
    pub live: u64,
}

/// Chunks and segments of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chunks {
    /// Read chunks, and their segments.
    pub read: u64,
    /// Segments of Read chunks.
    pub read_segments: u64,
    /// Write chunks.
    pub write: u64,
    /// Segments of Write chunks.
    pub write_segments: u64,
    /// Reply chunks.
    pub reply: u64,
    /// Segments of Reply chunks.
    pub reply_segments: u64,
}

impl Chunks {
    pub(crate) fn count(&mut self, lists: &ChunkLists) {
        if lists.is_empty() {
            return;
        }
        if lists.only_write().is_some() {
            (self.write, self.write_segments) = (self.write + 1, self.write_segments + 1);
            return;
        }
        for chunk in lists.reads() {
            self.read += 1;
            self.read_segments += chunk.segments.len() as u64;
        }
        for chunk in lists.writes() {
            self.write += 1;
            self.write_segments += chunk.segments.len() as u64;
        }
        if let Some(chunk) = lists.reply() {
            self.reply += 1;
            self.reply_segments += chunk.segments.len() as u64;
        }
    }
}

/// Messages by form (RFC 8166 §3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Forms {
    /// All inline.
    pub short: u64,
    /// An item in a chunk.
    pub chunked: u64,
    /// The whole message in a chunk.
    pub long: u64,
}

impl Forms {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.short + self.chunked + self.long
    }
}

/// Messages by direction (RFC 8167 §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Directions {
    /// From the end that connected.
    pub forward: u64,
    /// From the end that accepted.
    pub reverse: u64,
}

impl Directions {
    #[inline]
    pub(crate) const fn count(&mut self, direction: Direction) {
        match direction {
            Direction::Forward => self.forward += 1,
            Direction::Reverse => self.reverse += 1,
        }
    }
}

/// Messages by version of RPC-over-RDMA, and by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// Version 1.
    pub v1: Directions,
    /// Version 2.
    pub v2: Directions,
}

impl Versions {
    pub(crate) const fn count(&mut self, version: Version, direction: Direction) {
        match version {
            Version::One => self.v1.count(direction),
            Version::Two(_) => self.v2.count(direction),
        }
    }

    /// Counts a short message of a connection with this layout.
    #[inline]
    pub(crate) const fn count_short(&mut self, layout: &Layout, direction: Direction) {
        if layout.is_two() { self.v2.count(direction) } else { self.v1.count(direction) }
    }
}

/// The answering role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Responder {
    /// Calls by form.
    pub calls: Forms,
    /// Calls by version and direction.
    pub versions: Versions,
    /// Replies by form.
    pub replies: Forms,
    /// RDMA_ERROR messages sent.
    pub errors: u64,
    /// Of these, ERR_VERS errors.
    pub version_errors: u64,
    /// Options that peers requested.
    pub options: u64,
    /// The chunks that calls offered.
    pub chunks: Chunks,
    /// Octets pulled by RDMA Read.
    pub pulled: u64,
    /// Octets pushed by RDMA Write.
    pub pushed: u64,
    /// RDMA Writes.
    pub writes: u64,
    /// Replies that invalidated a key of the peer.
    pub remote_invalidations: u64,
    /// Reply chunks returned unused because the reply fitted inline (RFC 8166 §4.3.3).
    pub reply_chunks_spared: u64,
    /// The largest grant that a peer had.
    pub grant: u32,
}

/// The calling role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requester {
    /// Calls by form.
    pub calls: Forms,
    /// Calls by version and direction.
    pub versions: Versions,
    /// Replies by form.
    pub replies: Forms,
    /// RDMA_ERROR messages received.
    pub errors: u64,
    /// Of these, ERR_VERS errors.
    pub version_errors: u64,
    /// Peers that did not answer the first message of version 2 in time, and are called with
    /// version 1.
    pub version_silences: u64,
    /// Options that we requested.
    pub options: u64,
    /// The chunks that our calls offered.
    pub chunks: Chunks,
    /// Keys of ours that a reply invalidated.
    pub remote_invalidations: u64,
    /// Keys that we invalidated ourselves.
    pub local_invalidations: u64,
    /// Calls that had to wait for a credit.
    pub waited_for_credit: u64,
    /// Replies whose Write chunk came back unused: a failure, an empty result, or a responder that
    /// does not reduce.
    pub write_chunks_unused: u64,
    /// Octets that replies claimed in chunks but that were not written: apps read zeros there.
    pub unwritten: u64,
    /// Calls whose deadline passed.
    pub timeouts: u64,
}

/// RPC over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamStats {
    /// Calls.
    pub calls: u64,
    /// Replies.
    pub replies: u64,
    /// Octets received.
    pub received: u64,
    /// Octets sent.
    pub sent: u64,
    /// System calls that received, or found nothing to receive.
    pub receives: u64,
    /// System calls that sent.
    pub sends: u64,
    /// System calls that checked all connections.
    pub looks: u64,
    /// System calls that changed the events that epoll reports for a connection.
    pub watches: u64,
    /// Connections that were closed because no call arrived on them in time, or because a newcomer
    /// needed their place before.
    pub silent: u64,
    /// TLS sessions established.
    pub tls_sessions: u64,
    /// Of these, sessions that the kernel took over.
    pub tls_kernel_sessions: u64,
    /// Connections that ended because a TLS session failed, or violated its rules.
    pub tls_failures: u64,
    /// Calls denied because they came without TLS, or requested it where that is not allowed.
    pub tls_refusals: u64,
}

/// Limits that were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Connections refused because not even a grant of one fitted the receives.
    pub receives: u64,
    /// Idle peers disconnected so that others could connect.
    pub idle_disconnected: u64,
    /// Connections ended because the fabric accepted fewer receives than were promised.
    pub promises: u64,
    /// Connections refused because the peer table is full.
    pub peers: u64,
    /// Connections ended because their peer held memory and made no progress.
    pub stalled: u64,
    /// Connections ended because their peer held memory and moved too little for it while others
    /// waited.
    pub slow: u64,
    /// Calls that waited for memory.
    pub memory: u64,
    /// Calls that waited because their peer holds its share of the memory.
    pub share: u64,
    /// Replies that waited for room in a send queue.
    pub send_queue: u64,
    /// Calls dropped because the call table is full.
    pub calls: u64,
}

/// Passes of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Passes {
    /// All.
    pub total: u64,
    /// Times the core slept.
    pub sleeps: u64,
}

/// Counts rare events by kind, without a map: few kinds, compared one by one.
#[derive(Clone, Debug)]
pub(crate) struct Tally<T>(Vec<(T, u64)>);

impl<T: PartialEq + Copy> Tally<T> {
    /// Further kinds are counted with one of the same variant, or with the last one.
    const KINDS: usize = 64;

    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(Self::KINDS))
    }

    pub(crate) fn count(&mut self, kind: T) {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == kind) {
            *count += 1;
        } else if self.0.len() < Self::KINDS {
            self.0.push((kind, 1));
        } else {
            let alike = |known: &T| discriminant(known) == discriminant(&kind);
            let place =
                self.0.iter().position(|(known, _)| alike(known)).unwrap_or(Self::KINDS - 1);
            if let Some((_, count)) = self.0.get_mut(place) {
                *count += 1;
            }
        }
    }

    fn named(&self, name: impl Fn(&T) -> String) -> BTreeMap<String, u64> {
        let mut named = BTreeMap::new();
        for (kind, count) in &self.0 {
            *named.entry(name(kind)).or_default() += count;
        }
        named
    }
}

/// The counters in their working form.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) stats: Stats,
    pub(crate) peer_faults: Tally<PeerFault>,
    pub(crate) disconnects: Tally<Cause>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { stats: Stats::default(), peer_faults: Tally::new(), disconnects: Tally::new() }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.peer_faults = self.peer_faults.named(|fault| variant(&format!("{fault:?}")));
        stats.disconnects = self.disconnects.named(ToString::to_string);
        stats
    }
}

/// The name of an enumeration's variant in its debug form, without its fields.
fn variant(debug: &str) -> String {
    debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_events_are_counted_by_kind_in_bounded_memory() {
        let mut tally = Tally::new();
        for kind in (0..100_u32).chain(0..10) {
            tally.count(kind);
        }
        assert_eq!(tally.0.len(), Tally::<u32>::KINDS);
        let named = tally.named(u32::to_string);
        assert_eq!((named["3"], named.values().sum::<u64>()), (2, 110));
        assert_eq!(variant("PositionOutside(7)"), "PositionOutside");
    }
}
