//! Work requests out: everything a pass posted for one connection is one chain and one doorbell
//! (DESIGN D17).
//!
//! Only work that a caller waits for asks for a completion: Reads, invalidations, and the last of a
//! chain, with which all before it have completed. Work beyond the depth of the device's queue
//! waits here and follows as completions come.

use crate::sys::{
    bind_mw_t, ibv_access_flags, ibv_mw_bind_info, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wr_opcode, rdma_t,
};
use crate::{
    conn::{Flight, IbverbsConn, IbverbsShared},
    exposures::Exposures,
    sinks::SinkLanding,
};
use stag_pools::{Access, Buf, PoolPlace, RemoteKey};
use stag_verbs::{
    Cause, FabricFault, Memory, Qp, RemoteSpan, Status,
    soft::{Op, Read},
};
use std::{io, ptr};

/// One request for the device: its operation, the memory that it names, and the place where a Read
/// lands if that is not its sink.
struct ChainPart {
    request: ibv_send_wr,
    named: Option<ibv_sge>,
    landing: Option<SinkLanding>,
}

/// Next step of sending.
enum NextStep {
    Bind(RemoteKey),
    /// Part of this work request goes to the device.
    Go(u64, ChainPart),
    /// This work request needs no device.
    Skip(u64, Option<Memory>),
    /// Part of it was done here.
    Again,
    /// The device refused what it needs.
    Fail(io::Error),
    /// No work is left, or the next has to wait.
    Stop,
}

/// Hands work whose doorbell was rung to the device, as far as its queue has room.
pub(crate) fn flush(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    if conn.failed.is_some() || conn.pair.is_none() {
        return;
    }
    shared.chain.clear();
    shared.named.clear();
    while conn.flights.len() < shared.depth {
        match next_step(conn, shared) {
            NextStep::Bind(key) => {
                let request = bind(shared, key);
                add(conn, shared, None, ChainPart { request, named: None, landing: None });
            }
            NextStep::Go(seq, part) => add(conn, shared, Some(seq), part),
            NextStep::Skip(seq, memory) => conn.queue.complete(seq, Status::Success, memory),
            NextStep::Again => {}
            NextStep::Fail(error) => {
                break_off(conn, &error);
                break;
            }
            NextStep::Stop => break,
        }
    }
    post(conn, shared);
    while let Some(event) = conn.queue.poll(conn.qp) {
        shared.events.push_back(event);
    }
}

fn next_step(conn: &mut IbverbsConn, shared: &mut IbverbsShared) -> NextStep {
    let next = conn.queue.next().map(|(seq, _)| seq);
    let bind = conn
        .binds
        .front()
        .filter(|bind| conn.binds_rung > 0 && next.is_none_or(|seq| bind.before <= seq));
    if let Some(bind) = bind.copied() {
        conn.binds.pop_front();
        conn.binds_rung -= 1;
        return NextStep::Bind(bind.key);
    }
    let (qp, span) = (conn.qp, conn.queue.next_span());
    let inline_max = conn.pair.as_ref().map_or(0, |pair| pair.inline_max as usize);
    let Some((seq, op)) = conn.queue.next() else { return NextStep::Stop };
    let step = match op {
        Op::Send { message, invalidate } => {
            NextStep::Go(seq, send(shared, message, *invalidate, inline_max))
        }
        // RFC 5041 §5.2: without octets the key is not looked at.
        Op::Write { source, .. } if source.is_empty() => NextStep::Skip(seq, None),
        Op::Write { source, to } => {
            let mut request = ibv_send_wr::new(ibv_wr_opcode::IBV_WR_RDMA_WRITE);
            request.rdma = rdma_t { remote_addr: to.offset, rkey: to.key.0 };
            let named = Some(known(shared.name(source.place(), source.len())));
            NextStep::Go(seq, ChainPart { request, named, landing: None })
        }
        Op::Read(Read { unasked: 0, .. }) => NextStep::Skip(seq, None),
        Op::Read(ask) => {
            let span = span.expect("a Read that asks has a span");
            if span.len == 0 {
                return empty_span(conn, seq);
            }
            let part = match read(shared, qp, ask, span) {
                Ok(Some(part)) => part,
                Ok(None) => return NextStep::Stop,
                Err(error) => return NextStep::Fail(error),
            };
            conn.queue.begin_read();
            return NextStep::Go(seq, part);
        }
        Op::Invalidate { key } => invalidate(shared, seq, *key),
    };
    conn.queue.begin();
    step
}

