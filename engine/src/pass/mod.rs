//! The loop of a shard: one pass, and the loop's start, sleep and stop.

mod commands;
mod crowd;
mod detail;
mod messages;
mod sleep;
mod wishes;

pub use sleep::Sleeper;

use crate::{
    app::{App, Cx},
    control::{Command, Control},
    shard::Shard,
    stats::Snapshot,
    waiting::{Patience, Rest},
};
use crowd::FEW_EVENTS;
use sleep::Woken;
use stag_verbs::{Event, Look, Looked, Provider, Time};
use std::io;

/// Events handled before the rest of a pass runs.
const EVENTS_PER_PASS: usize = 256;
/// Octets of items delivered to apps before the rest of a pass runs: the apps' output is sent, so
/// that the peer can work while the next items are copied.
const MOVED_PER_PASS: usize = 64 << 10;
/// Work after which the output of a pass is sent, so that the peer works while the pass goes on: so
/// many calls answered at once, or half as many others, which cost twice as much. Replies with
/// payload in chunks do not count.
const WORK_PER_RING: u32 = 16;

impl<P: Provider, A: App> Shard<P, A> {
    /// Makes one pass: everything that can be done without waiting. Returns true if there was
    /// something to do.
    #[inline]
    pub fn pass(&mut self, now: Time) -> bool {
        self.core.counters.stats.passes.total += 1;
        let found = self.provider.look(now, &mut self.front);
        // Most passes of an idle shard end here.
        let is_idle = found.is_nothing() && self.core.is_quiet_at(now);
        if is_idle && !self.app.wants_idle_passes() {
            return false;
        }
        self.pass_on(now, found)
    }

    /// Handles the result of the first look of a pass, and everything else that can be done.
    fn pass_on(&mut self, now: Time, found: Looked) -> bool {
        self.core.begin_pass(now);
        let events = self.take_events(now, found);
        let deferred = self.core.has_deferred() && self.retry_deferred() | self.retry_stuck();
        let has_streams = self.streams.are_in_use();
        let octets = has_streams && self.poll_streams(now, events > 0);
        self.core.begin_work();
        self.app.on_pass_end(&mut Cx::new(&mut self.core, &mut self.provider));
        self.core.begin_work();
        self.empty_outbox();
        let expired = self.expire();
        self.replenish();
        let sent = has_streams && self.flush_streams();
        if expired || has_streams {
            self.empty_outbox();
        }
        debug_assert!(self.core.wishes.is_empty(), "a pass leaves no request of the app");
        // Last, so that all output of the pass is sent before the core may sleep.
        self.ring();
        self.core.end_pass();
        let has_waiting = self.core.has_put_off | self.core.has_aside;
        self.core.is_quiet = !has_streams & !self.core.has_deferred() & !has_waiting;
        events > 0 || deferred || octets || sent || self.core.has_worked
    }

    /// Rings the doorbells.
    #[inline]
    pub(crate) fn ring(&mut self) {
        self.core.unsent = 0;
        let begun = self.core.begin_sending();
        self.provider.ring();
        if let Some(begun) = begun {
            self.core.charge_sending(begun, &mut self.provider);
        }
        self.core.watch.ring(self.core.now);
    }

    /// Rings the doorbells in the middle of a pass, before its next look, if there is much output.
    // A peer that waits for the replies to all its calls would otherwise be idle during the pass,
    // and this shard until the next calls arrive.
    #[inline(always)]
    fn ring_if_due(&mut self) {
        if self.core.unsent >= WORK_PER_RING {
            self.ring_early();
        }
    }

    #[inline(never)]
    fn ring_early(&mut self) {
        // draft 002 §4.3 [bidir-10]: a receive is posted before its message may arrive
        self.replenish();
        self.ring();
        // The next event is not charged for this doorbell.
        self.core.begin_work();
    }

    /// Handles arrived events, starting with `found`, up to the limits of a pass. Returns the
    /// number of events.
    #[inline]
    fn take_events(&mut self, now: Time, found: Looked) -> usize {
        // Moved out of the shard while the app reads its content.
        let mut front = std::mem::take(&mut self.front);
        debug_assert_eq!(front.len(), self.core.config.receive_len, "it is taken once at a time");
        let is_crowded = self.core.has_put_off | self.core.turns.are_metered();
        let mut events = match is_crowded {
            false => self.take_from(&mut front, now, found),
            true => self.take_put_off(&front, found),
        };
        if is_crowded {
            // Waiting messages, whatever their number, do not prevent a look at new ones.
            events += self.take_crowd(&mut front, now, 0);
        } else if events >= FEW_EVENTS {
            events = self.take_crowd(&mut front, now, events);
        }
        self.front = front;
        events
    }

