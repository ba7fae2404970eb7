//! Sleep without a fence for each call: a shard that falls asleep has all peers take part in a
//! barrier (DESIGN D5, D10).

use crate::{Shm, link, ring::set_asleep, rx::SAYS_MAX};
use stag_verbs::Time;
use std::time::Duration;

/// Longest sleep next to a process that membarrier(2) does not reach: it may miss that we sleep.
const SLEEP_WITHOUT_BARRIER: Duration = Duration::from_millis(1);
/// The sockets are looked at so long after a sleep that a message ended: the first call is answered
/// by then.
const LOOK_AFTER_SLEEP: Duration = Duration::from_micros(200);

impl Shm {
    /// Returns true if the next poll has nothing to do. From here on, peers end the sleep.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.go_on();
        // What ended the last sleep must not end this one.
        if self.is_unread {
            self.look();
        }
        if !self.shared.events.is_empty() || self.has_news() {
            return false;
        }
        self.say_asleep();
        self.is_settled()
    }

    /// From here on peers end our sleep.
    pub(crate) fn say_asleep(&mut self) {
        self.asleep = true;
        self.plain_until = Time(0);
        self.sleeps += 1;
        for (_, link) in self.links.iter() {
            if let Some(own) = link.own() {
                set_asleep(own, self.sleeps);
            }
        }
        // Stores made before their writer could see that we sleep are seen by us; a later writer
        // sees that we sleep (DESIGN D5).
        let is_seen = link::barrier();
        let are_reached =
            self.hot.iter().all(|key| self.links.get(*key).is_some_and(|link| link.has_barrier));
        self.is_barred = !is_seen || !are_reached;
        if !is_seen {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
    }

    /// Returns true if nothing arrived before peers could see that this side sleeps; otherwise this
    /// side is awake again.
    pub(crate) fn is_settled(&mut self) -> bool {
        self.next_look = self.shared.now;
        self.is_roused = false;
        self.look();
        // A peer that woke us does so once for each sleep, and a link that came up does not say yet
        // that we sleep.
        let is_idle = self.shared.events.is_empty() && !self.is_roused && !self.has_news();
        if !is_idle {
            self.wake_up();
        }
        is_idle
    }

    /// Returns true if a peer sent a record, or read one that this side waits for.
    fn has_news(&self) -> bool {
        self.hot.iter().filter_map(|key| self.links.get(*key)).any(|link| {
            let Some(rings) = &link.rings else { return false };
            let waits = !link.lent.is_empty() || !link.waiting.is_empty() || !link.say.is_empty();
            // A message that has nowhere to go is no news.
            let may_go_on = link.say.len() < SAYS_MAX && self.shared.receives.room() > 0;
            ((!link.is_stalled || may_go_on) && rings.is_fruitful())
                || (waits && rings.has_room_moved())
        })
    }

    /// Ends the sleep, if this side sleeps. A message in a ring comes before the sockets, one of
    /// which ended the sleep: they cost system calls.
    #[inline]
    pub(crate) fn rise(&mut self) {
        if self.asleep {
            self.wake_up();
            if self.has_news() {
                self.is_unread = true;
                self.next_look = self.shared.now + LOOK_AFTER_SLEEP;
            }
        }
    }

    fn wake_up(&mut self) {
        self.asleep = false;
        for (_, link) in self.links.iter() {
            if let Some(own) = link.own() {
                set_asleep(own, 0);
            }
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        let is_short = self.is_barred && !self.hot.is_empty();
        let bound = (self.asleep && is_short).then(|| self.shared.now + SLEEP_WITHOUT_BARRIER);
        // A server whose queue was full sends no notice when it has room.
        let retry = (self.hot.len() < self.links.len())
            .then(|| self.shared.now + self.shared.config.look_interval);
        self.next_deadline.into_iter().chain(bound).chain(retry).min()
    }
}
