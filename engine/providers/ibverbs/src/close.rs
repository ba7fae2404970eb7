//! The end of a connection, and the fate of its pending work.
//!
//! A connection ends in this order: its queue pair is stopped; the device gives its work back; the
//! device says that it holds no receive of it (`QP_LAST_WQE_REACHED`; some never say so and get a
//! moment instead); the completion queue is empty; its windows are freed; its queue pair is
//! destroyed. Only then nothing of its memory can be reached, and the engine hears of everything.

use crate::sys::ibv_wc_status;
use crate::{
    conn::{IbverbsConn, IbverbsShared, IbverbsState},
    device::{MadeAgain, MemoryWindow, QueuePair},
    errands::{Outcome, Released},
    exposures::Exposures,
    tx,
};
use stag_verbs::{Cause, Event, FabricFault, Layer, Status, Terminate, Time};
use std::{sync::Arc, time::Duration};

/// Time that an identifier waits for the peer to confirm the end of the connection.
const PARTING: Duration = Duration::from_secs(2);

/// The peer broke a rule, and the device does not say which (RFC 5040 §4.8: unspecified).
pub(crate) const UNSPECIFIED: Terminate = Terminate { layer: Layer::Rdmap, etype: 2, code: 0xff };

/// Everything posted may go.
pub(crate) fn ring(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    conn.queue.ring();
    conn.binds_rung = conn.binds.len();
    go_on(conn, shared);
}

/// Sends work that waited for room, reports completed work, and ends what is done.
pub(crate) fn go_on(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    tx::flush(conn, shared);
    if conn.failed.is_some() && conn.state != IbverbsState::AwaitFlush {
        return end(conn, shared, Cause::Fabric(FabricFault::Lost));
    }
    conn.queue.give_back(&mut shared.spare_works);
    match conn.state {
        IbverbsState::AwaitDrain if conn.flights.is_empty() && conn.queue.next().is_none() => {
            end(conn, shared, Cause::Local)
        }
        IbverbsState::AwaitFlush => note_flushed(conn, shared),
        _ => {}
    }
}

/// A work request failed, and with it the connection.
pub(crate) fn fail(conn: &mut IbverbsConn, shared: &mut IbverbsShared, status: u32) {
    let flight = conn.flights.pop_front();
    if conn.failed.is_none() {
        let (ours, cause) = meaning(status);
        let seq = flight.and_then(|flight| flight.seq).unwrap_or(u64::MAX);
        conn.failed = Some((seq, ours));
        end(conn, shared, cause);
    }
    note_flushed(conn, shared);
}

/// Translates the status of failed work into the status of its completion and the cause of its
/// connection's end.
fn meaning(status: u32) -> (Status, Cause) {
    let told = |layer, etype, code| Cause::Terminated(Terminate { layer, etype, code });
    match status {
        // We did not stop the queue pair, so the device did, for what the peer sent.
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => (Status::Flushed, Cause::PeerFault(UNSPECIFIED)),
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => (Status::RemoteAccess, told(Layer::Rdmap, 1, 0xff)),
        ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => {
            (Status::RemoteOperation, told(Layer::Rdmap, 2, 6))
        }
        ibv_wc_status::IBV_WC_REM_OP_ERR => (Status::RemoteOperation, told(Layer::Rdmap, 2, 0xff)),
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR | ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => {
            (Status::Lost, Cause::Fabric(FabricFault::Lost))
        }
        // A fault on our side: memory, a window, a length.
        _ => (Status::Lost, Cause::Fabric(FabricFault::Os(libc::EIO))),
    }
}

/// Begins the end of a connection. The first cause stays.
pub(crate) fn end(conn: &mut IbverbsConn, shared: &mut IbverbsShared, cause: Cause) {
    if matches!(conn.state, IbverbsState::AwaitFlush | IbverbsState::Over) {
        return;
    }
    conn.cause.get_or_insert(cause);
    conn.has_work = matches!(
        conn.state,
        IbverbsState::Established | IbverbsState::AwaitDrain | IbverbsState::AwaitSign
    );
    if conn.state == IbverbsState::AwaitAnswer {
        shared.waiting -= 1;
    }
    conn.state = IbverbsState::AwaitFlush;
    if conn.pair.is_none() && conn.errands == 0 {
        // The device has nothing of it.
        return complete(conn, shared);
    }
    if conn.has_work {
        stop(conn, shared);
    }
    conn.deadline = Some(shared.now + shared.config.flush_timeout);
    // Receives of its own come back one by one.
    let waits = conn.has_work && !conn.has_last && !shared.has_own_receives();
    conn.last_receive = waits.then(|| shared.now + shared.config.last_receive_timeout);
    shared.timed.push(conn.qp);
    note_flushed(conn, shared);
}

