//! Facts about one end: build, host, user, device and the limits of its provider.
//!
//! They include no environment, no configuration and no host name.

use super::place::DevicePlace;
use crate::{args, probe};
use rustix::{
    process::{Resource, geteuid, getrlimit},
    system::uname,
};
use serde::{Deserialize, Serialize};
use stag_engine::launch;
use stag_verbs::Limits;
use std::{collections::BTreeMap, fs, path::Path};

/// Files below `/sys/class/infiniband/DEVICE` that identify it.
const DEVICE_FILES: [(&str, &str); 8] = [
    ("firmware", "fw_ver"),
    ("type", "hca_type"),
    ("board", "board_id"),
    ("node type", "node_type"),
    ("vendor", "device/vendor"),
    ("device", "device/device"),
    ("NUMA node", "device/numa_node"),
    ("PCI link", "device/current_link_speed"),
];

/// Facts about one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndFacts {
    /// Version, commit, features and target of the build.
    pub stag: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Effective user.
    pub user: u32,
    /// Effective capabilities, as `/proc/self/status` has them.
    pub capabilities: String,
    /// Octets that may be locked; none without a limit.
    pub locked_memory_limit: Option<u64>,
    /// Name of the RDMA device; none on a fabric without one.
    pub device: Option<String>,
    /// Facts about the device and the fabric, by name.
    pub about: BTreeMap<String, String>,
    /// Ports of all RDMA devices of the host.
    pub ports: Vec<String>,
    /// Limits of the provider.
    pub limits: Option<LimitFacts>,
}

/// Limits of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitFacts {
    /// Connections at a time.
    pub connections: usize,
    /// Work requests pending on one connection.
    pub send_queue: usize,
    /// Receives of all connections.
    pub receives: usize,
    /// Receives of each connection, where they share none.
    pub receives_each: Option<usize>,
    /// Octets of a receive.
    pub receive_octets: usize,
    /// Windows at a time; none on a device without.
    pub windows: usize,
    /// Remote spans of one RDMA Read.
    pub read_spans: usize,
    /// Octets of private data.
    pub private_data_octets: usize,
    /// A reply can invalidate a key of the peer.
    pub sends_invalidation: bool,
    /// A peer can invalidate keys of ours.
    pub bears_invalidation: bool,
}

impl From<&Limits> for LimitFacts {
    fn from(limits: &Limits) -> Self {
        Self {
            connections: limits.connections,
            send_queue: limits.send_queue,
            receives: limits.receives,
            receives_each: limits.receives_each,
            receive_octets: limits.receive_len,
            windows: limits.windows,
            read_spans: limits.read_spans,
            private_data_octets: limits.private_data_len,
            sends_invalidation: limits.sends_invalidation,
            bears_invalidation: limits.bears_invalidation,
        }
    }
}

impl EndFacts {
    /// Facts about this host, without a device. Collected before a thread is pinned, because a
    /// pinned thread sees only its own core.
    pub fn of_host() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            stag: args::VERSION.to_owned(),
            kernel: uname().release().to_string_lossy().into_owned(),
            processor: value(&read("/proc/cpuinfo"), "model name"),
            cores: launch::cores().len(),
            user: geteuid().as_raw(),
            capabilities: value(&read("/proc/self/status"), "CapEff"),
            locked_memory_limit: getrlimit(Resource::Memlock).current,
            ports: probe::ports(),
            ..Self::default()
        }
    }

    /// The same facts, with those about the device at `place`, whose provider has these limits.
    pub fn with_device(self, place: &DevicePlace, limits: &Limits, device: Option<&str>) -> Self {
        let mut about: BTreeMap<String, String> = place.facts().into_iter().collect();
        if let Some(device) = device {
            about.extend(device_facts(&Path::new("/sys/class/infiniband").join(device)));
        }
        Self {
            device: device.map(str::to_owned),
            about,
            limits: Some(LimitFacts::from(limits)),
            ..self
        }
    }

    /// True if the end ran as root.
    pub const fn is_root(&self) -> bool {
        self.user == 0
    }
}

/// The value of the first line of `text` that begins with `name`.
fn value(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

fn device_facts(device: &Path) -> Vec<(String, String)> {
    let of = |(name, file): &(&str, &str)| {
        let text = fs::read_to_string(device.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| ((*name).to_owned(), text.to_owned()))
    };
    let driver = fs::read_link(device.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let driver = driver.map(|name| ("driver".to_owned(), name.into_owned()));
    DEVICE_FILES.iter().filter_map(of).chain(driver).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_device_are_read_and_those_that_are_missing_are_left_out() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("device")).unwrap();
        fs::write(home.path().join("fw_ver"), "22.39.1002\n").unwrap();
        fs::write(home.path().join("device/numa_node"), "1\n").unwrap();
        std::os::unix::fs::symlink("/x/mlx5_core", home.path().join("device/driver")).unwrap();
        let facts = device_facts(home.path());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected =
            [pair("firmware", "22.39.1002"), pair("NUMA node", "1"), pair("driver", "mlx5_core")];
        assert_eq!(facts, expected);
    }

    #[test]
    fn this_host_is_described() {
        let facts = EndFacts::of_host();
        assert!(facts.cores > 0 && !facts.kernel.is_empty() && facts.capabilities.len() == 16);
        assert_eq!(facts.is_root(), geteuid().is_root());
    }
}
