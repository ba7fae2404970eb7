//! The contract's calls: each request for a connection is checked here, queued, and carried out at
//! the next ring.

use crate::{
    Iwarp, IwarpAddress, close, cm,
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState},
    tx,
};
use stag_pools::{Access, Buf, Extent, RemoteKey, Window, table::Key};
use stag_verbs::{
    Cause, Count, Event, FabricFault, Limits, Looked, Memory, PeerAddress, Provider, Qp, Refusal,
    Refused, RemoteSpan, Status, Tag, Time,
    soft::{self, Op, Postable, Posting},
};
use std::{ops::Range, os::fd::BorrowedFd};

impl Iwarp {
    /// The connection of `qp`, until the engine has handled its last event.
    fn named(&self, qp: Qp) -> Option<&IwarpConn> {
        self.conns.get(qp.0).map(|conn| &**conn).filter(|conn| !conn.is_over)
    }
}

/// An established connection for one work request, with the shared state that it needs.
pub struct IwarpPosted<'a> {
    qp: Qp,
    link: &'a mut IwarpLink,
    is_posted: &'a mut bool,
    shared: &'a mut IwarpShared,
    posted: &'a mut Vec<Key>,
}

impl Postable for IwarpPosted<'_> {
    fn room(&self) -> usize {
        // RFC 5040 §8.1.2 [5040-73]: entries of completion queues are bounded
        // RFC 5042 §6.4.3.2 [5042-15]: entries of completion queues are handed out to a limit
        self.link.queue.room()
    }

    fn may_read(&self) -> bool {
        self.link.may_read
    }

    fn begin_invalidation(&mut self, key: RemoteKey) -> bool {
        let is_bound = soft::is_bound(&mut self.shared.windows, self.qp, key);
        is_bound && !self.link.queue.is_invalidating(key)
    }

    #[inline]
    fn enqueue(self, tag: Tag, op: Op, from: &[RemoteSpan]) {
        self.link.queue.borrow(&mut self.shared.spare_works);
        self.link.queue.post(tag, op, from);
        if !std::mem::replace(self.is_posted, true) {
            self.posted.push(self.qp.0);
        }
    }
}

impl Posting for Iwarp {
    type Postable<'a> = IwarpPosted<'a>;

    #[inline]
    fn established(&mut self, qp: Qp) -> Result<IwarpPosted<'_>, Refusal> {
        // RFC 5041 §6.2.1 [5041-32]: requests after our own close are refused
        let conn = self.conns.get_mut(qp.0).filter(|conn| conn.is_live()).ok_or(Refusal::Gone)?;
        match conn.state {
            IwarpState::AwaitSign { .. } | IwarpState::Established => {
                let IwarpConn { link, is_posted, .. } = &mut **conn;
                let link = link.as_deref_mut().ok_or(Refusal::NotEstablished)?;
                Ok(IwarpPosted {
                    qp,
                    link,
                    is_posted,
                    shared: &mut self.shared,
                    posted: &mut self.posted,
                })
            }
            IwarpState::AwaitTerminateSent { .. } => Err(Refusal::Gone),
            _ => Err(Refusal::NotEstablished),
        }
    }
}

impl Provider for Iwarp {
    type Address = IwarpAddress;

    const SCHEME: &'static str = "iwarp";

    fn counts(&self) -> Count {
        self.stats().counts()
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    fn listen(&mut self, at: &IwarpAddress) -> Result<IwarpAddress, FabricFault> {
        self.listen_at(*at)
    }

    fn stop_listening(&mut self) {
        self.stop();
    }

    fn connect(&mut self, to: &IwarpAddress, private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.start_connect(*to, private_data)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        self.use_brought();
        self.with(qp.0, |conn, shared| cm::accept(conn, shared, private_data))
            .unwrap_or(Err(Refusal::Gone))
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        self.use_brought();
        self.with(qp.0, |conn, shared| cm::reject(conn, shared, private_data));
    }

    fn disconnect(&mut self, qp: Qp) {
        // Input that arrived earlier is reported first.
        self.use_brought();
        self.with(qp.0, disconnect);
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.named(qp).map_or(&[], |conn| &conn.private_data)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.named(qp).map(|conn| PeerAddress::Ip(conn.peer))
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        if let Some(event) = self.shared.receives.post(buf)? {
            self.shared.emit(event);
        }
        self.shared.may_resume = true;
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
        self.enqueue_send(qp, tag, message, invalidate)
    }

    fn send_inline(&mut self, qp: Qp, message: &[u8], invalidate: Option<RemoteKey>) -> bool {
        let Self { conns, shared, posted, .. } = self;
        let Some(conn) = conns.get_mut(qp.0) else { return false };
        let is_copied = conn.copy_send(shared, message, invalidate);
        if is_copied {
            conn.note_posted(posted);
        }
        is_copied
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        // RFC 5040 §7.1 [5040-52]: a local error is reported by a Terminate without headers
        if source.len() != to.len as usize {
            return Err(Refused { why: Refusal::Malformed, token: source });
        }
        let Self { conns, shared, posted, .. } = self;
        if let Some(conn) = conns.get_mut(qp.0)
            && conn.copy_write(shared, &source, to)
        {
            conn.note_posted(posted);
            shared.emit(Event::Completed {
                qp,
                tag,
                status: Status::Success,
                memory: Memory::Shared,
            });
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
        match self.conns.get(qp.0) {
            Some(conn) if conn.may_send() => conn.link.as_ref().map_or(0, |link| link.queue.room()),
            _ => 0,
        }
    }

    fn ring(&mut self) {
        self.ring_all();
    }

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
        self.is_idle()
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

/// Disconnects: sends posted work as far as the kernel accepts it, and flushes the rest.
fn disconnect(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    match conn.state {
        IwarpState::AwaitEnd | IwarpState::Dead | IwarpState::AwaitTerminateSent { .. } => return,
        IwarpState::AwaitSign { .. } | IwarpState::Established => {
            if let Some(link) = &mut conn.link {
                link.queue.ring();
            }
            tx::flush(conn, shared);
        }
        _ => {}
    }
    // Sending may have revealed that the connection has already ended.
    if conn.is_live() && !conn.is_terminating() {
        close::end_gently(conn, shared, Cause::Local);
    }
}
