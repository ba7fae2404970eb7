//! Connection set-up: connect requests, their answers, and the times that both keep.

use crate::{
    conn::{SimConn, SimState},
    end::SimEnd,
    net::{InFlight, Net, Parcel, SideId},
};
use stag_verbs::{Cause, Event, FabricFault, Qp};

impl SimEnd {
    /// A connect request arrives.
    pub(crate) fn meet(&mut self, net: &mut Net, place: SideId, item: InFlight) {
        let Parcel::ConnectRequest(private_data) = item.what else {
            return self.refuse(net, place);
        };
        if !net.is_listening(self.id) {
            return self.refuse(net, place);
        }
        let conn = SimConn::new(place, SimState::AwaitAnswer, private_data, self.limits.send_queue);
        match self.conns.insert(conn) {
            Ok(key) => {
                net.side(place).qp = Some(Qp(key));
                self.events.push_back(Event::ConnectRequest { qp: Qp(key) });
            }
            Err(_) => self.refuse(net, place),
        }
    }

    pub(crate) fn refuse(&mut self, net: &mut Net, place: SideId) {
        net.send(place, 0, Parcel::Close(Cause::Fabric(FabricFault::Refused), None));
        net.leave(place);
    }

    /// A connection breaks before its request arrived: this end never knew it.
    pub(crate) fn forget(&mut self, net: &mut Net, place: SideId) {
        let now = net.now();
        if net.side(place).lost_at.is_some_and(|at| at <= now) {
            net.leave(place);
        }
    }

    pub(crate) fn timers(&mut self, net: &mut Net, qp: Qp) {
        let now = net.now();
        let conn = self.conn(qp);
        if conn.ready_at.is_some_and(|at| at <= now) {
            self.establish(qp);
        }
        let conn = self.conn(qp);
        let (place, death) = (conn.place, conn.die_at);
        if let Some((_, cause)) = death.filter(|(at, _)| *at <= now) {
            self.die(net, qp, cause, None);
        } else if net.side(place).lost_at.is_some_and(|at| at <= now) {
            self.die(net, qp, Cause::Fabric(FabricFault::Lost), None);
        }
    }

    pub(crate) fn establish(&mut self, qp: Qp) {
        let conn = self.conn(qp);
        conn.ready_at = None;
        if matches!(conn.state, SimState::AwaitReady | SimState::AwaitReply) {
            conn.state = SimState::Established;
            self.events.push_back(Event::Established { qp });
        }
    }
}
