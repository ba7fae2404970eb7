//! RPC over TCP into the same app (DESIGN D16; RFC 5531 §11).
//!
//! It goes both ways: peers that connected to us call, and we call servers that we connected to.
//!
//! Sockets are read into one staging buffer of the shard. A record that arrives whole is handed over where it lies; a longer one
//! is gathered in a buffer of the pool. Replies leave by gathering writes, at most once per pass and connection.

use crate::{
    app::{Answer, App, PeerId},
    core::{Inbound, InboundState, Link},
    item::Pulled,
    shard::Shard,
    stats::StreamStats,
};
use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::sockopt,
};
use stag_pools::{Buf, Extent, Pool, Table, table::Key};
use stag_protocol::{
    rpc::{MessageType, record},
    xdr::{Reader, pad},
};
use stag_verbs::{Cause, FabricFault, PeerAddress, Provider, Time};
use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

/// TCP connections at a time.
pub(crate) const CONNECTIONS: usize = 1_024;
/// Octets read at a time, for all connections together.
const STAGING_LEN: usize = 256 << 10;
/// Parts, and octets, of replies that wait to be sent before a connection is no longer read: a caller that does not take its
/// replies must not hold the buffers of everybody.
const OUTPUT_MAX: usize = 128;
const OUTPUT_OCTETS_MAX: usize = 4 << 20;
/// Parts of replies sent at once.
const GATHER: usize = 64;
/// Calls of one connection in progress before it is no longer read.
const CALLS_MAX: u32 = 128;
/// How often sockets are looked at while they are quiet (DESIGN D16).
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// How long the listener rests when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections taken per pass.
const ACCEPTS_PER_PASS: usize = 16;
/// Reads of one connection per pass, so that one cannot starve the others.
const READS_PER_PASS: usize = 4;

const LISTENER: u64 = u64::MAX;

/// The TCP side of a shard.
pub(crate) struct Streams {
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    connections: Table<Stream>,
    staging: Vec<u8>,
    /// Connections with something to send.
    unsent: VecDeque<Key>,
    /// Connections that can go on with calls that were read already.
    resumable: VecDeque<Key>,
    ready: Vec<epoll::Event>,
    look_at: Time,
    accept_at: Option<Time>,
    is_stopping: bool,
    pub(crate) stats: StreamStats,
}

#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    peer: Option<PeerId>,
    assembler: record::Assembler,
    record: Option<Buf>,
    /// What was read and not looked at, because too many replies wait.
    pending: Option<Buf>,
    output: VecDeque<Part>,
    output_octets: usize,
    /// Octets of the first part that were sent.
    sent: usize,
    calls: u32,
    /// Whether it is in `unsent`, is read, and waits for the socket to take more.
    queued: bool,
    interest: epoll::EventFlags,
    role: Role,
    /// When octets moved in either direction, or when the socket began to take no more.
    moved_at: Time,
    /// The peer sends nothing more. Its calls are still answered.
    ended: bool,
    dead: bool,
}

/// Who calls on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The peer, which connected.
    Responder,
    /// We, who are connecting.
    Connecting,
    /// We, who connected.
    Requester,
}

#[derive(Debug)]
enum Part {
    Message(Buf),
    Item(Extent),
}

impl Stream {
    /// Whether no more of its calls are taken for the moment.
    fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT_MAX || self.output_octets >= OUTPUT_OCTETS_MAX || self.calls >= CALLS_MAX
    }

    /// Whether nothing can happen on it any more.
    fn is_over(&self) -> bool {
        self.dead || self.ended && self.output.is_empty() && self.calls == 0 && self.pending.is_none()
    }

    /// Whether memory of ours waits for the peer: to take what it was not sent yet, or to send the rest of a record. What waits for
    /// our app, or was never offered to the socket, is not the peer's fault.
    fn waits_for_peer(&self) -> bool {
        let is_refused = self.role != Role::Connecting && self.interest.contains(epoll::EventFlags::OUT);
        is_refused || self.record.is_some() && self.interest.contains(epoll::EventFlags::IN)
    }

    fn push(&mut self, part: Part) {
        self.output_octets += part.octets().len();
        self.output.push_back(part);
    }
}

