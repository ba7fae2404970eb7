//! Lending of sessions to the shards on which they were created (`session::slot_owner`).
//!
//! A shard with a session's slots checks its requests and keeps its replies. It executes compounds
//! that look at objects or change names or attributes and need no state, and ones that read and
//! write with a state that the home has shared (`state_cache`). For all others it begins the
//! request and the home executes them like those of its own connections. A request that arrives
//! another way brings the slots back to the home. It waits until no request is executing in them,
//! and then finds the replies that they keep. The session stays at the home until its requests have
//! come over connections of one other shard for a while: that shard then gets the slots as they
//! are, and is sent the access that the client's states allow.
//!
//! | fact | reported by | how |
//! |---|---|---|
//! | a request has renewed the lease | the shard | a number of the session, which the home reads |
//! | flags of SEQUENCE | the home | a word of the session, once a second at least |
//! | a file may have a delegation | the home | the presence filter |

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use stag_engine::{CallId, Time};
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{SequenceArgs, SessionId, Status4, sequence_flag},
    },
    rpc::Xid,
};

use super::{
    channel::ArrivalEnd, home::is_of, messages::FromHome, shared_flags::SharedFlags,
    state_cache::StateCache,
};
use crate::{
    requester::{Requester, ShardPeer},
    v4::{
        Nfs4,
        context::{CompoundContext, OpResult, state_calls::file_id},
        interpreter::SequenceOutcome,
        session::{
            BegunSlot, LeasedAccess, LeasedSession, RecordPhase, SESSIONS, SlotInUse, SlotOwner,
            UsedSlots,
        },
    },
};
use stag_nfs_store::Store;
use stag_nfs4_state::{ClientKey, ConflictFilter};

/// The client has completed its reclaims, and has room for one more open. No flag of SEQUENCE has
/// this bit (RFC 8881 §18.46.1).
const MAY_OPEN: u32 = 1 << 31;

/// Facts about lent sessions, by the places of their IDs.
#[derive(Debug)]
pub(in crate::v4) struct LeaseFlags {
    /// Requests so far; each is written by the shard that has the slots.
    used: Box<[AtomicU32]>,
    /// Flags of SEQUENCE and [`MAY_OPEN`], which the home writes.
    flags: Box<[AtomicU32]>,
}

impl Default for LeaseFlags {
    fn default() -> Self {
        let words = || (0..SESSIONS).map(|_| AtomicU32::new(0)).collect();
        Self { used: words(), flags: words() }
    }
}

