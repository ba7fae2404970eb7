//! Listening sockets passed by a service manager (sd_listen_fds(3)), which keeps them open while no
//! server runs: connections then queue. Providers over TCP use them to listen.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

/// Listening TCP sockets of a process, each with its address. Clones share the sockets.
#[derive(Clone, Default)]
pub struct PassedListeners(Option<Arc<[(SocketAddr, TcpListener)]>>);

impl fmt::Debug for PassedListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.addresses()).finish()
    }
}

impl PassedListeners {
    /// No socket was passed.
    pub const NONE: Self = Self(None);

    /// Takes these sockets and makes them non-blocking.
    ///
    /// # Errors
    /// If the system does not report the address of one.
    pub fn new(sockets: impl IntoIterator<Item = TcpListener>) -> io::Result<Self> {
        let with_address = |socket: TcpListener| {
            socket.set_nonblocking(true)?;
            Ok((socket.local_addr()?, socket))
        };
        let sockets: Vec<_> = sockets.into_iter().map(with_address).collect::<io::Result<_>>()?;
        Ok(Self(Some(sockets.into())))
    }

    /// The addresses of the sockets.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().flat_map(|all| all.iter()).map(|(at, _)| *at)
    }

    /// Returns true if a socket was passed for this address.
    pub fn has(&self, at: SocketAddr) -> bool {
        self.addresses().any(|passed| passed == at)
    }

    /// A descriptor of the socket for this address, if one was passed. All of its descriptors
    /// accept from the same queue.
    ///
    /// # Errors
    /// If this process has no descriptor left.
    pub fn at(&self, at: SocketAddr) -> Option<io::Result<TcpListener>> {
        let mut all = self.0.iter().flat_map(|all| all.iter());
        all.find(|(passed, _)| *passed == at).map(|(_, socket)| socket.try_clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::ErrorKind, net::TcpStream};

    #[test]
    fn what_connects_while_no_descriptor_but_the_managers_is_open_queues() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let passed = PassedListeners::new([socket]).unwrap();
        assert!(passed.has(at) && passed.addresses().eq([at]));
        drop(passed.at(at).unwrap().unwrap());
        let waits = TcpStream::connect(at).unwrap();
        let next = passed.at(at).unwrap().unwrap();
        // Two shards listen on it, and one of them gets the connection.
        let other = passed.clone().at(at).unwrap().unwrap();
        let (_, from) = next.accept().unwrap();
        assert_eq!(from, waits.local_addr().unwrap());
        assert_eq!(other.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn an_address_of_no_socket_is_listened_at_as_usual() {
        let elsewhere = "127.0.0.1:9".parse().unwrap();
        for passed in [PassedListeners::NONE, PassedListeners::new([]).unwrap()] {
            assert!(!passed.has(elsewhere) && passed.at(elsewhere).is_none());
        }
    }
}
