//! The TCP connections of a shard, and their state.

use super::{
    ACCEPT_PAUSE, CALLS_MAX, GATHER, LISTENER, OUTPUT_MAX, OUTPUT_OCTETS_MAX, OUTPUT_PART,
    STAGING_LEN,
    handshakes::Handshakes,
    kernel_tls::KernelSession,
    looks::Looks,
    output::Part,
    silent::SilentPeers,
    socket,
    tls::{CIPHER_LEN, StreamTls},
};
use crate::{config::Config, peer_view::PeerId, stats::StreamStats};
use rustix::{
    event::epoll,
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};
use stag_pools::{Buf, Table, table::Key};
use stag_protocol::rpc::record;
use stag_verbs::{Steering, Time};
use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
};

/// The TCP side of a shard.
pub(crate) struct Streams {
    pub(crate) epoll: OwnedFd,
    pub(crate) listener: Option<TcpListener>,
    pub(crate) connections: Table<Stream>,
    pub(crate) staging: Vec<u8>,
    /// Room for ciphertext; empty without TLS.
    pub(crate) cipher: Vec<u8>,
    /// Clients are not answered, or called, without TLS.
    requires_tls: bool,
    /// The earliest timeout of a handshake, while there are handshakes.
    pub(crate) secure_at: Option<Time>,
    /// Handshakes that wait for their turn.
    pub(crate) handshakes: Handshakes,
    /// Connections whose first call is awaited.
    pub(crate) silent: SilentPeers,
    /// Connections with something to send.
    pub(crate) unsent: VecDeque<Key>,
    /// Connections that can continue with calls that were already read, or whose turn may have
    /// come.
    pub(crate) resumable: VecDeque<Key>,
    pub(crate) ready: Vec<epoll::Event>,
    pub(crate) looks: Looks,
    /// We have made connections, and may wait for replies.
    pub(crate) has_called: bool,
    pub(crate) accept_at: Option<Time>,
    /// The latest `accept` failed for want of descriptors or memory, which is not reported yet.
    pub(crate) is_short: bool,
    pub(crate) is_stopping: bool,
    /// Parts that wait to be sent, on all connections, and the number above which each is limited.
    pub(crate) parts: usize,
    pub(crate) crowd: usize,
    pub(crate) stats: StreamStats,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) peer: Option<PeerId>,
    pub(crate) assembler: record::Assembler,
    pub(crate) record: Option<Buf>,
    /// Octets that were read but not handled, because too many replies wait.
    pub(crate) pending: Option<Buf>,
    pub(crate) output: VecDeque<Part>,
    pub(crate) output_octets: usize,
    /// Octets of the buffers that those parts hold.
    pub(crate) output_memory: usize,
    /// Octets of the buffer that its record waits for; 0 if it does not wait.
    pub(crate) wanted: usize,
    /// Its peer holds its share of the memory.
    pub(crate) is_over_share: bool,
    /// Octets moved in either direction since its peer's account was settled.
    pub(crate) moved: u64,
    /// Octets of the first part that were sent.
    pub(crate) sent: usize,
    /// Calls of the peer whose reply was not sent yet, and calls of ours without a reply.
    pub(crate) calls: u32,
    pub(crate) own_calls: u32,
    /// It is in `unsent`.
    pub(crate) queued: bool,
    /// It is not read, because its peer used more time than others.
    pub(crate) is_put_off: bool,
    /// It is in `resumable`.
    pub(crate) is_resumable: bool,
    /// The events that it waits for, and the events that epoll watches.
    pub(crate) interest: epoll::EventFlags,
    pub(crate) watched: epoll::EventFlags,
    /// Its socket is read directly, without epoll.
    pub(crate) is_hot: bool,
    pub(crate) role: Role,
    /// TLS, from the probe on, in this process.
    pub(crate) tls: Option<Box<StreamTls>>,
    /// TLS in the kernel, once that took the session over.
    pub(crate) kernel_tls: Option<Box<KernelSession>>,
    /// Its first record has arrived completely.
    pub(crate) has_called: bool,
    /// Octets of the first record at which it gets more time for the rest.
    pub(crate) first_due: usize,
    /// The app was notified that it has no TLS.
    pub(crate) is_clear_told: bool,
    /// The peer has closed its side. Its calls are still answered.
    pub(crate) ended: bool,
    pub(crate) dead: bool,
}

/// Our role: which end connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The peer.
    Responder,
    /// We are connecting.
    Connecting,
    /// We connected.
    Requester,
}

impl Stream {
    /// Returns true if no more of its calls are taken for the moment; `fair` is the number of parts
    /// that it may have waiting.
    pub(crate) fn is_full(&self, fair: usize) -> bool {
        self.is_clogged()
            || self.is_over_share
            || self.calls >= CALLS_MAX
            || self.output.len() >= fair
    }

    /// Returns true for a peer that connected, has called nothing, and was not called either.
    pub(crate) fn is_silent(&self) -> bool {
        self.role == Role::Responder && !self.has_called && self.own_calls == 0
    }

