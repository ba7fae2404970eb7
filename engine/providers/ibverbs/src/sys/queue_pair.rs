//! Queue pairs: how one is made, its attributes and states.

use super::{ibv_context, ibv_cq, ibv_pd, ibv_srq};
use libc::{c_int, c_void};

/// A queue pair.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    /// Set by the owner; asynchronous events lead to it.
    pub(crate) qp_context: *mut c_void,
    pd: *mut ibv_pd,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    handle: u32,
    /// The number that completions and the connection manager name it by.
    pub(crate) qp_num: u32,
}

layout! {
    first ibv_qp: 56 {
        0 context,
        8 qp_context,
        16 pd,
        24 send_cq,
        32 recv_cq,
        40 srq,
        48 handle,
        52 qp_num,
    }
}

/// Sizes of the queues of a queue pair.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    /// Bytes of the longest message that travels in its work request.
    pub(crate) max_inline_data: u32,
}

layout! {
    whole ibv_qp_cap: 20 {
        0 max_send_wr,
        4 max_recv_wr,
        8 max_send_sge,
        12 max_recv_sge,
        16 max_inline_data,
    }
}

/// A queue pair to be made.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    /// Requested sizes; on return, the sizes in effect.
    pub(crate) cap: ibv_qp_cap,
    /// One of [`ibv_qp_type`].
    pub(crate) qp_type: u32,
    /// 0: only signaled work requests complete.
    pub(crate) sq_sig_all: c_int,
}

layout! {
    whole ibv_qp_init_attr: 64 {
        0 qp_context,
        8 send_cq,
        16 recv_cq,
        24 srq,
        32 cap,
        52 qp_type,
        56 sq_sig_all,
    }
}

constants! {
    /// Types of queue pairs: reliable connections.
    ibv_qp_type: u32 {
        IBV_QPT_RC = 2,
    }
}

/// A path to a peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_ah_attr {
    dgid: [u64; 2],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    /// Of packets with a global route, which those of RoCE are.
    pub(crate) traffic_class: u8,
    grh_end: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
}

layout! {
    whole ibv_ah_attr: 32 {
        0 dgid as grh.dgid,
        16 flow_label as grh.flow_label,
        20 sgid_index as grh.sgid_index,
        21 hop_limit as grh.hop_limit,
        22 traffic_class as grh.traffic_class,
        23 grh_end (unused),
        24 dlid,
        26 sl,
        27 src_path_bits,
        28 static_rate,
        29 is_global,
        30 port_num,
    }
}

/// Attributes of a queue pair. A mask of [`ibv_qp_attr_mask`] selects which of them are valid.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_qp_attr {
    /// One of [`ibv_qp_state`].
    pub(crate) qp_state: u32,
    cur_qp_state: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    /// Bits of [`ibv_access_flags`](super::ibv_access_flags).
    pub(crate) qp_access_flags: u32,
    cap: ibv_qp_cap,
    /// Primary and alternate path to the peer, filled by the connection manager.
    pub(crate) ah_attr: ibv_ah_attr,
    alt_ah_attr: ibv_ah_attr,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    /// RDMA Reads that this side has outstanding at most.
    pub(crate) max_rd_atomic: u8,
    /// RDMA Reads of the peer that this side serves at a time.
    pub(crate) max_dest_rd_atomic: u8,
    /// Code of the time after which the peer repeats a message that found no receive.
    pub(crate) min_rnr_timer: u8,
    port_num: u8,
    /// Code of the time after which a packet without acknowledgement is repeated.
    pub(crate) timeout: u8,
    /// Number of times that it is.
    pub(crate) retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    rate_limit: u32,
}

layout! {
    whole ibv_qp_attr: 144 {
        0 qp_state,
        4 cur_qp_state,
        8 path_mtu,
        12 path_mig_state,
        16 qkey,
        20 rq_psn,
        24 sq_psn,
        28 dest_qp_num,
        32 qp_access_flags,
        36 cap,
        56 ah_attr,
        88 alt_ah_attr,
        120 pkey_index,
        122 alt_pkey_index,
        124 en_sqd_async_notify,
        125 sq_draining,
        126 max_rd_atomic,
        127 max_dest_rd_atomic,
        128 min_rnr_timer,
        129 port_num,
        130 timeout,
        131 retry_cnt,
        132 rnr_retry,
        133 alt_port_num,
        134 alt_timeout,
        136 rate_limit,
    }
}

constants! {
    /// Attributes that a call sets or asks for.
    ibv_qp_attr_mask: u32 {
        IBV_QP_STATE = 1,
        IBV_QP_AV = 1 << 7,
        IBV_QP_TIMEOUT = 1 << 9,
        IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
    }
}

constants! {
    /// States of a queue pair.
    ibv_qp_state: u32 {
        IBV_QPS_INIT = 1,
        IBV_QPS_RTR = 2,
        IBV_QPS_RTS = 3,
        IBV_QPS_ERR = 6,
    }
}
