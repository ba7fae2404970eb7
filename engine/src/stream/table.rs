//! The TCP connections of a shard, and what waits to be sent on them.

use super::{
    ACCEPT_PAUSE, CALLS_MAX, GATHER, LISTENER, OUTPUT_MAX, OUTPUT_OCTETS_MAX, OUTPUT_PART, STAGING_LEN,
};
use crate::{
    app::{Answer, PeerId},
    stats::StreamStats,
};
use rustix::{
    event::epoll,
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::sockopt,
};
use stag_pools::{Buf, Extent, Table, table::Key};
use stag_protocol::{rpc::record, xdr::pad};
use stag_verbs::{Time, source};
use std::{
    collections::VecDeque,
    io::{self, IoSlice, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

/// The TCP side of a shard.
pub(crate) struct Streams {
    pub(super) epoll: OwnedFd,
    pub(super) listener: Option<TcpListener>,
    pub(super) connections: Table<Stream>,
    pub(super) staging: Vec<u8>,
    /// Connections with something to send.
    pub(super) unsent: VecDeque<Key>,
    /// Connections that can go on with calls that were read already.
    pub(super) resumable: VecDeque<Key>,
    pub(super) ready: Vec<epoll::Event>,
    pub(super) look_at: Time,
    /// We connected to somebody, whose replies we may wait for.
    pub(super) has_called: bool,
    pub(super) accept_at: Option<Time>,
    pub(super) is_stopping: bool,
    /// Parts that wait to be sent, on all connections, and how many of them are a crowd.
    parts: usize,
    crowd: usize,
    pub(crate) stats: StreamStats,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    pub(super) peer: Option<PeerId>,
    pub(super) assembler: record::Assembler,
    pub(super) record: Option<Buf>,
    /// Octets that were read and not looked at, because too many replies wait.
    pub(super) pending: Option<Buf>,
    pub(super) output: VecDeque<Part>,
    pub(super) output_octets: usize,
    /// Octets of the buffers that those parts keep.
    output_memory: usize,
    /// Octets of the buffer for which its record waits; 0 when it waits for none.
    pub(super) wanted: usize,
    /// Its peer holds its share of the memory.
    pub(super) is_over_share: bool,
    /// Octets that moved in either direction since its peer's account was looked at.
    pub(super) moved: u64,
    /// Octets of the first part that were sent.
    pub(super) sent: usize,
    /// Calls of the peer whose reply was not sent yet, and calls of ours without a reply.
    pub(super) calls: u32,
    pub(super) own_calls: u32,
    /// It is in `unsent`; and the events that the kernel is asked for.
    pub(super) queued: bool,
    pub(super) interest: epoll::EventFlags,
    pub(super) role: Role,
    /// The peer sends nothing more. Its calls are still answered.
    pub(super) ended: bool,
    pub(super) dead: bool,
}

/// The end that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The peer.
    Responder,
    /// We are connecting.
    Connecting,
    /// We did.
    Requester,
}

#[derive(Debug)]
pub(super) struct Part {
    octets: Octets,
    /// Octets of the buffer that comes back with it.
    memory: usize,
    /// The last part of a reply: with it a call of the peer is over.
    ends_call: bool,
}

#[derive(Debug)]
enum Octets {
    Message(Buf),
    Item(Extent),
}

impl Stream {
    /// True if no more of its calls are taken for the moment; `fair` is how many parts it may have waiting.
    pub(super) fn is_full(&self, fair: usize) -> bool {
        self.is_clogged() || self.is_over_share || self.calls >= CALLS_MAX || self.output.len() >= fair
    }

    /// Returns true if enough waits to be sent.
    pub(super) fn is_clogged(&self) -> bool {
        self.output.len() >= OUTPUT_MAX || self.output_octets >= OUTPUT_OCTETS_MAX
    }

    /// Returns true if nothing can happen on it any more.
    pub(super) fn is_over(&self) -> bool {
        self.dead || self.ended && self.output.is_empty() && self.calls == 0 && self.pending.is_none()
    }

    /// Returns true if the socket took less than there is to send.
    pub(super) fn is_refused(&self) -> bool {
        self.role != Role::Connecting && self.interest.contains(epoll::EventFlags::OUT)
    }

    /// Octets of our memory that wait for the peer: to take what it was not sent yet, and with it what was read behind that, or to
    /// send the rest of a record. What waits for our app or for memory of ours, or was never offered to the socket, is not the
    /// peer's fault.
    pub(super) fn held(&self) -> u64 {
        let is_refused = self.is_refused();
        let is_read = self.interest.contains(epoll::EventFlags::IN);
        let output = if is_refused { self.output_memory } else { 0 };
        let input = [
            self.record.as_ref().filter(|_| is_read || is_refused),
            self.pending.as_ref().filter(|_| is_refused),
        ];
        (output + input.into_iter().flatten().map(Buf::capacity).sum::<usize>()) as u64
    }

    fn push(&mut self, octets: Octets, memory: usize) {
        let part = Part { octets, memory, ends_call: false };
        self.output_octets += part.octets().len();
        self.output_memory += memory;
        self.output.push_back(part);
    }
}

impl Part {
    pub(super) fn octets(&self) -> &[u8] {
        match &self.octets {
            Octets::Message(buf) => buf,
            Octets::Item(extent) => extent,
        }
    }
}

impl Streams {
    /// Room for `connections` at a time, of a shard with so many message slots.
    pub(crate) fn new(connections: usize, messages: usize) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            connections: Table::new(connections),
            staging: vec![0; STAGING_LEN],
            unsent: VecDeque::with_capacity(connections),
            resumable: VecDeque::with_capacity(connections),
            ready: Vec::with_capacity(GATHER),
            look_at: Time(0),
            has_called: false,
            accept_at: None,
            is_stopping: false,
            parts: 0,
            crowd: messages / OUTPUT_PART,
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
            // `[::]` is every address of this host, of both families, whatever the system's default.
            sockopt::set_ipv6_v6only(&socket, !at.ip().is_unspecified())?;
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

    /// Returns true if a reply was not sent yet.
    pub(crate) fn has_output(&self) -> bool {
        self.connections.iter().any(|(_, stream)| !stream.output.is_empty())
    }

    /// Returns true if anything can happen here.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.listener.is_some() || !self.connections.is_empty()
    }

    /// Returns true if there is no connection.
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
        let position = answer.item.as_ref().map_or(answer.message.len(), |item| item.position);
        let octets = answer.item.iter().flat_map(|item| item.octets.iter());
        self.queue_record(key, answer.message, position, octets, zeros);
        if let Some(stream) = self.connections.get_mut(key) {
            if let Some(part) = stream.output.back_mut() {
                part.ends_call = true;
            }
            self.stats.replies += 1;
        }
    }

    pub(super) fn queue(&mut self, key: Key) {
        if let Some(stream) = self.connections.get_mut(key)
            && !stream.queued
        {
            stream.queued = true;
            self.unsent.push_back(key);
        }
    }

    /// Takes a waiting connection. None when there is none that can be taken.
    pub(super) fn accept(&mut self, now: Time) -> Option<(TcpStream, SocketAddr)> {
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
    pub(super) fn wake_listener(&mut self, now: Time) {
        if self.accept_at.is_some_and(|at| now >= at) {
            self.accept_at = None;
            self.watch_listener(epoll::EventFlags::IN);
        }
    }

    pub(super) fn watch_listener(&self, interest: epoll::EventFlags) {
        if let Some(listener) = &self.listener {
            // It was added with the same descriptor: this cannot fail.
            let _ = epoll::modify(&self.epoll, listener, epoll::EventData::new_u64(LISTENER), interest);
        }
    }

    /// When to look again though nothing arrives.
    pub(crate) const fn wake_at(&self) -> Option<Time> {
        self.accept_at
    }

    pub(super) fn add(
        &mut self,
        socket: TcpStream,
        payload_max: usize,
        role: Role,
    ) -> io::Result<Option<Key>> {
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
            output_memory: 0,
            wanted: 0,
            is_over_share: false,
            moved: 0,
            sent: 0,
            calls: 0,
            own_calls: 0,
            queued: false,
            interest,
            role,
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

    /// Starts to connect to a server, from a reserved port if `reserved` is set.
    pub(super) fn connect(
        &mut self,
        to: SocketAddr,
        reserved: bool,
        payload_max: usize,
    ) -> io::Result<Option<Key>> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = source::connect(to, reserved, |from| {
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            if let Some(from) = from {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                bind(&socket, &from)?;
            }
            match connect(&socket, &to) {
                Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error.into()),
            }
        })?;
        self.has_called = true;
        self.add(TcpStream::from(socket), payload_max, Role::Connecting)
    }

    /// Returns true if the peer of this connection takes one more call, of at most `most` at once. A reply tells when not, or the
    /// connection's beginning.
    pub(crate) fn takes_calls(&self, key: Key, most: u32) -> bool {
        let open = |stream: &Stream| stream.role != Role::Connecting && !stream.dead && !stream.ended;
        let takes = |stream: &Stream| open(stream) && stream.own_calls < most.min(CALLS_MAX);
        self.connections.get(key).is_some_and(takes)
    }

    /// Returns true if enough waits to be sent on this connection.
    pub(crate) fn is_clogged(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(Stream::is_clogged)
    }

    /// The connection leads to this peer.
    pub(crate) fn name(&mut self, key: Key, peer: PeerId) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.peer = Some(peer);
        }
    }

    /// Queues a record: a call or a reply, with its item and the item's padding in their place.
    pub(super) fn queue_record<'a>(
        &mut self,
        key: Key,
        mut message: Buf,
        position: usize,
        item: impl Iterator<Item = &'a Extent> + Clone,
        zeros: &Extent,
    ) {
        let Some(stream) = self.connections.get_mut(key) else { return };
        let before = stream.output.len();
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
            let memory = message.capacity();
            stream.push(Octets::Message(message), memory);
        } else {
            let position = position + record::Fragment::LEN;
            let whole = message.freeze();
            let memory = whole.capacity();
            stream.push(Octets::Item(whole.slice(0..position)), 0);
            item.for_each(|part| stream.push(Octets::Item(part.clone()), part.capacity()));
            stream.push(Octets::Item(zeros.slice(0..padding)), 0);
            stream.push(Octets::Item(whole.slice(position..whole.len())), memory);
        }
        self.parts += stream.output.len() - before;
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
            stream.own_calls += 1;
        }
        let position = item.map_or(message.len(), |(position, _)| position);
        self.queue_record(key, message, position, item.map(|(_, octets)| octets).into_iter(), zeros);
    }

    /// Parts that one connection may have waiting before no more of its calls are taken: what all have together must not be all
    /// message slots.
    pub(super) fn fair_output(&self) -> usize {
        if self.parts < self.crowd {
            OUTPUT_MAX
        } else {
            self.crowd.div_ceil(self.connections.capacity().max(1)).max(1)
        }
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, key: Key) -> Option<Stream> {
        let stream = self.connections.remove(key)?;
        self.parts -= stream.output.len();
        Some(stream)
    }

    /// Sends what one connection has, as far as its socket takes it. False when it is broken.
    pub(super) fn flush(&mut self, key: Key) -> bool {
        let Some(stream) = self.connections.get_mut(key) else { return false };
        let before = stream.output.len();
        let works = Self::send(stream, &mut self.stats);
        self.parts -= before - stream.output.len();
        works
    }

    fn send(stream: &mut Stream, stats: &mut StreamStats) -> bool {
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
                    stream.moved += sent as u64;
                    Self::forget(stream, sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
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
            let part = stream.output.pop_front();
            stream.output_memory -= part.as_ref().map_or(0, |part| part.memory);
            let ends_call = part.is_some_and(|part| part.ends_call);
            stream.calls = stream.calls.saturating_sub(ends_call.into());
        }
    }

    /// Asks the kernel for what the connection waits for: calls unless it has too many, room when there is output.
    pub(super) fn set_interest(&mut self, key: Key) {
        let fair = self.fair_output();
        let Some(stream) = self.connections.get_mut(key) else { return };
        if stream.pending.is_some() && !stream.is_full(fair) {
            self.resumable.push_back(key);
        }
        let mut interest = epoll::EventFlags::empty();
        let reads = stream.role == Role::Requester || !stream.is_full(fair) && stream.pending.is_none();
        interest.set(epoll::EventFlags::IN, reads && !stream.ended && stream.wanted == 0);
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
