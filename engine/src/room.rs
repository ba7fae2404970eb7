//! Memory in which a called peer puts a result.

use stag_pools::Buf;
use std::ops::Deref;

/// Memory for a peer to write, and for the app that called it to read; made by
/// [`Cx::room`](crate::Cx::room).
///
/// A device does not tell what a peer wrote. So that no octet of an earlier owner is taken for the
/// peer's, a room is cleared before a device opens it, but for what the same peer wrote there
/// before. For that the app can only read it.
#[derive(Debug)]
pub struct Room(pub(crate) Buf);

impl Room {
    /// An ordinary buffer with the same content.
    pub fn into_buf(self) -> Buf {
        self.0.forget_writer();
        self.0
    }

    /// Puts `octets` in place of its content: those of a result that came inline. False, and
    /// nothing is changed, when there is no room for them.
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
