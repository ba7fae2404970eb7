//! Due calls: made, or counted as unsent when they cannot be made.

use super::{Generator, GeneratorPhase, RequestSlot, unsent};
use crate::{latency::nanos, schedule::Pace, workload::Ask};
use stag_client::Error;
use stag_engine::{Cx, Time, Token};

impl Generator {
    /// Makes the calls that are due. How many those were.
    pub(super) fn issue(&mut self, cx: &mut Cx<'_>, now: Time) -> u64 {
        let mut made = 0;
        while !self.free.is_empty() {
            let intended = match &self.pace {
                Pace::Closed => now,
                Pace::Open(schedule) if schedule.next() > now && now < self.span.until => {
                    return made;
                }
                Pace::Open(schedule) => schedule.next(),
            };
            if intended >= self.span.until || self.is_enough() {
                self.phase = GeneratorPhase::AwaitReplies;
                return made;
            }
            if let Pace::Open(schedule) = &mut self.pace {
                schedule.advance();
            }
            let Some(index) = self.free.pop_front() else { break };
            self.call(cx, index, intended, now);
            made += 1;
            if self.phase == GeneratorPhase::Over {
                return made;
            }
        }
        if now >= self.span.until {
            self.leave_rest();
        }
        made
    }

    /// Counts the calls that are due until the end and are not made.
    pub(super) fn leave_rest(&mut self) {
        if let Pace::Open(schedule) = &mut self.pace {
            let calls =
                self.span.calls.map_or(u64::MAX, |calls| calls.saturating_sub(self.counted));
            self.watch.unsent += unsent::leave(schedule, self.span, calls, &mut self.second.1);
        }
        self.phase = GeneratorPhase::AwaitReplies;
    }

    pub(super) fn call(&mut self, cx: &mut Cx<'_>, index: u32, intended: Time, now: Time) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        let ask = self.maker.ask(&mut self.random, index, slot.steps);
        let counts = intended >= self.span.from && self.laps.is_none();
        *slot = RequestSlot {
            ask,
            intended,
            sent: now,
            steps: slot.steps.wrapping_add(1),
            counts,
            ..*slot
        };
        if counts {
            self.counted += 1;
            // In a closed loop a call is due when it is made.
            if matches!(self.pace, Pace::Open(_)) {
                let due = intended.max(self.room_at);
                self.second.1.lag.saturating_record(nanos(now.since(due)));
            }
        }
        if let Ask::Write { block } = ask
            && let Some(written) =
                usize::try_from(block).ok().and_then(|block| self.written.get_mut(block))
        {
            *written = true;
        }
        if counts && let Some(watcher) = &mut self.watcher {
            watcher.begin(index, intended, now);
        }
        let peer = slot.peer;
        match &mut self.storm {
            Some(storm) => storm.begin(index),
            None => self.send(cx, index, peer, ask),
        }
    }

    /// Makes a call of slot `index` on connection `peer`.
    #[inline]
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, index: u32, peer: usize, ask: Ask) {
        let Self { maker, items, .. } = self;
        let made = self.peers.get(peer).and_then(|peer| match &mut self.sessions {
            None => match &self.progress {
                None => maker.make(cx, *peer, ask, Token(index.into()), items),
                Some(progress) => {
                    maker.make_next(cx, *peer, ask, Token(index.into()), progress, items)
                }
            },
            Some(sessions) => {
                let place = sessions.next_place(index)?;
                let made = maker.make_compound(cx, *peer, ask, place, items);
                if made.is_some() {
                    sessions.begin(index);
                }
                made
            }
        });
        if made.is_none() {
            self.failure.get_or_insert((ask.name(), Error::NoMemory));
            self.phase = GeneratorPhase::Over;
        }
    }

    /// Checks the reply to the call of slot `index`; returns the octets of payload that it moved.
    #[inline]
    pub(super) fn check(
        &mut self,
        index: u32,
        ask: Ask,
        reply: &[u8],
        result: &[u8],
    ) -> Result<u64, Error> {
        match &self.sessions {
            None => match &mut self.progress {
                None => self.maker.check(ask, reply, result),
                Some(progress) => self.maker.check_next(ask, reply, result, progress),
            },
            Some(sessions) => self.maker.check_compound(ask, sessions.latest(index), reply, result),
        }
    }

    /// All calls that count were made.
    pub(super) fn is_enough(&self) -> bool {
        self.span.calls.is_some_and(|calls| self.counted >= calls)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn finish_failed(&mut self, index: u32, error: Error) {
        self.finished.push((index, Err(error)));
    }

    /// Ends the run, for this reason unless there is an earlier one.
    pub(super) fn fail(&mut self, what: &'static str, error: Error) -> u64 {
        self.failure.get_or_insert((what, error));
        self.phase = GeneratorPhase::Over;
        0
    }
}
