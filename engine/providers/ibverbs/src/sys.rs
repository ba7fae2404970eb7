//! The used part of rdma-sys: types, constants, and the data path, which libibverbs has as inline
//! functions. A function that libibverbs or librdmacm exports has no place in this list: one direct
//! call would link the library. Those go through `library`.

#[cfg(test)]
pub(crate) use rdma_sys::ibv_context_ops;
pub(crate) use rdma_sys::{
    bind_mw_t, bind_mw_tso_union_t, ibv_access_flags, ibv_alloc_mw, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_dealloc_mw, ibv_device, ibv_device_attr, ibv_device_cap_flags, ibv_mr, ibv_mw,
    ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_poll_cq, ibv_post_send, ibv_post_srq_recv, ibv_qp,
    ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
    ibv_recv_wr, ibv_req_notify_cq, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr, ibv_transport_type, ibv_wc, ibv_wc_flags, ibv_wc_status, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t, qp_type_t, rdma_cm_event, rdma_cm_event_type, rdma_cm_id,
    rdma_conn_param, rdma_event_channel, rdma_port_space, rdma_t, tso_t, wr_t, xrc_t,
};
