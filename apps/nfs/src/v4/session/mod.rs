//! Clients and sessions of one shard (RFC 8881 §2.4, §2.10): tables of fixed size, indexed by the
//! place that each ID contains.
//!
//! A host has a quarter of each table at most.
//!
//! | table | entries | when it is full |
//! |---|---|---|
//! | clients | [`CLIENTS`] | its oldest without a session goes, else NFS4ERR_DELAY |
//! | those without a session | [`UNCONFIRMED`] | the oldest of the fullest host goes |
//! | sessions | [`SESSIONS`], [`SESSIONS_OF_CLIENT`] of a client | NFS4ERR_DELAY |
//! | slots with cells | [`SLOTS`], [`SLOTS_OF_SESSION`] of a session | fewer, or none |
//!
//! A host is an address, or a certificate. It gets a place while three times its own places are
//! fewer than are free: the more hosts hold many places, the fewer each can have, and a newcomer
//! finds room.
//!
//! | file | what |
//! |---|---|
//! | [`client`], [`incarnations`] | client records; a new incarnation ends the previous one |
//! | [`table`], [`of_client`] | sessions with their slots; the sessions of each client |
//! | [`request`], [`digest`] | a request in a slot, and the digest that distinguishes a retry |
//! | [`cells`], [`reply_data`] | the replies that slots keep, and the data of READs in them |
//! | [`slot_owner`] | the shard that has the slots of a session |
//! | [`bound`], [`back`] | connections of a session; its back channel |
//! | [`machine_guard`] | protection by the credential of a client's machine (SP4_MACH_CRED) |
//! | [`ids`] | client IDs, session IDs and tags of origins |
//! | [`description`] | sessions, described for monitoring |

mod back;
mod bound;
mod cells;
mod client;
pub(in crate::v4) mod description;
mod digest;
mod ids;
pub(in crate::v4) mod incarnations;
mod machine_guard;
mod of_client;
pub(in crate::v4) mod reply_data;
mod request;
pub(super) mod slot_owner;
mod table;

pub(super) use crate::records::Principal;
pub(super) use back::{BackChannel, Callback};
pub(super) use bound::BoundPeers;
pub(super) use cells::{CELL_LEN, ReplyCells};
pub(super) use client::{CachedAt, Client, Clients, NewClient, RecordPhase};
pub(crate) use ids::{CertificateNames, Origins};
pub(super) use ids::{Host, NameFacts, NameKey, Origin, mark_of};
pub(in crate::v4) use machine_guard::{MachineGuard, is_machine_credential};
use of_client::SessionsOfClients;
pub(super) use request::{SequenceFacts, SlotInUse, SlotVerdict};
pub(crate) use table::{BegunSlot, LeasedAccess, LeasedSession, UsedSlots};
pub(super) use table::{Session, SessionRoom, Sessions, SlotOwner};

/// Client records, confirmed or not.
pub(super) const CLIENTS: usize = 10_752;
/// Unconfirmed client records.
pub(super) const UNCONFIRMED: usize = 512;
/// Sessions.
pub(super) const SESSIONS: usize = 16_384;
/// Connections that a session remembers.
pub(super) const BOUND_MAX: usize = 16;
/// Sessions of one client.
pub(super) const SESSIONS_OF_CLIENT: u32 = 16;
/// Slots of all sessions.
pub(super) const SLOTS: usize = 65_536;
/// Slots of one session.
pub(super) const SLOTS_OF_SESSION: u32 = 64;
