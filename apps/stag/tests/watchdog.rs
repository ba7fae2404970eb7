//! Notifications to the watchdog of systemd that the server is alive, at the requested interval.

use crate::support::{Home, PATIENCE, Server};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;

#[test]
fn a_server_that_is_watched_says_again_and_again_that_it_lives() {
    let home = Home::new();
    let path = home.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command =
        home.stag(&["serve", "data", "--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut server = Server::start(&home, command);
    let (mut is_ready, mut lives) = (false, 0);
    while !is_ready || lives < 3 {
        let mut octets = [0; 256];
        let len = socket.recv(&mut octets).unwrap();
        match String::from_utf8_lossy(&octets[..len]).trim() {
            "READY=1" => is_ready = true,
            "WATCHDOG=1" => lives += 1,
            other => panic!("{other}"),
        }
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
}
