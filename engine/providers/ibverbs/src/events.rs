//! What the connection manager and the device report of one connection.

use crate::{
    close::{UNSPECIFIED, end, note_flushed},
    cm,
    conn::{Conn, Shared, State},
    connect,
    device::event,
};
use libc::c_int;
use rdma_sys::rdma_cm_event_type as kind;
use stag_verbs::{Cause, FabricFault};

/// What the connection manager reports of one connection.
pub(crate) fn handle_connection_event(conn: &mut Conn, shared: &mut Shared, event: &cm::Event) {
    let is_iwarp = shared.queues.domain.device.about.is_iwarp;
    match (event.kind, conn.state) {
        (kind::RDMA_CM_EVENT_ADDR_RESOLVED, State::AwaitWay) => {
            let Some(id) = &conn.id else { return };
            let is_ours = id.device_name().is_some_and(|name| name == shared.queues.domain.device.about.name);
            if !is_ours || id.resolve_route(shared.config.connect_timeout).is_err() {
                end(conn, shared, Cause::Fabric(FabricFault::BadAddress));
            }
        }
        (kind::RDMA_CM_EVENT_ROUTE_RESOLVED, State::AwaitWay) => {
            if let Err(error) = connect::ask(conn, shared) {
                end(conn, shared, Cause::Fabric(FabricFault::from(&error)));
            }
        }
        (kind::RDMA_CM_EVENT_CONNECT_RESPONSE, State::AwaitReply) => {
            conn.private_data.clone_from(&event.private_data);
            connect::agree(conn, shared, event.reads);
            if let Err(error) = connect::answered(conn, shared) {
                end(conn, shared, Cause::Fabric(FabricFault::from(&error)));
            }
        }
        (kind::RDMA_CM_EVENT_ESTABLISHED, State::AwaitReply) => {
            conn.private_data.clone_from(&event.private_data);
            connect::established(conn, shared);
        }
        (kind::RDMA_CM_EVENT_ESTABLISHED, State::AwaitSign) => connect::established(conn, shared),
        (kind::RDMA_CM_EVENT_REJECTED, State::AwaitReply) => {
            conn.private_data.clone_from(&event.private_data);
            end(conn, shared, connect::refusal(is_iwarp, event.status));
        }
        (kind::RDMA_CM_EVENT_REJECTED, _) => end(conn, shared, Cause::Peer),
        (kind::RDMA_CM_EVENT_ADDR_ERROR | kind::RDMA_CM_EVENT_ROUTE_ERROR, _) => {
            let fault = match connect::fault(event.status) {
                FabricFault::TimedOut => FabricFault::TimedOut,
                _ => FabricFault::Refused,
            };
            end(conn, shared, Cause::Fabric(fault));
        }
        (kind::RDMA_CM_EVENT_UNREACHABLE | kind::RDMA_CM_EVENT_CONNECT_ERROR, _) => {
            end(conn, shared, Cause::Fabric(connect::fault(event.status)));
        }
        (kind::RDMA_CM_EVENT_DISCONNECTED, State::AwaitFlush) => conn.is_parted = true,
        (kind::RDMA_CM_EVENT_DISCONNECTED, _) => {
            // InfiniBand's word for the end is about the connection; a queue pair that has stopped by itself says why.
            let is_fault = !is_iwarp && conn.pair.as_ref().is_some_and(|pair| pair.has_stopped());
            conn.is_parted = true;
            end(conn, shared, if is_fault { Cause::PeerFault(UNSPECIFIED) } else { Cause::Peer });
        }
        (kind::RDMA_CM_EVENT_DEVICE_REMOVAL | kind::RDMA_CM_EVENT_ADDR_CHANGE, _) => {
            shared.stats.port_events += 1;
            // The kernel waits for the identifier to go.
            conn.is_parted |= event.kind == kind::RDMA_CM_EVENT_DEVICE_REMOVAL;
            end(conn, shared, Cause::Fabric(FabricFault::Lost));
        }
        _ => {}
    }
}

/// What the device reports of one queue pair.
pub(crate) fn handle_pair_event(conn: &mut Conn, shared: &mut Shared, number: c_int) {
    match number {
        event::LAST_WQE => {
            conn.has_last = true;
            conn.last_receive = None;
            note_flushed(conn, shared);
        }
        event::QP_ACCESS | event::QP_REQUEST => end(conn, shared, Cause::PeerFault(UNSPECIFIED)),
        event::QP_FATAL => end(conn, shared, Cause::Fabric(FabricFault::Lost)),
        // A message overtook the connection manager's.
        event::ESTABLISHED => {
            if let Some(id) = &conn.id {
                id.notify(number);
            }
        }
        _ => {}
    }
}
