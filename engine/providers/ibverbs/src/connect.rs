//! How connections begin. Queue pairs belong to a device context of our own, so they are brought from state to state here, with what
//! the connection manager says they need, and not by librdmacm.

use crate::{
    cm,
    conn::{Conn, Shared, State},
    device::QueuePair,
};
use libc::c_int;
use rdma_sys::{ibv_access_flags, ibv_qp_attr_mask, ibv_qp_state};
use stag_verbs::{Cause, Event, FabricFault};
use std::io;

/// How long a peer waits before it sends again what found no receive: 0.64 ms. (The connection manager's choice is 655 ms.)
const RNR_TIMER: u8 = 12;
/// What InfiniBand says when nobody listens.
const NO_SUCH_SERVICE: c_int = 8;
/// What it says when the program there rejected.
const BY_CONSUMER: c_int = 28;

/// Makes the queue pair and lets it take messages.
fn make_pair(conn: &mut Conn, shared: &mut Shared) -> io::Result<()> {
    let pair = QueuePair::new(&shared.queues, conn.qp.0.to_bits(), shared.config.inline_max)?;
    shared.by_number.insert(pair.number(), conn.qp);
    let depth = shared.queues.depth;
    conn.flights.reserve(depth);
    conn.binds.reserve(depth);
    let pair = conn.pair.insert(pair);
    initialise(conn.id.as_ref(), pair)
}

fn initialise(id: Option<&cm::Id>, pair: &QueuePair) -> io::Result<()> {
    let Some(id) = id else { return Err(io::ErrorKind::NotConnected.into()) };
    let (mut attr, mask) = id.attr(ibv_qp_state::IBV_QPS_INIT)?;
    // What a peer may do is said by each window; the queue pair only has to allow both.
    let access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    attr.qp_access_flags |= access;
    pair.modify(&mut attr, mask)
}

/// Brings the queue pair to where it sends and receives.
fn make_ready(conn: &mut Conn) -> io::Result<()> {
    let (Some(id), Some(pair)) = (&conn.id, &conn.pair) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    initialise(Some(id), pair)?;
    let (mut attr, mask) = id.attr(ibv_qp_state::IBV_QPS_RTR)?;
    attr.max_dest_rd_atomic = conn.reads.0;
    attr.min_rnr_timer = RNR_TIMER;
    pair.modify(&mut attr, mask)?;
    let (mut attr, mask) = id.attr(ibv_qp_state::IBV_QPS_RTS)?;
    if mask & ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0 as c_int != 0 {
        attr.max_rd_atomic = conn.reads.1;
    }
    pair.modify(&mut attr, mask)
}

fn terms(conn: &Conn, shared: &Shared) -> cm::Terms {
    let number = conn.pair.as_ref().map_or(0, QueuePair::number);
    cm::Terms { number, reads: conn.reads, rnr_retry: shared.config.rnr_retry }
}

/// The way to the peer is known: asks it.
pub(crate) fn ask(conn: &mut Conn, shared: &mut Shared) -> io::Result<()> {
    make_pair(conn, shared)?;
    let said = std::mem::take(&mut conn.ours);
    conn.state = State::AwaitReply;
    let Some(id) = &conn.id else { return Err(io::ErrorKind::NotConnected.into()) };
    id.connect(terms(conn, shared), &said)
}

/// Takes the peer of a connect request.
pub(crate) fn accept(conn: &mut Conn, shared: &mut Shared, private_data: &[u8]) -> io::Result<()> {
    make_pair(conn, shared)?;
    if !shared.queues.domain.device.about.is_iwarp {
        make_ready(conn)?;
    }
    conn.state = State::AwaitSign;
    conn.deadline = Some(shared.now + shared.config.connect_timeout);
    let Some(id) = &conn.id else { return Err(io::ErrorKind::NotConnected.into()) };
    id.accept(terms(conn, shared), private_data)
}

/// Lowers the number of Reads to what the peer takes and offers.
pub(crate) fn agree(conn: &mut Conn, shared: &Shared, offered: (u8, u8)) {
    let ours = shared.config.reads;
    conn.reads = (ours.min(offered.0), ours.min(offered.1));
}

/// The peer accepted, and waits until we are ready.
pub(crate) fn answered(conn: &mut Conn, shared: &mut Shared) -> io::Result<()> {
    make_ready(conn)?;
    if let Some(id) = &conn.id {
        id.establish()?;
    }
    established(conn, shared);
    Ok(())
}

/// Work can begin.
pub(crate) fn established(conn: &mut Conn, shared: &mut Shared) {
    conn.state = State::Established;
    conn.deadline = None;
    shared.events.push_back(Event::Established { qp: conn.qp });
}

/// Why a connect request of ours failed.
pub(crate) fn refusal(is_iwarp: bool, status: c_int) -> Cause {
    match status {
        BY_CONSUMER if !is_iwarp => Cause::Rejected,
        NO_SUCH_SERVICE if !is_iwarp => Cause::Fabric(FabricFault::Refused),
        status if is_iwarp && -status == libc::ECONNRESET => Cause::Rejected,
        status => Cause::Fabric(fault(status)),
    }
}

/// What a status says that is an error number with or without its sign.
pub(crate) fn fault(status: c_int) -> FabricFault {
    match status.abs() {
        libc::ENODEV | libc::EADDRNOTAVAIL => FabricFault::BadAddress,
        number => FabricFault::from(&io::Error::from_raw_os_error(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_who_refused() {
        assert_eq!(refusal(false, 8), Cause::Fabric(FabricFault::Refused));
        assert_eq!(refusal(false, 28), Cause::Rejected);
        assert_eq!(refusal(true, -libc::ECONNREFUSED), Cause::Fabric(FabricFault::Refused));
        assert_eq!(refusal(true, -libc::ECONNRESET), Cause::Rejected);
        assert_eq!(fault(-libc::ETIMEDOUT), FabricFault::TimedOut);
    }
}
