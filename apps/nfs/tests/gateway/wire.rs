//! Two ways to bring a call to a gateway: over the simulated fabric, and over a TCP socket.

use stag_engine::{
    Answer, App, Call, CallFault, Cause, Config, Cx, Outcome, PeerId, Request, RequestItem,
    ResultRooms, Shard, Token,
};
use stag_nfs::GatewayReport;
use stag_protocol::{
    nfs::v4::{
        Bitmap, CallbackAnswer, CallbackCompound, CallbackOperation, CallbackRequest, CbSequenceOk,
        RawAttributes, ResultsWriter, Stateid, Status4,
    },
    rpc::{Accepted, record::Fragment},
    xdr::{Writer, pad},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A call message, and how long its reply can get.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// Header and arguments; ends with the length word of `item` if there is one.
    pub octets: &'a [u8],
    pub item: Option<&'a [u8]>,
    pub reply_max: usize,
    pub result_max: usize,
}

pub trait Wire {
    /// The whole replies, each with its item in its place. At once if the wire can do that.
    fn exchange_all(&mut self, messages: &[Message<'_>]) -> Vec<Result<Vec<u8>, CallFault>>;
    fn exchange(&mut self, message: Message<'_>) -> Result<Vec<u8>, CallFault> {
        self.exchange_all(&[message]).pop().expect("every call has an outcome")
    }
    fn report(&self) -> GatewayReport;
    /// The message of the reply, and what came in each of several Write chunks with this much room.
    fn exchange_in_rooms(
        &mut self,
        _message: Message<'_>,
        _rooms: &[u32],
    ) -> Result<ReplyInRooms, CallFault> {
        panic!("it has no chunks");
    }
    /// The callbacks that came since the last time, but for CB_SEQUENCE.
    fn called(&mut self) -> Vec<Callback> {
        Vec::new()
    }
    /// Calls from here on over one more connection, from this host of 127.0.0.0/24.
    fn connect_from(&mut self, _host: u8) {
        panic!("it has one connection");
    }
    /// Calls from here on over the connection of this number, in their order.
    fn call_over(&mut self, _connection: usize) {
        panic!("it has one connection");
    }
    /// Sets change attribute and size of files that are held under a write delegation.
    fn hold(&mut self, _held: Option<(u64, u64)>) {}
    /// Octets that the server pulled from the client's memory and pushed to it.
    fn moved(&self) -> (u64, u64);
}

/// A reply without what came in Write chunks, and that.
pub type ReplyInRooms = (Vec<u8>, Vec<Vec<u8>>);

/// A callback of version 4, and the stateid of a recall.
pub type Callback = (CallbackOperation, Option<Stateid>);

/// Keeps how calls ended, and takes callbacks.
#[derive(Default)]
struct Requester {
    peer: Option<PeerId>,
    done: Vec<Result<Vec<u8>, CallFault>>,
    called: Vec<Callback>,
    /// The lengths of the rooms of the call that is made, and the octets that came in them.
    rooms: Vec<u32>,
    filled: Vec<Vec<u8>>,
    /// Change attribute and size that it has of files under a write delegation.
    held: Option<(u64, u64)>,
}

impl Requester {
    /// The answer to a callback that is executed.
    fn execute<'a>(&mut self, request: CallbackRequest<'a>) -> CallbackAnswer<'a> {
        let stateid = match &request {
            CallbackRequest::Recall(args) => Some(args.delegation),
            _ => None,
        };
        if !matches!(request, CallbackRequest::Sequence(_)) {
            self.called.push((request.operation(), stateid));
        }
        match request {
            CallbackRequest::Sequence(args) => CallbackAnswer::Sequence(Ok(CbSequenceOk {
                session: args.session,
                sequence: args.sequence,
                slot: args.slot,
                highest_slot: 7,
                target_highest_slot: 7,
            })),
            CallbackRequest::Recall(_) => CallbackAnswer::Recall(Ok(())),
            CallbackRequest::RecallAny(_) => CallbackAnswer::RecallAny(Ok(())),
            CallbackRequest::NotifyLock(_) => CallbackAnswer::NotifyLock(Ok(())),
            CallbackRequest::GetAttr(_) => {
                CallbackAnswer::GetAttr(self.held.map(raw_attributes).ok_or(Status4::BadHandle))
            }
            other => panic!("{other:?} is not expected"),
        }
    }
}

/// Change attribute and size on the wire.
fn raw_attributes<'a>((change, size): (u64, u64)) -> RawAttributes<'a> {
    let octets = [change.to_be_bytes(), size.to_be_bytes()].concat();
    RawAttributes { mask: Bitmap::of([3, 4]), octets: octets.leak() }
}

