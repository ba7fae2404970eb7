//! The shard that has the slots of a session ([`SlotOwner`]). The home lends them to the shard on
//! which the session was created: that shard checks its requests, keeps its replies, and executes
//! compounds that need no state. The home keeps the rest of the session, and recalls the slots when
//! a request arrives over another shard. `shards::slot_lease` decides when slots are lent and
//! returned.

use stag_protocol::nfs::v4::{
    ChannelAttributes, SequenceArgs, SequenceOk, SessionId, Status4,
    state::{Slot, SlotTable},
};

use stag_engine::PeerId;

use super::{
    BoundPeers, Origins, SlotInUse,
    cells::ReplyCells,
    table::{Session, Sessions, place_of},
};
use crate::requester::ShardPeer;

/// The shard that has the slots of a session.
#[derive(Debug, Default)]
pub(in crate::v4) enum SlotOwner {
    /// This shard, which is the home.
    #[default]
    Own,
    /// Another shard.
    Lent(Box<SlotLease>),
    /// This shard, which has borrowed them from the home.
    Borrowed {
        /// The home has recalled them.
        is_due: bool,
    },
}

/// Consecutive requests over connections of one shard before it may get the slots of their session.
/// Their number must also reach that of the client's states, so that no request makes the home
/// write more than one message about them.
const FOLLOWED: u32 = 32;

/// The shard over which requests of a session arrive, for requests that the home begins.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::v4) struct ArrivalHistory {
    shard: u16,
    /// Number of requests since one came another way.
    requests: u32,
}

/// A lent session.
#[derive(Debug)]
pub(in crate::v4) struct SlotLease {
    /// The shard that has its slots.
    pub(in crate::v4) shard: u16,
    /// The slots were recalled.
    pub(in crate::v4) is_recalled: bool,
    /// Uses that the home has seen.
    pub(in crate::v4) used: u32,
    /// Limit of operations of a compound; the limit in the session itself is zero during the loan.
    operations_max: u32,
}

impl SlotLease {
    /// Notes that the slots were `used` this many times. Returns true if the number has changed.
    pub(in crate::v4) fn note_used(&mut self, used: u32) -> bool {
        std::mem::replace(&mut self.used, used) != used
    }
}

/// Facts about a session that its shard needs to check requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedSession {
    pub(in crate::v4) id: SessionId,
    pub(in crate::v4) client: u64,
    pub(in crate::v4) minor_version: u32,
    pub(in crate::v4) fore: ChannelAttributes,
}

/// The connections that may use a lent session.
#[derive(Debug)]
pub(crate) enum LeasedAccess {
    /// All from an origin that its client has used.
    From(Box<Origins>),
    /// Connections of the shard that gets its slots, which are bound to it.
    Bound(Box<[PeerId]>),
}

impl LeasedAccess {
    /// The same without bound connections that are gone.
    pub(crate) fn keep(self, is_there: impl Fn(&PeerId) -> bool) -> Self {
        match self {
            Self::From(origins) => Self::From(origins),
            Self::Bound(peers) => Self::Bound(peers.into_iter().filter(is_there).collect()),
        }
    }
}

/// A request that the shard with the slots has begun, and that the home executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunSlot {
    pub(in crate::v4) used: SlotInUse,
    highest_slot: u32,
    target_highest_slot: u32,
}

impl BegunSlot {
    /// Results of its SEQUENCE.
    pub(in crate::v4) const fn sequence_ok(&self, flags: u32) -> SequenceOk {
        let SlotInUse { session, sequence, slot, .. } = self.used;
        let Self { highest_slot, target_highest_slot, .. } = *self;
        SequenceOk { session, sequence, slot, highest_slot, target_highest_slot, flags }
    }
}

/// The slots of a session, with the replies that they keep.
#[derive(Debug)]
pub(crate) struct UsedSlots {
    slots: SlotTable<Box<[Slot]>>,
    replies: Box<[Box<[u8]>]>,
}

impl SlotOwner {
    /// Returns true on a shard that has borrowed the slots from the home.
    pub(in crate::v4) const fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed { .. })
    }

    /// Returns early if the slots are on another shard.
    ///
    /// # Errors
    /// NFS4ERR_DELAY.
    pub(super) const fn check_here(&self) -> Result<(), Status4> {
        if matches!(self, Self::Lent(_)) { Err(Status4::Delay) } else { Ok(()) }
    }
}

