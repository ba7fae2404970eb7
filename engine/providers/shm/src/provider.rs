//! The contract's calls: each request to a connection is checked here, moved to its queue, and
//! carried out at the next ring.

use crate::{
    Shm, ShmAddress, close,
    conn::{LinkMessage, ShmConn, ShmShared, ShmState},
    lane, tx,
};
use rustix::fd::AsFd;
use stag_pools::{Access, Buf, Extent, Pool, RemoteKey, Window, table::Key};
use stag_verbs::{
    Cause, Count, Event, FabricFault, Limits, Looked, PeerAddress, Provider, Qp, Refusal, Refused,
    RemoteSpan, Tag, Time,
    soft::{self, Op, Postable, Posting},
};
use std::{io, ops::Range, os::fd::BorrowedFd};

impl Shm {
    /// The connection that `qp` names for the engine.
    fn named(&self, qp: Qp) -> Option<&ShmConn> {
        self.conns.get(qp.0).map(|conn| &**conn).filter(|conn| !conn.is_over)
    }
}

/// An established connection for one work request, and the state that it shares with others.
pub struct ShmPosted<'a> {
    conn: &'a mut ShmConn,
    shared: &'a mut ShmShared,
    posted: &'a mut Vec<Key>,
    is_loud: &'a mut bool,
}

impl Postable for ShmPosted<'_> {
    fn room(&self) -> usize {
        // RFC 5042 §6.4.3.2 [5042-15]: entries of completion queues are handed out to a limit
        self.conn.queue.room()
    }

    fn begin_invalidation(&mut self, key: RemoteKey) -> bool {
        let is_bound = soft::is_bound(&mut self.shared.windows, self.conn.qp, key);
        is_bound && !self.conn.queue.is_invalidating(key)
    }

    #[inline]
    fn enqueue(self, tag: Tag, op: Op, from: &[RemoteSpan]) {
        self.conn.queue.borrow(&mut self.shared.spare_works);
        self.conn.queue.post(tag, op, from);
        self.shared.lanes.hold(self.conn.qp);
        *self.is_loud = true;
        if !std::mem::replace(&mut self.conn.is_posted, true) {
            self.posted.push(self.conn.qp.0);
        }
    }
}

impl Posting for Shm {
    type Postable<'a> = ShmPosted<'a>;

    #[inline]
    fn established(&mut self, qp: Qp) -> Result<ShmPosted<'_>, Refusal> {
        let conn = self.conns.get_mut(qp.0).filter(|conn| conn.is_live()).ok_or(Refusal::Gone)?;
        match conn.state {
            ShmState::Established => {
                let Self { shared, posted, is_loud, .. } = self;
                Ok(ShmPosted { conn, shared, posted, is_loud })
            }
            _ => Err(Refusal::NotEstablished),
        }
    }
}

impl Provider for Shm {
    type Address = ShmAddress;

    const SCHEME: &'static str = "shm";

