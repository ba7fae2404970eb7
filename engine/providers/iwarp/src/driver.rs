//! One shard's provider: the poll loop, doorbells and timers.

use crate::{
    Iwarp,
    accept::LISTENER_ID,
    close, cm,
    conn::{IwarpConn, IwarpShared, IwarpState},
    rx, siw,
    sock::Ready,
    tx,
};
use stag_pools::table::Key;
use stag_verbs::{Cause, Event, FabricFault, Time};

/// The look for input that a poll still has to make.
#[derive(Clone, Copy, Debug, Default)]
enum NextLook {
    /// It has looked.
    #[default]
    None,
    /// At the hot connection, or at all sockets if it is their turn.
    HotOrAll,
    /// At all sockets.
    All,
}

impl Iwarp {
    /// Rings the doorbells.
    #[inline]
    pub(crate) fn ring_all(&mut self) {
        if !self.posted.is_empty() {
            self.ring_posted();
        }
    }

    #[inline(never)]
    fn ring_posted(&mut self) {
        for place in 0..self.posted.len() {
            let Some(key) = self.posted.get(place).copied() else { break };
            if self.conns.get_mut(key).is_some_and(|conn| tx::send_copies(conn, &mut self.shared)) {
                continue; // the connection is as it was: there is nothing to settle
            }
            // A connection found broken is read once more, into the shared buffer.
            self.use_brought();
            self.serve(key, |conn, shared| {
                conn.is_posted = false;
                if let Some(link) = &mut conn.link {
                    link.queue.ring();
                    flush(conn, shared);
                }
            });
        }
        self.posted.clear();
    }

    /// Works for a connection, and notes the octets that are moved.
    pub(crate) fn serve(&mut self, key: Key, work: impl FnOnce(&mut IwarpConn, &mut IwarpShared)) {
        self.with(key, |conn, shared| {
            let before = octets_moved(shared);
            work(conn, shared);
            let octets = octets_moved(shared).saturating_sub(before);
            shared.moved.note(conn.qp, octets);
        });
    }

    /// Sends answers, Terminates and Reads that waited.
    fn answer_all(&mut self) {
        // The end of one may let another continue, which is then at the end of this list.
        let mut place = 0;
        while let Some(key) = self.answering.get(place).copied() {
            place += 1;
            self.serve(key, |conn, shared| {
                conn.is_listed = false;
                if conn.wants_flush {
                    flush(conn, shared);
                }
            });
        }
        self.answering.clear();
    }

    /// Continues connections with messages that had no receive.
    fn resume_all(&mut self) {
        if !std::mem::take(&mut self.shared.may_resume) || self.stalled.is_empty() {
            return;
        }
        for _ in 0..self.stalled.len() {
            let key = self.stalled.remove(0);
            self.serve(key, |conn, shared| {
                if std::mem::take(&mut conn.is_stalled) {
                    rx::use_input(conn, shared);
                }
            });
        }
    }

