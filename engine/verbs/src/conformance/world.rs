//! The driver: some ends, what they did, and the rules every event has to keep.

use super::Fixture;
use crate::{Cause, Event, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag, Terminate, Time};
use stag_pools::{Access, Buf, Class, Fenced, Pool, RemoteKey, Window};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

/// The end that connects.
pub(super) const A: usize = 0;
/// The end that listens.
pub(super) const B: usize = 1;

/// What an end has when a case has no wishes.
pub(super) const LIMITS: Limits = Limits {
    connections: 4,
    send_queue: 32,
    receives: 32,
    receive_len: 8192,
    windows: 16,
    read_spans: 4,
    private_data_len: 56,
    remote_invalidation: true,
};

/// Receives each end starts with.
pub(super) const RECEIVES: usize = 16;

/// A message that arrived.
#[derive(Debug)]
pub(super) struct Message {
    /// Where.
    pub(super) qp: Qp,
    /// What.
    pub(super) buf: Buf,
    /// With this proof.
    pub(super) invalidated: Option<Fenced>,
}

/// Work that completed.
#[derive(Debug)]
pub(super) struct Done {
    /// Where.
    pub(super) qp: Qp,
    /// As posted.
    pub(super) tag: Tag,
    /// How.
    pub(super) status: Status,
    /// What it held.
    pub(super) memory: Memory,
}

impl Done {
    /// The buffer it held.
    pub(super) fn buf(self) -> Buf {
        match self.memory {
            Memory::Buf(buf) => buf,
            Memory::Fenced(fenced) => fenced.into_buf(),
            memory => panic!("{memory:?} is no buffer"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Read,
    Invalidate(RemoteKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Requested,
    Connecting,
    Established,
    /// Work failed: only failures and the end may follow.
    Failed,
}

pub(super) struct Seat<P> {
    pub(super) end: Option<P>,
    conns: BTreeMap<Qp, Phase>,
    pending: HashMap<Qp, VecDeque<(Tag, Kind)>>,
    windows: HashMap<RemoteKey, Qp>,
    receives: usize,
    names: HashSet<Qp>,
    pub(super) requests: VecDeque<Qp>,
    pub(super) received: VecDeque<Message>,
    pub(super) done: VecDeque<Done>,
    pub(super) unbound: Vec<(Qp, Fenced)>,
    pub(super) ended: Vec<(Qp, Cause)>,
    /// The private data of connections that ended.
    last_words: HashMap<Qp, Vec<u8>>,
}

/// A fixture, its ends, and everything they said.
pub struct World<F: Fixture> {
    pub(super) fixture: F,
    pub(super) pool: Pool,
    pub(super) seats: Vec<Seat<F::P>>,
    next_tag: u64,
}

/// Octets that differ from place to place and from message to message.
pub(super) fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ salt.wrapping_mul(197) ^ (i >> 8)) as u8).collect()
}

/// Looks at octets that a peer could write and did not: they are what they were, or zero where a device's provider cleared them.
pub(super) fn assert_unwritten(octets: &[u8], before: &[u8]) {
    assert_eq!(octets.len(), before.len());
    assert!(octets == before || octets.iter().all(|octet| *octet == 0), "{octets:02x?}");
}

/// The whole of `window`, as the peer names it.
pub(super) fn span(window: Window) -> RemoteSpan {
    RemoteSpan { key: window.key, offset: window.offset, len: window.len }
}

impl<F: Fixture> World<F> {
    pub(super) fn new(fixture: F) -> Self {
        let class = |slot_len, count| Class { slot_len, count };
        let pool = F::pool(&[class(256, 1024), class(8192, 512), class(65_536, 64)]);
        Self { fixture, pool, seats: Vec::new(), next_tag: 0 }
    }

    /// One more end; returns its number.
    pub(super) fn add_end(&mut self, limits: Limits) -> usize {
        let end = self.fixture.end(limits, &self.pool);
        self.seats.push(Seat {
            end: Some(end),
            conns: BTreeMap::new(),
            pending: HashMap::new(),
            windows: HashMap::new(),
            receives: 0,
            names: HashSet::new(),
            requests: VecDeque::new(),
            received: VecDeque::new(),
            done: VecDeque::new(),
            unbound: Vec::new(),
            ended: Vec::new(),
            last_words: HashMap::new(),
        });
        self.seats.len() - 1
    }

    pub(super) fn end(&mut self, end: usize) -> &mut F::P {
        self.seats[end].end.as_mut().unwrap()
    }

    pub(super) fn address(&mut self, end: usize) -> <F::P as Provider>::Address {
        let at = self.fixture.listen_address();
        self.end(end).listen(&at).unwrap()
    }

