//! URLs of `stag call`: `SCHEME://HOST:PORT/EXPORT[/PATH][?mountport=N&sec=krb5&gssport=N]`. Over
//! TCP a port mapper may know the ports.

use super::ports::{self, Ports};
use crate::{
    Error,
    args::address,
    ticket::{self, CallSecOptions, CallerSec},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use stag_fabrics::{Endpoint, FabricAddress, Notation, UrlError};
use stag_rpc::gss::{TcpCreation, Tickets};
use stag_verbs::{AddressFault, scoped};
use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
};

/// Octets of a path that a URL has as `%XX`: all but the ones that are unreserved everywhere.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A server and a path on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Address of the server.
    pub server: Endpoint,
    /// Name of the host, if the URL has a name and not an address.
    pub host: Option<String>,
    /// Address of MOUNT over TCP, if MOUNT is not answered by the same connection.
    pub mount: Option<SocketAddr>,
    /// Credential of calls to NFS, if the URL says which.
    pub sec: Option<CallerSec>,
    /// Port over TCP where contexts of Kerberos are created if the server refuses that over RDMA,
    /// if the URL says which.
    pub gss_port: Option<u16>,
    /// The export and the path below it, with the slash in front.
    pub path: Vec<u8>,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

impl Url {
    /// Reads a URL. Octets of the path with another meaning in URLs, `?` and `%`, are written `%3F`
    /// and `%25`. For `tcp://` without a port the host's port mapper is asked.
    pub fn parse(url: &str) -> Result<Self, Error> {
        Self::parse_asking(url, ports::ask)
    }

    /// The same with the credential of an option.
    ///
    /// # Errors
    /// The URL has another one, or its server is a process of this host.
    pub fn with_sec(mut self, option: CallSecOptions) -> Result<Self, Error> {
        if let (Some(option), Some(written)) = (option.sec, self.sec)
            && option != written
        {
            let (option, written) = (option.name(), written.name());
            return Err(Error::usage(format!(
                "--sec {option} and ?sec={written} contradict each other: leave one out"
            )));
        }
        self.sec = self.sec.or(option.sec);
        if self.server.ip().is_none() && self.credential() != CallerSec::Sys {
            return Err(Error::usage(format!(
                "sec={} needs the server's name, and {self} is a process of this host: call it by \
                 tcp:// or iwarp://",
                self.credential().name()
            )));
        }
        Ok(self)
    }

    /// Credential of calls to NFS.
    pub fn credential(&self) -> CallerSec {
        self.sec.unwrap_or_default()
    }

    /// Tickets by which the server is called; none without Kerberos.
    pub fn tickets(&self) -> Option<Tickets> {
        ticket::tickets(self.credential(), &self.written_host()?)
    }

    /// The place where contexts of Kerberos are created if the server refuses that over RDMA.
    /// It is called without TLS, as calls over RDMA are.
    pub fn creation(&self) -> Option<TcpCreation> {
        TcpCreation::of(&self.server, self.gss_port, None)
    }

    /// The server's host as the URL has it: a name, or an address.
    pub fn written_host(&self) -> Option<String> {
        self.host.clone().or_else(|| Some(self.server.ip()?.ip().to_string()))
    }

    /// The URL of another path on the same server, as [`Url::parse`] reads it.
    pub fn of_path(&self, path: &[u8]) -> String {
        let (path, server) = (percent_encode(path, ESCAPED), self.server.to_string());
        if self.server.ip().is_none() {
            let (socket, query) = server.split_once('?').unwrap_or((&server, ""));
            let query = if query.is_empty() { String::new() } else { format!("?{query}") };
            return format!("{socket}:{path}{query}");
        }
        let port = self.mount.map(|at| format!("mountport={}", at.port()));
        let sec = self.sec.map(|sec| format!("sec={}", sec.name()));
        let gss_port = self.gss_port.map(|port| format!("gssport={port}"));
        let query: Vec<_> = port.into_iter().chain(sec).chain(gss_port).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{server}{path}{mark}{}", query.join("&"))
    }

