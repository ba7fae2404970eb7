//! The scene that checks judge: a host, and the planned workload.

use crate::{CoreGap, CoreList, Finding, HostFiles, TuneProfile};
use std::net::SocketAddr;

/// Octets of a MiB.
pub(crate) const MIB: u64 = 1 << 20;
/// The number of CAP_IPC_LOCK (linux/capability.h).
pub(crate) const IPC_LOCK: u32 = 14;
/// Octets that a device's queues take for each connection, at most: send queue, completions.
const QUEUES_PER_CONNECTION: u64 = 64 << 10;

/// The planned workload of a host, and its place.
#[derive(Clone, Debug, Default)]
pub struct HostPlan {
    /// Purpose of the host.
    pub profile: TuneProfile,
    /// Cores of the poll loops, if they are known.
    pub cores: Option<CoreList>,
    /// The RDMA or network device, if one was named.
    pub device: Option<String>,
    /// Octets of buffers of all shards.
    pub pool_octets: u64,
    /// Connections of all shards.
    pub connections: u64,
    /// TCP ports that are to be free.
    pub ports: Vec<u16>,
    /// Directories to serve.
    pub directories: Vec<String>,
    /// A server that has to be reachable.
    pub server: Option<SocketAddr>,
}

/// A host, and what is to run on it.
#[derive(Debug)]
pub struct Scene {
    /// The host.
    pub host: HostFiles,
    /// The plan for it.
    pub plan: HostPlan,
    /// Gaps of the stall probe; none if it was not run.
    pub gaps: Option<Vec<CoreGap>>,
}

impl Scene {
    /// Cores of the poll loops.
    pub(crate) fn cores(&self) -> Result<&CoreList, Finding> {
        let reason = "depends on the cores: name them with --cores";
        self.plan.cores.as_ref().ok_or_else(|| Finding::not_applicable(reason))
    }

    /// Cores of the poll loops, or else all that are online.
    pub(crate) fn cores_or_all(&self) -> Result<CoreList, Finding> {
        match &self.plan.cores {
            Some(cores) => Ok(cores.clone()),
            None => self.core_file("/sys/devices/system/cpu/online"),
        }
    }

    /// The list of cores in the file at `path`.
    pub(crate) fn core_file(&self, path: &str) -> Result<CoreList, Finding> {
        let text = self.host.text(path)?;
        let text = if text == "(null)" { "" } else { &text };
        text.parse().map_err(Finding::not_applicable)
    }

    /// A field of /proc/self/status.
    pub(crate) fn status(&self, field: &str) -> Result<String, Finding> {
        field_of(&self.host.text("/proc/self/status")?, field)
            .ok_or_else(|| Finding::not_applicable(format!("no {field} in /proc/self/status")))
    }

    /// Returns true if the mask of capabilities `field` has the capability `number`.
    pub(crate) fn has_capability(&self, field: &str, number: u32) -> Result<bool, Finding> {
        let mask = u64::from_str_radix(&self.status(field)?, 16).unwrap_or(0);
        Ok(mask >> number & 1 == 1)
    }

    /// Soft and hard limit of a resource of this process, as /proc/self/limits names it; the
    /// greatest number without a limit.
    pub(crate) fn limits(&self, name: &str) -> Result<(u64, u64), Finding> {
        let text = self.host.text("/proc/self/limits")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.unwrap_or_default().split_whitespace().map(|word| match word {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        });
        let both = words.next().flatten().zip(words.next().flatten());
        both.ok_or_else(|| Finding::not_applicable(format!("no {name} in /proc/self/limits")))
    }