    /// Two ends with [`RECEIVES`] each and a connection between them that has carried one message.
    pub(super) fn pair(&mut self) -> (Qp, Qp) {
        self.pair_with(LIMITS)
    }

    pub(super) fn pair_with(&mut self, limits: Limits) -> (Qp, Qp) {
        let at = self.ends_with(limits);
        self.join(&at)
    }

    /// Two ends with [`RECEIVES`] each; B listens.
    pub(super) fn ends_with(&mut self, limits: Limits) -> <F::P as Provider>::Address {
        self.add_end(limits);
        self.add_end(limits);
        self.post_receives(A, RECEIVES);
        self.post_receives(B, RECEIVES);
        self.address(B)
    }

    /// Connects A to B, which listens at `at`, and sends one message there.
    pub(super) fn join(&mut self, at: &<F::P as Provider>::Address) -> (Qp, Qp) {
        let (a, b) = self.meet(A, at);
        self.end(B).accept(b, b"").unwrap();
        self.until("the connector is established", |w| w.is_established(A, a));
        self.send(A, a, b"hello", None);
        let hello = self.message(B, b);
        assert_eq!(&hello.buf[..], b"hello");
        assert!(self.is_established(B, b), "a connection that carries messages is established");
        self.repost(B, hello.buf);
        let done = self.completion(A, a);
        assert_eq!(done.status, Status::Success);
        (a, b)
    }

    /// `from` connects, and B has the request.
    pub(super) fn meet(&mut self, from: usize, at: &<F::P as Provider>::Address) -> (Qp, Qp) {
        let a = self.connect(from, at, b"");
        self.until("the connect request arrives", |w| !w.seats[B].requests.is_empty());
        (a, self.seats[B].requests.pop_front().unwrap())
    }

    pub(super) fn connect(
        &mut self,
        from: usize,
        at: &<F::P as Provider>::Address,
        private_data: &[u8],
    ) -> Qp {
        let qp = self.end(from).connect(at, private_data).unwrap();
        self.seats[from].meet(qp, Phase::Connecting);
        qp
    }

    pub(super) fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len().max(1)).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    pub(super) fn post_receives(&mut self, end: usize, count: usize) {
        for _ in 0..count {
            let buf = self.pool.take(LIMITS.receive_len).unwrap();
            self.repost(end, buf);
        }
    }

    pub(super) fn repost(&mut self, end: usize, buf: Buf) {
        self.end(end).post_receive(buf).unwrap();
        self.seats[end].receives += 1;
    }

    fn tag(&mut self, end: usize, qp: Qp, kind: Kind) -> Tag {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.seats[end].pending.entry(qp).or_default().push_back((tag, kind));
        tag
    }

    /// Posts a Send and rings.
    pub(super) fn send(&mut self, end: usize, qp: Qp, octets: &[u8], invalidate: Option<RemoteKey>) -> Tag {
        let tag = self.post_send(end, qp, octets, invalidate);
        self.end(end).ring();
        tag
    }

    pub(super) fn post_send(&mut self, end: usize, qp: Qp, octets: &[u8], key: Option<RemoteKey>) -> Tag {
        let buf = self.buf(octets);
        let tag = self.tag(end, qp, Kind::Send);
        self.end(end).post_send(qp, tag, buf, key).unwrap();
        tag
    }

    pub(super) fn post_write(&mut self, end: usize, qp: Qp, octets: &[u8], to: RemoteSpan) -> Tag {
        let source = self.buf(octets).freeze();
        let tag = self.tag(end, qp, Kind::Write);
        let to = RemoteSpan { len: octets.len() as u32, ..to };
        self.end(end).post_write(qp, tag, source, to).unwrap();
        tag
    }

    /// Posts a Read into a fresh sink of `'.'`s that ends four octets behind the last span.
    pub(super) fn post_read(&mut self, end: usize, qp: Qp, at: usize, from: &[RemoteSpan]) -> Tag {
        let len = at + from.iter().map(|span| span.len as usize).sum::<usize>() + 4;
        let sink = self.buf(&vec![b'.'; len]);
        let tag = self.tag(end, qp, Kind::Read);
        self.end(end).post_read(qp, tag, sink, at, from).unwrap();
        tag
    }

    pub(super) fn post_invalidate(&mut self, end: usize, qp: Qp, key: RemoteKey) -> Tag {
        let tag = self.tag(end, qp, Kind::Invalidate(key));
        self.end(end).post_local_invalidate(qp, tag, key).unwrap();
        tag
    }

    /// Opens all of `octets` to the peer of `qp` and rings.
    pub(super) fn open(&mut self, end: usize, qp: Qp, octets: &[u8], access: Access) -> Window {
        let buf = self.buf(octets);
        self.open_span(end, qp, buf, 0..octets.len(), access)
    }

