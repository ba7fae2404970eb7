//! NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862). The gateway calls `Nfs4` with each COMPOUND.
//!
//! Its folders are layers, from the top down; an import goes downwards only, and a test checks that
//! (`tests/tidy`):
//!
//! | layer | what |
//! |---|---|
//! | `administration` | clients and states for administrators |
//! | `shards` | the home shard, which has all clients, and the shards of their connections |
//! | `interpreter` | executes the operations of a compound in turn; suspends and resumes it |
//! | `op` | one file for each operation |
//! | `v3_conflicts` | calls of version 3 against opens and delegations |
//! | `local` | programs of this host that use the files alongside the clients |
//! | `attributes` | attributes of objects, to emit and to set |
//! | `callbacks` | calls to clients over their back channels |
//! | `context` | execution state of one compound, its calls to the store and to the state |
//! | `recovery` | grace period and records of clients |
//! | `session` | clients, sessions, slots |
//!
//! Below them is `stag-nfs4-state`: opens, locks, delegations and leases.

mod administration;
mod attributes;
mod callbacks;
mod context;
mod interpreter;
mod local;
mod op;
mod recovery;
mod session;
mod shards;
mod v3_conflicts;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use stag_engine::{ItemLists, Time};
use stag_protocol::nfs::{
    v3::{FileHandle, PATH_MAX},
    v4::{ReplyLimits, SequenceArgs, SequenceOk, SessionId, XATTR_LEN_MAX},
};

pub use administration::{
    CallbackPath, ClientFacts, GraceFacts, StateAnswer, StateDesk, StateFacts, StateQuestion,
};
pub(crate) use callbacks::call_over;
pub(crate) use context::WaitMeans;
pub(crate) use context::changes_in_flight::ChangeScope;
pub use context::counters::{Nfs4Report, OPERATIONS, operation_name};
pub(crate) use context::replay_log::{StoreWait, WaitFor};
pub(crate) use context::shard_context::{Placement, ShardContext};
pub(crate) use interpreter::characteristic::characteristic_operation;
pub(crate) use interpreter::resumption::{Resumption, WaitResult};
pub(crate) use interpreter::short_compounds::{
    REPLY_LEN_MAX, ShortCompound, ShortHead, ShortOutcome, perform,
};
pub(crate) use interpreter::suspended::CompoundId;
pub(crate) use interpreter::{CallFacts, CompoundCall, CompoundOutcome, NoReply};
pub use recovery::grace::Nfs4Records;
pub(crate) use session::BegunSlot;
pub use session::description::{BoundConnection, SessionState};
pub use shards::channel::Nfs4Link;
pub(crate) use shards::channel::{ArrivalEnd, AwaitedVerdict};
pub(crate) use shards::messages::{ForwardedCompound, FromHome, ToHome};
pub(crate) use v3_conflicts::ConflictQuery;

use crate::{
    owner_names::{OwnerNames, ShardNames},
    requester::ShardPeer,
};
use administration::ExpiringClient;
use callbacks::Callbacks;
use context::{
    changes_in_flight::ChangesInFlight, counters::Tally, pseudo_fs::PseudoTree,
    replay_log::ReplayLog,
};
use interpreter::suspended::SuspendedCompounds;
use local::{delegated_exports::DelegatedExports, watched_files::WatchedFiles};
use recovery::grace::Recovery;
use session::{CertificateNames, Client, Clients, NameKey, Sessions, SlotInUse};
use shards::{channel::HomeEnd, slot_lease::Borrowed};
use stag_nfs_store::{LISTING_MAX, Security, Store, TRANSFER_MAX, log_rate::EventRate};
use stag_nfs4_state::{ClientKey, DelegationPolicy, StateKey, StateLimits, StateTables};