/// Stops the queue pair, and disconnects from the peer.
fn stop(conn: &IbverbsConn, shared: &IbverbsShared) {
    let (pair, id) = (conn.pair.clone(), conn.id.clone());
    let is_iwarp = shared.about.is_iwarp;
    shared.errands.send(move || {
        if let Some(id) = id.as_ref().filter(|_| is_iwarp) {
            id.disconnect(); // in order, before the queue pair is stopped
        }
        if let Some(pair) = &pair {
            pair.stop();
        }
        if let Some(id) = id.as_ref().filter(|_| !is_iwarp) {
            id.disconnect();
        }
    });
}

/// Ends a connection of a device that is lost. Its work is not waited for: when its queue pair is
/// destroyed, or has gone with the device, nothing of its memory can be reached.
pub(crate) fn lose(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    end(conn, shared, Cause::Fabric(FabricFault::DeviceLost));
    if conn.state == IbverbsState::AwaitFlush {
        (conn.is_parted, conn.is_overdue) = (true, true);
        note_flushed(conn, shared);
    }
}

/// Marks the connection as flushed once the device has returned all of its work and receives, and
/// no errand of it is left.
pub(crate) fn note_flushed(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    let has_all =
        conn.flights.is_empty() && conn.receives.is_empty() && conn.last_receive.is_none();
    let may_go = conn.is_overdue || !conn.has_work || has_all;
    if conn.state == IbverbsState::AwaitFlush && conn.errands == 0 && may_go && !conn.is_kept {
        conn.is_flushed = true;
        shared.any_flushed = true;
    }
}

/// Has the device give back what it lent to a connection whose work is all back. When it has
/// nothing, the connection is over.
pub(crate) fn release(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    conn.is_flushed = false;
    conn.deadline = None;
    let (mut windows, mut kept) = (Vec::new(), 0);
    if let Some(exposures) = &mut shared.exposures {
        let freed;
        (windows, freed, kept) =
            exposures.withdraw(conn.qp.scope(), |fenced| conn.unbound.push(fenced));
        shared.stats.windows_remade += freed;
    }
    if kept > 0 {
        return keep(conn, shared, kept);
    }
    let pair = conn.pair.take();
    if pair.is_none() && windows.is_empty() {
        return complete(conn, shared);
    }
    conn.send(shared, move || {
        let again = |(index, window): (u32, MemoryWindow)| (index, window.make_again());
        let windows: Vec<_> = windows.into_iter().map(again).collect();
        // The device does not destroy a queue pair that windows are bound to.
        let is_bound = windows.iter().any(|(_, window)| matches!(window, MadeAgain::Kept(_)));
        let pair = if is_bound { pair } else { pair.and_then(destroy) };
        Outcome::Released(Released { windows, pair })
    });
}

/// Destroys a queue pair. Returns it when the device keeps it.
pub(crate) fn destroy(pair: Arc<QueuePair>) -> Option<Arc<QueuePair>> {
    // Errands before this one had it, too, and are done.
    match Arc::try_unwrap(pair).map(QueuePair::destroy) {
        Ok(Ok(())) => None,
        Ok(Err(kept)) => Some(Arc::new(kept)),
        Err(shared) => Some(shared),
    }
}

/// The device released its objects of a connection, or keeps some of them.
pub(crate) fn released(conn: &mut IbverbsConn, shared: &mut IbverbsShared, released: Released) {
    let mut kept = 0;
    for (index, window) in released.windows {
        let windows = shared.exposures.as_mut().and_then(Exposures::windows);
        let windows = windows.expect("windows go after all connections");
        match windows.restore(index, window) {
            Some(fenced) => {
                conn.unbound.push(fenced);
                shared.stats.windows_remade += 1;
            }
            None => kept += 1,
        }
    }
    conn.pair = released.pair;
    if kept == 0 && conn.pair.is_some() {
        kept = 1;
    }
    if kept > 0 {
        return keep(conn, shared, kept);
    }
    complete(conn, shared);
}

