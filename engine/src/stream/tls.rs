//! TLS on a TCP connection (RFC 9289): the probe in the clear, the handshake, and established
//! sessions.
//!
//! A client requests TLS by a call of NULL with the flavor AUTH_TLS. The probe and its reply are
//! written to the socket directly, bypassing the output queue: no other call may be pending, and
//! anything queued later is sent inside the session. Octets in the clear after the probe end the
//! connection: an attacker on the path may have injected them.

use super::{
    GATHER, Look,
    handshakes::{COST_MIN, processor_time},
    probe::{CallSecurity, NO_TLS, PROBE_MAX, emit_probe, emit_reply, judge, judge_reply},
    table::{Role, Stream, Streams},
};
use crate::{
    app::{App, Cx, PeerId, PeerSecurity},
    shard::Shard,
    stats::StreamStats,
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::Xid;
use stag_tls::{SEALED_MAX, SessionKeys, TlsError, TlsSession};
use stag_verbs::{Cause, PeerAddress, Provider, Time};
use std::{
    io::{self, IoSlice, Read, Write},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// Octets of ciphertext read at a time, for all connections together.
pub(super) const CIPHER_LEN: usize = 64 << 10;
/// The time limit of a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// TLS of a connection, from the probe on.
#[derive(Debug)]
pub(super) struct StreamTls {
    session: TlsSession,
    step: TlsStep,
    /// The time at which a session that is not established is abandoned.
    until: Time,
    /// Its handshake has something to read, and waits for its turn since then.
    waits_since: Option<Time>,
}

/// Step of the negotiation.
#[derive(Debug, PartialEq, Eq)]
enum TlsStep {
    /// We connected, and await the reply to our probe; `len` of its octets have come.
    AwaitReply { octets: [u8; PROBE_MAX], len: usize },
    /// The handshake is in progress.
    AwaitHandshake,
    /// The session is established.
    Established,
}

impl Stream {
    /// Returns true between the probe and the establishment of the session.
    pub(super) fn is_securing(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.step != TlsStep::Established)
    }

    /// Returns true if its handshake waits for its turn.
    pub(super) fn awaits_turn(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.waits_since.is_some())
    }

    /// Returns true if the session has octets for which the socket raises no event.
    pub(super) fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.has_more())
    }

    /// Returns true if output waits to be sent and may be sent.
    pub(super) fn wants_send(&self) -> bool {
        match &self.tls {
            None => !self.output.is_empty(),
            Some(tls) => {
                tls.wants_send() || tls.step == TlsStep::Established && !self.output.is_empty()
            }
        }
    }

    /// Upper bound of our encrypted octets that wait for the peer.
    pub(super) fn sealed(&self) -> usize {
        if self.tls.as_ref().is_some_and(|tls| tls.wants_send()) { SEALED_MAX } else { 0 }
    }

    /// Sends a closure alert, if the socket accepts it.
    pub(super) fn close_session(&mut self) {
        if let Some(tls) = &mut self.tls
            && tls.step == TlsStep::Established
        {
            tls.session.close();
            let _ = tls.session.send(&mut &self.socket);
        }
        self.close_kernel_session();
    }
}

impl StreamTls {
    /// Returns true if the session has no octets left that the peer or we have not received.
    pub(super) fn is_empty(&self) -> bool {
        !self.session.wants_send() && !self.session.has_more()
    }

    /// Ends the session here, so that the kernel can continue it.
    pub(super) fn into_keys(self) -> Result<SessionKeys, TlsError> {
        self.session.into_keys()
    }

    fn wants_send(&self) -> bool {
        // The first octets of a session wait for the reply to the probe.
        !matches!(self.step, TlsStep::AwaitReply { .. }) && self.session.wants_send()
    }
}