/// Properties of version 4 at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nfs4Config {
    /// Time for which a client's state is kept without renewal (RFC 8881 §8.3).
    pub lease: Duration,
    /// Number of this run, which no other run of the server has: client IDs, session IDs and
    /// stateids of different runs differ by it.
    pub epoch: u32,
    /// Identity of the server, the same after a restart (RFC 8881 §2.10.4).
    pub identity: [u8; 16],
    /// Delegations that its exports allow. Only version 4 may change their files.
    pub delegations: DelegationPolicy,
    /// Seconds after 1970 at which the server was started.
    pub started: u32,
    /// Secret key of this run: without it, client IDs and session IDs cannot be guessed.
    pub key: [u8; 16],
    /// Secret of the gateway cluster of the server, by which it recognises sessions of the other
    /// gateways.
    pub cluster: Option<[u8; 16]>,
}

/// Bounds of replies (RFC 8881 §2.10.6.4).
const LIMITS: ReplyLimits = ReplyLimits {
    read: TRANSFER_MAX,
    listing: LISTING_MAX,
    link: PATH_MAX as u32,
    xattr: XATTR_LEN_MAX as u32,
    flavors: Security::ALL.len() as u32 + 1,
    handle: FileHandle::MAX as u32,
    user: 10,
};

/// Time between two checks of leases.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Sizes of the tables of state.
const STATE_LIMITS: StateLimits = StateLimits {
    clients: 10_240,
    opens: 65_536,
    opens_per_client: 32_768,
    opens_per_file: 16_384,
    opens_promised: 8_192,
    lock_states: 32_768,
    lock_states_per_file: 4_096,
    ranges: 131_072,
    ranges_per_client: 32_768,
    ranges_per_file: 16_384,
    waiters: 4_096,
    waiters_per_file: 64,
    delegations: 16_384,
    delegations_per_client: 8_192,
    delegations_per_file: 256,
};

/// Locked ranges of one file that programs of the host see: Linux walks over all locks of a file
/// at each change of one.
const RANGES_SHOWN: usize = 4_096;

/// Sizes of the tables for a store whose files local programs may lock, or may not.
const fn state_limits(has_local_locks: bool) -> StateLimits {
    match has_local_locks {
        true => StateLimits { ranges_per_file: RANGES_SHOWN, ..STATE_LIMITS },
        false => STATE_LIMITS,
    }
}

/// A time in the unit of the state tables.
const fn milliseconds(time: Time) -> u64 {
    time.0 / 1_000_000
}

/// Version 4 of one shard.
#[derive(Debug)]
pub(crate) struct Nfs4 {
    config: Nfs4Config,
    clients: Clients,
    sessions: Sessions,
    names: NameKey,
    /// Names in the certificates that connections have presented.
    certificates: HashMap<ShardPeer, CertificateNames>,
    /// Hosts that use the name of another one.
    strangers: EventRate,
    /// Connections that have used the session of another gateway, the latest last.
    moved: VecDeque<ShardPeer>,
    /// Clients that have moved here.
    moves: EventRate,
    pseudo: PseudoTree,
    /// Edition of the exports that the pseudo file system shows.
    edition: u64,
    state: StateTables,
    callbacks: Callbacks,
    suspended: SuspendedCompounds,
    changes: ChangesInFlight,
    /// Unused replay logs, which are clear.
    #[allow(clippy::vec_box, reason = "a compound has one for itself")]
    spare_logs: Vec<Box<ReplayLog>>,
    /// Lists for replies with several items.
    item_lists: ItemLists,
    recovery: Recovery,
    /// File systems whose files only this server changes, by their numbers.
    exclusive: Vec<u64>,
    delegated: DelegatedExports,
    watched: WatchedFiles,
    /// Ended clients whose state is removed pass by pass.
    leaving: VecDeque<ClientKey>,
    tally: Box<Tally>,
    /// Time of the next check of leases.
    next_look: Time,
    /// Time of the next check of locks of local programs that clients wait for.
    next_local_look: Time,
    /// The link to shards that forward to this one, if there are any.
    link: Option<Box<HomeEnd>>,
    /// Names of owners, if it has a domain for them.
    owner_names: Option<Box<ShardNames>>,
    /// Time of the next look for names that compounds wait for.
    next_names_look: Time,
    /// Delegations to revoke when their clients are unsettled.
    revocations: Vec<StateKey>,
    /// Questions of administrators.
    desk: Arc<StateDesk>,
    /// Clients that an administrator has ended, and that are not gone yet.
    expiring: Vec<ExpiringClient>,
    /// On a shard that is not the home: the sessions that it has borrowed.
    borrowed: Option<Box<Borrowed>>,
}