impl Session {
    /// A session with unused slots, whose replies are stored in these cells.
    pub(super) fn new(facts: LeasedSession, cells: Box<[u32]>) -> Self {
        let LeasedSession { id, client, minor_version, fore } = facts;
        let slots = vec![Slot::default(); cells.len()].into_boxed_slice();
        Self {
            client,
            fore,
            minor_version,
            callbacks: None,
            origins: None,
            bound: BoundPeers::default(),
            owner_of_slots: SlotOwner::Own,
            way: ArrivalHistory::default(),
            id,
            slots: SlotTable::new(slots, fore.requests_max),
            lens: vec![0; cells.len()].into_boxed_slice(),
            cells,
        }
    }

    /// Takes over slots in their state at another shard.
    fn fill(&mut self, all: &mut ReplyCells, used: UsedSlots) {
        self.slots = used.slots;
        let cells = self.cells.iter().zip(self.lens.iter_mut());
        for ((cell, len), reply) in cells.zip(&used.replies) {
            let is_kept = all.keep(*cell, reply);
            *len = if is_kept { reply.len() as u16 } else { 0 };
        }
    }

    /// Notes a request that began at the home and came over a connection of this shard. Returns
    /// true after every `FOLLOWED` consecutive requests of that kind: the shard may then get the
    /// slots.
    pub(in crate::v4) const fn follow(&mut self, shard: u16) -> bool {
        if self.way.shard != shard {
            self.way = ArrivalHistory { shard, requests: 0 };
        }
        self.way.requests = self.way.requests.saturating_add(1);
        self.way.requests.is_multiple_of(FOLLOWED)
    }

    /// The number of requests over this shard since one came another way. None if the last one did,
    /// or the slots are not here.
    pub(in crate::v4) fn followed(&self, shard: u16) -> Option<u32> {
        let is_here = matches!(self.owner_of_slots, SlotOwner::Own) && self.way.shard == shard;
        is_here.then_some(self.way.requests)
    }

    /// Returns true while a slot executes a request.
    pub(in crate::v4) fn is_busy(&self) -> bool {
        self.slots.busy() > 0
    }

    /// The loan, if another shard has the slots.
    pub(in crate::v4) fn loan_mut(&mut self) -> Option<&mut SlotLease> {
        match &mut self.owner_of_slots {
            SlotOwner::Lent(loan) => Some(loan),
            SlotOwner::Own | SlotOwner::Borrowed { .. } => None,
        }
    }

    /// Returns true if that shard has the slots, and they were not recalled.
    pub(in crate::v4) const fn is_lent_for_good(&self, shard: u16) -> bool {
        match &self.owner_of_slots {
            SlotOwner::Lent(loan) => loan.shard == shard && !loan.is_recalled,
            SlotOwner::Own | SlotOwner::Borrowed { .. } => false,
        }
    }

    /// The shard that has the slots, if it is another one.
    pub(in crate::v4) fn lent_to(&self) -> Option<u16> {
        match &self.owner_of_slots {
            SlotOwner::Lent(loan) => Some(loan.shard),
            SlotOwner::Own | SlotOwner::Borrowed { .. } => None,
        }
    }

    /// A request of the session that began here, to pass to the home.
    pub(in crate::v4) fn begun(&self, used: &SlotInUse) -> BegunSlot {
        let args = SequenceArgs {
            session: used.session,
            sequence: used.sequence,
            slot: used.slot,
            highest_slot: 0,
            cache_this: used.cache_this,
        };
        let SequenceOk { highest_slot, target_highest_slot, .. } = self.sequence_ok(&args, 0);
        let used = SlotInUse { is_lent: true, ..*used };
        BegunSlot { used, highest_slot, target_highest_slot }
    }
}

impl Sessions {
    /// Lends the unused slots of an idle session. Returns the facts for that shard, which creates
    /// the slots unused or gets them [as they are](Self::used).
    pub(in crate::v4) fn lend(&mut self, id: &SessionId, shard: u16) -> Option<LeasedSession> {
        let is_idle =
            |it: &&mut Session| !it.is_busy() && matches!(it.owner_of_slots, SlotOwner::Own);
        let session = self.get_mut(id).filter(is_idle)?;
        let Session { client, minor_version, fore, .. } = *session;
        let operations_max = fore.operations_max;
        let loan = SlotLease { shard, is_recalled: false, used: 0, operations_max };
        session.owner_of_slots = SlotOwner::Lent(Box::new(loan));
        session.fore.operations_max = 0;
        Some(LeasedSession { id: *id, client, minor_version, fore })
    }