    /// The contents of the file of this process's control group, and of its parents. `version2` and
    /// `version1` are its names; version 1 has it under `controller`.
    pub(crate) fn cgroup_files(
        &self,
        controller: &str,
        version2: &str,
        version1: &str,
    ) -> Result<Vec<String>, Finding> {
        let groups = self.host.text("/proc/self/cgroup")?;
        let mut found = Vec::new();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let (base, file) = match controllers {
                "" => ("/sys/fs/cgroup".to_owned(), version2),
                all if all.split(',').any(|one| one == controller) => {
                    (format!("/sys/fs/cgroup/{all}"), version1)
                }
                _ => continue,
            };
            let mut path = path.trim_end_matches('/');
            loop {
                found.extend(self.host.text(&format!("{base}{path}/{file}")));
                let Some((parent, _)) = path.rsplit_once('/') else { break };
                path = parent;
            }
        }
        match found.is_empty() {
            true => Err(Finding::not_applicable(format!("no control group limits {controller}"))),
            false => Ok(found),
        }
    }

    /// A field of /proc/meminfo, in octets.
    pub(crate) fn meminfo(&self, field: &str) -> Result<u64, Finding> {
        let text = field_of(&self.host.text("/proc/meminfo")?, field).unwrap_or_default();
        let kib: Option<u64> = text.trim_end_matches(" kB").parse().ok();
        let octets = kib.and_then(|kib| kib.checked_mul(1024));
        octets.ok_or_else(|| Finding::not_applicable(format!("no {field} in /proc/meminfo")))
    }

    /// Octets that a device needs locked: buffers, queues, and 64 MiB for the rest.
    pub(crate) fn locked_octets(&self) -> u64 {
        let queues = self.plan.connections.saturating_mul(QUEUES_PER_CONNECTION);
        self.plan.pool_octets.saturating_add(queues).saturating_add(64 * MIB)
    }

    /// RDMA devices: the named one, or else all.
    ///
    /// # Errors
    /// Not applicable if there is none.
    pub(crate) fn rdma_devices(&self) -> Result<Vec<String>, Finding> {
        let all = self.host.names("/sys/class/infiniband");
        let devices: Vec<_> = match &self.plan.device {
            Some(named) if all.contains(named) => vec![named.clone()],
            Some(named) => {
                let has = |dev: &String| self.net_devices_of(dev).contains(named);
                all.into_iter().filter(has).collect()
            }
            None => all,
        };
        match devices.is_empty() {
            true => Err(Finding::not_applicable("no RDMA device")),
            false => Ok(devices),
        }
    }

    /// Network devices: those of the named device, or else all that are backed by hardware.
    ///
    /// # Errors
    /// Not applicable if there is none.
    pub(crate) fn net_devices(&self) -> Result<Vec<String>, Finding> {
        let all = self.host.names("/sys/class/net");
        let is_real = |name: &String| self.host.exists(&format!("/sys/class/net/{name}/device"));
        let devices: Vec<_> = match &self.plan.device {
            Some(named) if all.contains(named) => vec![named.clone()],
            Some(named) => self.net_devices_of(named),
            None => all.into_iter().filter(is_real).collect(),
        };
        match devices.is_empty() {
            true => Err(Finding::not_applicable("no network device that is backed by hardware")),
            false => Ok(devices),
        }
    }

    /// Network devices of the RDMA device `name`.
    pub(crate) fn net_devices_of(&self, name: &str) -> Vec<String> {
        let mut devices = self.host.names(&format!("/sys/class/infiniband/{name}/device/net"));
        devices.extend(self.host.text(&format!("/sys/class/infiniband/{name}/parent")));
        devices
    }

    /// Folders of the devices on the PCI bus.
    ///
    /// # Errors
    /// Not applicable if there is none.
    pub(crate) fn pci_folders(&self) -> Result<Vec<String>, Finding> {
        let rdma = self.rdma_devices().unwrap_or_default();
        let rdma = rdma.iter().map(|name| format!("/sys/class/infiniband/{name}/device"));
        let net = self.net_devices().unwrap_or_default();
        let net = net.iter().map(|name| format!("/sys/class/net/{name}/device"));
        let mut seen = Vec::new();
        let mut folders: Vec<_> =
            rdma.chain(net).filter(|at| self.host.exists(&format!("{at}/config"))).collect();
        folders.retain(|at| match self.host.link(at) {
            Some(address) if seen.contains(&address) => false,
            Some(address) => {
                seen.push(address);
                true
            }
            None => true,
        });
        match folders.is_empty() {
            true => Err(Finding::not_applicable("no RDMA or network device on a PCI bus")),
            false => Ok(folders),
        }
    }

    /// Ports of RDMA devices, as folders.
    pub(crate) fn rdma_ports(&self) -> Result<Vec<(String, String)>, Finding> {
        let ports = self.rdma_devices()?.into_iter().flat_map(|device| {
            let at = format!("/sys/class/infiniband/{device}/ports");
            let names = self.host.names(&at);
            names.into_iter().map(move |port| (device.clone(), format!("{at}/{port}")))
        });
        Ok(ports.collect())
    }

    /// Ports of RDMA devices that speak RoCE.
    ///
    /// # Errors
    /// Not applicable if there is none.
    pub(crate) fn roce_ports(&self) -> Result<Vec<(String, String)>, Finding> {
        let is_roce = |(device, port): &(String, String)| {
            let kind = self.host.text(&format!("/sys/class/infiniband/{device}/node_type"));
            let layer = self.host.text(&format!("{port}/link_layer"));
            layer.is_ok_and(|layer| layer == "Ethernet") && kind.is_ok_and(|k| k.starts_with("1:"))
        };
        let ports: Vec<_> = self.rdma_ports()?.into_iter().filter(is_roce).collect();
        match ports.is_empty() {
            true => Err(Finding::not_applicable("no RDMA device speaks RoCE")),
            false => Ok(ports),
        }
    }

    /// Network devices of all RoCE ports.
    pub(crate) fn roce_net_devices(&self) -> Result<Vec<String>, Finding> {
        let ports = self.roce_ports()?;
        let mut devices: Vec<_> =
            ports.iter().flat_map(|(device, _)| self.net_devices_of(device)).collect();
        devices.dedup();
        match devices.is_empty() {
            true => Err(Finding::not_applicable("the RoCE device has no network device here")),
            false => Ok(devices),
        }
    }

    /// Returns true if this process runs in a container.
    pub(crate) fn is_container(&self) -> bool {
        let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
        let group = self.host.text("/proc/self/cgroup").unwrap_or_default();
        let words = ["docker", "kubepods", "containerd", "libpod", "lxc"];
        marks.iter().any(|mark| self.host.exists(mark))
            || words.iter().any(|word| group.contains(word))
    }
}

/// The field `name` of a text with lines `name: value`.
pub(crate) fn field_of(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// A number of octets in MiB, rounded up.
pub(crate) fn mib(octets: u64) -> String {
    match octets {
        u64::MAX => "unlimited".to_owned(),
        octets => format!("{} MiB", octets.div_ceil(MIB)),
    }
}
