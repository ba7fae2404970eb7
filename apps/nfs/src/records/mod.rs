//! Persistent records of clients: which of them may reclaim their state after a restart (RFC 8881
//! §8.4.2–8.4.3).
//!
//! | when | [`RecordChange`] | stable before |
//! |---|---|---|
//! | the first OPEN of a client that is not recorded | `Complete` | its reply |
//! | RECLAIM_COMPLETE of a client that has reclaimed state | `Complete` | its reply |
//! | state is taken from a client that lives or is in courtesy | `Forbid` | another gets it |
//! | it has acknowledged that | `Allow` | – |
//! | DESTROY_CLIENTID; RECLAIM_COMPLETE, or a lease, without state | `Remove` | – |
//! | the first write delegation of a boot | `WriteDelegations` | its OPEN's reply |
//! | the end of the grace period | `EndGrace` | the first state that is no reclaim |
//!
//! [`Records::begin`] starts a boot: its epoch is greater than all before, stable, and fit to be
//! the high half of client IDs and session IDs; with it come the clients that may reclaim. Until
//! [`RecordChange::EndGrace`] they stay recorded, so that a second crash within the grace period
//! loses none.
//!
//! **Changes are repeatable.** When [`Records::apply`] fails, nothing of what it was given may be
//! relied on, and nothing older is forgotten: the caller tells its clients to wait
//! (NFS4ERR_DELAY), and gives the same changes again. It waits for the storage, so shards leave it
//! to a [`RecordKeeper`], which makes one sync serve all changes that wait.
//!
//! **Homes** of the log ([`RecordLog`]): a file of the state directory, for one gateway; a
//! directory that several gateways share ([`FileHome`]); objects of RADOS ([`RadosHome`]). Where
//! they share, one takes over the records of another that is dead and fenced
//! ([`Records::take_over`]); the dead one, should it live, is told so at its next change
//! ([`RecordError::TakenOver`]) and must serve no state any more.

mod entry;
mod file;
mod keeper;
mod log;
mod rados;
#[cfg(test)]
mod tests;

pub use file::FileHome;
pub use keeper::{ChangeDone, ChangeFault, ChangeTicket, RecordKeeper};
pub use log::{LogHome, RecordLog};
pub use rados::RadosHome;

use std::{fmt, hash::Hasher as _, io};

use siphasher::sip::SipHasher24;

/// Octets of a client owner at most (RFC 8881 §3.1).
pub const OWNER_MAX: usize = 1024;
/// Clients that are recorded at most.
pub const CLIENTS_MAX: usize = 16_384;

/// The user by whom a client made its client ID: only he may claim it again (RFC 8881 §2.10.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedPrincipal {
    /// The flavor of his credential (RFC 5531 §8.2).
    pub flavor: u32,
    /// The user, after squashing.
    pub uid: u32,
}

/// Mark of the host that a client's record was made from: 31 bits of a hash under the client's
/// verifier, so that only a host that has the verifier can look for addresses with the same mark.
/// Zero is the mark of a record of an earlier version, which names no host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginMark(u32);

impl OriginMark {
    /// The mark of a host, whose address is in `octets`.
    pub(crate) fn of(verifier: &[u8; 8], octets: &[u8]) -> Self {
        let mut key = [0; 16];
        let (first, second) = key.split_at_mut(8);
        first.copy_from_slice(verifier);
        second.copy_from_slice(verifier);
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(octets);
        Self(((hasher.finish() >> 33) as u32).max(1))
    }

    /// Returns true if a record with this mark was made from the host with the `other` one, or may
    /// have been.
    pub fn allows(self, other: Self) -> bool {
        self.0 == 0 || self == other
    }

    /// The bits, all but the highest.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// The mark of these bits.
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits & (u32::MAX >> 1))
    }
}

/// A client that may have state to reclaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// Its owner string, at most [`OWNER_MAX`] octets.
    pub owner: Box<[u8]>,
    /// Its verifier: another one means that the client itself began anew.
    pub verifier: [u8; 8],
    /// By whom it was made.
    pub principal: RecordedPrincipal,
    /// The host that it was made from.
    pub origin: OriginMark,
}

/// A change of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// A client has no more to reclaim, and may have state from here on.
    Complete(ClientRecord),
    /// A client's state was taken away: it may reclaim none of this epoch.
    Forbid(Box<[u8]>),
    /// A client has acknowledged that loss, and may reclaim the rest, if it was complete.
    Allow(Box<[u8]>),
    /// A client is gone, with its state, or has none.
    Remove(Box<[u8]>),
    /// Delegations to write are granted in this epoch.
    WriteDelegations,
    /// Nobody may reclaim any more: clients that are not complete in this epoch are forgotten.
    EndGrace,
}

/// The beginning of a boot, and what earlier ones left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Number of this boot: greater than that of each before it, and never 0.
    pub epoch: u32,
    /// Clients that may reclaim. Without any there is no grace period.
    pub clients: Vec<ClientRecord>,
    /// True if delegations to write may have been held when the last boot ended.
    pub had_write_delegations: bool,
    /// Octets at the end of the log that were no whole record: its writer died there.
    pub torn_octets: u64,
}

/// Why records were not kept.
#[derive(Debug)]
pub enum RecordError {
    /// Another gateway has taken over: this one has no records any more, and must give no state.
    TakenOver,
    /// [`CLIENTS_MAX`] clients are recorded.
    Full,
    /// An owner is too long, or nobody has such records to take over.
    Unfit(&'static str),
    /// The storage failed: try again.
    Storage(io::Error),
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakenOver => f.write_str(
                "another gateway has taken over the records of clients: stop this one, and start \
                 it again under its own name",
            ),
            Self::Full => write!(f, "{CLIENTS_MAX} clients are recorded: no more can be"),
            Self::Unfit(reason) => f.write_str(reason),
            Self::Storage(error) => write!(f, "cannot keep the records of clients: {error}"),
        }
    }
}

impl std::error::Error for RecordError {}

/// Persistent records of clients. All calls wait for the storage.
pub trait Records: Send {
    /// Begins a boot. Called once, before anything else.
    ///
    /// # Errors
    /// As the storage says: nothing may be served then.
    fn begin(&mut self) -> Result<Boot, RecordError>;

    /// Carries out changes in their order, and makes them stable together.
    ///
    /// # Errors
    /// When one of them is not known to be stable: all of them are to be given again.
    fn apply(&mut self, changes: &[RecordChange]) -> Result<(), RecordError>;

    /// Makes the records of another gateway, which is dead and fenced, those of this one: its
    /// clients may reclaim here. Returns them.
    ///
    /// # Errors
    /// [`RecordError::Unfit`] when it has none, or another gateway has taken them.
    fn take_over(&mut self, gateway: &str) -> Result<Vec<ClientRecord>, RecordError>;
}
