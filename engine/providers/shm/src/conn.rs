//! One connection: its state, its work, and the state that it shares with the others of its shard.

use crate::{
    ShmConfig, ShmStats,
    lane::{Lane, Lanes},
    record::CloseReason,
};
use rustix::fd::OwnedFd;
use stag_pools::{Pool, RemoteKey, Windows, table::Key};
use stag_verbs::{
    Event, PeerAddress, Qp, Time,
    soft::{MovedOctets, Receives, SendQueue, Work},
};
use std::collections::VecDeque;

/// Reads that one connection has in flight in each direction; work after one more waits.
pub(crate) const READS_MAX: usize = 64;

/// State of a connection, named by the event that it awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShmState {
    /// We connect: the peer has not answered.
    AwaitReply,
    /// The peer connects: the engine has to accept or reject.
    AwaitAnswer,
    /// Both sides may send.
    Established,
    /// It ended for the engine: records of the peer that name it may still come.
    AwaitClose,
    /// The peer has sent its last record about it; we have not.
    AwaitRoom,
    /// To be removed when the engine has had its last event.
    Dead,
}

/// A Read of the peer that is not answered whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAnswer {
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) left: usize,
    pub(crate) request: u64,
}

/// A Read of ours that is not answered whole: which work request, and the octets that are missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRead {
    pub(crate) request: u64,
    pub(crate) seq: u64,
    pub(crate) left: usize,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ShmConn {
    pub(crate) qp: Qp,
    pub(crate) link: Key,
    /// Its number at the peer, once known.
    pub(crate) peer: u32,
    pub(crate) address: PeerAddress,
    pub(crate) state: ShmState,
    /// The engine has its number, and gets its events.
    pub(crate) is_known: bool,
    /// The engine has had its last event and has polled since.
    pub(crate) is_over: bool,
    pub(crate) private_data: Box<[u8]>,
    pub(crate) queue: SendQueue,
    /// Octets of the Write in front of the queue that are sent.
    pub(crate) written: usize,
    pub(crate) answers: VecDeque<ReadAnswer>,
    pub(crate) asked: VecDeque<PendingRead>,
    pub(crate) requests: u64,
    /// Answers named our memory in the ring up to this position.
    pub(crate) lent_until: u64,
    /// Time at which to give up the awaited event.
    pub(crate) deadline: Option<Time>,
    /// It is in the list of connections with unrung work.
    pub(crate) is_posted: bool,
    /// It is in its link's list of connections with something to send.
    pub(crate) is_waiting: bool,
}

impl ShmConn {
    pub(crate) fn new(
        qp: Qp,
        link: Key,
        address: PeerAddress,
        state: ShmState,
        send_queue: usize,
    ) -> Self {
        Self {
            qp,
            link,
            peer: 0,
            address,
            state,
            is_known: false,
            is_over: false,
            private_data: Box::default(),
            queue: SendQueue::new(send_queue),
            written: 0,
            answers: VecDeque::new(),
            asked: VecDeque::new(),
            requests: 0,
            lent_until: 0,
            deadline: None,
            is_posted: false,
            is_waiting: false,
        }
    }

    /// Returns true if the engine may still use the connection.
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.state, ShmState::AwaitReply | ShmState::AwaitAnswer | ShmState::Established)
    }

    /// Both sides may send from here on.
    pub(crate) fn establish(&mut self, lanes: &mut Lanes) {
        self.state = ShmState::Established;
        self.note(lanes);
    }

    /// Writes down where its messages go.
    pub(crate) fn note(&self, lanes: &mut Lanes) {
        lanes.set(self.qp, self.lane());
    }

    /// Its lane by its state.
    pub(crate) fn lane(&self) -> Lane {
        match self.state {
            ShmState::Established => {
                Lane::new(self.qp, self.link, self.peer, !self.queue.has_begun_all())
            }
            _ => Lane::SHUT,
        }
    }

    /// Marks the connection dead: no further record names it. Its place can be used again when the
    /// engine has had its last event.
    pub(crate) const fn die(&mut self, shared: &mut ShmShared) {
        self.state = ShmState::Dead;
        shared.dead += 1;
    }

    /// Its number here.
    pub(crate) const fn number(&self) -> u32 {
        self.qp.0.index() as u32
    }
}

/// Message about a connection that is sent as soon as the ring has room.
#[derive(Debug)]
pub(crate) enum LinkMessage {
    Connect {
        from: u32,
        private_data: Box<[u8]>,
    },
    Accept {
        to: u32,
        from: u32,
        private_data: Box<[u8]>,
    },
    Reject {
        to: u32,
        is_shut: bool,
        private_data: Box<[u8]>,
    },
    GiveUp {
        from: u32,
    },
    /// The last record about `from`: it is named so that its place can be used again.
    Close {
        to: u32,
        from: Key,
        why: CloseReason,
    },
}

/// State that all connections of a shard share.
#[derive(Debug)]
pub(crate) struct ShmShared {
    pub(crate) config: ShmConfig,
    pub(crate) epoll: OwnedFd,
    pub(crate) windows: Windows,
    pub(crate) receives: Receives,
    pub(crate) lanes: Lanes,
    pub(crate) events: VecDeque<Event>,
    /// Memory for work requests of connections that have none pending.
    pub(crate) spare_works: Vec<VecDeque<Work>>,
    /// The pools that a peer who trusts us may map, by their number there.
    pub(crate) pools: Vec<Pool>,
    pub(crate) stats: ShmStats,
    /// Octets copied from and to rings and pools of peers, but for messages that looks take.
    pub(crate) moved: MovedOctets,
    pub(crate) now: Time,
    /// Peers may ask for connections.
    pub(crate) is_listening: bool,
    /// Live connections.
    pub(crate) taken: usize,
    /// Connections that died since places were last made free.
    pub(crate) dead: usize,
}

impl ShmShared {
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if self.events.is_empty() {
            self.events.clear(); // back to its first places, which are in the cache
        }
        Some(event)
    }

    /// Reports an event, if there is one.
    #[inline]
    pub(crate) fn report(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.events.push_back(event);
        }
    }

    /// True if a message is longer than any receive, and than the ring takes.
    pub(crate) const fn is_long(&self, message: &[u8]) -> bool {
        message.len() > self.config.ring_len / 8
    }

    /// The number of the pool that holds `place` for peers that map it.
    pub(crate) fn pool_number(&self, place: stag_pools::PoolPlace) -> Option<u32> {
        let number = self.pools.iter().position(|pool| pool.id() == place.pool)?;
        u32::try_from(number).ok()
    }
}
