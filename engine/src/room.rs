//! Buffers for the results of calls, written by the called peer.

use stag_pools::Buf;
use std::ops::Deref;

/// Memory for a peer to write, and for the app that called it to read; made by
/// [`Cx::room`](crate::Cx::room).
///
/// A device does not report how much a peer wrote. So that data of an earlier owner is never taken
/// for the peer's, a room is cleared before a device exposes it, except for octets that the same
/// peer wrote there before. For this reason the app can only read it.
#[derive(Debug)]
pub struct Room(pub(crate) Buf);

impl Room {
    /// Returns an ordinary buffer with the same content.
    pub fn into_buf(self) -> Buf {
        self.0.forget_writer();
        self.0
    }

    /// Replaces the content by `octets`, for a result that came inline. Returns false, and changes
    /// nothing, if they do not fit.
    pub fn replace(&mut self, octets: &[u8]) -> bool {
        if octets.len() > self.0.capacity() {
            return false;
        }
        self.0.forget_writer();
        self.0.reset(0);
        self.0.append(octets).is_ok()
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
