//! Persistent records of the clients that may reclaim their state after a restart (RFC 8881
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
//! [`Records::begin`] starts a boot. Its epoch is stable, greater than all before, and serves as
//! the high half of client IDs and session IDs; with it come the clients that may reclaim. Until
//! [`RecordChange::EndGrace`] they stay recorded, so that a second crash within the grace period
//! loses none.
//!
//! **Changes are repeatable.** When [`Records::apply`] fails, none of its changes may be relied on,
//! and nothing older is lost: the caller answers NFS4ERR_DELAY, and submits the same changes again.
//! It waits for the storage, so shards use a [`RecordKeeper`], which makes one sync serve all
//! queued changes.
//!
//! **Homes** of the log ([`RecordLog`]): a file of the state directory, for one gateway; a
//! directory shared by several gateways ([`FileHome`]); objects of RADOS ([`RadosHome`]). Gateways
//! that share one can take over the records of another that is dead and fenced
//! ([`Records::take_over`]). If that one is alive, its next change fails
//! ([`RecordError::TakenOver`]), and it must serve no more state.

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
use stag_protocol::rpc::{Credential, PrincipalId};

/// Bytes of a client owner at most (RFC 8881 §3.1).
pub const OWNER_MAX: usize = 1024;
/// Recorded clients at most.
pub const CLIENTS_MAX: usize = 16_384;

/// The user that a client ID belongs to, and who alone may claim it again (RFC 8881 §2.4.3,
/// §2.10.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// AUTH_NONE.
    Anyone,
    /// AUTH_SYS with this user.
    Unix(u32),
    /// The principal of a ticket.
    Proven(PrincipalId),
}

impl Principal {
    /// Returns true if this principal of a record is that of a client. A record of an earlier
    /// version has only the first 32 bits of a principal.
    pub fn is_of(self, client: Self) -> bool {
        let is_same_start = match (self, client) {
            (Self::Proven(listed), Self::Proven(identity)) => {
                listed == PrincipalId::from_short(identity.short())
            }
            _ => false,
        };
        self == client || is_same_start
    }
}

impl From<&Credential<'_>> for Principal {
    fn from(credential: &Credential<'_>) -> Self {
        match credential {
            Credential::Sys(sys) => Self::Unix(sys.uid),
            Credential::None | Credential::Other(_) => Self::Anyone,
            Credential::Proven(proven) => Self::Proven(proven.identity),
        }
    }
}

/// Mark of the host that created a client's record: 31 bits of a hash under the client's verifier,
/// so that only a host that has the verifier can search for addresses with the same mark. Zero
/// marks a record of an earlier version, which names no host.
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

    /// Returns true if the record with this mark came, or may have come, from the host with the
    /// `other` mark.
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
    /// Its owner string, at most [`OWNER_MAX`] bytes.
    pub owner: Box<[u8]>,
    /// Its verifier: another one means that the client restarted.
    pub verifier: [u8; 8],
    /// The user that created it.
    pub principal: Principal,
    /// The host that created it.
    pub origin: OriginMark,
}

/// A change of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// A client has no more to reclaim, and may have state from here on.
    Complete(ClientRecord),
    /// A client's state was revoked: it may reclaim none of this epoch.
    Forbid(Box<[u8]>),
    /// A client has acknowledged that loss, and may reclaim the rest, if it was complete.
    Allow(Box<[u8]>),
    /// A client is gone, with its state, or has none.
    Remove(Box<[u8]>),
    /// Write delegations are granted in this epoch.
    WriteDelegations,
    /// Reclaiming ends: clients that are not complete in this epoch are forgotten.
    EndGrace,
}

/// The beginning of a boot, and the state left by earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Number of this boot: greater than that of each before it, and never 0.
    pub epoch: u32,
    /// Clients that may reclaim. Without any there is no grace period.
    pub clients: Vec<ClientRecord>,
    /// True if write delegations may have been held when the last boot ended.
    pub had_write_delegations: bool,
    /// Bytes at the end of the log after the last whole record: its writer died there.
    pub torn_octets: u64,
}

/// Reason why records were not stored.
#[derive(Debug)]
pub enum RecordError {
    /// Another gateway has taken over: this one has no more records, and must grant no state.
    TakenOver,
    /// [`CLIENTS_MAX`] clients are recorded.
    Full,
    /// An owner is too long, or there are no such records to take over.
    Unfit(&'static str),
    /// The storage failed: retry.
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
    /// The storage's error; nothing may be served then.
    fn begin(&mut self) -> Result<Boot, RecordError>;

    /// Applies changes in order, and makes them stable together.
    ///
    /// # Errors
    /// When the storage fails, so that all of them have to be submitted again.
    fn apply(&mut self, changes: &[RecordChange]) -> Result<(), RecordError>;

    /// Takes over the records of another gateway, which is dead and fenced: its clients may reclaim
    /// here. Returns them.
    ///
    /// # Errors
    /// [`RecordError::Unfit`] when it has none, or another gateway has taken them.
    fn take_over(&mut self, gateway: &str) -> Result<Vec<ClientRecord>, RecordError>;
}
