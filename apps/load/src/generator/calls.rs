//! Due calls: made, or counted as unsent when they cannot be made.

use super::{Generator, GeneratorPhase, RequestSlot, contexts::OpenedReply, unsent};
use crate::{
    latency::nanos,
    schedule::Pace,
    workload::{Ask, CallOutlet},
};
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
            if self.contexts.is_some() && !self.bring_ready() {
                break;
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
        if let Some(contexts) = &mut self.contexts {
            contexts.note_first(index);
        }
        match &mut self.storm {
            Some(storm) => storm.begin(index),
            None => self.send(cx, index, peer, ask),
        }
    }

    /// Makes a call of slot `index` on connection `peer`.
    #[inline]
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, index: u32, peer: usize, ask: Ask) {
        let made = match self.is_plain() {
            true => self.peers.get(peer).and_then(|peer| {
                self.maker.make(cx, *peer, ask, Token(index.into()), &mut self.items)
            }),
            false => self.make_other(cx, index, peer, ask),
        };
        if made.is_none() {
            self.failure.get_or_insert((ask.name(), Error::NoMemory));
            self.phase = GeneratorPhase::Over;
        }
    }

    /// Returns true if calls have neither a session nor a state nor a context.
    #[inline]
    const fn is_plain(&self) -> bool {
        self.sessions.is_none() && self.progress.is_none() && self.contexts.is_none()
    }

    /// Makes a call that has a session, a state or a context.
    // A separate function, as is the check, so that the shortest calls save no registers for it.
    #[inline(never)]
    fn make_other(&mut self, cx: &mut Cx<'_>, index: u32, peer: usize, ask: Ask) -> Option<()> {
        let (connection, peer) = (peer, *self.peers.get(peer)?);
        match self.contexts.take() {
            None => self.make_by(cx, index, peer, ask),
            Some(mut contexts) => {
                let outlet = contexts.outlet(index, connection, peer);
                let made = outlet.and_then(|to| self.make_by(cx, index, to, ask));
                self.contexts = Some(contexts);
                made
            }
        }
    }

    fn make_by(
        &mut self,
        cx: &mut Cx<'_>,
        index: u32,
        to: impl CallOutlet,
        ask: Ask,
    ) -> Option<()> {
        let Self { maker, items, .. } = self;
        let token = Token(index.into());
        match (&mut self.sessions, &self.progress) {
            (Some(sessions), _) => {
                let place = sessions.next_place(index)?;
                maker.make_compound(cx, to, ask, place, items)?;
                sessions.begin(index);
                Some(())
            }
            (None, Some(progress)) => maker.make_next(cx, to, ask, token, progress, items),
            (None, None) => maker.make(cx, to, ask, token, items),
        }
    }

    /// Checks the reply to the call of slot `index`; returns the octets of payload that it moved.
    /// None: the call is made again.
    #[inline]
    pub(super) fn check(
        &mut self,
        index: u32,
        ask: Ask,
        reply: &[u8],
        result: &[u8],
    ) -> Option<Result<u64, Error>> {
        match self.is_plain() {
            true => Some(self.maker.check(ask, reply, result)),
            false => self.check_other(index, ask, reply, result),
        }
    }

    /// The same for a call that has a session, a state or a context.
    #[inline(never)]
    fn check_other(
        &mut self,
        index: u32,
        ask: Ask,
        reply: &[u8],
        result: &[u8],
    ) -> Option<Result<u64, Error>> {
        let opened = self.contexts.as_mut().map(|contexts| contexts.judge(index, reply));
        Some(match opened {
            None | Some(OpenedReply::AsItCame) => self.check_results(index, ask, reply, result),
            Some(OpenedReply::Cleared(clear)) => {
                let checked = self.check_results(index, ask, &clear, result);
                self.contexts.as_mut()?.give(clear);
                checked
            }
            Some(OpenedReply::Refused(error)) => Err(error),
            Some(OpenedReply::Again) => {
                // The server has not seen its sequence ID.
                if let Some(sessions) = &mut self.sessions {
                    sessions.undo(index);
                }
                return None;
            }
        })
    }

    fn check_results(
        &mut self,
        index: u32,
        ask: Ask,
        reply: &[u8],
        result: &[u8],
    ) -> Result<u64, Error> {
        match (&self.sessions, &mut self.progress) {
            (Some(sessions), _) => {
                self.maker.check_compound(ask, sessions.latest(index), reply, result)
            }
            (None, Some(progress)) => self.maker.check_next(ask, reply, result, progress),
            (None, None) => self.maker.check(ask, reply, result),
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
