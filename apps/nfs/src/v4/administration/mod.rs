//! Clients and states of version 4 for administrators (`stag ctl clients4`, `opens`, `expire`,
//! `grace`).
//!
//! Questions come from any thread through a [`StateDesk`]. The home answers them at the end of its
//! next pass, because it has all clients and states; each answer is a page of bounded work.

mod answers;

pub(in crate::v4) use answers::ExpiringClient;

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
    mpsc::{Receiver, SyncSender, sync_channel},
};

use stag_engine::PeerAddress;
use stag_nfs4_state::{LeaseFacts, ListedState, StateidKind};

use crate::records::Principal;

/// Questions that wait for the shard, at most.
const QUESTIONS_MAX: usize = 64;

/// A question about clients and states, or an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateQuestion {
    /// A page of clients, from this place of their table on.
    Clients {
        /// Zero for the first page.
        from: usize,
    },
    /// A page of states.
    States {
        /// Of this kind.
        kind: StateidKind,
        /// Of the client with this client ID.
        client: Option<u64>,
        /// Of the file with this handle.
        handle: Option<Box<[u8]>>,
        /// Zero for the first page.
        from: usize,
    },
    /// End a client with all of its state, as the expiry of its lease does. It is answered once the
    /// client is gone, with its record.
    Expire {
        /// Its client ID.
        client: u64,
    },
    /// The grace period.
    Grace {
        /// True to end it now. The answer is from before its end.
        ends: bool,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateAnswer {
    /// A page of clients, and the place where the next one begins.
    Clients(Vec<ClientFacts>, Option<usize>),
    /// A page of states, and the place where the next one begins.
    States(Vec<StateFacts>, Option<usize>),
    /// The client is gone.
    Expired,
    /// Too many clients are being ended already.
    Crowded,
    /// No client has this client ID.
    NoSuchClient,
    /// The grace period; none while no client may reclaim.
    Grace(Option<GraceFacts>),
}

/// A grace period (RFC 8881 §8.4.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraceFacts {
    /// Milliseconds until it ends at the latest.
    pub left_ms: u64,
    /// Clients that had state before the restart, and have not completed their reclaims.
    pub awaited: u32,
    /// Those of them that have not come back since, 512 at most, in the order of their names: their
    /// names as in [`ClientFacts::owner`], and the users that created them.
    pub absent: Vec<(Box<[u8]>, Principal)>,
    /// Clients that have not come back and are not among these.
    pub absent_more: usize,
}

/// A client of version 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    /// Its client ID.
    pub id: u64,
    /// The name that it gives itself (`co_ownerid`), unchanged; of a long one the first 128 bytes.
    pub owner: Box<[u8]>,
    /// The user that created it.
    pub principal: Principal,
    /// The address that it was created from.
    pub from: PeerAddress,
    /// Minor version of its newest session.
    pub minor_version: Option<u32>,
    /// Its sessions.
    pub sessions: u32,
    /// Its path for callbacks.
    pub callback_path: CallbackPath,
    /// Milliseconds of a lease.
    pub lease_ms: u64,
    /// Its lease and its places; none before its first session.
    pub lease: Option<LeaseFacts>,
}

/// A state of version 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFacts {
    /// The state.
    pub state: ListedState,
    /// The name of its file's export, without its slash, where that is known.
    pub export: Option<String>,
}

/// State of a client's path for callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackPath {
    /// No session has a back channel.
    Absent,
    /// The connection of each back channel is lost.
    Down,
    /// A connection carries callbacks.
    Up,
}

/// An asked question, and the channel for its answer.
#[derive(Debug)]
pub(in crate::v4) struct Asked {
    question: StateQuestion,
    answer: SyncSender<StateAnswer>,
}

/// A place for questions to the home.
#[derive(Debug, Default)]
pub struct StateDesk {
    is_asked: AtomicBool,
    asked: Mutex<Vec<Asked>>,
}

impl StateDesk {
    /// Asks a question; the caller has to cause a pass of the shard
    /// ([`Command::Look`](stag_engine::Command::Look)). Returns `None` when too many questions
    /// wait.
    pub fn ask(&self, question: StateQuestion) -> Option<Receiver<StateAnswer>> {
        let (answer, receiver) = sync_channel(1);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() >= QUESTIONS_MAX {
            return None;
        }
        asked.push(Asked { question, answer });
        self.is_asked.store(true, Ordering::Release);
        Some(receiver)
    }

    /// The questions that were asked since the last call: without any, the cost is one load.
    #[inline]
    fn take(&self) -> Vec<Asked> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_asked.store(false, Ordering::Relaxed);
        std::mem::take(&mut asked)
    }
}
