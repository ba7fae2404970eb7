//! Kernel TLS sessions (`stag_tls::KernelTls`): the limit of octets that one key may protect, and
//! the closure alert.

use super::table::Stream;
use rustix::fd::{AsFd, BorrowedFd};
use stag_tls::{ALERT, CLOSE_NOTIFY, KernelTls};
use stag_verbs::Cause;
/// The cost of one record, in octets, against the limit of its key.
const RECORD_COST: u64 = 32;
/// Octets of a full record.
const RECORD_LEN: u64 = 1 << 14;

/// The session of a connection, in the kernel.
#[derive(Debug)]
pub(crate) struct KernelSession {
    pub(crate) kernel: &'static dyn KernelTls,
    /// Octets that its key may still protect.
    pub(crate) left: u64,
}

impl KernelSession {
    /// Counts sent octets. Returns false if the key may protect no more.
    fn spend(&mut self, sent: usize) -> bool {
        let sent = sent as u64;
        let cost = sent.saturating_add((sent / RECORD_LEN + 1) * RECORD_COST);
        self.left = self.left.saturating_sub(cost);
        self.left > 0
    }

    /// Sends a closure alert, if the socket accepts it.
    fn close(&self, socket: BorrowedFd<'_>) {
        // RFC 9289 §5.1.1 [9289-25]: a closure alert ends the session
        let _ = self.kernel.send(socket, ALERT, &CLOSE_NOTIFY);
    }
}

impl Stream {
    /// Returns true if its calls travel inside a session that is established, or about to be.
    pub(crate) const fn is_secured(&self) -> bool {
        self.tls.is_some() || self.kernel_tls.is_some()
    }

    /// Counts sent octets. Once its key may protect no more, a connection is not read any further:
    /// received calls are answered, and the client reconnects for others.
    pub(crate) fn note_sent(&mut self, sent: usize) {
        self.moved += sent as u64;
        if let Some(session) = &mut self.kernel_tls
            && !session.spend(sent)
        {
            self.ended = true;
        }
    }

    /// The cause of an end without a fault and without our own action: the peer's, unless the key
    /// of its session is used up.
    pub(crate) fn quiet_end(&self) -> Cause {
        let is_spent = self.kernel_tls.as_ref().is_some_and(|session| session.left == 0);
        if is_spent { Cause::Tls } else { Cause::Peer }
    }

    /// Ends a kernel session, if there is one.
    pub(crate) fn close_kernel_session(&self) {
        if let Some(session) = &self.kernel_tls {
            session.close(self.socket.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use stag_tls::SessionKeys;
    use std::{
        io::{self, Read},
        os::unix::net::UnixStream,
    };

    /// A kernel that sends records as their type and their octets.
    #[derive(Debug)]
    struct Idle;

    impl KernelTls for Idle {
        fn take_over(&self, _: BorrowedFd<'_>, _: &SessionKeys) -> io::Result<()> {
            Ok(())
        }

        fn receive(&self, _: BorrowedFd<'_>, _: &mut [u8]) -> io::Result<(u8, usize)> {
            Err(Errno::BADMSG.into())
        }

        fn send(&self, socket: BorrowedFd<'_>, kind: u8, octets: &[u8]) -> io::Result<()> {
            let record = [&[kind][..], octets].concat();
            assert_eq!(rustix::io::write(socket, &record), Ok(record.len()));
            Ok(())
        }
    }

    #[test]
    fn a_session_is_closed_by_a_closure_alert() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        KernelSession { kernel: &Idle, left: 1 }.close(ours.as_fd());
        drop(ours);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, [21, 1, 0], "an alert (RFC 8446 §6.1): warning, close_notify");
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
