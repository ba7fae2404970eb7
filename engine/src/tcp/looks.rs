//! Polling of the sockets: its interval, and the choice between epoll and a single socket.
//!
//! If only one connection is busy, its socket is read directly. Using epoll would take one more
//! system call for each record, and a callback in the sender's time if the sender is on this host.
//! So epoll does not watch such a connection for input until another one has some, it falls silent,
//! or the shard is about to sleep.

use super::table::{Role, Streams};
use rustix::event::{Timespec, epoll};
use stag_pools::table::Key;
use stag_verbs::Time;
use std::time::Duration;

/// Consecutive looks that find octets on the same connection only, after which it is hot.
const STREAK: u32 = 16;
/// Times that it is read directly between two looks at all connections.
const ASKS: u32 = 4;
/// The time after octets moved during which sockets are checked in every pass, and for which a hot
/// connection may be silent.
const LINGER: Duration = Duration::from_micros(200);
/// The interval between checks of quiet sockets while no reply is awaited (DESIGN D16).
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// The interval between checks of sockets with recent but no current activity while the fabric is
/// busy: its callers pay for each check.
const LOOK_INTERVAL_BUSY: Duration = Duration::from_micros(5);

/// The next look, and the connection that is hot or about to be.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The time of the next look.
    pub(crate) at: Time,
    /// The sockets count as quiet from then on.
    pub(crate) quiet_at: Time,
    /// The only connection with octets at the latest look; `streak` counts the consecutive times.
    latest: Option<Key>,
    streak: u32,
    /// Direct reads left before the next look at all connections.
    asks: u32,
}

/// The inputs from the rest of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    /// The fabric had events in this pass.
    pub(crate) is_fabric_busy: bool,
    /// A reply is awaited.
    pub(crate) is_waiting: bool,
}

impl Looks {
    /// Notes that octets moved, or are about to: the next pass looks.
    pub(crate) fn note_moved(&mut self, now: Time) {
        (self.at, self.quiet_at) = (now, now + LINGER);
    }

    /// Schedules the look that follows one without octets.
    pub(crate) fn plan(&mut self, now: Time, around: Surroundings) {
        self.at = if around.is_waiting {
            now
        } else if now >= self.quiet_at {
            now + LOOK_INTERVAL
        } else if around.is_fabric_busy {
            now + LOOK_INTERVAL_BUSY
        } else {
            now
        };
        debug_assert!(self.at >= now, "the next look is not in the past");
    }
}

impl Streams {
    /// Notes that epoll reported input on `key`.
    pub(crate) fn note_ready(&mut self, key: Key) {
        if self.looks.latest == Some(key) {
            self.looks.streak = self.looks.streak.saturating_add(1);
        } else {
            self.cool();
            self.looks.latest = Some(key);
        }
        if self.looks.streak == STREAK {
            self.heat(key, true);
        }
    }

