//! Checks of RDMA devices: their presence and their capabilities.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FixClass, PLACED, Severity},
    checks::client::{SoftDevice, soft_device},
    scene::field_of,
};

const VERBS: &str = "/dev/infiniband";

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "RDM01",
        name: "RDMA devices that can be opened",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: ALL,
        why: "Without a device, or without access to its files, rdma:// cannot be used; iwarp:// \
              and shm:// work everywhere.",
        source: "/sys/class/infiniband, /dev/infiniband/{uverbs*,rdma_cm}; kernel \
                 user_verbs.rst",
        judge: devices,
    },
    HostCheck {
        id: "RDM02",
        name: "limits of the device",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "Each connection takes a queue pair, and each Read of a peer one of a few places.",
        source: "ibv_devinfo -v: max_qp, max_cqe, max_qp_rd_atom, max_mw; ibv_query_device(3)",
        judge: limits,
    },
    HostCheck {
        id: "RDM03",
        name: "remote invalidation and windows",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "A server's replies end keys of its clients (Send With Invalidate), and spare them \
              that. Callers lend memory by windows of type 2, without a system call; where there \
              are none, by regions that are registered for each call. Servers lend none.",
        source: "ibv_devinfo -v: device_cap_flags, vendor_id; ibv_query_device(3), \
                 ibv_bind_mw(3); docs/guide/adapters.md",
        judge: windows,
    },
    HostCheck {
        id: "RDM04",
        name: "versions with known defects",
        severity: Severity::Warn,
        class: FixClass::Boot,
        profiles: ALL,
        why: "Some versions lack what the others need, or are known to fail.",
        source: "/proc/sys/kernel/osrelease; history of the kernel",
        judge: versions,
    },
    HostCheck {
        id: "RDM05",
        name: "device made of hardware",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: PLACED,
        why: "rxe and siw are RDMA in the kernel's software, over an ordinary network device: \
              good for tests and for clients, and no measure of RDMA.",
        source: "/sys/class/infiniband/*/device; rdma-link(8)",
        judge: hardware,
    },
    HostCheck {
        id: "RDM06",
        name: "fork with registered memory",
        severity: Severity::Warn,
        class: FixClass::Process,
        profiles: ALL,
        why: "After a fork the first write to a page moves it away from beneath the device. Pools \
              of Stag are left out of a child (MADV_DONTFORK); other libraries in the process \
              need a kernel that copies pinned pages in fork itself.",
        source: "/proc/sys/kernel/osrelease, RDMAV_FORK_SAFE and RDMAV_HUGEPAGES_SAFE; \
                 ibv_fork_init(3); libfabric issue 6894",
        judge: forks,
    },
];

fn devices(scene: &Scene) -> Judged {
    let wanted = "1 or more, readable and writable";
    let Ok(devices) = scene.rdma_devices() else {
        let soft = match soft_device(scene) {
            Ok(SoftDevice::Siw(command) | SoftDevice::Rxe(command)) => format!(", or {command}"),
            Ok(SoftDevice::Neither) | Err(_) => String::new(),
        };
        return Ok(Finding::judge(false, "none: iwarp, shm and tcp are left", wanted)
            .fix(format!("a driver (lspci -nnk shows which){soft}")));
    };
    let names = scene.host.names(VERBS);
    let files: Vec<_> = names
        .iter()
        .filter(|name| name.starts_with("uverbs") || *name == "rdma_cm")
        .map(|name| format!("{VERBS}/{name}"))
        .collect();
    let shown = devices.join(", ");
    if !files.iter().any(|file| file.ends_with("rdma_cm")) || files.len() < 2 {
        let measured = format!("{shown}, without files in {VERBS}");
        return Ok(Finding::judge(false, measured, wanted).fix("modprobe -a ib_uverbs rdma_ucm"));
    }
    let closed = files.iter().find(|file| scene.host.open(file).is_err());
    match closed {
        Some(file) => Ok(Finding::judge(false, format!("{shown}, {file} is closed"), wanted)
            .fix("usermod -aG rdma USER (where udev has that group), or run as root")),
        None => Ok(Finding::judge(true, shown, wanted)),
    }
}

/// The answer of `ibv_devinfo -v` about the first device, and its name.
fn device_info(scene: &Scene) -> Result<(String, String), Finding> {
    let device = scene.rdma_devices()?.into_iter().next().unwrap_or_default();
    let text = scene.host.output(&["ibv_devinfo", "-v", "-d", &device])?;
    Ok((text, device))
}

