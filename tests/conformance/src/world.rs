//! The ends of a case: the work posted to them, and waiting for their events.

use crate::{
    Fixture,
    seat::{ConnPhase, DoneWork, HeardMessage, WatchedEnd, WorkKind},
};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey, Window};
use stag_verbs::{Cause, Limits, Provider, Qp, RemoteSpan, Status, Tag, Terminate, Time};
use std::time::Duration;

/// The end that connects.
pub(crate) const A: usize = 0;
/// The end that listens.
pub(crate) const B: usize = 1;

/// Limits of an end in a case that asks for no others.
pub(crate) const LIMITS: Limits = Limits {
    connections: 4,
    send_queue: 32,
    receives: 32,
    receives_each: None,
    receive_len: 8192,
    windows: 16,
    read_spans: 4,
    private_data_len: 56,
    sends_invalidation: true,
    bears_invalidation: true,
};

/// Receives each end starts with.
pub(crate) const RECEIVES: usize = 16;

/// Both sides of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// At the end that connected.
    pub(crate) a: Qp,
    /// At the end that listened.
    pub(crate) b: Qp,
}

/// Why both sides of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Causes {
    /// At the end that connected.
    pub(crate) a: Cause,
    /// At the end that listened.
    pub(crate) b: Cause,
}

/// A fixture, its ends, and everything they said.
pub struct World<F: Fixture> {
    pub(crate) fixture: F,
    pub(crate) pool: Pool,
    pub(crate) seats: Vec<WatchedEnd<F::P>>,
    next_tag: u64,
}

/// Octets that differ from place to place and from message to message.
pub(crate) fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ salt.wrapping_mul(197) ^ (i >> 8)) as u8).collect()
}

/// Looks at octets that a peer could write and did not: they are what they were, or zero where a
/// device's provider cleared them.
pub(crate) fn assert_unwritten(octets: &[u8], before: &[u8]) {
    assert_eq!(octets.len(), before.len());
    assert!(octets == before || octets.iter().all(|octet| *octet == 0), "{octets:02x?}");
}

/// The whole of `window`, as the peer names it.
pub(crate) fn span(window: Window) -> RemoteSpan {
    RemoteSpan { key: window.key, offset: window.offset, len: window.len }
}

impl<F: Fixture> World<F> {
    pub(crate) fn new(fixture: F) -> Self {
        let class = |slot_len, count| Class { slot_len, count };
        let pool = fixture.pool(&[class(256, 1024), class(8192, 512), class(65_536, 64)]);
        Self { fixture, pool, seats: Vec::new(), next_tag: 0 }
    }

    /// One more end; returns its number.
    pub(crate) fn add_end(&mut self, limits: Limits) -> usize {
        let end = self.fixture.end(limits, &self.pool);
        self.seats.push(WatchedEnd::new(end, self.seats.len().is_multiple_of(2)));
        self.seats.len() - 1
    }

    pub(crate) fn end(&mut self, end: usize) -> &mut F::P {
        self.seats[end].end.as_mut().unwrap()
    }

    pub(crate) fn address(&mut self, end: usize) -> <F::P as Provider>::Address {
        let at = self.fixture.listen_address();
        self.end(end).listen(&at).unwrap()
    }

    /// Two ends with [`RECEIVES`] each and a connection between them that has carried one message.
    pub(crate) fn pair(&mut self) -> Joined {
        self.pair_with(LIMITS)
    }

    pub(crate) fn pair_with(&mut self, limits: Limits) -> Joined {
        let at = self.ends_with(limits);
        self.join(&at)
    }

    /// Two ends with [`RECEIVES`] each; B listens.
    pub(crate) fn ends_with(&mut self, limits: Limits) -> <F::P as Provider>::Address {
        self.add_end(limits);
        self.add_end(limits);
        self.post_receives(A, RECEIVES);
        self.post_receives(B, RECEIVES);
        self.address(B)
    }