/// The device keeps some of a connection: nothing of its memory may be used for anything else, and
/// it is tried again later.
fn keep(conn: &mut IbverbsConn, shared: &mut IbverbsShared, kept: u64) {
    shared.stats.kept_by_device += kept;
    conn.deadline = Some(shared.now + shared.config.flush_timeout);
    (conn.last_receive, conn.is_kept) = (None, true);
    if !shared.timed.contains(&conn.qp) {
        shared.timed.push(conn.qp);
    }
}

/// The device has nothing of a connection: gives its memory back, and reports its end.
fn complete(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    if let Some(number) = conn.number.take() {
        shared.by_number.remove(&number);
    }
    // Receives that never came back: the device no longer holds them.
    shared.receives.stock.extend(conn.receives.drain(..));
    let IbverbsShared { events, stats, .. } = shared;
    let qp = conn.qp;
    let behind = conn.queue.flush(qp, conn.failed, |event| events.push_back(event));
    conn.queue.give_back(&mut shared.spare_works);
    for fenced in behind.into_iter().chain(std::mem::take(&mut conn.unbound)) {
        events.push_back(Event::Unbound { qp, fenced });
    }
    shared.taken -= usize::from(std::mem::take(&mut conn.is_taken));
    conn.deadline = None;
    conn.binds.clear();
    conn.flights.clear();
    shared.sinks.iter_mut().for_each(|sinks| sinks.note_end(qp, stats));
    conn.state = IbverbsState::Over;
    if let Some(id) = conn.id.take() {
        // The peer of a connection is to confirm its end.
        match conn.has_work && !conn.is_parted {
            true => shared.parting.push((id, shared.now + PARTING)),
            false => shared.errands.discard(id),
        }
    }
    let cause = conn.cause.unwrap_or(Cause::Local);
    events.push_back(Event::Disconnected { qp, cause });
}

/// Rejects the peer of a connect request that the engine has not answered.
pub(crate) fn reject(conn: &mut IbverbsConn, shared: &IbverbsShared, private_data: &[u8]) {
    if conn.state == IbverbsState::AwaitAnswer
        && let Some(id) = conn.id.take()
    {
        shared.errands.reject(id, private_data.to_vec());
    }
}

