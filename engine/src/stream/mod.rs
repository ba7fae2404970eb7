//! RPC over TCP into the same app (DESIGN D16; RFC 5531 §11).
//!
//! Both ends may call, whichever of them connected: each record is marked as a call or a reply.
//!
//! Sockets are read into one staging buffer of the shard. A record that arrives completely is
//! handled in place; a longer one is gathered in a buffer of the pool. Replies are sent by
//! gathering writes, at most once per pass and connection. The connections themselves are in `tcp`.

mod input;
mod kernel_tls;
mod looks;
mod silent;
mod tls;

use self::input::Record;
use crate::{
    app::{App, ConnectLimit, Over, PeerId},
    gss::asks_for_protection,
    item::Pulled,
    shard::Shard,
    state::{Link, Sender},
    tcp::{CALLS_MAX, CallSecurity, Role, Source, Stream, gather},
};
use rustix::{event::epoll, net::sockopt};
use stag_pools::table::Key;
use stag_protocol::{
    rpc::{MessageType, record},
    rpcrdma::Side,
    xdr::Reader,
};
use stag_verbs::{Cause, FabricFault, PeerAddress, Provider, Time};
use std::{
    io::{self, Read},
    net::{SocketAddr, TcpStream},
};

/// Connections accepted per pass.
const ACCEPTS_PER_PASS: usize = 16;
/// Reads of one connection per pass, so that one cannot starve the others.
const READS_PER_PASS: usize = 4;

/// The result of one look at a socket.
enum Look {
    /// Octets came, and there may be more.
    More,
    /// Octets came, and there are no more.
    Last,
    /// Nothing came, or nothing may be read.
    Empty,
    Closed(Cause),
}

impl<P: Provider, A: App> Shard<P, A> {
    fn accept_streams(&mut self, now: Time) {
        self.core.begin_work();
        for _ in 0..ACCEPTS_PER_PASS {
            if self.core.must_passers_wait() {
                return;
            }
            let Some((socket, from)) = self.streams.accept(now) else {
                if std::mem::take(&mut self.streams.is_short) {
                    self.tell_refused(None, Over::Tcp, ConnectLimit::Descriptors);
                }
                return;
            };
            self.take_stream(now, socket, from);
            self.core.charge_passers();
        }
    }

