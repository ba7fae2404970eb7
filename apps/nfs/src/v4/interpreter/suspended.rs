//! Suspended compounds: a table of fixed size for each shard.
//!
//! A suspended compound holds its slot, whose reply has its cell already, its arguments, and the
//! part of its reply that is written. It continues if its client loses the connection: a retry over
//! another connection takes the place of the first caller (RFC 8881 §2.10.6.2).
//!
//! | when this is full | the result is |
//! |---|---|
//! | the table, or the part of a client or a host | NFS4ERR_DELAY, before an effect |
//! | the same, once a file was made or cut | the operation takes one of the reserved places |
//! | a quarter of the larger buffers, by their arguments | NFS4ERR_DELAY, before an effect |
//! | all buffers, once a file was made or cut | the arguments are kept on the heap |

use crate::{
    requester::{BufferLimits, ShardPeer},
    v4::{
        CompoundOutcome, Nfs4, WaitFor,
        context::{
            CompoundContext, CompoundState,
            saved_arguments::SavedArguments,
            shard_context::{FORWARDED_MAX, PendingAtHome},
        },
        session::SlotInUse,
    },
};
use std::collections::VecDeque;

use stag_engine::{PeerAddress, Time, TurnHolder};
use stag_nfs_store::{Caller, Store};
use stag_nfs4_state::{ChangeAndSize, StateOther};
use stag_protocol::nfs::v4::SessionId;

/// Compounds that wait in a shard.
pub(in crate::v4) const SUSPENDED: usize = 256;
/// Compounds of one client among them.
const SUSPENDED_OF_CLIENT: usize = 64;
/// Additional places for operations that have an effect already: their client would not ask for it
/// again, so they get no NFS4ERR_DELAY. One that began on another shard counts against the
/// compounds that the shard may have forwarded.
const RESERVED: usize = FORWARDED_MAX;
const PLACES: usize = SUSPENDED + RESERVED;

/// Identifies a suspended compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompoundId(u16);

const _: () = assert!(PLACES <= 1 << 16);

impl CompoundId {
    /// All that a shard can have.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..PLACES).map(|place| Self(place as u16))
    }
}

/// A suspended compound.
#[derive(Debug)]
pub(in crate::v4) struct SuspendedCompound {
    pub(in crate::v4) state: CompoundState,
    /// It waits only for delegations.
    pub(in crate::v4) awaits_recall: bool,
    /// It waits for its next turn.
    pub(in crate::v4) awaits_turn: bool,
    /// The client whose record its reply has to wait for.
    pub(in crate::v4) awaits_record: Option<u64>,
    /// The home's part in it, while the home has it.
    pub(in crate::v4) at_home: Option<PendingAtHome>,
}

impl SuspendedCompound {
    /// Returns true if its request is in a slot that `is_meant`.
    pub(in crate::v4) fn is_in(&self, is_meant: impl Fn(&SlotInUse) -> bool) -> bool {
        self.state.slot.as_ref().is_some_and(is_meant)
    }

    /// Medium and large buffers of its arguments.
    fn buffers(&self) -> [usize; 2] {
        self.state.replay_log.kept.as_ref().map_or([0; 2], SavedArguments::buffers)
    }
}

/// The suspended compounds of a shard.
#[derive(Debug)]
pub(in crate::v4) struct SuspendedCompounds {
    entries: Box<[Option<SuspendedCompound>]>,
    free: Vec<CompoundId>,
    /// Medium and large buffers that hold arguments.
    held: [usize; 2],
    /// Number of compounds that wait for delegations.
    recalls: usize,
    /// Compounds that wait for their turn, in the order in which they are tried.
    turns: VecDeque<CompoundId>,
    /// A delegation was returned since the last look.
    has_returned: bool,
}

impl SuspendedCompounds {
    /// No compounds yet.
    pub(in crate::v4) fn new() -> Self {
        let mut free: Vec<_> = CompoundId::all().collect();
        free.reverse();
        Self {
            entries: std::iter::repeat_with(|| None).take(PLACES).collect(),
            free,
            held: [0; 2],
            recalls: 0,
            turns: VecDeque::with_capacity(PLACES),
            has_returned: false,
        }
    }