pub(crate) fn expire(conn: &mut IbverbsConn, shared: &mut IbverbsShared, now: Time) {
    let is_due = conn.deadline.is_some_and(|deadline| deadline <= now);
    match conn.state {
        IbverbsState::AwaitWay
        | IbverbsState::AwaitReply
        | IbverbsState::AwaitAnswer
        | IbverbsState::AwaitSign
            if is_due =>
        {
            reject(conn, shared, &[]);
            end(conn, shared, Cause::Fabric(FabricFault::TimedOut));
        }
        IbverbsState::AwaitDrain if is_due => end(conn, shared, Cause::Local),
        IbverbsState::AwaitFlush => {
            if conn.last_receive.is_some_and(|until| until <= now) {
                conn.last_receive = None;
                shared.stats.ends_by_timeout += 1;
            }
            if is_due {
                // The device does not answer; destroying the queue pair ends its hold on the
                // memory.
                (conn.is_overdue, conn.is_kept) = (true, false);
            }
            note_flushed(conn, shared);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        IbverbsConfig, IbverbsStats, Through,
        conn::PostedReceives,
        device::{
            pair::tests::pair,
            tests::{ANSWER, ONE_AT_A_TIME, domain, queues},
        },
        errands::{Errands, Report},
        rdmacm::tests::channel,
    };
    use stag_pools::{Class, Pool, table::Key};
    use stag_verbs::{
        Limits, Memory, Qp, Tag,
        soft::{Op, Read},
    };
    use std::{
        collections::{HashMap, VecDeque},
        net::IpAddr,
        sync::atomic::Ordering,
        time::Duration,
    };

    const LIMITS: Limits = Limits {
        connections: 2,
        send_queue: 4,
        receives: 4,
        receives_each: None,
        receive_len: 64,
        windows: 0,
        read_spans: 1,
        private_data_len: 8,
        sends_invalidation: false,
        bears_invalidation: false,
    };

    /// State shared by the connections of a device that does nothing.
    fn shared() -> IbverbsShared {
        let domain = domain();
        let channel = channel(domain.device.library);
        IbverbsShared {
            config: IbverbsConfig::new(LIMITS, Through::Local(IpAddr::from([0, 0, 0, 0])), Time(0)),
            about: domain.device.about.clone(),
            is_lost: false,
            depth: 8,
            exposures: None,
            queues: Some(queues(&domain)),
            pools: Vec::new(),
            regions: Vec::new(),
            sinks: None,
            receives: PostedReceives::new(4),
            errands: Errands::without_thread(&channel).unwrap(),
            channel,
            events: VecDeque::new(),
            stats: IbverbsStats::default(),
            now: Time(0),
            by_number: HashMap::new(),
            spare_works: Vec::new(),
            chain: Vec::new(),
            named: Vec::new(),
            receive_chain: Default::default(),
            taken: 1,
            waiting: 0,
            parting: Vec::new(),
            timed: Vec::new(),
            any_flushed: false,
        }
    }

    #[test]
    fn a_connection_whose_queue_pair_the_device_keeps_keeps_its_memory_and_is_tried_again() {
        let _one = ONE_AT_A_TIME.lock();
        let pool = Pool::new(&[Class { slot_len: 64, count: 2 }]).unwrap();
        let mut shared = shared();
        let mut conn = IbverbsConn::new(IbverbsState::Established, 4);
        (conn.qp, conn.is_taken) = (Qp(Key::from_bits(1)), true);
        conn.pair = Some(Arc::new(pair(shared.queues.as_ref().unwrap())));
        conn.queue.borrow(&mut shared.spare_works);
        let sink = pool.take(64).unwrap();
        conn.queue.post(
            Tag(7),
            Op::Read(Read { sink, ask_at: 0, fill_at: 0, unasked: 1, unanswered: 1 }),
            &[],
        );
        ANSWER.store(libc::EBUSY, Ordering::Relaxed);
        end(&mut conn, &mut shared, Cause::Peer);
        conn.last_receive = None;
        note_flushed(&mut conn, &mut shared);
        assert!(conn.is_flushed);
        let try_to_release = |conn: &mut IbverbsConn, shared: &mut IbverbsShared| {
            release(conn, shared);
            assert_eq!(conn.errands, 1);
            note_flushed(conn, shared);
            assert!(!conn.is_flushed, "nothing is known before the errand is done");
            shared.errands.turn();
            let Some(Report::Done(_, Outcome::Released(done))) = shared.errands.take() else {
                panic!("it is reported")
            };
            conn.errands -= 1;
            released(conn, shared, done);
            note_flushed(conn, shared);
        };
        try_to_release(&mut conn, &mut shared);
        assert_eq!((shared.events.len(), pool.taken(), shared.stats.kept_by_device), (0, 1, 1));
        // Not before its time, however often it is checked.
        shared.any_flushed = false;
        expire(&mut conn, &mut shared, Time(1));
        assert!(!shared.any_flushed && !conn.is_flushed);
        let due = conn.deadline.unwrap();
        expire(&mut conn, &mut shared, due);
        assert!(shared.any_flushed && conn.is_flushed);
        ANSWER.store(0, Ordering::Relaxed);
        try_to_release(&mut conn, &mut shared);
        let Some(Event::Completed {
            tag: Tag(7),
            status: Status::Flushed,
            memory: Memory::Buf(_),
            ..
        }) = shared.events.pop_front()
        else {
            panic!("the sink comes back: {:?}", shared.events)
        };
        assert!(matches!(
            shared.events.pop_front(),
            Some(Event::Disconnected { cause: Cause::Peer, .. })
        ));
        assert_eq!((pool.taken(), shared.taken, conn.state), (0, 0, IbverbsState::Over));
        assert!(due >= Time(0) + Duration::from_secs(1));
    }
}