    /// Connects A to B, which listens at `at`, and sends one message there.
    pub(crate) fn join(&mut self, at: &<F::P as Provider>::Address) -> Joined {
        let Joined { a, b } = self.meet(A, at);
        self.end(B).accept(b, b"").unwrap();
        self.until("the connector is established", |w| w.is_established(A, a));
        self.send(A, a, b"hello", None);
        let hello = self.message(B, b);
        assert_eq!(&hello.buf[..], b"hello");
        assert!(self.is_established(B, b), "a connection that carries messages is established");
        self.repost(B, hello.buf);
        let done = self.completion(A, a);
        assert_eq!(done.status, Status::Success);
        Joined { a, b }
    }

    /// `from` connects, and B has the request.
    pub(crate) fn meet(&mut self, from: usize, at: &<F::P as Provider>::Address) -> Joined {
        let a = self.connect(from, at, b"");
        self.until("the connect request arrives", |w| !w.seats[B].requests.is_empty());
        let b = self.seats[B].requests.pop_front().unwrap();
        Joined { a, b }
    }

    pub(crate) fn connect(
        &mut self,
        from: usize,
        at: &<F::P as Provider>::Address,
        private_data: &[u8],
    ) -> Qp {
        let qp = self.end(from).connect(at, private_data).unwrap();
        self.seats[from].meet(qp, ConnPhase::Connecting);
        qp
    }

