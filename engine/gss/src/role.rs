//! The two ends of a context, and the key usages of their tokens (RFC 4121 §2).

/// Role in the creation of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GssRole {
    /// The end that asked for the context: the RPC client.
    Initiator,
    /// The end that granted it: the RPC server.
    Acceptor,
}

impl GssRole {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }

    /// Key usages of the tokens that this end sends: wrapping and signing.
    pub(crate) const fn usages(self) -> (u32, u32) {
        match self {
            // RFC 4121 §2 [4121-1]: 22 and 23 for the acceptor, 24 and 25 for the initiator
            Self::Acceptor => (22, 23),
            Self::Initiator => (24, 25),
        }
    }
}
