//! Identity of the process at the other end of a socket, as the kernel vouches for it. Has
//! `unsafe`.

use rustix::io::Errno;
use stag_verbs::PeerAddress;
use std::os::fd::{AsFd, AsRawFd};

/// The process that connected or listened there. Its number is 0 where ours does not see it: in
/// another PID namespace, as of containers that share a directory. rustix reads that number into a
/// type that has no 0, so libc asks.
pub(crate) fn peer_of(socket: impl AsFd) -> Result<PeerAddress, Errno> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let expected = size_of::<libc::ucred>() as libc::socklen_t;
    let mut len = expected;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open; the kernel writes at most `len` octets, which `peer` has, any
    // octets are a `ucred`, and it writes how many those were to `len`.
    let failed = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if failed != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    if len != expected || peer.uid == libc::uid_t::MAX {
        return Err(Errno::NOTCONN); // nobody is there
    }
    Ok(PeerAddress::Process { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{net, process};

    #[test]
    fn both_ends_of_a_pair_are_this_process_and_nobody_is_at_a_lonely_one() {
        let (family, kind) = (net::AddressFamily::UNIX, net::SocketType::SEQPACKET);
        let (one, other) = net::socketpair(family, kind, net::SocketFlags::CLOEXEC, None).unwrap();
        let us = PeerAddress::Process { pid: std::process::id(), uid: process::geteuid().as_raw() };
        assert_eq!((peer_of(&one), peer_of(&other)), (Ok(us), Ok(us)));
        let lonely = net::socket_with(family, kind, net::SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(peer_of(&lonely), Err(Errno::NOTCONN));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer_of(&file), Err(Errno::NOTSOCK));
    }
}
