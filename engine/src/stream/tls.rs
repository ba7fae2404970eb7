//! TLS on a TCP connection (RFC 9289): the probe in the clear, the handshake, and established
//! sessions.
//!
//! A client requests TLS by a call of NULL with the flavor AUTH_TLS. The probe and its reply are
//! written to the socket directly, bypassing the output queue: no other call may be pending, and
//! anything queued later is sent inside the session. Octets in the clear after the probe end the
//! connection: an attacker on the path may have injected them.

use super::Look;
use crate::{
    app::{App, Cx, PeerId, PeerSecurity},
    shard::Shard,
    tcp::{
        COST_MIN, CallSecurity, NO_TLS, PROBE_MAX, Role, TlsStep, emit_probe, emit_reply, judge,
        judge_reply, processor_time,
    },
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::Xid;
use stag_tls::TlsError;
use stag_verbs::{Cause, PeerAddress, Provider, Time};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr},
};

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
        // RFC 9289 §5 [9289-24]: no session with a server that does not name the protocol
        if is_client && !secured.names_protocol {
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
