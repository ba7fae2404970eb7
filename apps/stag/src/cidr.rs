//! Networks, written as ADDRESS/BITS (RFC 4632 §3.1, RFC 4291 §2.3).

use crate::Error;
use std::{fmt, net::IpAddr};

/// A network, or one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/8`, `fd00::/8` or a single address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::usage(format!(
                "{text:?} in --clients is no network: write 10.0.0.0/8, fd00::/8 or one address"
            ))
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            // `parse` would take a sign.
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
                bits.parse().map_err(|_| bad())?
            }
            Some(_) => return Err(bad()),
            None => width,
        };
        if bits > width {
            return Err(bad());
        }
        let cidr = Self { network: masked(address, bits), bits };
        if cidr.network != address {
            return Err(Error::usage(format!(
                "{text} in --clients has bits behind its prefix: write {cidr}"
            )));
        }
        Ok(cidr)
    }

    /// Whether `address` lies in it. An IPv4 address in the dress of IPv6 (`::ffff:a.b.c.d`) is taken for what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4() && masked(address, self.bits) == self.network
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

/// The first `bits` bits; the others are zero.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        Cidr::parse(network).unwrap().contains(address.parse().unwrap())
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
                assert!(contains(network, address), "{address} lies in {network}");
            }
            for address in outside {
                assert!(!contains(network, address), "{address} does not lie in {network}");
            }
        }
        assert!(contains("0.0.0.0/0", "255.1.2.3") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "ffff::1") && !contains("::/0", "1.2.3.4"));
    }

    #[test]
    fn every_prefix_length_holds_what_shares_the_prefix() {
        for bits in 0..=32 {
            let network = Cidr { network: masked(IpAddr::from([0xaa; 4]), bits), bits };
            assert_eq!(Cidr::parse(&network.to_string()), Ok(network));
            for flipped in 0..32 {
                let address = IpAddr::V4((0xaaaa_aaaa_u32 ^ (1 << (31 - flipped))).into());
                assert_eq!(network.contains(address), flipped >= bits, "{address} in {network}");
            }
        }
        for bits in 0..=128 {
            let network = Cidr { network: masked(IpAddr::from([0xaa; 16]), bits), bits };
            assert_eq!(Cidr::parse(&network.to_string()), Ok(network));
            for flipped in 0..128 {
                let address = u128::from_be_bytes([0xaa; 16]) ^ (1 << (127 - u32::from(flipped)));
                assert_eq!(
                    network.contains(IpAddr::V6(address.into())),
                    flipped >= bits,
                    "{flipped} in {network}"
                );
            }
        }
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
            assert!(Cidr::parse(text).is_err(), "{text:?}");
        }
        let error = Cidr::parse("10.1.2.3/8").unwrap_err();
        assert!(error.to_string().ends_with("write 10.0.0.0/8"), "{error}");
    }
}
