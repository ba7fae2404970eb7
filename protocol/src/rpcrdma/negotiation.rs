//! Negotiation of the version that the two ends of a connection speak (draft 000 §5).
//!
//! A client that speaks version 2 sends one version 2 message, alone and of at most 1,024 octets. A
//! reply settles the version, and so does a call of the server that arrives first. After an
//! ERR_VERS that covers version 1 the client sends the same message again as version 1, on the same
//! connection and with the same XID. A server takes the version of the first message it can read,
//! and keeps to it: both directions of a connection have one version (RFC 8167 §5.1), and a reply
//! has the version of its call (draft 000 §5.3).

use core::time::Duration;

use super::{Connection, Dialects, Side, Xid, v1, v2};

/// The chunk lists of version 2. Nothing in a message distinguishes them, so both ends agree while
/// they connect ([`Versions::agreed`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version2 {
    /// [`v2::Directed`]: chunks in both directions, and the key to invalidate in the header (draft
    /// 001 §4.1).
    #[default]
    Directed,
    /// [`v2::Undirected`]: chunks in the forward direction only, and no remote invalidation (draft
    /// 000 §4.2).
    Undirected,
}

/// The versions that an end speaks: its configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 only.
    #[default]
    One,
    /// Version 2 only.
    Two(Version2),
    /// Both: version 2 with a peer that speaks it, else version 1.
    Both(Version2),
    /// Version 2 only, as [`Version2::Directed`] with every peer. Nothing is announced, so private
    /// data are the eight octets of RFC 8797 §4 and no more.
    TwoDirected,
    /// Both, version 2 likewise as [`Version2::Directed`] with every peer.
    BothDirected,
}

/// One version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 1.
    One,
    /// Version 2.
    Two(Version2),
}

impl Version {
    /// The version word.
    pub const fn number(self) -> u32 {
        match self {
            Self::One => v1::VERSION,
            Self::Two(_) => v2::VERSION,
        }
    }

    /// Octets of the shortest header of a call.
    pub const fn header_len_min(self) -> usize {
        match self {
            Self::One => v1::HEADER_LEN_MIN,
            Self::Two(Version2::Directed) => <v2::Directed as v2::Dialect>::HEADER_LEN_MIN,
            Self::Two(Version2::Undirected) => <v2::Undirected as v2::Dialect>::HEADER_LEN_MIN,
        }
    }
}

impl Versions {
    /// Returns true if version 2 is among them: then receives hold at least 4,096 octets (draft 000
    /// §2.3).
    pub const fn include_two(self) -> bool {
        !matches!(self, Self::One)
    }

    /// The dialects that an end that speaks these versions announces.
    pub const fn dialects(self) -> Dialects {
        Dialects {
            directed: matches!(
                self,
                Self::Two(Version2::Directed) | Self::Both(Version2::Directed)
            ),
        }
    }

    /// These versions, towards a peer that announced `theirs`: version 2 is draft 000's with a peer
    /// that announced no more, unless the configuration says otherwise.
    pub const fn agreed(self, theirs: Dialects) -> Self {
        // draft 000 §4.2 [v2-21]: a peer that knows only the draft gets no other fields
        match self {
            Self::Two(Version2::Directed) if !theirs.directed => Self::Two(Version2::Undirected),
            Self::Both(Version2::Directed) if !theirs.directed => Self::Both(Version2::Undirected),
            Self::TwoDirected => Self::Two(Version2::Directed),
            Self::BothDirected => Self::Both(Version2::Directed),
            other => other,
        }
    }
}

/// State of the negotiation, named by the event that it awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NegotiationState {
    /// The first message: to be sent by a client, to be received by a server.
    AwaitFirst(Version2),
    /// At a client: the answer to the version 2 message of this XID.
    AwaitAnswer(Xid, Version2),
    /// At a client: the first version 1 reply, after ERR_VERS.
    AwaitVersion1,
    /// At a client: that answer, which alone states the number of credits. The version is settled,
    /// because the server called in it.
    AwaitGrant(Version2),
    /// Nothing: the version is settled.
    Settled(Version),
}

