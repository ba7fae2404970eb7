//! Facts about states by which another shard checks READ and WRITE of a client whose state is here.

use crate::{ClientKey, FileId, IoAccess, StateKey, StateTables, entry::StateKind};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::{Stateid, share};

/// The part of a stateid that identifies its state (`other`).
pub type StateOther = [u8; 12];

/// Facts about a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoFact {
    /// The client ID.
    pub client: u64,
    /// The file.
    pub file: FileId,
    /// The current sequence ID.
    pub seqid: u32,
    /// The access that it allows.
    pub access: FactAccess,
}

/// Access that a state allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactAccess {
    /// These bits.
    Bits(u32),
    /// The access of the open to which the locks belong.
    Under(StateOther),
}

/// A state that was granted, changed, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactChange {
    /// The client ID.
    pub client: u64,
    /// The state.
    pub other: StateOther,
    /// None when it allows no access any more.
    pub fact: Option<IoFact>,
}

/// States that changed since the last call of [`StateTables::take_changes`].
#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_on: bool,
    changes: Vec<Noted>,
}

#[derive(Debug)]
enum Noted {
    Changed(Key),
    Gone(FactChange),
}

impl IoFact {
    /// Returns true if a stateid of this client with this sequence ID is current, and of the file.
    pub fn is_current(&self, asked: &Stateid, client: u64, file: FileId) -> bool {
        let is_current = asked.seqid == 0 || asked.seqid == self.seqid;
        is_current && self.client == client && self.file == file
    }
}

/// Returns true if the bits of an open or a delegation allow an access. RFC 8881 §9.1.2: READ only
/// depends on the permission of its caller.
pub const fn allows(bits: u32, access: IoAccess) -> bool {
    matches!(access, IoAccess::Read) || bits & share::WRITE != 0
}

impl StateTables {
    /// Starts to note changes.
    pub const fn watch(&mut self) {
        self.watch.is_on = true;
    }

    /// A state was granted or changed.
    pub(crate) fn note_changed(&mut self, key: Key) {
        if self.watch.is_on {
            self.watch.changes.push(Noted::Changed(key));
        }
    }

    /// Counts all states of a client as changed.
    pub fn note_all(&mut self, client: ClientKey) {
        let states = self.clients.get(client.0).into_iter().flat_map(|client| &client.states);
        self.watch.changes.extend(states.map(|key| Noted::Changed(*key)));
    }

    /// A state is about to end, or to lose access.
    pub(crate) fn note_gone(&mut self, key: Key) {
        if !self.watch.is_on {
            return;
        }
        if let Some((client, other)) = self.state_of(key) {
            let change = FactChange { client, other, fact: None };
            self.watch.changes.push(Noted::Gone(change));
        }
    }

    fn state_of(&self, key: Key) -> Option<(u64, StateOther)> {
        let client = self.clients.get(self.states.get(key)?.client)?.id;
        Some((client, self.stateid(StateKey(key))?.other))
    }

    /// The changes since the last call, in their order.
    pub fn take_changes(&mut self) -> Vec<FactChange> {
        let noted = std::mem::take(&mut self.watch.changes);
        noted.into_iter().filter_map(|noted| self.change(noted)).collect()
    }

    fn change(&self, noted: Noted) -> Option<FactChange> {
        let key = match noted {
            Noted::Gone(change) => return Some(change),
            Noted::Changed(key) => key,
        };
        let (client, other) = self.state_of(key)?;
        let state = self.states.get(key)?;
        let access = match &state.kind {
            StateKind::Open(open) => FactAccess::Bits(open.share.access()),
            StateKind::Locks(locks) => {
                FactAccess::Under(self.stateid(StateKey(locks.open)).map(|open| open.other)?)
            }
            StateKind::Delegation(held) if !held.machine.is_live() => {
                return Some(FactChange { client, other, fact: None });
            }
            StateKind::Delegation(held) if held.write => FactAccess::Bits(share::BOTH),
            StateKind::Delegation(_) => FactAccess::Bits(share::READ),
        };
        let fact = IoFact { client, file: state.file_id, seqid: state.seqid, access };
        Some(FactChange { client, other, fact: Some(fact) })
    }
}
