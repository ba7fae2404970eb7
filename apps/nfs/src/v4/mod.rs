//! NFS version 4.1 and 4.2 of one shard (RFC 8881, RFC 7862): the interpreter of compounds
//! ([`compound`]), one file for each operation (`op`), clients and sessions (`session`), and the
//! root of all exports (`pseudo`).

mod attr;
mod calls;
mod compound;
mod node;
mod op;
mod pseudo;
mod report;
mod session;
mod set;
mod stateids;
mod status;
mod turn;

use std::time::Duration;

use stag_engine::{PeerId, Time};
use stag_protocol::nfs::{
    v3::{FileHandle, PATH_MAX},
    v4::{
        ReplyLimits, SequenceArgs, SequenceOk, SessionId, XATTR_LEN_MAX, sequence_flag,
        state::Grace,
    },
};

pub(crate) use compound::{CompoundCall, NoReply};
pub use report::Nfs4Report;

use crate::store::{LISTING_MAX, TRANSFER_MAX};
use pseudo::PseudoRoot;
use report::Tally;
use session::{Client, Clients, Sessions};

/// Properties of version 4 at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nfs4Config {
    /// Time for which a client's state lives without a sign of it (RFC 8881 §8.3).
    pub lease: Duration,
    /// Number of this run, which no other run of the server has: client IDs, session IDs and
    /// stateids of different runs differ by it.
    pub epoch: u32,
    /// Identity of the server, the same after a restart (RFC 8881 §2.10.4).
    pub identity: [u8; 16],
    /// Seconds after 1970 at which the server was started.
    pub started: u32,
}

/// Bounds of replies (RFC 8881 §2.10.6.4).
const LIMITS: ReplyLimits = ReplyLimits {
    read: TRANSFER_MAX,
    listing: LISTING_MAX,
    link: PATH_MAX as u32,
    xattr: XATTR_LEN_MAX as u32,
    flavors: 2,
    handle: FileHandle::MAX as u32,
    user: 10,
};

/// Time between two looks at leases.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Clients whose leases are looked at in one pass.
const LOOKS: usize = 64;

/// Version 4 of one shard.
#[derive(Debug)]
pub(crate) struct Nfs4 {
    config: Nfs4Config,
    clients: Clients,
    sessions: Sessions,
    root: PseudoRoot,
    grace: Grace,
    tally: Box<Tally>,
    /// Time of the next look at leases, and the place at which it goes on.
    next_look: Time,
    place: usize,
}

impl Nfs4 {
    /// Nobody is known yet. `exports` are the names of the exports.
    pub(crate) fn new<'a>(config: Nfs4Config, exports: impl Iterator<Item = &'a str>) -> Self {
        Self {
            config,
            clients: Clients::new(config.epoch),
            sessions: Sessions::new(config.epoch),
            root: PseudoRoot::new(exports, config.started),
            grace: Grace::begin(0, 0),
            tally: Box::default(),
            next_look: Time(0),
            place: 0,
        }
    }

    /// Seconds of a lease.
    fn lease_seconds(&self) -> u32 {
        u32::try_from(self.config.lease.as_secs()).unwrap_or(u32::MAX)
    }

    /// A connection is gone: no callback goes over it.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        for session in self.sessions.iter_mut() {
            if let Some(callbacks) = &mut session.callbacks {
                callbacks.peer.take_if(|bound| *bound == peer);
            }
        }
    }

    /// Ends the leases that nobody renewed. Called once in a pass.
    pub(crate) fn tidy(&mut self, now: Time) {
        if now < self.next_look {
            return;
        }
        for _ in 0..LOOKS {
            self.look_at_lease(now);
            self.place += 1;
            if self.place >= session::CLIENTS {
                self.place = 0;
                self.next_look = now + LOOK_INTERVAL;
                return;
            }
        }
    }

    fn look_at_lease(&mut self, now: Time) {
        let Some(client) = self.clients.nth(self.place) else { return };
        if now.since(client.renewed) > self.config.lease {
            let id = client.id;
            self.end_client(id);
        }
    }

    /// Ends a client: its sessions, its state, its record.
    fn end_client(&mut self, id: u64) {
        while let Some(session) = self.sessions.first_of(id) {
            self.end_session(&session);
        }
        self.clients.remove(id);
    }

    /// Ends a session.
    fn end_session(&mut self, id: &SessionId) {
        if let Some(session) = self.sessions.remove(id)
            && let Some(client) = self.clients.get_mut(session.client)
        {
            client.sessions -= 1;
        }
    }

    /// Confirms a client: its first CREATE_SESSION succeeds, or another one. The record of an
    /// earlier incarnation ends.
    fn confirm(&mut self, id: u64, now: Time) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.sessions += 1;
        client.renewed = now;
        if client.is_confirmed {
            return;
        }
        let former = match self.clients.get(id) {
            Some(client) => self.clients.confirmed(&client.owner).map(|former| former.id),
            None => None,
        };
        if let Some(former) = former {
            self.end_client(former);
        }
        self.clients.confirm(id);
    }

    /// Returns true if a client has anything that another user must not take over.
    fn holds_state(&self, client: &Client, now: Time) -> bool {
        client.sessions > 0 && now.since(client.renewed) <= self.config.lease
    }

    /// Results of a SEQUENCE, or of one that is sent again.
    fn sequence_ok(&self, args: &SequenceArgs) -> Option<SequenceOk> {
        let session = self.sessions.get(&args.session)?;
        let (highest_slot, target_highest_slot) = session.highest_slots();
        let is_down = session.callbacks.as_ref().is_some_and(|back| back.peer.is_none());
        let down = sequence_flag::CB_PATH_DOWN | sequence_flag::CB_PATH_DOWN_SESSION;
        Some(SequenceOk {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot,
            target_highest_slot,
            flags: if is_down { down } else { 0 },
        })
    }

    /// The counters.
    pub(crate) fn report(&self) -> Nfs4Report {
        Nfs4Report {
            clients: self.clients.len() as u64,
            sessions: self.sessions.len() as u64,
            slots: self.sessions.slots() as u64,
            ..self.tally.report()
        }
    }
}
