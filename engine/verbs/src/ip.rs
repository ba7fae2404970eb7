//! Text form of IP socket addresses: `IP:PORT`, `[IPV6]:PORT`, and with the scope that a link-local
//! address of version 6 needs (RFC 4007 §11): `[fe80::1%eth0]:PORT`, in URLs also
//! `[fe80::1%25eth0]:PORT` (RFC 6874 §2). Every option and URL with an address is parsed here.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs},
};

/// The reason why a text is not a valid socket address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressFault {
    /// The syntax is wrong.
    Form,
    /// This host has no interface with this name or number.
    Interface(String),
    /// A link-local address without a scope.
    Scope(Ipv6Addr),
}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("write IP:PORT, as 127.0.0.1:20049 or [::1]:20049"),
            Self::Interface(name) => write!(f, "this host has no interface {name}"),
            Self::Scope(ip) => write!(
                f,
                "{ip} is a link-local address, which needs its interface: write [{ip}%NAME], as \
                 [{ip}%eth0]"
            ),
        }
    }
}

impl std::error::Error for AddressFault {}

/// Parses `IP:PORT`, where an address of version 6 is in brackets and may have a scope.
///
/// # Errors
/// If the syntax is wrong, or if the named interface does not exist.
pub fn socket_address(text: &str) -> Result<SocketAddr, AddressFault> {
    match text.parse() {
        Ok(at) => with_scope(at),
        Err(_) => {
            let (host, port) = text.rsplit_once(':').ok_or(AddressFault::Form)?;
            let is_decimal = port.bytes().all(|octet| octet.is_ascii_digit());
            let port = port.parse().ok().filter(|_| is_decimal).ok_or(AddressFault::Form)?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            scoped(host.ok_or(AddressFault::Form)?, port)
        }
    }
}

/// Parses an address without brackets, which may have a scope, and adds `port`.
///
/// # Errors
/// As [`socket_address`].
pub fn scoped(host: &str, port: u16) -> Result<SocketAddr, AddressFault> {
    let Some((ip, zone)) = host.split_once('%') else {
        let ip: IpAddr = host.parse().map_err(|_| AddressFault::Form)?;
        return with_scope(SocketAddr::new(ip, port));
    };
    let ip: Ipv6Addr = ip.parse().map_err(|_| AddressFault::Form)?;
    // The unescaped form first: a number may begin with 25, and so may a name.
    let escaped = zone.strip_prefix("25").filter(|name| !name.is_empty());
    let mut names = [Some(zone), escaped].into_iter().flatten();
    names
        .find_map(|name| interface(ip, name, port))
        .ok_or_else(|| AddressFault::Interface(escaped.unwrap_or(zone).to_owned()))
}

/// Adds the scope of an interface to the address; the system resolves its name.
fn interface(ip: Ipv6Addr, name: &str, port: u16) -> Option<SocketAddr> {
    // Only valid interface names are accepted, so that no name server is queried.
    let is_name = |octet: u8| octet.is_ascii_graphic() && !b"/%:[]".contains(&octet);
    if name.is_empty() || name.len() > 15 || !name.bytes().all(is_name) {
        return None;
    }
    let mut found = (format!("{ip}%{name}").as_str(), port).to_socket_addrs().ok()?;
    found.find(|at| matches!(at, SocketAddr::V6(at) if at.scope_id() != 0))
}

/// Returns the address, unless it lacks a required scope.
fn with_scope(at: SocketAddr) -> Result<SocketAddr, AddressFault> {
    match at {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(AddressFault::Scope(*v6.ip()))
        }
        at => Ok(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> u32 {
        match socket_address(text) {
            Ok(SocketAddr::V6(at)) => at.scope_id(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_scope_is_the_name_or_the_number_of_an_interface_and_may_be_escaped() {
        // Every host has lo, as its first interface.
        for text in ["[fe80::1%lo]:7", "[fe80::1%25lo]:7", "[fe80::1%1]:7"] {
            assert_eq!(scope(text), 1, "{text}");
            let at = socket_address(text).unwrap();
            assert_eq!((at.port(), socket_address(&at.to_string())), (7, Ok(at)), "{text}");
        }
        assert_eq!(scoped("fe80::1%lo", 9).unwrap().to_string(), "[fe80::1%1]:9");
        assert_eq!(scope("[fe80::1%253]:7"), 253, "a number stays what it is");
    }

    #[test]
    fn addresses_without_a_scope_are_read_as_before() {
        for text in ["127.0.0.1:7", "[::1]:0", "[2001:db8::1]:65535", "[::ffff:1.2.3.4]:1"] {
            assert_eq!(socket_address(text).unwrap(), text.parse().unwrap());
        }
        assert_eq!(scoped("10.0.0.1", 5).unwrap().to_string(), "10.0.0.1:5");
    }

    #[test]
    fn what_is_no_address_says_what_is_wrong() {
        let ip: Ipv6Addr = "fe80::1".parse().unwrap();
        assert_eq!(socket_address("[fe80::1]:7"), Err(AddressFault::Scope(ip)));
        let gone = Err(AddressFault::Interface("none-such".to_owned()));
        assert_eq!(socket_address("[fe80::1%none-such]:7"), gone);
        assert_eq!(socket_address("[fe80::1%25none-such]:7"), gone);
        for text in [
            "",
            "7",
            "host:7",
            "[]:7",
            "[fe80::1%lo]",
            "[fe80::1%lo]:",
            "[fe80::1%lo]:+7",
            "[fe80::1%lo]:70000",
            "fe80::1%lo:7",
            "[1.2.3.4%lo]:7",
            "[host%lo]:7",
            "[%lo]:7",
        ] {
            assert_eq!(socket_address(text), Err(AddressFault::Form), "{text}");
        }
        for zone in ["", "a/b", "a%b", "a b", "x".repeat(16).as_str()] {
            let found = socket_address(&format!("[fe80::1%{zone}]:7"));
            assert!(matches!(found, Err(AddressFault::Interface(_))), "{zone}: {found:?}");
        }
    }
}