    pub(super) fn open_span(
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
        window
    }

    /// Polls every end until it has nothing more.
    pub(super) fn pump(&mut self) -> Time {
        self.pump_all_but(None)
    }

    fn pump_all_but(&mut self, asleep: Option<usize>) -> Time {
        let now = self.fixture.step();
        for (index, seat) in self.seats.iter_mut().enumerate() {
            if asleep == Some(index) {
                continue;
            }
            while let Some(event) = seat.end.as_mut().and_then(|end| end.poll(now)) {
                seat.judge(event);
            }
            if let Some(end) = &seat.end {
                assert!(end.receives_posted() <= seat.receives, "receives do not appear by themselves");
            }
        }
        now
    }

    /// Pumps until `condition` holds.
    pub(super) fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut deadline = None;
        while !condition(self) {
            let now = self.pump();
            let deadline = *deadline.get_or_insert(now + F::PATIENCE);
            assert!(now <= deadline, "not within {:?}: {what}\n{}", F::PATIENCE, self.describe());
        }
    }

    /// Pumps for so long that whatever can happen has happened.
    pub(super) fn quiet(&mut self) {
        let until = self.pump() + F::QUIET;
        while self.pump() < until {}
    }

    /// As [`quiet`](Self::quiet), but nobody polls `end`.
    pub(super) fn quiet_without(&mut self, end: usize) {
        let until = self.pump_all_but(Some(end)) + F::QUIET;
        while self.pump_all_but(Some(end)) < until {}
    }

    pub(super) fn is_established(&self, end: usize, qp: Qp) -> bool {
        self.seats[end].conns.get(&qp) == Some(&Phase::Established)
    }

    pub(super) fn cause(&self, end: usize, qp: Qp) -> Option<Cause> {
        self.seats[end].ended.iter().find(|(other, _)| *other == qp).map(|(_, cause)| *cause)
    }

    /// What the peer had said when the connection ended.
    pub(super) fn last_words(&self, end: usize, qp: Qp) -> &[u8] {
        &self.seats[end].last_words[&qp]
    }

    /// The next message from the peer of `qp`.
    pub(super) fn message(&mut self, end: usize, qp: Qp) -> Message {
        self.until("a message arrives", |w| w.seats[end].received.iter().any(|message| message.qp == qp));
        let received = &mut self.seats[end].received;
        let index = received.iter().position(|message| message.qp == qp).unwrap();
        received.remove(index).unwrap()
    }

    /// The next completion on `qp`.
    pub(super) fn completion(&mut self, end: usize, qp: Qp) -> Done {
        self.until("work completes", |w| w.seats[end].done.iter().any(|done| done.qp == qp));
        let done = &mut self.seats[end].done;
        let index = done.iter().position(|done| done.qp == qp).unwrap();
        done.remove(index).unwrap()
    }

    /// The completion of `tag` on `qp`; those before it are forgotten.
    pub(super) fn work(&mut self, end: usize, qp: Qp, tag: Tag) -> Done {
        loop {
            let done = self.completion(end, qp);
            if done.tag == tag {
                return done;
            }
        }
    }

    /// Both sides know that A broke a rule at B, and which.
    pub(super) fn assert_fault(&self, (ours, theirs): (Cause, Cause), fault: Terminate) {
        if F::TELLS_FAULTS {
            assert_eq!((ours, theirs), (Cause::Terminated(fault), Cause::PeerFault(fault)));
        }
    }

    pub(super) fn windows_bound(&self, end: usize) -> usize {
        self.fixture.windows_bound(self.seats[end].end.as_ref().unwrap())
    }

    pub(super) fn is_readable(&self, end: usize) -> bool {
        self.is_readable_within(end, F::PATIENCE)
    }

    pub(super) fn is_readable_now(&self, end: usize) -> bool {
        self.is_readable_within(end, Duration::ZERO)
    }

    fn is_readable_within(&self, end: usize, patience: Duration) -> bool {
        let fd = self.seats[end].end.as_ref().and_then(Provider::wait_fd);
        fd.is_some_and(|fd| self.fixture.is_readable(fd, patience))
    }

    /// Waits for the end of both sides of a connection, and says why they ended.
    pub(super) fn end_of(&mut self, (a, b): (Qp, Qp)) -> (Cause, Cause) {
        self.until("both sides end", |w| w.cause(A, a).is_some() && w.cause(B, b).is_some());
        (self.cause(A, a).unwrap(), self.cause(B, b).unwrap())
    }

    /// A connection works: a message each way.
    pub(super) fn assert_works(&mut self, (a, b): (Qp, Qp)) {
        for (from, qp, to, far) in [(A, a, B, b), (B, b, A, a)] {
            let tag = self.send(from, qp, b"still there", None);
            let message = self.message(to, far);
            assert_eq!(&message.buf[..], b"still there");
            self.repost(to, message.buf);
            assert_eq!(self.work(from, qp, tag).status, Status::Success);
        }
    }

    /// Forgets an end without a word.
    pub(super) fn drop_end(&mut self, end: usize) {
        let seat = &mut self.seats[end];
        seat.end = None;
        seat.conns.clear();
    }

    pub(super) fn disconnect(&mut self, end: usize, qp: Qp) {
        self.end(end).disconnect(qp);
    }

    /// Ends every connection and every end, and looks whether all memory came back.
    pub(super) fn finish(mut self) {
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
        let seat = |seat: &Seat<F::P>| {
            let Seat { conns, pending, received, done, ended, receives, .. } = seat;
            let (received, done) = (received.len(), done.len());
            format!(
                "{conns:?}, {receives} receives, {received} received, {done} done, pending {pending:?}, ended {ended:?}\n"
            )
        };
        self.seats.iter().map(seat).collect()
    }
}

