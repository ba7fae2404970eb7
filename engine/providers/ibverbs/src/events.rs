//! Reports of the connection manager and the device, each passed to its connection.

use crate::sys::{ibv_event_type as event, rdma_cm_event_type as kind};
use crate::{
    Ibverbs,
    close::{self, UNSPECIFIED, end, note_flushed},
    cm::{self, LISTENER},
    conn::{IbverbsConn, IbverbsShared, IbverbsState},
    device::DeviceEvent,
    errands::Outcome,
    rdmacm,
};
use libc::c_int;
use stag_pools::table::Key;
use stag_verbs::{Cause, FabricFault, Qp};
use std::sync::Arc;

impl Ibverbs {
    pub(crate) fn handle_connection_event(&mut self, event: rdmacm::Event) {
        match event.kind {
            kind::RDMA_CM_EVENT_CONNECT_REQUEST => return self.hand_on(&event),
            // All identifiers of this channel belong to one device.
            kind::RDMA_CM_EVENT_DEVICE_REMOVAL => return self.lose_removed(),
            kind::RDMA_CM_EVENT_ADDR_CHANGE if event.context & LISTENER == LISTENER => {
                return self.change_address(event.context);
            }
            _ if event.context & LISTENER == LISTENER => return,
            _ => {}
        }
        let qp = Qp(Key::from_bits(event.context));
        let is_known = self.with(qp, |conn, shared| {
            let is_its = conn.id.as_ref().is_some_and(|id| id.is(event.id));
            if is_its {
                handle_connection_event(conn, shared, &event);
            }
            is_its
        });
        if is_known != Some(true)
            && matches!(
                event.kind,
                kind::RDMA_CM_EVENT_DISCONNECTED | kind::RDMA_CM_EVENT_TIMEWAIT_EXIT
            )
        {
            let IbverbsShared { parting, errands, .. } = &mut self.shared;
            let over = parting.extract_if(.., |(id, _)| id.is(event.id));
            over.for_each(|(id, _)| errands.discard(id));
        }
    }

    /// Handles the outcome of an errand.
    pub(crate) fn handle_outcome(&mut self, qp: Qp, outcome: Outcome) {
        let known = self.with(qp, |conn, shared| {
            conn.errands -= 1;
            handle_outcome(conn, shared, outcome);
            note_flushed(conn, shared);
        });
        debug_assert!(known.is_some(), "a connection stays until its errands are done");
    }

    pub(crate) fn handle_device_event(&mut self, reported: &DeviceEvent) {
        let (number, qp) = (reported.number, Qp(Key::from_bits(reported.of)));
        match number {
            event::IBV_EVENT_QP_LAST_WQE_REACHED
            | event::IBV_EVENT_QP_ACCESS_ERR
            | event::IBV_EVENT_QP_REQ_ERR
            | event::IBV_EVENT_QP_FATAL
            | event::IBV_EVENT_COMM_EST => {
                self.with(qp, |conn, shared| handle_pair_event(conn, shared, number));
            }
            // Pending work is lost, and a queue in error stays in error.
            event::IBV_EVENT_DEVICE_FATAL | event::IBV_EVENT_CQ_ERR | event::IBV_EVENT_SRQ_ERR => {
                self.lose();
            }
            // Connections outlive a port that comes back soon enough; else their retries end them.
            event::IBV_EVENT_PORT_ERR | event::IBV_EVENT_PORT_ACTIVE => {
                self.change_port(reported.of, number == event::IBV_EVENT_PORT_ERR);
            }
            event::IBV_EVENT_GID_CHANGE => self.look_at_address(),
            _ => {}
        }
    }
}