    /// Returns true if too much output waits to be sent.
    pub(crate) fn is_clogged(&self) -> bool {
        self.output.len() >= OUTPUT_MAX || self.output_octets >= OUTPUT_OCTETS_MAX
    }

    /// Returns true if the connection is finished.
    pub(crate) fn is_over(&self) -> bool {
        self.dead || self.ended && !self.has_output() && self.calls == 0 && self.pending.is_none()
    }

    /// Returns true if output waits to be sent, now or later.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || self.wants_send()
    }

    /// Returns true if the socket accepted less than there is to send.
    pub(crate) fn is_refused(&self) -> bool {
        self.role != Role::Connecting && self.interest.contains(epoll::EventFlags::OUT)
    }

    /// Returns true if octets of the peer are read as they arrive.
    pub(crate) fn is_read(&self) -> bool {
        self.interest.contains(epoll::EventFlags::IN)
    }

    /// Octets of our memory that wait for the peer: unsent output that it does not take, together
    /// with input read after that, or a record that it has not completed. Memory that waits for our
    /// app or for memory of ours, or was never offered to the socket, is not the peer's fault.
    pub(crate) fn held(&self) -> u64 {
        let is_refused = self.is_refused();
        let is_read = self.is_read();
        let output = if is_refused { self.output_memory + self.sealed() } else { 0 };
        let input = [
            self.record.as_ref().filter(|_| is_read || is_refused),
            self.pending.as_ref().filter(|_| is_refused),
        ];
        (output + input.into_iter().flatten().map(Buf::capacity).sum::<usize>()) as u64
    }
}

