//! TLS of one TCP connection (RFC 9289): its session, the step of its negotiation, and its time
//! limit.

use super::{
    GATHER,
    probe::PROBE_MAX,
    table::{Stream, Streams},
};
use crate::stats::StreamStats;
use stag_pools::table::Key;
use stag_tls::{SEALED_MAX, SessionKeys, TlsError, TlsSession};
use stag_verbs::Time;
use std::{
    io::{self, IoSlice},
    net::IpAddr,
    time::Duration,
};

/// Octets of ciphertext read at a time, for all connections together.
pub(crate) const CIPHER_LEN: usize = 64 << 10;
/// The time limit of a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// TLS of a connection, from the probe on.
#[derive(Debug)]
pub(crate) struct StreamTls {
    pub(crate) session: TlsSession,
    pub(crate) step: TlsStep,
    /// The time at which a session that is not established is abandoned.
    until: Time,
    /// Its handshake has something to read, and waits for its turn since then.
    pub(crate) waits_since: Option<Time>,
}

/// Step of the negotiation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TlsStep {
    /// We connected, and await the reply to our probe; `len` of its octets have come.
    AwaitReply { octets: [u8; PROBE_MAX], len: usize },
    /// The handshake is in progress.
    AwaitHandshake,
    /// The session is established.
    Established,
}

impl Stream {
    /// Returns true between the probe and the establishment of the session.
    pub(crate) fn is_securing(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.step != TlsStep::Established)
    }

    /// Returns true if its handshake waits for its turn.
    pub(crate) fn awaits_turn(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.waits_since.is_some())
    }

    /// Returns true if the session has octets for which the socket raises no event.
    pub(crate) fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.has_more())
    }

    /// Returns true if output waits to be sent and may be sent.
    pub(crate) fn wants_send(&self) -> bool {
        match &self.tls {
            None => !self.output.is_empty(),
            Some(tls) => {
                tls.wants_send() || tls.step == TlsStep::Established && !self.output.is_empty()
            }
        }
    }

    /// Upper bound of our encrypted octets that wait for the peer.
    pub(crate) fn sealed(&self) -> usize {
        if self.tls.as_ref().is_some_and(|tls| tls.wants_send()) { SEALED_MAX } else { 0 }
    }

    /// Sends a closure alert, if the socket accepts it.
    pub(crate) fn close_session(&mut self) {
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
    pub(crate) fn is_empty(&self) -> bool {
        !self.session.wants_send() && !self.session.has_more()
    }

    /// Ends the session here, so that the kernel can continue it.
    pub(crate) fn into_keys(self) -> Result<SessionKeys, TlsError> {
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
    pub(crate) fn send_secured(stream: &mut Stream, stats: &mut StreamStats) -> bool {
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
    pub(crate) fn secure(&mut self, key: Key, session: TlsSession, step: TlsStep, now: Time) {
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
    pub(crate) fn await_turn(&mut self, key: Key, from: IpAddr, now: Time) {
        let connections = &self.connections;
        self.handshakes.wait(key, from, |key| connections.get(key).is_some());
        if let Some(tls) = self.connections.get_mut(key).and_then(|stream| stream.tls.as_mut()) {
            tls.waits_since = Some(now);
        }
        self.set_interest(key);
    }

    /// The connection whose handshake continues in this pass. The time that it waited for us is not
    /// counted against it.
    pub(crate) fn next_handshake(&mut self, now: Time, is_fabric_busy: bool) -> Option<Key> {
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
    pub(crate) fn take_slow(&mut self, now: Time) -> Vec<Key> {
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
