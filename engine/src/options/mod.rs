//! Options of version 2, for both roles: our requests to a peer, and replies to its requests.
//!
//! All options are sent, answered and timed here. The file of an option has only its interface to
//! the app; it is named here by its module and by its arm of `Shard::tell_answer`.

mod health;

pub use health::HEALTH_MAX;

use crate::{
    app::{App, PeerId},
    core::Core,
    option_fault::OptionFault,
    shard::Shard,
    state::{FabricLink, Link, PeerOption, room_kept},
    work::Work,
};
use stag_pools::table::Walk;
use stag_protocol::rpcrdma::{
    Xid,
    option::{Message, NoOption, OptionName},
};
use stag_verbs::{Cause, Provider};

impl Core {
    /// Reserves the receives that options of this peer need. Returns false if there are too few.
    fn reserve_options(&mut self, peer: PeerId) -> bool {
        let free = self.receives.free();
        let Some(entry) = self.peers.get_mut(peer) else { return false };
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &entry.link else {
            return false;
        };
        let more = (connection.option_receives() as usize).saturating_sub(entry.options.receives());
        if more > free {
            self.counters.stats.limits.receives += 1;
            return false;
        }
        entry.options.reserve(more);
        self.settle_receives(peer);
        true
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Sends a peer a request of an option. The app gets the answer, or the reason why there is
    /// none.
    pub(crate) fn ask(&mut self, peer: PeerId, request: &Message) {
        let peer = self.core.peers.known_as(peer);
        if let Err(fault) = self.try_ask(peer, request) {
            self.tell_answer(peer, request.option(), Err(fault));
        }
    }

    fn try_ask(&mut self, peer: PeerId, request: &Message) -> Result<(), OptionFault> {
        let Some((qp, connection)) = self.core.peers.connection(peer) else {
            return Err(OptionFault::NoPeer);
        };
        if self.provider.send_room(qp) < 1 + room_kept(connection)
            || !self.core.reserve_options(peer)
        {
            return Err(OptionFault::Limit);
        }
        let mut octets = self.core.header_message().ok_or(OptionFault::Limit)?;
        let (xid, now) = (self.core.requester.xid(0), self.core.now);
        let entry = self.core.peers.get_mut(peer).ok_or(OptionFault::NoPeer)?;
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &mut entry.link else {
            return Err(OptionFault::NoPeer);
        };
        connection.ask_option(xid, request).map_err(OptionFault::Option)?;
        let len = connection.emit_option(xid, request, octets.spare_mut());
        octets.extend(len.expect("a message buffer holds an option"));
        let lane = entry.options.lane(request.option());
        debug_assert!(lane.asked_at.is_none(), "a connection has one request of each option");
        lane.asked_at = Some(now);
        self.core.counters.stats.requester.options += 1;
        // A refused post means that the connection is dying; its end is reported to the app.
        let _ = self.provider.post_send(qp, Work::Untracked.tag(), octets, None);
        Ok(())
    }

    /// Handles a message of an option.
    pub(crate) fn handle_option(&mut self, peer: PeerId, xid: Xid, message: Message) {
        let option = message.option();
        if !message.is_request() {
            return self.end_asking(peer, option, Ok(message));
        }
        self.core.counters.stats.responder.options += 1;
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.options.lane(option).request = Some((xid, message));
        }
        self.answer_options(peer);
    }

    /// Handles the refusal of a request of ours.
    pub(crate) fn handle_option_refused(&mut self, peer: PeerId, option: OptionName) {
        self.end_asking(peer, option, Err(OptionFault::Option(NoOption::Refused)));
    }

    /// Answers the requests of a peer as soon as there is room and memory: requests come mostly
    /// while the peer is busy.
    pub(crate) fn answer_options(&mut self, peer: PeerId) {
        for option in OptionName::ALL {
            self.answer_option(peer, *option);
        }
    }

    fn answer_option(&mut self, peer: PeerId, option: OptionName) {
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        let lane = entry.options.lane(option);
        let (Some((xid, request)), Link::Fabric(FabricLink { qp, state: Some(connection) })) =
            (lane.request, &entry.link)
        else {
            return;
        };
        let (qp, has_room) = (*qp, self.provider.send_room(*qp) > room_kept(connection));
        let Some(mut octets) = self.core.header_message().filter(|_| has_room) else {
            return self.retry_soon(peer);
        };
        let may_answer = self.core.reserve_options(peer);
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        entry.options.lane(option).request = None;
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &mut entry.link else {
            return;
        };
        if !may_answer {
            drop(octets);
            let refusal = connection.refuse_option(xid, option);
            return self.send_error(qp, &refusal);
        }
        let answer = connection.answer_option(&request);
        let len = connection.emit_option(xid, &answer, octets.spare_mut());
        octets.extend(len.expect("a message buffer holds an option"));
        // A refused post means that the connection is dying.
        let _ = self.provider.post_send(qp, Work::Untracked.tag(), octets, None);
    }

    /// Ends a request of ours, with or without an answer. That may have freed a credit.
    fn end_asking(
        &mut self,
        peer: PeerId,
        option: OptionName,
        answer: Result<Message, OptionFault>,
    ) {
        let entry = self.core.peers.get_mut(peer);
        if entry.and_then(|entry| entry.options.lane(option).asked_at.take()).is_some() {
            self.tell_answer(self.core.peers.known_as(peer), option, answer);
            self.start_waiting(peer);
        }
    }

    /// Ends all our requests to a peer whose connection has ended.
    pub(crate) fn end_all_asking(&mut self, peer: PeerId, cause: Cause) {
        for option in OptionName::ALL {
            self.end_asking(peer, *option, Err(OptionFault::Disconnected(cause)));
        }
    }

    fn tell_answer(
        &mut self,
        peer: PeerId,
        option: OptionName,
        answer: Result<Message, OptionFault>,
    ) {
        match option {
            OptionName::Health => self.tell_health(peer, answer),
        }
    }

    /// Closes connections whose peer does not answer a request in time.
    pub(crate) fn end_unanswered(&mut self) {
        let now = self.core.now;
        let mut walk = Walk::default();
        while let Some((peer, entry)) = self.core.peers.next(&mut walk) {
            let is_late =
                |lane: &PeerOption| lane.asked_at.is_some_and(|at| now.since(at) >= HEALTH_MAX);
            let late = entry.options.lanes.iter().position(is_late);
            let late = late.and_then(|place| OptionName::ALL.get(place).copied());
            if let (Some(option), Link::Fabric(_)) = (late, &entry.link) {
                self.end_asking(peer, option, Err(OptionFault::TimedOut));
                self.disconnect(peer);
            }
        }
    }
}
