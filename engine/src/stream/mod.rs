//! RPC over TCP into the same app (DESIGN D16; RFC 5531 §11).
//!
//! It goes both ways: whoever connected, both ends may call. A record says by itself whether it is
//! a call or a reply.
//!
//! Sockets are read into one staging buffer of the shard. A record that arrives whole is handed
//! over where it lies; a longer one is gathered in a buffer of the pool. Replies leave by gathering
//! writes, at most once per pass and connection.

mod input;
mod looks;
mod output;
mod socket;
mod table;

use input::{Source, gather};
pub(crate) use table::Streams;
use table::{Role, Stream};

use crate::{
    account::SMALL_MAX,
    app::{App, ConnectLimit, Over, PeerId},
    item::Pulled,
    memory::Lane,
    peer::{Link, Sender},
    responder::Wait,
    shard::Shard,
};
use rustix::{event::epoll, net::sockopt};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{MessageType, record},
    rpcrdma::Side,
    xdr::Reader,
};
use stag_verbs::{Cause, FabricFault, PeerAddress, Provider, Time};
use std::{
    io::{self, Read},
    net::SocketAddr,
    time::Duration,
};

/// Octets read at a time, for all connections together.
const STAGING_LEN: usize = 256 << 10;
/// Parts, and octets, of replies that wait to be sent before a connection is no longer read: a
/// caller that does not take its replies must not hold the buffers of everybody.
const OUTPUT_MAX: usize = 128;
const OUTPUT_OCTETS_MAX: usize = 4 << 20;
/// One part in so many of the message slots may be parts of replies that wait to be sent, on all
/// connections together.
const OUTPUT_PART: usize = 4;
/// Parts of replies sent at once.
const GATHER: usize = 64;
/// Calls of one connection in progress before it is no longer read.
const CALLS_MAX: u32 = 128;
/// The time for which the listener rests when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections taken per pass.
const ACCEPTS_PER_PASS: usize = 16;
/// Reads of one connection per pass, so that one cannot starve the others.
const READS_PER_PASS: usize = 4;

/// Stands for the listener where a connection has its key.
const LISTENER: u64 = u64::MAX;

/// The outcome of one look at a socket.
enum Look {
    /// Something came, and there may be more.
    More,
    /// Something came, and nothing is behind it.
    Last,
    /// Nothing came, or nothing may be read.
    Empty,
    Closed(Cause),
}

impl<P: Provider, A: App> Shard<P, A> {
    fn accept_streams(&mut self, now: Time) {
        for _ in 0..ACCEPTS_PER_PASS {
            let Some((socket, from)) = self.streams.accept(now) else {
                if std::mem::take(&mut self.streams.is_short) {
                    self.tell_refused(None, Over::Tcp, ConnectLimit::Descriptors);
                }
                return;
            };
            let address = PeerAddress::Ip(from);
            if !self.admits_stream(address) {
                self.core.counters.stats.connections.refused += 1;
                self.tell_stopping(address, Over::Tcp);
                continue;
            }
            let key = match self.streams.add(
                socket,
                self.core.config.payload_max as usize,
                Role::Responder,
            ) {
                Ok(Some(key)) => key,
                Ok(None) => {
                    self.core.counters.stats.limits.peers += 1;
                    self.tell_refused(Some(address), Over::Tcp, ConnectLimit::Peers);
                    continue;
                }
                Err(_) => continue,
            };
            let Some(peer) = self.add_peer(Side::Server, Link::Stream(key), address, 0) else {
                self.core.counters.stats.limits.peers += 1;
                self.tell_refused(Some(address), Over::Tcp, ConnectLimit::Peers);
                drop(self.streams.remove(key));
                continue;
            };
            self.core.counters.stats.connections.tcp += 1;
            self.streams.name(key, peer);
            if let Some(entry) = self.core.peers.get_mut(peer) {
                entry.set_up();
            }
            self.app.on_peer_up(&mut crate::app::Cx::new(&mut self.core, &mut self.provider), peer);
            self.empty_outbox();
        }
    }

