//! Which version the two ends of a connection speak (draft 000 §5).
//!
//! A client that speaks version 2 sends one version 2 message, alone and of at most 1,024 octets. A reply settles it, and so does
//! a call of the server that comes before. An ERR_VERS that covers version 1 sends the same message again as version 1, on the same
//! connection and with the same XID. A server takes the version of the first message it can read, and keeps to it: both directions
//! of a connection have one version (RFC 8167 §5.1), and a reply has the version of its call (draft 000 §5.3).

use core::time::Duration;

use super::{Connection, Dialects, Side, Xid, v1, v2};

/// The chunk lists of version 2. Nothing in a message tells them apart, so both ends agree while they connect
/// ([`Versions::agreed`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version2 {
    /// [`v2::Directed`]: chunks in both directions, and the key to invalidate in the header (draft 001 §4.1).
    #[default]
    Directed,
    /// [`v2::Plain`]: chunks in the forward direction only, and no remote invalidation (draft 000 §4.2).
    Plain,
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
            Self::Two(Version2::Plain) => <v2::Plain as v2::Dialect>::HEADER_LEN_MIN,
        }
    }
}

impl Versions {
    /// Whether one of them is version 2: then receives hold at least 4,096 octets (draft 000 §2.3).
    pub const fn include_two(self) -> bool {
        matches!(self, Self::Two(_) | Self::Both(_))
    }

    /// The dialects that an end that speaks these versions announces.
    pub const fn dialects(self) -> Dialects {
        Dialects { directed: matches!(self, Self::Two(Version2::Directed) | Self::Both(Version2::Directed)) }
    }

    /// These versions, towards a peer that announced `theirs`: version 2 is draft 000's with one that did not announce more.
    pub const fn agreed(self, theirs: Dialects) -> Self {
        // draft 000 §4.2 [v2-21]
        match self {
            Self::Two(Version2::Directed) if !theirs.directed => Self::Two(Version2::Plain),
            Self::Both(Version2::Directed) if !theirs.directed => Self::Both(Version2::Plain),
            other => other,
        }
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first message: to be sent by a client, to be received by a server.
    AwaitFirst(Version2),
    /// At a client: the answer to the version 2 message of this XID.
    AwaitAnswer(Xid, Version2),
    /// At a client: the first version 1 reply, after ERR_VERS.
    AwaitVersion1,
    /// At a client: that answer, which alone says how many credits there are. The version is settled, for the server called in it.
    AwaitGrant(Version2),
    /// Nothing: the version is settled.
    Settled(Version),
}

/// What an ERR_VERS means.
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
    /// Whether an ERR_VERS may end in version 1.
    one: bool,
    state: State,
}

impl Negotiation {
    pub(super) const fn new(side: Side, versions: Versions) -> Self {
        match (versions, side) {
            (Versions::One, _) => Self { one: true, state: State::Settled(Version::One) },
            (Versions::Both(two), _) => Self { one: true, state: State::AwaitFirst(two) },
            (Versions::Two(two), Side::Client) => Self { one: false, state: State::AwaitFirst(two) },
            (Versions::Two(two), Side::Server) => {
                Self { one: false, state: State::Settled(Version::Two(two)) }
            }
        }
    }

    /// The version that both ends keep to from now on.
    #[inline]
    pub(super) const fn settled(&self) -> Option<Version> {
        match self.state {
            State::Settled(version) => Some(version),
            State::AwaitGrant(two) => Some(Version::Two(two)),
            State::AwaitFirst(_) | State::AwaitAnswer(..) | State::AwaitVersion1 => None,
        }
    }