fn send(
    shared: &mut IbverbsShared,
    message: &Buf,
    invalidate: Option<RemoteKey>,
    inline_max: usize,
) -> ChainPart {
    let mut request = match invalidate {
        Some(_) => ibv_send_wr::new(ibv_wr_opcode::IBV_WR_SEND_WITH_INV),
        None => ibv_send_wr::new(ibv_wr_opcode::IBV_WR_SEND),
    };
    if let Some(key) = invalidate {
        request.invalidate_rkey = key.0;
    }
    if message.len() <= inline_max && !message.is_empty() {
        request.send_flags = ibv_send_flags::IBV_SEND_INLINE;
        shared.stats.inline_sends += 1;
    }
    let named = (!message.is_empty()).then(|| known(shared.name(message.place(), message.len())));
    ChainPart { request, named, landing: None }
}

/// The Read of one span. None: it waits for a place to land.
fn read(
    shared: &mut IbverbsShared,
    qp: Qp,
    ask: &Read,
    span: RemoteSpan,
) -> io::Result<Option<ChainPart>> {
    let len = span.len as usize;
    let (landing, named) = match &mut shared.sinks {
        Some(sinks) => match sinks.take(qp, ask.ask_at, len, &mut shared.stats)? {
            Some((landing, named)) => (Some(landing), named),
            None => return Ok(None),
        },
        None => {
            let sink = ask.sink.place();
            (None, known(shared.name(PoolPlace { at: sink.at + ask.ask_at, ..sink }, len)))
        }
    };
    let mut request = ibv_send_wr::new(ibv_wr_opcode::IBV_WR_RDMA_READ);
    request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED;
    request.rdma = rdma_t { remote_addr: span.offset, rkey: span.key.0 };
    Ok(Some(ChainPart { request, named: Some(named), landing }))
}

fn invalidate(shared: &mut IbverbsShared, seq: u64, key: RemoteKey) -> NextStep {
    let ended = shared.exposures.as_mut().and_then(|exposures| exposures.end_here(key));
    match ended {
        Some(Ok(fenced)) => return NextStep::Skip(seq, Some(Memory::Fenced(fenced))),
        Some(Err(error)) => return NextStep::Fail(error),
        None => {}
    }
    // RFC 5042 §6.2.2 [5042-10]: no octet that arrives after a revocation is placed
    let mut request = ibv_send_wr::new(ibv_wr_opcode::IBV_WR_LOCAL_INV);
    request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED;
    request.invalidate_rkey = key.0;
    NextStep::Go(seq, ChainPart { request, named: None, landing: None })
}

/// A span without octets is answered at once.
fn empty_span(conn: &mut IbverbsConn, seq: u64) -> NextStep {
    conn.queue.begin_read();
    answered(conn, seq);
    NextStep::Again
}

fn known(named: Option<ibv_sge>) -> ibv_sge {
    named.expect("memory is posted when its pool is registered: `provider` looks")
}

/// One span of a Read was answered; with the last one the Read is done.
fn answered(conn: &mut IbverbsConn, seq: u64) {
    let Some(Op::Read(read)) = conn.queue.op_mut(seq) else {
        unreachable!("a span belongs to a Read")
    };
    read.unanswered -= 1;
    if read.unanswered == 0 {
        conn.queue.complete(seq, Status::Success, None);
    }
}

fn bind(shared: &mut IbverbsShared, key: RemoteKey) -> ibv_send_wr {
    let IbverbsShared { exposures, regions, .. } = shared;
    let windows = exposures.as_mut().and_then(Exposures::windows);
    let found = windows.and_then(|windows| windows.bound(key));
    let (window, exposed) = found.expect("a window that is not in the device stays bound");
    let place = exposed.place();
    let region = regions.iter().find(|region| region.id == place.pool);
    let region = region.expect("memory is exposed when its pool is registered: `provider` looks");
    let named = region.name(place.at, exposed.len());
    // RFC 5042 §6.3.5 [5042-11]: a buffer is opened only for the access it needs
    let rights = match exposed.access() {
        Access::RemoteRead => ibv_access_flags::IBV_ACCESS_REMOTE_READ,
        Access::RemoteWrite => ibv_access_flags::IBV_ACCESS_REMOTE_WRITE,
    };
    let mut request = ibv_send_wr::new(ibv_wr_opcode::IBV_WR_BIND_MW);
    let bind_info = ibv_mw_bind_info {
        mr: region.raw(),
        addr: named.addr,
        length: u64::from(named.length),
        mw_access_flags: rights,
    };
    request.bind_mw = bind_mw_t { mw: window.raw(), rkey: key.0, bind_info };
    shared.stats.binds += 1;
    request
}

