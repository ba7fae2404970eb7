//! Fast path of short messages with nothing in front of them: copied, and sent with the next
//! doorbell.

use super::SendResult;
use crate::{
    conn::{IwarpConn, IwarpLink, IwarpShared},
    crc::Crc,
    sock::{self, SocketResult},
    transmit::{OUTPUT_LEN, Transmit},
};
use stag_pools::RemoteKey;
use stag_protocol::iwarp::{ddp, fpdu, stream::Refused};
use stag_verbs::RemoteSpan;

/// Octets of the longest message that is copied: about the length up to which copying is cheaper
/// than gathering.
const COPIED_MAX: usize = 8 << 10;
/// Octets above which no more copies are queued for a peer that does not take them: it must not
/// hold more of our memory than an FPDU's.
const STUCK_LEN: usize = 64 << 10;

impl IwarpConn {
    /// Sends a copy of `message` with the next doorbell, if everything before it is being sent.
    pub(crate) fn copy_send(
        &mut self,
        shared: &mut IwarpShared,
        message: &[u8],
        invalidate: Option<RemoteKey>,
    ) -> bool {
        if !self.may_copy(message.len() + ddp::UNTAGGED_LEN) {
            return false;
        }
        self.copy(shared, message, |link, len| {
            link.stream.send_at_once(len, invalidate.map(|key| key.0))
        })
    }

    /// The same for a Write, which completes at once: no earlier work may be pending.
    pub(crate) fn copy_write(
        &mut self,
        shared: &mut IwarpShared,
        source: &[u8],
        to: RemoteSpan,
    ) -> bool {
        let is_first = self.link.as_ref().is_some_and(|link| link.queue.is_empty());
        if !is_first || !self.may_copy(source.len() + ddp::TAGGED_LEN) {
            return false;
        }
        self.copy(shared, source, |link, len| link.stream.write_at_once(len, to.key.0, to.offset))
    }

    /// Returns true if one segment can carry a ULPDU of `ulpdu_len`, and no posted or begun work
    /// waits in front of it.
    fn may_copy(&self, ulpdu_len: usize) -> bool {
        let Some(link) = self.link.as_deref().filter(|_| self.may_send()) else { return false };
        let Transmit { mulpdu, active, fpdus, has_markers, .. } = &link.transmit;
        let is_short = ulpdu_len <= COPIED_MAX.min(usize::from(*mulpdu));
        is_short
            && link.queue.has_begun_all()
            && active.is_none()
            && fpdus.is_empty()
            && !has_markers
    }

    fn copy<const N: usize>(
        &mut self,
        shared: &mut IwarpShared,
        payload: &[u8],
        header: impl FnOnce(&mut IwarpLink, u16) -> Result<[u8; N], Refused>,
    ) -> bool {
        shared.output_spares.lend(&mut self.output);
        let Some(link) = self.link.as_deref_mut() else { return false };
        let limit = if self.wants_out { STUCK_LEN } else { OUTPUT_LEN };
        let Some(room) = self.output.octets.get_mut(self.output.len..limit) else { return false };
        // Building a header uses up its message number, so the room is checked first.
        if room.len() < fpdu::fpdu_len((N + payload.len()) as u16) {
            return false;
        }
        // `may_copy`: at most the MULPDU.
        let Ok(header) = header(link, payload.len() as u16) else { return false };
        let written = link.transmit.framer.write::<Crc, N>(&header, payload, room);
        self.output.len += written.expect("there is room, and there are no markers");
        shared.stats.fpdus_out += 1;
        shared.stats.octets_copied += payload.len() as u64;
        true
    }

    /// Passes the output to the kernel, once.
    #[inline(always)]
    pub(super) fn send_output(&mut self, shared: &mut IwarpShared) -> SendResult {
        let ends_segments = self.link.as_ref().is_some_and(|link| link.transmit.ends_segments);
        let IwarpShared { stats, output_spares, .. } = shared;
        let waiting = self.output.content().get(self.output_sent..).unwrap_or_default();
        let taken = match sock::send_one(&self.socket, waiting, ends_segments, stats) {
            SocketResult::Octets(taken) => taken,
            SocketResult::WouldBlock | SocketResult::End => 0,
            SocketResult::Broken(_) => return SendResult::Broken,
        };
        if taken < waiting.len() {
            self.output_sent += taken;
            stats.sendmsg_short += 1;
            return SendResult::Part;
        }
        (self.output.len, self.output_sent) = (0, 0);
        // A hot connection needs it again in a moment; `cool` takes it back.
        if !self.is_hot {
            output_spares.take_back(&mut self.output);
        }
        SendResult::All
    }
}
