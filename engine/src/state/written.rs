//! Room for short calls that are written directly into the send buffer.

use crate::{
    call::Token,
    short_send::{SHORT_ROOM, WRITTEN_MAX},
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::Xid;
use stag_verbs::Time;

/// Room for such a message, after room for its header.
pub(crate) type WrittenRoom = [u8; SHORT_ROOM + WRITTEN_MAX];
/// The room without a message.
pub(crate) const WRITTEN_ROOM: WrittenRoom = [0; SHORT_ROOM + WRITTEN_MAX];

/// The next free entry, for a call whose message is being written.
#[derive(Debug)]
pub(crate) struct NextCall<'a> {
    pub(crate) key: Key,
    pub(crate) xid: Xid,
    /// Room for its message.
    pub(crate) room: &'a mut [u8],
}

/// A call whose message is in the room of the next entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenCall {
    /// That entry.
    pub(crate) key: Key,
    pub(crate) xid: Xid,
    /// Octets of the message.
    pub(crate) len: usize,
    pub(crate) token: Token,
    pub(crate) reply_max: usize,
    pub(crate) deadline: Time,
}