/// Consequence of an ERR_VERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The call goes again, as version 1.
    Again,
    /// The call failed.
    Failed,
}

/// The negotiation of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Negotiation {
    /// The configured versions: the range of each ERR_VERS, before and after one is settled.
    versions: Versions,
    state: NegotiationState,
}

impl Negotiation {
    pub(super) const fn new(side: Side, versions: Versions) -> Self {
        let two = match versions {
            Versions::One => {
                return Self { versions, state: NegotiationState::Settled(Version::One) };
            }
            Versions::Two(two) | Versions::Both(two) => two,
            Versions::TwoDirected | Versions::BothDirected => Version2::Directed,
        };
        let only = matches!(versions, Versions::Two(_) | Versions::TwoDirected);
        let state = match side {
            Side::Server if only => NegotiationState::Settled(Version::Two(two)),
            Side::Server | Side::Client => NegotiationState::AwaitFirst(two),
        };
        Self { versions, state }
    }

    /// The version that both ends keep to from now on.
    #[inline]
    pub(super) const fn settled(&self) -> Option<Version> {
        match self.state {
            NegotiationState::Settled(version) => Some(version),
            NegotiationState::AwaitGrant(two) => Some(Version::Two(two)),
            NegotiationState::AwaitFirst(_)
            | NegotiationState::AwaitAnswer(..)
            | NegotiationState::AwaitVersion1 => None,
        }
    }