impl Streams {
    /// Room for the connections of a shard with this configuration.
    pub(crate) fn new(config: &Config) -> io::Result<Self> {
        let (connections, [messages, ..]) = (config.streams, config.slots);
        let has_tls = config.serve_tls.is_some() || config.call_tls.is_some();
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            connections: Table::new(connections),
            staging: vec![0; STAGING_LEN],
            cipher: vec![0; if has_tls { CIPHER_LEN } else { 0 }],
            requires_tls: config.serve_tls.as_ref().is_some_and(|tls| tls.is_required()),
            secure_at: None,
            handshakes: Handshakes::new(connections),
            silent: SilentPeers::new(connections, config.first_call_within),
            unsent: VecDeque::with_capacity(connections),
            resumable: VecDeque::with_capacity(connections),
            ready: Vec::with_capacity(GATHER),
            looks: Looks::default(),
            has_called: false,
            accept_at: None,
            is_short: false,
            is_stopping: false,
            parts: 0,
            crowd: messages / OUTPUT_PART,
            stats: StreamStats::default(),
        })
    }

    pub(crate) fn listen(
        &mut self,
        at: SocketAddr,
        shared: bool,
        steering: Option<&Steering>,
    ) -> io::Result<SocketAddr> {
        let listener = socket::listening(at, shared)?;
        steering.map_or(Ok(()), |steering| steering.set(listener.as_fd()))?;
        self.listen_by(listener)
    }

    /// Listens on a non-blocking listening socket.
    pub(crate) fn listen_by(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        let at = listener.local_addr()?;
        epoll::add(
            &self.epoll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            epoll::EventFlags::IN,
        )?;
        self.listener = Some(listener);
        Ok(at)
    }

    /// Accepts no more connections and no more calls.
    pub(crate) fn stop(&mut self) {
        self.listener = None;
        self.is_stopping = true;
    }

    /// Pauses or resumes taking calls; the listener stays.
    pub(crate) const fn pause(&mut self, pauses: bool) {
        self.is_stopping = pauses;
    }

    /// Returns true if a reply was not sent yet.
    pub(crate) fn has_output(&self) -> bool {
        self.connections.iter().any(|(_, stream)| stream.has_output())
    }

    /// Returns true if there is any listener or connection.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.listener.is_some() || !self.connections.is_empty()
    }

    /// Returns true if there is no connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Closes our side of all connections: no more replies will follow.
    pub(crate) fn say_end(&mut self) {
        for (_, stream) in self.connections.iter_mut() {
            stream.close_session();
            // A broken connection will be noticed elsewhere.
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

    pub(crate) fn queue(&mut self, key: Key) {
        if let Some(stream) = self.connections.get_mut(key)
            && !stream.queued
        {
            stream.queued = true;
            self.unsent.push_back(key);
        }
    }

    /// Accepts a connection. None if there is none that can be accepted.
    pub(crate) fn accept(&mut self, now: Time) -> Option<(TcpStream, SocketAddr)> {
        match self.listener.as_ref()?.accept() {
            Ok((socket, from)) => {
                socket::tune_accepted(&socket, from);
                Some((socket, from))
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    // No descriptor, no memory, or a peer that is gone already: the socket stays
                    // readable, so pause.
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                    self.is_short = matches!(
                        errno,
                        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
                    );
                    self.watch_listener(epoll::EventFlags::empty());
                }
                None
            }
        }
    }

    /// Ends the listener's pause when it is due.
    pub(crate) fn wake_listener(&mut self, now: Time) {
        if self.accept_at.is_some_and(|at| now >= at) {
            self.accept_at = None;
            self.watch_listener(epoll::EventFlags::IN);
        }
    }

    pub(crate) fn watch_listener(&self, interest: epoll::EventFlags) {
        if let Some(listener) = &self.listener {
            // It was added with the same descriptor, so this cannot fail.
            let _ =
                epoll::modify(&self.epoll, listener, epoll::EventData::new_u64(LISTENER), interest);
        }
    }

    /// Returns the time of the next look if nothing arrives before.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let dues = [self.handshakes.due_at(), self.silent.due_at()];
        [self.accept_at, self.secure_at].into_iter().chain(dues).flatten().min()
    }

    pub(crate) fn add(
        &mut self,
        socket: TcpStream,
        payload_max: usize,
        role: Role,
    ) -> io::Result<Option<Key>> {
        socket::tune(&socket)?;
        // A connection becomes writable when it is established, and when it has failed.
        let interest =
            if role == Role::Connecting { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
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
            is_put_off: false,
            is_resumable: false,
            interest,
            watched: interest,
            is_hot: false,
            role,
            tls: None,
            kernel_tls: None,
            has_called: false,
            first_due: 1,
            is_clear_told: false,
            ended: false,
            dead: false,
        };
        let Ok(key) = self.connections.insert(stream) else { return Ok(None) };
        let data = epoll::EventData::new_u64(key.to_bits());
        let add = |stream: &Stream| epoll::add(&self.epoll, &stream.socket, data, interest);
        if let Some(Err(error)) = self.connections.get(key).map(add) {
            drop(self.connections.remove(key));
            return Err(error.into());
        }
        Ok(Some(key))
    }

    /// Starts to connect to a server, from a reserved port if `reserved` is set.
    pub(crate) fn connect(
        &mut self,
        to: SocketAddr,
        reserved: bool,
        payload_max: usize,
    ) -> io::Result<Option<Key>> {
        let socket = socket::connecting(to, reserved)?;
        self.has_called = true;
        self.add(socket, payload_max, Role::Connecting)
    }

    /// Returns true if the peer of this connection takes one more call, of at most `most` at once.
    /// Otherwise a reply, or the establishment of the connection, triggers the next attempt.
    pub(crate) fn takes_calls(&self, key: Key, most: u32) -> bool {
        let open = |stream: &Stream| {
            stream.role != Role::Connecting
                && !(stream.dead || stream.ended || stream.is_securing())
                && (!self.requires_tls || stream.is_secured() || stream.role == Role::Requester)
        };
        let takes = |stream: &Stream| open(stream) && stream.own_calls < most.min(CALLS_MAX);
        self.connections.get(key).is_some_and(takes)
    }

    /// Returns true if too much output waits on this connection.
    pub(crate) fn is_clogged(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(Stream::is_clogged)
    }

    /// Sets the peer of the connection.
    pub(crate) fn name(&mut self, key: Key, peer: PeerId) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.peer = Some(peer);
        }
    }

    /// Forgets a connection.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Stream> {
        let stream = self.connections.remove(key)?;
        debug_assert!(stream.output.len() <= self.parts, "parts that wait are counted");
        self.parts -= stream.output.len();
        Some(stream)
    }

    /// Sets the events that the connection waits for: input unless it has too many calls, and room
    /// if there is output.
    pub(crate) fn set_interest(&mut self, key: Key) {
        let fair = self.fair_output();
        let Some(stream) = self.connections.get_mut(key) else { return };
        let is_full = stream.role == Role::Responder && stream.is_full(fair);
        let goes_on = match &stream.pending {
            Some(_) => !stream.is_full(fair),
            None => stream.has_more() && !is_full && stream.wanted == 0 && !stream.awaits_turn(),
        };
        // Whatever the socket reports, it is checked when its turn may have come.
        if (goes_on || stream.is_put_off) && !std::mem::replace(&mut stream.is_resumable, true) {
            self.resumable.push_back(key);
        }
        let mut interest = epoll::EventFlags::empty();
        let is_its_turn = !stream.awaits_turn() && !stream.is_put_off;
        let reads =
            is_its_turn && (stream.role != Role::Responder || !is_full && stream.pending.is_none());
        interest.set(epoll::EventFlags::IN, reads && !stream.ended && stream.wanted == 0);
        interest.set(epoll::EventFlags::OUT, stream.wants_send());
        stream.interest = interest;
        self.watch(key);
    }

    /// Has epoll watch a connection for its events, except for input that is read directly.
    pub(crate) fn watch(&mut self, key: Key) {
        let Some(stream) = self.connections.get_mut(key) else { return };
        let mut watched = stream.interest;
        watched.set(epoll::EventFlags::IN, stream.is_read() && !stream.is_hot);
        if watched != stream.watched {
            stream.watched = watched;
            self.stats.watches += 1;
            let data = epoll::EventData::new_u64(key.to_bits());
            if epoll::modify(&self.epoll, &stream.socket, data, watched).is_err() {
                stream.dead = true;
                self.queue(key);
            }
        }
    }
}
