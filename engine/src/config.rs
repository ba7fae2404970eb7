//! The sizes and limits of a shard (DESIGN D14). Every table takes its size from here.

use crate::{
    clock::Meter,
    gss::GssContexts,
    stage_times::Sampling,
    waiting::{RestListener, Spin},
};
use stag_pools::Class;
use stag_protocol::rpcrdma::{Version2, Versions, chunk::SEGMENTS_MAX, responder::ReplyPolicy};
use stag_tls::{ClientTls, ServerTls};
use stag_verbs::{Limits, Steering};
use std::{sync::Arc, time::Duration};

/// Octets in front of every message for its transport header: the header of a reply that returns as
/// many segments as a call may name, rounded up to a cache line.
pub const HEAD_ROOM: usize = 1_152;
/// Longest RPC message we send inline, transport header included.
pub const INLINE_LEN: usize = 8_192;
/// Octets of the largest item that the gateway moves: rtmax and wtmax.
pub const ITEM_MAX: usize = 1 << 20;
/// Octets of a large slot: an item with the rest of its message around it.
pub const LARGE_LEN: usize = ITEM_MAX + 8_192;
/// Octets of private data that a fabric carries: as many as an InfiniBand CM REP has. Ours are
/// eight (RFC 8797 §4).
const PRIVATE_DATA_LEN: usize = 196;
/// Octets of a message slot.
pub const MESSAGE_LEN: usize = HEAD_ROOM + INLINE_LEN;
/// Octets of a medium slot: 64 KiB with the rest of a message around them.
pub const MEDIUM_LEN: usize = 65_536 + 4_096;

/// Windows of one call of ours: an argument or a whole message, and room for a result or for a
/// reply.
pub(crate) const CALL_WINDOWS: usize = 2;

// Every header we emit fits the head room: the fixed part, eight Write chunks and a Reply chunk
// with all segments.
const _: () = assert!(36 + 8 * 8 + 4 + SEGMENTS_MAX * 16 <= HEAD_ROOM);

/// The sizes of one shard.
#[derive(Clone, Debug)]
pub struct Config {
    /// The versions of RPC-over-RDMA accepted from peers that connect to us.
    pub serve_versions: Versions,
    /// The versions to try with peers that we connect to.
    pub call_versions: Versions,
    /// Maximum of outstanding calls per peer (RFC 8166 §3.3.1). A quarter of the receives is
    /// another limit.
    pub grant: u32,
    /// Calls that a new peer may have outstanding.
    pub grant_first: u32,
    /// Maximum of our outstanding calls to one peer.
    pub calls_max: u32,
    /// Maximum of our outstanding reverse calls to one peer that connected to us (RFC 8167 §4.1).
    /// Receives are reserved for them only after [`Cx::ready`](crate::Cx::ready). Zero: such calls
    /// end with [`CallFault::Limit`](crate::CallFault::Limit).
    pub reverse_calls_max: u32,
    /// Reverse calls that a peer which we connected to may have outstanding (RFC 8167 §4.1). Zero:
    /// its calls are not accepted.
    pub reverse_grant: u32,
    /// The time for which an adopted peer ([`Cx::adopt`](crate::Cx::adopt)) is kept while it has
    /// neither a connection nor a pending call.
    pub absence: Duration,
    /// Receives of the shard, shared by its connections: an upper bound for the sum of all grants
    /// and our own outstanding calls.
    pub receives: usize,
    /// Octets of one receive: the longest message that a peer may send inline. Programs that move
    /// items of 4 KiB give [`INLINE_LEN`], so that these travel inline between two of them.
    pub receive_len: usize,
    /// Maximum of peers over the fabric; TCP connections are counted separately.
    pub peers: usize,
    /// Maximum of TCP connections; any further one is closed.
    pub streams: usize,
    /// The time within which the first call has to arrive on a TCP connection that a peer made.
    /// `None`: no limit; a silent peer keeps its place.
    pub first_call_within: Option<Duration>,
    /// Steers TCP connections by the peer's address to one of the shards that share a port.
    pub steering: Option<Steering>,
    /// Connect over TCP from a port below 1024, if this process may bind one
    /// ([`stag_verbs::source`]).
    pub reserved_port: bool,
    /// Maximum of calls of peers in progress, on all connections.
    pub inbound: usize,
    /// Maximum of our own calls, pending ones included.
    pub outbound: usize,
    /// Octets one call may bring in Read chunks, or in one TCP record.
    pub payload_max: u32,
    /// Message, medium and large slots.
    pub slots: [usize; 3],
    /// Send our limits in the private data while connecting (RFC 8797). Without it, both directions
    /// are limited to 1,024 octets inline, and replies do not invalidate keys. Version 2 is not
    /// used either, since a peer that sends no private data is taken for version 1.
    pub private_data: bool,
    /// Policy for the use of Reply chunks.
    pub reply_policy: ReplyPolicy,
    /// TLS for peers that connect over TCP (RFC 9289). None: a client that probes for TLS gets the
    /// answer of a server without it.
    pub serve_tls: Option<Arc<ServerTls>>,
    /// Contexts of RPCSEC_GSS, with which peers protect their calls (RFC 2203): shared by all
    /// shards. None: calls with that flavor go to the app, which denies them.
    pub gss: Option<Arc<GssContexts>>,
    /// TLS for all connections that we make over TCP: servers without TLS are not called.
    pub call_tls: Option<Arc<ClientTls>>,
    /// The time for which a core polls without finding work before it sleeps.
    pub spin: Spin,
    /// Is notified when the shard goes idle and when it works again.
    pub rest: Option<Arc<dyn RestListener>>,
    /// The time for which a stopping shard waits for calls in progress and for connections to
    /// close.
    pub drain: Duration,
    /// First XID of each shard differs, so that a restarted requester does not repeat XIDs that a
    /// server remembers.
    pub xid_seed: u32,
    /// Handle messages without chunks, and those with one chunk of one segment, by the fast paths.
    /// When false, they take the general path, with the same effect at a higher cost. Tests compare
    /// the two.
    pub short_ways: bool,
    /// Selection of the peers' calls that are traced through their stages
    /// ([`stages`](crate::stages)).
    pub sampling: Sampling,
    /// The clock that measures calls while several hosts have work, so that each gets an equal
    /// share of the core's time. None: shares are counted in messages.
    pub meter: Option<Arc<dyn Meter>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            serve_versions: Versions::Both(Version2::Directed),
            call_versions: Versions::One,
            grant: 64,
            grant_first: 8,
            calls_max: 128,
            reverse_calls_max: 16,
            reverse_grant: 2,
            absence: Duration::from_secs(90),
            receives: 4_096,
            receive_len: 4_096,
            peers: 1_024,
            streams: 1_024,
            first_call_within: None,
            steering: None,
            reserved_port: false,
            inbound: 5_120,
            outbound: 1_024,
            payload_max: LARGE_LEN as u32,
            slots: [8_192, 512, 192],
            private_data: true,
            reply_policy: ReplyPolicy::Inline,
            serve_tls: None,
            gss: None,
            call_tls: None,
            spin: Spin::For(Duration::from_micros(100)),
            rest: None,
            drain: Duration::from_secs(3),
            xid_seed: 0,
            short_ways: true,
            sampling: Sampling::default(),
            meter: None,
        }
    }
}

