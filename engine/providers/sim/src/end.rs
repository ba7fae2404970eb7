//! One end: its state, and whose turn it is.

use crate::{
    conn::{SimConn, SimState},
    net::{Net, SideId},
};
use stag_pools::{Buf, Table, Windows};
use stag_verbs::{Event, Limits, Qp, RemoteSpan, Time};
use std::collections::VecDeque;

/// One shard's part of a fabric.
#[derive(Debug)]
pub(crate) struct SimEnd {
    pub(crate) id: usize,
    pub(crate) limits: Limits,
    pub(crate) conns: Table<SimConn>,
    pub(crate) windows: Windows,
    pub(crate) receives: VecDeque<Buf>,
    /// The latest message was left to a poll, so the next one is returned by a look.
    pub(crate) looks: bool,
    pub(crate) events: VecDeque<Event>,
    /// Connections with work whose doorbell was not rung.
    pub(crate) dirty: Vec<Qp>,
    /// Its end was reported by the latest poll.
    pub(crate) ended: Option<Qp>,
    /// Messages that wait for a receive.
    pub(crate) parked: usize,
    /// Span lists that no Read uses.
    pub(crate) spans: Vec<Vec<RemoteSpan>>,
    /// The places of one round.
    round: Vec<SideId>,
}

impl SimEnd {
    pub(crate) fn new(id: usize, limits: Limits, key_seed: [u8; 32]) -> Self {
        let per_connection = limits.send_queue + 4;
        Self {
            id,
            conns: Table::new(limits.connections),
            windows: Windows::new(limits.windows, key_seed),
            receives: VecDeque::with_capacity(limits.receives),
            looks: false,
            events: VecDeque::with_capacity(limits.connections * per_connection + limits.receives),
            dirty: Vec::with_capacity(limits.connections),
            ended: None,
            parked: 0,
            spans: (0..limits.send_queue).map(|_| Vec::with_capacity(limits.read_spans)).collect(),
            round: Vec::with_capacity(limits.connections),
            limits,
        }
    }

    pub(crate) fn conn(&mut self, qp: Qp) -> &mut SimConn {
        self.conns.get_mut(qp.0).expect("a connection is in the table until its end is reported")
    }

    /// Lets everything happen that is due, until there is an event.
    pub(crate) fn progress(&mut self, net: &mut Net) {
        while self.events.is_empty() && net.entry(self.id).due.is_some_and(|due| due <= net.now()) {
            let mut round = std::mem::take(&mut self.round);
            round.clear();
            round.extend_from_slice(&net.entry(self.id).places);
            let first = net.below(round.len());
            for index in 0..round.len() {
                if let Some(place) = round.get((first + index) % round.len()) {
                    self.turn(net, *place);
                }
            }
            self.round = round;
            self.set_due(net);
        }
    }

    fn set_due(&mut self, net: &mut Net) {
        let mut due: Option<Time> = None;
        for index in 0..net.entry(self.id).places.len() {
            let Some(place) = net.entry(self.id).places.get(index).copied() else { break };
            let side = net.side(place);
            let own = side.qp.and_then(|qp| self.conns.get(qp.0)).and_then(SimConn::due);
            due = [due, own, side.due()].into_iter().flatten().min();
        }
        net.entry(self.id).due = due;
    }

    /// Everything that is due at one connection.
    fn turn(&mut self, net: &mut Net, place: SideId) {
        if net.side(place).qp.is_none() {
            match net.arrive(place) {
                Some(item) => return self.meet(net, place, item),
                None => return self.forget(net, place),
            }
        }
        let qp = net.side(place).qp.expect("it was just looked at");
        self.collect(net, qp);
        self.unpark(net, qp);
        while self.is_live(qp) {
            let Some(item) = net.arrive(place) else { break };
            self.deliver(net, qp, item);
        }
        while self.is_live(qp) && self.fetch(net, qp) {}
        if self.is_live(qp) {
            self.start(net, qp);
            self.collect(net, qp);
            self.timers(net, qp);
        }
    }

    pub(crate) fn is_live(&self, qp: Qp) -> bool {
        self.conns.get(qp.0).is_some_and(|conn| conn.state != SimState::Dead)
    }
}
