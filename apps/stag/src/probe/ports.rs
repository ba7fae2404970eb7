//! The ports of RDMA devices as the kernel shows them, whether this build can use them or not.

use std::{
    fmt, fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

/// A port of a device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Port {
    device: String,
    number: String,
    state: String,
    link: String,
    /// The first GID that stands for an IPv4 address: the one that connections to that address use.
    gid: Option<(String, Ipv4Addr)>,
    /// Octets that the interface of that GID carries.
    mtu: Option<String>,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, number, state, link, gid, mtu } = self;
        write!(f, "{device}/{number}, {link}, {state}")?;
        if let Some((gid, ip)) = gid {
            write!(f, ", GID {gid} ({ip})")?;
        }
        mtu.as_ref().map_or(Ok(()), |mtu| write!(f, ", MTU {mtu}"))
    }
}

/// All ports of this host.
pub fn here() -> Vec<Port> {
    below(Path::new("/sys/class/infiniband"))
}

fn below(root: &Path) -> Vec<Port> {
    let mut found = Vec::new();
    for device in names(root) {
        let ports = root.join(&device).join("ports");
        for number in names(&ports) {
            found.push(port(&ports.join(&number), device.clone(), number));
        }
    }
    found
}

fn port(at: &Path, device: String, number: String) -> Port {
    let first = names(&at.join("gids")).iter().find_map(|index| {
        let gid = text(at.join("gids").join(index))?;
        let ip = gid.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()?;
        let interface = text(at.join("gid_attrs/ndevs").join(index));
        let mtu = interface.and_then(|name| text(format!("/sys/class/net/{name}/mtu").into()));
        Some(((gid, ip), mtu))
    });
    let (gid, mtu) = first.map_or((None, None), |(gid, mtu)| (Some(gid), mtu));
    // "4: ACTIVE"
    let state = text(at.join("state")).unwrap_or_default();
    let state = state.split_once(": ").map_or_else(|| state.clone(), |(_, name)| name.to_owned());
    let link = text(at.join("link_layer")).unwrap_or_default();
    Port { device, number, state, link, gid, mtu }
}

/// The entries of a directory, in order; none when it is not there.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_shown_as_the_kernel_shows_them() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("rxe0/ports/1");
        for directory in ["gids", "gid_attrs/ndevs"] {
            fs::create_dir_all(port.join(directory)).unwrap();
        }
        let files = [
            ("state", "4: ACTIVE\n"),
            ("link_layer", "Ethernet\n"),
            ("gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:0a00:020f\n"),
            ("gid_attrs/ndevs/1", "lo\n"),
        ];
        files.iter().for_each(|(name, text)| fs::write(port.join(name), text).unwrap());
        let found = below(root.path());
        let [port] = &found[..] else { panic!("one port: {found:?}") };
        let shown = "rxe0/1, Ethernet, ACTIVE, GID 0000:0000:0000:0000:0000:ffff:0a00:020f \
                     (10.0.2.15), MTU ";
        assert!(port.to_string().starts_with(shown), "{port}");
        assert!(below(&root.path().join("nowhere")).is_empty());
    }
}