impl LeaseFlags {
    /// The word of a session.
    fn of<'a>(words: &'a [AtomicU32], session: &SessionId) -> Option<&'a AtomicU32> {
        let [.., high, low] = *session;
        words.get(usize::from(u16::from_be_bytes([high, low])))
    }

    /// Counts a request. Only this shard writes the word, so that no locked instruction is needed.
    fn count(&self, session: &SessionId) {
        if let Some(used) = Self::of(&self.used, session) {
            used.store(used.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    fn used(&self, session: &SessionId) -> u32 {
        Self::of(&self.used, session).map_or(0, |used| used.load(Ordering::Relaxed))
    }

    /// The flags of SEQUENCE, and [`MAY_OPEN`].
    fn flags(&self, session: &SessionId) -> u32 {
        Self::of(&self.flags, session).map_or(0, |flags| flags.load(Ordering::Relaxed))
    }

    fn set_flags(&self, session: &SessionId, value: u32) {
        if let Some(flags) = Self::of(&self.flags, session) {
            flags.store(value, Ordering::Relaxed);
        }
    }
}

/// A compound that the home executes in a slot of this shard.
#[derive(Debug)]
pub(crate) struct AwayCompound {
    /// The name by which the home answers it.
    id: CallId,
    /// The last caller and the XID of its call; none when it is gone.
    pub(crate) requester: Option<(Requester, Xid)>,
    slot: SlotInUse,
}

/// Sessions of the home whose slots this shard has.
#[derive(Debug)]
pub(in crate::v4) struct Borrowed {
    pub(in crate::v4) facts: Arc<SharedFlags>,
    /// Sessions that the home has recalled.
    due: Vec<SessionId>,
    away: Vec<AwayCompound>,
    pub(in crate::v4) told: StateCache,
}

impl Borrowed {
    /// Counts a request of a session.
    pub(in crate::v4) fn count_use(&self, session: &SessionId) {
        self.facts.loans.count(session);
    }

    /// Returns true if there may be a delegation of any file.
    pub(in crate::v4) fn sees_conflicts(&self) -> bool {
        self.facts.may_conflict(None)
    }

    /// Returns true if there may be a delegation of an object.
    pub(in crate::v4) fn may_conflict(&self, object: &FileHandle) -> bool {
        self.sees_conflicts() && self.facts.may_conflict(Some(file_id(object)))
    }

    /// Shows the files that have a write delegation, if there may be any.
    pub(in crate::v4) fn held_files(&self) -> Option<Arc<ConflictFilter>> {
        self.sees_conflicts().then(|| self.facts.presence())
    }

    /// The flags that the home has set for a session.
    pub(in crate::v4) fn flags(&self, session: &SessionId) -> u32 {
        self.facts.loans.flags(session) & !MAY_OPEN
    }

    /// Returns true if the client of a session may be granted state, unless clients may reclaim.
    pub(in crate::v4) fn may_open(&self, session: &SessionId) -> bool {
        self.facts.loans.flags(session) & MAY_OPEN != 0
    }
}

/// The home's side.
impl Nfs4 {
    /// Lends a session that was just made to the shard of its connection.
    pub(in crate::v4) fn lend(&mut self, session: &SessionId, at: ShardPeer) {
        if self.link.is_some() {
            self.lend_slots(session, at.shard, None, 0);
        }
    }

    /// Lends the slots of a session, `used` ones if there are any, unless it is in use, or its
    /// client is going to end. `requests` have come over connections of that shard.
    fn lend_slots(
        &mut self,
        session: &SessionId,
        shard: u16,
        used: Option<UsedSlots>,
        requests: u32,
    ) {
        let client = self.sessions.get(session).and_then(|it| self.clients.get(it.client));
        let client = client.filter(|client| client.record != RecordPhase::Leaving);
        let Some(access) = client.map(|client| self.leased_access(session, client, shard)) else {
            return;
        };
        let Some(lent) = self.sessions.lend(session, shard) else { return };
        self.count_loans(1);
        if let Some(link) = &self.link
            && let Some(session) = self.sessions.get_mut(session)
            && let Some(loan) = session.loan_mut()
        {
            loan.used = link.facts.loans.used(&lent.id);
        }
        self.tell_flags(session);
        let used = used.map(Box::new);
        self.tell(shard, FromHome::Lend { session: lent, access, used });
        self.settle(lent.client, shard, requests);
    }

    /// Notes that a request of a session began here that came over a connection of this shard.
    pub(in crate::v4) fn note_arrival(&mut self, id: &SessionId, shard: u16, takes_loans: bool) {
        let (Some(link), Some(session)) = (&mut self.link, self.sessions.get_mut(id)) else {
            return;
        };
        let entry = (*id, shard);
        if session.follow(shard) && takes_loans && !link.following.contains(&entry) {
            link.following.push(entry);
        }
    }

    /// Lends sessions to the shards that their requests come from, as soon as no compound executes
    /// in their slots. Called when this shard is not forwarding a compound.
    pub(in crate::v4) fn lend_followed(&mut self) {
        let Some(link) = &mut self.link else { return };
        for (id, shard) in std::mem::take(&mut link.following) {
            let Some(session) = self.sessions.get(&id) else { continue };
            let Some(requests) = session.followed(shard) else { continue };
            if !self.may_settle(session.client, requests) {
                continue; // It is looked at again when more have come.
            }
            // A compound that waits for the slots has not asked for them again.
            let kept = self.link.iter().flat_map(|link| &link.kept);
            if session.is_busy() || kept.into_iter().any(|kept| is_of(kept, &id)) {
                if let Some(link) = &mut self.link {
                    link.following.push((id, shard));
                }
                continue;
            }
            let used = self.sessions.used(&id);
            self.lend_slots(&id, shard, used, requests);
        }
    }

    fn count_loans(&mut self, more: isize) {
        if let Some(link) = &mut self.link {
            link.loans = link.loans.saturating_add_signed(more);
        }
    }

    /// Recalls the slots of a session that a request needs.
    fn recall_loan(&mut self, session: &SessionId) {
        if let Some(client) = self.sessions.get(session).map(|session| session.client) {
            self.unsettle(client);
        }
        if let Some(shard) = self.sessions.recall(session) {
            self.tell(shard, FromHome::Recall(*session));
        }
    }

    /// Returns true if no other shard makes decisions for a client. Otherwise shards are asked for
    /// the slots of its sessions: try again.
    pub(in crate::v4) fn bring_home(&mut self, client: u64) -> bool {
        let lent: Vec<_> = self
            .sessions
            .of(client)
            .filter(|it| it.lent_to().is_some())
            .map(|session| session.id())
            .collect();
        for session in &lent {
            self.recall_loan(session);
        }
        self.unsettle(client) && lent.is_empty()
    }

    /// The slots of a session were returned.
    pub(crate) fn take_back(&mut self, session: &SessionId, slots: UsedSlots, now: Time) {
        let (Some(link), Some(lent)) = (&self.link, self.sessions.get_mut(session)) else { return };
        let client = lent.client;
        let used = link.facts.loans.used(session);
        let is_used = lent.loan_mut().is_some_and(|loan| loan.note_used(used));
        if self.sessions.take_back(session, slots) {
            self.count_loans(-1);
        }
        let Some(key) = self.clients.get(client).and_then(|client| client.key) else { return };
        if is_used {
            // A client that was answered there has renewed the lease.
            self.state.renew(key, crate::v4::milliseconds(now));
        } else if self.state.is_to_go(key) {
            self.remove_expired(key, now);
        }
    }

    /// Ends the loan of a removed session, whose slots another shard may have.
    pub(in crate::v4) fn end_loan(&mut self, session: &SessionId, owner_of_slots: &SlotOwner) {
        if let SlotOwner::Lent(loan) = owner_of_slots {
            self.count_loans(-1);
            self.tell(loan.shard, FromHome::Ended(*session));
        }
    }

    /// Renews the leases of clients whose requests other shards have accepted since the last look.
    pub(in crate::v4) fn renew_lent(&mut self, now: Time) {
        let Some(link) = self.link.as_ref().filter(|link| link.loans > 0) else { return };
        let facts = Arc::clone(&link.facts);
        let mut renewed = Vec::new();
        for session in self.sessions.iter_mut() {
            let (id, client) = (session.id(), session.client);
            let Some(loan) = session.loan_mut() else { continue };
            if loan.note_used(facts.loans.used(&id)) {
                renewed.push(client);
            }
        }
        for client in renewed {
            if let Some(key) = self.clients.get(client).and_then(|client| client.key) {
                self.state.renew(key, crate::v4::milliseconds(now));
            }
        }
    }

    /// Returns true if a client that counts as expired has renewed its lease at another shard, or
    /// has a [queued request](Self::speaking).
    pub(in crate::v4) fn is_renewed(&mut self, client: ClientKey, now: Time) -> bool {
        let id = self.state.client_id(client);
        if id.is_some_and(|id| self.speaking().contains(&id)) {
            return self.state.renew(client, crate::v4::milliseconds(now));
        }
        let has_loans = self.link.as_ref().is_some_and(|link| link.loans > 0);
        if has_loans {
            self.renew_lent(now);
        }
        has_loans && !self.state.is_expired(client)
    }

    /// Sets the flags that a session's shard returns in SEQUENCE.
    pub(in crate::v4) fn tell_flags(&self, id: &SessionId) {
        let Some(link) = &self.link else { return };
        let Some(session) = self.sessions.get(id) else { return };
        if session.lent_to().is_some() {
            let key = self.clients.get(session.client).and_then(|client| client.key);
            let may_open = |key| self.state.is_complete(key) && self.state.has_room(key);
            let may_open = key.is_some_and(may_open);
            let word = self.flags_of(id) | if may_open { MAY_OPEN } else { 0 };
            link.facts.loans.set_flags(id, word);
        }
    }

    /// The same for all sessions of a client.
    pub(in crate::v4) fn tell_client_flags(&self, client: u64) {
        if self.link.as_ref().is_some_and(|link| link.loans > 0) {
            self.sessions.of(client).for_each(|session| self.tell_flags(&session.id()));
        }
    }

    fn flags_of(&self, id: &SessionId) -> u32 {
        let Some(session) = self.sessions.get(id) else { return 0 };
        let key = self.clients.get(session.client).and_then(|client| client.key);
        let revoked = key.map_or(0, |key| self.state.sequence_flags(key));
        let is_down = session.callbacks.as_ref().is_some_and(|back| back.peer.is_none());
        let down = sequence_flag::CB_PATH_DOWN | sequence_flag::CB_PATH_DOWN_SESSION;
        if is_down { down | revoked } else { revoked }
    }

    /// Sets the flags of all lent sessions.
    pub(in crate::v4) fn tell_all_flags(&self) {
        if self.link.as_ref().is_some_and(|link| link.loans > 0) {
            self.sessions.iter().for_each(|session| self.tell_flags(&session.id()));
        }
    }
}

/// The side of a shard that borrows sessions.
impl Nfs4 {
    /// Lets this shard, which is not the home, borrow sessions.
    pub(crate) fn borrow_from(&mut self, arrival: &mut ArrivalEnd) {
        let facts = arrival.take_loans();
        let (due, away, told) = (Vec::new(), Vec::new(), StateCache::default());
        self.borrowed = Some(Box::new(Borrowed { facts, due, away, told }));
    }

    /// Takes the slots of a session, some of which may be `used`.
    pub(crate) fn borrow(
        &mut self,
        lent: LeasedSession,
        access: LeasedAccess,
        used: Option<UsedSlots>,
    ) {
        let has_cells = self.sessions.borrow(lent, access, used);
        debug_assert!(has_cells, "each shard has as many cells as the home");
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.told.add_session(lent.client);
        }
    }

    /// The home recalls the slots of a session.
    pub(crate) fn begin_return(&mut self, id: &SessionId) {
        let Some(borrowed) = &mut self.borrowed else { return };
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.owner_of_slots = SlotOwner::Borrowed { is_due: true };
        borrowed.due.push(*id);
    }

    /// The home has ended the session.
    pub(crate) fn forget_lent(&mut self, id: &SessionId) {
        let gone = self.sessions.remove(id);
        if let (Some(gone), Some(borrowed)) = (gone, &mut self.borrowed) {
            borrowed.told.end_session(gone.client);
        }
    }

    /// The next session whose slots can be returned: no compound executes in them, and the facts
    /// about its client are dropped.
    pub(crate) fn next_return(&mut self) -> Option<(SessionId, UsedSlots)> {
        let Borrowed { due, told, .. } = self.borrowed.as_deref_mut()?;
        for place in (0..due.len()).rev() {
            let id = *due.get(place)?;
            let Some(client) = self.sessions.get(&id).map(|session| session.client) else {
                due.swap_remove(place);
                continue;
            };
            if told.is_leaving(client) {
                continue;
            }
            if let Some(slots) = self.sessions.give_back(&id) {
                due.swap_remove(place);
                told.end_session(client);
                return Some((id, slots));
            }
        }
        None
    }

    /// Notes a compound whose request is begun and which is sent to the home.
    pub(crate) fn put_away(&mut self, requester: Requester, xid: Xid, begun: &BegunSlot) {
        if let Some(borrowed) = &mut self.borrowed {
            let (id, slot) = (requester.id, SlotInUse { is_lent: false, ..begun.used });
            borrowed.away.push(AwayCompound { id, requester: Some((requester, xid)), slot });
        }
    }

    /// The home has executed it: ends its request, with the reply if that has to be kept.
    pub(crate) fn take_away(&mut self, id: CallId, kept: Option<&[u8]>) -> Option<AwayCompound> {
        let away = &mut self.borrowed.as_mut()?.away;
        let place = away.iter().position(|away| away.id == id)?;
        let away = away.swap_remove(place);
        self.sessions.finish(&away.slot, kept.filter(|_| away.slot.cache_this));
        Some(away)
    }

    /// No caller at this peer waits for a compound at the home any more.
    pub(in crate::v4) fn forget_away(&mut self, peer: ShardPeer) {
        let away = self.borrowed.iter_mut().flat_map(|borrowed| &mut borrowed.away);
        for away in away {
            away.requester.take_if(|(requester, _)| requester.at() == peer);
        }
    }

    /// The compound of a slot that is at the home.
    fn away_in(&mut self, args: &SequenceArgs) -> Option<&mut AwayCompound> {
        let away = &mut self.borrowed.as_mut()?.away;
        away.iter_mut().find(|it| it.slot.session == args.session && it.slot.slot == args.slot)
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// SEQUENCE of a compound whose slot is on another shard, which has begun its request.
    #[cold]
    pub(in crate::v4) fn go_on_with(&mut self, begun: &BegunSlot) -> OpResult<SequenceOutcome> {
        let session = self.nfs4.sessions.get(&begun.used.session).ok_or(Status4::BadSession)?;
        debug_assert_eq!(
            session.lent_to(),
            Some(self.compound.source.shard),
            "who has the slots begins"
        );
        self.compound.slot = Some(begun.used);
        self.nfs4.renew_lease(&begun.used, self.cx.now());
        let flags = self.nfs4.flags_of(&begun.used.session);
        self.nfs4.tell_flags(&begun.used.session);
        self.put(&stag_protocol::nfs::v4::Answer::Sequence(Ok(begun.sequence_ok(flags))))?;
        Ok(SequenceOutcome::Usual)
    }

    /// Recalls the slots of a session from another shard, because a request needs them.
    #[cold]
    pub(in crate::v4) fn await_slots(&mut self, args: &SequenceArgs) -> SequenceOutcome {
        self.nfs4.recall_loan(&args.session);
        SequenceOutcome::NeedsHome
    }

    /// Lets this caller take the place of the previous caller of the same request, which the home
    /// is executing.
    pub(in crate::v4) fn join_away(&mut self, args: &SequenceArgs) -> OpResult<SequenceOutcome> {
        let (requester, xid) = (Requester::of(self.compound.source), self.compound.reply.xid());
        let away = self.nfs4.away_in(args).ok_or(Status4::Delay)?;
        let former = away.requester.map(|(former, _)| former);
        // RFC 8881 §2.10.6.2: a client that keeps the connection waits for the reply.
        if former.is_some_and(|former| former.at() == requester.at()) {
            return Err(Status4::Delay.into());
        }
        away.requester = Some((requester, xid));
        self.nfs4.tally.joined += 1;
        if let Some(former) = former {
            self.nfs4.disconnect(self.cx, former.at());
        }
        Ok(SequenceOutcome::Joined)
    }

    /// The slot of a compound that the home continues.
    pub(in crate::v4) fn begun(&mut self) -> Option<BegunSlot> {
        let used = self.compound.slot.take()?;
        self.nfs4.sessions.get(&used.session).map(|session| session.begun(&used))
    }
}