    #[inline]
    fn take_from(&mut self, front: &mut [u8], now: Time, mut found: Looked) -> usize {
        let mut events = 0;
        loop {
            match found.look() {
                Look::Message { qp, len } => {
                    self.core.note_caller_at(qp);
                    self.handle_looked_at(qp, front.get(..len).unwrap_or_default());
                    if found.is_last() {
                        return events + 1;
                    }
                }
                Look::Nothing => return events,
                Look::Other => match self.provider.poll(now) {
                    Some(event) => {
                        if let Event::Received { qp, .. } = &event {
                            self.core.note_caller_at(*qp);
                        }
                        self.handle_event(event);
                        if self.has_moved_enough() {
                            return events + 1;
                        }
                    }
                    None => return events,
                },
            }
            events += 1;
            self.core.unsent += 1;
            if events == FEW_EVENTS {
                return events;
            }
            // Before the look: what it finds is handled before anything else arrives.
            self.ring_if_due();
            found = self.provider.look(now, front);
        }
    }

    /// Returns true once apps have received enough octets of items for one pass.
    #[inline]
    const fn has_moved_enough(&self) -> bool {
        self.core.moved >= MOVED_PER_PASS
    }

    /// Runs until ordered to stop. Spins while there is work, then sleeps (DESIGN D10).
    pub fn run(
        &mut self,
        control: &Control<Snapshot<A::Report>>,
        now: impl Fn() -> Time,
    ) -> io::Result<()> {
        let sleeper = Sleeper::new(self, Some(control))?;
        let mut spin = self.core.config.spin;
        let mut patience = Patience::new(spin, now());
        let mut rest = Rest::new(self.core.config.rest.clone());
        loop {
            let time = now();
            let worked = self.pass(time);
            if worked {
                patience.note_work(time);
                rest.work();
            } else {
                std::hint::spin_loop();
            }
            let commands = control.look();
            // Mail may have arrived after the pass; its sender may have skipped the wake-up because
            // another one was pending.
            let has_mail = commands & Command::Look as u32 != 0;
            if commands != 0 {
                if self.obey(control, commands, &now).is_break() {
                    return Ok(());
                }
                if spin != self.core.config.spin {
                    spin = self.core.config.spin;
                    patience = Patience::new(spin, time);
                }
            }
            if !worked && patience.is_over(time) && !has_mail && self.arm() {
                let woken = self.rest_on(&sleeper, &mut rest, &now)?;
                if woken == Woken::ByControl {
                    control.awake();
                }
                patience.note_woken(now(), woken == Woken::ByTime);
            }
        }
    }

    /// Checks deadlines and retries connections if the first of them is due. Returns true then.
    #[inline]
    fn expire(&mut self) -> bool {
        let is_due = self.core.deadlines.are_due(self.core.now);
        if is_due {
            self.look_at_deadlines();
        }
        is_due
    }

    #[inline(never)]
    fn look_at_deadlines(&mut self) {
        let idle = self.core.requester.is_empty()
            && !self.core.peers.has_lost()
            && self.core.responder.is_empty();
        if self.core.deadlines.take_stall(self.core.now) {
            self.end_stalled();
            self.forget_absent();
            self.end_unanswered();
            self.core.forget_dead_marks();
        }
        // Deadlines added later move the next check forward.
        if self.core.deadlines.take_expiry(self.core.now) && !idle {
            self.expire_calls();
            self.end_silent();
            self.retry_connections();
        }
    }

    /// The time to make a pass even if nothing arrives.
    pub fn wake_at(&self) -> Option<Time> {
        let waiting = self.core.peers.has_lost() || !self.core.requester.is_empty();
        let expiry = waiting.then_some(self.core.deadlines.expiry());
        let app = self.app.idle_pass_at();
        [self.provider.wake_at(), self.streams.wake_at(), expiry, app].into_iter().flatten().min()
    }
}
