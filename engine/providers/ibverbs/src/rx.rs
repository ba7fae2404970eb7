//! Messages in: receives that the device filled, and those it gives back empty.

use crate::sys::{ibv_wc, ibv_wc_status};
use crate::{
    Ibverbs,
    close::{UNSPECIFIED, end},
    cm,
    conn::{IbverbsState, RECEIVE},
};
use stag_pools::RemoteKey;
use stag_verbs::{
    Cause, Event, Qp,
    soft::{TOO_LONG, invalidate_fault},
};

impl Ibverbs {
    pub(crate) fn handle_receive(&mut self, completion: &ibv_wc) {
        let shared = &mut self.shared;
        let mut buf = shared.receives.take((completion.wr_id & !RECEIVE) as u32);
        let qp = shared.by_number.get(&completion.qp_num).copied();
        let conn = qp.and_then(|qp| self.conns.get_mut(qp.0));
        let is_well = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
        let Some(conn) = conn.filter(|conn| is_well && conn.state != IbverbsState::Over) else {
            let qp = qp.filter(|_| completion.status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
            return self.put_back(buf, qp, completion.status);
        };
        let mut invalidated = None;
        if completion.wc_flags & shared.queues.domain.device.about.invalidation_flags != 0 {
            let key = RemoteKey(completion.invalidated_rkey);
            let windows = shared.windows.as_mut();
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

    /// A receive that brought no message is posted again (the contract: it stays with the shared
    /// queue).
    fn put_back(&mut self, buf: stag_pools::Buf, qp: Option<Qp>, status: u32) {
        self.shared.stats.receives_failed += 1;
        let posted = self.shared.post_receive(buf);
        debug_assert!(posted.is_ok(), "the receive had its place before");
        if let Some(qp) = qp {
            let fault =
                if status == ibv_wc_status::IBV_WC_LOC_LEN_ERR { TOO_LONG } else { UNSPECIFIED };
            self.with(qp, |conn, shared| end(conn, shared, Cause::PeerFault(fault)));
        }
    }
}
