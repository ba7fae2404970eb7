//! How connections end, and what work in progress makes of it.
//!
//! A connection ends in this order: its queue pair is stopped; the device gives its work back; the device says that it holds no
//! receive of it (`QP_LAST_WQE_REACHED`; some never say so and get a moment instead); the completion queue is empty; its windows are freed;
//! its queue pair is destroyed. Only then nothing of its memory can be reached, and the engine hears of everything.

use crate::{
    conn::{Conn, Shared, State},
    sinks::Sinks,
    tx,
};
use rdma_sys::ibv_wc_status;
use stag_verbs::{Cause, Event, FabricFault, Layer, Status, Terminate, Time};

/// The peer broke a rule, and the device does not say which (RFC 5040 §4.8: unspecified).
pub(crate) const UNSPECIFIED: Terminate = Terminate { layer: Layer::Rdmap, etype: 2, code: 0xff };

/// Everything posted may go.
pub(crate) fn ring(conn: &mut Conn, shared: &mut Shared) {
    conn.queue.ring();
    conn.binds_rung = conn.binds.len();
    go_on(conn, shared);
}

/// Hands on what waited for room, reports what completed, and ends what is done.
pub(crate) fn go_on(conn: &mut Conn, shared: &mut Shared) {
    tx::flush(conn, shared);
    if conn.failed.is_some() && conn.state != State::AwaitFlush {
        return end(conn, shared, Cause::Fabric(FabricFault::Lost));
    }
    conn.queue.give_back(&mut shared.spare_works);
    match conn.state {
        State::AwaitDrain if conn.flights.is_empty() && conn.queue.next().is_none() => {
            end(conn, shared, Cause::Local)
        }
        State::AwaitFlush => note_flushed(conn, shared),
        _ => {}
    }
}

/// A work request failed, and with it the connection.
pub(crate) fn fail(conn: &mut Conn, shared: &mut Shared, status: u32) {
    let flight = conn.flights.pop_front();
    if conn.failed.is_none() {
        let (ours, cause) = meaning(status);
        let seq = flight.and_then(|flight| flight.seq).unwrap_or(u64::MAX);
        conn.failed = Some((seq, ours));
        end(conn, shared, cause);
    }
    note_flushed(conn, shared);
}

/// What the status of failed work says of it and of its connection.
fn meaning(status: u32) -> (Status, Cause) {
    let told = |layer, etype, code| Cause::Terminated(Terminate { layer, etype, code });
    match status {
        // We did not stop the queue pair, so the device did, for what the peer sent.
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => (Status::Flushed, Cause::PeerFault(UNSPECIFIED)),
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => (Status::RemoteAccess, told(Layer::Rdmap, 1, 0xff)),
        ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => (Status::RemoteOperation, told(Layer::Rdmap, 2, 6)),
        ibv_wc_status::IBV_WC_REM_OP_ERR => (Status::RemoteOperation, told(Layer::Rdmap, 2, 0xff)),
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR | ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => {
            (Status::Lost, Cause::Fabric(FabricFault::Lost))
        }
        // Something of ours: memory, a window, a length.
        _ => (Status::Lost, Cause::Fabric(FabricFault::Os(libc::EIO))),
    }
}

/// Begins the end of a connection. The first cause stays.
pub(crate) fn end(conn: &mut Conn, shared: &mut Shared, cause: Cause) {
    if matches!(conn.state, State::AwaitFlush | State::Over) {
        return;
    }
    conn.cause.get_or_insert(cause);
    if !matches!(conn.state, State::Established | State::AwaitDrain | State::AwaitSign) {
        // Nothing was posted and nothing arrived.
        finish(conn, shared);
        conn.id = None;
        return;
    }
    conn.state = State::AwaitFlush;
    let is_iwarp = shared.queues.domain.device.about.is_iwarp;
    if let Some(id) = conn.id.as_ref().filter(|_| is_iwarp) {
        id.disconnect(); // in order, before the queue pair is stopped
    }
    if let Some(pair) = &conn.pair {
        pair.stop();
    }
    if let Some(id) = conn.id.as_ref().filter(|_| !is_iwarp) {
        id.disconnect();
    }
    conn.deadline = Some(shared.now + shared.config.flush_timeout);
    conn.last_receive = (!conn.has_last).then(|| shared.now + shared.config.last_receive_timeout);
    shared.timed.push(conn.qp);
    note_flushed(conn, shared);
}

/// Whether the device has given everything back.
pub(crate) fn note_flushed(conn: &mut Conn, shared: &mut Shared) {
    if conn.state == State::AwaitFlush && conn.flights.is_empty() && conn.last_receive.is_none() {
        conn.is_flushed = true;
        shared.any_flushed = true;
    }
}

/// Frees what the device has of a connection, gives its memory back, and reports its end.
pub(crate) fn finish(conn: &mut Conn, shared: &mut Shared) {
    let Shared { events, windows, stats, .. } = shared;
    let qp = conn.qp;
    let mut unbound = Vec::new();
    if let Some(windows) = windows {
        stats.windows_remade += windows.close(qp.scope(), |fenced| unbound.push(fenced));
    }
    if let Some(pair) = conn.pair.take() {
        shared.by_number.remove(&pair.number());
    }
    let behind = conn.queue.flush(qp, conn.failed, |event| events.push_back(event));
    conn.queue.give_back(&mut shared.spare_works);
    for fenced in behind.into_iter().chain(unbound) {
        events.push_back(Event::Unbound { qp, fenced });
    }
    match (conn.state, conn.is_taken) {
        (_, true) => shared.taken -= 1,
        (State::AwaitAnswer, false) => shared.waiting -= 1,
        _ => {}
    }
    conn.is_taken = false;
    conn.deadline = None;
    conn.binds.clear();
    conn.flights.clear();
    shared.sinks.iter_mut().for_each(Sinks::note_end);
    conn.state = State::Over;
    let cause = conn.cause.unwrap_or(Cause::Local);
    events.push_back(Event::Disconnected { qp, cause });
}

pub(crate) fn expire(conn: &mut Conn, shared: &mut Shared, now: Time) {
    let is_due = conn.deadline.is_some_and(|deadline| deadline <= now);
    match conn.state {
        State::AwaitWay | State::AwaitReply | State::AwaitAnswer | State::AwaitSign if is_due => {
            if let Some(id) = conn.id.as_ref().filter(|_| conn.state == State::AwaitAnswer) {
                id.reject(&[]);
            }
            end(conn, shared, Cause::Fabric(FabricFault::TimedOut));
        }
        State::AwaitDrain if is_due => end(conn, shared, Cause::Local),
        State::AwaitFlush => {
            if conn.last_receive.is_some_and(|until| until <= now) {
                conn.last_receive = None;
                shared.stats.ends_by_timeout += 1;
            }
            if is_due {
                // The device does not answer; destroying the queue pair ends its hold on the memory.
                conn.is_flushed = true;
                shared.any_flushed = true;
            }
            note_flushed(conn, shared);
        }
        _ => {}
    }
}
