//! Workarounds for Linux' siw as acceptor (seen in Linux 6.1 and 6.12: `siw_cm.c`, `siw_qp_rx.c`).
//!
//! *It may not read its socket.* As acceptor siw sends its Reply first and watches the socket for
//! FPDUs afterwards. FPDUs that arrive in between, our indication and first call, stay unread until
//! more octets arrive. The call is never answered, and the connection is never established there,
//! so that closing it crashes that kernel (`BUG` in `iwcm.c`). So the indication is repeated until
//! the peer's first FPDU arrives, after a pause that doubles: for a siw that already reads, it is a
//! Write of no octets.
//!
//! *It cannot check a CRC in two parts* ([`Crc::Auto`](crate::Crc::Auto)). CRCs are the default,
//! which only an administrator may change (RFC 5044 §4.4), and a Reply of siw does not show its
//! preference. So the first connection uses them, and connections after one that siw ended because
//! of a CRC request none.

use crate::conn::{IwarpConn, IwarpShared, IwarpState};
use std::time::Duration;

/// The time before the first nudge: many times the time that siw needs on an idle machine.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The pause after the last nudge. Ten seconds have passed then, longer than any kernel is delayed
/// between two instructions.
const LAST_PAUSE: Duration = Duration::from_millis(5120);

/// Waits for the first FPDU of a siw, whose connection is established for us.
pub(crate) fn await_sign(conn: &mut IwarpConn, shared: &IwarpShared) {
    conn.state = IwarpState::AwaitSign { pause: FIRST_PAUSE };
    conn.deadline = Some(shared.now + FIRST_PAUSE);
}

/// Repeats the indication after a `pause` in which the peer was silent.
pub(crate) fn nudge(conn: &mut IwarpConn, shared: &mut IwarpShared, pause: Duration) {
    if let Some(link) = &mut conn.link
        && link.transmit.repeat_rtr(&mut link.stream)
    {
        shared.stats.nudges += 1;
        conn.wants_flush = true;
    }
    let pause = pause * 2;
    let goes_on = pause <= LAST_PAUSE;
    conn.state = if goes_on { IwarpState::AwaitSign { pause } } else { IwarpState::Established };
    conn.deadline = goes_on.then(|| shared.now + pause);
}
