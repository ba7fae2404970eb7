//! Listen addresses as given on the command line: `SCHEME://IP:PORT`.

use crate::{Error, plain};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt::set_socket_reuseaddr,
};
use stag_fabrics::{Absent, FabricAddress, FabricInfo, Notation, UrlError};
use stag_verbs::{AddressFault, FabricFault, socket_address};
use std::{fmt::Display, io, net::SocketAddr, path::PathBuf};

/// Schemes in a sentence.
fn listed(schemes: &[&str]) -> String {
    let urls: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
    match urls.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        all => all.join(", "),
    }
}

/// The schemes at which this build listens, in a sentence.
fn served() -> String {
    let mut schemes: Vec<_> = FabricInfo::real().map(|info| info.scheme).collect();
    schemes.sort_unstable();
    listed(&schemes)
}

/// The schemes that this build calls, in a sentence.
pub fn called() -> String {
    let mut schemes: Vec<_> = FabricInfo::real().map(|info| info.scheme).collect();
    schemes.insert(1.min(schemes.len()), "tcp");
    listed(&schemes)
}

/// Facts about the fabric of a scheme. Simulated ends meet inside one process, so no command has
/// them.
pub fn fabric(scheme: &str) -> Result<FabricInfo, UrlError> {
    let known = FabricInfo::named(scheme).filter(|info| !info.is_simulated);
    known.ok_or_else(|| UrlError::unknown(scheme))
}

/// The address to listen at in a URL without a path.
pub fn listen(url: &str) -> Result<FabricAddress, Error> {
    let known = url.split_once("://").map_or(Ok(()), |(scheme, _)| fabric(scheme).map(drop));
    known.and_then(|()| FabricAddress::parse(url)).map_err(|error| no_address(url, error))
}

fn no_address(url: &str, error: UrlError) -> Error {
    let sentence = match error {
        UrlError::NoScheme => format!("{url:?} has no scheme: this build has {}", served()),
        UrlError::UnknownScheme(scheme) => {
            format!("{url:?}: this build has no scheme {scheme}://, only {}", served())
        }
        UrlError::Absent(absent) => not_built(url, absent).to_string(),
        UrlError::Address { scheme, .. }
            if fabric(scheme).is_ok_and(|info| info.notation == Notation::Ip) =>
        {
            let text = url.split_once("://").map_or(url, |(_, text)| text);
            match socket_address(text) {
                Err(AddressFault::Form) | Ok(_) => format!(
                    "{url:?} is not an address to listen at: write {scheme}://IP:PORT, for example \
                     {scheme}://127.0.0.1:20049 or {scheme}://[::1]:20049"
                ),
                Err(fault) => format!("{url:?}: {fault}"),
            }
        }
        UrlError::Address { why, .. } => format!("{url:?} is not an address to listen at: {why}"),
    };
    Error::usage(format!("--listen {sentence}"))
}

/// The error for a URL of a fabric that is not in this build.
pub fn not_built(url: &str, absent: Absent) -> Error {
    let Absent { name, feature, .. } = absent;
    Error::usage(format!(
        "{url:?}: this build has no {name}, only {}; build it with --features {feature}",
        served()
    ))
}

/// The address for TCP; none for `none`.
pub fn tcp(text: &str) -> Result<Option<SocketAddr>, Error> {
    if text == "none" {
        return Ok(None);
    }
    socket_address(text).map(Some).map_err(|fault| {
        Error::usage(match fault {
            AddressFault::Form => format!(
                "{text:?} is not an address for --tcp: write IP:PORT, for example 127.0.0.1:2049, \
                 or none"
            ),
            fault => format!("--tcp {text:?}: {fault}"),
        })
    })
}

/// The socket of an address where processes of this host meet; none of another.
pub fn socket_path(at: &FabricAddress) -> Option<PathBuf> {
    if at.info().notation != Notation::Path {
        return None;
    }
    let url = at.to_string();
    let path = url.split_once("://").map_or(&*url, |(_, path)| path);
    Some(PathBuf::from(path.split('?').next().unwrap_or(path)))
}

/// Checks that this process could listen at `at`, by a socket that never accepts connections. An
/// address that another program uses passes.
///
/// # Errors
/// It is no address of this host, or its port needs a privilege.
pub fn probe(at: SocketAddr) -> io::Result<()> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A server that starts meanwhile can still bind the address.
    set_socket_reuseaddr(&socket, true)?;
    match bind(&socket, &at) {
        Err(Errno::ADDRINUSE) => Ok(()),
        bound => Ok(bound?),
    }
}

