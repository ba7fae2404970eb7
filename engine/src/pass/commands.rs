//! Commands and orders of the control thread (DESIGN D11): carried out between two passes.

use crate::{
    app::{App, Drained},
    control::{Command, Control, Order},
    shard::Shard,
    stats::Snapshot,
};
use stag_verbs::{Provider, Time};
use std::{ops::ControlFlow, thread, time::Duration};

/// The time that a stopping shard waits for callers over TCP to close.
const FAREWELL: Duration = Duration::from_millis(200);

impl<P: Provider, A: App> Shard<P, A> {
    /// Does what `commands`, bits of [`Command`], say. Breaks when the shard is to return.
    #[cold]
    #[inline(never)]
    pub(super) fn obey(
        &mut self,
        control: &Control<Snapshot<A::Report>>,
        commands: u32,
        now: &impl Fn() -> Time,
    ) -> ControlFlow<()> {
        let is_told = |command: Command| commands & command as u32 != 0;
        self.answer_watchers(control, commands);
        if is_told(Command::Look) {
            // The app has mail, also one whose idle passes are not made.
            self.core.is_quiet = false;
        }
        if is_told(Command::Obey) {
            while let Some(order) = control.next_order() {
                match order {
                    Order::Drop(peer) => {
                        self.end_peer(peer);
                        self.core.is_quiet = false;
                    }
                    Order::Drain => self.drain(control, now)?,
                    Order::Resume => self.admit_again(),
                    Order::SetDrain(drain) => self.core.config.drain = drain,
                    Order::SetSpin(spin) => self.core.config.spin = spin,
                }
            }
        }
        if is_told(Command::Stop) {
            self.stop(now);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Sends the snapshots that `commands` ask for.
    fn answer_watchers(&self, control: &Control<Snapshot<A::Report>>, commands: u32) {
        if commands & Command::Snapshot as u32 != 0 {
            control.send(self.snapshot());
        }
        if commands & Command::Detail as u32 != 0 {
            let (detail, app) = (Some(Box::new(self.detail())), self.app.detailed_report());
            control.send(Snapshot { detail, app, ..self.snapshot() });
        }
    }

    /// Takes no more peers and no more calls, lets those in progress finish for a while, sends what
    /// was answered, and disconnects everybody. The listeners stay, and turn callers away.
    fn drain(
        &mut self,
        control: &Control<Snapshot<A::Report>>,
        now: &impl Fn() -> Time,
    ) -> ControlFlow<()> {
        // It did, and whoever asks again wants to know how that went.
        if self.core.drained.is_some() {
            return ControlFlow::Continue(());
        }
        self.core.stopping = true;
        self.streams.pause(true);
        let mut commands = 0;
        self.wind_down(now, |shard| commands |= shard.watch_meanwhile(control));
        self.core.is_quiet = false;
        if commands & Command::Stop as u32 != 0 {
            self.stop(now);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Answers those who ask while the shard drains; returns the commands that came.
    fn watch_meanwhile(&mut self, control: &Control<Snapshot<A::Report>>) -> u32 {
        let commands = control.look();
        if commands != 0 {
            self.answer_watchers(control, commands);
        }
        commands
    }

    /// Takes peers and calls again.
    fn admit_again(&mut self) {
        (self.core.stopping, self.core.drained) = (false, None);
        self.streams.pause(false);
        self.core.is_quiet = false;
    }

    /// As [`drain`](Self::drain), for good: nobody is listened to any more.
    fn stop(&mut self, now: &impl Fn() -> Time) {
        self.core.stopping = true;
        self.provider.stop_listening();
        self.streams.stop();
        self.wind_down(now, |_| {});
    }

    /// Finishes calls, ends all connections, and tells the app how that went; `meanwhile` is done
    /// between passes.
    fn wind_down(&mut self, now: &impl Fn() -> Time, mut meanwhile: impl FnMut(&mut Self)) {
        let began = now();
        let is_finished = self.finish_calls(now, &mut meanwhile);
        let unanswered = self.core.responder.len();
        let is_ended = self.end_everybody(now, &mut meanwhile);
        let (took, is_cut) = (now().since(began), !(is_finished && is_ended));
        let drained = Drained { took, unanswered, is_cut };
        self.core.drained = Some(drained);
        self.app.on_drained(drained);
    }

    /// Makes passes until the calls in progress are answered and the answers sent, but not for too
    /// long; `meanwhile` is done between them. Returns true if nothing is left to do.
    fn finish_calls(
        &mut self,
        now: &impl Fn() -> Time,
        meanwhile: &mut impl FnMut(&mut Self),
    ) -> bool {
        let until = now() + self.core.config.drain;
        while (!self.core.responder.is_empty() || self.streams.has_output()) && now() < until {
            self.pass(now());
            meanwhile(self);
            thread::yield_now();
        }
        self.core.responder.is_empty() && !self.streams.has_output()
    }

    /// Ends all connections, as [`finish_calls`](Self::finish_calls) does.
    fn end_everybody(
        &mut self,
        now: &impl Fn() -> Time,
        meanwhile: &mut impl FnMut(&mut Self),
    ) -> bool {
        // Callers over TCP see the end behind their last reply; they close, or a moment passes.
        self.streams.say_end();
        let until = now() + self.core.config.drain.min(FAREWELL);
        while !self.streams.is_empty() && now() < until {
            self.pass(now());
            meanwhile(self);
            thread::yield_now();
        }
        let peers: Vec<_> = self.core.peers.iter().map(|(peer, _)| peer).collect();
        peers.into_iter().for_each(|peer| self.end_peer(peer));
        let until = now() + self.core.config.drain;
        while !self.core.peers.is_empty() && now() < until {
            self.pass(now());
            meanwhile(self);
            thread::yield_now();
        }
        self.core.peers.is_empty()
    }
}
