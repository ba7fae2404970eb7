//! The end of TCP connections without a first call: when it is overdue, and when a newcomer needs
//! their place.

use super::ACCEPTS_PER_PASS;
use crate::{app::App, shard::Shard};
use stag_pools::table::Key;
use stag_verbs::{Cause, Provider, Time};

impl<P: Provider, A: App> Shard<P, A> {
    /// Ends connections whose first call is overdue, a few in each pass.
    pub(super) fn end_silent_streams(&mut self, now: Time) {
        for _ in 0..ACCEPTS_PER_PASS {
            if self.streams.silent.due_at().is_none_or(|due| now < due) {
                return;
            }
            let Some(key) = self.streams.next_silent(Some(now)) else { return };
            self.read_stream(key);
            if !self.streams.prolong_first_call(key, now) {
                self.end_if_silent(key);
            }
        }
    }

    /// Makes room for a newcomer when all places are taken, by closing the connection that has been
    /// silent for the longest time.
    pub(super) fn make_room_for_stream(&mut self) {
        for _ in 0..ACCEPTS_PER_PASS {
            if self.streams.connections.len() < self.streams.connections.capacity() {
                return;
            }
            let Some(key) = self.streams.next_silent(None) else { return };
            self.read_stream(key);
            self.end_if_silent(key);
        }
    }

    /// Ends a connection without a call. The caller has read it before, because octets that arrived
    /// while this shard was busy count.
    fn end_if_silent(&mut self, key: Key) {
        if self.streams.connections.get(key).is_some_and(|stream| stream.is_silent()) {
            self.streams.stats.silent += 1;
            self.end_stream(key, Cause::Stalled);
        }
    }
}
