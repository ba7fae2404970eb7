//! Mount commands of the exports, and their lines for `/etc/fstab`, for the READY block and for
//! `stag ctl mounts`.
//!
//! Version 4 needs the address, the path and, where it is not the default, the port: Linux tries
//! 4.2 first, at port 2049 over TCP and 20049 over RDMA (RFC 8267 §6.3). Version 3 has no port
//! mapper and no lock manager here, so its lines name ports and `nolock`.

use crate::quote;
use rustix::system::uname;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Port of NFS over TCP, at which version 4 calls unless a mount names another one.
const TCP_PORT: u16 = 2049;
/// Port of NFS over RDMA.
const RDMA_PORT: u16 = 20_049;

/// The addresses and versions that determine the mount commands.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// Addresses of RPC-over-RDMA.
    pub rdma: Vec<SocketAddr>,
    /// Address of NFS and MOUNT over TCP.
    pub tcp: Option<SocketAddr>,
    /// Version 3 is served.
    pub three: bool,
    /// Versions 4.1 and 4.2 are served.
    pub four: bool,
    /// Callers must use a port below 1024, unless `--insecure` is given.
    pub needs_low_port: bool,
}

/// One way to mount an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Version of NFS: 3, or 4 for 4.1 and 4.2.
    pub nfs: u8,
    /// `rdma` or `tcp`.
    pub transport: &'static str,
    /// The command for a shell.
    pub command: String,
    /// The line of `/etc/fstab`.
    pub fstab: String,
}

impl Mounts {
    /// Lines of the READY block for an export: version 4 where it is served, else version 3. They
    /// name the security flavor `sec`, if there is one.
    pub fn shortest(&self, name: &str, sec: Option<&str>) -> String {
        let of = |version| self.of(name, sec).into_iter().filter(move |mount| mount.nfs == version);
        let mut text = String::new();
        let mounts: Vec<_> = if self.four { of(4).collect() } else { of(3).collect() };
        if self.is_refused_over_rdma() && mounts.iter().any(|mount| mount.transport == "rdma") {
            text.push_str(
                "# Linux mounts over RDMA from a port above 1023, which from this host needs \
                 --insecure:\n",
            );
        }
        for Mount { command, fstab, .. } in &mounts {
            text.extend([command, "\n", fstab, "\n"]);
        }
        if mounts.is_empty() && !self.four {
            text.push_str(
                "# no mount command of version 3: Linux asks for the export over TCP (--tcp)\n",
            );
        }
        text
    }

    /// Returns true if the server refuses a Linux client of its own host over RDMA.
    fn is_refused_over_rdma(&self) -> bool {
        let is_loopback = |at: &SocketAddr| at.ip().to_canonical().is_loopback();
        self.needs_low_port && self.rdma.iter().any(is_loopback)
    }

    /// Returns true if the READY block leaves out lines of version 3 that [`Self::of`] has.
    pub fn leaves_out_3(&self) -> bool {
        self.four && self.has(3)
    }

    /// Returns true if version `nfs` can be mounted here.
    pub fn has(&self, nfs: u8) -> bool {
        match nfs {
            3 => self.three && self.tcp.is_some(),
            _ => self.four && (self.tcp.is_some() || !self.rdma.is_empty()),
        }
    }

    /// The reason why version `nfs` cannot be mounted here, and the remedy.
    pub fn no_mount(&self, nfs: u8) -> String {
        match nfs {
            3 if self.three => "Linux asks for exports of version 3 over TCP: serve with --tcp",
            3 => "version 3 is not served: serve with --nfs 3,4",
            _ if self.four => "nothing can be mounted without --tcp or an RDMA address of --listen",
            _ => "version 4 is not served: leave --nfs out, or write --nfs 3,4",
        }
        .to_owned()
    }

    /// All ways to mount the export `name`: version 4 first, and RDMA before TCP. Each names the
    /// security flavor `sec`, if there is one.
    pub fn of(&self, name: &str, sec: Option<&str>) -> Vec<Mount> {
        let mut mounts: Vec<Mount> = Vec::new();
        let mut add = |nfs, transport, at, options: &str| {
            let comma = if options.is_empty() { "" } else { "," };
            let sec = sec.map_or_else(String::new, |flavor| format!("{comma}sec={flavor}"));
            let options = format!("{options}{sec}");
            let mount = mount(nfs, transport, &source(at, name), name, &options);
            if !mounts.contains(&mount) {
                mounts.push(mount);
            }
        };
        let rdma = || self.rdma.iter().copied().flat_map(families);
        let tcp = || self.tcp.into_iter().flat_map(families);
        if self.four {
            rdma().for_each(|at| add(4, "rdma", at, &rdma_options_of_4(at)));
            tcp().for_each(|at| add(4, "tcp", at, &port(at, TCP_PORT)));
        }
        if self.three && self.tcp.is_some() {
            for at in rdma() {
                let of_family = tcp().find(|tcp| tcp.is_ipv4() == at.is_ipv4());
                if let Some(tcp) = of_family.or(self.tcp) {
                    add(3, "rdma", at, &rdma_options_of_3(at, tcp));
                }
            }
            tcp().for_each(|at| add(3, "tcp", at, &tcp_options_of_3(at)));
        }
        mounts
    }
}