    fn take_stream(&mut self, now: Time, socket: TcpStream, from: SocketAddr) {
        let address = PeerAddress::Ip(from);
        if !self.admits_stream(address) {
            self.core.counters.stats.connections.refused += 1;
            return self.tell_stopping(address, Over::Tcp);
        }
        self.make_room_for_stream();
        let payload_max = self.core.config.payload_max as usize;
        let key = match self.streams.add(socket, payload_max, Role::Responder) {
            Ok(Some(key)) => key,
            Ok(None) => {
                self.core.counters.stats.limits.peers += 1;
                return self.tell_refused(Some(address), Over::Tcp, ConnectLimit::Peers);
            }
            Err(_) => return,
        };
        let Some(peer) = self.add_peer(Side::Server, Link::Stream(key), address, 0) else {
            self.core.counters.stats.limits.peers += 1;
            self.tell_refused(Some(address), Over::Tcp, ConnectLimit::Peers);
            return drop(self.streams.remove(key));
        };
        self.core.counters.stats.connections.tcp += 1;
        self.streams.name(key, peer);
        self.streams.await_first_call(key, now);
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.set_up();
        }
        self.app.on_peer_up(&mut crate::app::Cx::new(&mut self.core, &mut self.provider), peer);
        self.empty_outbox();
    }

    /// Connects to a server over TCP. [`App::on_peer_up`] or [`App::on_peer_down`] follows; calls
    /// may be made before that. They work as over the fabric, except that items always travel
    /// inline.
    pub fn connect_tcp(&mut self, to: SocketAddr) -> Result<PeerId, FabricFault> {
        self.core.memory.keep_reply_room().map_err(|error| FabricFault::from(&error))?;
        self.core.is_quiet = false;
        let (payload_max, reserved) =
            (self.core.config.payload_max as usize, self.core.config.reserved_port);
        let key = self.streams.connect(to, reserved, payload_max);
        let key = key.map_err(|error| FabricFault::from(&error))?;
        let key = key.ok_or(FabricFault::Exhausted)?;
        let Some(peer) = self.add_peer(Side::Client, Link::Stream(key), PeerAddress::Ip(to), 0)
        else {
            drop(self.streams.remove(key));
            return Err(FabricFault::Exhausted);
        };
        self.streams.name(key, peer);
        Ok(peer)
    }

    fn handle_ready(&mut self, key: Key, flags: epoll::EventFlags) {
        let Some(stream) = self.streams.connections.get_mut(key) else { return };
        if stream.role != Role::Connecting || stream.tls.is_some() {
            self.read_stream(key);
            self.streams.queue(key);
            // Nothing can be sent any more: no reply can reach the peer.
            if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                self.end_stream(key, Cause::Fabric(FabricFault::Lost));
            }
            return;
        }
        match sockopt::socket_error(&stream.socket) {
            Ok(Ok(())) => {
                // RFC 9289 §6.1.1 [9289-35]: where TLS is wanted, no call is sent without it
                if !self.probe_tls(key) {
                    self.begin_to_call(key);
                }
            }
            Ok(Err(error)) | Err(error) => {
                self.end_stream(key, Cause::Fabric(FabricFault::from(&io::Error::from(error))));
            }
        }
    }

    /// Makes a connection that we made available for calls.
    fn begin_to_call(&mut self, key: Key) {
        let Some(stream) = self.streams.connections.get_mut(key) else { return };
        stream.role = Role::Requester;
        let peer = stream.peer;
        self.streams.queue(key);
        let Some(peer) = peer else { return };
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.set_up();
        }
        self.app.on_peer_up(&mut crate::app::Cx::new(&mut self.core, &mut self.provider), peer);
        self.empty_outbox();
        self.start_waiting(peer);
    }

    /// Reads the input of a connection. Returns true if there was any.
    fn read_stream(&mut self, key: Key) -> bool {
        let mut staging = std::mem::take(&mut self.streams.staging);
        let mut found = false;
        for _ in 0..READS_PER_PASS {
            let look = self.look_at_stream(key, &mut staging);
            found |= !matches!(look, Look::Empty);
            match look {
                Look::More => {}
                Look::Last | Look::Empty => break,
                Look::Closed(cause) => {
                    self.end_stream(key, cause);
                    break;
                }
            }
        }
        self.streams.staging = staging;
        if found {
            self.charge_stream(key);
            self.streams.queue(key);
        }
        found
    }

    /// Returns true if no more calls of a connection are taken in this pass: its peer used more
    /// time than others that have work.
    fn must_wait(&mut self, key: Key) -> bool {
        if !self.core.turns.are_metered() || self.streams.is_stopping {
            return false;
        }
        let Some(stream) = self.streams.connections.get(key) else { return false };
        let is_served = stream.role == Role::Responder && !stream.dead && !stream.is_securing();
        let peer = stream.peer.filter(|_| is_served);
        peer.is_some_and(|peer| self.core.must_wait(peer))
    }

    /// Charges the peer of a connection for the time since the latest charge.
    fn charge_stream(&mut self, key: Key) {
        if self.core.turns.are_metered()
            && let Some(peer) = self.streams.connections.get(key).and_then(|stream| stream.peer)
        {
            self.core.charge(peer);
        }
    }

    /// Has a connection wait for its turn. It is checked in each pass, because octets that were
    /// read or have arrived already cause no event.
    fn put_off_stream(&mut self, key: Key) {
        if let Some(stream) = self.streams.connections.get_mut(key) {
            stream.is_put_off = true;
        }
        // The shard does not sleep while a connection waits for its turn.
        self.core.has_worked = true;
        self.streams.queue(key);
    }

    /// Continues a connection that can continue, or keeps it for the next pass.
    fn resume_or_wait(&mut self, key: Key) {
        if self.must_wait(key) {
            return self.streams.resumable.push_back(key);
        }
        let Some(stream) = self.streams.connections.get_mut(key) else { return };
        stream.is_resumable = false;
        if std::mem::take(&mut stream.is_put_off) {
            // Its socket is watched again, even if it has no input.
            self.streams.queue(key);
        }
        self.resume(key);
        self.charge_stream(key);
    }

    /// Continues with octets that were read before.
    fn resume(&mut self, key: Key) {
        let Some(mut pending) =
            self.streams.connections.get_mut(key).and_then(|stream| stream.pending.take())
        else {
            self.read_stream(key);
            return;
        };
        if self.drops_input(key) {
            self.streams.queue(key);
            return;
        }
        let mut input = &pending[..];
        let taken = self.take_records(key, &mut input);
        let rest = input.len();
        if let Err(cause) = taken {
            self.end_stream(key, cause);
        } else if rest > 0 {
            // In the same buffer, because there may be no other one.
            pending.trim_front(pending.len() - rest);
            if let Some(stream) = self.streams.connections.get_mut(key) {
                stream.pending = Some(pending);
            }
        }
        self.streams.queue(key);
    }

    fn look_at_stream(&mut self, key: Key, staging: &mut [u8]) -> Look {
        let fair = self.streams.fair_output();
        let Some(stream) = self.streams.connections.get(key) else { return Look::Empty };
        let is_full = stream.role == Role::Responder && stream.is_full(fair);
        if stream.dead || stream.ended || is_full || stream.pending.is_some() {
            return Look::Empty;
        }
        if self.must_wait(key) {
            self.put_off_stream(key);
            return Look::Empty;
        }
        let room = match self.room_to_read(key) {
            Ok(room) => room,
            Err(look) => return look,
        };
        let most = room.min(staging.len());
        let staging = staging.split_at_mut(most).0;
        let Some(stream) = self.streams.connections.get_mut(key) else { return Look::Empty };
        if stream.tls.is_some() {
            return self.look_at_session(key, staging);
        }
        self.streams.stats.receives += 1;
        let len = match (&stream.socket).read(staging) {
            Ok(0) => return self.end_of_input(key),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Look::More,
            Err(error) => return self.handle_read_fault(key, &error),
        };
        stream.moved += len as u64;
        self.streams.stats.received += len as u64;
        self.take_input(key, staging.get(..len).unwrap_or_default(), len == staging.len())
    }

    /// Handles the end of the peer's input. Its pending calls are still answered.
    fn end_of_input(&mut self, key: Key) -> Look {
        match self.streams.connections.get_mut(key) {
            Some(stream) if stream.role == Role::Responder => {
                stream.ended = true;
                Look::Last
            }
            _ => Look::Closed(Cause::Peer),
        }
    }

    /// Handles octets that were read; `whole` means that there may be more.
    fn take_input(&mut self, key: Key, mut input: &[u8], whole: bool) -> Look {
        if self.drops_input(key) {
            // Read and dropped, so that closing does not reset the connection under the last reply.
            return Look::More;
        }
        match self.take_records(key, &mut input).and_then(|()| self.keep_pending(key, input)) {
            Ok(()) if whole => Look::More,
            Ok(()) => Look::Last,
            Err(cause) => Look::Closed(cause),
        }
    }

    /// Returns true if no more calls of a connection are taken, as the shard stops. One that was
    /// read and not begun is not either: it might be executed when its reply cannot be sent any
    /// more.
    fn drops_input(&self, key: Key) -> bool {
        let is_responder = |stream: &Stream| stream.role == Role::Responder;
        self.streams.is_stopping && self.streams.connections.get(key).is_some_and(is_responder)
    }

    /// Keeps octets that were read and cannot be handled yet.
    fn keep_pending(&mut self, key: Key, input: &[u8]) -> Result<(), Cause> {
        let lane = self.lane_of(key);
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        if input.is_empty() || stream.dead {
            return Ok(());
        }
        let exhausted = Cause::Fabric(FabricFault::Exhausted);
        let is_server = stream.role != Role::Responder;
        let source = Source { memory: &self.core.memory, lane, is_server };
        let mut pending = source.borrow(input.len()).ok_or(exhausted)?;
        pending.append(input).map_err(|_| exhausted)?;
        stream.pending = Some(pending);
        Ok(())
    }

    /// Cuts the stream into records and handles each complete one. Octets are left over when no
    /// more calls are taken.
    fn take_records(&mut self, key: Key, input: &mut &[u8]) -> Result<(), Cause> {
        let mut count = 0;
        loop {
            let fair = self.streams.fair_output();
            let lane = self.lane_of(key);
            let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
            if stream.dead {
                return Ok(());
            }
            // RFC 9289 §5.1.1 [9289-26]: octets in the clear before the handshake are dropped
            if stream.is_securing() {
                return if input.is_empty() { Ok(()) } else { Err(self.refuse_injected(key)) };
            }
            if stream.role == Role::Responder && stream.is_full(fair) && !input.is_empty() {
                return Ok(());
            }
            if !input.is_empty() && (self.must_wait(key) || self.core.has_taken_long(count)) {
                // The rest is kept, and is continued like the rest of a full connection.
                return Ok(());
            }
            let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
            match stream.assembler.step(input).map_err(|_| Cause::Handshake)? {
                record::Step::More => return Ok(()),
                record::Step::Copy { octets, at } => {
                    // A record that is complete in the staging buffer is handled in place.
                    let mut ahead = stream.assembler.clone();
                    let mut rest = *input;
                    if at == 0
                        && let Ok(record::Step::Complete(len)) = ahead.step(&mut rest)
                        && len == octets.len()
                        && !self.core.opens_in_steps(octets, lane)
                    {
                        stream.assembler = ahead;
                        *input = rest;
                        self.take_record(key, Record::Staged(octets))?;
                        count += 1;
                        continue;
                    }
                    let is_server = stream.role != Role::Responder;
                    let source = Source { memory: &self.core.memory, lane, is_server };
                    gather(stream, source, octets, at)?;
                }
                record::Step::Complete(len) => {
                    let record = Record::gathered(stream.record.take(), len);
                    self.take_record(key, record)?;
                }
            }
        }
    }

    fn take_record(&mut self, key: Key, taken: Record<'_>) -> Result<(), Cause> {
        let record = taken.octets();
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        let Some(peer) = stream.peer else { return Ok(()) };
        stream.has_called = true;
        let reader = Reader::new(record);
        let serves = stream.role == Role::Responder || self.core.config.reverse_grant > 0;
        let calls = stream.role == Role::Requester || stream.own_calls > 0;
        let xid = match MessageType::peek(&reader) {
            Ok((xid, MessageType::Call)) if serves => xid,
            Ok((xid, MessageType::Reply)) if calls => {
                stream.own_calls = stream.own_calls.saturating_sub(1);
                self.handle_record(peer, xid, record);
                return Ok(());
            }
            // Not a call that we serve, nor a reply that we may await: the peer does not speak RPC,
            // and without an XID it cannot be answered.
            _ => return Err(Cause::Handshake),
        };
        let security = self.secure_call(key, xid, record)?;
        if matches!(security, CallSecurity::Start) {
            return Ok(());
        }
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        if stream.calls >= CALLS_MAX {
            // Only a peer that we connected to gets here: it is read on, for replies, and a server
            // has to respect a limit by itself.
            self.core.counters.stats.limits.calls += 1;
            return Err(Cause::Local);
        }
        stream.calls += 1;
        self.streams.stats.calls += 1;
        let Some(call) = self.core.responder.begin_whole(peer, xid, self.core.now) else {
            self.core.counters.stats.limits.calls += 1;
            return Err(Cause::Local);
        };
        let address = self.core.peers.get(peer).map_or(PeerAddress::Simulated, |peer| peer.address);
        if let CallSecurity::Deny(status) = security {
            self.deny(call, peer, xid, status);
            return Ok(());
        }
        self.core.watch.begin_at_once(call, self.core.now);
        self.core.note_caller(peer);
        let sender = Sender { peer, address };
        match taken {
            Record::Gathered(record) if asks_for_protection(&record) => {
                self.hand_over_owned(call, sender, record)
            }
            Record::Staged(_) | Record::Gathered(_) => {
                self.hand_over(call, sender, reader, Pulled::default())
            }
        }
        self.core.charge(peer);
        Ok(())
    }

    /// Sends the output of the pass. Returns true if anything was sent.
    #[inline(never)]
    pub(crate) fn flush_streams(&mut self) -> bool {
        let mut sent = false;
        for _ in 0..self.streams.unsent.len() {
            let Some(key) = self.streams.unsent.pop_front() else { break };
            let Some(stream) = self.streams.connections.get_mut(key) else { continue };
            stream.queued = false;
            if stream.role == Role::Connecting && !stream.dead && stream.tls.is_none() {
                continue;
            }
            sent |= stream.wants_send();
            let works = self.streams.flush(key);
            self.charge_stream(key);
            let Some(stream) = self.streams.connections.get(key) else { continue };
            if !works || stream.is_over() {
                let cause = match (works, stream.dead) {
                    (false, _) => Cause::Fabric(FabricFault::Lost),
                    (true, true) => Cause::Local,
                    (true, false) => stream.quiet_end(),
                };
                self.end_stream(key, cause);
            } else {
                self.streams.set_interest(key);
                self.settle_stream(key);
            }
        }
        if sent {
            self.streams.looks.note_moved(self.core.now);
        }
        self.core.counters.stats.stream = self.streams.stats;
        sent
    }

    fn end_stream(&mut self, key: Key, cause: Cause) {
        let Some(mut stream) = self.streams.remove(key) else { return };
        stream.close_session();
        if let Some(peer) = stream.peer {
            self.handle_connection_end(peer, cause);
        }
        // Including its earlier time, if that was not charged yet: no other client caused it.
        self.core.charge_passers();
    }
}