fn limits(scene: &Scene) -> Judged {
    let (text, device) = device_info(scene)?;
    let number = |name: &str| field_of(&text, name).and_then(|value| value.parse::<u64>().ok());
    let connections = scene.plan.connections.max(1);
    let needs = [("max_qp", connections), ("max_cqe", 4096), ("max_qp_rd_atom", 1)];
    let mut shown = Vec::new();
    let mut is_met = true;
    for (name, need) in needs {
        let Some(value) = number(name) else { continue };
        is_met &= value >= need;
        shown.push(format!("{name} {value}"));
    }
    if shown.is_empty() {
        return Err(Finding::unknown(format!("ibv_devinfo says nothing about {device}")));
    }
    let wanted = needs.map(|(name, need)| format!("{name} {need}")).join(", ");
    Ok(Finding::judge(is_met, shown.join(", "), wanted).fix("fewer connections or cores"))
}

fn windows(scene: &Scene) -> Judged {
    let (text, device) = device_info(scene)?;
    if !text.contains("device_cap_flags") {
        return Err(Finding::unknown(format!("ibv_devinfo says nothing about {device}")));
    }
    let has = |flag: &str| text.contains(flag);
    let word = |is: bool, name: &str| format!("{}{name}", if is { "" } else { "no " });
    let vendor = field_of(&text, "vendor_id")
        .and_then(|id| u32::from_str_radix(id.trim_start_matches("0x"), 16).ok());
    // Some drivers say that they have windows, and fail; irdma has them and does not say so.
    let windows = match vendor {
        Some(BROADCOM | HISILICON) => false,
        Some(INTEL) => has("MEM_WINDOW"),
        _ => has("MEM_WINDOW_TYPE_2"),
    };
    let invalidates = has("MEM_MGT_EXTENSIONS") && vendor != Some(SIW);
    let measured =
        [word(invalidates, "remote invalidation"), word(windows, "windows of type 2")].join(", ");
    Ok(Finding::judge(invalidates && windows, measured, "both").fix(match windows {
        true => "nothing to do: clients end their keys themselves",
        false => "nothing to do: a caller registers memory for each call, and calls one host",
    }))
}

/// Vendors whose drivers are known to report capabilities wrongly.
const BROADCOM: u32 = 0x14e4;
const HISILICON: u32 = 0x19e5;
const INTEL: u32 = 0x8086;
const SIW: u32 = 0x62_6d74;

/// Major and minor number of the running kernel.
fn kernel(scene: &Scene) -> Result<(u32, u32), Finding> {
    let text = scene.host.text("/proc/sys/kernel/osrelease")?;
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(Finding::not_applicable(format!("kernel {text:?} has no version"))),
    }
}

/// Kernels below a version, and the defect that they have.
const DEFECTS: [((u32, u32), &str); 2] = [
    ((5, 3), "has no siw, so no client of iwarp:// without a device"),
    ((5, 12), "does not copy pinned pages in fork"),
];

fn versions(scene: &Scene) -> Judged {
    let (major, minor) = kernel(scene)?;
    let defect = DEFECTS.iter().find(|(below, _)| (major, minor) < *below);
    let measured = match defect {
        Some((_, what)) => format!("kernel {major}.{minor} {what}"),
        None => format!("kernel {major}.{minor}"),
    };
    Ok(Finding::judge(defect.is_none(), measured, "kernel 5.12 or later").fix("a later kernel"))
}

fn hardware(scene: &Scene) -> Judged {
    let devices = scene.rdma_devices()?;
    let is_soft = |name: &&String| {
        !scene.host.exists(&format!("/sys/class/infiniband/{name}/device"))
            || scene.host.exists(&format!("/sys/class/infiniband/{name}/parent"))
    };
    let soft: Vec<_> = devices.iter().filter(is_soft).cloned().collect();
    let measured = match soft.is_empty() {
        true => devices.join(", "),
        false => format!("software: {}", soft.join(", ")),
    };
    Ok(Finding::judge(soft.is_empty(), measured, "hardware")
        .fix("name the adapter with --dev; say in results that the device is software"))
}

fn forks(scene: &Scene) -> Judged {
    scene.rdma_devices()?;
    let environment = scene.host.text("/proc/self/environ").unwrap_or_default();
    let is_set = |name: &str| environment.split('\0').any(|entry| entry.starts_with(name));
    let is_safe = is_set("RDMAV_FORK_SAFE=") && is_set("RDMAV_HUGEPAGES_SAFE=");
    let (major, minor) = kernel(scene)?;
    let copies = (major, minor) >= (5, 12);
    let measured = match (copies, is_safe) {
        (true, _) => "the kernel copies pinned pages in fork",
        (false, true) => "RDMAV_FORK_SAFE and RDMAV_HUGEPAGES_SAFE are set",
        (false, false) => "neither the kernel nor the environment protects registered pages",
    };
    Ok(Finding::judge(copies || is_safe, measured, "one of both")
        .fix("export RDMAV_FORK_SAFE=1 RDMAV_HUGEPAGES_SAFE=1"))
}