/// The addresses that clients of either family use: `[::]` takes both.
fn families(at: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let v4 = at.is_ipv6() && at.ip().is_unspecified();
    let v4 = v4.then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), at.port()));
    v4.into_iter().chain([at])
}

/// `-o rdma` is the IPv4 name of the transport.
const fn rdma_name(at: SocketAddr) -> &'static str {
    if at.is_ipv4() { "rdma" } else { "proto=rdma6" }
}

const fn tcp_name(at: SocketAddr) -> &'static str {
    if at.is_ipv4() { "tcp" } else { "tcp6" }
}

/// The port as an option, unless it is the usual one.
fn port(at: SocketAddr, usual: u16) -> String {
    if at.port() == usual { String::new() } else { format!("port={}", at.port()) }
}

fn rdma_options_of_4(at: SocketAddr) -> String {
    let port = port(at, RDMA_PORT);
    let comma = if port.is_empty() { "" } else { "," };
    format!("{}{comma}{port}", rdma_name(at))
}

/// `nolock`, because there is no lock manager; `mountport`, because there is no rpcbind.
fn rdma_options_of_3(at: SocketAddr, tcp: SocketAddr) -> String {
    let (rdma, mountproto) = (rdma_name(at), tcp_name(tcp));
    let (port, mountport) = (at.port(), tcp.port());
    format!("{rdma},port={port},vers=3,nolock,mountport={mountport},mountproto={mountproto}")
}

fn tcp_options_of_3(at: SocketAddr) -> String {
    let (name, port) = (tcp_name(at), at.port());
    format!("proto={name},port={port},vers=3,nolock,mountport={port},mountproto={name}")
}

fn mount(nfs: u8, transport: &'static str, source: &str, name: &str, options: &str) -> Mount {
    let target = format!("/mnt/{name}");
    let asked = if options.is_empty() { String::new() } else { format!("-o {options} ") };
    let (from, to) = (quote::shell(source), quote::shell(&target));
    let command = format!("mount -t nfs {asked}{from} {to}");
    // At boot it waits for the network.
    let comma = if options.is_empty() { "" } else { "," };
    let (from, to) = (quote::fstab(source), quote::fstab(&target));
    let fstab = format!("{from} {to} nfs {options}{comma}_netdev 0 0");
    Mount { nfs, transport, command, fstab }
}

fn source(at: SocketAddr, name: &str) -> String {
    format!("{}:/{name}", host(at))
}