    /// Connects to a server over TCP. [`App::on_peer_up`] or [`App::on_peer_down`] follows; calls
    /// may be made at once, and work as over the fabric, but that items always travel inline.
    pub fn connect_tcp(&mut self, to: SocketAddr) -> Result<PeerId, FabricFault> {
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
        if stream.role != Role::Connecting {
            self.read_stream(key);
            self.streams.queue(key);
            // Nothing can be sent any more: whoever is owed a reply is gone.
            if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                self.end_stream(key, Cause::Fabric(FabricFault::Lost));
            }
            return;
        }
        match sockopt::socket_error(&stream.socket) {
            Ok(Ok(())) => {
                stream.role = Role::Requester;
                let peer = stream.peer;
                self.streams.queue(key);
                if let Some(peer) = peer {
                    if let Some(entry) = self.core.peers.get_mut(peer) {
                        entry.set_up();
                    }
                    self.app.on_peer_up(
                        &mut crate::app::Cx::new(&mut self.core, &mut self.provider),
                        peer,
                    );
                    self.empty_outbox();
                    self.start_waiting(peer);
                }
            }
            Ok(Err(error)) | Err(error) => {
                self.end_stream(key, Cause::Fabric(FabricFault::from(&io::Error::from(error))));
            }
        }
    }

    /// Reads what arrived on a connection. True when anything did.
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
            self.streams.queue(key);
        }
        found
    }

    /// Goes on with what was read before.
    fn resume(&mut self, key: Key) {
        let Some(mut pending) =
            self.streams.connections.get_mut(key).and_then(|stream| stream.pending.take())
        else {
            return;
        };
        let mut input = &pending[..];
        let taken = self.take_records(key, &mut input);
        let rest = input.len();
        if let Err(cause) = taken {
            self.end_stream(key, cause);
        } else if rest > 0 {
            // In the same buffer: there may be no other one.
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
        let room = match self.room_to_read(key) {
            Ok(room) => room,
            Err(look) => return look,
        };
        let most = room.min(staging.len());
        let staging = staging.split_at_mut(most).0;
        let Some(stream) = self.streams.connections.get_mut(key) else { return Look::Empty };
        self.streams.stats.receives += 1;
        let is_stopping = self.streams.is_stopping && stream.role == Role::Responder;
        let len = match (&stream.socket).read(staging) {
            Ok(0) if stream.role == Role::Responder => {
                stream.ended = true;
                return Look::Last;
            }
            Ok(0) => return Look::Closed(Cause::Peer),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Look::More,
            Err(error) => return Look::Closed(Cause::Fabric(FabricFault::from(&error))),
        };
        stream.moved += len as u64;
        self.streams.stats.received += len as u64;
        if is_stopping {
            // Read and dropped, so that closing does not reset the connection under the last reply.
            return Look::More;
        }
        let mut input = staging.get(..len).unwrap_or_default();
        let whole = len == staging.len();
        match self.take_records(key, &mut input).and_then(|()| self.keep_pending(key, input)) {
            Ok(()) if whole => Look::More,
            Ok(()) => Look::Last,
            Err(cause) => Look::Closed(cause),
        }
    }

    /// Keeps what was read and cannot be looked at yet.
    fn keep_pending(&mut self, key: Key, input: &[u8]) -> Result<(), Cause> {
        let lane = self.lane_of(key);
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        if input.is_empty() || stream.dead {
            return Ok(());
        }
        let exhausted = Cause::Fabric(FabricFault::Exhausted);
        let source = Source { memory: &self.core.memory, lane };
        let mut pending = source.borrow(input.len()).ok_or(exhausted)?;
        pending.append(input).map_err(|_| exhausted)?;
        stream.pending = Some(pending);
        Ok(())
    }

    /// Cuts the stream into records and hands each over when it is whole. Something is left when no
    /// more calls are taken.
    fn take_records(&mut self, key: Key, input: &mut &[u8]) -> Result<(), Cause> {
        loop {
            let fair = self.streams.fair_output();
            let lane = self.lane_of(key);
            let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
            if stream.dead {
                return Ok(());
            }
            if stream.role == Role::Responder && stream.is_full(fair) && !input.is_empty() {
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
                    gather(stream, Source { memory: &self.core.memory, lane }, octets, at)?;
                }
                record::Step::Complete(len) => {
                    let record = stream.record.take();
                    let octets =
                        record.as_deref().and_then(|record| record.get(..len)).unwrap_or_default();
                    self.take_record(key, octets)?;
                }
            }
        }
    }

    fn take_record(&mut self, key: Key, record: &[u8]) -> Result<(), Cause> {
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        let Some(peer) = stream.peer else { return Ok(()) };
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
            // Nobody can be answered without an XID, and nobody here calls or serves: no RPC is
            // spoken.
            _ => return Err(Cause::Handshake),
        };
        if stream.calls >= CALLS_MAX {
            // Only who connected gets here: it goes on reading, for replies, and a server has to
            // know a limit by itself.
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
        self.core.watch.begin_at_once(call, self.core.now);
        self.hand_over(call, Sender { peer, address }, reader, Pulled::default());
        Ok(())
    }

    /// Sends what the pass produced. True when something was sent.
    #[inline(never)]
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
            let works = self.streams.flush(key);
            let Some(stream) = self.streams.connections.get(key) else { continue };
            if !works || stream.is_over() {
                let cause = match (works, stream.dead) {
                    (false, _) => Cause::Fabric(FabricFault::Lost),
                    (true, true) => Cause::Local,
                    (true, false) => Cause::Peer,
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
        let Some(stream) = self.streams.remove(key) else { return };
        if let Some(peer) = stream.peer {
            self.handle_connection_end(peer, cause);
        }
    }
}

