//! The state of one call of a peer.

use crate::{call::Answer, peer_view::PeerId, spare::Reused};
use stag_pools::{Buf, table::Key};
use stag_protocol::rpcrdma::{Body, Credits, Header, Xid, chunk::READS_MAX, responder::Pull};
use stag_verbs::Time;

/// A call of a peer. It is small, because most calls end in the pass that they arrive in; parts
/// that only some calls need are stored elsewhere.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) peer: PeerId,
    pub(crate) xid: Xid,
    pub(crate) state: InboundState,
    /// Its header named chunks in [`Responder::lists`](super::Responder).
    pub(crate) has_lists: bool,
    /// Time of the pass that received it.
    pub(crate) came_at: Time,
    /// Until it is dispatched, and only if there are chunks to pull.
    pub(crate) fabric: Option<Box<FabricCall>>,
}

/// A call without chunks that the app is serving. If it is answered at once, it needs no table
/// entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreshCall {
    /// Its ID: the next key of the table.
    pub(crate) key: Key,
    pub(crate) peer: PeerId,
    pub(crate) xid: Xid,
}

/// A call whose chunks are pulled.
#[derive(Debug)]
pub(crate) struct FabricCall {
    pub(crate) header: Header,
    pub(crate) payload_at: usize,
    pub(crate) message: Option<Buf>,
    pub(crate) pull: Pull,
    /// The pulled octets, by index in `pull.chunks()`.
    pub(crate) chunks: [Option<Buf>; READS_MAX],
    /// Completed Reads.
    pub(crate) pulled: usize,
    /// Octets of memory that the peer holds while its Reads are in flight.
    pub(crate) held: u64,
    /// Octets of memory that its reply may take.
    pub(crate) expected: u64,
}

/// A reply that could not be sent yet.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) call: Key,
    pub(crate) answer: Answer,
    /// Octets that its peer is charged because the reply waits, beyond the charge for its size.
    pub(crate) held: u64,
}

/// The event that a call of a peer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InboundState {
    /// Memory or send queue room for its Reads, or its peer's share for its reply.
    AwaitSink,
    /// The octets of the peer's memory that its Reads pull.
    AwaitPull,
    /// The app.
    AwaitAnswer,
    /// The app, whose reply is going to be protected as the call was.
    AwaitProtected,
    /// Its protection, or that of its reply: the next step, or memory for the reply.
    AwaitProtection,
    /// Room in the send queue for its reply, which is in [`Responder::replies`](super::Responder).
    AwaitRoom,
}

/// The reason why a call cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A buffer of the shard, for at least this many octets.
    Memory(usize),
    /// More buffers at once than such a peer can ever have.
    Buffers,
    /// Room in its connection's share of the memory.
    Share,
    /// Room in its connection's send queue.
    Room,
}

impl Default for FabricCall {
    /// Used before any call.
    fn default() -> Self {
        let header = Header { xid: Xid(0), credits: Credits(0), body: Body::Msg };
        let chunks = [const { None }; READS_MAX];
        Self {
            header,
            payload_at: 0,
            message: None,
            pull: Pull::NONE,
            chunks,
            pulled: 0,
            held: 0,
            expected: 0,
        }
    }
}

impl FabricCall {
    /// Returns true if it owns nothing and no Read of it is counted.
    pub(crate) fn is_clear(&self) -> bool {
        let Self { message, chunks, pulled, held, .. } = self;
        message.is_none() && chunks.iter().all(Option::is_none) && (*pulled, *held) == (0, 0)
    }
}

impl Reused for FabricCall {
    // The rest is set when a call arrives. An assignment of all would copy half a kilobyte.
    fn clear(&mut self) {
        self.message = None;
        self.chunks.iter_mut().for_each(|chunk| *chunk = None);
        (self.pulled, self.held) = (0, 0);
    }
}

impl Inbound {
    /// A call without chunks, which goes to the app at once.
    #[inline]
    pub(crate) const fn whole(peer: PeerId, xid: Xid, came_at: Time) -> Self {
        let state = InboundState::AwaitAnswer;
        Self { peer, xid, state, has_lists: false, came_at, fabric: None }
    }
}