/// Puts one request at the end of the chain.
fn add(conn: &mut IbverbsConn, shared: &mut IbverbsShared, seq: Option<u64>, part: ChainPart) {
    let ChainPart { mut request, named, landing } = part;
    request.wr_id = u64::from(conn.next_flight) | (conn.qp.0.index() as u64) << 32;
    conn.next_flight = conn.next_flight.wrapping_add(1);
    conn.flights.push_back(Flight { seq, landing });
    request.num_sge = i32::from(named.is_some());
    let nothing = ibv_sge { addr: 0, length: 0, lkey: 0 };
    shared.named.push(named.unwrap_or(nothing));
    shared.chain.push(request);
}

/// Links the chain and hands it over.
fn post(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    let IbverbsShared { chain, named, exposures, stats, config, .. } = shared;
    let (Some(pair), Some(last)) = (&conn.pair, chain.last_mut()) else { return };
    last.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED;
    let mut next = ptr::null_mut();
    for (request, named) in chain.iter_mut().zip(named.iter_mut()).rev() {
        request.next = next;
        request.sg_list = named;
        next = request;
    }
    stats.doorbells += 1;
    stats.work_requests += chain.len() as u64;
    let (mut posted, mut taken) = (Ok(()), 0);
    while let Some(rest) = chain.get_mut(taken..).filter(|rest| !rest.is_empty()) {
        // SAFETY: requests are linked in their order, and name entries of `named`, windows and
        // regions that are there. What they name belongs to the connection's queue or to the window
        // table until its completion.
        match unsafe { pair.post(rest) } {
            Ok(()) => taken = chain.len(),
            Err((more, error)) => {
                taken += more;
                if error.raw_os_error() != Some(libc::EINVAL) || !send_plainly(chain, taken) {
                    posted = Err(pair.failed("ibv_post_send", error));
                    break;
                }
                // The device does not know it, whatever it says of itself.
                config.limits.sends_invalidation = false;
            }
        }
    }
    for request in chain.iter().take(taken) {
        if request.opcode == ibv_wr_opcode::IBV_WR_BIND_MW {
            let key = request.bind_mw.rkey;
            let windows = exposures.as_mut().and_then(Exposures::windows);
            let found = windows.and_then(|windows| windows.bound(RemoteKey(key)));
            if let Some((window, _)) = found {
                window.set_key(key);
            }
        }
    }
    if let Err(error) = posted {
        // What was not taken never completes there: it ends with the connection.
        for _ in taken..chain.len() {
            conn.flights.pop_back();
            conn.next_flight = conn.next_flight.wrapping_sub(1);
        }
        break_off(conn, &error);
    }
}

/// Has the requests from `refused` on invalidate nothing at the peer, which then does that itself
/// (RFC 8797 §4.1). False if that one invalidates nothing: it is refused for another reason.
fn send_plainly(chain: &mut [ibv_send_wr], refused: usize) -> bool {
    let invalidates = |it: &ibv_send_wr| it.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
    if !chain.get(refused).is_some_and(invalidates) {
        return false;
    }
    for request in chain.iter_mut().skip(refused).filter(|it| invalidates(it)) {
        (request.opcode, request.invalidate_rkey) = (ibv_wr_opcode::IBV_WR_SEND, 0);
    }
    true
}

/// The device refused more work: the connection ends.
fn break_off(conn: &mut IbverbsConn, error: &io::Error) {
    conn.failed.get_or_insert((u64::MAX, Status::Flushed));
    conn.cause.get_or_insert(Cause::Fabric(FabricFault::from(error)));
}

/// The oldest flight came back well.
pub(crate) fn landed(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    let Some(Flight { seq: Some(seq), landing }) = conn.flights.pop_front() else { return };
    if let (Some(landing), Some(sinks)) = (landing, &mut shared.sinks)
        && let Some(Op::Read(read)) = conn.queue.op_mut(seq)
    {
        sinks.fetch(landing, &mut read.sink);
    }
    let memory = match conn.queue.op(seq) {
        Some(Op::Read(_)) => return answered(conn, seq),
        Some(Op::Invalidate { key }) => {
            let windows = shared.exposures.as_mut().and_then(Exposures::windows);
            let windows = windows.expect("only windows are invalidated by work requests");
            Some(Memory::Fenced(windows.invalidated(*key)))
        }
        _ => None,
    };
    conn.queue.complete(seq, Status::Success, memory);
}
