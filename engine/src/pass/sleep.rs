//! The sleep of a shard that has no work (DESIGN D10).

use crate::{app::App, control::Control, shard::Shard, waiting::Rest};
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
};
use stag_verbs::{Provider, Time};
use std::{io, time::Duration};

/// Longest sleep while something waits for memory or for room in a queue.
const DEFERRED_MAX: Duration = Duration::from_millis(1);
/// Longest sleep: limits the damage of a missed wake-up.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Longest sleep on a fabric that announces no event.
const UNANNOUNCED_MAX: Duration = Duration::from_micros(50);

impl<P: Provider, A: App> Shard<P, A> {
    /// Sleeps until there is work or `control` wakes the shard, at most until a deadline of the
    /// shard or for `longest`. For the owner of a shard who makes its passes, and after one without
    /// work. Returns early if there is work already. Of `control` only the
    /// [waker](Control::waker) is of use: commands are not obeyed.
    ///
    /// # Errors
    /// As `epoll_wait(2)` fails.
    pub fn sleep<R>(
        &mut self,
        sleeper: &Sleeper,
        control: Option<&Control<R>>,
        now: Time,
        longest: Duration,
    ) -> io::Result<()> {
        if control.is_some_and(|control| control.look() != 0) || !self.arm() {
            return Ok(());
        }
        self.core.counters.stats.passes.sleeps += 1;
        let woken = sleeper.sleep(self.sleep_for(now).min(longest))?;
        if woken == Woken::ByControl {
            control.iter().for_each(|control| control.awake());
        }
        Ok(())
    }

    /// Sleeps until there is work, or until a deadline. A long sleep is reported as rest.
    pub(super) fn rest_on(
        &mut self,
        sleeper: &Sleeper,
        rest: &mut Rest,
        now: &impl Fn() -> Time,
    ) -> io::Result<Woken> {
        self.core.counters.stats.passes.sleeps += 1;
        let longest = self.sleep_for(now());
        let first = rest.first_sleep().map_or(longest, |first| first.min(longest));
        let mut woken = sleeper.sleep(first)?;
        if woken == Woken::ByTime && first < longest {
            rest.rest();
            woken = sleeper.sleep(longest.saturating_sub(first))?;
        }
        if woken != Woken::ByTime {
            rest.work();
        }
        Ok(woken)
    }

    /// Makes the fabric and the TCP connections wake the shard from here on. Returns false if there
    /// is work already.
    pub(super) fn arm(&mut self) -> bool {
        self.streams.prepare_sleep();
        self.provider.arm()
    }

    fn sleep_for(&self, now: Time) -> Duration {
        // Calls that wait for memory or for room are retried soon, since no event announces it.
        let longest = if self.core.has_deferred() { DEFERRED_MAX } else { SLEEP_MAX };
        let longest = if self.provider.wait_fd().is_none() { UNANNOUNCED_MAX } else { longest };
        self.wake_at().map_or(longest, |at| at.since(now).min(longest))
    }
}

/// Cause of the end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Nothing arrived.
    ByTime,
    /// Work arrived.
    ByWork,
    /// The control channel, whose wake-up has to be reset.
    ByControl,
}

/// All event sources of one shard, in one descriptor.
#[derive(Debug)]
pub struct Sleeper {
    epoll: OwnedFd,
}

impl Sleeper {
    /// The sources of events: work, and the control channel.
    const WORK: u64 = 0;
    const CONTROL: u64 = 1;

    /// The event sources of `shard`, and its control channel if it has one.
    ///
    /// # Errors
    /// As `epoll_create(2)` and `epoll_ctl(2)` fail.
    pub fn new<P: Provider, A: App, R>(
        shard: &Shard<P, A>,
        control: Option<&Control<R>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let fds = [
            (shard.provider.wait_fd(), Self::WORK),
            (Some(shard.streams.wait_fd()), Self::WORK),
            (control.map(Control::wake_fd), Self::CONTROL),
        ];
        for (fd, source) in fds {
            if let Some(fd) = fd {
                epoll::add(&epoll, fd, epoll::EventData::new_u64(source), epoll::EventFlags::IN)?;
            }
        }
        Ok(Self { epoll })
    }

    /// Sleeps for at most `longest`.
    fn sleep(&self, longest: Duration) -> io::Result<Woken> {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let nothing = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(Self::WORK),
        };
        // One entry for each descriptor, so that none hides another one.
        let mut events = [nothing; 3];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(0) => Ok(Woken::ByTime),
            Ok(count) => {
                let is_control = |event: &epoll::Event| event.data.u64() == Self::CONTROL;
                let by_control = events.iter().take(count).any(is_control);
                Ok(if by_control { Woken::ByControl } else { Woken::ByWork })
            }
            Err(rustix::io::Errno::INTR) => Ok(Woken::ByWork),
            Err(error) => Err(error.into()),
        }
    }
}
