//! Selection of one of several listeners on a port by the caller's address
//! (`SO_ATTACH_REUSEPORT_CBPF`, socket(7)).

use rustix::{fd::AsFd, io::Errno};
use std::{net::IpAddr, os::fd::AsRawFd as _};

/// Knuth's multiplier: consecutive addresses do not map to listeners in a regular stride.
const MULTIPLIER: u32 = 0x9e37_79b1;
/// Low bits of the product to drop: the upper ones depend on all bits of an address.
const SHIFT: u32 = 16;
/// Offsets from here on count from the network header (`SKF_NET_OFF`, linux/filter.h).
const NETWORK: u32 = (-0x10_0000_i32).cast_unsigned();
/// Offset of the source in an IPv4 header (RFC 791 §3.1).
const SOURCE_4: u32 = 12;
/// The same of IPv6 (RFC 8200 §3).
const SOURCE_6: u32 = 8;

/// Instructions, as linux/bpf_common.h has their parts.
mod code {
    pub(super) const LOAD_OCTET: u16 = 0x30;
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const JUMP_IF_EQUAL: u16 = 0x15;
    pub(super) const JUMP: u16 = 0x05;
    pub(super) const TO_X: u16 = 0x07;
    pub(super) const XOR_X: u16 = 0xac;
    pub(super) const MULTIPLY: u16 = 0x24;
    pub(super) const REMAINDER: u16 = 0x94;
    pub(super) const RETURN: u16 = 0x16;
}

