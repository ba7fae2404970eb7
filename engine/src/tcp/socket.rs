//! Socket creation and options: for listeners, for outgoing and for accepted connections.

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
/// Sockets are non-blocking, and not inherited by programs that we start.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const fn family(of: SocketAddr) -> AddressFamily {
    if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Sets the cheapest congestion control for connections between two loopback addresses. Loopback
/// does not lose packets, and an algorithm that paces delays them. Every Linux has this one; a
/// failure is harmless. Pacing begins with the connection, so this is set before.
fn calm(socket: impl AsFd, address: SocketAddr) {
    if address.ip().to_canonical().is_loopback() {
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

/// Listens at `at`. With `shared`, several sockets can listen there.
pub(crate) fn listening(at: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = socket_with(family(at), SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    if at.is_ipv6() {
        // `[::]` means every address of this host, of both families, whatever the system's default.
        sockopt::set_ipv6_v6only(&socket, !at.ip().is_unspecified())?;
    }
    calm(&socket, at);
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Starts to connect, from a reserved port if `reserved` is set. The socket becomes writable once
/// the connection is established or has failed.
pub(crate) fn connecting(to: SocketAddr, reserved: bool) -> io::Result<TcpStream> {
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

/// Sends short records without delay; detects a peer that is gone.
pub(crate) fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

/// Sets the options of a connection accepted from `peer` that its listener could not set.
pub(crate) fn tune_accepted(socket: &TcpStream, peer: SocketAddr) {
    calm(socket, peer);
}
