//! The contract's calls: each request to a connection is checked here, moved to its queue, and
//! carried out at the next ring.

use crate::{
    Ibverbs, RdmaAddress,
    close::{self, end},
    cm,
    conn::{Bind, IbverbsConn, IbverbsShared, IbverbsState},
    exposures::Exposures,
    sinks::ReadSinks,
};
use stag_pools::{Access, Buf, Extent, Pool, RemoteKey, Window};
use stag_verbs::{
    Cause, Count, Event, FabricFault, Limits, PeerAddress, Provider, Qp, Refusal, Refused,
    RemoteSpan, Tag, Time,
    soft::{Op, Postable, Posting},
};
use std::{
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
};

/// Octets a rejection has room for on InfiniBand, of which this crate promises fewer.
const REJECTION_MAX: usize = 56;

/// An established connection for one work request, and the state that it shares with others.
pub struct IbverbsPosted<'a> {
    conn: &'a mut IbverbsConn,
    shared: &'a mut IbverbsShared,
    posted: &'a mut Vec<Qp>,
}

impl Postable for IbverbsPosted<'_> {
    fn room(&self) -> usize {
        // RFC 5042 §6.4.3.2 [5042-15]: entries of completion queues are handed out to a limit
        self.conn.queue.room()
    }

    fn may_read(&self) -> bool {
        self.conn.reads.asked > 0
    }

    fn begin_invalidation(&mut self, key: RemoteKey) -> bool {
        let exposures = self.shared.exposures.as_mut();
        exposures.is_some_and(|exposures| exposures.begin_end(self.conn.qp.scope(), key))
    }

    fn enqueue(self, tag: Tag, op: Op, from: &[RemoteSpan]) {
        let Self { conn, shared, posted } = self;
        conn.queue.borrow(&mut shared.spare_works);
        conn.queue.post(tag, op, from);
        conn.posted += 1;
        if !std::mem::replace(&mut conn.is_posted, true) {
            posted.push(conn.qp);
        }
    }
}

impl Posting for Ibverbs {
    type Postable<'a> = IbverbsPosted<'a>;

    fn established(&mut self, qp: Qp) -> Result<IbverbsPosted<'_>, Refusal> {
        let conn = self.conns.get_mut(qp.0).filter(|conn| conn.is_live()).ok_or(Refusal::Gone)?;
        match conn.state {
            IbverbsState::Established => {
                Ok(IbverbsPosted { conn, shared: &mut self.shared, posted: &mut self.posted })
            }
            _ => Err(Refusal::NotEstablished),
        }
    }
}

impl Provider for Ibverbs {
    type Address = RdmaAddress;

    const SCHEME: &'static str = "rdma";

