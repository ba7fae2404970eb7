//! Work requests, carried out in the order of their queue, and completions.

use super::{
    Host, at,
    state::{Objects, Opened, Receive, completed, right},
    system_call, with,
};
use crate::sys::{
    ibv_access_flags as access, ibv_context, ibv_cq, ibv_event_type as event, ibv_qp,
    ibv_qp_state as state, ibv_send_flags as flag, ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_flags,
    ibv_wc_status as status, ibv_wr_opcode as operation,
};
use libc::c_int;

/// Status of a work request that names foreign memory, or a window that cannot be bound or
/// invalidated (`IBV_WC_LOC_PROT_ERR`, `IBV_WC_MW_BIND_ERR`).
const LOCAL_PROTECTION: u32 = 4;
const BIND: u32 = 6;
/// Status of a receive whose message invalidates a key that is not its sender's
/// (`IBV_WC_LOC_ACCESS_ERR`).
const LOCAL_ACCESS: u32 = 8;

/// Software devices learn of work by a system call.
fn call_if_soft(context: *mut ibv_context) {
    let name = with(|host| host.adapter(context).name);
    if matches!(name, "rxe" | "siw") {
        system_call();
    }
}

/// A work request that was posted.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    wr: ibv_send_wr,
    named: Option<ibv_sge>,
}

/// The end of a work request.
enum Outcome {
    Done,
    /// It waits for its peer.
    Waits,
    /// It fails with this status, and its connection with it.
    Fails(u32),
}

pub(super) unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller has it.
    let number = unsafe { (*pair).qp_num };
    // SAFETY: the caller has it.
    call_if_soft(unsafe { (*pair).context });
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the caller's chain.
        let wr = unsafe { *next };
        // SAFETY: as above.
        let named = (wr.num_sge > 0).then(|| unsafe { *wr.sg_list });
        let code = with(|host| post(host, number, Request { wr_id: wr.wr_id, wr, named }));
        if code != 0 {
            // SAFETY: the caller has it.
            unsafe { *bad = next };
            with(go_on);
            return code;
        }
        next = wr.next;
    }
    with(go_on);
    0
}

pub(super) unsafe extern "C" fn poll_cq(
    queue: *mut ibv_cq,
    count: c_int,
    into: *mut ibv_wc,
) -> c_int {
    with(|host| {
        let waiting = &mut host.objects.queues.get_mut(&at(queue)).unwrap().waiting;
        let count = waiting.len().min(count as usize);
        for (place, completion) in waiting.drain(..count).enumerate() {
            // SAFETY: the caller has room for `count` completions.
            let place = unsafe { into.add(place) };
            // SAFETY: as above.
            unsafe { *place = completion };
        }
        count as c_int
    })
}

pub(super) unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, _: c_int) -> c_int {
    // SAFETY: the caller has it.
    call_if_soft(unsafe { (*queue).context });
    with(|host| host.objects.queues.get_mut(&at(queue)).unwrap().is_armed = true);
    0
}

fn post(host: &mut Host, number: u32, request: Request) -> c_int {
    let device = host.objects.device_of(host.objects.pairs.get(&number).unwrap().context);
    let (adapter, objects) = (host.adapters[device], &mut host.objects);
    let pair = objects.pairs.get_mut(&number).unwrap();
    use super::DeviceWindowing as Windowing;
    let has_windows = matches!(adapter.windowing, Windowing::Works | Windowing::Unsaid);
    let is_known = match request.wr.opcode {
        operation::IBV_WR_SEND | operation::IBV_WR_RDMA_WRITE | operation::IBV_WR_RDMA_READ => true,
        operation::IBV_WR_SEND_WITH_INV => adapter.sends_invalidation,
        operation::IBV_WR_LOCAL_INV | operation::IBV_WR_BIND_MW => has_windows,
        _ => false,
    };
    let is_inline = request.wr.send_flags & flag::IBV_SEND_INLINE != 0;
    let len = request.named.map_or(0, |named| named.length);
    if !is_known || (is_inline && len > adapter.inline_max) {
        return libc::EINVAL;
    }
    match pair.state {
        state::IBV_QPS_RTS if pair.sends.len() >= pair.depth => libc::ENOMEM,
        state::IBV_QPS_RTS => {
            pair.sends.push_back(request);
            0
        }
        state::IBV_QPS_ERR => {
            let (queue, flushed) = (pair.completions, status::IBV_WC_WR_FLUSH_ERR);
            objects.complete(queue, completed(request.wr_id, flushed, number));
            0
        }
        _ => libc::EINVAL,
    }
}

