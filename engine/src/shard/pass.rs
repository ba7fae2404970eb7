//! The loop: a pass, and its life from start to stop.

use super::Shard;
use crate::{
    app::{App, Cx},
    control::{Command, Control},
    stats::Snapshot,
};
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
};
use stag_verbs::{Provider, Time};
use std::{io, time::Duration};

/// Events handled before the rest of a pass gets its turn.
const EVENTS_PER_PASS: usize = 256;
/// Longest time between two looks at deadlines; a look happens earlier when one is known to be due.
const EXPIRY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The time that a stopping shard waits for callers over TCP to close.
const FAREWELL: Duration = Duration::from_millis(200);
/// Longest sleep while something waits for memory or for room in a queue.
const DEFERRED_MAX: Duration = Duration::from_millis(1);
/// Longest sleep: a bound on the damage of a wake-up that was missed.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The times at which a shard looks at what time alone changes.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Deadlines of calls and attempts to connect, the first one or earlier.
    expiry: Time,
    /// Peers that make no progress.
    stall: Time,
}

impl Deadlines {
    pub(crate) const fn new() -> Self {
        Self { expiry: Time(0), stall: Time(0) }
    }

    /// Looks at deadlines at `at`, or earlier.
    #[inline]
    pub(crate) fn no_later(&mut self, at: Time) {
        self.expiry = self.expiry.min(at);
    }

    #[inline]
    fn are_due(&self, now: Time) -> bool {
        now >= self.expiry.min(self.stall)
    }

    const fn expiry(&self) -> Time {
        self.expiry
    }

    /// Returns true when it is time to look at deadlines; the next look is planned then.
    fn take_expiry(&mut self, now: Time) -> bool {
        let is_due = now >= self.expiry;
        if is_due {
            self.expiry = now + EXPIRY_INTERVAL_MAX;
        }
        is_due
    }

    /// Returns true when it is time to look at peers that make no progress.
    fn take_stall(&mut self, now: Time) -> bool {
        let is_due = now >= self.stall;
        if is_due {
            self.stall = now + EXPIRY_INTERVAL_MAX;
        }
        is_due
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Makes one turn: everything that can be done without waiting. Returns true when there was something to do.
    pub fn pass(&mut self, now: Time) -> bool {
        self.core.begin_pass(now);
        self.core.counters.stats.passes.total += 1;
        let mut events = 0;
        while events < EVENTS_PER_PASS
            && let Some(event) = self.provider.poll(now)
        {
            self.handle_event(event);
            events += 1;
        }
        let deferred = self.core.has_deferred() && self.retry_deferred() | self.retry_stuck();
        let has_streams = self.streams.are_in_use();
        let octets = has_streams && self.poll_streams(now);
        self.app.on_pass_end(&mut Cx { core: &mut self.core });
        self.empty_outbox();
        self.expire();
        self.replenish();
        let sent = has_streams && self.flush_streams();
        self.empty_outbox();
        // Last, so that whatever the pass produced leaves before the core may sleep.
        self.provider.ring();
        self.core.watch.ring(self.core.now);
        self.core.end_pass();
        events > 0 || deferred || octets || sent
    }

    /// Runs until told to stop. Spins while there is work, then sleeps (DESIGN D10).
    pub fn run(&mut self, control: &Control<Snapshot<A::Report>>, now: impl Fn() -> Time) -> io::Result<()> {
        let sleeper = Sleeper::new(self, control)?;
        let mut busy_at = now();
        loop {
            let time = now();
            let worked = self.pass(time);
            if worked {
                busy_at = time;
            } else {
                std::hint::spin_loop();
            }
            let commands = control.look();
            if commands & Command::Snapshot as u32 != 0 {
                control.send(self.snapshot());
            }
            if commands & Command::Stop as u32 != 0 {
                return self.stop(now);
            }
            if !worked && time.since(busy_at) >= self.core.config.spin && self.provider.arm() {
                self.core.counters.stats.passes.sleeps += 1;
                sleeper.sleep(self.sleep_for(now()))?;
                control.awake();
                busy_at = now();
            }
        }
    }

    /// Takes no more peers and no more calls, lets those in progress finish for a while, sends what was answered, and
    /// disconnects everybody.
    fn stop(&mut self, now: impl Fn() -> Time) -> io::Result<()> {
        self.core.stopping = true;
        self.provider.stop_listening();
        self.streams.stop();
        let until = now() + self.core.config.drain;
        while (!self.core.responder.is_empty() || self.streams.has_output()) && now() < until {
            self.pass(now());
            std::thread::yield_now();
        }
        // Callers over TCP see the end behind their last reply; they close, or a moment passes.
        self.streams.say_end();
        let until = now() + self.core.config.drain.min(FAREWELL);
        while !self.streams.is_empty() && now() < until {
            self.pass(now());
            std::thread::yield_now();
        }
        let peers: Vec<_> = self.core.peers.iter().map(|(peer, _)| peer).collect();
        peers.into_iter().for_each(|peer| self.end_peer(peer));
        let until = now() + self.core.config.drain;
        while !self.core.peers.is_empty() && now() < until {
            self.pass(now());
            std::thread::yield_now();
        }
        Ok(())
    }

    fn sleep_for(&self, now: Time) -> Duration {
        // Calls that wait for memory or for room are tried again soon, whatever frees it.
        let longest = if self.core.has_deferred() { DEFERRED_MAX } else { SLEEP_MAX };
        self.wake_at().map_or(longest, |at| at.since(now).min(longest))
    }

    /// Looks at deadlines and at connections to be made again, when the first of them is due.
    #[inline]
    fn expire(&mut self) {
        if self.core.deadlines.are_due(self.core.now) {
            self.look_at_deadlines();
        }
    }

    fn look_at_deadlines(&mut self) {
        let idle =
            self.core.requester.is_empty() && !self.core.peers.has_lost() && self.core.responder.is_empty();
        if self.core.deadlines.take_stall(self.core.now) {
            self.end_stalled();
            self.forget_absent();
            self.end_unanswered();
            self.core.forget_dead_marks();
        }
        if !idle && self.core.deadlines.take_expiry(self.core.now) {
            self.expire_calls();
            self.end_silent();
            self.retry_connections();
        }
    }

    /// The time to make a pass even if nothing arrives.
    pub fn wake_at(&self) -> Option<Time> {
        let waiting = self.core.peers.has_lost() || !self.core.requester.is_empty();
        let expiry = waiting.then_some(self.core.deadlines.expiry());
        [self.provider.wake_at(), self.streams.wake_at(), expiry].into_iter().flatten().min()
    }
}

/// Everything a shard waits for, in one descriptor.
struct Sleeper {
    epoll: OwnedFd,
}

impl Sleeper {
    fn new<P: Provider, A: App>(
        shard: &Shard<P, A>,
        control: &Control<Snapshot<A::Report>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let fds = [shard.provider.wait_fd(), Some(shard.streams.wait_fd()), Some(control.wake_fd())];
        for fd in fds.into_iter().flatten() {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll })
    }

    fn sleep(&self, longest: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