    /// Recalls the slots of a session. Returns the shard that has them, unless they were recalled
    /// before.
    pub(in crate::v4) fn recall(&mut self, id: &SessionId) -> Option<u16> {
        let loan = self.get_mut(id)?.loan_mut()?;
        (!std::mem::replace(&mut loan.is_recalled, true)).then_some(loan.shard)
    }

    /// A copy of the slots of a session.
    pub(in crate::v4) fn used(&self, id: &SessionId) -> Option<UsedSlots> {
        let session = self.get(id)?;
        let count = u32::try_from(session.cells.len()).unwrap_or(u32::MAX);
        let replies = (0..count).map(|slot| self.kept(id, slot).unwrap_or_default().into());
        Some(UsedSlots { slots: session.slots.clone(), replies: replies.collect() })
    }

    /// The slots of a session were returned. Returns false if it has ended, or was not lent.
    pub(in crate::v4) fn take_back(&mut self, id: &SessionId, back: UsedSlots) -> bool {
        let place = self.places.get_mut(usize::from(place_of(id)));
        let session = place.and_then(|place| place.session.as_deref_mut());
        let Some(session) = session.filter(|session| session.id == *id) else { return false };
        let SlotOwner::Lent(loan) = std::mem::take(&mut session.owner_of_slots) else {
            return false;
        };
        session.fore.operations_max = loan.operations_max;
        session.fill(&mut self.cells, back);
        true
    }

    /// Borrows the slots of a session from the home, unused ones if `used` is none. Returns false
    /// when there are no cells for their replies, of which this shard has as many as the home.
    pub(in crate::v4) fn borrow(
        &mut self,
        facts: LeasedSession,
        access: LeasedAccess,
        used: Option<UsedSlots>,
    ) -> bool {
        let number = place_of(&facts.id);
        if let Some(earlier) = self.at(number).map(Session::id) {
            self.remove(&earlier);
        }
        let Some(cells) = self.cells.take(facts.fore.requests_max as usize) else { return false };
        let Some(place) = self.places.get_mut(usize::from(number)) else { return false };
        self.untouched = self.untouched.max(usize::from(number) + 1);
        let owner_of_slots = SlotOwner::Borrowed { is_due: false };
        let mut session = Session { owner_of_slots, ..Session::new(facts, cells) };
        match access {
            LeasedAccess::From(origins) => session.origins = Some(origins),
            LeasedAccess::Bound(peers) => {
                peers.iter().for_each(|peer| session.bound.add(ShardPeer::own(*peer)))
            }
        }
        if let Some(used) = used {
            session.fill(&mut self.cells, used);
        }
        let client = session.client;
        place.session = Some(Box::new(session));
        self.of_client.add(client, number);
        true
    }

    /// Returns the slots of a session to the home, unless a request executes in them.
    pub(in crate::v4) fn give_back(&mut self, id: &SessionId) -> Option<UsedSlots> {
        self.get(id).filter(|it| it.owner_of_slots.is_borrowed() && it.slots.busy() == 0)?;
        let used = self.used(id);
        self.remove(id);
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::session::{NameKey, Principal, SequenceFacts, SlotVerdict};
    use stag_engine::PeerAddress;
    use stag_protocol::xdr::Reader;

    const FACTS: SequenceFacts<'static> = SequenceFacts {
        principal: Principal::Unix(1),
        request_len: 200,
        operations: 3,
        arguments: Reader::new(&[]),
    };

    const PEER: ShardPeer = ShardPeer { shard: 0, peer: PeerId::from_bits(1) };

    fn names() -> NameKey {
        NameKey::new([3; 16])
    }

    fn access() -> LeasedAccess {
        let origin = names().host(PeerAddress::Simulated, None).origin();
        LeasedAccess::From(Box::new(Origins::new(origin)))
    }

    fn made(sessions: &mut Sessions) -> SessionId {
        let fore = ChannelAttributes {
            header_pad: 0,
            request_max: 4_096,
            response_max: 4_096,
            response_cached_max: 1_024,
            operations_max: 8,
            requests_max: 2,
            rdma_ird: None,
        };
        sessions.add(5, 1, fore, None).unwrap()
    }

    fn args(session: SessionId, slot: u32, sequence: u32) -> SequenceArgs {
        SequenceArgs { session, sequence, slot, highest_slot: 1, cache_this: true }
    }

