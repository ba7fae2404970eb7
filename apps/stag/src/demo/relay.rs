//! TCP relay that can be cut, so that a connection can be lost while both ends live.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Forwards connections to one server, for as long as the process lives.
#[derive(Clone, Debug)]
pub struct Relay {
    at: SocketAddr,
    passing: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Accepts connections at a free port of this host and forwards them to `to`. Fails as
    /// `bind(2)` does.
    pub fn new(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Self { at: listener.local_addr()?, passing: Arc::default() };
        let passing = Arc::clone(&relay.passing);
        thread::Builder::new().name("relay".to_owned()).spawn(move || {
            for near in listener.incoming().flatten() {
                let _ = pass(near, to, &passing);
            }
        })?;
        Ok(relay)
    }

    /// Returns the address at which the relay accepts connections.
    pub const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Ends all forwarded connections. The next ones are forwarded again.
    pub fn cut(&self) {
        for stream in self.passing.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Forwards one connection in both directions, by threads that end with it.
fn pass(near: TcpStream, to: SocketAddr, passing: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let far = TcpStream::connect(to)?;
    for (from, to) in [(&near, &far), (&far, &near)] {
        from.set_nodelay(true)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        thread::Builder::new().name("relay".to_owned()).spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        })?;
    }
    passing.lock().unwrap_or_else(PoisonError::into_inner).extend([near, far]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_connection_is_passed_on_until_it_is_cut_and_the_next_one_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::new(listener.local_addr().unwrap()).unwrap();
        for _ in 0..3 {
            let mut near = TcpStream::connect(relay.at()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(b"there").unwrap();
            far.write_all(b"back!").unwrap();
            let mut room = [0; 5];
            far.read_exact(&mut room).unwrap();
            assert_eq!(&room, b"there");
            near.read_exact(&mut room).unwrap();
            assert_eq!(&room, b"back!");
            // The streams are recorded after octets may already flow.
            while relay.passing.lock().unwrap().is_empty() {
                thread::yield_now();
            }
            relay.cut();
            assert_eq!(near.read(&mut room).unwrap_or(0), 0);
            assert_eq!(far.read(&mut room).unwrap_or(0), 0);
        }
    }
}
