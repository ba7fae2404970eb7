//! Messages in: receives that the device filled, and receives that it returns empty.

use crate::sys::{ibv_wc, ibv_wc_status};
use crate::{
    Ibverbs,
    close::{self, UNSPECIFIED, end},
    cm,
    conn::{IbverbsConn, IbverbsState, RECEIVE},
    exposures::Exposures,
};
use stag_pools::{Buf, RemoteKey};
use stag_verbs::{
    Cause, Event, Qp,
    soft::{TOO_LONG, invalidate_fault},
};

impl Ibverbs {
    pub(crate) fn handle_receive(&mut self, completion: &ibv_wc) {
        let shared = &mut self.shared;
        let number = (completion.wr_id & !RECEIVE) as u32;
        let qp = shared.by_number.get(&completion.qp_num).copied();
        let mut conn = qp.and_then(|qp| self.conns.get_mut(qp.0));
        let is_well = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
        if shared.has_own_receives() {
            // Receives of a connection complete in their order. One that is not its first is of a
            // queue pair that is gone, whose receives were returned.
            let is_first = |conn: &IbverbsConn| conn.receives.front() == Some(&number);
            let Some(conn) = conn.as_mut().filter(|conn| is_first(conn)) else { return };
            conn.receives.pop_front();
            conn.has_stopped |= !is_well;
            if conn.takes_receives() {
                shared.receives.owed.push_back(conn.qp);
            }
            close::note_flushed(conn, shared);
        }
        let mut buf = shared.receives.take(number);
        let Some(conn) = conn.filter(|conn| is_well && conn.state != IbverbsState::Over) else {
            let qp = qp.filter(|_| completion.status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
            return self.put_back(buf, qp, completion.status);
        };
        let mut invalidated = None;
        if completion.wc_flags & shared.about.invalidation_flags != 0 {
            let key = RemoteKey(completion.invalidated_rkey);
            let windows = shared.exposures.as_mut().and_then(Exposures::windows);
            invalidated =
                windows.and_then(|windows| windows.invalidated_by_peer(conn.qp.scope(), key));
            if invalidated.is_none() {
                // Not this peer's to invalidate, or being invalidated by us: a device should have
                // refused it.
                let fault = invalidate_fault(stag_pools::AccessViolation::OtherScope);
                end(conn, shared, Cause::PeerFault(fault));
                return self.put_back(buf, None, completion.status);
            }
            shared.stats.remote_invalidations += 1;
        }
        let len = (completion.byte_len as usize).min(buf.spare_len());
        buf.extend(len);
        if conn.state == IbverbsState::AwaitSign {
            cm::established(conn, shared);
        }
        shared.events.push_back(Event::Received { qp: conn.qp, buf, invalidated });
    }

    /// Gives a receive to the device: to the queue that connections share, or to the one that has
    /// lacked one for longest, or to one that comes later.
    pub(crate) fn add_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        let number = self.shared.keep_receive(buf)?;
        if !self.shared.has_own_receives() {
            self.shared.receives.added.push(number);
            return Ok(());
        }
        while let Some(qp) = self.shared.receives.owed.pop_front() {
            let conn = self.conns.get_mut(qp.0);
            if conn.is_some_and(|conn| conn.post_receive(&self.shared, number)) {
                return Ok(());
            }
        }
        self.shared.receives.stock.push(number);
        Ok(())
    }

    /// A receive that brought no message is posted again (the contract: it stays with the shared
    /// queue).
    fn put_back(&mut self, buf: Buf, qp: Option<Qp>, status: u32) {
        self.shared.stats.receives_failed += 1;
        let posted = self.add_receive(buf);
        debug_assert!(posted.is_ok(), "the receive had its place before");
        if let Some(qp) = qp {
            let fault =
                if status == ibv_wc_status::IBV_WC_LOC_LEN_ERR { TOO_LONG } else { UNSPECIFIED };
            self.with(qp, |conn, shared| end(conn, shared, Cause::PeerFault(fault)));
        }
    }
}
