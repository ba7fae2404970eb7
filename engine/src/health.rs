//! Asking a peer how it is, and being asked: an option of version 2 (`docs/options/health.md`).

use crate::{
    app::{App, Cx, PeerId},
    caller::room_kept,
    core::{Core, Link},
    shard::Shard,
    work::Work,
};
use stag_pools::table::Walk;
use stag_protocol::rpcrdma::{
    Xid,
    option::{Exchange, Message, NoOption, health},
};
use stag_verbs::{Cause, Provider};
use std::{fmt, time::Duration};

/// How long a peer may take to say how it is. After that its connection is closed.
pub const HEALTH_MAX: Duration = Duration::from_secs(10);

/// Why nobody knows how a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthFault {
    /// No such peer, or it has no connection.
    NoPeer,
    /// The option cannot be used with it, or not at this moment.
    Option(NoOption),
    /// There is no receive for the answer, no memory, or no room in the send queue.
    Limit,
    /// The connection ended first.
    Disconnected(Cause),
    /// No answer came in [`HEALTH_MAX`]; the connection is closed.
    TimedOut,
}

impl fmt::Display for HealthFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer => f.write_str("not connected"),
            Self::Option(why) => why.fmt(f),
            Self::Limit => f.write_str("receives, memory or the send queue are used up"),
            Self::Disconnected(cause) => write!(f, "the connection ended: {cause}"),
            Self::TimedOut => f.write_str("no answer came in time"),
        }
    }
}

impl std::error::Error for HealthFault {}

impl Core {
    /// Reserves the receives that options of this peer need. False when there is none left.
    fn reserve_options(&mut self, peer: PeerId) -> bool {
        let free = self.free_receives();
        let Some(entry) = self.peers.get_mut(peer.0) else { return false };
        let Link::Fabric { state: Some(connection), .. } = &entry.link else { return false };
        let more = (connection.option_receives() as usize).saturating_sub(entry.options);
        if more > free {
            self.counters.stats.limits.receives += 1;
            return false;
        }
        entry.options += more;
        self.settle_receives(peer);
        true
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Asks; the app hears of the answer, or of why there is none.
    pub(crate) fn ask_health(&mut self, peer: PeerId) {
        let peer = self.core.known_as(peer);
        if let Err(fault) = self.try_ask_health(peer) {
            self.tell_health(peer, Err(fault));
        }
    }

    fn try_ask_health(&mut self, peer: PeerId) -> Result<(), HealthFault> {
        let Some((qp, connection)) = self.core.connection(peer) else { return Err(HealthFault::NoPeer) };
        if self.provider.send_room(qp) < 1 + room_kept(connection) || !self.core.reserve_options(peer) {
            return Err(HealthFault::Limit);
        }
        let mut octets = self.header_message().ok_or(HealthFault::Limit)?;
        let xid = self.core.xid(0);
        let (_, connection) = self.core.connection(peer).ok_or(HealthFault::NoPeer)?;
        let message = connection.ask_health(xid).map_err(HealthFault::Option)?;
        let len = connection.emit_option(xid, &message, octets.spare_mut());
        octets.extend(len.expect("a message buffer holds an option"));
        self.core.counters.stats.requester.options += 1;
        let now = self.core.now;
        self.core.peers.get_mut(peer.0).expect("it has a connection").asked_at = Some(now);
        // Refused means that the connection is dying: its end tells the app.
        let _ = self.provider.post_send(qp, Work::Untracked.tag(), octets, None);
        Ok(())
    }

    /// A message of an option arrived.
    pub(crate) fn handle_option(&mut self, peer: PeerId, xid: Xid, message: Message) {
        match message {
            Message::Health(Exchange::Request(_)) => {
                self.core.counters.stats.responder.options += 1;
                if let Some(entry) = self.core.peers.get_mut(peer.0) {
                    entry.asked = Some(xid);
                }
                self.answer_health(peer);
            }
            Message::Health(Exchange::Reply(health)) => self.end_asking(peer, Ok(health)),
        }
    }

    /// Answers a peer that asked, as soon as there is room and memory for that: who is busy is asked most.
    pub(crate) fn answer_health(&mut self, peer: PeerId) {
        let Some(xid) = self.core.peers.get(peer.0).and_then(|entry| entry.asked) else { return };
        let Some((qp, connection)) = self.core.connection(peer) else { return };
        let has_room = self.provider.send_room(qp) > room_kept(connection);
        let Some(mut octets) = self.header_message().filter(|_| has_room) else {
            return self.retry_soon(peer);
        };
        self.core.peers.get_mut(peer.0).expect("it was found above").asked = None;
        let may_answer = self.core.reserve_options(peer);
        let Some((_, connection)) = self.core.connection(peer) else { return };
        if !may_answer {
            drop(octets);
            let refusal = connection.refuse_health(xid);
            return self.send_error(qp, &refusal);
        }
        let message = connection.answer_health();
        let len = connection.emit_option(xid, &message, octets.spare_mut());
        octets.extend(len.expect("a message buffer holds an option"));
        // Refused means that the connection is dying.
        let _ = self.provider.post_send(qp, Work::Untracked.tag(), octets, None);
    }

    /// An answer came, or will not come. It may have given a credit back.
    pub(crate) fn end_asking(&mut self, peer: PeerId, answer: Result<health::Reply, HealthFault>) {
        let asked = self.core.peers.get_mut(peer.0).and_then(|entry| entry.asked_at.take());
        if asked.is_some() {
            self.tell_health(self.core.known_as(peer), answer);
            self.start_waiting(peer);
        }
    }

    fn tell_health(&mut self, peer: PeerId, answer: Result<health::Reply, HealthFault>) {
        self.app.on_health(&mut Cx { core: &mut self.core }, peer, answer);
        self.empty_outbox();
    }

    /// Closes connections whose peer was asked and does not answer.
    pub(crate) fn end_unanswered(&mut self) {
        let now = self.core.now;
        let mut walk = Walk::default();
        while let Some((key, entry)) = walk.next(&mut self.core.peers) {
            let late = entry.asked_at.is_some_and(|at| now.since(at) >= HEALTH_MAX);
            if late && matches!(entry.link, Link::Fabric { .. }) {
                self.end_asking(PeerId(key), Err(HealthFault::TimedOut));
                self.disconnect(PeerId(key));
            }
        }
    }
}
