//! All checks, one file for each family. A check is a row of its family's table.

mod cgroups;
mod client;
mod cpu;
mod irq;
mod kerberos;
mod memory;
mod net;
mod nfs;
mod pci;
mod placement;
mod rdma;
mod roce;
mod system;

use crate::{HostCheck, Scene};
use std::time::Duration;

/// Checks of a host that serves or measures, in the order of their ids.
#[must_use]
pub fn of_host() -> Vec<&'static HostCheck> {
    let families = [
        memory::CHECKS,
        cpu::CHECKS,
        placement::CHECKS,
        irq::CHECKS,
        net::CHECKS,
        roce::CHECKS,
        pci::CHECKS,
        rdma::CHECKS,
        nfs::CHECKS,
        kerberos::CHECKS,
        system::CHECKS,
    ];
    let order = ["MEM", "CPU", "IRQ", "NET", "PCI", "RDM", "NFS", "SYS"];
    let mut checks: Vec<_> = families.into_iter().flatten().collect();
    checks.sort_by_key(|check| {
        (order.iter().position(|family| check.id.starts_with(family)), check.id)
    });
    checks
}

/// Checks of a host that is to mount over RDMA.
#[must_use]
pub fn of_client() -> Vec<&'static HostCheck> {
    let others = ["NET02", "NET09", "NET13", "RDM05", "NFS04", "NFS05"];
    let mut checks: Vec<_> = client::CHECKS.iter().collect();
    checks.extend(of_host().into_iter().filter(|check| others.contains(&check.id)));
    checks
}

/// All checks.
#[must_use]
pub fn all() -> Vec<&'static HostCheck> {
    let mut checks = of_host();
    checks.extend(client::CHECKS);
    checks
}

/// Files that some check judges by how they change within a second.
pub(crate) fn sampled(scene: &Scene) -> Vec<String> {
    let mut paths = roce::counters(scene);
    paths.push("/proc/stat".to_owned());
    paths
}

/// A count within `time`, for each second.
fn per_second(count: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1000) / millis
}