impl<P: Provider> Seat<P> {
    fn meet(&mut self, qp: Qp, phase: Phase) {
        assert!(self.names.insert(qp), "{qp:?} names another connection than before");
        self.conns.insert(qp, phase);
    }

    /// What holds for every event of every case.
    fn judge(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { qp } => {
                self.meet(qp, Phase::Requested);
                self.requests.push_back(qp);
            }
            Event::Established { qp } => {
                let phase = self.conns.insert(qp, Phase::Established);
                let may = matches!(phase, Some(Phase::Requested | Phase::Connecting));
                assert!(may, "a connection is established once: {qp:?} was {phase:?}");
            }
            Event::Received { qp, buf, invalidated } => {
                let phase = self.conns.get(&qp);
                let may = matches!(phase, Some(Phase::Established | Phase::Failed));
                assert!(may, "messages arrive between Established and Disconnected: {qp:?} was {phase:?}");
                self.receives = self.receives.checked_sub(1).expect("a message takes a receive");
                if let Some(fenced) = &invalidated {
                    self.window_ends(qp, fenced.key());
                }
                self.received.push_back(Message { qp, buf, invalidated });
            }
            Event::Completed { qp, tag, status, memory } => self.judge_completion(qp, tag, status, memory),
            Event::Unbound { qp, fenced } => {
                assert!(self.conns.contains_key(&qp), "windows end before their connection");
                self.window_ends(qp, fenced.key());
                self.unbound.push((qp, fenced));
            }
            Event::Disconnected { qp, cause } => {
                assert!(self.conns.remove(&qp).is_some(), "{qp:?} ends once");
                let pending = self.pending.remove(&qp).unwrap_or_default();
                assert!(pending.is_empty(), "no work is pending when a connection ends: {pending:?}");
                assert!(!self.windows.values().any(|other| *other == qp), "no window is left");
                self.requests.retain(|request| *request != qp);
                let words = self.end.as_ref().map(|end| end.private_data(qp).to_vec());
                self.last_words.insert(qp, words.unwrap_or_default());
                self.ended.push((qp, cause));
            }
        }
    }

    fn judge_completion(&mut self, qp: Qp, tag: Tag, status: Status, memory: Memory) {
        assert!(self.conns.contains_key(&qp), "nothing completes after Disconnected");
        let oldest = self.pending.get_mut(&qp).and_then(VecDeque::pop_front);
        let Some((expected, kind)) = oldest else { panic!("{tag:?} completes, but nothing is pending") };
        assert_eq!(tag, expected, "work completes in order");
        let is_success = status == Status::Success;
        match (kind, &memory) {
            (Kind::Send | Kind::Read, Memory::Buf(_)) | (Kind::Write, Memory::Shared) => {}
            (Kind::Invalidate(key), Memory::Fenced(fenced)) if is_success => {
                assert_eq!(fenced.key(), key);
                self.window_ends(qp, key);
            }
            (Kind::Invalidate(key), Memory::Bound) if !is_success => {
                assert_eq!(self.windows.get(&key), Some(&qp), "its end is still to come");
            }
            _ => panic!("{kind:?} completes {status:?} with {memory:?}"),
        }
        let phase = self.conns.get_mut(&qp).unwrap();
        assert!(!(is_success && *phase == Phase::Failed), "nothing succeeds behind a failure");
        if !is_success {
            *phase = Phase::Failed;
        }
        self.done.push_back(Done { qp, tag, status, memory });
    }

    fn window_ends(&mut self, qp: Qp, key: RemoteKey) {
        assert_eq!(self.windows.remove(&key), Some(qp), "a window ends once, on its own connection");
    }
}