/// Handles an event that the connection manager reports of one connection.
pub(crate) fn handle_connection_event(
    conn: &mut IbverbsConn,
    shared: &mut IbverbsShared,
    event: &rdmacm::Event,
) {
    let is_iwarp = shared.about.is_iwarp;
    match (event.kind, conn.state) {
        (kind::RDMA_CM_EVENT_ADDR_RESOLVED, IbverbsState::AwaitWay) => {
            let is_ours = event.device.as_ref().is_some_and(|name| *name == shared.about.name);
            let (Some(id), true) = (conn.id.clone(), is_ours) else {
                return end(conn, shared, Cause::Fabric(FabricFault::BadAddress));
            };
            let within = shared.config.connect_timeout;
            conn.send(shared, move || Outcome::RouteAsked(id.resolve_route(within)));
        }
        (kind::RDMA_CM_EVENT_ROUTE_RESOLVED, IbverbsState::AwaitWay) => {
            if let Err(error) = cm::ask(conn, shared) {
                end(conn, shared, Cause::Fabric(FabricFault::from(&error)));
            }
        }
        (kind::RDMA_CM_EVENT_CONNECT_RESPONSE, IbverbsState::AwaitReply) => {
            conn.private_data.clone_from(&event.private_data);
            cm::agree(conn, shared, event.reads);
            if let Err(error) = cm::answered(conn, shared) {
                end(conn, shared, Cause::Fabric(FabricFault::from(&error)));
            }
        }
        (kind::RDMA_CM_EVENT_ESTABLISHED, IbverbsState::AwaitReply) => {
            conn.private_data.clone_from(&event.private_data);
            cm::established(conn, shared);
        }
        (kind::RDMA_CM_EVENT_ESTABLISHED, IbverbsState::AwaitSign) => cm::established(conn, shared),
        (kind::RDMA_CM_EVENT_REJECTED, IbverbsState::AwaitReply) => {
            conn.private_data.clone_from(&event.private_data);
            end(conn, shared, cm::refusal(is_iwarp, event.status));
        }
        (kind::RDMA_CM_EVENT_REJECTED, _) => end(conn, shared, Cause::Peer),
        (kind::RDMA_CM_EVENT_ADDR_ERROR | kind::RDMA_CM_EVENT_ROUTE_ERROR, _) => {
            let fault = match cm::fault(event.status) {
                FabricFault::TimedOut => FabricFault::TimedOut,
                _ => FabricFault::Refused,
            };
            end(conn, shared, Cause::Fabric(fault));
        }
        (kind::RDMA_CM_EVENT_UNREACHABLE | kind::RDMA_CM_EVENT_CONNECT_ERROR, _) => {
            end(conn, shared, Cause::Fabric(cm::fault(event.status)));
        }
        (kind::RDMA_CM_EVENT_DISCONNECTED, IbverbsState::AwaitFlush) => conn.is_parted = true,
        // InfiniBand's word for the end is about the connection; a queue pair that has stopped by
        // itself says why.
        (kind::RDMA_CM_EVENT_DISCONNECTED, _) => {
            conn.is_parted = true;
            match conn.pair.clone().filter(|_| !is_iwarp) {
                Some(pair) => conn.send(shared, move || Outcome::Parted(pair.has_stopped())),
                None => end(conn, shared, Cause::Peer),
            }
        }
        (kind::RDMA_CM_EVENT_ADDR_CHANGE, _) => {
            shared.stats.port_events += 1;
            end(conn, shared, Cause::Fabric(FabricFault::Lost));
        }
        _ => {}
    }
}

/// Handles the outcome of an errand of a connection, which may have begun to end meanwhile.
fn handle_outcome(conn: &mut IbverbsConn, shared: &mut IbverbsShared, outcome: Outcome) {
    let done = match outcome {
        Outcome::Dialled(Ok(id)) => {
            conn.id = Some(Arc::new(id));
            Ok(())
        }
        Outcome::Dialled(Err(error)) => {
            return end(conn, shared, Cause::Fabric(cm::no_way(&error)));
        }
        Outcome::RouteAsked(asked) => {
            if asked.is_err() {
                end(conn, shared, Cause::Fabric(FabricFault::BadAddress));
            }
            return;
        }
        Outcome::Made(Ok(pair)) => cm::made(conn, shared, pair),
        Outcome::Made(Err(error)) => Err(error),
        Outcome::Said(said) => said,
        Outcome::Ready(Ok(())) => {
            if conn.state == IbverbsState::AwaitReply {
                cm::established(conn, shared);
            }
            Ok(())
        }
        Outcome::Ready(Err(error)) => Err(error),
        Outcome::Parted(has_stopped) => {
            let cause = if has_stopped { Cause::PeerFault(UNSPECIFIED) } else { Cause::Peer };
            return end(conn, shared, cause);
        }
        Outcome::Released(released) => return close::released(conn, shared, released),
    };
    if let Err(error) = done {
        end(conn, shared, Cause::Fabric(FabricFault::from(&error)));
    }
}

/// Handles an event that the device reports of one queue pair.
pub(crate) fn handle_pair_event(conn: &mut IbverbsConn, shared: &mut IbverbsShared, number: c_int) {
    match number {
        event::IBV_EVENT_QP_LAST_WQE_REACHED => {
            conn.has_last = true;
            conn.last_receive = None;
            note_flushed(conn, shared);
        }
        event::IBV_EVENT_QP_ACCESS_ERR | event::IBV_EVENT_QP_REQ_ERR => {
            end(conn, shared, Cause::PeerFault(UNSPECIFIED))
        }
        event::IBV_EVENT_QP_FATAL => end(conn, shared, Cause::Fabric(FabricFault::Lost)),
        // A message overtook the connection manager's.
        event::IBV_EVENT_COMM_EST => {
            if let Some(id) = conn.id.clone() {
                shared.errands.send(move || id.notify(number));
            }
        }
        _ => {}
    }
}
