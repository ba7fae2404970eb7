//! Kernel TLS sessions (`stag_tls::KernelTls`). Their sockets are read and written like those
//! without TLS, except for control records, and for the limit of octets that one key may protect.

use super::{Look, table::Stream};
use crate::{app::App, shard::Shard};
use rustix::{fd::AsFd, io::Errno};
use stag_pools::table::Key;
use stag_tls::{ALERT, CLOSE_NOTIFY, KernelTls, Secured, TlsError};
use stag_verbs::{Cause, Provider};
use std::io;

/// Octets of a control record that are read: alerts have two.
const CONTROL_LEN: usize = 64;
/// The cost of one record, in octets, against the limit of its key.
const RECORD_COST: u64 = 32;
/// Octets of a full record.
const RECORD_LEN: u64 = 1 << 14;

/// The session of a connection, in the kernel.
#[derive(Debug)]
pub(super) struct KernelSession {
    kernel: &'static dyn KernelTls,
    /// Octets that its key may still protect.
    left: u64,
}

impl KernelSession {
    /// Counts sent octets. Returns false if the key may protect no more.
    fn spend(&mut self, sent: usize) -> bool {
        let sent = sent as u64;
        let cost = sent.saturating_add((sent / RECORD_LEN + 1) * RECORD_COST);
        self.left = self.left.saturating_sub(cost);
        self.left > 0
    }
}

impl Stream {
    /// Returns true if its calls travel inside a session that is established, or about to be.
    pub(super) const fn is_secured(&self) -> bool {
        self.tls.is_some() || self.kernel_tls.is_some()
    }

    /// Counts sent octets. Once its key may protect no more, a connection is not read any further:
    /// received calls are answered, and the client reconnects for others.
    pub(super) fn note_sent(&mut self, sent: usize) {
        self.moved += sent as u64;
        if let Some(session) = &mut self.kernel_tls
            && !session.spend(sent)
        {
            self.ended = true;
        }
    }

    /// The cause of an end without a fault and without our own action: the peer's, unless the key
    /// of its session is used up.
    pub(super) fn quiet_end(&self) -> Cause {
        let is_spent = self.kernel_tls.as_ref().is_some_and(|session| session.left == 0);
        if is_spent { Cause::Tls } else { Cause::Peer }
    }

    /// Sends a closure alert to the peer of a kernel session, if the socket accepts it.
    // RFC 9289 §5.1.1 [9289-25]: a closure alert ends the session
    pub(super) fn close_kernel_session(&self) {
        if let Some(session) = &self.kernel_tls {
            let _ = session.kernel.send(self.socket.as_fd(), ALERT, &CLOSE_NOTIFY);
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hands an established session over to the kernel, where that is configured.
    pub(super) fn hand_session_over(
        &mut self,
        key: Key,
        secured: &mut Secured,
    ) -> Result<(), Cause> {
        let tls = self.core.config.serve_tls.as_ref();
        let Some(kernel) = tls.and_then(|tls| tls.kernel()) else { return Ok(()) };
        let Some(stream) = self.streams.connections.get_mut(key) else { return Ok(()) };
        // If octets are still buffered in the session, it stays in this process.
        let Some(tls) = stream.tls.take_if(|tls| tls.is_empty()) else { return Ok(()) };
        let taken = tls.into_keys().and_then(|keys| {
            let taken = kernel.take_over(stream.socket.as_fd(), &keys);
            taken.map_err(|error| {
                TlsError::new(format!("the kernel does not take it over: {error}"))
            })
        });
        if let Err(error) = taken {
            return Err(self.fail_session(key, error));
        }
        let left = kernel.octets_max();
        stream.kernel_tls = Some(Box::new(KernelSession { kernel, left }));
        secured.in_kernel = true;
        self.streams.stats.tls_kernel_sessions += 1;
        Ok(())
    }

    /// Handles a failed read: with a kernel session, that may be a control record.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_read_fault(&mut self, key: Key, error: &io::Error) -> Look {
        let fault = Look::Closed(Cause::Fabric(error.into()));
        let Some(stream) = self.streams.connections.get(key) else { return fault };
        let Some(session) = &stream.kernel_tls else { return fault };
        let mut octets = [0; CONTROL_LEN];
        let taken = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::IO) => session.kernel.receive(stream.socket.as_fd(), &mut octets),
            Some(Errno::BADMSG) => Err(Errno::BADMSG.into()),
            _ => return fault,
        };
        let why = match taken {
            Ok((ALERT, len)) => match octets.get(..len) {
                Some([_, 0]) => return self.end_of_input(key),
                Some([_, alert, ..]) => format!("the peer ends the session by alert {alert}"),
                _ => "an alert without content".to_owned(),
            },
            // Kernels before 6.14 cannot change keys.
            Ok(_) => "the peer renews its keys, which a session in the kernel cannot".to_owned(),
            Err(error) => format!("a record is not the peer's: {error}"),
        };
        Look::Closed(self.fail_session(key, TlsError::new(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::BorrowedFd;
    use stag_tls::SessionKeys;

    /// A kernel of which only the limit is used.
    #[derive(Debug)]
    struct Idle;

    impl KernelTls for Idle {
        fn take_over(&self, _: BorrowedFd<'_>, _: &SessionKeys) -> io::Result<()> {
            Ok(())
        }

        fn receive(&self, _: BorrowedFd<'_>, _: &mut [u8]) -> io::Result<(u8, usize)> {
            Err(Errno::BADMSG.into())
        }

        fn send(&self, _: BorrowedFd<'_>, _: u8, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_key_protects_so_many_octets_and_records_and_no_more() {
        let session = |left| KernelSession { kernel: &Idle, left };
        // RFC 8446 §5.5: 2^24.5 full records, of 2^14 octets.
        assert_eq!(Idle.octets_max(), (1 << 24) * RECORD_LEN);
        let mut few = session(400);
        assert!(few.spend(100) && few.spend(100) && few.spend(100));
        assert!(!few.spend(100) && !few.spend(0), "three records of 132 were all");
        let mut whole = session(3 * (RECORD_LEN + RECORD_COST));
        assert!(whole.spend(2 * RECORD_LEN as usize));
        assert_eq!(whole.left, RECORD_LEN, "two records, and the one that begins behind them");
    }
}