/// Returns the name by which clients call this host: they cannot use a wildcard address. A
/// link-local address has the number of this host's interface: a client replaces it by its own.
fn host(at: SocketAddr) -> String {
    match at.ip() {
        ip if ip.is_unspecified() => uname().nodename().to_string_lossy().into_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => match at {
            SocketAddr::V6(at) if at.scope_id() != 0 => format!("[{ip}%{}]", at.scope_id()),
            _ => format!("[{ip}]"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(rdma: &[&str], tcp: Option<&str>, versions: [bool; 2]) -> Mounts {
        let [three, four] = versions;
        Mounts {
            rdma: rdma.iter().map(|at| at.parse().unwrap()).collect(),
            tcp: tcp.map(|at| at.parse().unwrap()),
            three,
            four,
            needs_low_port: false,
        }
    }

    fn lines(mounts: &[Mount]) -> Vec<&str> {
        mounts.iter().flat_map(|mount| [&*mount.command, &*mount.fstab]).collect()
    }

    #[test]
    fn at_the_usual_ports_version_4_needs_no_options_but_the_transport() {
        let both = served(&["10.0.0.1:20049"], Some("10.0.0.1:2049"), [true, true]);
        assert_eq!(
            both.shortest("data", None).lines().collect::<Vec<_>>(),
            [
                "mount -t nfs -o rdma 10.0.0.1:/data /mnt/data",
                "10.0.0.1:/data /mnt/data nfs rdma,_netdev 0 0",
                "mount -t nfs 10.0.0.1:/data /mnt/data",
                "10.0.0.1:/data /mnt/data nfs _netdev 0 0",
            ]
        );
        assert!(both.leaves_out_3());
        assert_eq!(
            both.of("data", None).iter().map(|mount| mount.nfs).collect::<Vec<_>>(),
            [4, 4, 3, 3]
        );
    }

    #[test]
    fn an_export_without_auth_sys_is_mounted_with_its_flavor() {
        let both = served(&["10.0.0.1:20049"], Some("10.0.0.1:2049"), [true, true]);
        let mounts = both.of("data", Some("krb5p"));
        assert_eq!(
            lines(&mounts)[..4],
            [
                "mount -t nfs -o rdma,sec=krb5p 10.0.0.1:/data /mnt/data",
                "10.0.0.1:/data /mnt/data nfs rdma,sec=krb5p,_netdev 0 0",
                "mount -t nfs -o sec=krb5p 10.0.0.1:/data /mnt/data",
                "10.0.0.1:/data /mnt/data nfs sec=krb5p,_netdev 0 0",
            ]
        );
        assert!(mounts.iter().all(|mount| mount.command.contains("sec=krb5p")));
        assert!(both.of("other", None).iter().all(|mount| !mount.command.contains("sec=")));
    }

    #[test]
    fn other_ports_are_named() {
        let four = served(&["10.0.0.1:7"], Some("10.0.0.1:8"), [false, true]);
        assert_eq!(
            lines(&four.of("a b", None)),
            [
                "mount -t nfs -o rdma,port=7 '10.0.0.1:/a b' '/mnt/a b'",
                "10.0.0.1:/a\\040b /mnt/a\\040b nfs rdma,port=7,_netdev 0 0",
                "mount -t nfs -o port=8 '10.0.0.1:/a b' '/mnt/a b'",
                "10.0.0.1:/a\\040b /mnt/a\\040b nfs port=8,_netdev 0 0",
            ]
        );
        assert!(!four.leaves_out_3());
    }

    #[test]
    fn version_3_names_port_transport_and_the_way_to_mount() {
        let three = served(&["10.0.0.1:20049"], Some("10.0.0.1:2049"), [true, false]);
        let rdma = "rdma,port=20049,vers=3,nolock,mountport=2049,mountproto=tcp";
        let tcp = "proto=tcp,port=2049,vers=3,nolock,mountport=2049,mountproto=tcp";
        assert_eq!(
            lines(&three.of("data", None)),
            [
                &format!("mount -t nfs -o {rdma} 10.0.0.1:/data /mnt/data"),
                &format!("10.0.0.1:/data /mnt/data nfs {rdma},_netdev 0 0"),
                &format!("mount -t nfs -o {tcp} 10.0.0.1:/data /mnt/data"),
                &format!("10.0.0.1:/data /mnt/data nfs {tcp},_netdev 0 0"),
            ]
        );
        let without = served(&["10.0.0.1:20049"], None, [true, false]).shortest("data", None);
        assert!(without.starts_with("# no mount command of version 3"), "{without}");
    }

    #[test]
    fn ipv6_has_its_own_transports_and_brackets() {
        let six = served(&["[fd00::1]:20049"], Some("[fd00::1]:7"), [true, true]);
        let mounts = six.of("data", None);
        assert_eq!(mounts[0].command, "mount -t nfs -o proto=rdma6 [fd00::1]:/data /mnt/data");
        assert_eq!(mounts[1].command, "mount -t nfs -o port=7 [fd00::1]:/data /mnt/data");
        let options = "proto=rdma6,port=20049,vers=3,nolock,mountport=7,mountproto=tcp6";
        assert!(mounts[2].command.contains(options), "{}", mounts[2].command);
        assert_eq!(host("[fe80::1%3]:1".parse().unwrap()), "[fe80::1%3]");
        assert!(!host("0.0.0.0:1".parse().unwrap()).contains("0.0.0.0"));
    }

    #[test]
    fn an_address_of_both_families_is_mounted_by_either_and_each_line_is_there_once() {
        let of =
            |at: &str| families(at.parse().unwrap()).map(|at| at.to_string()).collect::<Vec<_>>();
        assert_eq!(of("[::]:20049"), ["0.0.0.0:20049", "[::]:20049"]);
        for one in ["0.0.0.0:1", "[::1]:1", "10.0.0.1:1", "[fd00::1]:1"] {
            assert_eq!(of(one), [one]);
        }
        let all = served(&["[::]:20049"], Some("[::]:2049"), [false, true]);
        let transports: Vec<_> = all.of("data", None).iter().map(|mount| mount.transport).collect();
        assert_eq!(transports, ["rdma", "rdma", "tcp"]);
    }

    #[test]
    fn a_server_that_asks_for_low_ports_says_that_this_host_cannot_mount_over_rdma() {
        let mut mounts = served(&["127.0.0.1:20049"], Some("127.0.0.1:2049"), [true, true]);
        assert!(!mounts.shortest("data", None).contains('#'));
        mounts.needs_low_port = true;
        assert!(
            mounts.shortest("data", None).starts_with("# Linux mounts over RDMA from a port above")
        );
    }
}