    /// Number of compounds that wait.
    pub(in crate::v4) const fn len(&self) -> usize {
        PLACES - self.free.len()
    }

    /// Returns true if one more compound of this client, whose call came `from` there, may wait.
    pub(in crate::v4) fn has_room(&self, client: u64, from: PeerAddress) -> bool {
        // While few wait, neither limit can be reached.
        if self.len() < SUSPENDED_OF_CLIENT {
            return true;
        }
        let (mut of_client, mut of_host) = (0, 0);
        for entry in self.entries.iter().flatten() {
            of_client += usize::from(entry.is_in(|slot| slot.client == client));
            of_host += usize::from(entry.state.source.from.is_of_host(&from));
        }
        let free = self.free.len().saturating_sub(RESERVED);
        of_client < SUSPENDED_OF_CLIENT && has_share(of_host, free)
    }

    /// Returns true if a compound whose operation already has an effect may wait.
    pub(in crate::v4) const fn has_reserve(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns true if compounds may hold the memory of these arguments, too.
    pub(in crate::v4) fn may_hold(&self, arguments: &SavedArguments, limits: BufferLimits) -> bool {
        limits.allow(self.held, arguments.buffers())
    }

    /// Suspends a compound that [has room](Self::has_room), or a [reserve](Self::has_reserve).
    pub(in crate::v4) fn put(&mut self, compound: SuspendedCompound) -> CompoundId {
        let id = self.free.pop().expect("a compound waits only if there is room");
        let more = compound.buffers();
        self.held.iter_mut().zip(more).for_each(|(held, more)| *held += more);
        self.recalls += usize::from(compound.awaits_recall);
        if compound.awaits_turn {
            self.turns.push_back(id);
        }
        let place = self.entries.get_mut(usize::from(id.0));
        let earlier = place.and_then(|place| place.replace(compound));
        debug_assert!(earlier.is_none(), "an ID stands for one compound");
        id
    }

    /// Removes a compound, to resume it.
    pub(in crate::v4) fn take(&mut self, id: CompoundId) -> Option<SuspendedCompound> {
        let compound = self.entries.get_mut(usize::from(id.0))?.take()?;
        let less = compound.buffers();
        self.held.iter_mut().zip(less).for_each(|(held, less)| *held -= less);
        self.recalls -= usize::from(compound.awaits_recall);
        self.free.push(id);
        Some(compound)
    }

    /// The first suspended compound for which `is_meant` is true.
    pub(in crate::v4) fn find(
        &self,
        is_meant: impl Fn(&SuspendedCompound) -> bool,
    ) -> Option<CompoundId> {
        let mut all = CompoundId::all().take(if self.len() > 0 { PLACES } else { 0 });
        all.find(|id| self.get(*id).is_some_and(&is_meant))
    }

    /// A suspended compound, for changes.
    pub(in crate::v4) fn get_mut(&mut self, id: CompoundId) -> Option<&mut SuspendedCompound> {
        self.entries.get_mut(usize::from(id.0))?.as_mut()
    }

    /// A suspended compound.
    pub(in crate::v4) fn get(&self, id: CompoundId) -> Option<&SuspendedCompound> {
        self.entries.get(usize::from(id.0))?.as_ref()
    }

    /// Returns true while a compound waits that was admitted by facts about a client from the home.
    pub(in crate::v4) fn is_io_of(&self, client: u64) -> bool {
        let mut waiting = self.entries.iter().flatten();
        waiting.any(|compound| {
            compound.is_in(|slot| slot.client == client) && compound.state.shard_facts.io.is_some()
        })
    }

    /// The same for a state.
    pub(in crate::v4) fn is_io_by(&self, state: &StateOther) -> bool {
        self.entries
            .iter()
            .flatten()
            .any(|compound| compound.state.shard_facts.io.as_ref() == Some(state))
    }

    /// The compound in a slot.
    pub(in crate::v4) fn in_slot(
        &mut self,
        session: &SessionId,
        slot: u32,
    ) -> Option<&mut SuspendedCompound> {
        let mut all = self.entries.iter_mut().flatten();
        all.find(|entry| entry.is_in(|it| it.slot == slot && it.session == *session))
    }

    /// No caller at this peer can be answered any more. Their requests are executed nevertheless.
    pub(in crate::v4) fn forget(&mut self, at: ShardPeer) {
        // A slot at another shard waits for the reply in any case.
        let entries =
            self.entries.iter_mut().flatten().filter(|entry| !entry.is_in(|slot| slot.is_lent));
        for entry in entries {
            entry.state.requester.take_if(|requester| requester.at() == at);
        }
    }

    /// Returns true while compounds wait for delegations.
    pub(in crate::v4) const fn await_recalls(&self) -> bool {
        self.recalls > 0
    }

    /// Number of compounds that wait for their turn.
    pub(in crate::v4) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The time up to which the first compound waits for delegations.
    fn recalls_until(&self) -> Option<Time> {
        if !self.await_recalls() {
            return None;
        }
        let waiting = self.entries.iter().flatten().filter(|compound| compound.awaits_recall);
        waiting.filter_map(|compound| compound.state.recall_until).min()
    }

    /// Returns true if a compound should check again for the return of delegations: one
    /// `has_returned`, or its time is over.
    pub(in crate::v4) fn is_recall_due(
        &self,
        id: CompoundId,
        now: Time,
        has_returned: bool,
    ) -> bool {
        self.get(id).is_some_and(|compound| {
            let is_over = compound.state.recall_until.is_none_or(|until| now >= until);
            let asked = compound.state.replay_log.asked;
            let is_told = asked.is_some_and(|asked| asked.told.is_some() && !asked.is_heard);
            compound.awaits_recall && (has_returned || is_over || is_told)
        })
    }

    /// Returns true while a compound waits for the CB_GETATTR with this number.
    pub(in crate::v4) fn await_attributes(&self, number: u64) -> bool {
        let asked = self.entries.iter().flatten().filter_map(|entry| entry.state.replay_log.asked);
        asked.into_iter().any(|asked| asked.number == number && asked.told.is_none())
    }

    /// The CB_GETATTR with this number has ended.
    pub(in crate::v4) fn tell_attributes(&mut self, number: u64, told: Option<ChangeAndSize>) {
        let asked = self
            .entries
            .iter_mut()
            .flatten()
            .filter_map(|entry| entry.state.replay_log.asked.as_mut());
        for asked in asked.filter(|asked| asked.number == number) {
            asked.told = Some(told);
        }
    }

    /// A delegation was returned or revoked: compounds that wait for one check again.
    pub(in crate::v4) const fn note_return(&mut self) {
        self.has_returned = true;
    }

    /// Returns true once after a delegation was returned.
    pub(in crate::v4) const fn take_return(&mut self) -> bool {
        std::mem::replace(&mut self.has_returned, false)
    }
}

/// Returns true if a host that has `held` places may have one more: each host leaves places to
/// others, as in the [tables of state](stag_nfs4_state).
const fn has_share(held: usize, free: usize) -> bool {
    held < free
}

impl Nfs4 {
    /// Returns true while compounds wait for delegations.
    pub(crate) const fn awaits_recalls(&self) -> bool {
        self.suspended.await_recalls()
    }

