//! A fabric and an app that are watched: connections are logged, and the fabric shows its counters to the control thread.
//!
//! On the path of a call this adds one relaxed load per pass. The engine tells an app of peers without saying who they are;
//! but just before it does, the fabric reported the connection, or admission was asked for the TCP peer. So whoever came last is who
//! the app is told of.

use stag_engine::{App, Call, Cause, Cx, Outcome, PeerId};
use stag_iwarp::{Address, Iwarp, Stats};
use stag_pools::{Access, Buf, Extent, RemoteKey, Window};
use stag_verbs::{
    Event, FabricFault, Limits, PeerAddress, Provider, Qp, Refusal, Refused, RemoteSpan, Tag, Time,
};
use std::{
    cell::Cell,
    collections::HashMap,
    ops::Range,
    os::fd::BorrowedFd,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How often the control thread looks whether the counters are there.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Where a fabric shows its counters when it is asked to.
#[derive(Debug, Default)]
pub struct Board {
    wanted: AtomicBool,
    stats: Mutex<Option<Stats>>,
}

impl Board {
    /// Asks for the counters: the fabric shows them in its next pass, so its shard must be woken after this.
    pub fn ask(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// The counters that were asked for. None when they do not come in `patience`.
    pub fn take(&self, patience: Duration) -> Option<Stats> {
        let start = Instant::now();
        while self.wanted.load(Ordering::Acquire) {
            if start.elapsed() > patience {
                return None;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Who came last, and over what.
#[derive(Clone, Debug, Default)]
pub struct Arrival(Rc<Cell<Option<(&'static str, PeerAddress)>>>);

impl Arrival {
    /// Somebody came.
    pub fn set(&self, over: &'static str, address: PeerAddress) {
        self.0.set(Some((over, address)));
    }
}

/// A watched app.
#[derive(Debug)]
pub struct Logged<A> {
    app: A,
    arrival: Arrival,
    peers: HashMap<PeerId, (&'static str, PeerAddress)>,
}

impl<A> Logged<A> {
    /// Watches `app`.
    pub fn new(app: A, arrival: Arrival) -> Self {
        Self { app, arrival, peers: HashMap::new() }
    }
}

impl<A: App> App for Logged<A> {
    type Report = A::Report;

    fn report(&self) -> A::Report {
        self.app.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.app.on_call(cx, call);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.app.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        if let Some((over, address)) = self.arrival.0.take() {
            tracing::info!(target: "stag", peer = %address, over, "connected");
            self.peers.insert(peer, (over, address));
        }
        self.app.on_peer_up(cx, peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        match self.peers.remove(&peer) {
            Some((over, address)) => {
                tracing::info!(target: "stag", peer = %address, over, %cause, "disconnected");
            }
            None => tracing::info!(target: "stag", %cause, "a connection was not established"),
        }
        self.app.on_peer_down(cx, peer, cause);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.app.on_pass_end(cx);
    }
}

/// A watched fabric.
#[derive(Debug)]
pub struct Watched {
    iwarp: Iwarp,
    board: Arc<Board>,
    arrival: Arrival,
}

impl Watched {
    /// Watches `iwarp` for `board` and `arrival`.
    pub fn new(iwarp: Iwarp, board: Arc<Board>, arrival: Arrival) -> Self {
        Self { iwarp, board, arrival }
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        self.iwarp.stats()
    }

    fn show(&self) {
        if self.board.wanted.load(Ordering::Relaxed) {
            let stats = *self.iwarp.stats();
            *self.board.stats.lock().unwrap_or_else(PoisonError::into_inner) = Some(stats);
            self.board.wanted.store(false, Ordering::Release);
        }
    }
}

impl Provider for Watched {
    type Address = Address;

    fn limits(&self) -> &Limits {
        self.iwarp.limits()
    }

    fn listen(&mut self, at: &Address) -> Result<Address, FabricFault> {
        self.iwarp.listen(at)
    }

    fn stop_listening(&mut self) {
        self.iwarp.stop_listening();
    }

    fn connect(&mut self, to: &Address, private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.iwarp.connect(to, private_data)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        self.iwarp.accept(qp, private_data)
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        self.iwarp.reject(qp, private_data);
    }

    fn disconnect(&mut self, qp: Qp) {
        self.iwarp.disconnect(qp);
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.iwarp.private_data(qp)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.iwarp.peer_address(qp)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        self.iwarp.post_receive(buf)
    }

    fn receives_posted(&self) -> usize {
        self.iwarp.receives_posted()
    }

    fn bind(&mut self, qp: Qp, buf: Buf, span: Range<usize>, access: Access) -> Result<Window, Refused<Buf>> {
        self.iwarp.bind(qp, buf, span, access)
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        self.iwarp.post_send(qp, tag, message, invalidate)
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        self.iwarp.post_write(qp, tag, source, to)
    }

    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        self.iwarp.post_read(qp, tag, sink, at, from)
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        self.iwarp.post_local_invalidate(qp, tag, key)
    }

    fn send_room(&self, qp: Qp) -> usize {
        self.iwarp.send_room(qp)
    }

    fn ring(&mut self) {
        self.iwarp.ring();
        self.show();
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        let event = self.iwarp.poll(now)?;
        if let Event::Established { qp } = event
            && let Some(address) = self.iwarp.peer_address(qp)
        {
            self.arrival.set("iwarp", address);
        }
        Some(event)
    }

    fn arm(&mut self) -> bool {
        self.show();
        self.iwarp.arm()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.iwarp.wait_fd()
    }

    fn wake_at(&self) -> Option<Time> {
        self.iwarp.wake_at()
    }
}
