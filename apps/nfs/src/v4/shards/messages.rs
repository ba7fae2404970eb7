//! The messages between shards (`channel`): each owns its data, which is copied once.

use crate::{
    requester::{CallSource, Requester, ShardPeer},
    v4::{
        context::shard_context::{FORWARDED_MAX, ForwardedReply, HomeRequest},
        interpreter::CallFacts,
        session::{BegunSlot, CertificateNames, LeasedAccess, LeasedSession, UsedSlots},
        v3_conflicts::ConflictQuery,
    },
};
use stag_engine::{CallId, PeerId, Token};
use stag_nfs_store::Caller;
use stag_nfs4_state::FactChange;
use stag_protocol::{
    nfs::{v3::Status, v4::SessionId},
    rpcrdma::responder::PIECES_MAX,
    xdr::{Piece, Reader},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Limit of argument octets that the home has not read.
const OCTETS_MAX: usize = 64 << 20;

/// A compound sent to the home.
#[derive(Debug)]
pub(crate) struct ForwardedCompound {
    pub(crate) source: CallSource,
    pub(crate) caller: Caller,
    pub(crate) facts: CallFacts,
    /// Its slot, if the shard that received it has begun its request.
    pub(crate) begun: Option<BegunSlot>,
    /// The shard that received it can execute compounds itself.
    pub(crate) takes_loans: bool,
    /// The home's part, if it is not all.
    pub(in crate::v4) asked: Option<HomeRequest>,
    /// It waits at the home only for the turn of its host.
    pub(in crate::v4) awaits_turn: bool,
    pieces: Vec<(Box<[u8]>, bool)>,
    _share: UnreadShare,
}

/// Argument octets of unread compounds.
#[derive(Debug, Default)]
pub(crate) struct Unread(Arc<AtomicUsize>);

impl Unread {
    /// Returns true if `octets` more fit.
    pub(in crate::v4) fn has_room(&self, octets: usize) -> bool {
        let sum = self.0.load(Ordering::Relaxed).saturating_add(octets);
        Arc::strong_count(&self.0) <= FORWARDED_MAX && sum <= OCTETS_MAX
    }

    /// Returns true if at least half of the places and of the octets are free.
    pub(in crate::v4) fn is_half_empty(&self) -> bool {
        Arc::strong_count(&self.0) <= FORWARDED_MAX / 2
            && self.0.load(Ordering::Relaxed) <= OCTETS_MAX / 2
    }
}

/// Octets of a compound's arguments, counted until the home has read it.
#[derive(Debug)]
struct UnreadShare {
    octets: usize,
    of: Arc<AtomicUsize>,
}

impl UnreadShare {
    /// Reserves `octets` of a shard's unread limit.
    fn take(unread: &Unread, octets: usize) -> Self {
        // Each share holds the counter, and so does the shard. Only the shard adds shares, so the
        // sum it reads is never too low.
        unread.0.fetch_add(octets, Ordering::Relaxed);
        Self { octets, of: Arc::clone(&unread.0) }
    }
}

impl Drop for UnreadShare {
    fn drop(&mut self) {
        self.of.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

impl ForwardedCompound {
    /// Copies a compound. The forwarding shard has checked for [room](Unread::has_room).
    pub(crate) fn of(
        unread: &Unread,
        source: CallSource,
        caller: Caller,
        facts: CallFacts,
        arguments: &Reader<'_>,
    ) -> Self {
        let share = UnreadShare::take(unread, arguments.remaining());
        let pieces = arguments.pieces();
        let pieces =
            pieces.map(|piece| (piece.octets().into(), matches!(piece, Piece::Chunk(_)))).collect();
        let (begun, takes_loans, asked, awaits_turn) = (None, false, None, false);
        Self {
            source,
            caller,
            facts,
            begun,
            takes_loans,
            asked,
            awaits_turn,
            pieces,
            _share: share,
        }
    }

    /// Its arguments, in the pieces that they came in.
    pub(crate) fn pieces(&self) -> [Piece<'_>; PIECES_MAX] {
        let mut pieces = [Piece::Inline(&[]); PIECES_MAX];
        for (piece, (octets, is_chunk)) in pieces.iter_mut().zip(&self.pieces) {
            *piece = if *is_chunk { Piece::Chunk(octets) } else { Piece::Inline(octets) };
        }
        pieces
    }
}

/// Message to the home.
#[derive(Debug)]
pub(crate) enum ToHome {
    Compound(Box<ForwardedCompound>),
    Question {
        requester: Requester,
        caller: Caller,
        question: ConflictQuery,
    },
    CalledBack {
        at: ShardPeer,
        token: Token,
        reply: Option<Box<[u8]>>,
    },
    PeerGone(ShardPeer),
    /// A connection has shown a certificate with these names.
    Certificate(ShardPeer, CertificateNames),
    /// The shard has dropped a client that was settled there.
    Unsettled(u64),
    /// The slots of a session are returned.
    Returned(SessionId, UsedSlots),
    /// A shard asks about all files of this announcement, and of earlier ones.
    Announced(u16, u64),
}

/// Message from the home.
#[derive(Debug)]
pub(crate) enum FromHome {
    Reply {
        id: CallId,
        reply: ForwardedReply,
    },
    Verdict {
        id: CallId,
        verdict: Result<(), Status>,
    },
    Ready(PeerId),
    CallBack {
        peer: PeerId,
        message: Box<[u8]>,
        token: Token,
    },
    Disconnect(PeerId),
    /// Compounds of this session are checked by the other shard from here on, with these slots if
    /// it has any that were used.
    Lend {
        session: LeasedSession,
        access: LeasedAccess,
        used: Option<Box<UsedSlots>>,
    },
    /// A connection was bound to a session whose slots that shard has.
    Bound(SessionId, PeerId),
    /// A compound that crossed the message that lent the slots of its session to that shard.
    Back(Box<ForwardedCompound>),
    /// The slots of a session are to be returned when no compound executes in them.
    Recall(SessionId),
    /// A session is gone.
    Ended(SessionId),
    /// A state of a client that is settled there.
    Fact(FactChange),
    /// The client is to be dropped.
    Unsettle(u64),
    /// The filter shows files that may get delegations: the number of the announcement.
    Announce(u64),
}
