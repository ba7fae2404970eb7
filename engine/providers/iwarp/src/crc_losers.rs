//! Peers that recently ended a connection because of a CRC: a Linux siw may be unable to check one
//! in two parts (see `siw`).

use crate::IwarpConfig;
use stag_protocol::iwarp::{
    mpa::{self, Crc},
    rdmap::{Peer, Terminate},
};
use std::{collections::VecDeque, net::SocketAddr};

/// Number of peers that are remembered.
const CRC_LOSERS: usize = 16;

/// Peers that recently ended a connection because of a CRC.
#[derive(Debug, Default)]
pub(crate) struct CrcLosers(VecDeque<SocketAddr>);

impl CrcLosers {
    /// Records a Terminate of `peer` with `cause`.
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