    /// Stops or restarts epoll's watch for input on a connection.
    fn heat(&mut self, key: Key, is_hot: bool) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.is_hot = is_hot && stream.role != Role::Connecting;
            self.watch(key);
        }
    }

    /// Re-arms epoll for the hot connection.
    pub(crate) fn cool(&mut self) {
        let latest = self.looks.latest.take();
        (self.looks.streak, self.looks.asks) = (0, 0);
        if let Some(key) = latest {
            self.heat(key, false);
        }
    }

    /// Prepares for sleep: epoll watches every connection, and the first pass afterwards looks.
    pub(crate) fn prepare_sleep(&mut self) {
        self.cool();
        self.looks.at = Time(0);
    }

    /// Returns the connection that is hot, unless it is time to look at all connections.
    pub(crate) fn next_asked(&mut self) -> Option<Key> {
        let key = self.looks.latest?;
        self.connections.get(key).filter(|stream| stream.is_hot && stream.is_read())?;
        if self.looks.asks == 0 {
            self.looks.asks = ASKS;
            return None;
        }
        self.looks.asks -= 1;
        Some(key)
    }

    /// Fills `ready` with the connections that have events. Returns false if there are none.
    pub(crate) fn look_at_all(&mut self) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.ready.clear();
        self.stats.looks += 1;
        let room = rustix::buffer::spare_capacity(&mut self.ready);
        epoll::wait(&self.epoll, room, Some(&zero)).is_ok() && !self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::{io::Write, net::TcpStream};

    const fn at(micros: u64) -> Time {
        Time(micros * 1_000)
    }

    #[test]
    fn sockets_are_looked_at_in_every_pass_until_they_are_quiet() {
        let around = |is_fabric_busy, is_waiting| Surroundings { is_fabric_busy, is_waiting };
        let mut looks = Looks::default();
        looks.note_moved(at(1_000));
        for (now, is_fabric_busy, is_waiting, next) in [
            (1_010, false, false, 1_010),
            (1_010, true, false, 1_015),
            (1_199, false, false, 1_199),
            (1_200, false, false, 1_250),
            (1_200, true, false, 1_250),
            (9_000, false, true, 9_000),
            (9_000, true, true, 9_000),
        ] {
            looks.plan(at(now), around(is_fabric_busy, is_waiting));
            assert_eq!(looks.at, at(next), "{now} {is_fabric_busy} {is_waiting}");
        }
        looks.note_moved(at(9_001));
        assert_eq!(looks.at, at(9_001));
    }

    /// Streams with one connection, and its other end.
    fn connected() -> (Streams, Key, TcpStream) {
        let config = Config { streams: 4, slots: [64, 0, 0], ..Config::small() };
        let mut streams = Streams::new(&config).unwrap();
        let to = streams.listen("127.0.0.1:0".parse().unwrap(), false, None).unwrap();
        let other = TcpStream::connect(to).unwrap();
        let (socket, _) = loop {
            if let Some(accepted) = streams.accept(Time(0)) {
                break accepted;
            }
        };
        let key = streams.add(socket, 4_096, Role::Responder).unwrap().unwrap();
        (streams, key, other)
    }

    /// Returns true if the streams' descriptor becomes readable within `limit`.
    fn wakes(streams: &Streams, limit: Timespec) -> bool {
        let fd = streams.wait_fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
    }

    #[test]
    fn a_hot_connection_wakes_a_shard_that_sleeps() {
        let (mut streams, key, mut other) = connected();
        (0..=STREAK).for_each(|_| streams.note_ready(key));
        assert!(streams.connections.get(key).unwrap().is_hot);
        other.write_all(&[0; 4]).unwrap();
        // Octets that epoll does not watch for, and that were not read yet.
        assert!(!wakes(&streams, Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
        streams.prepare_sleep();
        assert!(!streams.connections.get(key).unwrap().is_hot);
        assert!(wakes(&streams, Timespec { tv_sec: 60, tv_nsec: 0 }));
        assert_eq!(streams.stats.watches, 2, "once when it got hot, once when it left");
    }

    #[test]
    fn a_streak_is_of_one_connection() {
        let (mut streams, key, _other) = connected();
        let someone = Key::from_bits(7);
        for _ in 0..STREAK {
            streams.note_ready(key);
        }
        streams.note_ready(someone);
        (0..STREAK).for_each(|_| streams.note_ready(key));
        assert!(!streams.connections.get(key).unwrap().is_hot);
        streams.note_ready(key);
        assert!(streams.connections.get(key).unwrap().is_hot);
        let asked: Vec<_> = (0..10).map(|_| streams.next_asked().is_some()).collect();
        assert_eq!(asked, [false, true, true, true, true, false, true, true, true, true]);
        streams.note_ready(someone);
        assert!(!streams.connections.get(key).unwrap().is_hot);
        assert_eq!(streams.next_asked(), None);
    }
}
