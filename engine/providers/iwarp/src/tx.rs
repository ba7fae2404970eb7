//! Sending: work requests and answers become FPDUs, and many FPDUs become one system call.
//!
//! A short message with nothing in front of it is copied: its complete FPDU goes to the
//! connection's output as soon as it is posted, and is sent with the next doorbell. The rest takes
//! two steps. *Filling* takes the next message, segments it, and closes each segment with its CRC;
//! that fixes its position in the stream. *Sending* gathers the waiting FPDUs, with headers from
//! here and payload from its source, and passes them to the kernel, which may accept any number of
//! octets.

mod copy;
mod fill;
mod gather;
#[cfg(test)]
mod tests;

use crate::{
    close,
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState, report},
    rx,
    transmit::Transmit,
};
use stag_verbs::FabricFault;

/// Octets that one connection sends before others have their turn.
const QUANTUM: usize = 1 << 20;

/// Result of one send call to the kernel.
enum SendResult {
    All,
    Part,
    Broken,
}

/// Handles a doorbell when only copies were posted, and the kernel accepts them. Returns false if
/// there is more to do.
#[inline]
pub(crate) fn send_copies(conn: &mut IwarpConn, shared: &mut IwarpShared) -> bool {
    let is_quiet = |link: &IwarpLink| link.queue.has_begun_all() && link.is_quiet();
    let is_plain =
        conn.output.len > 0 && !conn.wants_out && conn.link.as_deref().is_some_and(is_quiet);
    if !is_plain || !matches!(conn.send_output(shared), SendResult::All) {
        return false;
    }
    conn.is_posted = false;
    true
}

/// Sends as much as is allowed and the kernel accepts. Reports completed work.
pub(crate) fn flush(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let mut quantum = QUANTUM;
    conn.wants_out = false;
    if conn.output.len > 0 {
        match conn.send_output(shared) {
            SendResult::All => {}
            SendResult::Part => conn.wants_out = true,
            SendResult::Broken => return rx::broken(conn, shared, FabricFault::Lost),
        }
    }
    loop {
        let Some(link) = &mut conn.link else { return };
        link.transmit.borrow(&mut shared.spare_fpdus);
        if let Err(violation) = link.fill(conn.qp.scope(), &mut shared.windows) {
            close::violate(conn, shared, violation);
            continue;
        }
        report(link, conn.qp, shared);
        if link.transmit.fpdus.is_empty() || conn.wants_out {
            break;
        }
        let before = link.transmit.queued;
        match link.send(&conn.socket, conn.qp.scope(), shared) {
            SendResult::All => quantum = quantum.saturating_sub(before),
            SendResult::Part => {
                conn.wants_out = true;
                break;
            }
            SendResult::Broken => return rx::broken(conn, shared, FabricFault::Lost),
        }
        if quantum == 0 {
            // The socket is still writable, so the next look at it continues.
            conn.wants_out = !link.transmit.fpdus.is_empty()
                || link.transmit.active.is_some()
                || link.has_more();
            break;
        }
    }
    let Some(link) = &mut conn.link else { return };
    link.transmit.give_back(&mut shared.spare_fpdus);
    report(link, conn.qp, shared);
    if let IwarpState::AwaitTerminateSent { cause } = conn.state
        && link.transmit.fpdus.is_empty()
    {
        close::end_gently(conn, shared, cause);
    }
}

impl IwarpLink {
    /// Returns true if nothing waits to be sent or done.
    #[inline]
    fn is_quiet(&self) -> bool {
        let Transmit { active, fpdus, .. } = &self.transmit;
        active.is_none() && fpdus.is_empty() && !self.has_more()
    }

    /// Returns true if a message could begin.
    fn has_more(&self) -> bool {
        self.stream.next_read().is_some() || self.queue.next().is_some()
    }
}
