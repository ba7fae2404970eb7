//! Kernel TLS sessions (`stag_tls::KernelTls`): their sockets are read and written like those
//! without TLS, except for control records. The handover to the kernel, and failed reads.

use super::Look;
use crate::{app::App, shard::Shard, tcp::KernelSession};
use rustix::{fd::AsFd, io::Errno};
use stag_pools::table::Key;
use stag_tls::{ALERT, Secured, TlsError};
use stag_verbs::{Cause, Provider};
use std::io;

/// Octets of a control record that are read: alerts have two.
const CONTROL_LEN: usize = 64;

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
