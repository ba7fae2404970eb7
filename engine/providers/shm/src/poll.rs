//! The poll: messages straight from the ring to the caller, everything else by its event.

use crate::{
    Shm,
    conn::State,
    record::NONSENSE,
    rx::{self, Found},
    tx,
};
use stag_verbs::{Event, Time};

/// Records in a row from one process while others may have said something.
const RECORDS_PER_TURN: usize = 32;
/// Records that one poll carries out when no event comes of them: a process may write them faster than they are read.
const RECORDS_PER_POLL: usize = 256;

impl Shm {
    /// The next event. Nearly always a message or nothing: both are found out by one look at each process's ring.
    #[inline]
    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
        if self.asleep || self.ended.is_some() || !self.shared.events.is_empty() || self.is_due(now) {
            return self.poll_all(now);
        }
        if self.in_turn >= RECORDS_PER_TURN {
            self.next_turn();
        }
        let (mut is_calm, receive_len) = (true, self.shared.receives.receive_len());
        for _ in 0..self.hot.len() {
            let Some(key) = self.hot.get(self.turn).copied() else { return self.poll_all(now) };
            let Some(link) = self.links.get_mut(key) else { return self.poll_all(now) };
            match rx::look(key, link, &self.conns, receive_len) {
                Found::Message(qp, front) => {
                    let Some(mut buf) = self.shared.receives.take_ready() else { return self.poll_all(now) };
                    rx::take(link, front, &mut buf, &mut self.shared);
                    self.in_turn += 1;
                    return Some(Event::Received { qp, buf, invalidated: None });
                }
                Found::Other => return self.poll_all(now),
                Found::Nothing => is_calm &= link.is_calm(),
            }
            self.next_turn();
        }
        if is_calm { None } else { self.poll_all(now) }
    }

    /// Whether sockets or deadlines have to be looked at.
    fn is_due(&self, now: Time) -> bool {
        now >= self.next_look || self.next_deadline.is_some_and(|at| at <= now)
    }

    /// Another process has its turn.
    #[inline]
    fn next_turn(&mut self) {
        let next = self.turn + 1;
        (self.turn, self.in_turn) = (if next < self.hot.len() { next } else { 0 }, 0);
    }

    /// The next event, whatever it is.
    #[inline(never)]
    fn poll_all(&mut self, now: Time) -> Option<Event> {
        self.wake_up();
        if let Some(key) = self.ended.take()
            && let Some(conn) = self.conns.get_mut(key)
        {
            conn.is_over = true;
            if conn.state == State::Dead {
                self.forget(key);
            }
        }
        // A process that always has a message keeps nobody waiting for longer than that.
        if self.is_due(now) {
            self.go_on();
            self.look_if_due(now);
        }
        let mut records = 0;
        loop {
            if let Some(event) = self.shared.next_event() {
                if let Event::Disconnected { qp, .. } = &event {
                    self.ended = Some(qp.0);
                }
                return Some(event);
            }
            let has_received = records < RECORDS_PER_POLL && self.receive_one();
            records += usize::from(has_received);
            if !has_received && !self.go_on() {
                return None;
            }
        }
    }

    /// Carries out one record of some link. False when there is none.
    fn receive_one(&mut self) -> bool {
        self.free_places();
        if self.in_turn >= RECORDS_PER_TURN {
            self.next_turn();
        }
        for _ in 0..self.hot.len() {
            let Some(key) = self.hot.get(self.turn).copied() else {
                self.next_turn(); // a link is gone
                continue;
            };
            let Some(link) = self.links.get_mut(key) else { return false };
            match rx::receive(key, link, &mut self.conns, &mut self.shared) {
                // The same link again: what it said belongs together.
                Ok(true) => {
                    self.in_turn += 1;
                    self.sweep_dead();
                    return true;
                }
                Ok(false) => self.next_turn(),
                Err(cause) => {
                    self.end_link(key, cause);
                    return true;
                }
            }
        }
        false
    }

    /// Nothing more has arrived: peers hear how far we read, and what waited for them goes on. True when something did.
    pub(crate) fn go_on(&mut self) -> bool {
        let mut has_moved = false;
        // From the last one on: one that ends moves only those that had their turn.
        for place in (0..self.hot.len()).rev() {
            let Some(key) = self.hot.get(place).copied() else { continue };
            let Some(link) = self.links.get_mut(key) else { continue };
            link.pay(&mut self.shared);
            let progress = tx::progress(link, &mut self.conns, &mut self.shared);
            let wants = !link.say.is_empty() || !link.waiting.is_empty();
            match progress {
                Ok(has_room) if wants && (has_room || !link.is_full) => {
                    has_moved = true;
                    self.flush_link(key);
                }
                Ok(has_room) => has_moved |= has_room,
                Err(_) => {
                    has_moved = true;
                    self.end_link(key, NONSENSE);
                }
            }
        }
        has_moved && !self.shared.events.is_empty()
    }
}
