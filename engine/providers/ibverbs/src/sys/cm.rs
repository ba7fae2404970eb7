//! The connection manager: identifiers, events and parameters of connections.

use super::{ibv_context, ibv_qp};
use libc::{c_int, c_void, sockaddr_storage};

/// A channel that delivers the events of identifiers.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_event_channel {
    /// Readable when there is an event.
    pub(crate) fd: c_int,
}

layout! {
    whole rdma_event_channel: 4 {
        0 fd,
    }
}

/// An identifier: a listener or one end of a connection.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_cm_id {
    /// The device of the route, null until that is known.
    pub(crate) verbs: *mut ibv_context,
    channel: *mut rdma_event_channel,
    /// Set by the owner.
    pub(crate) context: *mut c_void,
    qp: *mut ibv_qp,
    src_addr: sockaddr_storage,
    pub(crate) dst_addr: sockaddr_storage,
    ib_addr: [u64; 5],
    path_rec: *mut c_void,
    num_paths: c_int,
    route_end: u32,
    ps: u32,
    /// The port of the device.
    pub(crate) port_num: u8,
}

layout! {
    first rdma_cm_id: 352 {
        0 verbs,
        8 channel,
        16 context,
        24 qp,
        32 src_addr as route.addr.src_addr_union,
        160 dst_addr as route.addr.dst_addr_union,
        288 ib_addr as route.addr.addr,
        328 path_rec as route.path_rec,
        336 num_paths as route.num_paths,
        340 route_end (unused),
        344 ps,
        348 port_num,
    }
}

constants! {
    /// Port spaces: reliable connections.
    rdma_port_space: u32 {
        RDMA_PS_TCP = 0x0106,
    }
}

/// Parameters of a connection: of this side, or, in an event, of the peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    /// RDMA Reads of the peer that this side serves at a time.
    pub(crate) responder_resources: u8,
    /// RDMA Reads that this side has outstanding at most.
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    /// Retries of a message that finds no receive; 7: without limit.
    pub(crate) rnr_retry_count: u8,
    /// 1: receives come from a shared queue.
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

layout! {
    whole rdma_conn_param: 24 {
        0 private_data,
        8 private_data_len,
        9 responder_resources,
        10 initiator_depth,
        11 flow_control,
        12 retry_count,
        13 rnr_retry_count,
        14 srq,
        16 qp_num,
    }
}

/// An event of an identifier.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_cm_event {
    /// The identifier it is about; of a connect request, the new one.
    pub(crate) id: *mut rdma_cm_id,
    /// Of a connect request, the listener.
    pub(crate) listen_id: *mut rdma_cm_id,
    /// One of [`rdma_cm_event_type`].
    pub(crate) event: u32,
    pub(crate) status: c_int,
    /// Parameters of the peer; zero if the event has none. In C this is a union with the longer
    /// parameters of datagrams.
    pub(crate) param: rdma_conn_param,
}

layout! {
    first rdma_cm_event: 48 {
        0 id,
        8 listen_id,
        16 event,
        20 status,
        24 param (first),
    }
}

constants! {
    /// Types of events of identifiers.
    rdma_cm_event_type: u32 {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        RDMA_CM_EVENT_UNREACHABLE = 7,
        RDMA_CM_EVENT_REJECTED = 8,
        RDMA_CM_EVENT_ESTABLISHED = 9,
        RDMA_CM_EVENT_DISCONNECTED = 10,
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }
}
