//! Addresses on this host where two ends of one process meet through the device under test.

use stag_fabrics::{FabricAddress, FabricInfo, Here, Notation};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    sync::atomic::{AtomicU64, Ordering},
};
use tempfile::TempDir;

/// The scheme of RDMA devices.
pub const DEVICES: &str = "rdma";
/// A port where no server of RPC listens ("discard").
const NOBODY: u16 = 9;

/// Addresses of this host on the fabric, and through the device, of another address.
#[derive(Debug)]
pub struct DevicePlace {
    info: FabricInfo,
    root: PlaceRoot,
}

/// The part that the addresses of a place have in common.
#[derive(Debug)]
enum PlaceRoot {
    /// An address of the device, without a port.
    Ip(SocketAddr),
    /// A directory for sockets, which is removed with the place.
    Directory { home: TempDir, is_trusting: bool, next: AtomicU64 },
}

impl DevicePlace {
    /// The place on this host from which connections go to `at`, the address of another end.
    ///
    /// # Errors
    /// A sentence: nothing leads there.
    pub fn toward(at: &FabricAddress) -> Result<Self, String> {
        match at.ip() {
            Some(there) => Self::with_ip(at, source(there)?),
            None => Self::with_directory(at),
        }
    }

    /// The place at `at`, an address of this host.
    ///
    /// # Errors
    /// A sentence: the address names no device.
    pub fn of_own(at: &FabricAddress) -> Result<Self, String> {
        match at.ip() {
            Some(own) if own.ip().is_unspecified() && at.info().scheme == DEVICES => {
                Err(format!("{} names no device: give the address of one", own.ip()))
            }
            Some(own) if own.ip().is_unspecified() => Self::with_ip(at, loopback(own.ip())),
            Some(own) => Self::with_ip(at, own),
            None => Self::with_directory(at),
        }
    }

    fn with_ip(at: &FabricAddress, mut own: SocketAddr) -> Result<Self, String> {
        own.set_port(0);
        Ok(Self { info: at.info(), root: PlaceRoot::Ip(own) })
    }

    fn with_directory(at: &FabricAddress) -> Result<Self, String> {
        if at.info().notation != Notation::Path {
            return Err(format!("{at} is no address where two ends of one host meet"));
        }
        let home = tempfile::Builder::new().prefix("stag-accept-").tempdir();
        let home = home.map_err(|error| format!("no directory for sockets: {error} (TMPDIR)"))?;
        let is_trusting = at.is_trusting();
        let root = PlaceRoot::Directory { home, is_trusting, next: AtomicU64::new(0) };
        Ok(Self { info: at.info(), root })
    }

    /// True on RDMA devices; the other fabrics are software of this process.
    pub fn is_device(&self) -> bool {
        self.info.scheme == DEVICES
    }

    /// True when peers map pools of ours.
    pub const fn is_trusting(&self) -> bool {
        matches!(self.root, PlaceRoot::Directory { is_trusting: true, .. })
    }

    /// An address to listen at: another one each time, or one whose port is chosen on listening.
    ///
    /// # Errors
    /// A sentence.
    pub fn address(&self) -> Result<FabricAddress, String> {
        match &self.root {
            PlaceRoot::Ip(own) => self.parse(&own.to_string()),
            PlaceRoot::Directory { home, is_trusting, next } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let query = if *is_trusting { "?trust=uid" } else { "" };
                let path = home.path().join(number.to_string());
                self.parse(&format!("{}{query}", path.display()))
            }
        }
    }

    /// An address at which no program listens.
    ///
    /// # Errors
    /// A sentence.
    pub fn nowhere(&self) -> Result<FabricAddress, String> {
        let PlaceRoot::Ip(mut own) = self.root else { return self.address() };
        if self.is_device() {
            own.set_port(NOBODY);
            return self.parse(&own.to_string());
        }
        // A port that was free a moment ago.
        let free = TcpListener::bind(own).and_then(|listener| listener.local_addr());
        self.parse(&free.map_err(|error| format!("no port is free at {own}: {error}"))?.to_string())
    }

    fn parse(&self, place: &str) -> Result<FabricAddress, String> {
        let url = format!("{}://{place}", self.info.scheme);
        FabricAddress::parse(&url).map_err(|error| error.to_string())
    }

    /// Facts about the fabric here, by name; nothing about the device of another address.
    pub fn facts(&self) -> Vec<(String, String)> {
        let Ok(at) = self.address() else { return Vec::new() };
        let socket = std::env::temp_dir().join("stag-accept");
        match FabricAddress::here(self.info.scheme, &socket) {
            Ok(Here { at: here, facts }) if !self.is_device() || here.ip() == at.ip() => {
                facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The address of this host from which packets go to `there`.
fn source(there: SocketAddr) -> Result<SocketAddr, String> {
    let any: IpAddr = match there.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let found = UdpSocket::bind((any, 0)).and_then(|socket| {
        // Nothing is sent: the system chooses the address.
        socket.connect(there)?;
        socket.local_addr()
    });
    found.map_err(|error| format!("nothing leads to {there}: {error}"))
}

fn loopback(ip: IpAddr) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> FabricAddress {
        FabricAddress::parse(url).unwrap()
    }

    #[test]
    fn a_place_is_on_the_fabric_and_the_device_of_the_address() {
        let place = DevicePlace::toward(&at("iwarp://127.0.0.1:7")).unwrap();
        assert_eq!(place.address().unwrap().to_string(), "iwarp://127.0.0.1:0");
        assert_ne!(place.nowhere().unwrap(), place.nowhere().unwrap());
        let place = DevicePlace::of_own(&at("iwarp://0.0.0.0:7")).unwrap();
        assert_eq!(place.address().unwrap().to_string(), "iwarp://127.0.0.1:0");
        let place = DevicePlace::toward(&at("shm:///run/s?trust=uid")).unwrap();
        let (one, other) = (place.address().unwrap(), place.address().unwrap());
        assert!(one != other && one.is_trusting() && place.is_trusting());
        assert!(!DevicePlace::toward(&at("shm:///run/s")).unwrap().is_trusting());
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn an_address_of_all_devices_is_refused() {
        let refused = DevicePlace::of_own(&at("rdma://0.0.0.0:7")).unwrap_err();
        assert!(refused.contains("names no device"), "{refused}");
        assert!(DevicePlace::of_own(&at("rdma://127.0.0.1:7")).unwrap().is_device());
    }
}