/// The sentence about an address that cannot be used, and what to do about it; `flag` gives another
/// one.
pub fn cannot_listen(at: &impl Display, fault: FabricFault, flag: &str) -> Error {
    let why = match fault {
        FabricFault::AddressInUse => {
            format!("another program uses it; stop that one, or choose another address with {flag}")
        }
        FabricFault::BadAddress => {
            format!("it is no address of this host; choose another with {flag}")
        }
        FabricFault::Denied => {
            format!("ports below 1024 need a privilege; choose another with {flag}, or run as root")
        }
        FabricFault::Os(number) => plain(&std::io::Error::from_raw_os_error(number)),
        other => other.to_string(),
    };
    Error::usage(format!("cannot listen at {at}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_fabrics::ABSENT;

    #[test]
    fn a_socket_is_a_path_without_parameters() {
        let path = |url| socket_path(&listen(url).unwrap());
        assert_eq!(path("shm:///run/s?trust=uid"), Some(PathBuf::from("/run/s")));
        assert_eq!(path("shm:///run/s"), Some(PathBuf::from("/run/s")));
        assert_eq!(path("iwarp://127.0.0.1:1"), None);
    }

    #[test]
    fn an_address_that_is_taken_passes_and_one_of_another_host_does_not() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        probe(taken.local_addr().unwrap()).unwrap();
        probe("127.0.0.1:0".parse().unwrap()).unwrap();
        // RFC 5737: no host has it.
        let error = probe("192.0.2.1:0".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(
            listen("iwarp://127.0.0.1:20049").unwrap().to_string(),
            "iwarp://127.0.0.1:20049"
        );
        assert_eq!(listen("iwarp://[::1]:0").unwrap().to_string(), "iwarp://[::1]:0");
        assert_eq!(tcp("none"), Ok(None));
        for text in ["[fe80::1%lo]:2049", "[fe80::1%25lo]:2049", "[fe80::1%1]:2049"] {
            assert_eq!(tcp(text).unwrap().unwrap().to_string(), "[fe80::1%1]:2049");
            let at = listen(&format!("iwarp://{text}")).unwrap();
            assert_eq!(at.to_string(), "iwarp://[fe80::1%1]:2049");
        }
        for (text, part) in [
            ("[fe80::1]:2049", "needs its interface: write [fe80::1%NAME]"),
            ("[fe80::1%none-such]:2049", "this host has no interface none-such"),
        ] {
            assert!(tcp(text).unwrap_err().to_string().contains(part));
            assert!(listen(&format!("iwarp://{text}")).unwrap_err().to_string().contains(part));
        }
        assert_eq!(tcp("[::1]:2049").unwrap().unwrap().to_string(), "[::1]:2049");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_it_should_have() {
        for url in [
            "iwarp://",
            "iwarp://127.0.0.1",
            "iwarp://host:20049",
            "iwarp://1.2.3.4:99999",
            "iwarp://1.2.3.4:1/x",
        ] {
            assert!(
                listen(url).unwrap_err().to_string().contains("write iwarp://IP:PORT"),
                "{url}"
            );
        }
        for url in ["udp://127.0.0.1:20049", "127.0.0.1:20049"] {
            assert!(listen(url).unwrap_err().to_string().contains("iwarp://"), "{url}");
        }
        match (listen("rdma://127.0.0.1:20049"), ABSENT) {
            (Ok(at), []) => assert_eq!(at.to_string(), "rdma://127.0.0.1:20049"),
            (Err(error), [_]) => assert!(error.to_string().contains("--features verbs")),
            (found, absent) => panic!("{found:?} with {absent:?}"),
        }
        assert!(listen("shm://x").unwrap_err().to_string().contains("must be absolute"));
        assert!(listen("shm:///x?trust=all").unwrap_err().to_string().contains("?trust=uid"));
        assert_eq!(listen("shm:///x?trust=uid").unwrap().to_string(), "shm:///x?trust=uid");
        for text in ["2049", "127.0.0.1", "localhost:2049", ""] {
            assert!(tcp(text).unwrap_err().to_string().contains("or none"), "{text}");
        }
    }

    #[test]
    fn every_scheme_of_this_build_is_named_in_the_refusal_of_another() {
        let text = |url| listen(url).unwrap_err().to_string();
        let served =
            if ABSENT.is_empty() { "iwarp://, rdma:// and shm://" } else { "iwarp:// and shm://" };
        assert_eq!(
            text("udp://127.0.0.1:1"),
            format!(
                "--listen \"udp://127.0.0.1:1\": this build has no scheme udp://, only {served}"
            )
        );
        assert_eq!(
            text("127.0.0.1:1"),
            format!("--listen \"127.0.0.1:1\" has no scheme: this build has {served}")
        );
        // Also where the feature is unified into this build: its ends do not meet between
        // processes.
        for url in ["sim://7", "sim://x"] {
            assert_eq!(
                text(url),
                format!("--listen {url:?}: this build has no scheme sim://, only {served}")
            );
        }
        assert!(called().starts_with("iwarp://, tcp://"), "{}", called());
    }
}
