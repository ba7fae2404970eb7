//! Connection set-up between processes: listening, connecting, and polls of their sockets.

use crate::{
    Shm, ShmAddress, close,
    config::PRIVATE_DATA_MAX,
    conn::{LinkMessage, ShmConn, ShmShared, ShmState},
    link::{self, LinkDenied, LinkStage, Listener, ShmLink},
    record::NONSENSE,
    ring::LINE,
    rx::{self, HeardRecord},
};
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};
use stag_pools::{Table, table::Key};
use stag_verbs::{Cause, Event, FabricFault, PeerAddress, Qp, Time};
use std::{os::fd::AsFd, time::Duration};

/// Sockets one shard listens at.
pub(crate) const LISTENERS: usize = 16;
/// Listeners are distinguished from links by this half of their epoll id.
const LISTENER_ID: u64 = (u32::MAX as u64) << 32;
/// Processes taken in from one listener at one look.
const ACCEPTS: usize = 16;
/// Interval at which sockets are polled while a process is being admitted: short enough that others
/// do not notice the delay, and long enough that a silent process costs them nothing.
const LOOK_INTERVAL_SETUP: Duration = Duration::from_micros(20);

impl Shm {
    pub(crate) fn listen_at(&mut self, at: &ShmAddress) -> Result<ShmAddress, FabricFault> {
        if self.listeners.len() == LISTENERS {
            return Err(FabricFault::Exhausted);
        }
        let listener = Listener::new(at, &self.shared.config.allow)?;
        let id = LISTENER_ID | self.listeners.len() as u64;
        link::watch(&self.shared.epoll, listener.socket.as_fd(), id)?;
        self.listeners.push(listener);
        self.shared.is_listening = true;
        Ok(at.clone())
    }

    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
        self.shared.is_listening = false;
    }

    pub(crate) fn start_connect(
        &mut self,
        to: &ShmAddress,
        private_data: &[u8],
    ) -> Result<Qp, FabricFault> {
        let limits = &self.shared.config.limits;
        if private_data.len() > limits.private_data_len {
            return Err(FabricFault::Os(Errno::MSGSIZE.raw_os_error()));
        }
        // RFC 5042 §6.4.1 [5042-13]: scarce resources are handed out to a limit
        if self.shared.taken >= limits.connections {
            return Err(FabricFault::Exhausted);
        }
        self.free_places();
        let reached = self.link_to(to);
        if let Err(fault @ (FabricFault::Exhausted | FabricFault::BadAddress)) = reached {
            return Err(fault);
        }
        // A missing listener ends the connection; it does not fail the call to connect.
        let nowhere = Key::from_bits(u64::MAX);
        let key = reached.unwrap_or(nowhere);
        let peer =
            self.links.get(key).map_or(PeerAddress::Process { pid: 0, uid: 0 }, |link| link.peer);
        let send_queue = self.shared.config.limits.send_queue;
        let conn = ShmConn::new(Qp(Key::from_bits(0)), key, peer, ShmState::AwaitReply, send_queue);
        let Ok(number) = self.conns.insert(Box::new(conn)) else {
            return Err(FabricFault::Exhausted);
        };
        let conn = self.conns.get_mut(number).expect("it was just put there");
        let qp = Qp(number);
        (conn.qp, conn.peer, conn.is_known) = (qp, rx::UNKNOWN, true);
        if let Err(fault) = reached {
            conn.die(&mut self.shared);
            self.shared.events.push_back(Event::Disconnected { qp, cause: Cause::Fabric(fault) });
            return Ok(qp);
        }
        let deadline = self.shared.now + self.shared.config.timeout;
        conn.deadline = Some(deadline);
        self.shared.taken += 1;
        let link = self.links.get_mut(key).expect("it was just reached");
        link.conns += 1;
        link.deadline = link.deadline.filter(|_| link.stage != LinkStage::Up);
        link.say.push_back(LinkMessage::Connect {
            from: conn.number(),
            private_data: private_data.into(),
        });
        self.note_deadline(deadline);
        self.flush_link(key);
        Ok(qp)
    }

    /// The link to the server at `to`, made if there is none.
    fn link_to(&mut self, to: &ShmAddress) -> Result<Key, FabricFault> {
        let known = self.links.iter().find(|(_, link)| link.target.as_ref() == Some(to));
        if let Some((key, _)) = known {
            return Ok(key);
        }
        let link = ShmLink::connect(to, &self.shared)?;
        self.adopt(link).ok_or(FabricFault::Exhausted)
    }

    fn adopt(&mut self, link: ShmLink) -> Option<Key> {
        let deadline = link.deadline;
        let key = self.links.insert(Box::new(link)).ok()?;
        self.links.get_mut(key)?.place = key.index();
        if self.watch_link(key).is_err() {
            self.links.remove(key);
            return None;
        }
        if let Some(at) = deadline {
            self.note_deadline(at);
        }
        self.next_look = self.shared.now;
        self.plain_until = Time(0);
        Some(key)
    }

    /// Watches the socket of a link, if it is connected: one that is not seems to hang up all the
    /// time.
    fn watch_link(&self, key: Key) -> Result<(), FabricFault> {
        match self.links.get(key).filter(|link| link.stage != LinkStage::AwaitServer) {
            Some(link) => link::watch(&self.shared.epoll, link.socket.as_fd(), key.to_bits()),
            None => Ok(()),
        }
    }

    /// Looks at deadlines and, if it is time, at sockets.
    pub(crate) fn look_if_due(&mut self, now: Time) {
        let is_setting_up = self.hot.len() < self.links.len();
        if self.next_deadline.is_some_and(|deadline| deadline <= now) {
            self.expire(now);
        }
        if now >= self.next_look {
            let interval = self.shared.config.look_interval;
            self.next_look =
                now + if is_setting_up { interval.min(LOOK_INTERVAL_SETUP) } else { interval };
            self.look();
        }
    }

    /// Looks at the sockets without waiting.
    pub(crate) fn look(&mut self) {
        self.shared.stats.looks += 1;
        self.is_unread = false;
        self.ready.0.clear();
        let looked = epoll::wait(
            &self.shared.epoll,
            rustix::buffer::spare_capacity(&mut self.ready.0),
            Some(&Timespec::default()),
        );
        debug_assert!(matches!(looked, Ok(_) | Err(Errno::INTR)), "our own descriptor: {looked:?}");
        for place in 0..self.ready.0.len() {
            let Some(event) = self.ready.0.get(place) else { break };
            // The event is packed: its field is copied out.
            let data = event.data;
            let id = data.u64();
            if id & LISTENER_ID == LISTENER_ID {
                self.accept_all((id & u64::from(u32::MAX)) as usize);
            } else {
                self.hear(Key::from_bits(id));
            }
        }
        self.try_servers();
    }

    fn hear(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.stage == LinkStage::AwaitServer {
            return;
        }
        let was_up = link.stage == LinkStage::Up;
        match link.readable(&mut self.shared) {
            Ok(()) if !was_up && link.stage == LinkStage::Up => {
                self.hot.push(key);
                self.is_roused = true;
                self.flush_link(key);
            }
            Ok(()) => self.is_roused |= was_up,
            Err(cause) => {
                // It was turned away before it identified itself.
                self.shared.stats.turned_away += u64::from(!was_up && link.target.is_none());
                self.drain(key);
                self.end_link(key, cause);
            }
        }
    }

    /// Handles the records that a process sent before it left. At most one record for each line of
    /// the ring is handled, so that a process cannot keep this loop busy for ever.
    fn drain(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        let lines = link.rings.as_ref().map_or(0, |rings| rings.theirs().len() / LINE);
        for _ in 0..lines {
            match rx::receive(key, link, &mut self.conns, &mut self.shared) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Tries again where a server's queue was full.
    fn try_servers(&mut self) {
        if self.hot.len() == self.links.len() {
            return;
        }
        for place in 0..self.links.capacity() {
            let Some(key) = self.links.key_at(place) else { continue };
            let Some(link) =
                self.links.get_mut(key).filter(|link| link.stage == LinkStage::AwaitServer)
            else {
                continue;
            };
            if let Err(fault) = link.try_server(&self.shared).and_then(|()| self.watch_link(key)) {
                self.end_link(key, Cause::Fabric(fault));
            }
        }
    }

    /// Returns true if the user of this process may have one more link.
    fn has_share(&self, peer: PeerAddress) -> bool {
        let is_of_user = |link: &ShmLink| link.target.is_none() && link.peer.is_of_host(&peer);
        let of_user = self.links.iter().filter(|(_, link)| is_of_user(link)).count();
        of_user < self.shared.config.links_of_user()
    }

    fn accept_all(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            let Ok(socket) = listener.accept() else { return };
            match ShmLink::accepted(socket, &self.shared) {
                Ok(link) => {
                    if !self.has_share(link.peer) || self.adopt(link).is_none() {
                        self.shared.stats.turned_away += 1;
                    }
                }
                Err(LinkDenied::User) => self.shared.stats.denied += 1,
                Err(LinkDenied::Gone) => self.shared.stats.turned_away += 1,
            }
        }
    }
}

