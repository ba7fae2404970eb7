//! Functions of libibverbs: queue pairs.

use super::{
    at, lend, nothing, regain,
    state::{QueuePairState, ReceiveQueue},
    system_call, with,
};
use crate::{
    device::tests::zeroed,
    library::Library,
    sys::{ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state as state},
};
use libc::c_int;
use std::collections::VecDeque;

unsafe extern "C" fn create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    system_call();
    // SAFETY: the caller has it.
    let context = unsafe { (*domain).context };
    // SAFETY: the caller has it.
    let asked = unsafe { *init };
    with(|host| {
        if host.is_dead(context) {
            return nothing(libc::EIO);
        }
        let adapter = host.adapter(context);
        if !adapter.has_connections {
            return nothing(libc::EOPNOTSUPP);
        }
        let cap = asked.cap;
        if cap.max_inline_data > adapter.inline_max || cap.max_send_wr > adapter.queue_depth as u32
        {
            return nothing(libc::EINVAL);
        }
        host.objects.numbers += 1;
        let number = host.objects.numbers;
        let mut pair = zeroed::<ibv_qp>();
        (pair.context, pair.qp_context, pair.qp_num) = (context, asked.qp_context, number);
        let raw = lend(pair);
        let _ = raw.expose_provenance();
        let state = QueuePairState {
            raw,
            state: 0,
            domain: at(domain),
            context: at(context),
            completions: at(asked.send_cq),
            receives: at(asked.srq),
            own: ReceiveQueue { capacity: cap.max_recv_wr as usize, waiting: VecDeque::new() },
            depth: cap.max_send_wr as usize,
            sends: VecDeque::new(),
            peer: None,
            link: Default::default(),
        };
        host.objects.pairs.insert(number, state);
        raw
    })
}

unsafe extern "C" fn modify_qp(pair: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    system_call();
    assert!(mask & ibv_qp_attr_mask::IBV_QP_STATE as c_int != 0, "a change of state");
    // SAFETY: the caller has it.
    let number = unsafe { (*pair).qp_num };
    // SAFETY: the caller has it.
    let attr = unsafe { *attr };
    let to = attr.qp_state;
    with(|host| {
        let found = host.objects.pairs.get_mut(&number).unwrap();
        if host.objects.dead.contains(&found.context) {
            return libc::EIO;
        }
        let is_allowed = match (found.state, to) {
            (_, state::IBV_QPS_ERR) => {
                host.objects.stop(number);
                return 0;
            }
            (0 | state::IBV_QPS_INIT, state::IBV_QPS_INIT)
            | (state::IBV_QPS_INIT, state::IBV_QPS_RTR)
            | (state::IBV_QPS_RTR, state::IBV_QPS_RTS) => true,
            _ => false,
        };
        if !is_allowed {
            return libc::EINVAL;
        }
        found.state = to;
        if mask & ibv_qp_attr_mask::IBV_QP_AV as c_int != 0 {
            found.link.0 = attr.ah_attr.traffic_class;
        }
        if mask & ibv_qp_attr_mask::IBV_QP_TIMEOUT as c_int != 0 {
            (found.link.1, found.link.2) = (attr.timeout, attr.retry_cnt);
        }
        super::data::go_on(host);
        0
    })
}

unsafe extern "C" fn query_qp(
    pair: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    system_call();
    // SAFETY: the caller has it.
    let number = unsafe { (*pair).qp_num };
    let found = with(|host| host.objects.pairs.get(&number).unwrap().state);
    // SAFETY: the caller has it.
    unsafe { (*attr).qp_state = found };
    0
}

unsafe extern "C" fn destroy_qp(pair: *mut ibv_qp) -> c_int {
    system_call();
    // SAFETY: it came from `create_qp`.
    let number = unsafe { (*pair).qp_num };
    let is_kept = with(|host| {
        let objects = &mut host.objects;
        let mut bound = objects.windows.values().filter_map(|window| window.bound);
        if bound.any(|(of, ..)| of == number) {
            return true;
        }
        let gone = objects.pairs.remove(&number).unwrap();
        // As drivers do, whose completions lead to the queue pair.
        if let Some(queue) = objects.queues.get_mut(&gone.completions) {
            queue.waiting.retain(|completion| completion.qp_num != number);
        }
        let told = objects.contexts.get_mut(&gone.context).unwrap();
        let others = std::iter::from_fn(|| told.pop()).filter(|(_, of)| *of != at(pair));
        others.collect::<Vec<_>>().into_iter().for_each(|other| told.push(other));
        false
    });
    if is_kept {
        return libc::EBUSY;
    }
    // SAFETY: it came from `create_qp`, and is given back once.
    let pair = unsafe { regain(pair) };
    if with(|host| host.is_dead(pair.context)) { libc::EIO } else { 0 }
}

/// Puts the functions into the table.
pub(super) fn fill(table: &mut Library) {
    table.ibv_create_qp = create_qp;
    table.ibv_modify_qp = modify_qp;
    table.ibv_query_qp = query_qp;
    table.ibv_destroy_qp = destroy_qp;
}