    fn begun(sessions: &mut Sessions, args: &SequenceArgs) -> SlotInUse {
        match sessions.begin(args, &FACTS) {
            Ok(SlotVerdict::New(used)) => used,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn slots_come_back_as_they_were_with_the_replies_that_they_keep() {
        let (mut home, mut other) = (Sessions::new(1, names()), Sessions::new(1, names()));
        let id = made(&mut home);
        let lent = home.lend(&id, 3).unwrap();
        let refused = home.begin(&args(id, 0, 1), &FACTS).unwrap_err();
        assert_eq!(refused, Status4::Delay, "the slots are elsewhere");
        let short = SequenceArgs { cache_this: false, ..args(id, 0, 1) };
        assert!(home.pass(&short, &FACTS, 100, PEER).is_none());
        assert!(other.borrow(lent, access(), None));
        let kept = begun(&mut other, &args(id, 0, 1));
        other.finish(&kept, Some(b"reply"));
        let busy = begun(&mut other, &args(id, 1, 1));
        assert_eq!((home.recall(&id), home.recall(&id)), (Some(3), None), "it is asked once");
        assert!(other.give_back(&id).is_none(), "a request is carried out");
        other.finish(&busy, None);
        let back = other.give_back(&id).unwrap();
        assert!(other.get(&id).is_none() && other.slots() == 0 && other.len() == 0);
        assert!(home.take_back(&id, back));
        assert!(matches!(home.begin(&args(id, 0, 1), &FACTS), Ok(SlotVerdict::Replay)));
        assert_eq!(home.kept(&id, 0), Some(&b"reply"[..]));
        let unkept = home.begin(&args(id, 1, 1), &FACTS);
        assert!(matches!(unkept, Ok(SlotVerdict::ReplayUncached)));
        let again = begun(&mut home, &args(id, 0, 2));
        assert_eq!(home.busy(), 1);
        assert!(home.lend(&id, 3).is_none(), "a request is carried out");
        home.finish(&again, Some(b"other"));
        // They are lent again, in their current state.
        let (lent, used) = (home.lend(&id, 4).unwrap(), home.used(&id));
        assert!(other.borrow(lent, access(), used) && home.lend(&id, 5).is_none());
        assert!(matches!(other.begin(&args(id, 0, 2), &FACTS), Ok(SlotVerdict::Replay)));
        assert_eq!(other.kept(&id, 0), Some(&b"other"[..]));
        let unkept = other.begin(&args(id, 1, 1), &FACTS);
        assert!(matches!(unkept, Ok(SlotVerdict::ReplayUncached)));
        begun(&mut other, &args(id, 0, 3));
    }

    #[test]
    fn a_session_follows_requests_that_come_one_way_for_long() {
        let mut home = Sessions::new(1, names());
        let id = made(&mut home);
        let session = home.get_mut(&id).unwrap();
        assert!((1..FOLLOWED).all(|_| !session.follow(2)) && session.follow(2));
        assert!((1..FOLLOWED).all(|_| !session.follow(2)));
        assert_eq!((session.followed(2), session.followed(0)), (Some(2 * FOLLOWED - 1), None));
        assert!(!session.follow(0), "another way");
        assert!((1..FOLLOWED).all(|_| !session.follow(2)) && session.follow(2));
        assert_eq!(session.followed(2), Some(FOLLOWED));
    }

    #[test]
    fn a_session_that_ends_while_it_is_lent_takes_no_slots_back() {
        let (mut home, mut other) = (Sessions::new(1, names()), Sessions::new(1, names()));
        let id = made(&mut home);
        assert!(other.borrow(home.lend(&id, 1).unwrap(), access(), None));
        assert!(home.remove(&id).is_some());
        let next = made(&mut home);
        let back = other.give_back(&id).unwrap();
        assert!(!home.take_back(&id, back) && home.get(&next).is_some());
        // A session that has ended at the home, which the other shard does not know yet, makes way.
        assert!(other.borrow(home.lend(&next, 1).unwrap(), access(), None));
        let used = begun(&mut other, &args(next, 0, 1));
        let after = made(&mut home);
        assert!(
            other.borrow(home.lend(&after, 1).unwrap(), access(), None)
                && other.get(&next).is_some()
        );
        other.finish(&used, None);
        assert_eq!((other.busy(), other.slots()), (0, 4));
    }
}
