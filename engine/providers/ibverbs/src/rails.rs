//! Devices of this host by their addresses, for a server with several of them.

use crate::{
    config::Through,
    device::Device,
    library::Library,
    rdmacm::{self, not_here},
};
use libc::{c_int, sockaddr_in, sockaddr_in6};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
    sync::Arc,
    time::Duration,
};

/// A device, with those of its addresses that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rail {
    pub(crate) device: String,
    /// At least one.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Rail {
    /// The address by which the device is found.
    pub(crate) fn address(&self) -> IpAddr {
        self.addresses.first().copied().expect("a device is found by an address")
    }
}

/// The devices that `addresses` belong to, in that order, each once. An unspecified address stands
/// for all of its family that belong to a device.
///
/// # Errors
/// [`Unavailable`](crate::Unavailable) inside, for the first address that belongs to none.
pub(crate) fn rails(library: &'static Library, addresses: &[IpAddr]) -> io::Result<Vec<Rail>> {
    let mut found: Vec<Rail> = Vec::new();
    for asked in addresses {
        let candidates = match asked.is_unspecified() {
            true => {
                let all = addresses_here()?;
                all.into_iter().filter(|it| it.is_ipv4() == asked.is_ipv4()).collect()
            }
            false => vec![*asked],
        };
        for address in candidates {
            match rdmacm::device_name_at(library, address)? {
                Some(device) => add(&mut found, device, address),
                None if asked.is_unspecified() => {}
                None => return Err(not_here(address)),
            }
        }
    }
    Ok(found)
}

fn add(found: &mut Vec<Rail>, device: String, address: IpAddr) {
    match found.iter_mut().find(|rail| rail.device == device) {
        Some(rail) if rail.addresses.contains(&address) => {}
        Some(rail) => rail.addresses.push(address),
        None => found.push(Rail { device, addresses: vec![address] }),
    }
}

/// An address of this host that belongs to an RDMA device, and that device.
///
/// # Errors
/// The sentence about what is missing: the kernel's part, devices, or the address of one.
pub(crate) fn address_here(library: &'static Library) -> io::Result<(IpAddr, Arc<Device>)> {
    for at in addresses_here()? {
        let through = rdmacm::device_through(library, Through::Local(at), Duration::ZERO);
        if let Ok(found) = through {
            return Ok((at, found.device));
        }
    }
    let device = Device::first(library)?;
    Err(io::Error::other(format!("no RDMA here: {} has no IP address", device.about.name)))
}

/// The addresses of this host, of RDMA devices and others, in the system's order.
fn addresses_here() -> io::Result<Vec<IpAddr>> {
    #[cfg(test)]
    if let Some(made_up) = crate::fake::addresses() {
        return Ok(made_up);
    }
    let mut list = ptr::null_mut::<libc::ifaddrs>();
    // SAFETY: `list` is written to; it is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut next, mut found) = (list, Vec::new());
    while !next.is_null() {
        // SAFETY: entries of a list that is not freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        found.extend(address_of(entry));
    }
    // SAFETY: it was given above, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn address_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: an entry's address is there with the entry.
    let family = c_int::from(unsafe { (*entry.ifa_addr).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: the family says what it is.
            let raw = unsafe { entry.ifa_addr.cast::<sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says what it is.
            let raw = unsafe { entry.ifa_addr.cast::<sockaddr_in6>().read_unaligned() };
            // Link-local ones need their interface beside them.
            (raw.sin6_scope_id == 0).then(|| Ipv6Addr::from(raw.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
