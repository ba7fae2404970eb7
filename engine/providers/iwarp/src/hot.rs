//! The hot connection: if only one connection is busy, its socket is read directly.
//!
//! Using epoll would take one more system call for each message, and more time for each send in the
//! peer's kernel, which on loopback is this one. So epoll does not watch such a connection for
//! input until another one has some, or the shard is about to sleep.
//!
//! If only one connection had input before a sleep, it is read once after the sleep, before epoll
//! is asked: a wake-up does not identify the connection, and it is nearly always the same one.

use crate::{
    Iwarp,
    conn::{IwarpConn, IwarpState},
    input::{Hot, STREAK},
    rx,
    sock::SocketResult,
};
use stag_pools::table::Key;

impl Iwarp {
    /// Notes that epoll reported input on `key`.
    pub(crate) fn note_ready(&mut self, key: Key) {
        if self.hot.latest == Some(key) {
            self.hot.streak = self.hot.streak.saturating_add(1);
        } else {
            let is_mixed = self.hot.is_mixed || self.hot.latest.is_some();
            self.cool();
            self.hot = Hot { latest: Some(key), is_mixed, ..Hot::default() };
        }
        if self.hot.streak == STREAK {
            let heat = |conn: &mut IwarpConn, _: &mut _| {
                conn.is_hot = matches!(conn.state, IwarpState::Established);
                conn.is_hot
            };
            if self.with(key, heat) != Some(true) {
                self.hot.streak = 0;
            }
        }
    }

    /// Ends the hot state.
    #[cold]
    pub(crate) fn cool(&mut self) {
        let Some(key) = self.hot.latest.take() else { return };
        self.hot = Hot::default();
        if self.conns.get(key).is_some_and(|conn| conn.is_hot) {
            self.with(key, |conn, shared| {
                conn.is_hot = false;
                shared.output_spares.take_back(&mut conn.output);
            });
        }
    }

    /// Reads the hot connection, if it is not time to look at all others. Returns true if octets
    /// arrived, and `None` if a look is due. Finding nothing costs one system call and little else.
    #[inline]
    pub(crate) fn ask_hot(&mut self) -> Option<bool> {
        let key = self.hot.ask()?;
        let is_ready = |conn: &IwarpConn| {
            conn.is_hot && !conn.is_stalled && matches!(conn.state, IwarpState::Established)
        };
        let Some(conn) = self.conns.get_mut(key).filter(|conn| is_ready(conn)) else {
            self.cool();
            return None;
        };
        let fetched = rx::fetch(conn, &mut self.shared);
        if fetched == SocketResult::WouldBlock {
            return Some(false); // the connection is as it was: there is nothing to settle
        }
        self.use_fetched(key, fetched);
        Some(true)
    }

    /// Out of line, so that the path without input stays short.
    #[inline(never)]
    pub(crate) fn use_fetched(&mut self, key: Key, fetched: SocketResult) {
        let octets = if let SocketResult::Octets(octets) = fetched { octets } else { 0 };
        self.serve(key, |conn, shared| {
            shared.moved.note(conn.qp, octets as u64);
            rx::use_fetched(conn, shared, fetched);
        });
    }
}