impl App for Requester {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let mut message = cx.message(2_048).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        let requests = CallbackCompound::parse(call.arguments).unwrap();
        let mut written = ResultsWriter::begin(&mut writer, requests.head().tag).unwrap();
        for request in requests {
            written.push(&self.execute(request.unwrap())).unwrap();
        }
        written.finish();
        let len = writer.len();
        message.extend(len);
        cx.answer(call.id, Answer { message, item: None });
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let mut result = outcome.result;
        if !outcome.written.is_empty() {
            let octets = result.take().unwrap().to_vec();
            let mut at = 0;
            for (room, written) in self.rooms.iter().zip(outcome.written) {
                let end = at + *written as usize;
                self.filled.push(if *written > 0 { octets[at..end].to_vec() } else { Vec::new() });
                at += *room as usize;
            }
        }
        self.done.push(outcome.reply.map(|reply| {
            let mut reply = reply.to_vec();
            if let Some(result) = result {
                reply.extend_from_slice(&result);
                reply.extend(std::iter::repeat_n(0, pad(result.len())));
            }
            reply
        }));
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.peer = Some(peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {
        self.peer = None;
    }
}

pub struct OverFabric<A: App> {
    fabric: Fabric,
    server: Shard<Sim, A>,
    client: Shard<Sim, Requester>,
    port: Port,
    now: Time,
}

impl<A: App<Report = GatewayReport>> OverFabric<A> {
    pub fn new(gateway: A, config: Config) -> Self {
        Self::with(Fabric::new(1, Faults::DELAYS), gateway, config)
    }

    pub fn with(fabric: Fabric, gateway: A, config: Config) -> Self {
        Self::calling(fabric, gateway, config, Config::small())
    }

    /// With this configuration of the client.
    pub fn calling(fabric: Fabric, gateway: A, config: Config, client_config: Config) -> Self {
        let admit = || Box::new(|_| true) as Box<_>;
        let mut server =
            Shard::new(fabric.end("server", LIMITS), gateway, config, admit()).unwrap();
        let client = fabric.end("client", LIMITS);
        let client = Shard::new(client, Requester::default(), client_config, admit()).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        Self { fabric, server, client, port, now: Time(0) }
    }

    /// Both ends until nothing is left to do at any time.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if self.server.pass(self.now) | self.client.pass(self.now) {
                continue;
            }
            match self.fabric.next_due() {
                Some(due) => self.now = self.now.max(due),
                None => return,
            }
        }
        panic!("the fabric never comes to rest\n{}", self.fabric.trace());
    }

    fn connect(&mut self) -> PeerId {
        for _ in 0..100 {
            if let Some(peer) = self.client.app().peer {
                return peer;
            }
            self.client.connect(&self.port).unwrap();
            self.settle();
        }
        panic!("the gateway takes no connection");
    }
}

fn request(cx: &Cx<'_>, message: Message<'_>) -> Request {
    let mut octets = cx.message(message.octets.len()).unwrap();
    octets.append(message.octets).unwrap();
    let item = message.item.map(|item| {
        let mut buf = cx.take(item.len()).unwrap();
        buf.append(item).unwrap();
        RequestItem { position: message.octets.len(), octets: buf }
    });
    let result = (message.result_max > 0).then(|| cx.room(message.result_max).unwrap());
    let reply_max = message.reply_max;
    Request {
        message: octets,
        item,
        reply_max,
        result,
        timeout: Duration::from_secs(10),
        token: Token(0),
    }
}

impl<A: App<Report = GatewayReport>> OverFabric<A> {
    /// Lets time pass: once at once, and once for what the first look began.
    pub fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.settle();
        self.server.pass(self.now);
        self.settle();
    }
}

