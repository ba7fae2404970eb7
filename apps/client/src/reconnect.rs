//! Reconnection over TCP: a lost connection is made again, and a call without a reply is repeated
//! as a new call (RFC 5531 §9). Over a fabric the engine does that, with the same XID.

use crate::{Error, NfsClient};
use stag_rpc::{CallFault, Provider};
use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

/// The pause before the second attempt to connect, which doubles, and the longest one.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Losses without a reply between them, after which there are no more attempts.
const LOSSES_MAX: u32 = 20;

/// The server to connect to again, and the losses so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reconnect {
    at: Option<SocketAddr>,
    /// Losses since the last reply.
    unanswered: u32,
    losses: u64,
}

impl Reconnect {
    /// A reply came.
    pub(crate) const fn note_reply(&mut self) {
        self.unanswered = 0;
    }

    /// No connection is made again.
    pub(crate) const fn forget(&mut self) {
        self.at = None;
    }
}

impl<P: Provider> NfsClient<P> {
    /// Connects over TCP as [`NfsClient::connect_tcp`] does, and again whenever the connection is
    /// lost: calls without a reply are made again, until the time of a call is over. One that must
    /// not be executed twice may then find that it was executed before: see `reconnections`.
    ///
    /// # Errors
    /// As [`NfsClient::connect`].
    pub fn keep_connected_tcp(&mut self, to: SocketAddr) -> Result<(), Error> {
        self.connect_tcp(to)?;
        self.reconnect = Reconnect { at: Some(to), ..self.reconnect };
        Ok(())
    }

    /// Times that a lost connection over TCP was made again.
    pub const fn reconnections(&self) -> u64 {
        self.reconnect.losses
    }

    /// Makes a lost connection or session again after a call ended with `error`. True if calls can
    /// be made again.
    pub(crate) fn recovers(&mut self, error: Error) -> bool {
        if self.recovers4(error) {
            return true;
        }
        let is_lost = matches!(
            error,
            Error::NotConnected(_) | Error::Call(CallFault::Disconnected(_) | CallFault::NoPeer)
        );
        let Some(at) = self.reconnect.at.filter(|_| is_lost) else { return false };
        if self.raw().is_up() {
            return true;
        }
        if self.reconnect.unanswered >= LOSSES_MAX {
            return false;
        }
        let (began, limit) = (Instant::now(), self.raw().timeout());
        // A server that accepts connections and ends them is not asked without a pause.
        let mut pause = PAUSE * self.reconnect.unanswered;
        loop {
            thread::sleep(pause.min(PAUSE_MAX));
            if self.raw_mut().connect_tcp(at).is_ok() {
                self.reconnect.unanswered += 1;
                self.reconnect.losses += 1;
                return true;
            }
            pause = (pause * 2).clamp(PAUSE, PAUSE_MAX);
            if began.elapsed() + pause > limit {
                return false;
            }
        }
    }
}
