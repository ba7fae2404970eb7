//! The sessions of each client, as linked places of the session table.
//!
//! A client has as many sessions as it likes, and a table has thousands: callbacks, records and the
//! end of a client go through the sessions of that client alone.

use std::collections::HashMap;

/// No place.
const NONE: u16 = u16::MAX;

/// Neighbours of a place in the list of its client.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u16,
    after: u16,
}

/// Lists of places, by client; the newest session is the first.
#[derive(Debug)]
pub(super) struct SessionsOfClients {
    first: HashMap<u64, u16>,
    links: Box<[Links]>,
}

impl SessionsOfClients {
    /// No sessions yet, in a table with the given number of places.
    pub(super) fn new(places: usize) -> Self {
        assert!(places <= usize::from(NONE), "a place has a number of its own");
        let links = vec![Links { before: NONE, after: NONE }; places].into();
        Self { first: HashMap::new(), links }
    }

    /// Adds the session at `place`, which is in no list.
    pub(super) fn add(&mut self, client: u64, place: u16) {
        let after = self.first.insert(client, place).unwrap_or(NONE);
        self.set(place, |links| *links = Links { before: NONE, after });
        self.set(after, |links| links.before = place);
    }

    /// Removes the session at `place` from the list of its client.
    pub(super) fn remove(&mut self, client: u64, place: u16) {
        let Some(Links { before, after }) = self.links.get(usize::from(place)).copied() else {
            return;
        };
        match (before, after) {
            (NONE, NONE) => drop(self.first.remove(&client)),
            (NONE, after) => drop(self.first.insert(client, after)),
            (before, after) => self.set(before, |links| links.after = after),
        }
        self.set(after, |links| links.before = before);
    }

    /// The places of a client's sessions.
    pub(super) fn of(&self, client: u64) -> impl Iterator<Item = u16> + use<'_> {
        let first = self.first.get(&client).copied();
        std::iter::successors(first, |place| {
            let links = self.links.get(usize::from(*place))?;
            (links.after != NONE).then_some(links.after)
        })
    }

    fn set(&mut self, place: u16, change: impl FnOnce(&mut Links)) {
        if let Some(links) = self.links.get_mut(usize::from(place)) {
            change(links);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn a_client_finds_its_own_sessions_whatever_was_added_and_removed() {
        let mut dice = Rng::with_seed(37);
        let mut lists = SessionsOfClients::new(40);
        let mut all: Vec<(u64, u16)> = Vec::new();
        for _ in 0..5_000 {
            let place = dice.u16(..40);
            match all.iter().position(|(_, taken)| *taken == place) {
                Some(at) => {
                    let (client, place) = all.remove(at);
                    lists.remove(client, place);
                }
                None => {
                    let client = dice.u64(..5);
                    lists.add(client, place);
                    all.push((client, place));
                }
            }
            for client in 0..5 {
                let newest_first = all.iter().rev().filter(|(owner, _)| *owner == client);
                let expected: Vec<_> = newest_first.map(|(_, place)| *place).collect();
                assert_eq!(lists.of(client).collect::<Vec<_>>(), expected);
            }
        }
    }
}