impl Config {
    /// A configuration for few peers and little memory, for tests and requesters.
    pub fn small() -> Self {
        Self {
            receives: 256,
            peers: 16,
            inbound: 384,
            outbound: 128,
            slots: [512, 16, 16],
            ..Self::default()
        }
    }

    /// Resolves conflicting settings: without private data only version 1 is used.
    pub(crate) fn settled(self) -> Self {
        match self.private_data {
            true => self,
            false => Self { serve_versions: Versions::One, call_versions: Versions::One, ..self },
        }
    }

    /// The configuration for connections with `each` receives of their own. An eighth of them is
    /// for messages beyond all grants: errors and garbage.
    pub(crate) fn within(self, each: Option<usize>) -> Self {
        let Some(each) = each.and_then(|each| u32::try_from(each).ok()) else { return self };
        let promised = each.saturating_sub(each / 8).max(2);
        let reverse_calls_max = self.reverse_calls_max.min(promised / 4);
        let reverse_grant = self.reverse_grant.min(promised / 4);
        Self {
            grant: self.grant.min(promised - reverse_calls_max),
            calls_max: self.calls_max.min(promised - reverse_grant),
            reverse_calls_max,
            reverse_grant,
            ..self
        }
    }

    /// Receives for a peer that we connect to: for replies to our calls, and for its calls (RFC
    /// 8167 §4.3.1).
    pub(crate) const fn client_receives(&self) -> usize {
        // draft 002 §4.3.1 [bidir-11]: a client has receives for replies and reverse calls
        self.calls_max as usize + self.reverse_grant as usize
    }

    /// The limits of a provider for such a shard, with `send_queue` work requests pending on each
    /// connection.
    pub const fn limits(&self, send_queue: usize) -> Limits {
        Limits {
            connections: self.peers,
            send_queue,
            receives: self.receives,
            receives_each: None,
            receive_len: self.receive_len,
            windows: self.outbound * CALL_WINDOWS,
            read_spans: SEGMENTS_MAX,
            private_data_len: PRIVATE_DATA_LEN,
            sends_invalidation: true,
            bears_invalidation: true,
        }
    }

    /// Octets of all buffers and receives of the shard.
    pub fn octets(&self) -> usize {
        let buffers =
            self.classes().iter().map(|class| class.slot_len * class.count).sum::<usize>();
        buffers + self.receives * self.receive_len
    }

    /// The classes of the shard's pool.
    pub fn classes(&self) -> [Class; 3] {
        let [messages, mediums, larges] = self.slots;
        [
            Class { slot_len: MESSAGE_LEN, count: messages },
            Class { slot_len: MEDIUM_LEN, count: mediums },
            Class { slot_len: LARGE_LEN, count: larges },
        ]
    }
}
