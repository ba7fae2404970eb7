//! Retries after a request for more time (RFC 1813 §2.6, NFS3ERR_JUKEBOX; RFC 8881 §15.1.1.3,
//! NFS4ERR_DELAY and NFS4ERR_GRACE).

use crate::NfsClient;
use stag_rpc::{Provider, Time};
use std::{fmt, time::Duration};

/// The first pause, which doubles while only such answers come, and the longest one.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time for which a server may give only such answers: a restarted server makes clients wait for as
/// long as a lease, which is mostly 90 s.
const LONGEST: Duration = Duration::from_secs(180);
/// Time after which a wait is reported.
const QUIET: Duration = Duration::from_secs(1);

/// The time that a server got in a row.
#[derive(Default)]
pub(crate) struct Patience {
    since: Option<Time>,
    pause: Duration,
    /// Called once for each wait.
    tell: Option<Box<dyn FnMut(Duration)>>,
    is_told: bool,
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("since", &self.since).finish_non_exhaustive()
    }
}

impl Patience {
    /// The next pause; none when the server has used up its time.
    fn next_pause(&mut self, now: Time) -> Option<Duration> {
        let Some(since) = self.since else {
            (self.since, self.pause, self.is_told) = (Some(now), PAUSE, false);
            return Some(PAUSE);
        };
        let waited = now.since(since);
        if waited >= QUIET
            && !std::mem::replace(&mut self.is_told, true)
            && let Some(tell) = &mut self.tell
        {
            tell(LONGEST);
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        (waited < LONGEST).then_some(self.pause)
    }
}

impl<P: Provider> NfsClient<P> {
    /// Calls `tell` whenever the server has asked for more time for a second, with the time that it
    /// gets at most.
    pub fn tell_waits(&mut self, tell: impl FnMut(Duration) + 'static) {
        self.patience.tell = Some(Box::new(tell));
    }

    /// The server did what it was asked for.
    pub(crate) const fn end_wait(&mut self) {
        self.patience.since = None;
    }

    /// Gives the server more time. Returns false, at once, when it has used up its time.
    pub(crate) fn waits(&mut self) -> bool {
        let now = self.now();
        let pause = self.patience.next_pause(now);
        pause.map(|pause| self.pause(pause)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, rc::Rc};

    #[test]
    fn pauses_grow_until_the_server_had_enough_and_begin_anew_when_it_did_something() {
        let told = Rc::new(Cell::new(0));
        let tells = Rc::clone(&told);
        let mut patience = Patience {
            tell: Some(Box::new(move |_| tells.set(tells.get() + 1))),
            ..Patience::default()
        };
        let (began, mut now) = (Time(7), Time(7));
        while let Some(pause) = patience.next_pause(now) {
            assert!((PAUSE..=PAUSE_MAX).contains(&pause));
            assert_eq!(told.get(), u32::from(now.since(began) >= QUIET), "once, after a moment");
            now = now + pause;
        }
        let waited = now.since(began);
        assert!(waited >= LONGEST && waited < LONGEST + PAUSE_MAX, "{waited:?}");
        patience.since = None;
        assert_eq!(patience.next_pause(now), Some(PAUSE));
        assert_eq!(patience.next_pause(now), Some(PAUSE * 2));
        assert_eq!(told.get(), 1);
    }
}
