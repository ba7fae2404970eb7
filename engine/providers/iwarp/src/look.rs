//! Messages reported by a look: directly from the shared buffer, without a receive and without an
//! event.
//!
//! One read brings many FPDUs. A look takes the first one if it is the next Send of its connection,
//! and leaves the rest in the buffer for the next look. Any other FPDU in front is left to the next
//! poll, which uses everything that the read brought. Until then nothing else is read.

use crate::{
    Iwarp,
    conn::IwarpShared,
    input::Brought,
    rx,
    sock::{Ready, SocketResult},
};
use stag_pools::table::Key;
use stag_verbs::{Look, Looked, Time};

/// Result of a read that a look makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Brings {
    /// Octets, which may begin with a message.
    Octets,
    /// Nothing has arrived.
    Nothing,
    /// An event for the next poll.
    Other,
}

impl Iwarp {
    /// Finds a message, or nothing, as [`poll_once`](Self::poll_once) does; everything else is left
    /// to that.
    #[inline(always)]
    pub(crate) fn look_once(&mut self, now: Time, room: &mut [u8]) -> Looked {
        self.shared.now = now;
        let may_look =
            self.is_quiet(now) && self.shared.events.is_empty() && self.shared.receives.is_ready();
        if !may_look {
            return Look::Other.into();
        }
        if self.brought.octets.is_empty() {
            let found = self.bring();
            if found != Brings::Octets {
                return if found == Brings::Nothing { Look::Nothing } else { Look::Other }.into();
            }
        }
        self.look_in_front(room).unwrap_or(Look::Other.into())
    }

    /// The message in front of the octets read. `None` if they are for the poll.
    #[inline(always)]
    fn look_in_front(&mut self, room: &mut [u8]) -> Option<Looked> {
        let Self { conns, shared, brought, .. } = self;
        let IwarpShared { staging, stats, receives, epoll, .. } = shared;
        let conn = brought.from.and_then(|key| conns.get_mut(key));
        let octets = staging.get(brought.octets.clone()).unwrap_or_default();
        let conn = conn?;
        let send = rx::next_send(conn, receives.receive_len(), octets)?;
        let len = send.len();
        let room = room.get_mut(..len)?;
        // RFC 5044 §4.4, §7.1.1, §6 [5044-31]: a ULPDU is delivered only after its CRC is verified
        if !send.copy_to(room) {
            return None;
        }
        brought.octets.start += send.consumed;
        conn.took_next_send(stats, len);
        // Before a ring no other connection is read: the latest read brought everything there was.
        self.is_fruitful = !brought.octets.is_empty() || epoll.has_next();
        if self.is_fruitful {
            return Some(Look::Message { qp: conn.qp, len }.into());
        }
        Some(Looked::last_message(conn.qp, len))
    }

    /// Reads the input of the next ready connection, without using it.
    #[inline(always)]
    fn bring(&mut self) -> Brings {
        // After a look that found input nothing is read, and no turn is used up.
        if !self.is_fruitful
            && let Some(key) = self.hot.ask()
        {
            return self.bring_from(key);
        }
        self.bring_any()
    }

    /// The same if it is not simply the hot connection's turn.
    #[inline(never)]
    fn bring_any(&mut self) -> Brings {
        if !self.shared.epoll.has_next() {
            // After a look that found input, the engine rings before the next look.
            if std::mem::take(&mut self.is_fruitful) || !self.look_at_all() {
                return Brings::Nothing;
            }
        }
        self.bring_ready()
    }

    /// The same for the connections that epoll found ready.
    fn bring_ready(&mut self) -> Brings {
        while let Some((id, ready)) = self.shared.epoll.peek() {
            let key = Key::from_bits(id);
            // Listeners, ends and errors are for the poll.
            if ready != Ready::IN || !self.conns.get(key).is_some_and(|conn| conn.may_bring()) {
                return Brings::Other;
            }
            self.shared.epoll.next();
            self.note_ready(key);
            if let Some(conn) = self.conns.get(key) {
                conn.prefetch(); // in a crowd none of it is in a cache
            }
            match self.bring_from(key) {
                Brings::Nothing => {}
                found => return found,
            }
        }
        Brings::Nothing
    }

    /// The same for this connection.
    #[inline(always)]
    fn bring_from(&mut self, key: Key) -> Brings {
        let Some(conn) = self.conns.get_mut(key) else { return Brings::Other };
        if !conn.may_bring() {
            return Brings::Other;
        }
        match rx::fetch_between(conn, &mut self.shared) {
            SocketResult::WouldBlock => Brings::Nothing, // the connection is as it was
            SocketResult::Octets(octets) => {
                self.brought = Brought { from: Some(key), octets: 0..octets };
                Brings::Octets
            }
            fetched => {
                self.use_fetched(key, fetched);
                Brings::Other
            }
        }
    }

    /// Uses octets that looks have left, as polls do, before anything else is read. Returns true if
    /// there were any.
    #[inline]
    pub(crate) fn use_brought(&mut self) -> bool {
        let is_left = !self.brought.octets.is_empty();
        if is_left {
            self.use_left();
        }
        is_left
    }

    #[inline(never)]
    fn use_left(&mut self) {
        let Brought { from, octets } = std::mem::take(&mut self.brought);
        if let Some(key) = from {
            self.with(key, |conn, shared| {
                shared.moved.note(conn.qp, octets.len() as u64);
                rx::use_staged(conn, shared, octets);
            });
        }
    }
}
