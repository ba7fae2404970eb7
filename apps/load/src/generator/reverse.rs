//! Reverse calls: the client's part of [`Workload::Reverse`](crate::Workload::Reverse).
//!
//! The server makes the measured calls (RFC 8167), and reports with each the time of the one before
//! it ([`stag_echo::driver`]). Here they are compared, answered and counted, and asked to end.

use super::{Generator, GeneratorPhase};
use crate::workload::Maker;
use stag_client::Error;
use stag_echo::driver::Lap;
use stag_engine::{Answer, AnswerItem, Call, CallFault, Cx, Time};
use stag_protocol::rpc::Accepted;

/// The calls of the server.
#[derive(Debug)]
pub(super) struct Laps {
    /// True for each place whose latest LAP counts.
    counts: Box<[bool]>,
    /// Time at which the latest LAP arrived, or at which LAPs were requested.
    pub heard_at: Option<Time>,
}

/// The fate of a LAP.
#[derive(Clone, Copy, Debug)]
pub(super) struct LapVerdict {
    /// It is measured.
    counts: bool,
    /// The server is to make another one.
    goes_on: bool,
}

impl Laps {
    pub fn new(places: usize) -> Self {
        Self { counts: vec![false; places].into_boxed_slice(), heard_at: None }
    }

    /// Answers a LAP, and says whether the server is to go on. Returns the nanoseconds of the one
    /// before it on its place, when that one counts.
    pub fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        call: &Call<'_>,
        maker: &Maker,
        verdict: LapVerdict,
    ) -> Result<Option<u64>, Error> {
        let LapVerdict { counts, goes_on } = verdict;
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
            item = Some(AnswerItem::new(message.len(), copy.freeze()));
        }
        cx.answer(call.id, Answer { message, item });
        let before = std::mem::replace(counted, counts);
        // The first LAP of a place follows none.
        Ok((before && lap.took > 0).then_some(lap.took))
    }
}

const NO_PLACE: Error = Error::Nonsense("the server calls on a place that it was not given");

impl Generator {
    /// Asks the server to call over each connection, after a NULL; notices when it has to end, and
    /// when it does not call. Returns the number of calls made for it.
    pub(super) fn ask_for_laps(&mut self, cx: &mut Cx<'_>, now: Time) -> u64 {
        let Some(laps) = &mut self.laps else { return 0 };
        if matches!(self.phase, GeneratorPhase::AwaitStart | GeneratorPhase::Over) {
            return 0;
        }
        let heard_at = *laps.heard_at.get_or_insert(now);
        if now.since(heard_at) > self.maker.timeout {
            return self.fail("LAP", Error::Call(CallFault::TimedOut));
        }
        if self.phase == GeneratorPhase::Running && (now >= self.span.until || self.is_enough()) {
            self.phase = GeneratorPhase::AwaitReplies;
        }
        let mut made = 0;
        while self.phase == GeneratorPhase::Running
            && let Some(index) = self.free.pop_front()
        {
            if self.slots.get(index as usize).is_some_and(|slot| slot.steps > 1) {
                return self.fail("DRIVE", Error::Nonsense("the server ended its calls by itself"));
            }
            self.call(cx, index, now, now);
            made += 1;
        }
        made
    }

    /// Answers a call of the server, and records the time of the one before it.
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) {
        let (now, is_enough) = (cx.now(), self.is_enough());
        let goes_on = self.phase == GeneratorPhase::Running
            && now < self.span.until
            && !is_enough
            && self.failure.is_none();
        let Some(laps) = &mut self.laps else { return };
        laps.heard_at = Some(now);
        match laps.answer(
            cx,
            call,
            &self.maker,
            LapVerdict { counts: now >= self.span.from, goes_on },
        ) {
            Ok(Some(took)) if !is_enough => {
                let record = &mut self.second.1;
                record.calls += 1;
                record.octets += 2 * self.maker.len as u64;
                record.service.saturating_record(took);
                record.response.saturating_record(took);
                self.counted += 1;
                self.last_reply = now;
            }
            Ok(_) => {}
            Err(error) => {
                self.failure.get_or_insert(("LAP", error));
                cx.refuse(call, Accepted::GarbageArgs);
            }
        }
    }
}
