//! Rivals that others would use instead of Stag, one file each. Each is a
//! [`Contender`](crate::contender::Contender); a rival that is not installed says so by
//! [`Absence::Missing`](crate::contender::Absence::Missing) and its goals are skipped.

pub mod ganesha;
pub mod mapper;
pub mod named;
pub mod rows;
pub mod tirpc;
pub mod ucx;
pub mod unpackaged;

use std::{fs, io, net::TcpListener};

/// A port of the loopback address that is free at this moment. Fails as `bind(2)` does.
pub fn free_port() -> io::Result<u16> {
    TcpListener::bind("127.0.0.1:0")?.local_addr().map(|at| at.port())
}

/// Returns true if a socket listens at a TCP port of this host, without connecting to it
/// (`proc_net_tcp`).
pub fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|table| lists(&table, port)))
}

/// Returns true if a table of sockets has one that listens at `port`.
fn lists(table: &str, port: u16) -> bool {
    let (port, listening) = (format!(":{port:04X}"), "0A");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some(listening)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_listener_is_seen_and_nothing_else() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
            uid  timeout inode\n\
             0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        \
             0 1004 1\n\
             1: 0100007F:8F06 0100007F:07E9 01 00000000:00000000 00:00000000 00000000     0        \
             0 1005 1\n";
        assert!(lists(table, 0x07e8));
        assert!(!lists(table, 0x8f06), "it is connected");
        assert!(!lists(table, 0x07e9), "it is the other end");
        assert!(!lists("", 0));
    }

    #[test]
    fn a_free_port_has_no_listener_until_one_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        // A process that another test is about to start has it too, for a moment.
        let began = Instant::now();
        while is_listening(port) {
            assert!(began.elapsed() < Duration::from_secs(10), "{port} has a listener");
            std::thread::yield_now();
        }
        assert_ne!(free_port().unwrap(), 0);
    }
}
