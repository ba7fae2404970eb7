//! Sessions, their slots, and the replies that slots keep (RFC 8881 §2.10).

use stag_protocol::nfs::v4::{
    ChannelAttributes, SequenceArgs, SequenceOk, SessionId, Status4, sequence_flag,
    state::{Slot, SlotCall, SlotStep, SlotTable},
};

use crate::requester::ShardPeer;

pub(in crate::v4) use super::slot_owner::{ArrivalHistory, SlotOwner};
pub(crate) use super::slot_owner::{BegunSlot, LeasedAccess, LeasedSession, UsedSlots};
use super::{
    BackChannel, BoundPeers, CELL_LEN, NameFacts, NameKey, Origins, Principal, ReplyCells,
    SESSIONS, SLOTS, SequenceFacts, SessionsOfClients, SlotInUse, SlotVerdict, digest::digest,
};

/// A session.
#[derive(Debug)]
pub(in crate::v4) struct Session {
    /// The client that it belongs to.
    pub(in crate::v4) client: u64,
    /// Sizes of the fore channel.
    pub(in crate::v4) fore: ChannelAttributes,
    /// Minor version of its client.
    pub(in crate::v4) minor_version: u32,
    /// The back channel, if the client asked for one.
    pub(in crate::v4) callbacks: Option<BackChannel>,
    /// On a shard that has borrowed its slots: the origins of its client at that time. None if only
    /// connections that are bound may use the session.
    pub(in crate::v4) origins: Option<Box<Origins>>,
    /// The connections that are associated with it.
    pub(in crate::v4) bound: BoundPeers,
    /// The shard that has its slots.
    pub(in crate::v4) owner_of_slots: SlotOwner,
    pub(super) way: ArrivalHistory,
    pub(super) id: SessionId,
    pub(super) slots: SlotTable<Box<[Slot]>>,
    /// The cell of each slot, and the octets of the reply in it.
    pub(super) cells: Box<[u32]>,
    pub(super) lens: Box<[u16]>,
}

/// Octets of the shortest reply to a successful compound: SEQUENCE alone.
const SEQUENCE_REPLY_LEN: usize = 24 + 12 + 8 + 36;

/// A place for a session.
#[derive(Debug, Default)]
pub(super) struct SessionPlace {
    uses: u64,
    pub(super) session: Option<Box<Session>>,
}

/// Places that sessions of all hosts have.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct SessionRoom {
    pub(in crate::v4) sessions: usize,
    pub(in crate::v4) slots: usize,
}

/// The sessions of a shard.
#[derive(Debug)]
pub(in crate::v4) struct Sessions {
    epoch: u32,
    names: NameKey,
    pub(super) places: Box<[SessionPlace]>,
    free: Vec<u16>,
    pub(super) of_client: SessionsOfClients,
    /// Places from here on were never used: iterations over all sessions stop there.
    pub(super) untouched: usize,
    pub(super) cells: ReplyCells,
    /// Slots that execute a compound.
    busy: usize,
}

impl Sessions {
    /// No sessions yet; `epoch` differs from that of every other run, and `names` is secret.
    pub(in crate::v4) fn new(epoch: u32, names: NameKey) -> Self {
        const { assert!(SESSIONS <= u16::MAX as usize) };
        Self {
            epoch,
            names,
            places: std::iter::repeat_with(SessionPlace::default).take(SESSIONS).collect(),
            free: (0..SESSIONS as u16).rev().collect(),
            of_client: SessionsOfClients::new(SESSIONS),
            untouched: 0,
            cells: ReplyCells::new(SLOTS),
            busy: 0,
        }
    }

    /// Number of sessions.
    pub(in crate::v4) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Slots that sessions have.
    pub(in crate::v4) fn slots(&self) -> usize {
        SLOTS - self.cells.left()
    }

    /// Places that are taken.
    pub(in crate::v4) fn room(&self) -> SessionRoom {
        SessionRoom { sessions: self.len(), slots: self.slots() }
    }

    /// Number of slots that execute a compound.
    pub(in crate::v4) const fn busy(&self) -> usize {
        self.busy
    }

    /// The number of slots granted to a session that asks for `asked`; none when there are no more.
    /// The fewer are left, the fewer are granted.
    pub(in crate::v4) fn grant(&self, asked: u32) -> Option<u32> {
        let left = self.cells.left();
        let most = match left {
            0 => return None,
            left if left * 2 > SLOTS => super::SLOTS_OF_SESSION,
            left if left * 4 > SLOTS => 16,
            left if left * 8 > SLOTS => 4,
            _ => 1,
        };
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        Some(asked.clamp(1, most).min(left))
    }

