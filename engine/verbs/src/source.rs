//! The source port of a connection: any, or one below 1024, which only a privileged process may
//! bind.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    process,
    sync::atomic::{AtomicU16, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// The range of reserved ports to use: the one of Linux's NFS client, above most services.
pub const RESERVED: RangeInclusive<u16> = 665..=1_023;
/// The size of this range.
const COUNT: u16 = *RESERVED.end() - *RESERVED.start() + 1;

/// Returns true if only a privileged process of the peer's host can connect from `port`.
pub const fn is_reserved(port: u16) -> bool {
    port < 1_024
}

/// Connects to `to` by `connect`, which makes a socket, binds it to the given address, and connects
/// it.
///
/// With `reserved`, from a reserved port; from any port if this process may not bind one, or none
/// is left.
///
/// # Errors
/// The last error of `connect`.
pub fn connect<T>(
    to: SocketAddr,
    reserved: bool,
    mut connect: impl FnMut(Option<SocketAddr>) -> io::Result<T>,
) -> io::Result<T> {
    /// The offset at which the next connection of this process starts its search.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    if reserved {
        // Counted locally from here on: other threads connect meanwhile, and each port is tried.
        let first = first() + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        for step in 0..COUNT {
            let from = any(to, *RESERVED.end() - (first + step) % COUNT);
            match connect(Some(from)) {
                // In use, or this very pair of addresses was in use a moment ago (TIME_WAIT).
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable
                    ) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => break,
                connected => {
                    // The next search starts after the ports in use.
                    NEXT.fetch_add(step, Ordering::Relaxed);
                    return connected;
                }
            }
        }
    }
    connect(None)
}

/// Varies the first port of successive processes.
fn first() -> u16 {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    ((u128::from(process::id()) * 31 + millis / 1_000) % u128::from(COUNT)) as u16
}

/// Port `port` of the wildcard address of `to`'s family.
fn any(to: SocketAddr, port: u16) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const TO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2_049);

    #[test]
    fn reserved_ports_are_tried_once_each_and_then_any() {
        let mut tried = Vec::new();
        let connected = connect(TO, true, |from| {
            tried.push(from.map(|from| from.port()));
            from.map_or(Ok(7), |_| Err(ErrorKind::AddrInUse.into()))
        });
        assert_eq!(connected.unwrap(), 7);
        assert_eq!(tried.pop(), Some(None));
        let ports: HashSet<_> = tried.iter().flatten().copied().collect();
        assert_eq!((ports.len(), tried.len()), (COUNT.into(), COUNT.into()));
        assert!(ports.iter().all(|port| RESERVED.contains(port) && is_reserved(*port)));
    }

    #[test]
    fn who_may_take_none_asks_once_and_who_wants_none_never() {
        for (reserved, expected) in [(true, 1), (false, 0)] {
            let mut refused = 0;
            let connected = connect(TO, reserved, |from| match from {
                Some(_) => {
                    refused += 1;
                    Err(io::Error::from(ErrorKind::PermissionDenied))
                }
                None => Ok(()),
            });
            assert!(connected.is_ok());
            assert_eq!(refused, expected);
        }
    }

    #[test]
    fn an_error_of_the_connection_itself_is_final() {
        let mut tries = 0;
        let connected: io::Result<()> = connect(TO, true, |_| {
            tries += 1;
            Err(ErrorKind::ConnectionRefused.into())
        });
        assert_eq!((connected.unwrap_err().kind(), tries), (ErrorKind::ConnectionRefused, 1));
    }
}