/// The peer wants a connection.
pub(crate) fn take_in(
    key: Key,
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
    heard: &HeardRecord,
) -> Result<(), Cause> {
    let record = &heard.record;
    let private_data = copy_private_data(link, heard)?;
    let refusal = LinkMessage::Reject {
        to: record.key,
        is_shut: !shared.is_listening,
        private_data: Box::default(),
    };
    if !shared.is_listening || shared.taken >= shared.config.limits.connections {
        link.say.push_back(refusal);
        return Ok(());
    }
    let conn = ShmConn::new(
        Qp(Key::from_bits(0)),
        key,
        link.peer,
        ShmState::AwaitAnswer,
        shared.config.limits.send_queue,
    );
    let Ok(number) = conns.insert(Box::new(conn)) else {
        link.say.push_back(refusal);
        return Ok(());
    };
    let conn = conns.get_mut(number).expect("it was just put there");
    conn.qp = Qp(number);
    conn.peer = record.key;
    conn.is_known = true;
    conn.private_data = private_data;
    link.conns += 1;
    shared.taken += 1;
    shared.events.push_back(Event::ConnectRequest { qp: conn.qp });
    Ok(())
}

/// The peer cancelled its connect. If it was accepted meanwhile, the peer closes it when it
/// receives the answer.
pub(crate) fn given_up(
    key: Key,
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
    peer: u32,
) {
    let is_meant = |conn: &ShmConn| {
        conn.link == key && conn.peer == peer && conn.state == ShmState::AwaitAnswer
    };
    let number = conns.iter().find(|(_, conn)| is_meant(conn)).map(|(number, _)| number);
    let Some(conn) = number.and_then(|number| conns.get_mut(number)) else { return };
    close::end(conn, link, shared, Cause::Peer, None);
    conn.die(shared);
    link.say.push_back(LinkMessage::Reject {
        to: peer,
        is_shut: false,
        private_data: Box::default(),
    });
}

pub(crate) fn copy_private_data(link: &ShmLink, heard: &HeardRecord) -> Result<Box<[u8]>, Cause> {
    let len = usize::try_from(heard.record.len).ok().filter(|len| *len <= PRIVATE_DATA_MAX);
    let mut octets = vec![0; len.ok_or(NONSENSE)?].into_boxed_slice();
    link.rings.as_ref().ok_or(NONSENSE)?.copy_out(heard.body, &mut octets);
    Ok(octets)
}