    /// The same; `ask` returns the ports of the host at an address.
    fn parse_asking(
        url: &str,
        ask: impl FnOnce(SocketAddr) -> Result<Ports, Error>,
    ) -> Result<Self, Error> {
        let bad = || {
            Error::usage(format!(
                "{url:?} names no server and path: write iwarp://HOST:PORT/EXPORT/PATH, \
                 tcp://HOST:PORT/EXPORT/PATH or shm://SOCKET:/EXPORT/PATH, for example \
                 iwarp://127.0.0.1:20049/data"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        if scheme != "tcp" && notation(url, scheme)? != Notation::Ip {
            return Self::of_process(url, scheme, rest);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| bad())?))
            }
            _ if authority.is_empty() || scheme != "tcp" => return Err(bad()),
            _ => (authority, None),
        };
        let Query { mount, sec, gss_port } = Query::read(query, url)?;
        if scheme == "tcp" && gss_port.is_some() {
            return Err(Error::usage(format!(
                "{url:?}: over TCP, contexts of Kerberos are created where calls go: leave \
                 gssport=N out"
            )));
        }
        let (name, host) = match scoped(host.trim_matches(['[', ']']), 0) {
            Ok(at) => (None, at),
            Err(AddressFault::Form) => (Some(host.to_owned()), named(host, authority, url)?),
            Err(fault) => return Err(Error::usage(format!("{url:?}: {fault}"))),
        };
        let at = |port| {
            let mut at = host;
            at.set_port(port);
            at
        };
        let (port, mount) = match port {
            Some(port) => (port, mount),
            None => ask(host).map(|found| (found.nfs, Some(mount.unwrap_or(found.mount))))?,
        };
        let server = Endpoint::parse(&format!("{scheme}://{}", at(port)));
        Ok(Self {
            server: server.map_err(|_| bad())?,
            host: name,
            mount: mount.map(at),
            sec,
            gss_port,
            path: [b"/".as_slice(), &decoded(path)].concat(),
        })
    }

    /// A server on this host: its socket, a colon, the export; `?trust=uid` at the end.
    fn of_process(url: &str, scheme: &str, rest: &str) -> Result<Self, Error> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (socket, path) = rest.split_once(":/").unwrap_or((rest, ""));
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let at = FabricAddress::parse(&format!("{scheme}://{socket}{query}")).map_err(|error| {
            let why =
                if let UrlError::Address { why, .. } = error { why } else { error.to_string() };
            Error::usage(format!(
                "{url:?}: {why}; an export stands behind a colon, as in shm:///run/stag.sock:/data"
            ))
        })?;
        let server = Endpoint::Fabric(at);
        Ok(Self {
            server,
            host: None,
            mount: None,
            sec: None,
            gss_port: None,
            path: [b"/".as_slice(), &decoded(path)].concat(),
        })
    }
}

/// The form of the addresses of a fabric.
fn notation(url: &str, scheme: &str) -> Result<Notation, Error> {
    match address::fabric(scheme) {
        Ok(info) => Ok(info.notation),
        Err(UrlError::Absent(absent)) => Err(address::not_built(url, absent)),
        Err(_) => Err(Error::usage(format!(
            "{url:?}: this build has no scheme {scheme}://, only {}",
            address::called()
        ))),
    }
}

/// The address of a name, with port 0.
fn named(host: &str, authority: &str, url: &str) -> Result<SocketAddr, Error> {
    let found = format!("{host}:0").to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| {
        Error::usage(format!(
            "no address is known for {authority:?} in {url:?}: give the server's IP address"
        ))
    })
}

/// The parts of a URL after its question mark.
#[derive(Default)]
struct Query {
    mount: Option<u16>,
    sec: Option<CallerSec>,
    gss_port: Option<u16>,
}

impl Query {
    fn read(query: &str, url: &str) -> Result<Self, Error> {
        let mut read = Self::default();
        for part in query.split('&').filter(|_| !query.is_empty()) {
            if read.take(part).is_none() {
                return Err(Error::usage(format!(
                    "{url:?}: after the question mark, mountport=N, sec=krb5, krb5i, krb5p or sys, \
                     and gssport=N are allowed, with & between them; a question mark in a name is \
                     written %3F"
                )));
            }
        }
        Ok(read)
    }

