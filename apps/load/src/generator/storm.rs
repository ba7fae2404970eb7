//! Connections that last for one call: [`Workload::ConnStorm`](crate::Workload::ConnStorm).

use super::Generator;
use crate::latency::nanos;
use stag_client::Error;
use stag_engine::{Cx, PeerId, Time};
use stag_verbs::FabricFault;
use std::collections::{HashMap, VecDeque};

/// The connection of each place.
#[derive(Debug, Default)]
pub(super) struct Storm {
    /// By peer: its place, and whether its call is over.
    places: HashMap<PeerId, (u32, bool)>,
    /// Places whose connection is to be made, in order.
    dial: VecDeque<u32>,
    /// Places whose connection stands since the last pass.
    up: Vec<u32>,
    /// Places whose connection has ended.
    ended: Vec<u32>,
}

impl Storm {
    pub fn new(places: usize) -> Self {
        let room = || Vec::with_capacity(places);
        let dial = VecDeque::with_capacity(places);
        Self { places: HashMap::with_capacity(places), dial, up: room(), ended: room() }
    }

    /// A connection is to be made for a place.
    pub fn begin(&mut self, place: u32) {
        self.dial.push_back(place);
    }

    /// A place whose connection is to be made.
    pub fn next(&mut self) -> Option<u32> {
        self.dial.pop_front()
    }

    /// It is being made.
    pub fn note(&mut self, peer: PeerId, place: u32) {
        self.places.insert(peer, (place, false));
    }

    /// Its connection stands.
    pub fn handle_up(&mut self, peer: PeerId) {
        self.up.extend(self.places.get(&peer).map(|(place, _)| *place));
    }

    /// A place whose connection was established since the last pass.
    pub fn take_up(&mut self) -> Option<u32> {
        self.up.pop()
    }

    /// Calls that are not over.
    pub fn under_way(&self) -> usize {
        self.dial.len() + self.places.values().filter(|(_, is_over)| !is_over).count()
    }

    /// The call is over: the connection is ended.
    pub fn leave(&mut self, peer: PeerId) {
        if let Some((_, is_over)) = self.places.get_mut(&peer) {
            *is_over = true;
        }
    }

    /// Handles the end of a connection. Returns the place whose call was not over, if it ended too
    /// early.
    pub fn handle_down(&mut self, peer: PeerId) -> Option<u32> {
        let (place, is_over) = self.places.remove(&peer)?;
        if is_over {
            self.ended.push(place);
        }
        (!is_over).then_some(place)
    }

    /// A place whose connection has ended in order.
    pub fn take_ended(&mut self) -> Option<u32> {
        self.ended.pop()
    }
}

impl Generator {
    /// Advances connections: calls over the new ones, and frees the places of the ended ones.
    /// Returns their number.
    pub(super) fn storm_on(&mut self, cx: &mut Cx<'_>, now: Time) -> u64 {
        let mut count = 0;
        while let Some(index) = self.storm.as_mut().and_then(Storm::take_up) {
            count += 1;
            let Some(slot) = self.slots.get(index as usize).copied() else { continue };
            if slot.counts {
                self.second.1.connected(nanos(now.since(slot.sent)));
            }
            self.send(cx, index, slot.peer, slot.ask);
        }
        while let Some(index) = self.storm.as_mut().and_then(Storm::take_ended) {
            count += 1;
            if self.free.is_empty() {
                self.room_at = now;
            }
            self.free.push_back(index);
        }
        count
    }

    /// A place whose connection is to be made.
    pub(crate) fn next_connection(&mut self) -> Option<u32> {
        self.storm.as_mut()?.next()
    }

    /// Records the outcome of making the connection of a place.
    pub(crate) fn note_connection(&mut self, index: u32, peer: Result<PeerId, FabricFault>) {
        let Some(storm) = &mut self.storm else { return };
        match peer {
            Ok(peer) => {
                storm.note(peer, index);
                match self.peers.get_mut(index as usize) {
                    Some(place) => *place = peer,
                    // Places are used in order at first.
                    None => self.peers.push(peer),
                }
            }
            Err(fault) => self.finished.push((index, Err(Error::Fabric(fault)))),
        }
    }
}