    /// Whether the first message was answered, or there is none.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.state, State::Settled(_))
    }

    /// The version of what goes out. A server sends nothing before it is settled.
    // RFC 8167 §5.1, §5.2 [8167-2] [8167-5], draft 002 §5.1 [bidir-2] [bidir-5]
    #[inline]
    pub(super) const fn sends(&self) -> Version {
        match self.state {
            State::AwaitFirst(two) | State::AwaitAnswer(_, two) | State::AwaitGrant(two) => Version::Two(two),
            State::AwaitVersion1 => Version::One,
            State::Settled(version) => version,
        }
    }

    /// The version by which a message with this version word is read; another one is refused by its reader.
    pub(super) const fn reads(&self, side: Side, word: Option<u32>) -> Version {
        match (self.state, side, word) {
            // draft 000 §5.1 [v2-22]
            (State::AwaitFirst(two), Side::Server, Some(v2::VERSION)) => Version::Two(two),
            (State::AwaitFirst(_), Side::Server, _) => Version::One,
            _ => self.sends(),
        }
    }

    /// The lowest and the highest version that an ERR_VERS names.
    pub(super) const fn range(&self) -> (u32, u32) {
        match self.state {
            State::AwaitFirst(_) => (v1::VERSION, v2::VERSION),
            _ => (self.sends().number(), self.sends().number()),
        }
    }

    /// A server read a message in this version.
    pub(super) const fn handle_read(&mut self, side: Side, version: Version) {
        if let (State::AwaitFirst(_), Side::Server) = (self.state, side) {
            // draft 000 §5.3 [v2-14]
            self.state = State::Settled(version);
        }
    }

    /// A call of the peer came. A server calls in the version of the first message, once it took that: so it speaks version 2,
    /// though the reply is still to come, and our own reply may have the sizes of that version.
    pub(super) const fn handle_called(&mut self) {
        if let State::AwaitAnswer(_, two) = self.state {
            self.state = State::AwaitGrant(two);
        }
    }

    /// A call of ours goes out. There is one credit, so it is the only one.
    pub(super) const fn handle_call(&mut self, side: Side, xid: Xid) {
        if let (State::AwaitFirst(two) | State::AwaitAnswer(_, two), Side::Client) = (self.state, side) {
            self.state = State::AwaitAnswer(xid, two);
        }
    }

    /// A reply came, and no error.
    pub(super) fn handle_reply(&mut self, xid: Xid) {
        match self.state {
            // draft 000 §5.1 [v2-23]
            State::AwaitAnswer(first, two) if first == xid => self.state = State::Settled(Version::Two(two)),
            State::AwaitVersion1 => self.state = State::Settled(Version::One),
            State::AwaitGrant(two) => self.state = State::Settled(Version::Two(two)),
            State::AwaitFirst(_) | State::AwaitAnswer(..) | State::Settled(_) => {}
        }
    }

    /// An ERR_VERS came.
    pub(super) fn handle_err_vers(&mut self, xid: Xid, low: u32, high: u32) -> Verdict {
        match self.state {
            State::AwaitAnswer(first, _)
                // draft 000 §5.2 [v2-24]
                if first == xid && self.one && (low..=high).contains(&v1::VERSION) =>
            {
                // draft 000 §5.2 [v2-11]
                // draft 000 §5.2 [v2-25]
                self.state = State::AwaitVersion1;
                Verdict::Again
            }
            _ => self.handle_error(xid),
        }
    }

    /// Another error came. It settles nothing: the next call is the first one again.
    pub(super) fn handle_error(&mut self, xid: Xid) -> Verdict {
        match self.state {
            State::AwaitAnswer(first, two) if first == xid => self.state = State::AwaitFirst(two),
            _ => {}
        }
        Verdict::Failed
    }

    /// True if an end of the connection at this moment leads to version 1.
    pub(super) const fn may_fall_back(&self) -> bool {
        self.one && matches!(self.state, State::AwaitAnswer(..))
    }

    /// Whether a connection that ends here failed because of version 2, for all one can know (draft 000 §5.2).
    const fn is_under_way(&self) -> bool {
        matches!(self.state, State::AwaitAnswer(..) | State::AwaitVersion1)
    }
}

/// What is remembered of one peer's address from one connection to the next. It belongs to whoever connects.
///
/// Time is counted from any origin, the same in all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerMemory {
    version1_until: Option<Duration>,
}

impl PeerMemory {
    /// How long a peer is taken for one that speaks version 1 only.
    pub const VERSION1_FOR: Duration = Duration::from_secs(600);

    /// Nothing is known.
    pub const fn new() -> Self {
        Self { version1_until: None }
    }

    /// The versions to try with this peer, of those that are configured.
    pub fn versions(&self, configured: Versions, now: Duration) -> Versions {
        match configured {
            Versions::Both(_) if self.version1_until.is_some_and(|until| now < until) => Versions::One,
            other => other,
        }
    }

    /// The connection is gone. One that is lost between the first version 2 message and the first reply marks the peer
    /// (draft 000 §5.2): else a peer that ends such connections would never be reached.
    pub fn handle_lost(&mut self, connection: &Connection, now: Duration) {
        // draft 000 §5.2 [v2-12]
        if connection.negotiation().is_under_way() {
            self.version1_until = Some(now.saturating_add(Self::VERSION1_FOR));
        }
    }
}
