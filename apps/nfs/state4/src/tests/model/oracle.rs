//! The model: the current opens, locks and delegations as plain maps, and the outcome that RFC 8881
//! requires of the next operation.

use crate::tests::*;
use std::collections::{BTreeMap, BTreeSet};

pub const FILES: usize = 2;
pub const CLIENTS: usize = 3;
/// Octets that are modelled one by one, and one that stands for all octets after them.
pub const OCTETS: usize = 7;

/// An open-owner of a client, and a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenName {
    pub client: usize,
    pub file: usize,
    pub owner: usize,
}

/// A lock-owner of a client, and a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockerName {
    pub client: usize,
    pub file: usize,
    pub owner: usize,
}

#[derive(Clone, Debug)]
pub struct ModelOpen {
    pub stateid: Stateid,
    pub accesses: BTreeSet<u32>,
    pub denials: BTreeSet<u32>,
}

impl ModelOpen {
    pub fn access(&self) -> u32 {
        self.accesses.iter().fold(0, |bits, one| bits | one)
    }

    pub fn deny(&self) -> u32 {
        self.denials.iter().fold(0, |bits, one| bits | one)
    }
}

#[derive(Clone, Debug)]
pub struct ModelDelegation {
    pub stateid: Stateid,
    pub state: StateKey,
    pub write: bool,
    pub is_recalled: bool,
}

/// The expected answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    Done,
    Failed(Status4),
    Denied,
    Recall,
    /// The removal of one of these clients.
    Removal(BTreeSet<usize>),
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub opens: BTreeMap<OpenName, ModelOpen>,
    /// Locks of each lock-owner, octet by octet: true for a write lock.
    pub octets: BTreeMap<LockerName, [Option<bool>; OCTETS]>,
    /// Stateids of lock-owners under opens.
    pub locks: BTreeMap<(OpenName, usize), Stateid>,
    pub delegations: BTreeMap<(usize, usize), ModelDelegation>,
    pub courtesy: BTreeSet<usize>,
    /// Time until which a file gets no delegation.
    pub contended: [u64; FILES],
}

impl Oracle {
    /// Checks conflicting clients: an active one refuses, else the expired ones make way.
    fn judge(&self, in_way: impl Iterator<Item = usize>, refused: Expected) -> Expected {
        let in_way: BTreeSet<usize> = in_way.collect();
        if in_way.iter().any(|client| !self.courtesy.contains(client)) {
            refused
        } else if in_way.is_empty() {
            Expected::Done
        } else {
            Expected::Removal(in_way)
        }
    }

    /// Checks access and denial against all opens of a file.
    pub fn share(&self, file: usize, access: u32, deny: u32, refused: Status4) -> Expected {
        let conflicts = |open: &ModelOpen| access & open.deny() != 0 || deny & open.access() != 0;
        let in_way = self.opens.iter().filter(|(name, open)| name.file == file && conflicts(open));
        self.judge(in_way.map(|(name, _)| name.client), Expected::Failed(refused))
    }

    /// Checks a client's operation on a file against the delegations of others, which are recalled.
    pub fn recall(&mut self, file: usize, client: usize, all: bool, now: u64) -> Expected {
        let mut expired = BTreeSet::new();
        let mut waits = false;
        for ((holder, of), held) in &mut self.delegations {
            if *of != file || *holder == client || !(held.write || all) {
                continue;
            }
            if self.courtesy.contains(holder) {
                expired.insert(*holder);
            } else {
                waits = true;
                if !std::mem::replace(&mut held.is_recalled, true) {
                    self.contended[file] = now + CONTENTION_MS;
                }
            }
        }
        match (expired.is_empty(), waits) {
            (false, _) => Expected::Removal(expired),
            (true, true) => Expected::Recall,
            (true, false) => Expected::Done,
        }
    }

    /// The delegation that an OPEN of a client gets: true for writing.
    pub fn delegation(&self, name: OpenName, access: u32, now: u64) -> Option<bool> {
        let write = match access {
            READ => false,
            BOTH => true,
            _ => return None,
        };
        let of_others = |name: &&OpenName, client: usize| name.client != client;
        let is_open = self.opens.iter().any(|(other, open)| {
            other.file == name.file
                && of_others(&other, name.client)
                && (write || open.access() & WRITE != 0)
        });
        let is_held = self.delegations.iter().any(|((client, file), held)| {
            *file == name.file
                && (*client == name.client || write || held.write || held.is_recalled)
        });
        (!is_open && !is_held && now >= self.contended[name.file]).then_some(write)
    }

    /// Checks a lock against locks of other owners.
    pub fn lock(&self, name: LockerName, octets: std::ops::Range<usize>, write: bool) -> Expected {
        let conflicts = |held: &[Option<bool>; OCTETS]| {
            held[octets.clone()].iter().flatten().any(|held| *held || write)
        };
        let in_way = self
            .octets
            .iter()
            .filter(|(other, held)| **other != name && other.file == name.file && conflicts(held));
        self.judge(in_way.map(|(other, _)| other.client), Expected::Denied)
    }

    /// Returns true if locks would remain when an open is closed.
    pub fn is_locked(&self, name: OpenName) -> bool {
        let under = self.locks.keys().filter(|(open, _)| *open == name);
        under.into_iter().any(|(_, owner)| {
            let locker = LockerName { client: name.client, file: name.file, owner: *owner };
            let has = |held: &[Option<bool>; OCTETS]| held.iter().any(Option::is_some);
            let stays = self.locks.keys().any(|(open, other)| {
                *open != name
                    && (open.client, open.file, *other) == (name.client, name.file, *owner)
            });
            self.octets.get(&locker).is_some_and(has) && !stays
        })
    }

    /// Ends an open, with the lock states under it.
    pub fn close(&mut self, name: OpenName) {
        self.opens.remove(&name);
        self.locks.retain(|(open, _), _| *open != name);
        let locks = &self.locks;
        self.octets.retain(|locker, _| {
            locks.keys().any(|(open, owner)| {
                (open.client, open.file, *owner) == (locker.client, locker.file, locker.owner)
            })
        });
    }

    /// Returns true if a client has any state.
    pub fn has_state(&self, client: usize) -> bool {
        self.opens.keys().any(|name| name.client == client)
            || self.delegations.keys().any(|(holder, _)| *holder == client)
    }

    /// Drops all state of a client.
    pub fn release(&mut self, client: usize) {
        self.opens.retain(|name, _| name.client != client);
        self.locks.retain(|(open, _), _| open.client != client);
        self.octets.retain(|name, _| name.client != client);
        self.delegations.retain(|(holder, _), _| *holder != client);
        self.courtesy.remove(&client);
    }
}
