//! Commands and orders of the control thread (DESIGN D11), carried out between two passes.

use crate::{
    app::{App, Drained},
    control::{Command, Control, Order},
    shard::Shard,
    stats::Snapshot,
};
use stag_verbs::{Provider, Time};
use std::{ops::ControlFlow, thread, time::Duration};

/// The time that a stopping shard waits for TCP clients to close.
const FAREWELL: Duration = Duration::from_millis(200);

impl<P: Provider, A: App> Shard<P, A> {
    /// Carries out `commands`, bits of [`Command`]. Breaks if the shard is to return.
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
            // The app has mail, even if it requests no idle passes.
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

    /// Sends the snapshots that `commands` request.
    fn answer_watchers(&self, control: &Control<Snapshot<A::Report>>, commands: u32) {
        if commands & Command::Snapshot as u32 != 0 {
            control.send(self.snapshot());
        }
        if commands & Command::Detail as u32 != 0 {
            let (detail, app) = (Some(Box::new(self.detail())), self.app.detailed_report());
            control.send(Snapshot { detail, app, ..self.snapshot() });
        }
    }

    /// Accepts no more peers and calls, lets calls in progress finish for a limited time, sends
    /// their replies, and disconnects all peers. The listeners stay, and refuse connections.
    fn drain(
        &mut self,
        control: &Control<Snapshot<A::Report>>,
        now: &impl Fn() -> Time,
    ) -> ControlFlow<()> {
        // Already drained; the requester of another drain gets the earlier result.
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

    /// Answers snapshot requests while the shard drains; returns the commands that came.
    fn watch_meanwhile(&mut self, control: &Control<Snapshot<A::Report>>) -> u32 {
        let commands = control.look();
        if commands != 0 {
            self.answer_watchers(control, commands);
        }
        commands
    }

    /// Accepts peers and calls again.
    fn admit_again(&mut self) {
        (self.core.stopping, self.core.drained) = (false, None);
        self.streams.pause(false);
        self.core.is_quiet = false;
    }

    /// As [`drain`](Self::drain), permanently: the listeners are closed.
    fn stop(&mut self, now: &impl Fn() -> Time) {
        self.core.stopping = true;
        self.provider.stop_listening();
        self.streams.stop();
        self.wind_down(now, |_| {});
    }

    /// Finishes calls, ends all connections, and reports the result to the app; `meanwhile` runs
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

    /// Makes passes until all calls in progress are answered and the answers sent, or the time
    /// limit ends; `meanwhile` runs between them. Returns true if nothing is left to do.
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
        // TCP clients see the end of stream after their last reply; wait briefly for them to close.
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