    pub(crate) fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len().max(1)).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    pub(crate) fn post_receives(&mut self, end: usize, count: usize) {
        for _ in 0..count {
            let buf = self.pool.take(LIMITS.receive_len).unwrap();
            self.repost(end, buf);
        }
    }

    pub(crate) fn repost(&mut self, end: usize, buf: Buf) {
        self.end(end).post_receive(buf).unwrap();
        self.seats[end].receives += 1;
    }

    fn tag(&mut self, end: usize, qp: Qp, kind: WorkKind) -> Tag {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.seats[end].pending.entry(qp).or_default().push_back((tag, kind));
        tag
    }

    /// Posts a Send and rings.
    pub(crate) fn send(
        &mut self,
        end: usize,
        qp: Qp,
        octets: &[u8],
        invalidate: Option<RemoteKey>,
    ) -> Tag {
        let tag = self.post_send(end, qp, octets, invalidate);
        self.end(end).ring();
        tag
    }

    pub(crate) fn post_send(
        &mut self,
        end: usize,
        qp: Qp,
        octets: &[u8],
        key: Option<RemoteKey>,
    ) -> Tag {
        let buf = self.buf(octets);
        let tag = self.tag(end, qp, WorkKind::Send);
        self.end(end).post_send(qp, tag, buf, key).unwrap();
        tag
    }

    pub(crate) fn post_write(&mut self, end: usize, qp: Qp, octets: &[u8], to: RemoteSpan) -> Tag {
        let source = self.buf(octets).freeze();
        let tag = self.tag(end, qp, WorkKind::Write);
        let to = RemoteSpan { len: octets.len() as u32, ..to };
        self.end(end).post_write(qp, tag, source, to).unwrap();
        tag
    }

    /// Posts a Read into a fresh sink of `'.'`s that ends four octets past the last span.
    pub(crate) fn post_read(&mut self, end: usize, qp: Qp, at: usize, from: &[RemoteSpan]) -> Tag {
        let len = at + from.iter().map(|span| span.len as usize).sum::<usize>() + 4;
        let sink = self.buf(&vec![b'.'; len]);
        let tag = self.tag(end, qp, WorkKind::Read);
        self.end(end).post_read(qp, tag, sink, at, from).unwrap();
        tag
    }

    pub(crate) fn post_invalidate(&mut self, end: usize, qp: Qp, key: RemoteKey) -> Tag {
        let tag = self.tag(end, qp, WorkKind::Invalidate(key));
        self.end(end).post_local_invalidate(qp, tag, key).unwrap();
        tag
    }

    /// Opens all of `octets` to the peer of `qp` and rings.
    pub(crate) fn open(&mut self, end: usize, qp: Qp, octets: &[u8], access: Access) -> Window {
        let buf = self.buf(octets);
        self.open_span(end, qp, buf, 0..octets.len(), access)
    }

    pub(crate) fn open_span(
        &mut self,
        end: usize,
        qp: Qp,
        buf: Buf,
        span: std::ops::Range<usize>,
        access: Access,
    ) -> Window {
        let len = span.len();
        let window = self.end(end).bind(qp, buf, span, access).unwrap();
        assert_eq!(window.len as usize, len);
        assert_ne!(window.key.0, 0, "0 is no key");
        let known = self.seats[end].windows.insert(window.key, qp);
        assert_eq!(known, None, "a bound key is not given out again");
        self.end(end).ring();
        self.pump();
        self.until("a window is open", |w| w.has_opened(end, qp));
        window
    }

    fn has_opened(&self, end: usize, qp: Qp) -> bool {
        self.fixture.has_opened(self.seats[end].end.as_ref().unwrap(), qp)
    }

    /// Polls every end until it has nothing more.
    pub(crate) fn pump(&mut self) -> Time {
        self.pump_all_but(None)
    }

    fn pump_all_but(&mut self, asleep: Option<usize>) -> Time {
        let now = self.fixture.step();
        for (index, seat) in self.seats.iter_mut().enumerate() {
            if asleep == Some(index) {
                continue;
            }
            while let Some(event) = seat.next_event(now) {
                seat.judge(event);
            }
            if let Some(end) = &seat.end {
                assert!(
                    end.receives_posted() <= seat.receives,
                    "receives do not appear by themselves"
                );
            }
        }
        now
    }

    /// Pumps until `condition` holds.
    pub(crate) fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut deadline = None;
        while !condition(self) {
            let now = self.pump();
            let deadline = *deadline.get_or_insert(now + F::PATIENCE);
            assert!(now <= deadline, "not within {:?}: {what}\n{}", F::PATIENCE, self.describe());
        }
    }

    /// Pumps for so long that whatever can happen has happened.
    pub(crate) fn quiet(&mut self) {
        let until = self.pump() + F::QUIET;
        while self.pump() < until {}
    }

    /// As [`quiet`](Self::quiet), but without polling `end`.
    pub(crate) fn quiet_without(&mut self, end: usize) {
        let until = self.pump_all_but(Some(end)) + F::QUIET;
        while self.pump_all_but(Some(end)) < until {}
    }

    pub(crate) fn is_established(&self, end: usize, qp: Qp) -> bool {
        self.seats[end].conns.get(&qp) == Some(&ConnPhase::Established)
    }

    pub(crate) fn cause(&self, end: usize, qp: Qp) -> Option<Cause> {
        self.seats[end].ended.iter().find(|(other, _)| *other == qp).map(|(_, cause)| *cause)
    }

    /// Returns the private data that the peer had sent when the connection ended.
    pub(crate) fn last_words(&self, end: usize, qp: Qp) -> &[u8] {
        &self.seats[end].last_words[&qp]
    }

    /// The next message from the peer of `qp`.
    pub(crate) fn message(&mut self, end: usize, qp: Qp) -> HeardMessage {
        self.until("a message arrives", |w| {
            w.seats[end].received.iter().any(|message| message.qp == qp)
        });
        let received = &mut self.seats[end].received;
        let index = received.iter().position(|message| message.qp == qp).unwrap();
        received.remove(index).unwrap()
    }

    /// The next completion on `qp`.
    pub(crate) fn completion(&mut self, end: usize, qp: Qp) -> DoneWork {
        self.until("work completes", |w| w.seats[end].done.iter().any(|done| done.qp == qp));
        let done = &mut self.seats[end].done;
        let index = done.iter().position(|done| done.qp == qp).unwrap();
        done.remove(index).unwrap()
    }

    /// The completion of `tag` on `qp`; those before it are forgotten.
    pub(crate) fn work(&mut self, end: usize, qp: Qp, tag: Tag) -> DoneWork {
        loop {
            let done = self.completion(end, qp);
            if done.tag == tag {
                return done;
            }
        }
    }

    /// Both sides know that A broke a rule at B, and which.
    pub(crate) fn assert_fault(&self, causes: Causes, fault: Terminate) {
        if F::TELLS_FAULTS {
            let told = Causes { a: Cause::Terminated(fault), b: Cause::PeerFault(fault) };
            assert_eq!(causes, told);
        }
    }

    pub(crate) fn windows_bound(&self, end: usize) -> usize {
        self.fixture.windows_bound(self.seats[end].end.as_ref().unwrap())
    }

    pub(crate) fn is_readable(&self, end: usize) -> bool {
        self.is_readable_within(end, F::PATIENCE)
    }

    pub(crate) fn is_readable_now(&self, end: usize) -> bool {
        self.is_readable_within(end, Duration::ZERO)
    }

    fn is_readable_within(&self, end: usize, patience: Duration) -> bool {
        let fd = self.seats[end].end.as_ref().and_then(Provider::wait_fd);
        fd.is_some_and(|fd| self.fixture.is_readable(fd, patience))
    }

    /// Waits for the end of both sides of a connection, and says why they ended.
    pub(crate) fn end_of(&mut self, pair: Joined) -> Causes {
        let Joined { a, b } = pair;
        self.until("both sides end", |w| w.cause(A, a).is_some() && w.cause(B, b).is_some());
        Causes { a: self.cause(A, a).unwrap(), b: self.cause(B, b).unwrap() }
    }

    /// A connection works: a message each way.
    pub(crate) fn assert_works(&mut self, pair: Joined) {
        let Joined { a, b } = pair;
        for (from, qp, to, far) in [(A, a, B, b), (B, b, A, a)] {
            let tag = self.send(from, qp, b"still there", None);
            let message = self.message(to, far);
            assert_eq!(&message.buf[..], b"still there");
            self.repost(to, message.buf);
            assert_eq!(self.work(from, qp, tag).status, Status::Success);
        }
    }

    /// Forgets an end without a word.
    pub(crate) fn drop_end(&mut self, end: usize) {
        let seat = &mut self.seats[end];
        seat.end = None;
        seat.conns.clear();
    }

    pub(crate) fn disconnect(&mut self, end: usize, qp: Qp) {
        self.end(end).disconnect(qp);
    }

    /// Ends every connection and every end, and looks whether all memory came back.
    pub(crate) fn finish(mut self) {
        for seat in &mut self.seats {
            let Some(end) = &mut seat.end else { continue };
            seat.conns.keys().for_each(|qp| end.disconnect(*qp));
        }
        self.until("every connection ends", |w| w.seats.iter().all(|seat| seat.conns.is_empty()));
        self.quiet();
        for seat in &mut self.seats {
            let Some(end) = &seat.end else { continue };
            assert_eq!(self.fixture.windows_bound(end), 0, "no window outlives its connection");
            assert_eq!(end.receives_posted(), seat.receives, "receives stay posted");
        }
        let Self { mut fixture, pool, seats, .. } = self;
        drop(seats);
        fixture.step();
        assert_eq!(pool.taken(), 0, "all memory comes back");
    }

    fn describe(&self) -> String {
        let seat = |seat: &WatchedEnd<F::P>| {
            let WatchedEnd { conns, pending, received, done, ended, receives, .. } = seat;
            let (received, done) = (received.len(), done.len());
            format!(
                "{conns:?}, {receives} receives, {received} received, {done} done, pending \
                 {pending:?}, ended {ended:?}\n"
            )
        };
        self.seats.iter().map(seat).collect()
    }
}
