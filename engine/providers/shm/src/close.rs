//! The end of connections, and of links with all their connections.
//!
//! Every end passes through [`end`]: work completes, windows come back, and the engine gets the
//! cause last. The connection's place is used again when both sides have sent their last record
//! about it.

use crate::{
    Shm,
    conn::{LinkMessage, ShmConn, ShmShared, ShmState},
    link::{LinkStage, ShmLink},
    record::CloseReason,
};
use stag_pools::{Table, table::Key};
use stag_verbs::{Cause, Event, FabricFault, Qp, Status, Terminate};

/// Ends the connection because the peer broke a rule, and sends it that rule.
pub(crate) fn violate(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    terminate: Terminate,
    read: Option<u64>,
) {
    end(conn, link, shared, Cause::PeerFault(terminate), None);
    say_close(conn, link, CloseReason::told(terminate, read));
}

/// We end it, or the peer did: both sides send a close.
pub(crate) fn say_close(conn: &mut ShmConn, link: &mut ShmLink, why: CloseReason) {
    conn.state =
        if conn.state == ShmState::AwaitRoom { ShmState::AwaitRoom } else { ShmState::AwaitClose };
    link.say.push_back(LinkMessage::Close { to: conn.peer, from: conn.qp.0, why });
}

/// Gives everything back and reports the end, once. `read` is the request that the peer blames.
pub(crate) fn end(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    cause: Cause,
    read: Option<u64>,
) {
    if !conn.is_live() {
        return;
    }
    conn.state = ShmState::AwaitClose;
    conn.note(&mut shared.lanes);
    conn.deadline = None;
    conn.answers.clear();
    retract(conn.qp.0, link);
    flush_queue(conn, shared, cause, read);
    let qp = conn.qp;
    let events = &mut shared.events;
    shared.receives.forget(qp, |fenced| events.push_back(Event::Unbound { qp, fenced }));
    shared.windows.close(qp.scope(), |fenced| events.push_back(Event::Unbound { qp, fenced }));
    shared.taken -= 1;
    if conn.is_known {
        shared.stats.count_end(cause);
        shared.events.push_back(Event::Disconnected { qp, cause });
    } else {
        conn.is_over = true;
    }
}

/// Retracts the records in the ring that name windows of this connection, because their memory is
/// about to be reused. Memory of Writes is kept as long as the ring names it.
fn retract(conn: Key, link: &mut ShmLink) {
    let (lent, rings) = (&mut link.lent, &link.rings);
    lent.retain_mut(|lent| {
        if lent.conn != conn {
            return true;
        }
        lent.write = None;
        if lent.source.is_none()
            && let Some(rings) = rings
        {
            rings.retract(lent.begin);
        }
        lent.source.is_some()
    });
}

/// Completes pending work, in order. The Read that the peer refused, or the oldest work when the
/// fabric failed, carries the error.
fn flush_queue(conn: &mut ShmConn, shared: &mut ShmShared, cause: Cause, read: Option<u64>) {
    let blamed =
        |request| conn.asked.iter().find(|asked| asked.request == request).map(|asked| asked.seq);
    let marked = match cause {
        Cause::Fabric(_) => conn.queue.oldest_pending().map(|seq| (seq, Status::Lost)),
        Cause::Terminated(terminate) => read.and_then(blamed).map(|seq| (seq, status(terminate))),
        _ => None,
    };
    let qp: Qp = conn.qp;
    for fenced in conn.queue.flush(qp, marked, |event| shared.events.push_back(event)) {
        shared.events.push_back(Event::Unbound { qp, fenced });
    }
    conn.asked.clear();
    conn.queue.give_back(&mut shared.spare_works);
}

const fn status(terminate: Terminate) -> Status {
    match terminate {
        Terminate { layer: stag_verbs::Layer::Rdmap, etype: 1, .. } => Status::RemoteAccess,
        _ => Status::RemoteOperation,
    }
}

