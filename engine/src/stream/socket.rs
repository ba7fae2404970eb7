//! Sockets as they are made: options that count before a connection exists, and those of each.

use rustix::{
    fd::AsFd,
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt},
};
use stag_verbs::source;
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
};

/// Connections waiting in the kernel for our accept.
const BACKLOG: i32 = 128;
/// Sockets that never block, and that no program we start inherits.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const fn family(of: SocketAddr) -> AddressFamily {
    if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Asks for the congestion control that does least on the way between two loopback addresses.
/// Nothing is lost or shared there, and an algorithm that paces delays what is sent. Every Linux
/// has this one; without it nothing is wrong. Pacing begins with the connection, so this is asked
/// before.
fn calm(socket: impl AsFd, address: SocketAddr) {
    if address.ip().to_canonical().is_loopback() {
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

/// Waits for callers at `at`. `shared` lets several sockets wait there.
pub(super) fn listening(at: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = socket_with(family(at), SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    if at.is_ipv6() {
        // `[::]` is every address of this host, of both families, whatever the system's default.
        sockopt::set_ipv6_v6only(&socket, !at.ip().is_unspecified())?;
    }
    calm(&socket, at);
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Starts to connect, from a reserved port if `reserved` is set. The socket becomes writable when
/// it is decided.
pub(super) fn connecting(to: SocketAddr, reserved: bool) -> io::Result<TcpStream> {
    let socket = source::connect(to, reserved, |from| {
        let socket = socket_with(family(to), SocketType::STREAM, FLAGS, None)?;
        calm(&socket, to);
        if let Some(from) = from {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &from)?;
        }
        match connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    })?;
    Ok(TcpStream::from(socket))
}

/// No delay for short records; a peer that is gone is noticed.
pub(super) fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

/// Does for a connection that was accepted from `peer` what its listener could not know.
pub(super) fn tune_accepted(socket: &TcpStream, peer: SocketAddr) {
    calm(socket, peer);
}