    /// Number of compounds that wait for their turn.
    pub(crate) fn turns(&self) -> usize {
        self.suspended.turns()
    }

    /// The next compound that waits for its turn, and the connection whose turn it uses: the one
    /// that it came from first, though that may be closed. The caller resumes it, or
    /// [keeps](Self::keep_for_turn) it.
    pub(crate) fn next_for_turn(&mut self) -> Option<(CompoundId, TurnHolder)> {
        let id = self.suspended.turns.pop_front()?;
        self.holder_of(id).map(|holder| (id, holder))
    }

    /// Lets a compound continue to wait for its turn.
    pub(crate) fn keep_for_turn(&mut self, id: CompoundId) {
        self.suspended.turns.push_back(id);
    }

    /// The connection that is charged for a suspended compound.
    pub(crate) fn holder_of(&self, id: CompoundId) -> Option<TurnHolder> {
        self.suspended.get(id).map(|compound| compound.state.source.turn_holder())
    }

    /// The time at which the first of them has to be looked at, because its wait for delegations or
    /// names is over, or names may have arrived.
    pub(crate) fn recalls_until(&self) -> Option<Time> {
        let until = self.suspended.recalls_until()?;
        let awaits_names = self.suspended.find(|it| it.state.replay_log.names.ticket().is_some());
        Some(if awaits_names.is_some() { until.min(self.next_names_look) } else { until })
    }

