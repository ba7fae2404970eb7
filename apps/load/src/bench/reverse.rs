//! Being called: the client's part of [`Workload::Reverse`](super::Workload::Reverse).
//!
//! The server makes the calls that are measured (RFC 8167), and tells with each how long the one before it took
//! ([`stag_echo::driver`]). Here they are compared, answered and counted, and told when to end.

use super::workload::Maker;
use crate::Error;
use stag_echo::driver::Lap;
use stag_engine::{Answer, AnswerItem, Call, Cx, Time};
use stag_protocol::rpc::Accepted;

/// The calls of the server.
#[derive(Debug)]
pub(super) struct Laps {
    /// Whether the LAP counts that came last on a place.
    counts: Box<[bool]>,
    /// When the last LAP came, or they were asked for.
    pub heard_at: Option<Time>,
}

impl Laps {
    pub fn new(places: usize) -> Self {
        Self { counts: vec![false; places].into_boxed_slice(), heard_at: None }
    }

    /// Answers a LAP, and says whether the server is to go on. How many nanoseconds the one before it took on its place, when that one
    /// counts.
    pub fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        call: &Call<'_>,
        maker: &Maker,
        (counts, goes_on): (bool, bool),
    ) -> Result<Option<u64>, Error> {
        let mut arguments = call.arguments.clone();
        let lap = Lap::parse(&mut arguments).map_err(Error::Garbled)?;
        let octets = arguments.item(maker.len).map_err(Error::Garbled)?;
        maker.same(octets, stag_echo::part(lap.at, maker.len).unwrap_or_default())?;
        let counted = self.counts.get_mut(lap.place as usize).ok_or(NO_PLACE)?;
        let len = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        let message = stag_echo::reply(cx, call.header.reply(Accepted::Success), |writer| {
            writer.bool(goes_on)?;
            writer.u32(len)
        });
        let message = message.ok_or(Error::NoMemory)?;
        let mut item = None;
        if !octets.is_empty() {
            let mut copy = cx.take(octets.len()).ok_or(Error::NoMemory)?;
            copy.append(octets).map_err(|_| Error::NoMemory)?;
            item = Some(AnswerItem { position: message.len(), octets: copy.freeze().into() });
        }
        cx.answer(call.id, Answer { message, item });
        let before = std::mem::replace(counted, counts);
        // The first LAP of a place follows none.
        Ok((before && lap.took > 0).then_some(lap.took))
    }
}

const NO_PLACE: Error = Error::Nonsense("the server calls on a place that it was not given");
