//! Intent: the words that version 2 puts before the lists of a message (draft 001 §4.1).

/// Type of an RPC message: call or reply (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// CALL.
    Call,
    /// REPLY.
    Reply,
}

impl MessageType {
    /// The type for this word, in a header or in an RPC message.
    #[inline]
    pub(super) const fn from_word(word: u32) -> Option<Self> {
        match word {
            0 => Some(Self::Call),
            1 => Some(Self::Reply),
            _ => None,
        }
    }
}

/// Direction and key to invalidate, which precede the lists of a version 2 message (draft 001
/// §4.1). Version 1, and the chunk lists of draft 000, have no such fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Call or reply: `rdma_direction`.
    pub message_type: MessageType,
    /// The handle that the reply invalidates, zero for none: `rdma_inv_handle`. A reply copies that
    /// of its call.
    pub inv_handle: u32,
}

impl Intent {
    /// Octets on the wire.
    pub const LEN: usize = 8;
}