    /// Returns true once after a delegation was returned.
    pub(crate) const fn take_return(&mut self) -> bool {
        self.suspended.take_return()
    }

    /// See [`SuspendedCompounds::is_recall_due`].
    pub(crate) fn is_recall_due(&self, id: CompoundId, now: Time, has_returned: bool) -> bool {
        // One that waits for names does not wait for delegations.
        match self.have_names_arrived(id) {
            Some(have_arrived) => have_arrived || self.suspended.is_recall_due(id, now, false),
            None => self.suspended.is_recall_due(id, now, has_returned),
        }
    }

    /// Returns true if the names that a suspended compound waits for have arrived; none if it waits
    /// for something else.
    fn have_names_arrived(&self, id: CompoundId) -> Option<bool> {
        let ticket = self.suspended.get(id)?.state.replay_log.names.ticket()?;
        Some(self.owner_names.as_ref().is_none_or(|names| names.is_answered(ticket)))
    }

    /// The caller of a suspended compound.
    pub(crate) fn caller_of(&self, id: CompoundId) -> Option<Caller> {
        self.suspended.get(id).map(|compound| compound.state.caller)
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Suspends the compound, with the wish of its operation.
    pub(in crate::v4) fn put_aside(mut self) -> CompoundOutcome {
        let event =
            self.compound.replay_log.take_event().expect("an operation waits for something");
        debug_assert!(self.compound.slot.is_some(), "only a compound with a slot waits");
        debug_assert!(
            self.compound.replay_log.kept.is_some(),
            "arguments are kept before it waits"
        );
        self.nfs4.tally.suspensions += u64::from(!matches!(event, WaitFor::Turn));
        self.compound.replay_log.changes.begin(&mut self.nfs4.changes);
        let id = self.nfs4.suspended.put(SuspendedCompound {
            state: self.compound,
            awaits_recall: matches!(event, WaitFor::Recall),
            awaits_turn: matches!(event, WaitFor::Turn),
            awaits_record: self.nfs4.recovery.take_asked(),
            at_home: None,
        });
        CompoundOutcome::Waits(id, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_leaves_places_of_compounds_to_others() {
        let mut free = SUSPENDED;
        let held: Vec<_> = (0..3)
            .map(|_| {
                let held = (0..).take_while(|held| has_share(*held, free - held)).count();
                free -= held;
                held
            })
            .collect();
        assert_eq!(held, [128, 64, 32]);
        assert!(held[0] > SUSPENDED_OF_CLIENT, "where few wait, only the limit of a client counts");
    }

    #[test]
    fn an_operation_with_an_effect_finds_a_place_when_others_do_not() {
        let mut compounds = SuspendedCompounds::new();
        let has_room = |compounds: &SuspendedCompounds| {
            compounds.has_room(1, PeerAddress::Process { pid: 1, uid: 1 })
        };
        assert!(has_room(&compounds) && compounds.has_reserve());
        compounds.free.truncate(RESERVED + 1);
        assert!(has_room(&compounds));
        compounds.free.truncate(RESERVED);
        assert!(!has_room(&compounds) && compounds.has_reserve());
        compounds.free.clear();
        assert!(!compounds.has_reserve());
    }
}
