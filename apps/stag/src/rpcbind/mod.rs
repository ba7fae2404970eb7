//! Registration with rpcbind (RFC 1833 §2.2), by its socket of this host: clients without a
//! configured port then find MOUNT and NFS, and `showmount` works.

mod client;

use crate::Error;
use client::{Binding, RpcBind};
use stag_protocol::nfs::{mount, v3};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// Sockets of rpcbind, in the order in which they are tried.
const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];

/// The environment variable that names another socket.
pub const SOCKET_VARIABLE: &str = "STAG_RPCBIND_SOCKET";

/// Kind of a transport, as rpcbind names it (RFC 5665 §5, RFC 8166 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// `tcp` and `tcp6`.
    Tcp,
    /// `rdma` and `rdma6`.
    Rdma,
}

/// Addresses of a server, registered as long as this lives.
#[derive(Debug)]
pub struct Registration {
    socket: PathBuf,
    bindings: Vec<Binding>,
}

impl Registration {
    /// Registers MOUNT and NFS version 3 at addresses. Takes over what an earlier process left
    /// registered at the same address.
    ///
    /// # Errors
    /// A sentence when there is no rpcbind, or it has another server for one of them; then nothing
    /// is registered.
    pub fn new(addresses: &[(TransportKind, SocketAddr)]) -> Result<Self, Error> {
        Self::at(socket()?, addresses)
    }

    fn at(socket: PathBuf, addresses: &[(TransportKind, SocketAddr)]) -> Result<Self, Error> {
        let mut rpcbind = open(&socket)?;
        let mut registration = Self { socket, bindings: Vec::new() };
        for binding in bindings(addresses) {
            let said = rpcbind.set(&binding).and_then(|is_set| match is_set {
                true => Ok(true),
                // One that did not end in order left its own.
                false if rpcbind.has(&binding)? => {
                    rpcbind.unset(&binding)?;
                    rpcbind.set(&binding)
                }
                false => Ok(false),
            });
            match said {
                Ok(true) => registration.bindings.push(binding),
                Ok(false) => {
                    return Err(Error::usage(format!(
                        "--rpcbind: rpcbind has another server for {binding}: stop that one \
                         ('rpcinfo -p' lists them), or leave the flag out"
                    )));
                }
                Err(error) => {
                    return Err(Error::failure(format!("--rpcbind: {binding}: {error}")));
                }
            }
        }
        Ok(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // It may be gone, and with it what it knew.
        let Ok(mut rpcbind) = open(&self.socket) else { return };
        for binding in &self.bindings {
            let _ = rpcbind.unset(binding);
        }
    }
}

/// Checks that this host's rpcbind answers.
///
/// # Errors
/// A sentence when it cannot.
pub fn check() -> Result<(), Error> {
    open(&socket()?).map(drop)
}

/// The socket that the environment names.
pub fn named_socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

/// The socket of this host's rpcbind.
fn socket() -> Result<PathBuf, Error> {
    let usual = || SOCKETS.iter().map(PathBuf::from).find(|path| path.exists());
    named_socket().or_else(usual).ok_or_else(|| {
        Error::usage(format!(
            "--rpcbind: there is no {}: start rpcbind, or leave the flag out",
            SOCKETS.join(" and no ")
        ))
    })
}

fn open(socket: &Path) -> Result<RpcBind, Error> {
    RpcBind::open(socket).map_err(|error| {
        let why = crate::plain(&error);
        Error::failure(format!("--rpcbind: cannot ask rpcbind at {}: {why}", socket.display()))
    })
}

/// Registrations of MOUNT and NFS at each address; an address of both families has two.
fn bindings(addresses: &[(TransportKind, SocketAddr)]) -> Vec<Binding> {
    let mut all = Vec::new();
    for (kind, at) in addresses {
        let is_both = at.is_ipv6() && at.ip().is_unspecified();
        let v4 = is_both.then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), at.port()));
        for at in v4.into_iter().chain([*at]) {
            for (program, version) in [(mount::PROGRAM, mount::VERSION), (v3::PROGRAM, v3::VERSION)]
            {
                let netid = kind.netid(at).to_owned();
                let binding = Binding { program, version, netid, address: universal(at) };
                // Of several addresses of one transport, the first is registered.
                if !all.iter().any(|other: &Binding| other.names_the_same(&binding)) {
                    all.push(binding);
                }
            }
        }
    }
    all
}

impl TransportKind {
    const fn netid(self, at: SocketAddr) -> &'static str {
        match (self, at.is_ipv4()) {
            (Self::Tcp, true) => "tcp",
            (Self::Tcp, false) => "tcp6",
            (Self::Rdma, true) => "rdma",
            (Self::Rdma, false) => "rdma6",
        }
    }
}

/// An address as rpcbind writes it (RFC 5665 §5.2.3): the port's two octets follow it.
fn universal(at: SocketAddr) -> String {
    let [high, low] = at.port().to_be_bytes();
    format!("{}.{high}.{low}", at.ip())
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.program == v3::PROGRAM { "NFS" } else { "MOUNT" };
        write!(f, "{name} version {} over {}", self.version, self.netid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_with_the_two_octets_of_their_port() {
        assert_eq!(universal("10.0.0.1:2049".parse().unwrap()), "10.0.0.1.8.1");
        assert_eq!(universal("[fd00::1]:20049".parse().unwrap()), "fd00::1.78.81");
    }

    #[test]
    fn each_transport_and_family_has_its_netid_and_an_address_of_both_has_two() {
        let at = |text: &str| text.parse().unwrap();
        let all = bindings(&[
            (TransportKind::Rdma, at("[::]:20049")),
            (TransportKind::Rdma, at("10.0.0.2:20050")),
            (TransportKind::Tcp, at("10.0.0.1:2049")),
        ]);
        let told: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "MOUNT version 3 over rdma",
                "NFS version 3 over rdma",
                "MOUNT version 3 over rdma6",
                "NFS version 3 over rdma6",
                "MOUNT version 3 over tcp",
                "NFS version 3 over tcp",
            ]
        );
        assert_eq!(all.first().unwrap().address, "0.0.0.0.78.81", "the first one is told");
    }
}