/// Routes each caller of the group of `listener` to the listener given by [`place_of`], counted in
/// the order in which they began to listen, of which there are `listeners`. While there are fewer,
/// a caller whose listener is missing gets any.
///
/// # Errors
/// As setsockopt(2) fails: the system is older than Linux 4.6, or forbids it.
pub fn steer_by_source(listener: impl AsFd, listeners: u32) -> rustix::io::Result<()> {
    let mut steps = program(listeners.max(1));
    let program = libc::sock_fprog {
        len: steps.len() as u16, // nineteen
        filter: steps.as_mut_ptr(),
    };
    let (at, len) = ((&raw const program).cast(), size_of_val(&program) as libc::socklen_t);
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: `at` points to a whole `sock_fprog`, whose length is `len`, and it to as many
    // instructions as it says; all of them live through the call, which copies them.
    let set =
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, at, len) };
    match set {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// The index, below `listeners`, of the listener for a caller from `source`.
pub fn place_of(source: IpAddr, listeners: u32) -> u32 {
    let word = match source.to_canonical() {
        IpAddr::V4(source) => source.to_bits(),
        IpAddr::V6(source) => {
            let bits = source.to_bits();
            [96, 64, 32, 0].iter().fold(0, |word, shift| word ^ (bits >> shift) as u32)
        }
    };
    (word.wrapping_mul(MULTIPLIER) >> SHIFT) % listeners.max(1)
}

/// [`place_of`] as a kernel program, run for each connection request. A packet too short for a
/// load, which cannot get here, ends it with 0.
fn program(listeners: u32) -> [libc::sock_filter; 19] {
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let load = |offset: u32| step(code::LOAD_WORD, NETWORK.wrapping_add(offset));
    [
        step(code::LOAD_OCTET, NETWORK),
        step(code::SHIFT_RIGHT, 4),
        // Skips two steps for version 6.
        libc::sock_filter { code: code::JUMP_IF_EQUAL, jt: 2, jf: 0, k: 6 },
        load(SOURCE_4),
        // Skips the ten steps of version 6.
        step(code::JUMP, 10),
        load(SOURCE_6),
        step(code::TO_X, 0),
        load(SOURCE_6 + 4),
        step(code::XOR_X, 0),
        step(code::TO_X, 0),
        load(SOURCE_6 + 8),
        step(code::XOR_X, 0),
        step(code::TO_X, 0),
        load(SOURCE_6 + 12),
        step(code::XOR_X, 0),
        step(code::MULTIPLY, MULTIPLIER),
        step(code::SHIFT_RIGHT, SHIFT),
        step(code::REMAINDER, listeners),
        step(code::RETURN, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket, sockopt};
    use std::{
        net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
        os::fd::OwnedFd,
    };

    const LISTENERS: u32 = 3;

    fn family(at: SocketAddr) -> AddressFamily {
        if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
    }

    /// Listeners that share a free port of `at`, in their order.
    fn listeners(at: IpAddr) -> Vec<TcpListener> {
        let mut at = SocketAddr::new(at, 0);
        let listener = |_| {
            let socket = socket(family(at), SocketType::STREAM, None).unwrap();
            sockopt::set_socket_reuseport(&socket, true).unwrap();
            bind(&socket, &at).unwrap();
            listen(&socket, 16).unwrap();
            steer_by_source(&socket, LISTENERS).unwrap();
            let listener = TcpListener::from(socket);
            listener.set_nonblocking(true).unwrap();
            at = listener.local_addr().unwrap();
            listener
        };
        (0..LISTENERS).map(listener).collect()
    }

    /// The index of the listener that a connection from `source` reaches.
    fn reached(listeners: &[TcpListener], source: IpAddr) -> u32 {
        let mut to = listeners[0].local_addr().unwrap();
        if to.ip().is_unspecified() {
            to.set_ip(source);
        }
        let from = SocketAddr::new(source, 0);
        let caller: OwnedFd = socket(family(from), SocketType::STREAM, None).unwrap();
        bind(&caller, &from).unwrap();
        connect(&caller, &to).unwrap();
        let _caller = TcpStream::from(caller);
        // It is connected, so one of them has it.
        let places = listeners.iter().zip(0..);
        places.filter(|(at, _)| at.accept().is_ok()).map(|(_, place)| place).next().unwrap()
    }

    #[test]
    fn a_caller_reaches_the_listener_of_its_address_however_often_it_connects() {
        let group = listeners(Ipv4Addr::LOCALHOST.into());
        let mut callers = [0; LISTENERS as usize];
        for host in 1..=30 {
            let source = IpAddr::from([127, 0, 7, host]);
            let place = place_of(source, LISTENERS);
            callers[place as usize] += 1;
            for _ in 0..4 {
                assert_eq!(reached(&group, source), place, "{source}");
            }
        }
        assert!(callers.iter().all(|count| *count >= 5), "{callers:?}");
    }

    #[test]
    fn listeners_of_both_families_have_one_place_for_a_caller_of_either() {
        let group = listeners(Ipv6Addr::UNSPECIFIED.into());
        for source in [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 9).into()] {
            assert_eq!(reached(&group, source), place_of(source, LISTENERS), "{source}");
        }
        let six = Ipv6Addr::LOCALHOST.into();
        assert_eq!(reached(&group, six), place_of(six, LISTENERS));
        let mapped = Ipv4Addr::new(10, 1, 2, 3);
        assert_eq!(
            place_of(mapped.to_ipv6_mapped().into(), LISTENERS),
            place_of(mapped.into(), LISTENERS)
        );
    }

    #[test]
    fn hosts_of_a_network_are_spread_evenly() {
        for listeners in [2, 3, 4, 8, 16] {
            let mut hosts = vec![0; listeners as usize];
            for host in 0..1_024_u32 {
                let address = Ipv4Addr::from_bits(0x0a01_0000 + host);
                hosts[place_of(address.into(), listeners) as usize] += 1;
            }
            let even = 1_024 / listeners as usize;
            let is_near = |count: &usize| (even * 3 / 4..=even * 5 / 4).contains(count);
            assert!(hosts.iter().all(is_near), "{listeners}: {hosts:?}");
        }
    }

    #[test]
    fn a_socket_that_shares_no_port_is_refused() {
        let alone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(steer_by_source(&alone, 2), Err(Errno::INVAL));
    }
}
