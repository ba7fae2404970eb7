//! Addresses in the system's form.

use libc::{c_int, sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::{
    mem::{MaybeUninit, offset_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    ptr,
};

pub(crate) fn to_raw(at: SocketAddr) -> sockaddr_storage {
    // SAFETY: it is made of integers, for which zero is a value.
    let mut storage = unsafe { MaybeUninit::<sockaddr_storage>::zeroed().assume_init() };
    let place = &raw mut storage;
    match at {
        SocketAddr::V4(at) => {
            let raw = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: at.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*at.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: every kind of address fits the storage, which is aligned for all of them.
            unsafe { place.cast::<sockaddr_in>().write(raw) };
        }
        SocketAddr::V6(at) => {
            let raw = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: at.port().to_be(),
                sin6_flowinfo: at.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: at.ip().octets() },
                sin6_scope_id: at.scope_id(),
            };
            // SAFETY: every kind of address fits the storage, which is aligned for all of them.
            unsafe { place.cast::<sockaddr_in6>().write(raw) };
        }
    }
    storage
}

pub(crate) fn from_raw(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let place = ptr::from_ref(storage);
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what is in the storage.
            let raw = unsafe { place.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says what is in the storage.
            let raw = unsafe { place.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

const _: () =
    assert!(offset_of!(sockaddr_storage, ss_family) == offset_of!(sockaddr_in, sin_family));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_system_s_form() {
        for text in ["10.0.2.15:20049", "[fe80::1%3]:1", "[::1]:65535", "0.0.0.0:0"] {
            let at: SocketAddr = text.parse().unwrap();
            assert_eq!(from_raw(&to_raw(at)), Some(at));
        }
        // SAFETY: it is made of integers, for which zero is a value.
        let none = unsafe { MaybeUninit::<sockaddr_storage>::zeroed().assume_init() };
        assert_eq!(from_raw(&none), None);
    }
}
