//! Listening: listening sockets, accepted peers, and half-open connections without a complete MPA
//! Request.

use crate::{
    Iwarp, IwarpAddress,
    conn::{IwarpShared, IwarpState, host as host_of},
    rnic::LISTENERS,
    sock::{self, Ready, fault},
};
use rustix::io::Errno;
use stag_pools::table::Key;
use stag_verbs::{FabricFault, Time};
use std::os::fd::OwnedFd;

/// Peers accepted from one listener before others have their turn.
const ACCEPTS: usize = 16;
/// Upper half of a listener's epoll ID, which distinguishes it from connections: a connection's key
/// with so small an index would need 2^32 uses of one entry.
pub(crate) const LISTENER_ID: u64 = (u32::MAX as u64) << 32;

impl Iwarp {
    pub(crate) fn listen_at(&mut self, at: IwarpAddress) -> Result<IwarpAddress, FabricFault> {
        if self.listeners.len() == LISTENERS {
            return Err(FabricFault::Exhausted);
        }
        let IwarpShared { epoll, config, stats, .. } = &mut self.shared;
        let listened = sock::listen(at.0, config).and_then(|(listener, in_use)| {
            epoll.add(&listener, LISTENER_ID | self.listeners.len() as u64, Ready::IN, stats)?;
            Ok((listener, in_use))
        });
        let (listener, in_use) = listened.map_err(|error| fault(&error))?;
        self.listeners.push(listener);
        Ok(IwarpAddress(in_use))
    }

    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
        self.accept_at = None;
    }

    pub(crate) fn accept_peers(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            match sock::accept(listener) {
                Ok((socket, Some(peer))) => self.take_in(socket, IwarpAddress(peer)),
                Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.pause_accepting();
                }
                Err(_) => return,
            }
        }
    }

    fn take_in(&mut self, socket: OwnedFd, peer: IwarpAddress) {
        self.shared.stats.accepted += 1;
        if sock::tune(&socket, peer.0, &self.shared.config).is_err() {
            self.shared.stats.handshakes.lost += 1;
            return;
        }
        self.shed_half_open(peer);
        let IwarpShared { config, now, .. } = &self.shared;
        // RFC 5042 §6.4.1 [5042-13]: scarce resources are handed out to a limit
        let (may_enter, deadline) =
            (self.half_open.len() < config.half_open, *now + config.request_timeout);
        let adopted =
            if may_enter { self.adopt(socket, peer, IwarpState::AwaitRequest) } else { None };
        let Some(conn) = adopted else {
            self.shared.stats.handshakes.displaced += 1;
            return; // closing the socket is the answer
        };
        conn.deadline = Some(deadline);
        let key = conn.qp.0;
        self.half_open.push_back(key);
        self.settle(key);
    }

    /// Makes room for a newcomer from `peer` among the half-open connections. A well-behaved peer
    /// sends its Request at once, so the oldest ones are silent. A host with more than its share
    /// loses its own, and cannot push others out.
    fn shed_half_open(&mut self, peer: IwarpAddress) {
        if self.half_open.len() < self.shared.config.half_open {
            return;
        }
        let share = self.shared.config.half_open / 4;
        let host = |key: &Key| self.conns.get(*key).map(|conn| host_of(conn.peer));
        let held = |of: u64| self.half_open.iter().filter(|key| host(key) == Some(of)).count();
        let newcomer = host_of(peer.0);
        let greedy = self.half_open.iter().find(|key| {
            host(key).is_some_and(|host| held(host) + usize::from(host == newcomer) > share)
        });
        if let Some(key) = greedy.or(self.half_open.front()).copied() {
            self.shared.stats.handshakes.displaced += 1;
            self.with(key, |conn, _| conn.state = IwarpState::Dead);
        }
    }

    /// Pauses after descriptors ran out: peers wait in the kernel, and the listeners must not be
    /// ready all the time.
    fn pause_accepting(&mut self) {
        self.shared.stats.accept_paused += 1;
        self.accept_at = Some(self.shared.now + self.shared.config.accept_pause);
        self.watch_listeners(Ready::empty());
        // Looks do not end the pause.
        self.quiet_until = Time(0);
    }

    pub(crate) fn watch_listeners(&mut self, interest: Ready) {
        let IwarpShared { epoll, stats, .. } = &mut self.shared;
        for (index, listener) in self.listeners.iter().enumerate() {
            epoll.modify(listener, LISTENER_ID | index as u64, interest, stats);
        }
    }
}