    /// Returns true once the version is settled: the first message was answered, or the
    /// configuration leaves no choice.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.state, NegotiationState::Settled(_))
    }

    /// The version of what goes out. A server sends nothing before it is settled.
    // RFC 8167 §5.1, §5.2 [8167-2]: reverse calls have the version of forward calls
    // RFC 8167 §5.1, §5.2 [8167-5]: a reverse reply has the version of its call
    // draft 002 §5.1 [bidir-2]: reverse calls have the version of forward calls
    // draft 002 §5.1 [bidir-5]: a reverse reply has the version of its call
    #[inline]
    pub(super) const fn sends(&self) -> Version {
        match self.state {
            NegotiationState::AwaitFirst(two)
            | NegotiationState::AwaitAnswer(_, two)
            | NegotiationState::AwaitGrant(two) => Version::Two(two),
            NegotiationState::AwaitVersion1 => Version::One,
            NegotiationState::Settled(version) => version,
        }
    }

    /// The version by which a message with this version word is read; that version's reader refuses
    /// any other word.
    pub(super) const fn reads(&self, side: Side, word: Option<u32>) -> Version {
        match (self.state, side, word) {
            // draft 000 §5.1 [v2-22]: the first message of version 2 is answered in version 2
            (NegotiationState::AwaitFirst(two), Side::Server, Some(v2::VERSION)) => {
                Version::Two(two)
            }
            (NegotiationState::AwaitFirst(_), Side::Server, _) => Version::One,
            _ => self.sends(),
        }
    }

    /// The lowest and the highest version that an ERR_VERS names: the supported range, also
    /// when one version is settled (RFC 8166 §4.5.1, draft 000 §5.2).
    pub(super) const fn range(&self) -> (u32, u32) {
        match self.versions {
            Versions::One => (v1::VERSION, v1::VERSION),
            Versions::Two(_) | Versions::TwoDirected => (v2::VERSION, v2::VERSION),
            Versions::Both(_) | Versions::BothDirected => (v1::VERSION, v2::VERSION),
        }
    }

    /// True if an ERR_VERS may settle the connection on version 1.
    const fn has_one(&self) -> bool {
        self.range().0 == v1::VERSION
    }

    /// A server read a message in this version.
    pub(super) const fn handle_read(&mut self, side: Side, version: Version) {
        if let (NegotiationState::AwaitFirst(_), Side::Server) = (self.state, side) {
            // draft 000 §5.3 [v2-14]: a reply has the version of its call
            self.state = NegotiationState::Settled(version);
        }
    }

    /// Handles a call of the peer. A server calls in the version of the first message, once it
    /// received that: so it speaks version 2, though the reply is still to come, and our own reply
    /// may have the sizes of that version.
    pub(super) const fn handle_called(&mut self) {
        if let NegotiationState::AwaitAnswer(_, two) = self.state {
            self.state = NegotiationState::AwaitGrant(two);
        }
    }

    /// Handles a call of ours. There is one credit, so it is the only one.
    pub(super) const fn handle_call(&mut self, side: Side, xid: Xid) {
        if let (
            NegotiationState::AwaitFirst(two) | NegotiationState::AwaitAnswer(_, two),
            Side::Client,
        ) = (self.state, side)
        {
            self.state = NegotiationState::AwaitAnswer(xid, two);
        }
    }

    /// A reply came, and no error.
    pub(super) fn handle_reply(&mut self, xid: Xid) {
        match self.state {
            // draft 000 §5.1 [v2-23]: from that answer on 4096 octets or more are inline
            NegotiationState::AwaitAnswer(first, two) if first == xid => {
                self.state = NegotiationState::Settled(Version::Two(two))
            }
            NegotiationState::AwaitVersion1 => self.state = NegotiationState::Settled(Version::One),
            NegotiationState::AwaitGrant(two) => {
                self.state = NegotiationState::Settled(Version::Two(two))
            }
            NegotiationState::AwaitFirst(_)
            | NegotiationState::AwaitAnswer(..)
            | NegotiationState::Settled(_) => {}
        }
    }

    /// An ERR_VERS came.
    pub(super) fn handle_err_vers(&mut self, xid: Xid, low: u32, high: u32) -> Verdict {
        match self.state {
            NegotiationState::AwaitAnswer(first, _)
                // draft 000 §5.2 [v2-24]: the next version is from the range of ERR_VERS
                if first == xid && self.has_one() && (low..=high).contains(&v1::VERSION) =>
            {
                // draft 000 §5.2 [v2-11]: after ERR_VERS the connection goes on in version 1
                // draft 000 §5.2 [v2-25]: version 1 and its threshold hold to the end
                self.state = NegotiationState::AwaitVersion1;
                Verdict::Again
            }
            _ => self.handle_error(xid),
        }
    }

    /// Handles another error. It settles nothing: the next call is the first one again.
    pub(super) fn handle_error(&mut self, xid: Xid) -> Verdict {
        match self.state {
            NegotiationState::AwaitAnswer(first, two) if first == xid => {
                self.state = NegotiationState::AwaitFirst(two)
            }
            _ => {}
        }
        Verdict::Failed
    }

    /// True if the loss of the connection at this moment leads to version 1.
    pub(super) const fn may_fall_back(&self) -> bool {
        self.has_one() && matches!(self.state, NegotiationState::AwaitAnswer(..))
    }

    /// Returns true if a connection that ends in this state may have failed because of version 2
    /// (draft 000 §5.2).
    const fn is_under_way(&self) -> bool {
        matches!(self.state, NegotiationState::AwaitAnswer(..) | NegotiationState::AwaitVersion1)
    }
}

/// Memory of one peer's address that lasts from one connection to the next. The connecting side
/// keeps it.
///
/// Time is counted from any origin, the same in all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerMemory {
    version1_until: Option<Duration>,
}

impl PeerMemory {
    /// Time for which a peer counts as one that speaks version 1 only.
    pub const VERSION1_FOR: Duration = Duration::from_secs(600);

    /// Nothing is known.
    pub const fn new() -> Self {
        Self { version1_until: None }
    }

    /// The configured versions to try with this peer.
    pub fn versions(&self, configured: Versions, now: Duration) -> Versions {
        match configured {
            Versions::Both(_) if self.version1_until.is_some_and(|until| now < until) => {
                Versions::One
            }
            other => other,
        }
    }

    /// Handles the end of a connection. One that is lost between the first version 2 message and
    /// the first reply marks the peer (draft 000 §5.2). Otherwise a peer that ends such connections
    /// would never be reached.
    pub fn handle_lost(&mut self, connection: &Connection, now: Duration) {
        // draft 000 §5.2 [v2-12]: a connection lost while negotiating counts as version 1
        if connection.negotiation().is_under_way() {
            self.version1_until = Some(now.saturating_add(Self::VERSION1_FOR));
        }
    }
}
