//! Patience with a server that asks for more time (RFC 1813 §2.6, NFS3ERR_JUKEBOX; RFC 8881
//! §15.1.1.3, NFS4ERR_DELAY and NFS4ERR_GRACE).

use std::{
    thread,
    time::{Duration, Instant},
};

/// The first pause, which doubles while nothing but such answers comes, and the longest one.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time for which a server may give nothing else: a server that has started again makes clients
/// wait for as long as a lease, which is mostly 90 s.
const LONGEST: Duration = Duration::from_secs(180);

/// The time that a server got in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    since: Option<Instant>,
    pause: Duration,
}

impl Patience {
    /// The server did what it was asked for.
    pub(super) const fn end(&mut self) {
        self.since = None;
    }

    /// Gives the server more time. False, at once, when it had enough of it.
    pub(super) fn wait(&mut self) -> bool {
        let pause = self.next_pause(Instant::now());
        pause.map(thread::sleep).is_some()
    }

    fn next_pause(&mut self, now: Instant) -> Option<Duration> {
        let Some(since) = self.since else {
            (self.since, self.pause) = (Some(now), PAUSE);
            return Some(PAUSE);
        };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        (now.saturating_duration_since(since) < LONGEST).then_some(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_server_had_enough_and_begin_anew_when_it_did_something() {
        let (mut patience, began) = (Patience::default(), Instant::now());
        let mut now = began;
        while let Some(pause) = patience.next_pause(now) {
            assert!((PAUSE..=PAUSE_MAX).contains(&pause));
            now += pause;
        }
        let waited = now - began;
        assert!(waited >= LONGEST && waited < LONGEST + PAUSE_MAX, "{waited:?}");
        patience.end();
        assert_eq!(patience.next_pause(now), Some(PAUSE));
        assert_eq!(patience.next_pause(now), Some(PAUSE * 2));
    }
}