    /// Takes one part. None: it is no part, or was there before.
    fn take(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        let is_repeated = match name {
            "mountport" => self.mount.replace(value.parse().ok()?).is_some(),
            "sec" => self.sec.replace(CallerSec::named(value)?).is_some(),
            "gssport" => self.gss_port.replace(value.parse().ok()?).is_some(),
            _ => true,
        };
        (!is_repeated).then_some(())
    }
}

/// `%XX` is the octet with that number; anything else is itself.
fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_fabrics::ABSENT;

    #[test]
    fn servers_paths_and_mount_ports_are_read() {
        let url = Url::parse("iwarp://127.0.0.1:20049/data/a b").unwrap();
        assert_eq!((url.path.as_slice(), url.mount), (b"/data/a b".as_slice(), None));
        assert!(url.server.fabric().is_some());
        assert_eq!(url.to_string(), "iwarp://127.0.0.1:20049");
        assert_eq!(Url::parse("tcp://localhost:1/x").unwrap().host.as_deref(), Some("localhost"));
        let url = Url::parse("tcp://[::1]:2049/srv/data?mountport=20048").unwrap();
        assert_eq!(url.host, None);
        assert_eq!((url.server.fabric(), url.mount.unwrap().port()), (None, 20_048));
        let url = Url::parse("shm:///run/a b.sock:/data/x%3Fy?trust=uid").unwrap();
        assert_eq!(
            (url.to_string().as_str(), url.path.as_slice()),
            ("shm:///run/a b.sock?trust=uid", &b"/data/x?y"[..])
        );
        assert_eq!(Url::parse("shm:///run/stag.sock").unwrap().path, b"/");
        assert_eq!(Url::parse("tcp://127.0.0.1:1").unwrap().path, b"/");
        assert_eq!(
            Url::parse("tcp://127.0.0.1:1/x%3Fy%25%e4%zz%2").unwrap().path,
            b"/x?y%\xe4%zz%2"
        );
    }

    #[test]
    fn contexts_that_rdma_refuses_are_created_at_a_port_of_tcp() {
        let at = |url| Url::parse(url).unwrap().creation().map(|tcp| tcp.at.to_string());
        let of = |at: &str| Some(at.to_owned());
        assert_eq!(at("iwarp://127.0.0.1:20049/x?sec=krb5"), of("127.0.0.1:2049"));
        assert_eq!(at("iwarp://[::1]:20049/x?sec=krb5&gssport=7"), of("[::1]:7"));
        assert_eq!(at("tcp://127.0.0.1:20049/x?sec=krb5"), None);
        assert_eq!(at("shm:///run/stag.sock:/x"), None);
    }

    #[test]
    fn a_path_of_any_octets_becomes_a_url_and_comes_back() {
        let every: Vec<u8> = (1..=255).collect();
        for base in [
            "iwarp://127.0.0.1:20049/data",
            "tcp://[::1]:2049/srv?mountport=20048",
            "tcp://[::1]:2049/srv?mountport=20048&sec=krb5p",
            "iwarp://127.0.0.1:20049/data?sec=krb5",
            "iwarp://127.0.0.1:20049/data?sec=krb5i&gssport=2050",
            "shm:///run/a b.sock:/data?trust=uid",
            "shm:///run/stag.sock:/data",
        ] {
            let base = Url::parse(base).unwrap();
            for path in [&b"/data/a b/c?d%41"[..], b"/", &[b"/x/", &every[..]].concat()] {
                let url = base.of_path(path);
                let back = Url::parse(&url).unwrap();
                assert_eq!(back, Url { path: path.to_vec(), ..base.clone() }, "{url}");
            }
        }
    }

    #[test]
    fn a_link_local_server_is_named_with_its_interface() {
        for url in ["tcp://[fe80::1%lo]:7/x", "tcp://[fe80::1%25lo]:7/x?mountport=9"] {
            let read = Url::parse(url).unwrap();
            assert_eq!(
                (read.to_string().as_str(), read.host.as_ref()),
                ("tcp://[fe80::1%1]:7", None)
            );
            assert_eq!(Url::parse(&read.of_path(b"/x")).unwrap(), read, "{url}");
            let mount = read.mount.map(|at| at.to_string());
            assert_eq!(mount.as_deref(), url.contains('?').then_some("[fe80::1%1]:9"));
        }
        let error = Url::parse("iwarp://[fe80::1]:7/x").unwrap_err().to_string();
        assert!(error.contains("needs its interface"), "{error}");
        let error = Url::parse("tcp://[fe80::1%none-such]/x").unwrap_err().to_string();
        assert!(error.contains("no interface none-such"), "{error}");
    }

    #[test]
    fn over_tcp_the_port_mapper_says_what_the_url_does_not() {
        let asked = |url| {
            let ports = Ports { nfs: 2_049, mount: 635 };
            let url = Url::parse_asking(url, |_| Ok(ports)).unwrap();
            (url.to_string(), url.mount.map(|at| at.to_string()))
        };
        let mount = |at: &str| Some(at.to_owned());
        assert_eq!(
            asked("tcp://127.0.0.1/srv"),
            ("tcp://127.0.0.1:2049".into(), mount("127.0.0.1:635"))
        );
        assert_eq!(asked("tcp://[::1]/srv"), ("tcp://[::1]:2049".into(), mount("[::1]:635")));
        let with_its_own = asked("tcp://127.0.0.1/srv?mountport=7");
        assert_eq!(with_its_own, ("tcp://127.0.0.1:2049".into(), mount("127.0.0.1:7")));
        assert_eq!(asked("tcp://127.0.0.1:9/srv"), ("tcp://127.0.0.1:9".into(), None));
        let error =
            Url::parse_asking("tcp://127.0.0.1/srv", |at| Err(Error::failure(at.ip().to_string())));
        assert_eq!(error.unwrap_err().to_string(), "127.0.0.1");
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_to_write() {
        for (url, part) in [
            ("127.0.0.1:1/x", "write iwarp://"),
            ("iwarp://127.0.0.1/x", "write iwarp://"),
            ("iwarp://:/x", "write iwarp://"),
            ("tcp:///x", "write iwarp://"),
            ("tcp://", "write iwarp://"),
            ("tcp://[::1]:/x", "write iwarp://"),
            ("iwarp://[::1]/x", "write iwarp://"),
            ("tcp://127.0.0.1:99999/x", "write iwarp://"),
            ("shm://x:/data", "must be absolute"),
            ("shm:///x:/data?trust=me", "?trust=uid"),
            ("udp://127.0.0.1:1/x", "no scheme udp://"),
            ("tcp://127.0.0.1:1/x?y", "mountport=N"),
            ("tcp://127.0.0.1:1/x?mountport=x", "mountport=N"),
            ("tcp://127.0.0.1:1/x?sec=krb6", "sec=krb5"),
            ("tcp://127.0.0.1:1/x?sec=krb5&sec=sys", "sec=krb5"),
            ("tcp://127.0.0.1:1/x?sec=krb5&", "sec=krb5"),
            ("iwarp://127.0.0.1:1/x?gssport=65536", "gssport=N"),
            ("iwarp://127.0.0.1:1/x?gssport=1&gssport=2", "gssport=N"),
            ("tcp://127.0.0.1:1/x?sec=krb5&gssport=1", "leave gssport=N out"),
            ("tcp://no.such.host.invalid:1/x", "no address is known"),
        ] {
            let error = Url::parse(url).unwrap_err();
            assert!(
                matches!(error, Error::Usage(_)) && error.to_string().contains(part),
                "{error}"
            );
        }
        for absent in ABSENT {
            let error = Url::parse(&format!("{}://127.0.0.1:1/x", absent.scheme)).unwrap_err();
            assert!(
                error.to_string().contains(&format!("--features {}", absent.feature)),
                "{error}"
            );
        }
    }
}