/// Carries out all work that is ready.
pub(super) fn go_on(host: &mut Host) {
    let adapters = &host.adapters;
    let objects = &mut host.objects;
    let numbers: Vec<u32> = objects.pairs.keys().copied().collect();
    for number in numbers {
        loop {
            let pair = objects.pairs.get(&number).unwrap();
            if pair.state != state::IBV_QPS_RTS {
                break;
            }
            let Some(request) = pair.sends.front().copied() else { break };
            let (queue, wr) = (pair.completions, request.wr);
            let wants_sinks = adapters[objects.device_of(pair.context)].wants_sinks;
            match carry_out(objects, number, &request, wants_sinks) {
                Outcome::Waits => break,
                Outcome::Done => {
                    objects.pairs.get_mut(&number).unwrap().sends.pop_front();
                    if wr.send_flags & flag::IBV_SEND_SIGNALED != 0 {
                        objects
                            .complete(queue, completed(wr.wr_id, status::IBV_WC_SUCCESS, number));
                    }
                }
                Outcome::Fails(why) => {
                    if let Some(pair) = objects.pairs.get_mut(&number) {
                        pair.sends.pop_front();
                    }
                    objects.complete(queue, completed(wr.wr_id, why, number));
                    objects.stop(number);
                }
            }
        }
    }
}

fn carry_out(objects: &mut Objects, number: u32, request: &Request, wants_sinks: bool) -> Outcome {
    match request.wr.opcode {
        operation::IBV_WR_SEND | operation::IBV_WR_SEND_WITH_INV => send(objects, number, request),
        operation::IBV_WR_RDMA_WRITE => move_octets(objects, number, request, true, 0),
        operation::IBV_WR_RDMA_READ => {
            let sink = access::IBV_ACCESS_LOCAL_WRITE
                | if wants_sinks { access::IBV_ACCESS_REMOTE_WRITE } else { 0 };
            move_octets(objects, number, request, false, sink)
        }
        operation::IBV_WR_LOCAL_INV => {
            match invalidate(objects, number, request.wr.invalidate_rkey) {
                true => Outcome::Done,
                false => Outcome::Fails(BIND),
            }
        }
        _ => bind(objects, number, request),
    }
}

/// The address of the local memory that a work request names, with the rights that it needs.
fn ours(objects: &Objects, number: u32, named: Option<ibv_sge>, rights: u32) -> Option<usize> {
    let Some(named) = named else { return Some(0) };
    let region = objects.regions.get(&named.lkey)?;
    let pair = objects.pairs.get(&number)?;
    let is_allowed = region.domain == pair.domain && region.opened.access & rights == rights;
    let found = inside(&region.opened, named.addr, named.length);
    found.filter(|_| is_allowed)
}

/// The address of a span, if it is inside.
fn inside(opened: &Opened, addr: u64, len: u32) -> Option<usize> {
    let (at, len) = (addr as usize, len as usize);
    let from = at.checked_sub(opened.base)?;
    (from.checked_add(len)? <= opened.len).then_some(at)
}

/// The peer, while it can be reached.
fn peer(objects: &Objects, number: u32) -> Option<u32> {
    let peer = objects.pairs.get(&number)?.peer?;
    let found = objects.pairs.get(&peer)?;
    matches!(found.state, state::IBV_QPS_RTR | state::IBV_QPS_RTS).then_some(peer)
}

