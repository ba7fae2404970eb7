//! The TCP part of a pass: accepts connections, and reads the sockets that `tcp/looks.rs` chooses.

use crate::{
    app::App,
    shard::Shard,
    tcp::{LISTENER, Surroundings},
};
use rustix::event::epoll;
use stag_pools::table::Key;
use stag_verbs::{Provider, Time};
use std::time::Duration;

impl<P: Provider, A: App> Shard<P, A> {
    /// Accepts connections, and reads and dispatches what arrived over TCP. Returns true if there
    /// was anything. `is_fabric_busy` means that the fabric had events in this pass.
    #[inline(never)]
    pub(crate) fn poll_streams(&mut self, now: Time, is_fabric_busy: bool) -> bool {
        self.end_slow_handshakes(now);
        self.end_silent_streams(now);
        // Output made since the latest pass is sent before anything is read.
        let sent = !self.streams.unsent.is_empty() && self.flush_streams();
        let mut resumed = false;
        if let Some(key) = self.streams.next_handshake(now, is_fabric_busy) {
            resumed = true;
            self.read_stream(key);
            // Even if nothing could be read, the turn is over.
            self.streams.handshakes.end_turn(now, Duration::ZERO);
        }
        for _ in 0..self.streams.resumable.len() {
            let Some(key) = self.streams.resumable.pop_front() else { break };
            resumed = true;
            self.resume_or_wait(key);
        }
        let streams = &mut self.streams;
        streams.wake_listener(now);
        if !streams.are_in_use() || now < streams.looks.at {
            return sent || resumed;
        }
        let found = match streams.next_asked() {
            Some(key) => self.read_stream(key),
            None => self.look_at_streams(now),
        };
        if found {
            self.streams.looks.note_moved(now);
        } else {
            if now >= self.streams.looks.quiet_at {
                self.streams.cool();
            }
            // While a reply is awaited, every pass looks.
            let is_waiting = self.streams.has_called && !self.core.requester.is_empty();
            self.streams.looks.plan(now, Surroundings { is_fabric_busy, is_waiting });
        }
        sent || resumed || found
    }

    /// Looks at all connections and the listener. Returns true if there was an event.
    fn look_at_streams(&mut self, now: Time) -> bool {
        if !self.streams.look_at_all() {
            return false;
        }
        let ready = std::mem::take(&mut self.streams.ready);
        for event in &ready {
            // The event is packed: its fields are copied out.
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                LISTENER => self.accept_streams(now),
                bits => {
                    let key = Key::from_bits(bits);
                    if flags.contains(epoll::EventFlags::IN) {
                        self.streams.note_ready(key);
                    }
                    self.handle_ready(key, flags);
                }
            }
        }
        self.streams.ready = ready;
        true
    }
}