// Memory of records and replies, as the peer's account has it (RFC 5531 §11 sets no limit to a
// record).
impl<P: Provider, A: App> Shard<P, A> {
    /// Octets that may be read from a connection, so that there is memory for them whatever they
    /// are. Fails when its record needs a longer buffer, for which the connection then waits.
    fn room_to_read(&mut self, key: Key) -> Result<usize, Look> {
        let lane = self.lane_of(key);
        let stream = self.streams.connections.get_mut(key).ok_or(Look::Empty)?;
        let Some(record) = &stream.record else {
            return Ok(self.core.memory.longest(lane).max(SMALL_MAX));
        };
        if record.spare_len() > 0 {
            return Ok(record.spare_len());
        }
        let peer = stream.peer.ok_or(Look::Empty)?;
        let wanted = record.len() + 1;
        stream.wanted = wanted;
        if wanted > self.core.memory.slot_max() {
            return Err(Look::Closed(Cause::Fabric(FabricFault::Exhausted)));
        }
        if !self.core.is_awaited(lane) && self.lengthen_record(peer).is_ok() {
            let record =
                self.streams.connections.get(key).and_then(|stream| stream.record.as_ref());
            return record.map(Buf::spare_len).ok_or(Look::Empty);
        }
        self.core.counters.stats.limits.memory += 1;
        self.core.set_wait(peer, Wait::Memory(wanted));
        self.streams.queue(key);
        Err(Look::Empty)
    }

    /// Moves the record of a TCP connection that waits for a longer buffer to one. Fails with the
    /// octets that it waits for when there is none.
    pub(crate) fn lengthen_record(&mut self, peer: PeerId) -> Result<(), usize> {
        let Some(Link::Stream(key)) = self.core.peers.get(peer).map(|entry| &entry.link) else {
            return Ok(());
        };
        let key = *key;
        let lane = self.lane_of(key);
        let Some(stream) = self.streams.connections.get_mut(key).filter(|stream| stream.wanted > 0)
        else {
            return Ok(());
        };
        let mut longer = self.core.memory.lend(stream.wanted, lane).ok_or(stream.wanted)?;
        longer.reset(0);
        if let Some(shorter) = stream.record.take() {
            longer.append(&shorter).expect("it is longer");
        }
        (stream.record, stream.wanted) = (Some(longer), 0);
        self.streams.queue(key);
        Ok(())
    }

    /// The part of the memory that serves a connection. Replies to our own calls are not for others
    /// to delay.
    fn lane_of(&self, key: Key) -> Lane {
        match self.streams.connections.get(key) {
            Some(Stream { role: Role::Responder, peer: Some(peer), .. }) => self.core.lane(*peer),
            _ => Lane::Proven,
        }
    }

    /// Brings the account of a connection's peer to what it holds and to what moved.
    fn settle_stream(&mut self, key: Key) {
        let (now, share) = (self.core.now, self.core.memory.share());
        let Some(stream) = self.streams.connections.get_mut(key) else { return };
        let Some(entry) = stream.peer.and_then(|peer| self.core.peers.get_mut(peer)) else {
            return;
        };
        // First, for what moved before the peer began to hold something shows nothing about that.
        let moved = std::mem::take(&mut stream.moved);
        entry.served.count_octets(moved);
        let account = entry.served.account();
        account.settle(now);
        account.earn(moved, share);
        account.hold_in_all(stream.held(), now);
        // A record alone is never too much: only reading ends it.
        let is_over_share = stream.is_refused() && !account.allows(0, share);
        if std::mem::replace(&mut stream.is_over_share, is_over_share) != is_over_share {
            self.core.counters.stats.limits.share += u64::from(is_over_share);
            self.streams.set_interest(key);
        }
    }
}
