//! TCP sockets and the epoll that watches them: the only place that calls the kernel.

use crate::{config::IwarpConfig, stats::IwarpStats};
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
    net::{
        self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
        sockopt,
    },
};
use stag_verbs::{FabricFault, source};
use std::{
    fmt,
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

pub(crate) use rustix::event::epoll::EventFlags as Ready;

/// Connections waiting in the kernel for our accept.
const BACKLOG: i32 = 1024;
/// Events one `epoll_wait` brings.
const BATCH: usize = 128;

/// Makes a non-blocking socket.
fn socket(family: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if family.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

/// Sets the cheapest congestion control for loopback. Loopback does not lose packets, and the
/// measures of some algorithms, above all pacing, cost a third of the bandwidth. Every Linux has
/// this one; a failure is harmless. It is set before the connection exists, because pacing begins
/// with it.
fn calm(socket: &OwnedFd, address: SocketAddr) {
    if address.ip().to_canonical().is_loopback() {
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

/// Buffer sizes are set before the connection exists: the window's scale is negotiated then.
fn set_buffers(socket: &OwnedFd, config: &IwarpConfig) -> rustix::io::Result<()> {
    if let Some(octets) = config.send_buffer {
        sockopt::set_socket_send_buffer_size(socket, octets)?;
    }
    if let Some(octets) = config.receive_buffer {
        sockopt::set_socket_recv_buffer_size(socket, octets)?;
    }
    Ok(())
}

/// Listens at `at`, on the socket that was passed for it if there is one; returns the address in
/// use.
pub(crate) fn listen(at: SocketAddr, config: &IwarpConfig) -> io::Result<(OwnedFd, SocketAddr)> {
    if let Some(passed) = config.passed.at(at) {
        let listener = passed?.into();
        set_buffers(&listener, config)?;
        calm(&listener, at);
        return Ok((listener, at));
    }
    let listener = socket(at)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    if config.reuse_port {
        sockopt::set_socket_reuseport(&listener, true)?;
    }
    if at.is_ipv6() {
        // `[::]` means every address of this host, of both families, whatever the system's default.
        sockopt::set_ipv6_v6only(&listener, !at.ip().is_unspecified())?;
    }
    set_buffers(&listener, config)?;
    calm(&listener, at);
    net::bind(&listener, &at)?;
    net::listen(&listener, BACKLOG)?;
    config.steering.iter().try_for_each(|it| it.set(listener.as_fd()))?;
    let in_use = SocketAddr::try_from(net::getsockname(&listener)?)?;
    Ok((listener, in_use))
}

/// Starts to connect; the socket becomes writable once the connection is established or has failed.
pub(crate) fn connect(to: SocketAddr, config: &IwarpConfig) -> io::Result<OwnedFd> {
    source::connect(to, config.reserved_port, |from| {
        let stream = socket(to)?;
        set_buffers(&stream, config)?;
        tune(&stream, to, config)?;
        if let Some(from) = from {
            sockopt::set_socket_reuseaddr(&stream, true)?;
            net::bind(&stream, &from)?;
        }
        match net::connect(&stream, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
            Err(error) => Err(error.into()),
        }
    })
}

/// Returns the outcome of a connect that [`connect`] started.
pub(crate) fn connected(stream: &OwnedFd) -> io::Result<()> {
    sockopt::socket_error(stream)??;
    // Without an error the connection may still be in progress.
    net::getpeername(stream)?;
    Ok(())
}

/// Accepts the next peer that waits at `listener`.
pub(crate) fn accept(listener: &OwnedFd) -> rustix::io::Result<(OwnedFd, Option<SocketAddr>)> {
    let (stream, from) =
        net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    Ok((stream, from.and_then(|from| SocketAddr::try_from(from).ok())))
}

/// Sends small FPDUs without delay; detects dead peers.
pub(crate) fn tune(
    stream: &OwnedFd,
    peer: SocketAddr,
    config: &IwarpConfig,
) -> rustix::io::Result<()> {
    calm(stream, peer);
    sockopt::set_tcp_nodelay(stream, true)?;
    let user_timeout = u32::try_from(config.user_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, user_timeout)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, config.keepalive)?;
    sockopt::set_tcp_keepintvl(stream, config.keepalive)
}

/// Octets of TCP payload in one segment (EMSS), from the path's MTU less IP and TCP headers with
/// timestamps.
pub(crate) fn emss(stream: &OwnedFd, peer: SocketAddr) -> usize {
    const TCP: usize = 20 + 12;
    /// MTU of Ethernet, used if the kernel reports none.
    const ETHERNET: u32 = 1_500;
    let (mtu, ip) = match peer {
        SocketAddr::V4(_) => (sockopt::ip_mtu(stream), 20),
        SocketAddr::V6(_) => (sockopt::ipv6_mtu(stream), 40),
    };
    (mtu.unwrap_or(ETHERNET) as usize).saturating_sub(ip + TCP)
}

/// Outcome of one send or receive on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketResult {
    /// This many octets.
    Octets(usize),
    /// Nothing: the kernel's buffer is full, or empty.
    WouldBlock,
    /// The peer has closed its side.
    End,
    /// The connection broke.
    Broken(Errno),
}

/// Passes `pieces` to the kernel. `ends_here` keeps later octets out of the last segment
/// (`MSG_EOR`).
pub(crate) fn send(
    stream: &OwnedFd,
    pieces: &[IoSlice<'_>],
    ends_here: bool,
    stats: &mut IwarpStats,
) -> SocketResult {
    let eor = if ends_here { SendFlags::EOR } else { SendFlags::empty() };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | eor;
    sent(stats, || net::sendmsg(stream, pieces, &mut SendAncillaryBuffer::default(), flags))
}

/// Passes contiguous octets to the kernel, as [`send`] does.
pub(crate) fn send_one(
    stream: &OwnedFd,
    octets: &[u8],
    ends_here: bool,
    stats: &mut IwarpStats,
) -> SocketResult {
    let eor = if ends_here { SendFlags::EOR } else { SendFlags::empty() };
    sent(stats, || net::send(stream, octets, SendFlags::NOSIGNAL | SendFlags::DONTWAIT | eor))
}

fn sent(stats: &mut IwarpStats, send: impl Fn() -> rustix::io::Result<usize>) -> SocketResult {
    loop {
        stats.sendmsg += 1;
        match send() {
            Ok(octets) => {
                stats.octets_out += octets as u64;
                return SocketResult::Octets(octets);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => return SocketResult::WouldBlock,
            Err(error) => return SocketResult::Broken(error),
        }
    }
}

/// Fills `room`, which is not empty, with the input.
#[inline(always)]
pub(crate) fn receive(stream: &OwnedFd, room: &mut [u8], stats: &mut IwarpStats) -> SocketResult {
    debug_assert!(!room.is_empty(), "a receive without room would look like the end");
    loop {
        stats.recv += 1;
        match net::recv(stream, &mut *room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return SocketResult::End,
            Ok((_, octets)) => {
                stats.octets_in += octets as u64;
                return SocketResult::Octets(octets);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return SocketResult::WouldBlock,
            Err(error) => return SocketResult::Broken(error),
        }
    }
}

/// Fills `first`, then `second`; one of them may be empty.
pub(crate) fn receive_two(
    stream: &OwnedFd,
    first: &mut [u8],
    second: &mut [u8],
    stats: &mut IwarpStats,
) -> SocketResult {
    if first.is_empty() {
        return receive(stream, second, stats);
    }
    receive_pieces(stream, &mut [IoSliceMut::new(first), IoSliceMut::new(second)], stats)
}

/// Fills `pieces`, one after the other; some of them may be empty.
pub(crate) fn receive_pieces(
    stream: &OwnedFd,
    pieces: &mut [IoSliceMut<'_>],
    stats: &mut IwarpStats,
) -> SocketResult {
    loop {
        stats.recv += 1;
        match rustix::io::readv(stream, pieces) {
            Ok(0) => return SocketResult::End,
            Ok(octets) => {
                stats.octets_in += octets as u64;
                return SocketResult::Octets(octets);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return SocketResult::WouldBlock,
            Err(error) => return SocketResult::Broken(error),
        }
    }
}

/// Sends our FIN. A socket that is gone already needs none.
pub(crate) fn finish(stream: &OwnedFd) {
    let _ = net::shutdown(stream, net::Shutdown::Write);
}

/// All sockets of one shard, and the ready ones of the last look.
pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<epoll::Event>,
    next: usize,
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoll({} ready)", self.events.len() - self.next)
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { fd, events: Vec::with_capacity(BATCH), next: 0 })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn add(
        &self,
        socket: &OwnedFd,
        id: u64,
        interest: Ready,
        stats: &mut IwarpStats,
    ) -> io::Result<()> {
        stats.epoll_ctl += 1;
        Ok(epoll::add(&self.fd, socket, epoll::EventData::new_u64(id), interest)?)
    }

    /// Watches `socket`, which was added before, for `interest` from here on.
    pub(crate) fn modify(
        &self,
        socket: &OwnedFd,
        id: u64,
        interest: Ready,
        stats: &mut IwarpStats,
    ) {
        stats.epoll_ctl += 1;
        let modified = epoll::modify(&self.fd, socket, epoll::EventData::new_u64(id), interest);
        debug_assert!(modified.is_ok(), "a socket that was added can be modified: {modified:?}");
    }

    /// Looks for ready sockets, without waiting. Returns true if there is one.
    pub(crate) fn look(&mut self, stats: &mut IwarpStats) -> bool {
        debug_assert!(self.next == self.events.len(), "the last look was used up");
        stats.epoll_wait += 1;
        self.events.clear();
        self.next = 0;
        let looked = epoll::wait(
            &self.fd,
            rustix::buffer::spare_capacity(&mut self.events),
            Some(&Timespec::default()),
        );
        debug_assert!(matches!(looked, Ok(_) | Err(Errno::INTR)), "our own descriptor: {looked:?}");
        !self.events.is_empty()
    }

    /// Returns true if [`next`](Self::next) has an event.
    pub(crate) fn has_next(&self) -> bool {
        self.next < self.events.len()
    }

    /// The next ready socket.
    pub(crate) fn next(&mut self) -> Option<(u64, Ready)> {
        let event = self.peek()?;
        self.next += 1;
        Some(event)
    }

    /// The same, without taking it.
    pub(crate) fn peek(&self) -> Option<(u64, Ready)> {
        let event = self.events.get(self.next)?;
        // The event is packed: its fields are copied out.
        let (data, flags) = (event.data, event.flags);
        Some((data.u64(), flags))
    }
}

/// Converts an error; lack of descriptors is a limit of ours.
pub(crate) fn fault(error: &io::Error) -> FabricFault {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS) => FabricFault::Exhausted,
        _ => FabricFault::from(error),
    }
}
