//! Who may connect: loopback always, others by network (DESIGN D12).

use crate::cidr::Cidr;
use stag_engine::Admission;
use stag_verbs::PeerAddress;
use std::{
    cell::Cell,
    net::IpAddr,
    time::{Duration, Instant},
};

/// A stranger who keeps knocking fills no log.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The networks that may connect.
#[derive(Clone, Debug, Default)]
pub struct Clients(pub Vec<Cidr>);

impl Clients {
    /// Whether this host may connect.
    pub fn admits(&self, address: IpAddr) -> bool {
        address.to_canonical().is_loopback() || self.0.iter().any(|network| network.contains(address))
    }

    /// The same as a shard asks it. Refusals are logged, at most one a second.
    pub fn admission(self) -> Admission {
        let logged = Cell::new(None::<Instant>);
        Box::new(move |peer| {
            let is_admitted = match peer {
                PeerAddress::Ip(address) => self.admits(address.ip()),
                // The fabric let its user in (`--shm-allow`).
                PeerAddress::Process { .. } => true,
                PeerAddress::Simulated => false,
            };
            if !is_admitted && logged.get().is_none_or(|at| at.elapsed() >= REFUSAL_LOG_INTERVAL) {
                logged.set(Some(Instant::now()));
                tracing::warn!(target: "stag", %peer, "refused: not in --clients");
            }
            is_admitted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_always_admitted_and_others_by_network() {
        let clients = Clients(vec![Cidr::parse("10.0.0.0/8").unwrap(), Cidr::parse("fd00::/8").unwrap()]);
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3", "fd00::1"] {
            assert!(clients.admits(address.parse().unwrap()), "{address}");
            let peer = PeerAddress::Ip(std::net::SocketAddr::new(address.parse().unwrap(), 700));
            assert!((clients.clone().admission())(peer), "{address}");
        }
        for address in ["11.1.2.3", "fe80::1", "0.0.0.0", "::"] {
            assert!(!clients.admits(address.parse().unwrap()), "{address}");
            assert!(!Clients::default().admits(address.parse().unwrap()), "{address}");
        }
        assert!(!(clients.clone().admission())(PeerAddress::Simulated));
        assert!((clients.admission())(PeerAddress::Process { pid: 1, uid: 1000 }));
    }
}
