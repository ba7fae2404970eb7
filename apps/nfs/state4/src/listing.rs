//! Descriptions of leases and states for administrators, in pages of bounded work.

use crate::{
    ClientKey, FileId, StateTables, StateidKind,
    entry::{LeasePhase, LockEntry, StateEntry, StateKind},
    hosts::SharedTable,
};
use stag_protocol::nfs::v4::Stateid;
use stag_protocol::nfs::v4::state::{DelegationPhase, HeldLock};

/// Places of the table that one page examines.
const PLACES_PER_PAGE: usize = 4_096;
/// States of one page.
const STATES_PER_PAGE: usize = 256;
/// Ranges that are listed of one lock state.
const RANGES_LISTED: usize = 16;

/// The lease of a client, and the places that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// Milliseconds since its last SEQUENCE that these tables know of.
    pub idle_ms: u64,
    /// The lease expired, and the state is kept until it conflicts with another client.
    pub is_expired: bool,
    /// Its opens.
    pub opens: usize,
    /// Its locked ranges.
    pub ranges: usize,
    /// Its delegations, revoked ones included.
    pub delegations: usize,
    /// Revoked delegations that it has not freed.
    pub revoked: usize,
}

/// States to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFilter {
    /// Of this kind.
    pub kind: StateidKind,
    /// Of this client.
    pub client: Option<ClientKey>,
    /// Of this file.
    pub file: Option<FileId>,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedState {
    /// Its stateid, with the current sequence ID.
    pub stateid: Stateid,
    /// Client ID of its client.
    pub client_id: u64,
    /// The handle that its file had when its first state was granted.
    pub handle: Box<[u8]>,
    /// Its kind, with the access that it allows.
    pub kind: ListedKind,
}

/// A kind of state, with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// An open: access and denial (OPEN4_SHARE_ACCESS, OPEN4_SHARE_DENY), and its open-owner.
    Open {
        /// Access.
        access: u32,
        /// Denial.
        deny: u32,
        /// The open-owner.
        owner: Box<[u8]>,
    },
    /// Locks of a lock-owner under one open. The ranges are those of the owner in the file.
    Locks {
        /// The lowest ranges, 16 at most.
        ranges: Vec<HeldLock>,
        /// Ranges that the owner has.
        count: usize,
        /// The lock-owner.
        owner: Box<[u8]>,
    },
    /// A delegation.
    Delegation {
        /// It is for writing.
        write: bool,
        /// It was recalled and has not been returned.
        is_recalled: bool,
        /// It was revoked and has not been freed.
        is_revoked: bool,
    },
}

impl StateTables {
    /// The lease of a client at `now`.
    pub fn lease_facts(&self, client: ClientKey, now: u64) -> Option<LeaseFacts> {
        let client = self.clients.get(client.0)?;
        Some(LeaseFacts {
            idle_ms: now.saturating_sub(client.renewed_at),
            is_expired: client.phase != LeasePhase::Active,
            opens: client.held.of(SharedTable::Opens),
            ranges: client.held.of(SharedTable::Ranges),
            delegations: client.held.of(SharedTable::Delegations),
            revoked: client.revoked,
        })
    }

    /// Lists states from the place `from` on. Returns the place where the next page begins, unless
    /// this is the last page. A page does a bounded amount of work, and may be empty.
    pub fn list_states(
        &self,
        filter: &StateFilter,
        from: usize,
    ) -> (Vec<ListedState>, Option<usize>) {
        let opened = self.states.opened();
        let end = from.saturating_add(PLACES_PER_PAGE).min(opened);
        let mut listed = Vec::new();
        for place in from..end {
            if listed.len() == STATES_PER_PAGE {
                return (listed, Some(place));
            }
            listed.extend(self.listed_at(place, filter));
        }
        (listed, (end < opened).then_some(end))
    }

    fn listed_at(&self, place: usize, filter: &StateFilter) -> Option<ListedState> {
        let entry = self.states.at(place)?;
        let is_meant = entry.kind.tag() == filter.kind
            && filter.client.is_none_or(|client| client.0 == entry.client)
            && filter.file.is_none_or(|file| file == entry.file_id);
        if !is_meant {
            return None;
        }
        let key = self.states.key_at(place)?;
        Some(ListedState {
            stateid: self.name(key, entry).stateid(entry.seqid),
            client_id: self.clients.get(entry.client)?.id,
            handle: self.files.get(entry.file)?.handle.clone(),
            kind: self.listed_kind(entry),
        })
    }

    fn listed_kind(&self, entry: &StateEntry) -> ListedKind {
        match &entry.kind {
            StateKind::Open(open) => ListedKind::Open {
                access: open.share.access(),
                deny: open.share.deny(),
                owner: open.owner.clone(),
            },
            StateKind::Locks(locks) => self.listed_locks(entry, locks),
            StateKind::Delegation(held) => ListedKind::Delegation {
                write: held.write,
                is_recalled: held.is_recalled(),
                is_revoked: matches!(held.machine.phase(), DelegationPhase::Revoked),
            },
        }
    }

    fn listed_locks(&self, entry: &StateEntry, locks: &LockEntry) -> ListedKind {
        let file = self.files.get(entry.file);
        let of_owner = file.map(|file| file.locks.of(locks.number).take(RANGES_LISTED).collect());
        ListedKind::Locks {
            ranges: of_owner.unwrap_or_default(),
            count: self.ranges_of(locks.number),
            owner: locks.owner.clone(),
        }
    }
}