impl Streams {
    /// Sends the output of one connection with TLS, as far as its socket accepts it. Returns false
    /// if the connection is broken.
    pub(super) fn send_secured(stream: &mut Stream, stats: &mut StreamStats) -> bool {
        loop {
            let Some(tls) = &mut stream.tls else { return true };
            while tls.wants_send() {
                stats.sends += 1;
                match tls.session.send(&mut &stream.socket) {
                    Ok(sent) => {
                        stats.sent += sent as u64;
                        stream.moved += sent as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
            if tls.step != TlsStep::Established || stream.output.is_empty() {
                return true;
            }
            let mut slices = [IoSlice::new(&[]); GATHER];
            let mut skip = stream.sent;
            for (slice, part) in slices.iter_mut().zip(&stream.output) {
                *slice = IoSlice::new(part.octets().get(skip..).unwrap_or_default());
                skip = 0;
            }
            let count = stream.output.len().min(GATHER);
            let parts = stream.output.len();
            let taken = tls.session.encrypt(slices.get(..count).unwrap_or_default());
            Self::forget(stream, taken);
            if taken == 0 && stream.output.len() == parts {
                return false;
            }
        }
    }

    /// Starts a session on a connection, with a time limit for its handshake.
    fn secure(&mut self, key: Key, session: TlsSession, step: TlsStep, now: Time) {
        let until = now + HANDSHAKE_TIME;
        if self.secure_at.is_none() {
            let calls = self.calls_of_others();
            self.handshakes.begin(calls);
        }
        if let Some(stream) = self.connections.get_mut(key) {
            stream.tls = Some(Box::new(StreamTls { session, step, until, waits_since: None }));
        }
        self.secure_at = Some(self.secure_at.map_or(until, |at| at.min(until)));
        self.queue(key);
    }

    /// Calls that were served, TLS probes not counted.
    const fn calls_of_others(&self) -> u64 {
        self.stats.calls.saturating_sub(self.handshakes.probes())
    }

    /// Has a handshake that has something to read wait for its turn.
    fn await_turn(&mut self, key: Key, from: IpAddr, now: Time) {
        let connections = &self.connections;
        self.handshakes.wait(key, from, |key| connections.get(key).is_some());
        if let Some(tls) = self.connections.get_mut(key).and_then(|stream| stream.tls.as_mut()) {
            tls.waits_since = Some(now);
        }
        self.set_interest(key);
    }

    /// The connection whose handshake continues in this pass. The time that it waited for us is not
    /// counted against it.
    pub(super) fn next_handshake(&mut self, now: Time, is_fabric_busy: bool) -> Option<Key> {
        self.secure_at?;
        let calls = self.calls_of_others();
        self.handshakes.note_calls(now, calls, is_fabric_busy);
        let connections = &self.connections;
        let key = self.handshakes.next_turn(now, |key| connections.get(key).is_some())?;
        let tls = self.connections.get_mut(key).and_then(|stream| stream.tls.as_mut())?;
        if let Some(since) = tls.waits_since.take() {
            tls.until = tls.until + now.since(since);
            self.secure_at = self.secure_at.map(|at| at.min(tls.until));
        }
        self.set_interest(key);
        Some(key)
    }

    /// Takes the connections whose handshake takes too long, and schedules the next check.
    fn take_slow(&mut self, now: Time) -> Vec<Key> {
        let mut slow = Vec::new();
        let mut next: Option<Time> = None;
        for (key, stream) in self.connections.iter().filter(|(_, stream)| stream.is_securing()) {
            // A handshake that waits for its turn is checked after its turn.
            let until = |tls: &StreamTls| match tls.waits_since {
                Some(_) => tls.until.max(now + HANDSHAKE_TIME),
                None => tls.until,
            };
            match stream.tls.as_deref().map(until) {
                Some(until) if until <= now => slow.push(key),
                Some(until) => next = Some(next.map_or(until, |at| at.min(until))),
                None => {}
            }
        }
        self.secure_at = next;
        slow
    }
}

// The server's side of a probe.
impl<P: Provider, A: App> Shard<P, A> {
    /// Decides about a call of a TCP client by its security. A call that requests TLS was answered.
    /// Fails if the connection has to end.
    pub(super) fn secure_call(
        &mut self,
        key: Key,
        xid: Xid,
        record: &[u8],
    ) -> Result<CallSecurity, Cause> {
        let pass = Ok(CallSecurity::Pass);
        let Some(tls) = &self.core.config.serve_tls else { return pass };
        let Some(stream) = self.streams.connections.get_mut(key) else { return pass };
        if stream.role != Role::Responder {
            return pass;
        }
        let is_secured = stream.is_secured();
        match judge(record, is_secured, tls.is_required()) {
            CallSecurity::Start => self.start_session(key, xid).map(|()| CallSecurity::Start),
            CallSecurity::Deny(status) => {
                self.streams.stats.tls_refusals += 1;
                Ok(CallSecurity::Deny(status))
            }
            CallSecurity::Pass => {
                let peer = stream.peer.filter(|_| !is_secured && !stream.is_clear_told);
                stream.is_clear_told = true;
                if let Some(peer) = peer {
                    self.tell_security(peer, &PeerSecurity::Clear);
                }
                pass
            }
        }
    }

    /// Answers a probe, and awaits the client's first octets of TLS.
    // RFC 9289 §4.1 [9289-1]: TLS begins on the port of calls without
    #[cold]
    #[inline(never)]
    fn start_session(&mut self, key: Key, xid: Xid) -> Result<(), Cause> {
        let Some(tls) = self.core.config.serve_tls.clone() else { return Ok(()) };
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        // A reply in the clear must not follow the one that begins TLS.
        if stream.calls > 0 || !stream.output.is_empty() {
            return Err(self.fail_session(key, TlsError::from("a probe while calls are under way")));
        }
        let mut octets = [0; PROBE_MAX];
        let len = emit_reply(&mut octets, xid);
        let reply = octets.get(..len).unwrap_or_default();
        let is_sent = (&stream.socket).write(reply).is_ok_and(|sent| sent == len);
        stream.moved += len as u64;
        self.streams.handshakes.note_probe();
        let stats = &mut self.streams.stats;
        (stats.calls, stats.replies) = (stats.calls + 1, stats.replies + 1);
        (stats.sends, stats.sent) = (stats.sends + 1, stats.sent + len as u64);
        match tls.session() {
            Ok(session) if is_sent => {
                self.streams.secure(key, session, TlsStep::AwaitHandshake, self.core.now);
                Ok(())
            }
            Ok(_) => Err(Cause::Tls),
            Err(error) => Err(self.fail_session(key, error)),
        }
    }
}

// The client's side of a probe.
impl<P: Provider, A: App> Shard<P, A> {
    /// Sends the probe for TLS to a server that we connected to. Returns false if TLS is not
    /// configured.
    #[cold]
    #[inline(never)]
    pub(super) fn probe_tls(&mut self, key: Key) -> bool {
        let Some(tls) = self.core.config.call_tls.clone() else { return false };
        let Some(to) = self.ip_of(key) else { return false };
        let mut octets = [0; PROBE_MAX];
        let len = emit_probe(&mut octets, tls.probe());
        let Some(stream) = self.streams.connections.get_mut(key) else { return true };
        let call = octets.get(..len).unwrap_or_default();
        let is_sent = (&stream.socket).write(call).is_ok_and(|sent| sent == len);
        let stats = &mut self.streams.stats;
        (stats.sends, stats.sent) = (stats.sends + 1, stats.sent + len as u64);
        let step = TlsStep::AwaitReply { octets: [0; PROBE_MAX], len: 0 };
        match tls.session(to) {
            Ok(session) if is_sent => self.streams.secure(key, session, step, self.core.now),
            Ok(_) => self.end_stream(key, Cause::Tls),
            Err(error) => {
                let cause = self.fail_session(key, error);
                self.end_stream(key, cause);
            }
        }
        true
    }

    fn ip_of(&self, key: Key) -> Option<IpAddr> {
        let peer = self.streams.connections.get(key)?.peer?;
        match self.core.peers.get(peer)?.address {
            PeerAddress::Ip(at) => Some(at.ip()),
            _ => None,
        }
    }

    /// Reads the reply to our probe, after which nothing else may come.
    fn read_probe_reply(&mut self, key: Key) -> Look {
        let Some(stream) = self.streams.connections.get_mut(key) else { return Look::Empty };
        let Some(tls) = &mut stream.tls else { return Look::Empty };
        let TlsStep::AwaitReply { octets, len } = &mut tls.step else { return Look::Empty };
        self.streams.stats.receives += 1;
        match (&stream.socket).read(octets.get_mut(*len..).unwrap_or_default()) {
            Ok(0) => return Look::Closed(self.fail_session(key, TlsError::from(NO_TLS))),
            Ok(read) => *len += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Look::More,
            Err(error) => return Look::Closed(Cause::Fabric((&error).into())),
        }
        match judge_reply(octets.get(..*len).unwrap_or_default()) {
            None => Look::Last,
            Some(Ok(())) => {
                // RFC 9289 §4.1 [9289-10]: the ClientHello goes out on this connection
                tls.step = TlsStep::AwaitHandshake;
                Look::Last
            }
            // RFC 9289 §4.1 [9289-12]: without the token there is no ClientHello
            Some(Err(why)) => Look::Closed(self.fail_session(key, TlsError::from(why))),
        }
    }
}

// Sessions.
impl<P: Provider, A: App> Shard<P, A> {
    /// Reads the input of a connection with TLS, as `look_at_stream` does without.
    pub(super) fn look_at_session(&mut self, key: Key, plain: &mut [u8]) -> Look {
        let Some(stream) = self.streams.connections.get_mut(key) else { return Look::Empty };
        let Some(tls) = &mut stream.tls else { return Look::Empty };
        let was_securing = tls.step != TlsStep::Established;
        match tls.step {
            TlsStep::AwaitReply { .. } => return self.read_probe_reply(key),
            TlsStep::AwaitHandshake if !self.streams.handshakes.has_turn(key) => {
                if tls.waits_since.is_none() {
                    let from = self.ip_of(key).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                    self.streams.await_turn(key, from.to_canonical(), self.core.now);
                }
                return Look::Empty;
            }
            TlsStep::AwaitHandshake | TlsStep::Established => {}
        }
        self.streams.stats.receives += 1;
        let begun = was_securing.then(processor_time);
        let received = tls.session.receive(&mut &stream.socket, &mut self.streams.cipher, plain);
        if let Some(begun) = begun {
            let cost = processor_time().saturating_sub(begun).max(COST_MIN);
            self.streams.handshakes.end_turn(self.core.now, cost);
        }
        let intake = match received {
            Ok(Ok(intake)) => intake,
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return Look::Empty,
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Look::More,
            Ok(Err(error)) => return Look::Closed(Cause::Fabric((&error).into())),
            // RFC 9289 §4.2 [9289-17]: who proves nothing has no connection
            Err(error) => {
                // An alert gives the reason.
                let _ = tls.session.send(&mut &stream.socket);
                return Look::Closed(self.fail_session(key, error));
            }
        };
        stream.moved += intake.read as u64;
        self.streams.stats.received += intake.read as u64;
        if was_securing && !tls.session.is_handshaking() {
            tls.step = TlsStep::Established;
            if let Err(cause) = self.establish(key) {
                return Look::Closed(cause);
            }
        }
        if intake.is_over {
            return self.end_of_input(key);
        }
        // A handshake has something to send.
        self.streams.queue(key);
        // The rest of a handshake gets another turn.
        let is_whole = intake.is_whole && !was_securing;
        self.take_input(key, plain.get(..intake.len).unwrap_or_default(), is_whole)
    }

    /// Handles the establishment of a session: calls may be made on it.
    fn establish(&mut self, key: Key) -> Result<(), Cause> {
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        let Some(mut secured) = stream.tls.as_ref().map(|tls| tls.session.secured()) else {
            return Ok(());
        };
        let (peer, is_client) = (stream.peer, stream.role == Role::Connecting);
        if !is_client {
            self.hand_session_over(key, &mut secured)?;
        }
        if is_client && !secured.names_protocol {
            // RFC 9289 §5 [9289-24]: no session with a server that does not name the protocol
            let why = "the server does not name the protocol of RPC (ALPN sunrpc)";
            return Err(self.fail_session(key, TlsError::from(why)));
        }
        self.streams.stats.tls_sessions += 1;
        if let Some(peer) = peer {
            self.tell_security(peer, &PeerSecurity::Secured(secured));
        }
        if is_client {
            self.begin_to_call(key);
        } else if let Some(peer) = peer {
            self.start_waiting(peer);
        }
        Ok(())
    }

    /// Ends the connection of a peer that sends anything but TLS after the probe.
    // RFC 9289 §5.1.1 [9289-26]: octets in the clear between probe and handshake are dropped
    pub(super) fn refuse_injected(&mut self, key: Key) -> Cause {
        self.fail_session(key, TlsError::from("octets in the clear came behind the probe for TLS"))
    }

    /// Records that a session failed, and returns the cause of the connection's end.
    #[cold]
    #[inline(never)]
    pub(super) fn fail_session(&mut self, key: Key, error: TlsError) -> Cause {
        self.streams.stats.tls_failures += 1;
        let stream = self.streams.connections.get(key);
        let peer = stream.and_then(|stream| stream.peer);
        if let Some(tls) = &self.core.config.call_tls
            && stream.is_some_and(|stream| stream.role != Role::Responder)
        {
            // RFC 9289 §4.1 [9289-13]: the failure is reported to the caller
            tls.note_fault(error.clone());
        }
        if let Some(peer) = peer {
            self.tell_security(peer, &PeerSecurity::Failed(error));
        }
        Cause::Tls
    }

    fn tell_security(&mut self, peer: PeerId, security: &PeerSecurity) {
        let cx = &mut Cx::new(&mut self.core, &mut self.provider);
        self.app.on_security(cx, peer, security);
        self.empty_outbox();
    }

    /// Ends the connections whose handshake takes too long.
    pub(super) fn end_slow_handshakes(&mut self, now: Time) {
        if self.streams.secure_at.is_none_or(|at| now < at) {
            return;
        }
        for key in self.streams.take_slow(now) {
            let cause = self.fail_session(key, TlsError::from("the handshake takes too long"));
            self.end_stream(key, cause);
        }
    }
}
