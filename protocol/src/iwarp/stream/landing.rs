//! Tagged segments checked by their header, before their payload has arrived.
//!
//! A segment whose header is valid may be placed in memory while it arrives: nothing else can
//! arrive on the stream before it ends. It counts only once its FPDU has proved valid
//! (docs/landing.md).

use super::{Gate, Inbound, Stream, TaggedFault, inbound::answered};
use crate::iwarp::ddp::{Header, Tagged};
use crate::iwarp::rdmap::{Opcode, Violation};

/// The place of a segment whose payload is still to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandingPlace {
    /// The window that the header names: check it, for all of the payload.
    Window,
    /// The sink of our oldest Read, after the octets it already holds.
    Sink {
        /// Token that the caller gave to [`Stream::begin_read`].
        token: u64,
    },
}

impl<const IRD: usize, const ORD: usize> Stream<IRD, ORD> {
    /// Returns the place of a tagged segment with `len` octets of payload if
    /// [`handle_ulpdu`](Self::handle_ulpdu) would accept the whole segment. `None` for every other
    /// segment: those are checked once they have arrived. Nothing changes.
    pub fn foresee(&self, header: &Tagged, len: usize) -> Option<LandingPlace> {
        let opcode = Opcode::parse(header.control).ok()?;
        // RFC 5040 §7.2 [5040-56]: an opcode that is unknown or out of place is an error
        let is_next = self.open_tagged.is_none_or(|open| open == opcode);
        if self.gate != Gate::Open || !is_next {
            return None;
        }
        match opcode {
            Opcode::Write => header.to.checked_add(len as u64).map(|_| LandingPlace::Window),
            Opcode::ReadResponse => {
                let read = self.outbound_reads.front()?;
                answered(read, header, len).ok()?;
                Some(LandingPlace::Sink { token: read.token })
            }
            _ => None,
        }
    }

    /// Checks a segment that [`foresee`](Self::foresee) found a place for, now that its `payload`
    /// has arrived and its FPDU is valid.
    pub fn handle_landed<'a>(
        &mut self,
        header: &Tagged,
        payload: &'a [u8],
    ) -> Result<Inbound<'a>, Violation> {
        if self.is_ended() {
            // RFC 5041 §7.1 [5041-47]: segments after an error are dropped silently
            return Ok(Inbound::Dropped);
        }
        let header = Header::Tagged(*header);
        self.judge(&header, payload)
            .map_err(|cause| self.violated(Violation::of_segment(cause, &header, payload.len())))
    }

    /// Refuses a segment of `len` octets that is longer than the window in which it lands.
    pub fn refuse_landing(&mut self, header: &Tagged, len: usize) -> Violation {
        self.refuse_tagged(header, len, TaggedFault::InvalidStag)
    }
}