    /// Adds a session with the number of slots in its fore channel. None when there is no place, or
    /// no slots.
    pub(in crate::v4) fn add(
        &mut self,
        client: u64,
        minor_version: u32,
        fore: ChannelAttributes,
        callbacks: Option<BackChannel>,
    ) -> Option<SessionId> {
        let count = usize::try_from(fore.requests_max).ok().filter(|count| *count > 0)?;
        let number = *self.free.last()?;
        let cells = self.cells.take(count)?;
        self.free.pop();
        self.untouched = self.untouched.max(usize::from(number) + 1);
        let place = self.places.get_mut(usize::from(number))?;
        place.uses = place.uses.wrapping_add(1);
        let (epoch, uses) = (self.epoch, place.uses);
        let id = self.names.session(NameFacts { epoch, uses, place: number });
        let session = Session::new(LeasedSession { id, client, minor_version, fore }, cells);
        place.session = Some(Box::new(Session { callbacks, ..session }));
        self.of_client.add(client, number);
        Some(id)
    }

    /// The session of this ID.
    pub(in crate::v4) fn get(&self, id: &SessionId) -> Option<&Session> {
        let place = self.places.get(usize::from(place_of(id)))?;
        place.session.as_deref().filter(|session| session.id == *id)
    }

    /// The session of this ID, for changes.
    pub(in crate::v4) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        let place = self.places.get_mut(usize::from(place_of(id)))?;
        place.session.as_deref_mut().filter(|session| session.id == *id)
    }

    /// The session at a place.
    pub(in crate::v4) fn at(&self, place: u16) -> Option<&Session> {
        self.places.get(usize::from(place))?.session.as_deref()
    }

    /// All sessions.
    pub(in crate::v4) fn iter(&self) -> impl Iterator<Item = &Session> {
        let used = self.places.iter().take(self.untouched);
        used.filter_map(|place| place.session.as_deref())
    }

    /// All sessions, for changes.
    pub(in crate::v4) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        let used = self.places.iter_mut().take(self.untouched);
        used.filter_map(|place| place.session.as_deref_mut())
    }

    /// The sessions of a client, the newest first.
    pub(in crate::v4) fn of(&self, client: u64) -> impl Iterator<Item = &Session> {
        self.of_client.of(client).filter_map(|place| self.at(place))
    }

    /// Returns true if a connection is associated with a session.
    #[inline]
    pub(in crate::v4) fn is_bound(&self, id: &SessionId, at: ShardPeer) -> bool {
        self.get(id).is_some_and(|session| session.bound.has(at))
    }

    /// Ends a session. Compounds in its slots continue; their replies are not kept.
    pub(in crate::v4) fn remove(&mut self, id: &SessionId) -> Option<Box<Session>> {
        let number = place_of(id);
        let place = self.places.get_mut(usize::from(number))?;
        let session = place.session.take_if(|session| session.id == *id)?;
        self.of_client.remove(session.client, number);
        self.busy -= session.slots.busy();
        self.cells.give(&session.cells);
        if !session.owner_of_slots.is_borrowed() {
            self.free.push(number);
        }
        Some(session)
    }

    /// Checks a SEQUENCE, and begins its request if it is a new one. An error changes nothing;
    /// NFS4ERR_DELAY means that another shard has the slots.
    pub(in crate::v4) fn begin(
        &mut self,
        args: &SequenceArgs,
        facts: &SequenceFacts<'_>,
    ) -> Result<SlotVerdict, Status4> {
        let session = self.get_mut(&args.session).ok_or(Status4::BadSession)?;
        // The shard that has its slots checks its requests.
        session.owner_of_slots.check_here()?;
        let call = slot_call(args, facts);
        match session.slots.check(&call)? {
            SlotStep::InProgress => return Ok(SlotVerdict::InProgress),
            SlotStep::Replay => return Ok(SlotVerdict::Replay),
            SlotStep::ReplayUncached => return Ok(SlotVerdict::ReplayUncached),
            SlotStep::New => {}
        }
        // RFC 8881 §2.10.6.4: sizes are checked before the slot changes.
        let fore = &session.fore;
        let octets = |len: u32| usize::try_from(len).unwrap_or(usize::MAX);
        if facts.request_len > octets(fore.request_max) {
            return Err(Status4::ReqTooBig);
        }
        if facts.operations > fore.operations_max {
            return Err(Status4::TooManyOps);
        }
        let cached_max = octets(fore.response_cached_max);
        if args.cache_this && cached_max < SEQUENCE_REPLY_LEN {
            return Err(Status4::RepTooBigToCache);
        }
        if octets(fore.response_max) < SEQUENCE_REPLY_LEN {
            return Err(Status4::RepTooBig);
        }
        session.slots.start(&call);
        let in_use = SlotInUse {
            session: args.session,
            client: session.client,
            slot: args.slot,
            sequence: args.sequence,
            cache_this: args.cache_this,
            reply_max: octets(fore.response_max),
            cached_max,
            is_lent: false,
        };
        self.busy += 1;
        Ok(SlotVerdict::New(in_use))
    }

    /// Begins and ends a new request that is executed at once, whose reply has at most `reply_max`
    /// octets and is not kept. Returns its session, or none, with nothing changed, if
    /// [`begin`](Self::begin) has to check it. The connection at `at` is associated with the
    /// session.
    #[inline]
    pub(in crate::v4) fn pass(
        &mut self,
        args: &SequenceArgs,
        facts: &SequenceFacts<'_>,
        reply_max: u32,
        at: ShardPeer,
    ) -> Option<&Session> {
        debug_assert!(!args.cache_this, "the reply is not kept");
        let session = self.get_mut(&args.session).filter(|session| session.bound.has(at))?;
        let fore = &session.fore;
        let is_within = facts.request_len <= fore.request_max as usize
            && facts.operations <= fore.operations_max
            && fore.response_max >= reply_max;
        let has_passed = is_within && session.slots.pass(&slot_call(args, facts));
        has_passed.then_some(&*session)
    }

    /// Ends the request of a slot. `reply` is its reply from the status of the compound on, if it
    /// has to be kept. An ended session keeps none.
    pub(in crate::v4) fn finish(&mut self, used: &SlotInUse, reply: Option<&[u8]>) {
        let place = self.places.get_mut(usize::from(place_of(&used.session)));
        let session = place.and_then(|place| place.session.as_deref_mut());
        let Some(session) = session.filter(|session| session.id == used.session) else { return };
        let at = used.slot as usize;
        let cell = session.cells.get(at).copied();
        let kept = match (cell, reply) {
            (Some(cell), Some(reply)) => self.cells.keep(cell, reply),
            _ => false,
        };
        if let (true, Some(len)) = (kept, session.lens.get_mut(at)) {
            const { assert!(CELL_LEN <= u16::MAX as usize) };
            *len = reply.map_or(0, <[u8]>::len) as u16;
        }
        session.slots.finish(used.slot, kept);
        self.busy -= 1;
    }

    /// The reply that a slot keeps, from the status of the compound on.
    pub(in crate::v4) fn kept(&self, id: &SessionId, slot: u32) -> Option<&[u8]> {
        let session = self.get(id)?;
        let (cell, len) = (session.cells.get(slot as usize)?, session.lens.get(slot as usize)?);
        self.cells.cell(*cell).get(..usize::from(*len))
    }
}

