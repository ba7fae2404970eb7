//! A long tagged FPDU whose payload lands in its window or sink as it arrives (docs/landing.md).
//! `rx` reads and judges it.

use crate::crc::Crc;
use stag_pools::{AccessViolation, RemoteKey, Scope, Windows};
use stag_protocol::iwarp::{
    ddp::{self, Tagged},
    fpdu::{self, Crc32c},
    stream::LandingPlace,
};
use stag_verbs::soft::{Op, SendQueue};

/// Octets of the length field and a tagged header.
pub(crate) const HEAD: usize = fpdu::LENGTH_LEN + ddp::TAGGED_LEN;
/// Octets of the longest padding, and of the CRC field.
pub(crate) const TRAILER_MAX: usize = 3 + fpdu::CRC_LEN;

/// A tagged FPDU whose header was checked, and which is incomplete.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Length field and header as received: the CRC covers them.
    pub(crate) head: [u8; HEAD],
    pub(crate) header: Tagged,
    pub(crate) place: LandingPlace,
    /// Octets of its payload.
    pub(crate) len: usize,
    /// Octets of payload and trailer that have arrived.
    pub(crate) arrived: usize,
    pub(crate) trailer: [u8; TRAILER_MAX],
}

impl Arrival {
    /// The reason why the room stays valid until the FPDU ends.
    pub(crate) const STAYS: &str =
        "a window stays bound, and a Read pending, while an FPDU lands there";

    /// The memory for the whole payload.
    pub(crate) fn room<'a>(
        &self,
        queue: &'a mut SendQueue,
        windows: &'a mut Windows,
        scope: Scope,
    ) -> Result<&'a mut [u8], AccessViolation> {
        let token = match self.place {
            LandingPlace::Window => {
                let key = RemoteKey(self.header.stag);
                return windows.landing(scope, key, self.header.to, self.len);
            }
            LandingPlace::Sink { token } => token,
        };
        let Some(Op::Read(read)) = queue.op_mut(token) else {
            unreachable!("a Read stays until it is answered")
        };
        let room = read.sink.get_mut(read.fill_at..read.fill_at + self.len);
        Ok(room.expect("the stream checks answers against what was asked"))
    }

    /// Counts `octets` more of the payload as landed.
    pub(crate) fn count(&mut self, octets: usize, windows: &mut Windows, scope: Scope) {
        if self.place == LandingPlace::Window && octets > 0 {
            let at = self.header.to + self.arrived as u64;
            windows.target(scope, RemoteKey(self.header.stag), at, octets).expect(Self::STAYS);
        }
        self.arrived += octets;
    }

    /// Octets of payload and trailer.
    pub(crate) fn end(&self) -> usize {
        self.len + fpdu::pad_len(ddp::TAGGED_LEN + self.len) + fpdu::CRC_LEN
    }

    /// Returns true if the CRC field matches head, `payload` and padding.
    pub(crate) fn is_right(&self, payload: &[u8]) -> bool {
        let trailer = self.trailer.get(..self.end() - self.len).unwrap_or_default();
        let Some((pad, sum)) = trailer.split_last_chunk() else { return false };
        let mut crc = Crc::start();
        crc.update(&self.head);
        crc.update(payload);
        crc.update(pad);
        crc.finish() == u32::from_le_bytes(*sum)
    }
}