    fn counts(&self) -> Count {
        self.stats().counts()
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    fn wants_shared_pools(&self) -> bool {
        self.shared.config.trust
    }

    fn register(&mut self, pool: &Pool) -> io::Result<()> {
        self.add_pool(pool)
    }

    fn listen(&mut self, at: &ShmAddress) -> Result<ShmAddress, FabricFault> {
        self.listen_at(at)
    }

    fn stop_listening(&mut self) {
        self.stop();
    }

    fn connect(&mut self, to: &ShmAddress, private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.start_connect(to, private_data)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        let limit = self.shared.config.limits.private_data_len;
        let conn = self.conns.get_mut(qp.0).filter(|conn| conn.is_live()).ok_or(Refusal::Gone)?;
        if conn.state != ShmState::AwaitAnswer || private_data.len() > limit {
            return Err(Refusal::Malformed);
        }
        let (link_key, to, from) = (conn.link, conn.peer, conn.number());
        let link = self.links.get_mut(link_key).ok_or(Refusal::Gone)?;
        conn.establish(&mut self.shared.lanes);
        link.say.push_back(LinkMessage::Accept { to, from, private_data: private_data.into() });
        self.shared.events.push_back(Event::Established { qp });
        self.flush_link(link_key);
        Ok(())
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        let limit = self.shared.config.limits.private_data_len;
        let private_data = private_data.get(..limit).unwrap_or(private_data);
        let Some(conn) =
            self.conns.get_mut(qp.0).filter(|conn| conn.state == ShmState::AwaitAnswer)
        else {
            return;
        };
        let link_key = conn.link;
        let Some(link) = self.links.get_mut(link_key) else { return };
        link.say.push_back(LinkMessage::Reject {
            to: conn.peer,
            is_shut: false,
            private_data: private_data.into(),
        });
        close::end(conn, link, &mut self.shared, Cause::Local, None);
        conn.die(&mut self.shared);
        self.flush_link(link_key);
    }

    fn disconnect(&mut self, qp: Qp) {
        let Some(conn) = self.conns.get_mut(qp.0).filter(|conn| conn.is_live()) else { return };
        if conn.state == ShmState::Established {
            conn.queue.ring();
            let key = conn.link;
            if let Some(link) = self.links.get_mut(key) {
                tx::want(conn, link);
            }
            self.flush_link(key);
        }
        self.give_up(qp.0, Cause::Local);
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.named(qp).map_or(&[], |conn| &conn.private_data)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.named(qp).map(|conn| conn.address)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        if !self.shared.receives.is_waited_for() {
            return self.shared.receives.add(buf);
        }
        let event = self.shared.receives.post(buf)?;
        self.shared.report(event);
        Ok(())
    }

    fn receives_posted(&self) -> usize {
        self.shared.receives.posted()
    }

    fn bind(
        &mut self,
        qp: Qp,
        buf: Buf,
        span: Range<usize>,
        access: Access,
    ) -> Result<Window, Refused<Buf>> {
        if let Err(why) = self.established(qp) {
            return Err(Refused { why, token: buf });
        }
        // RFC 5042 §3, §6.4.5 [5042-3]: streams do not trust each other: keys have one scope
        // RFC 5042 §3, §6.4.5 [5042-18]: no STag is usable by two streams
        soft::bind(&mut self.shared.windows, qp, buf, span, access)
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        if self.shared.is_long(&message) {
            return Err(Refused { why: Refusal::Malformed, token: message });
        }
        self.enqueue_send(qp, tag, message, invalidate)
    }

    fn send_inline(&mut self, qp: Qp, message: &[u8], invalidate: Option<RemoteKey>) -> bool {
        let Some(lane) = self.shared.lanes.free(qp) else { return false };
        let Some(link) = self.links.at_mut(lane.link()) else { return false };
        lane::send_at_once(lane, link, &mut self.shared, message, invalidate)
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        let Self { conns, links, shared, .. } = self;
        if source.len() == to.len as usize
            && let Some(conn) = conns.get_mut(qp.0)
            && let Some(link) = links.get_mut(conn.link)
            && lane::write_at_once(conn, link, shared, tag, &source, to)
        {
            return Ok(());
        }
        self.enqueue_write(qp, tag, source, to)
    }

    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        self.enqueue_read(qp, tag, sink, at, from)
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        self.enqueue_invalidation(qp, tag, key)
    }

    fn send_room(&self, qp: Qp) -> usize {
        let conn = self.conns.get(qp.0).filter(|conn| conn.state == ShmState::Established);
        conn.map_or(0, |conn| conn.queue.room())
    }

    #[inline]
    fn ring(&mut self) {
        if std::mem::take(&mut self.is_loud) {
            self.ring_all();
        }
    }

    #[inline]
    fn look(&mut self, now: Time, room: &mut [u8]) -> Looked {
        self.look_once(now, room)
    }

    fn take_receive(&mut self) -> Option<Buf> {
        self.shared.receives.take_ready()
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        self.poll_once(now)
    }

    fn arm(&mut self) -> bool {
        self.fall_asleep()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.epoll.as_fd())
    }

    fn wake_at(&self) -> Option<Time> {
        self.next_timer()
    }

    fn take_moved(&mut self, each: &mut dyn FnMut(Qp, u64)) {
        self.shared.moved.take(each);
    }
}