impl Session {
    /// Its ID.
    pub(in crate::v4) const fn id(&self) -> SessionId {
        self.id
    }

    /// Number of slots that execute a compound, and of all slots.
    pub(in crate::v4) fn slots(&self) -> (usize, usize) {
        (self.slots.busy(), self.cells.len())
    }

    /// Results of a SEQUENCE, or of its retry. `revoked` are the flags for state that its client
    /// has lost.
    pub(in crate::v4) fn sequence_ok(&self, args: &SequenceArgs, revoked: u32) -> SequenceOk {
        let is_down = self.callbacks.as_ref().is_some_and(|back| back.peer.is_none());
        let down = sequence_flag::CB_PATH_DOWN | sequence_flag::CB_PATH_DOWN_SESSION;
        SequenceOk {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot: self.slots.highest_slot(),
            target_highest_slot: self.slots.highest_slot(),
            flags: if is_down { down } else { 0 } | revoked,
        }
    }
}

/// A request in the form in which its slot checks it.
fn slot_call(args: &SequenceArgs, facts: &SequenceFacts<'_>) -> SlotCall {
    // A principal counts by more than the number that AUTH_SYS could claim.
    let (user, mark) = match facts.principal {
        Principal::Anyone => (u32::MAX, 0),
        Principal::Unix(uid) => (uid, 0),
        Principal::Proven(identity) => (identity.short(), identity.mark()),
    };
    SlotCall {
        slot: args.slot,
        sequence: args.sequence,
        highest_slot: args.highest_slot,
        user,
        // RFC 8881 §2.10.6.1.3.1 [8881-300]: a retry has the arguments of the first request
        digest: digest(facts, args.cache_this) ^ mark,
    }
}