fn send(objects: &mut Objects, number: u32, request: &Request) -> Outcome {
    let Some(from) = ours(objects, number, request.named, 0) else {
        return Outcome::Fails(LOCAL_PROTECTION);
    };
    let Some(to) = peer(objects, number) else { return Outcome::Waits };
    let found = objects.pairs.get_mut(&to).unwrap();
    let (queue, receives) = (found.completions, found.receives);
    let waiting = match objects.receives.get_mut(&receives) {
        Some(shared) => &mut shared.waiting,
        None => &mut found.own.waiting,
    };
    let Some(Receive { wr_id, base, len: room }) = waiting.pop_front() else {
        objects.missed += 1;
        return Outcome::Waits;
    };
    let len = request.named.map_or(0, |named| named.length);
    if len as usize > room {
        objects.complete(queue, completed(wr_id, status::IBV_WC_LOC_LEN_ERR, to));
        objects.stop(to);
        return Outcome::Fails(status::IBV_WC_REM_INV_REQ_ERR);
    }
    let key = request.wr.invalidate_rkey;
    let invalidates = request.wr.opcode == operation::IBV_WR_SEND_WITH_INV;
    if invalidates && !invalidate(objects, to, key) {
        objects.complete(queue, completed(wr_id, LOCAL_ACCESS, to));
        objects.stop(to);
        return Outcome::Fails(status::IBV_WC_REM_OP_ERR);
    }
    copy(from, base, len);
    let mut arrived = completed(wr_id, status::IBV_WC_SUCCESS, to);
    (arrived.byte_len, arrived.invalidated_rkey) = (len, key);
    arrived.wc_flags = if invalidates { ibv_wc_flags::IBV_WC_WITH_INV } else { 0 };
    objects.complete(queue, arrived);
    Outcome::Done
}

/// An RDMA Write or Read.
fn move_octets(
    objects: &mut Objects,
    number: u32,
    request: &Request,
    is_write: bool,
    rights: u32,
) -> Outcome {
    let Some(here) = ours(objects, number, request.named, rights) else {
        return Outcome::Fails(LOCAL_PROTECTION);
    };
    let Some(other) = peer(objects, number) else { return Outcome::Waits };
    let (rdma, len) = (request.wr.rdma, request.named.map_or(0, |named| named.length));
    let opened = opened_to(objects, other, rdma.rkey);
    let is_allowed = |opened: &Opened| opened.access & right(is_write) != 0;
    let there = opened.filter(is_allowed).and_then(|it| inside(&it, rdma.remote_addr, len));
    let Some(there) = there else {
        objects.tell(other, event::IBV_EVENT_QP_ACCESS_ERR);
        objects.stop(other);
        return Outcome::Fails(status::IBV_WC_REM_ACCESS_ERR);
    };
    match is_write {
        true => copy(here, there, len),
        false => copy(there, here, len),
    }
    Outcome::Done
}

/// The memory that a key opens to the peer of this queue pair.
fn opened_to(objects: &Objects, number: u32, key: u32) -> Option<Opened> {
    let window = objects.windows.get(&(key >> 8)).filter(|window| window.key == key);
    if let Some(window) = window {
        let (of, _, opened) = window.bound?;
        return (of == number).then_some(opened);
    }
    let (region, pair) = (objects.regions.get(&key)?, objects.pairs.get(&number)?);
    (region.domain == pair.domain).then_some(region.opened)
}

/// Ends a key of a window that is bound to this queue pair.
fn invalidate(objects: &mut Objects, number: u32, key: u32) -> bool {
    let window = objects.windows.get_mut(&(key >> 8)).filter(|window| window.key == key);
    let bound = window.map(|window| &mut window.bound);
    bound.is_some_and(|bound| bound.take_if(|(of, ..)| *of == number).is_some())
}

fn bind(objects: &mut Objects, number: u32, request: &Request) -> Outcome {
    let bind = request.wr.bind_mw;
    // SAFETY: the caller has the region.
    let region_key = unsafe { (*bind.bind_info.mr).lkey };
    let Some(region) = objects.regions.get(&region_key) else { return Outcome::Fails(BIND) };
    let span = inside(&region.opened, bind.bind_info.addr, bind.bind_info.length as u32);
    let is_allowed = region.opened.access & access::IBV_ACCESS_MW_BIND != 0;
    let Some(window) = objects.windows.get_mut(&(bind.rkey >> 8)) else {
        return Outcome::Fails(BIND);
    };
    let (Some(base), true, None) = (span, is_allowed, window.bound) else {
        return Outcome::Fails(BIND);
    };
    let len = bind.bind_info.length as usize;
    let opened = Opened { base, len, access: bind.bind_info.mw_access_flags };
    (window.key, window.bound) = (bind.rkey, Some((number, region_key, opened)));
    Outcome::Done
}

/// Moves octets as a device does, past the program.
fn copy(from: usize, to: usize, len: u32) {
    if len == 0 {
        return;
    }
    let from = std::ptr::with_exposed_provenance::<u8>(from);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
    // SAFETY: both are in regions that are registered, which their owners keep mapped, or in a
    // receive that was posted; what the provider posts or exposes it does not touch meanwhile.
    unsafe { std::ptr::copy(from, to, len as usize) };
}