impl<A: App<Report = GatewayReport>> Wire for OverFabric<A> {
    fn exchange_all(&mut self, messages: &[Message<'_>]) -> Vec<Result<Vec<u8>, CallFault>> {
        let peer = self.connect();
        self.client.with_app(|_, cx| {
            for message in messages {
                cx.call(peer, request(cx, *message));
            }
        });
        self.settle();
        if self.client.with_app(|app, _| app.done.len()) < messages.len() {
            // A compound waits a tenth of a second for delegations of others.
            self.wait(Duration::from_millis(150));
        }
        assert_eq!(self.server.buffers_in_use(), 0, "the server gave everything back");
        assert_eq!(self.client.buffers_in_use(), 0, "the client gave everything back");
        self.client.with_app(|app, _| std::mem::take(&mut app.done))
    }

    fn exchange_in_rooms(
        &mut self,
        message: Message<'_>,
        rooms: &[u32],
    ) -> Result<ReplyInRooms, CallFault> {
        let peer = self.connect();
        self.client.with_app(|app, cx| {
            (app.rooms, app.filled) = (rooms.to_vec(), Vec::new());
            let result_max = rooms.iter().sum::<u32>() as usize;
            let request = request(cx, Message { result_max, ..message });
            cx.call_for_results(peer, request, ResultRooms::new(rooms).unwrap());
        });
        self.settle();
        assert_eq!(self.server.buffers_in_use(), 0, "the server gave everything back");
        assert_eq!(self.client.buffers_in_use(), 0, "the client gave everything back");
        let filled = self.client.with_app(|app, _| std::mem::take(&mut app.filled));
        let reply = self.client.with_app(|app, _| app.done.pop()).expect("a call has an outcome");
        reply.map(|message| (message, filled))
    }

    fn report(&self) -> GatewayReport {
        self.server.snapshot().app
    }

    fn called(&mut self) -> Vec<Callback> {
        self.client.with_app(|app, _| std::mem::take(&mut app.called))
    }

    fn hold(&mut self, held: Option<(u64, u64)>) {
        self.client.with_app(|app, _| app.held = held);
    }

    fn moved(&self) -> (u64, u64) {
        let responder = self.server.snapshot().engine.responder;
        (responder.pulled, responder.pushed)
    }
}

pub struct OverTcp<A: App> {
    server: Shard<Sim, A>,
    at: SocketAddr,
    sockets: Vec<TcpStream>,
    /// The connection that calls go over.
    current: usize,
    clock: Instant,
    xid: u32,
}

impl<A: App<Report = GatewayReport>> OverTcp<A> {
    pub fn new(gateway: A, config: Config) -> Self {
        let end = Fabric::new(1, Faults::NONE).end("server", LIMITS);
        let mut server = Shard::new(end, gateway, config, Box::new(|_| true)).unwrap();
        let at = server.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let sockets = vec![connect(1, at)];
        Self { server, at, sockets, current: 0, clock: Instant::now(), xid: 0 }
    }

    fn pass(&mut self) {
        let now = Time(self.clock.elapsed().as_nanos() as u64);
        if !self.server.pass(now) {
            std::thread::yield_now();
        }
    }
}

/// No server.
pub struct NoWire;

impl Wire for NoWire {
    fn exchange_all(&mut self, _: &[Message<'_>]) -> Vec<Result<Vec<u8>, CallFault>> {
        panic!("there is no server")
    }

    fn report(&self) -> GatewayReport {
        panic!("there is no server")
    }

    fn moved(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A connection from a host of 127.0.0.0/24.
fn connect(host: u8, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    connect(&socket, &to).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(true).unwrap();
    socket
}

impl<A: App<Report = GatewayReport>> OverTcp<A> {
    fn exchange_one(&mut self, message: Message<'_>) -> Result<Vec<u8>, CallFault> {
        self.xid += 1;
        let mut record = message.octets.to_vec();
        record[..4].copy_from_slice(&self.xid.to_be_bytes());
        if let Some(item) = message.item {
            record.extend_from_slice(item);
            record.extend(std::iter::repeat_n(0, pad(item.len())));
        }
        let mut output = Fragment::new(record.len() as u32, true).unwrap().emit().to_vec();
        output.extend_from_slice(&record);
        let (mut sent, mut input, mut staging) = (0, Vec::new(), vec![0; 1 << 16]);
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < until, "no reply came in twenty seconds");
            if sent < output.len() {
                match self.sockets[self.current].write(&output[sent..]) {
                    Ok(len) => sent += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Err(CallFault::Disconnected(Cause::Peer)),
                }
            }
            self.pass();
            match self.sockets[self.current].read(&mut staging) {
                Ok(0) => return Err(CallFault::Disconnected(Cause::Peer)),
                Ok(len) => input.extend_from_slice(&staging[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(CallFault::Disconnected(Cause::Peer)),
            }
            if let Some(mark) = input.first_chunk::<4>() {
                let end = 4 + Fragment::parse(*mark).octets() as usize;
                if input.len() >= end {
                    assert_eq!(input.len(), end, "one call has one reply");
                    assert_eq!(input[4..8], self.xid.to_be_bytes(), "the reply of this call");
                    return Ok(input[4..].to_vec());
                }
            }
        }
    }
}

impl<A: App<Report = GatewayReport>> Wire for OverTcp<A> {
    fn exchange_all(&mut self, messages: &[Message<'_>]) -> Vec<Result<Vec<u8>, CallFault>> {
        messages.iter().map(|message| self.exchange_one(*message)).collect()
    }

    fn connect_from(&mut self, host: u8) {
        self.sockets.push(connect(host, self.at));
        self.current = self.sockets.len() - 1;
    }

    fn call_over(&mut self, connection: usize) {
        self.current = connection;
    }

    fn report(&self) -> GatewayReport {
        self.server.snapshot().app
    }

    fn moved(&self) -> (u64, u64) {
        (0, 0)
    }
}