    fn counts(&self) -> Count {
        self.stats().counts()
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    fn device_name(&self) -> Option<&str> {
        Some(&self.about().name)
    }

    fn notices(&self) -> Vec<String> {
        self.about().notices(self.limits())
    }

    fn register(&mut self, pool: &Pool) -> io::Result<()> {
        self.add_pool(pool)
    }

    fn listen(&mut self, at: &RdmaAddress) -> Result<RdmaAddress, FabricFault> {
        self.listen_at(*at)
    }

    fn stop_listening(&mut self) {
        self.leave_listeners();
    }

    fn connect(&mut self, to: &RdmaAddress, private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.start_connect(*to, private_data)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        if private_data.len() > self.shared.config.limits.private_data_len {
            return Err(Refusal::Malformed);
        }
        let accepted = self.with(qp, |conn, shared| {
            if conn.state != IbverbsState::AwaitAnswer {
                return Err(Refusal::Gone);
            }
            if shared.taken >= shared.config.limits.connections {
                turn_away(conn, shared, &[]);
                return Err(Refusal::Gone);
            }
            shared.waiting -= 1;
            shared.taken += 1;
            conn.is_taken = true;
            if let Err(error) = cm::accept(conn, shared, private_data) {
                end(conn, shared, Cause::Fabric(FabricFault::from(&error)));
            }
            Ok(())
        });
        accepted.unwrap_or(Err(Refusal::Gone))
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        let private_data = private_data.get(..REJECTION_MAX).unwrap_or(private_data);
        self.with(qp, |conn, shared| {
            if conn.state == IbverbsState::AwaitAnswer {
                turn_away(conn, shared, private_data);
            }
        });
    }

    fn disconnect(&mut self, qp: Qp) {
        self.with(qp, |conn, shared| {
            if conn.state == IbverbsState::Established {
                conn.cause = Some(Cause::Local);
                conn.state = IbverbsState::AwaitDrain;
                conn.deadline = Some(shared.now + shared.config.linger);
                shared.timed.push(conn.qp);
                close::ring(conn, shared);
            } else if conn.is_live() {
                close::reject(conn, shared, &[]);
                end(conn, shared, Cause::Local);
            }
        });
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.conns.get(qp.0).map_or(&[], |conn| &conn.private_data)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.conns.get(qp.0)?.peer.map(PeerAddress::Ip)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        self.add_receive(buf)
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
        let conn = self.conns.get(qp.0).expect("it is established");
        let writer = conn.writer;
        let IbverbsShared { exposures, regions, pools, stats, .. } = &mut self.shared;
        let place = buf.place();
        let region = regions.iter().find(|region| region.id == place.pool);
        // Type-2 windows open at least one octet (InfiniBand o10-37.2.40). RFC 5042 §A [5042-24]
        let (Some(region), true) = (region, span.start < span.end && span.end <= buf.len()) else {
            return Err(Refused { why: Refusal::Malformed, token: buf });
        };
        let named = region.name(place.at + span.start, span.len());
        let why = Refusal::NoWindow;
        let key = match exposures.as_mut().filter(|exposures| exposures.has_room()) {
            None => return Err(Refused { why, token: buf }),
            Some(Exposures::Windows(windows)) => {
                let (exposed, cleared) = buf.expose_cleared(span, access, writer);
                stats.cleared += cleared as u64;
                // RFC 5042 §3 [5042-3]: streams do not trust each other: keys have one scope
                let key = windows.bind(qp.scope(), exposed);
                self.with(qp, |conn, _| conn.binds.push_back(Bind { before: conn.posted, key }));
                self.note_posted(qp);
                key
            }
            Some(Exposures::Regions(open)) => {
                let pool = pools.iter().find(|pool| pool.id() == place.pool);
                let pool = pool.expect("a region's pool is there");
                match open.open(qp.scope(), pool, buf, span, access, writer) {
                    Ok((key, cleared)) => {
                        stats.cleared += cleared as u64;
                        key
                    }
                    Err(token) => return Err(Refused { why, token }),
                }
            }
        };
        Ok(Window { key, offset: named.addr, len: named.length })
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        let cannot = invalidate.is_some() && !self.limits().sends_invalidation;
        if cannot || !self.shared.knows(message.place()) {
            return Err(Refused { why: Refusal::Malformed, token: message });
        }
        self.enqueue_send(qp, tag, message, invalidate)
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        if !self.shared.knows(source.place()) {
            return Err(Refused { why: Refusal::Malformed, token: source });
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
        // Where Reads land elsewhere first, each span needs a place there.
        let longest = self.shared.sinks.as_ref().map_or(usize::MAX, ReadSinks::longest);
        let have_places = from.iter().all(|span| span.len as usize <= longest);
        if !have_places || !self.shared.knows(sink.place()) {
            return Err(Refused { why: Refusal::Malformed, token: sink });
        }
        self.enqueue_read(qp, tag, sink, at, from)
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        self.enqueue_invalidation(qp, tag, key)
    }

    fn send_room(&self, qp: Qp) -> usize {
        match self.conns.get(qp.0) {
            Some(conn) if conn.state == IbverbsState::Established => conn.queue.room(),
            _ => 0,
        }
    }

    fn ring(&mut self) {
        self.ring_all();
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        self.poll_once(now)
    }

    fn arm(&mut self) -> bool {
        self.is_idle()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn wake_at(&self) -> Option<Time> {
        self.next_timer()
    }
}

/// Rejects the peer of a connect request.
fn turn_away(conn: &mut IbverbsConn, shared: &mut IbverbsShared, private_data: &[u8]) {
    close::reject(conn, shared, private_data);
    end(conn, shared, Cause::Local);
}
