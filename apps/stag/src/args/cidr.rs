//! Networks, written as ADDRESS/BITS (RFC 4632 §3.1, RFC 4291 §2.3), and the addresses that need
//! such a list of clients.

use crate::Error;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Reads `10.0.0.0/8`, `fd00::/8` or a single address, the value of `flag`.
///
/// # Errors
/// A sentence when it is none of them, or has bits set past its prefix.
pub fn parse(text: &str, flag: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| {
        format!("{text:?} in {flag} is no network: write 10.0.0.0/8, fd00::/8 or one address")
    })?;
    if network.trunc() != network {
        return Err(format!(
            "{text} in {flag} has bits behind its prefix: write {}",
            network.trunc()
        ));
    }
    Ok(network)
}

/// Reads the networks of `--clients`.
///
/// # Errors
/// As [`parse`].
pub fn clients(texts: &[String]) -> Result<Vec<IpNet>, Error> {
    texts.iter().map(|text| parse(text, "--clients").map_err(Error::usage)).collect()
}

/// True if `network` contains `address`. An IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) counts as
/// IPv4.
pub fn contains(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address.to_canonical())
}

/// Requires `--clients` for a server that other hosts can reach (DESIGN D12). `flag` is the one
/// that gave `addresses`.
pub fn check_open(flag: &str, addresses: &[SocketAddr], clients: &[IpNet]) -> Result<(), Error> {
    let is_open = |at: &SocketAddr| !at.ip().to_canonical().is_loopback();
    match addresses.iter().copied().find(is_open) {
        Some(at) if clients.is_empty() => Err(Error::usage(format!(
            "{flag} {at} can be reached from other hosts: say who may connect with --clients \
             CIDR,… (for example --clients {}), or listen at a loopback address",
            example(at.ip())
        ))),
        _ => Ok(()),
    }
}

fn example(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "192.168.1.0/24" } else { "fd00::/8" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(network: &str, address: &str) -> bool {
        contains(&parse(network, "--clients").unwrap(), address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_its_addresses_and_no_other() {
        for (network, inside, outside) in [
            (
                "10.0.0.0/8",
                ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
                ["9.255.255.255", "11.0.0.0", "::a00:0"],
            ),
            (
                "192.168.7.0/25",
                ["192.168.7.0", "192.168.7.127", "192.168.7.1"],
                ["192.168.7.128", "192.168.6.255", "::"],
            ),
            ("1.2.3.4", ["1.2.3.4", "::ffff:1.2.3.4", "1.2.3.4"], ["1.2.3.5", "1.2.3.3", "::1"]),
            ("fd00::/8", ["fd00::", "fdff::1", "fd12:3456::"], ["fc00::", "fe00::", "253.0.0.0"]),
            ("2001:db8::1", ["2001:db8::1"; 3], ["2001:db8::2", "2001:db8::", "1.2.3.4"]),
        ] {
            for address in inside {
                assert!(holds(network, address), "{address} lies in {network}");
            }
            for address in outside {
                assert!(!holds(network, address), "{address} does not lie in {network}");
            }
        }
        assert!(holds("0.0.0.0/0", "255.1.2.3") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("::/0", "ffff::1") && !holds("::/0", "1.2.3.4"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "/8",
            "fd00::/129",
            "host",
            "1.2.3.4/8/8",
            " 1.2.3.4",
        ] {
            assert!(parse(text, "--clients").is_err(), "{text:?}");
        }
        let error = parse("10.1.2.3/8", "--clients").unwrap_err();
        assert!(error.to_string().ends_with("write 10.0.0.0/8"), "{error}");
    }

    #[test]
    fn only_loopback_addresses_need_no_clients() {
        let check =
            |at: &str, clients: &[IpNet]| check_open("--tcp", &[at.parse().unwrap()], clients);
        for at in ["127.0.0.1:1", "127.200.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(check(at, &[]), Ok(()), "{at}");
        }
        for at in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fd00::1]:1", "128.0.0.1:1"] {
            assert!(check(at, &[]).unwrap_err().to_string().contains("--clients CIDR"), "{at}");
            assert_eq!(check(at, &[parse("10.0.0.0/8", "--clients").unwrap()]), Ok(()), "{at}");
        }
    }
}