    #[inline]
    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
        if self.ended.is_none()
            && let Some(event) = self.shared.next_event()
        {
            return Some(self.hand_over(event));
        }
        if self.use_brought() {
            return self.poll_all(now, NextLook::None);
        }
        if !self.is_quiet(now) || self.shared.epoll.has_next() {
            return self.poll_all(now, NextLook::HotOrAll);
        }
        self.shared.may_resume = false; // nobody is stalled
        // After a look that found input, the engine rings before the next look.
        if std::mem::take(&mut self.is_fruitful) {
            return None;
        }
        match self.ask_hot() {
            Some(false) => None,
            Some(true) => self.poll_all(now, NextLook::None),
            None => self.poll_all(now, NextLook::All),
        }
    }

    /// Returns true if, once all events are reported, the only work is to look for input.
    #[inline]
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        now < self.quiet_until
    }

    /// Updates the time until which it is quiet.
    fn note_quiet(&mut self) {
        let owes_nothing =
            self.ended.is_none() && self.answering.is_empty() && self.stalled.is_empty();
        let is_quiet = owes_nothing && self.accept_at.is_none();
        self.quiet_until =
            if is_quiet { self.next_deadline.unwrap_or(Time(u64::MAX)) } else { Time(0) };
    }

    /// Works until there is an event, and looks for input at most once.
    fn poll_all(&mut self, now: Time, mut next_look: NextLook) -> Option<Event> {
        if let Some(conn) = self.ended.take().and_then(|key| self.conns.get_mut(key)) {
            conn.is_over = true;
        }
        if self.next_deadline.is_some_and(|deadline| deadline <= now) || self.accept_at.is_some() {
            self.expire(now);
        }
        loop {
            if let Some(event) = self.shared.next_event() {
                return Some(self.hand_over(event));
            }
            self.resume_all();
            if let Some((id, ready)) = self.shared.epoll.next() {
                self.handle_ready(id, ready);
            } else if !self.answering.is_empty() {
                self.answer_all();
            } else if self.shared.events.is_empty()
                // After a look that found input, the engine rings before the next look.
                && (std::mem::take(&mut self.is_fruitful)
                    || !self.look(std::mem::take(&mut next_look)))
            {
                self.note_quiet();
                return None;
            }
        }
    }

    fn hand_over(&mut self, event: Event) -> Event {
        self.is_fruitful = true;
        if let Event::Disconnected { qp, .. } = &event {
            self.ended = Some(qp.0);
            self.quiet_until = Time(0);
        }
        event
    }

    /// Looks for input.
    fn look(&mut self, at: NextLook) -> bool {
        match at {
            NextLook::None => false,
            NextLook::HotOrAll => self.ask_hot().unwrap_or_else(|| self.look_at_all()),
            NextLook::All => self.look_at_all(),
        }
    }

    /// Looks for ready sockets. Returns true if there is one.
    pub(crate) fn look_at_all(&mut self) -> bool {
        let IwarpShared { epoll, stats, .. } = &mut self.shared;
        epoll.look(stats)
    }

    /// Returns true if the next poll has nothing to do, according to the kernel.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.use_brought();
        let only = self.hot.only();
        self.cool();
        self.answer_all();
        self.is_fruitful = false;
        let has_work = !self.shared.events.is_empty()
            || self.shared.epoll.has_next()
            || (self.shared.may_resume && !self.stalled.is_empty());
        let is_idle = !has_work && !self.look_at_all();
        if is_idle {
            self.hot.expect(only);
        }
        is_idle
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.next_deadline.into_iter().chain(self.accept_at).min()
    }

    fn handle_ready(&mut self, id: u64, ready: Ready) {
        if id & LISTENER_ID == LISTENER_ID {
            return self.accept_peers((id & u64::from(u32::MAX)) as usize);
        }
        if ready.contains(Ready::IN) {
            self.note_ready(Key::from_bits(id));
        }
        self.serve(Key::from_bits(id), |conn, shared| {
            if matches!(conn.state, IwarpState::AwaitTcp { .. }) {
                return cm::tcp_ready(conn, shared);
            }
            if ready.intersects(Ready::IN | Ready::HUP | Ready::ERR | Ready::RDHUP) {
                rx::readable(conn, shared, ready);
            }
            if ready.contains(Ready::OUT) && conn.wants_out {
                flush(conn, shared);
            }
        });
    }

    /// Handles expired deadlines.
    fn expire(&mut self, now: Time) {
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            self.watch_listeners(Ready::IN);
        }
        if self.next_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.next_deadline = None;
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            // Also sets the earliest deadline of the remaining ones.
            self.with(key, |conn, shared| {
                if conn.deadline.is_some_and(|deadline| deadline <= now) {
                    give_up(conn, shared);
                }
            });
        }
    }
}

/// Octets that all connections have read and sent.
const fn octets_moved(shared: &IwarpShared) -> u64 {
    shared.stats.octets_in + shared.stats.octets_out
}

fn flush(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    conn.wants_flush = false;
    tx::flush(conn, shared);
}

fn give_up(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let cause = match conn.state {
        IwarpState::AwaitTerminateSent { cause } => cause,
        IwarpState::AwaitEnd | IwarpState::Dead => Cause::Local,
        IwarpState::AwaitSign { pause } => return siw::nudge(conn, shared, pause),
        _ => {
            // RFC 6581 §9.3 [6581-25]: a deviation: limits and timeouts send no Terminate
            shared.stats.handshakes.timed_out += 1;
            Cause::Fabric(FabricFault::TimedOut)
        }
    };
    close::end_now(conn, shared, cause);
}