impl Nfs4 {
    /// No client is known yet. `store` has the exports.
    pub(crate) fn new<S: Store>(config: Nfs4Config, store: &S) -> Self {
        let names = NameKey::new(config.key).in_cluster(config.cluster, config.identity);
        Self {
            config,
            clients: Clients::new(config.epoch, names),
            sessions: Sessions::new(config.epoch, names),
            names,
            certificates: HashMap::new(),
            strangers: EventRate::new("clients by the name of another one"),
            moved: VecDeque::new(),
            moves: EventRate::new("clients that have moved from another gateway"),
            pseudo: PseudoTree::new(store.exports(), config.started, store.edition()),
            edition: store.edition(),
            state: StateTables::new(
                0,
                config.epoch as u16,
                u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX),
                state_limits(store.has_local_locks()),
            )
            .with_secret(config.key),
            callbacks: Callbacks::default(),
            suspended: SuspendedCompounds::new(),
            changes: ChangesInFlight::new(S::MAY_WAIT),
            spare_logs: Vec::new(),
            item_lists: ItemLists::default(),
            recovery: Recovery::default(),
            delegated: DelegatedExports::default(),
            exclusive: Vec::new(),
            watched: WatchedFiles::default(),
            leaving: VecDeque::new(),
            tally: Box::default(),
            next_look: Time(0),
            next_local_look: Time(0),
            link: None,
            owner_names: None,
            next_names_look: Time(0),
            revocations: Vec::new(),
            desk: Arc::default(),
            expiring: Vec::new(),
            borrowed: None,
        }
    }

    /// Updates the exports, if they have changed since the last call. A suspended operation has to
    /// find the same exports again, so this waits for it. Admission to an export is checked by its
    /// current rules in any case.
    #[inline]
    fn renew_root(&mut self, store: &impl Store) {
        if self.edition != store.edition() && self.suspended.len() == 0 {
            self.show_exports(store);
        }
    }

    #[cold]
    fn show_exports(&mut self, store: &impl Store) {
        self.edition = store.edition();
        self.pseudo = PseudoTree::new(store.exports(), self.config.started, self.edition);
        self.renew_delegated(store);
    }

    /// The place for questions of administrators.
    pub(crate) fn desk(&self) -> Arc<StateDesk> {
        Arc::clone(&self.desk)
    }

    /// Names owners by this.
    pub(crate) fn name_owners(&mut self, names: Arc<OwnerNames>) {
        self.owner_names = Some(Box::new(ShardNames::new(names)));
    }

    /// Starts with records of clients.
    pub(crate) fn recover(&mut self, records: Nfs4Records) {
        debug_assert_eq!(records.boot.epoch, self.config.epoch, "IDs of boots differ");
        self.recovery = Recovery::new(records);
    }

    /// A change by version 3 has to wait in the store.
    pub(crate) fn begin_change(&mut self, scope: ChangeScope) {
        self.changes.begin(scope);
    }

    /// A change by version 3 that had to wait is complete.
    pub(crate) fn end_change(&mut self, scope: ChangeScope) {
        self.changes.end(scope);
    }

    /// Seconds of a lease.
    fn lease_seconds(&self) -> u32 {
        u32::try_from(self.config.lease.as_secs()).unwrap_or(u32::MAX)
    }

    /// A connection is gone: no callback is sent and no call is answered over it.
    pub(crate) fn forget_peer(&mut self, peer: ShardPeer) {
        self.suspended.forget(peer);
        self.certificates.remove(&peer);
        self.moved.retain(|moved| *moved != peer);
        self.forget_away(peer);
        for session in self.sessions.iter_mut() {
            session.bound.forget(peer);
            if let Some(callbacks) = &mut session.callbacks {
                callbacks.peer.take_if(|bound| *bound == peer);
            }
        }
        self.recovery.forget_peer(peer);
    }

    /// Checks leases and overdue recalls once a second.
    #[inline]
    pub(crate) fn tidy(&mut self, now: Time) {
        if now >= self.next_look {
            self.look_at_all(now);
        }
    }

    #[cold]
    fn look_at_all(&mut self, now: Time) {
        self.next_look = now + LOOK_INTERVAL;
        self.begin_grace(now);
        self.renew_lent(now);
        self.tell_all_flags();
        // One turn checks some clients; one second is enough for all of them.
        for _ in 0..self.state.turns() {
            self.state.handle_time(milliseconds(now));
        }
        self.recall_all_touched(now);
        self.forget_unconfirmed(now);
    }

    /// Drops records that were not confirmed for a lease.
    fn forget_unconfirmed(&mut self, now: Time) {
        let mut left = self.clients.len();
        for place in 0..session::CLIENTS {
            if left == 0 {
                break;
            }
            let Some(client) = self.clients.nth(place) else { continue };
            left -= 1;
            if !client.is_confirmed && now.since(client.made) > self.config.lease {
                let id = client.id;
                self.end_client(id);
            }
        }
    }

    /// Lets the store forget files that no client has open any more.
    pub(crate) fn unpin_swept<S: Store>(&mut self, store: &mut S) {
        while let Some(handle) = self.state.next_swept() {
            if let Some(file) = FileHandle::new(&handle) {
                store.unpin(&file);
            }
        }
    }

    /// Ends a session.
    fn end_session(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.remove(id) else { return };
        self.clients.count_session_end(session.client, session.fore.requests_max);
        self.end_loan(id, &session.owner_of_slots);
        self.keep_callbacks(session.callbacks);
    }

    /// Returns true if a client has anything that another user must not take over.
    fn holds_state(&self, client: &Client) -> bool {
        client.sessions > 0 || client.key.is_some_and(|key| self.state.states_of(key) > 0)
    }

    /// Returns true if a session of a client has a connection for callbacks.
    fn has_back_channel(&self, client: u64) -> bool {
        let mut all = self.sessions.of(client);
        all.any(|session| session.callbacks.as_ref().is_some_and(|back| back.peer.is_some()))
    }

    /// Renews the lease of a client, as a new request does (RFC 8881 §8.3).
    fn renew_lease(&mut self, slot: &SlotInUse, now: Time) {
        match self.clients.get(slot.client).and_then(|client| client.key) {
            Some(key) => drop(self.state.renew(key, milliseconds(now))),
            // The home has its clients.
            None => {
                if let Some(borrowed) = &self.borrowed {
                    borrowed.count_use(&slot.session);
                }
            }
        }
    }

    /// Results of a SEQUENCE, or of its retry.
    fn sequence_ok(&self, args: &SequenceArgs) -> Option<SequenceOk> {
        let session = self.sessions.get(&args.session)?;
        let key = self.clients.get(session.client).and_then(|client| client.key);
        let revoked = match key {
            Some(key) => self.state.sequence_flags(key),
            None => self.borrowed.as_ref().map_or(0, |it| it.flags(&args.session)),
        };
        Some(session.sequence_ok(args, revoked))
    }

    /// The counters.
    pub(crate) fn report(&self) -> Nfs4Report {
        Nfs4Report {
            clients: self.clients.len() as u64,
            sessions: self.sessions.len() as u64,
            // Slots that are lent count at the home.
            slots: self.borrowed.as_ref().map_or(self.sessions.slots(), |_| 0) as u64,
            busy_slots: self.sessions.busy() as u64,
            suspended: self.suspended.len() as u64,
            callbacks: self.callbacks.sent,
            failed_callbacks: self.callbacks.failed,
            dropped_notices: self.callbacks.dropped,
            awaited: u64::from(self.state.awaited_reclaims().unwrap_or(0)),
            in_grace: u64::from(self.state.awaited_reclaims().is_some()),
            waiting_records: self.recovery.queue.len() as u64,
            failed_records: self.recovery.queue.failed,
            watched: self.watched.len() as u64,
            touched: self.watched.touched,
            ..self.tally.report()
        }
    }
}