impl Part {
    fn octets(&self) -> &[u8] {
        match self {
            Self::Message(buf) => buf,
            Self::Item(extent) => extent,
        }
    }
}

/// What one look at a socket found.
enum Look {
    More,
    Empty,
    Closed(Cause),
}

impl Streams {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            connections: Table::new(CONNECTIONS),
            staging: vec![0; STAGING_LEN],
            unsent: VecDeque::with_capacity(CONNECTIONS),
            resumable: VecDeque::with_capacity(CONNECTIONS),
            ready: Vec::with_capacity(GATHER),
            look_at: Time(0),
            accept_at: None,
            is_stopping: false,
            stats: StreamStats::default(),
        })
    }

    pub(crate) fn listen(&mut self, at: SocketAddr, shared: bool) -> io::Result<SocketAddr> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, shared)?;
        if at.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, &at)?;
        listen(&socket, 128)?;
        let listener = TcpListener::from(socket);
        let at = listener.local_addr()?;
        epoll::add(&self.epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        self.listener = Some(listener);
        Ok(at)
    }

    /// Takes no more callers and no more calls.
    pub(crate) fn stop(&mut self) {
        self.listener = None;
        self.is_stopping = true;
    }

    /// Whether a reply was not sent yet.
    pub(crate) fn has_output(&self) -> bool {
        self.connections.iter().any(|(_, stream)| !stream.output.is_empty())
    }

    /// Whether there is no connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Tells every caller that there will be no more replies.
    pub(crate) fn say_end(&self) {
        for (_, stream) in self.connections.iter() {
            // A connection that is broken already will be seen to be.
            let _ = stream.socket.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Closes connections whose peer holds memory and did not move for `longest`; returns how many.
    pub(crate) fn end_stalled(&mut self, now: Time, longest: Duration) -> u64 {
        let mut ended = 0;
        for place in 0..self.connections.capacity() {
            let Some(key) = self.connections.key_at(place) else { continue };
            let stream = self.connections.get(key).expect("the key was just made");
            if stream.waits_for_peer() && !stream.dead && now.since(stream.moved_at) >= longest {
                ended += 1;
                self.close(key);
            }
        }
        ended
    }

    pub(crate) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Marks a connection to be closed at the end of the pass.
    pub(crate) fn close(&mut self, key: Key) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.dead = true;
            self.queue(key);
        }
    }

    /// Queues a reply.
    pub(crate) fn answer(&mut self, key: Key, answer: Answer, zeros: &Extent) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.calls = stream.calls.saturating_sub(1);
            self.stats.replies += 1;
        }
        let position = answer.item.as_ref().map_or(answer.message.len(), |item| item.position);
        let octets = answer.item.iter().flat_map(|item| item.octets.iter());
        self.queue_record(key, answer.message, position, octets, zeros);
    }

    fn queue(&mut self, key: Key) {
        if let Some(stream) = self.connections.get_mut(key)
            && !stream.queued
        {
            stream.queued = true;
            self.unsent.push_back(key);
        }
    }

    /// Takes a waiting connection. None when there is none that can be taken.
    fn accept(&mut self, now: Time) -> Option<(TcpStream, SocketAddr)> {
        match self.listener.as_ref()?.accept() {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    // No descriptor, no memory, or a peer that is gone already: the socket stays readable, so rest.
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                    self.watch_listener(epoll::EventFlags::empty());
                }
                None
            }
        }
    }

    /// Ends the listener's rest when its time has come.
    fn wake_listener(&mut self, now: Time) {
        if self.accept_at.is_some_and(|at| now >= at) {
            self.accept_at = None;
            self.watch_listener(epoll::EventFlags::IN);
        }
    }

    fn watch_listener(&self, interest: epoll::EventFlags) {
        if let Some(listener) = &self.listener {
            // It was added with the same descriptor: this cannot fail.
            let _ = epoll::modify(&self.epoll, listener, epoll::EventData::new_u64(LISTENER), interest);
        }
    }

    /// When to look again though nothing arrives.
    pub(crate) const fn wake_at(&self) -> Option<Time> {
        self.accept_at
    }

    fn add(&mut self, socket: TcpStream, payload_max: usize, role: Role) -> io::Result<Option<Key>> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        // A connection that is being made becomes writable when it stands, and when it failed.
        let interest = if role == Role::Connecting { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        let stream = Stream {
            socket,
            peer: None,
            assembler: record::Assembler::new(payload_max),
            record: None,
            pending: None,
            output: VecDeque::new(),
            output_octets: 0,
            sent: 0,
            calls: 0,
            queued: false,
            interest,
            role,
            moved_at: Time(0),
            ended: false,
            dead: false,
        };
        let Ok(key) = self.connections.insert(stream) else { return Ok(None) };
        let stream = self.connections.get(key).expect("it was just inserted");
        let data = epoll::EventData::new_u64(key.to_bits());
        if let Err(error) = epoll::add(&self.epoll, &stream.socket, data, interest) {
            drop(self.connections.remove(key));
            return Err(error.into());
        }
        Ok(Some(key))
    }

    /// Starts to connect to a server.
    fn connect(&mut self, to: SocketAddr, payload_max: usize) -> io::Result<Option<Key>> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.add(TcpStream::from(socket), payload_max, Role::Connecting)
    }

    /// Whether calls can go out to the peer of this connection.
    pub(crate) fn takes_calls(&self, key: Key) -> bool {
        let stream = self.connections.get(key);
        stream.is_some_and(|stream| stream.role == Role::Requester && !stream.dead && !stream.is_full())
    }

    /// Queues a record: a call or a reply, with its item and the item's padding in their place.
    fn queue_record<'a>(
        &mut self,
        key: Key,
        mut message: Buf,
        position: usize,
        item: impl Iterator<Item = &'a Extent> + Clone,
        zeros: &Extent,
    ) {
        let Some(stream) = self.connections.get_mut(key) else { return };
        let item_len: usize = item.clone().map(|part| part.len()).sum();
        let padding = pad(item_len);
        let len = u32::try_from(message.len() + item_len + padding).ok();
        let Some(fragment) = len.and_then(|len| record::Fragment::new(len, true)) else {
            stream.dead = true;
            return self.queue(key);
        };
        let room = message.prepend(record::Fragment::LEN).expect("a message begins behind its head room");
        room.copy_from_slice(&fragment.emit());
        if item_len == 0 {
            stream.push(Part::Message(message));
        } else {
            let position = position + record::Fragment::LEN;
            let whole = message.freeze();
            stream.push(Part::Item(whole.slice(0..position)));
            item.for_each(|part| stream.push(Part::Item(part.clone())));
            stream.push(Part::Item(zeros.slice(0..padding)));
            stream.push(Part::Item(whole.slice(position..whole.len())));
        }
        self.queue(key);
    }

    /// Queues a call of ours.
    pub(crate) fn send_call(
        &mut self,
        key: Key,
        message: Buf,
        item: Option<(usize, &Extent)>,
        zeros: &Extent,
    ) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.calls += 1;
        }
        let position = item.map_or(message.len(), |(position, _)| position);
        self.queue_record(key, message, position, item.map(|(_, octets)| octets).into_iter(), zeros);
    }

    /// Sends what one connection has, as far as its socket takes it. False when it is broken.
    fn send(stream: &mut Stream, stats: &mut StreamStats, now: Time) -> bool {
        while !stream.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); GATHER];
            let mut skip = stream.sent;
            for (slice, part) in slices.iter_mut().zip(&stream.output) {
                *slice = IoSlice::new(part.octets().get(skip..).unwrap_or_default());
                skip = 0;
            }
            let count = stream.output.len().min(GATHER);
            stats.sends += 1;
            match (&stream.socket).write_vectored(slices.get(..count).unwrap_or_default()) {
                Ok(sent) => {
                    stats.sent += sent as u64;
                    stream.moved_at = now;
                    Self::forget(stream, sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !stream.interest.contains(epoll::EventFlags::OUT) {
                        stream.moved_at = now;
                    }
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Drops what was sent.
    fn forget(stream: &mut Stream, sent: usize) {
        stream.sent += sent;
        while let Some(first) = stream.output.front() {
            let len = first.octets().len();
            if stream.sent < len {
                break;
            }
            stream.sent -= len;
            stream.output_octets -= len;
            stream.output.pop_front();
        }
    }

    /// Asks the kernel for what the connection waits for: calls unless it has too many, room when there is output.
    fn set_interest(&mut self, key: Key) {
        let Some(stream) = self.connections.get_mut(key) else { return };
        if stream.pending.is_some() && !stream.is_full() {
            self.resumable.push_back(key);
        }
        let mut interest = epoll::EventFlags::empty();
        let reads = stream.role == Role::Requester || !stream.is_full() && stream.pending.is_none();
        interest.set(epoll::EventFlags::IN, reads && !stream.ended);
        interest.set(epoll::EventFlags::OUT, !stream.output.is_empty());
        if interest != stream.interest {
            stream.interest = interest;
            let data = epoll::EventData::new_u64(key.to_bits());
            if epoll::modify(&self.epoll, &stream.socket, data, interest).is_err() {
                stream.dead = true;
            }
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Accepts, reads and hands over what arrived over TCP. True when something did.
    pub(crate) fn poll_streams(&mut self, now: Time) -> bool {
        let mut resumed = false;
        for _ in 0..self.streams.resumable.len() {
            let Some(key) = self.streams.resumable.pop_front() else { break };
            resumed = true;
            self.resume(key);
        }
        let streams = &mut self.streams;
        streams.wake_listener(now);
        if streams.listener.is_none() && streams.connections.is_empty() || now < streams.look_at {
            return resumed;
        }
        let mut ready = std::mem::take(&mut streams.ready);
        ready.clear();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = epoll::wait(&streams.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&zero));
        if found.is_err() || ready.is_empty() {
            streams.look_at = now + LOOK_INTERVAL;
        }
        for event in &ready {
            match event.data.u64() {
                LISTENER => self.accept_streams(now),
                bits => self.handle_ready(Key::from_bits(bits), event.flags),
            }
        }
        let worked = resumed || !ready.is_empty();
        self.streams.ready = ready;
        worked
    }

    fn accept_streams(&mut self, now: Time) {
        for _ in 0..ACCEPTS_PER_PASS {
            let Some((socket, from)) = self.streams.accept(now) else { return };
            let address = PeerAddress::Ip(from);
            if !self.admits(address) {
                self.core.counters.stats.connections.refused += 1;
                continue;
            }
            let key = match self.streams.add(socket, self.core.config.payload_max as usize, Role::Responder) {
                Ok(Some(key)) => key,
                Ok(None) => {
                    self.core.counters.stats.limits.peers += 1;
                    continue;
                }
                Err(_) => continue,
            };
            let Some(peer) = self.add_peer(Link::Stream(key), address, 0) else {
                self.core.counters.stats.limits.peers += 1;
                drop(self.streams.connections.remove(key));
                continue;
            };
            self.core.counters.stats.connections.tcp += 1;
            self.streams.connections.get_mut(key).expect("it was just added").peer = Some(peer);
            self.core.peers.get_mut(peer.0).expect("it was just added").up = true;
            self.app.on_peer_up(&mut crate::app::Cx { core: &mut self.core }, peer);
            self.empty_outbox();
        }
    }

    /// Connects to a server over TCP. [`App::on_peer_up`] or [`App::on_peer_down`] follows; calls may be made at once, and work as
    /// over the fabric, but that items always travel inline.
    pub fn connect_tcp(&mut self, to: SocketAddr) -> Result<PeerId, FabricFault> {
        let payload_max = self.core.config.payload_max as usize;
        let key = self.streams.connect(to, payload_max).map_err(|error| FabricFault::from(&error))?;
        let key = key.ok_or(FabricFault::Exhausted)?;
        let Some(peer) = self.add_peer(Link::Stream(key), PeerAddress::Ip(to), 0) else {
            drop(self.streams.connections.remove(key));
            return Err(FabricFault::Exhausted);
        };
        self.streams.connections.get_mut(key).expect("it was just added").peer = Some(peer);
        Ok(peer)
    }

    fn handle_ready(&mut self, key: Key, flags: epoll::EventFlags) {
        let Some(stream) = self.streams.connections.get_mut(key) else { return };
        if stream.role != Role::Connecting {
            self.read_stream(key);
            // Nothing can be sent any more: whoever is owed a reply is gone.
            if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                self.end_stream(key, Cause::Fabric(FabricFault::Lost));
            }
            return;
        }
        match sockopt::socket_error(&stream.socket) {
            Ok(Ok(())) => {
                stream.role = Role::Requester;
                stream.moved_at = self.core.now;
                let peer = stream.peer;
                self.streams.queue(key);
                if let Some(peer) = peer {
                    self.core.peers.get_mut(peer.0).into_iter().for_each(|peer| peer.up = true);
                    self.app.on_peer_up(&mut crate::app::Cx { core: &mut self.core }, peer);
                    self.empty_outbox();
                    self.start_waiting(peer);
                }
            }
            Ok(Err(error)) | Err(error) => {
                self.end_stream(key, Cause::Fabric(FabricFault::from(&io::Error::from(error))));
            }
        }
    }

    fn read_stream(&mut self, key: Key) {
        let mut staging = std::mem::take(&mut self.streams.staging);
        for _ in 0..READS_PER_PASS {
            match self.look_at_stream(key, &mut staging) {
                Look::More => {}
                Look::Empty => break,
                Look::Closed(cause) => {
                    self.end_stream(key, cause);
                    break;
                }
            }
        }
        self.streams.staging = staging;
        self.streams.queue(key);
    }

    /// Goes on with what was read before.
    fn resume(&mut self, key: Key) {
        let Some(pending) = self.streams.connections.get_mut(key).and_then(|stream| stream.pending.take())
        else {
            return;
        };
        if let Err(cause) = self.take_records(key, &mut &pending[..]) {
            self.end_stream(key, cause);
        }
        self.streams.queue(key);
    }

    fn look_at_stream(&mut self, key: Key, staging: &mut [u8]) -> Look {
        let Some(stream) = self.streams.connections.get_mut(key) else { return Look::Empty };
        let is_full = stream.role == Role::Responder && stream.is_full();
        if stream.dead || stream.ended || is_full || stream.pending.is_some() {
            return Look::Empty;
        }
        self.streams.stats.receives += 1;
        let is_stopping = self.streams.is_stopping && stream.role == Role::Responder;
        let len = match (&stream.socket).read(staging) {
            Ok(0) if stream.role == Role::Responder => {
                stream.ended = true;
                return Look::Empty;
            }
            Ok(0) => return Look::Closed(Cause::Peer),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Look::More,
            Err(error) => return Look::Closed(Cause::Fabric(FabricFault::from(&error))),
        };
        stream.moved_at = self.core.now;
        self.streams.stats.received += len as u64;
        if is_stopping {
            // Read and dropped, so that closing does not reset the connection under the last reply.
            return Look::More;
        }
        let mut input = staging.get(..len).unwrap_or_default();
        let whole = len == staging.len();
        match self.take_records(key, &mut input) {
            Ok(()) if whole => Look::More,
            Ok(()) => Look::Empty,
            Err(cause) => Look::Closed(cause),
        }
    }

    /// Cuts the stream into records and hands each over when it is whole.
    fn take_records(&mut self, key: Key, input: &mut &[u8]) -> Result<(), Cause> {
        loop {
            let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
            if stream.dead {
                return Ok(());
            }
            if stream.role == Role::Responder && stream.is_full() && !input.is_empty() {
                let exhausted = Cause::Fabric(FabricFault::Exhausted);
                let mut pending = self.core.pool.take(input.len()).ok_or(exhausted)?;
                pending.append(input).map_err(|_| exhausted)?;
                stream.pending = Some(pending);
                return Ok(());
            }
            match stream.assembler.step(input).map_err(|_| Cause::Handshake)? {
                record::Step::More => return Ok(()),
                record::Step::Copy { octets, at } => {
                    // A record that is whole in the staging buffer is handed over where it lies.
                    let mut ahead = stream.assembler.clone();
                    let mut rest = *input;
                    if at == 0
                        && let Ok(record::Step::Complete(len)) = ahead.step(&mut rest)
                        && len == octets.len()
                    {
                        stream.assembler = ahead;
                        *input = rest;
                        self.take_record(key, octets)?;
                        continue;
                    }
                    gather(stream, &self.core.pool, octets, at)?;
                }
                record::Step::Complete(len) => {
                    let record = stream.record.take();
                    let octets = record.as_deref().and_then(|record| record.get(..len)).unwrap_or_default();
                    self.take_record(key, octets)?;
                }
            }
        }
    }

    fn take_record(&mut self, key: Key, record: &[u8]) -> Result<(), Cause> {
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        let Some(peer) = stream.peer else { return Ok(()) };
        let reader = Reader::new(record);
        let xid = match (MessageType::peek(&reader), stream.role) {
            (Ok((xid, MessageType::Call)), Role::Responder) => xid,
            (Ok((xid, MessageType::Reply)), Role::Requester) => {
                stream.calls = stream.calls.saturating_sub(1);
                self.handle_record(peer, xid, record);
                return Ok(());
            }
            // Nobody can be answered without an XID, and nobody calls in the other direction: no RPC is spoken here.
            _ => return Err(Cause::Handshake),
        };
        stream.calls += 1;
        self.streams.stats.calls += 1;
        let call = Inbound { peer, xid, fabric: None, state: InboundState::AwaitAnswer };
        match self.core.inbound.insert(call) {
            Ok(call) => self.hand_over(call, peer, reader, Pulled::default()),
            Err(_) => {
                self.core.counters.stats.limits.calls += 1;
                return Err(Cause::Local);
            }
        }
        Ok(())
    }

    /// Sends what the pass produced. True when something was sent.
    pub(crate) fn flush_streams(&mut self) -> bool {
        let mut sent = false;
        for _ in 0..self.streams.unsent.len() {
            let Some(key) = self.streams.unsent.pop_front() else { break };
            let Some(stream) = self.streams.connections.get_mut(key) else { continue };
            stream.queued = false;
            if stream.role == Role::Connecting && !stream.dead {
                continue;
            }
            sent |= !stream.output.is_empty();
            let works = Streams::send(stream, &mut self.streams.stats, self.core.now);
            if !works || stream.is_over() {
                let cause = match (works, stream.dead) {
                    (false, _) => Cause::Fabric(FabricFault::Lost),
                    (true, true) => Cause::Local,
                    (true, false) => Cause::Peer,
                };
                self.end_stream(key, cause);
            } else {
                self.streams.set_interest(key);
            }
        }
        if sent {
            self.streams.look_at = self.core.now;
        }
        self.core.counters.stats.stream = self.streams.stats;
        sent
    }

    fn end_stream(&mut self, key: Key, cause: Cause) {
        let Some(stream) = self.streams.connections.remove(key) else { return };
        if let Some(peer) = stream.peer {
            self.remove_peer(peer, cause);
        }
    }
}

/// Keeps a part of a record until the rest arrives. A record that outgrows its buffer moves to a longer one: a peer that announces
/// much and sends little holds little.
fn gather(stream: &mut Stream, pool: &Pool, octets: &[u8], at: usize) -> Result<(), Cause> {
    let exhausted = Cause::Fabric(FabricFault::Exhausted);
    let end = at.checked_add(octets.len()).ok_or(exhausted)?;
    if stream.record.as_ref().is_none_or(|record| record.capacity() < end) {
        let mut longer = pool.take(end).ok_or(exhausted)?;
        longer.reset(0);
        if let Some(shorter) = stream.record.take() {
            longer.append(&shorter).map_err(|_| exhausted)?;
        }
        stream.record = Some(longer);
    }
    let record = stream.record.as_mut().ok_or(exhausted)?;
    debug_assert_eq!(record.len(), at, "parts of a record arrive in order");
    record.append(octets).map_err(|_| exhausted)
}
