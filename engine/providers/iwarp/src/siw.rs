//! Workarounds for Linux' siw as acceptor (seen in Linux 6.1 and 6.12: `siw_cm.c`, `siw_qp_rx.c`).
//!
//! *It may not look.* As acceptor siw sends its Reply first and watches the socket for FPDUs
//! afterwards. Those that arrive in between, our indication and first call, lie there until
//! something else arrives: the call is never answered, and the connection is never established
//! there, so that closing it stops that kernel (`BUG` in `iwcm.c`). So until the peer's first FPDU
//! is there the indication is said again, after a pause that doubles: to a siw that looks already
//! it is a Write of no octets.
//!
//! *It cannot check a CRC in two parts* ([`Crc::Auto`]). CRCs are the default, which only an
//! administrator may change (RFC 5044 §4.4), and a Reply of siw does not tell what it would rather
//! have. So the first connection has them, and those behind the one that siw ended because of a CRC
//! ask for none.

use crate::{
    IwarpConfig,
    conn::{IwarpConn, IwarpShared, IwarpState},
};
use stag_protocol::iwarp::{
    mpa::{self, Crc},
    rdmap::{Peer, Terminate},
};
use std::{collections::VecDeque, net::SocketAddr, time::Duration};

/// The time that siw gets before the first nudge: many times what it needs on an idle machine.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The pause behind the last nudge. Ten seconds are over then, and no kernel has slept that long
/// between two lines.
const LAST_PAUSE: Duration = Duration::from_millis(5120);
/// Peers that are remembered.
const CRC_LOSERS: usize = 16;

/// A connection to siw is established for us.
pub(crate) fn await_sign(conn: &mut IwarpConn, shared: &IwarpShared) {
    conn.state = IwarpState::AwaitSign { pause: FIRST_PAUSE };
    conn.deadline = Some(shared.now + FIRST_PAUSE);
}

/// `pause` is over and the peer has said nothing.
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

/// Peers that have ended a connection because of a CRC: the last few.
#[derive(Debug, Default)]
pub(crate) struct CrcLosers(VecDeque<SocketAddr>);

impl CrcLosers {
    /// A Terminate of `peer` said `cause`.
    pub(crate) fn note(&mut self, kind: Peer, cause: Terminate, peer: SocketAddr) {
        if kind != Peer::Siw || cause != Terminate::MPA_CRC || self.0.contains(&peer) {
            return;
        }
        self.0.truncate(CRC_LOSERS - 1);
        self.0.push_front(peer);
    }

    /// Returns the configuration from which a connection to `peer` is negotiated.
    pub(crate) fn config(&self, config: &IwarpConfig, peer: SocketAddr) -> mpa::Config {
        let mut mpa = config.mpa();
        if mpa.crc == Crc::Auto && self.0.contains(&peer) {
            mpa.crc = Crc::Never; // a preference: the peer may still insist
        }
        mpa
    }
}