/// The process is gone, or its records cannot be understood: all its connections end.
pub(crate) fn end_all(
    key: Key,
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
    cause: Cause,
) {
    if cause == Cause::Fabric(FabricFault::Corrupt) {
        shared.stats.corrupt += 1;
    }
    for place in 0..conns.capacity() {
        let Some(conn) = conns.key_at(place).and_then(|key| conns.get_mut(key)) else { continue };
        if conn.link == key {
            end(conn, link, shared, cause, None);
            conn.die(shared);
        }
    }
}

impl Shm {
    /// The link is gone, and all its connections.
    pub(crate) fn end_link(&mut self, key: Key, cause: Cause) {
        let Some(mut link) = self.links.remove(key) else { return };
        self.hot.retain(|other| *other != key);
        // Who could not be reached at all was refused.
        let cause = match cause {
            Cause::Fabric(FabricFault::Lost)
                if link.stage != LinkStage::Up && link.target.is_some() =>
            {
                Cause::Fabric(FabricFault::Refused)
            }
            cause => cause,
        };
        end_all(key, &mut link, &mut self.conns, &mut self.shared, cause);
        self.sweep_dead();
    }

    /// Forgets connections whose places can be used again. One whose last event the engine has not
    /// had is forgotten then.
    pub(crate) fn sweep_dead(&mut self) {
        if std::mem::take(&mut self.shared.dead) == 0 {
            return;
        }
        let ended = self.ended;
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            let is_done = self
                .conns
                .get(key)
                .is_some_and(|conn| conn.state == ShmState::Dead && conn.is_over);
            if is_done && ended != Some(key) {
                self.forget(key);
            }
        }
    }

    /// Connections that ended keep their places until their processes confirm it. When no other
    /// places are left, the process with most of them unconfirmed loses its link, so that a process
    /// which never confirms locks no other out.
    pub(crate) fn free_places(&mut self) {
        let is_full = self.conns.len() == self.conns.capacity();
        if !is_full || self.shared.taken >= self.shared.config.limits.connections {
            return;
        }
        let is_owed =
            |conn: &ShmConn| matches!(conn.state, ShmState::AwaitClose | ShmState::AwaitRoom);
        let owed = |link: Key| {
            self.conns.iter().filter(|(_, conn)| conn.link == link && is_owed(conn)).count()
        };
        let most = self.hot.iter().map(|key| (owed(*key), *key)).max();
        if let Some((1.., key)) = most {
            self.shared.stats.evicted += 1;
            self.end_link(key, Cause::Fabric(FabricFault::Lost));
        }
    }

    pub(crate) fn forget(&mut self, key: Key) {
        let Some(conn) = self.conns.remove(key) else { return };
        let Some(link) = self.links.get_mut(conn.link) else { return };
        link.conns -= 1;
        if link.conns == 0 && link.target.is_some() {
            let deadline = self.shared.now + self.shared.config.linger;
            link.deadline = Some(deadline);
            self.note_deadline(deadline);
        }
    }

    /// Ends a connection of ours, whatever it waits for.
    pub(crate) fn give_up(&mut self, key: Key, cause: Cause) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.is_live()) else { return };
        let link_key = conn.link;
        let Some(link) = self.links.get_mut(link_key) else { return };
        let was = conn.state;
        end(conn, link, &mut self.shared, cause, None);
        match was {
            ShmState::Established => say_close(conn, link, crate::record::CloseReason::GONE),
            ShmState::AwaitAnswer => {
                link.say.push_back(LinkMessage::Reject {
                    to: conn.peer,
                    is_shut: false,
                    private_data: Box::default(),
                });
                conn.die(&mut self.shared);
            }
            _ => {
                let number = conn.number();
                let before = link.say.len();
                link.say.retain(
                    |say| !matches!(say, LinkMessage::Connect { from, .. } if *from == number),
                );
                if link.say.len() < before {
                    conn.die(&mut self.shared); // the peer never hears of it
                } else {
                    link.say.push_back(LinkMessage::GiveUp { from: number });
                }
            }
        }
        self.flush_link(link_key);
    }
}