/// The place in a session ID.
pub(super) const fn place_of(id: &SessionId) -> u16 {
    let [.., high, low] = *id;
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::xdr::Reader;

    fn channel(slots: u32) -> ChannelAttributes {
        ChannelAttributes {
            header_pad: 0,
            request_max: 4_096,
            response_max: 4_096,
            response_cached_max: 1_024,
            operations_max: 8,
            requests_max: slots,
            rdma_ird: None,
        }
    }

    fn args(session: SessionId, slot: u32, sequence: u32) -> SequenceArgs {
        SequenceArgs { session, sequence, slot, highest_slot: slot, cache_this: true }
    }

    const FACTS: SequenceFacts<'static> = SequenceFacts {
        principal: Principal::Unix(1),
        request_len: 200,
        operations: 3,
        arguments: Reader::new(&[]),
    };

    fn begun(sessions: &mut Sessions, args: &SequenceArgs) -> SlotInUse {
        match sessions.begin(args, &FACTS) {
            Ok(SlotVerdict::New(used)) => used,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_retry_gets_the_reply_that_its_slot_keeps() {
        let mut sessions = Sessions::new(1, NameKey::new([3; 16]));
        let id = sessions.add(5, 1, channel(2), None).unwrap();
        let used = begun(&mut sessions, &args(id, 1, 1));
        assert!(matches!(sessions.begin(&args(id, 1, 1), &FACTS), Ok(SlotVerdict::InProgress)));
        sessions.finish(&used, Some(b"reply"));
        assert!(matches!(sessions.begin(&args(id, 1, 1), &FACTS), Ok(SlotVerdict::Replay)));
        assert_eq!(sessions.kept(&id, 1), Some(&b"reply"[..]));
        let used = begun(&mut sessions, &args(id, 1, 2));
        sessions.finish(&used, None);
        let again = sessions.begin(&args(id, 1, 2), &FACTS);
        assert!(matches!(again, Ok(SlotVerdict::ReplayUncached)));
        assert_eq!(sessions.busy(), 0);
    }

    #[test]
    fn a_request_that_breaks_a_limit_leaves_its_slot_as_it_was() {
        let mut sessions = Sessions::new(1, NameKey::new([3; 16]));
        let id = sessions.add(5, 1, channel(2), None).unwrap();
        let too_long = SequenceFacts { request_len: 4_097, ..FACTS };
        let too_many = SequenceFacts { operations: 9, ..FACTS };
        let first = args(id, 0, 1);
        assert_eq!(sessions.begin(&first, &too_long).unwrap_err(), Status4::ReqTooBig);
        assert_eq!(sessions.begin(&first, &too_many).unwrap_err(), Status4::TooManyOps);
        assert_eq!(sessions.begin(&args(id, 2, 1), &FACTS).unwrap_err(), Status4::BadSlot);
        assert_eq!(sessions.begin(&args(id, 0, 2), &FACTS).unwrap_err(), Status4::SeqMisordered);
        assert_eq!(sessions.busy(), 0);
        begun(&mut sessions, &first);
        assert_eq!((sessions.busy(), sessions.get(&id).unwrap().slots()), (1, (1, 2)));
    }

    #[test]
    fn a_session_that_ends_gives_everything_back() {
        let mut sessions = Sessions::new(1, NameKey::new([3; 16]));
        let id = sessions.add(5, 1, channel(64), None).unwrap();
        assert_eq!((sessions.len(), sessions.slots()), (1, 64));
        let used = begun(&mut sessions, &args(id, 0, 1));
        assert!(sessions.remove(&id).is_some());
        sessions.finish(&used, Some(b"too late"));
        assert_eq!((sessions.len(), sessions.slots(), sessions.busy()), (0, 0, 0));
        assert_eq!(sessions.begin(&args(id, 0, 2), &FACTS).unwrap_err(), Status4::BadSession);
        let next = sessions.add(5, 1, channel(64), None).unwrap();
        assert_ne!(next, id, "an ID is not given twice");
    }

    #[test]
    fn a_client_with_a_session_takes_eight_kibibytes_beyond_its_slots() {
        use crate::v4::session::{BOUND_MAX, client};
        let session = size_of::<SessionPlace>()
            + size_of::<Session>()
            + size_of::<BackChannel>()
            + BOUND_MAX * size_of::<crate::requester::ShardPeer>();
        // Its owner's name is stored in the record, and in the list of owners.
        let client = client::RECORD_LEN + 2 * 1_024;
        // Plus eight callbacks that await their outcome.
        assert!(session + client + 8 * 256 <= 8_192, "{session} and {client} octets");
        let slot = size_of::<Slot>() + size_of::<u32>() + size_of::<u16>();
        assert!(slot <= 64, "{slot} octets beside its cell");
    }

    #[test]
    fn the_fewer_slots_are_left_the_fewer_are_granted() {
        let mut sessions = Sessions::new(1, NameKey::new([3; 16]));
        assert_eq!(
            (sessions.grant(1_000), sessions.grant(3), sessions.grant(0)),
            (Some(64), Some(3), Some(1))
        );
        let mut granted = Vec::new();
        while let Some(slots) = sessions.grant(64) {
            sessions.add(1, 1, channel(slots), None).unwrap();
            granted.push(slots);
            if sessions.len() == SESSIONS {
                break;
            }
        }
        assert!(granted.is_sorted_by(|a, b| a >= b) && granted.contains(&16));
        assert!(sessions.slots() <= SLOTS);
    }
}
